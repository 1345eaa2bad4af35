//! The process that takes over.

use std::io::{self, stdin};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use tracing::{info, warn};

use super::channel::Channel;
use super::desk::Call;
use super::message::Message;
use super::state::{State, adopt_secrets};
use crate::sockets::{Named, Sockets};

/// Set by a process that starts its successor: that one's standard input leads to it.
pub(super) const STDIN: &str = "TIDEGATE_PREDECESSOR";

/// The predecessor passes its sockets, and answers, within this time.
const PATIENCE: Duration = Duration::from_secs(30);

/// What a process begins with.
#[derive(Debug, Default)]
pub struct Given {
    /// Sockets to listen at.
    pub sockets: Sockets,
    /// What was known before; `None`: nothing.
    pub state: Option<State>,
}

/// The process that is in office while this one gets ready.
#[derive(Debug)]
pub struct Predecessor {
    channel: Channel,
    latest: Option<State>,
}

/// What becomes of a process that is ready.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is to accept now.
    Serve,
    /// The predecessor goes on, and this one is to end: why.
    End(String),
}

impl Predecessor {
    /// The process that started this one to succeed it, if one did.
    ///
    /// # Errors
    /// When it cannot be talked to.
    pub fn by_birth() -> io::Result<Option<Predecessor>> {
        if std::env::var_os(STDIN).is_none() {
            return Ok(None);
        }
        let stream = UnixStream::from(stdin().as_fd().try_clone_to_owned()?);
        // Who merely inherited the variable has another standard input.
        match stream.peer_addr() {
            Ok(_) => Channel::new(stream).map(|channel| Some(Predecessor { channel, latest: None })),
            Err(_) => Ok(None),
        }
    }

    /// The process that listens at `path`, if one does.
    ///
    /// # Errors
    /// When it cannot be talked to.
    pub fn at(path: &Path) -> io::Result<Option<Predecessor>> {
        match Call::make(path, Message::Succeed { pid: std::process::id() }) {
            Ok(call) => Ok(Some(Predecessor { channel: call.channel, latest: None })),
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) => {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Takes what it gives. From now on hashes are keyed as in the predecessor: to be called before a configuration is
    /// read.
    ///
    /// # Errors
    /// When it does not give everything, in words.
    pub fn receive(&mut self) -> Result<Given, String> {
        let deadline = Instant::now() + PATIENCE;
        let mut given = Given::default();
        loop {
            let received =
                self.channel.receive(deadline).map_err(|error| format!("the predecessor's sockets: {error}"))?;
            let Some((message, sockets)) = received else {
                return Err("the predecessor ended before it gave its sockets".to_owned());
            };
            match message {
                Message::Sockets { names } => {
                    let named = names.into_iter().zip(sockets).map(|(name, socket)| Named { name, socket });
                    given.sockets.append(Sockets::new(named));
                }
                Message::Learned => {
                    given.state = opened(sockets);
                    given.state.iter().for_each(adopt_secrets);
                    return Ok(given);
                }
                Message::Failed { why } => return Err(why),
                _ => {}
            }
        }
    }

    /// Says that this process can accept, and waits to be told to.
    pub fn ready(&mut self) -> Verdict {
        if self.channel.send(&Message::Ready { pid: std::process::id() }, &[]).is_err() {
            return alone();
        }
        let deadline = Instant::now() + PATIENCE;
        loop {
            match self.channel.receive(deadline) {
                Ok(Some((Message::Yours, sockets))) => {
                    // One of an older version says it only once.
                    self.latest = if sockets.is_empty() { None } else { opened(sockets) };
                    return Verdict::Serve;
                }
                Ok(Some((Message::Failed { why }, _))) => return Verdict::End(why),
                Ok(Some(_)) => {}
                Ok(None) => return alone(),
                Err(error) => return Verdict::End(format!("the predecessor does not answer: {error}")),
            }
        }
    }

    /// What it knew when it said that this process is to serve, if it said so.
    pub fn latest(&mut self) -> Option<State> {
        self.latest.take()
    }

    /// Says that this process accepts: the predecessor leaves.
    pub fn serving(mut self) {
        // If it is gone already, nobody needs to know.
        let _ = self.channel.send(&Message::Serving, &[]);
    }

    /// Says that it will not come to that, and why.
    pub fn failed(&mut self, why: &str) {
        let _ = self.channel.send(&Message::Failed { why: why.to_owned() }, &[]);
    }
}

/// What was learned, out of the file that came.
fn opened(files: Vec<OwnedFd>) -> Option<State> {
    let file = files.into_iter().next().ok_or_else(|| "it is not there".to_owned());
    file.and_then(State::open).inspect_err(|why| warn!("what the predecessor learned is not taken over: {why}")).ok()
}

/// The sockets are here, and nobody else accepts from them.
fn alone() -> Verdict {
    info!("the predecessor is gone already");
    Verdict::Serve
}
