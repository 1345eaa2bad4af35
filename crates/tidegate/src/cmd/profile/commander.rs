//! Has a nucleus divide its server's cores, as a sentry would.

use std::net::UdpSocket;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use tidegate_wire::{Command, Gauge, Header, IsolationProblem, Keys, Kind, MAX_DATAGRAM, Message, Secret, Session};

/// A nucleus that says nothing for so long is not there.
const PATIENCE: Duration = Duration::from_secs(15);
/// Another nucleus may take over after so long, nanoseconds.
const QUIET: u64 = 2_000_000_000;

/// Listens to one nucleus, and commands it.
#[derive(Debug)]
pub(super) struct Commander {
    socket: UdpSocket,
    keys: Keys,
    secret: Secret,
    server: String,
    session: Session,
    began: Instant,
}

impl Commander {
    pub(super) fn new(listen: std::net::SocketAddr, server: &str, key_file: &Path) -> Result<Commander> {
        let socket = UdpSocket::bind(listen).with_context(|| format!("cannot listen for the nucleus on {listen}"))?;
        socket.set_read_timeout(Some(Duration::from_millis(200)))?;
        Ok(Commander {
            socket,
            keys: Keys::load(key_file)?,
            secret: Secret::random(),
            server: server.to_owned(),
            session: Session::default(),
            began: Instant::now(),
        })
    }

    /// Has application work given `cores`, and waits until the nucleus reports it.
    ///
    /// # Errors
    /// When it cannot do it, or says nothing.
    pub(super) fn divide(&mut self, cores: u32) -> Result<()> {
        let command = Command { cores: u16::try_from(cores)? };
        self.until(|session| session.in_force == Some(f64::from(cores)), command)
    }

    /// Tells it again, so that it keeps the division; call now and then.
    pub(super) fn renew(&mut self, cores: u32) -> Result<()> {
        let command = Command { cores: u16::try_from(cores)? };
        self.until(|_| true, command)
    }

    fn until(&mut self, done: impl Fn(&Heard) -> bool, command: Command) -> Result<()> {
        let give_up = Instant::now() + PATIENCE;
        let mut buffer = [0; MAX_DATAGRAM + 1];
        while Instant::now() < give_up {
            let Ok((length, from)) = self.socket.recv_from(&mut buffer) else { continue };
            let Some((answer, heard)) = self.take(&buffer[..length], command) else { continue };
            self.socket.send_to(&answer, from)?;
            let Some(heard) = heard else { continue };
            if let Some(problem) = heard.problem {
                bail!("the nucleus of {} cannot divide its cores: {problem}", self.server);
            }
            if !heard.divides {
                bail!("the nucleus of {} does not divide cores; it needs [isolation]", self.server);
            }
            if done(&heard) {
                return Ok(());
            }
        }
        bail!("the nucleus of {} is silent or does not obey; is this address among its `to`?", self.server)
    }

    /// What to answer a datagram, and what it says if it is a report of the session.
    fn take(&mut self, datagram: &[u8], command: Command) -> Option<(Vec<u8>, Option<Heard>)> {
        let (message, key) =
            Message::open(&self.keys, datagram).ok().filter(|(message, _)| message.server == self.server)?;
        let report = message.report?;
        let now = self.began.elapsed().as_nanos() as u64 + QUIET;
        let mut answer = [0; MAX_DATAGRAM];
        match self.session.admit(&self.secret, &self.server, &message.header, now, QUIET) {
            Ok(()) => {
                let header = self.session.command()?;
                let length = Message::write_command(&key, &header, &self.server, command, &mut answer);
                let gauge = |gauge| report.gauges.get(gauge);
                let heard = Heard {
                    divides: gauge(Gauge::IsolationFailures).is_some(),
                    in_force: gauge(Gauge::IsolatedCores),
                    problem: gauge(Gauge::IsolationProblem).and_then(|code| IsolationProblem::of(code as u8)),
                };
                Some((answer[..length].to_vec(), Some(heard)))
            }
            Err(refused) => {
                let header = Header { kind: Kind::Challenge, token: refused.challenge?, ..message.header };
                let length = Message::write(&key, &header, &self.server, &mut answer);
                Some((answer[..length].to_vec(), None))
            }
        }
    }
}

/// What a report says of the division.
struct Heard {
    divides: bool,
    in_force: Option<f64>,
    problem: Option<IsolationProblem>,
}
