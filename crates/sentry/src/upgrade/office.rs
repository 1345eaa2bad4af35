//! The process that is in office: it starts a successor, or is asked by one, and leaves when that one serves.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use super::channel::{Channel, MOST_SOCKETS};
use super::desk::Call;
use super::message::Message;
use super::state::State;
use super::successor::STDIN;
use crate::sockets::Sockets;

/// How often it is looked whether the successor ended, or is not wanted any more.
const LOOK: Duration = Duration::from_millis(50);

/// Who said that it is ready accepts within this time.
const TURN: Duration = Duration::from_secs(10);

/// Who hung up ends within this time, looked for so often; else how it ended is not told.
const ENDING: Duration = Duration::from_secs(1);
const SOON: Duration = Duration::from_millis(5);

/// What a successor gets.
pub struct Handover {
    /// Every socket that the process has bound.
    pub sockets: Sockets,
    /// What it knows at that moment.
    pub(crate) state: Box<dyn Fn() -> State + Send>,
}

/// How this process was started, so that its successor is started in the same way. The program may be another by then.
#[derive(Clone, Debug)]
pub struct Launch {
    program: PathBuf,
    arguments: Vec<OsString>,
}

impl Launch {
    /// Of this process; to be asked for at its beginning.
    pub fn of_this_process() -> Launch {
        let mut arguments = std::env::args_os();
        let program = PathBuf::from(arguments.next().unwrap_or_default());
        // A bare name is looked up anew, as it was then. A relative path means the folder of now.
        let is_path = program.components().count() > 1;
        let program = if is_path { std::path::absolute(&program).unwrap_or(program) } else { program };
        Launch { program, arguments: arguments.collect() }
    }

    /// Starts the program with its end of a channel as standard input.
    fn start(&self) -> Result<(Child, Channel), String> {
        let failed = |error: io::Error| format!("{} cannot be started: {error}", self.program.display());
        let (ours, theirs) = UnixStream::pair().map_err(failed)?;
        let channel = Channel::new(ours).map_err(failed)?;
        let mut command = Command::new(&self.program);
        command
            .args(&self.arguments)
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .env(STDIN, std::process::id().to_string());
        // What the service manager gave is ours to give on.
        ["LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"].iter().for_each(|name| _ = command.env_remove(name));
        Ok((command.spawn().map_err(failed)?, channel))
    }
}

/// A successor on its way.
struct Heir<'c> {
    channel: Channel,
    /// If it was started from here.
    child: Option<Child>,
    cancelled: &'c AtomicBool,
    deadline: Instant,
}

/// Who serves from now on.
#[derive(Debug)]
pub struct Successor {
    /// Its process number.
    pub pid: u32,
    asking: Option<Call>,
}

impl Successor {
    /// Tells whoever asked for it. When this process listens at its [`Desk`](super::Desk) no more: what is asked next
    /// is the successor's to hear.
    pub fn tell(self) {
        if let Some(asking) = self.asking {
            asking.done(self.pid);
        }
    }
}

/// Hands over to the process that calls, or else to one that is started as this one was. Blocks until the successor
/// accepts; this process is to leave then. `cancelled`: there is to be no successor after all.
///
/// # Errors
/// Why there is none, in words. This process has to go on then, and the successor ends.
pub fn hand_over(
    call: Option<Call>,
    launch: &Launch,
    handover: io::Result<Handover>,
    most: Duration,
    cancelled: &AtomicBool,
) -> Result<Successor, String> {
    let (asking, calling) = match call {
        Some(Call { wants: Message::Succeed { .. }, channel }) => (None, Some(channel)),
        other => (other, None),
    };
    let deadline = Instant::now() + most;
    let handed = (|| {
        let handover = handover.map_err(|error| format!("the sockets cannot be handed over: {error}"))?;
        let (child, channel) = match calling {
            Some(channel) => (None, channel),
            None => launch.start().map(|(child, channel)| (Some(child), channel))?,
        };
        Heir { channel, child, cancelled, deadline }.take_over(&handover)
    })();
    match (handed, asking) {
        (Ok(pid), asking) => Ok(Successor { pid, asking }),
        (Err(why), Some(asking)) => {
            asking.refuse(&why);
            Err(why)
        }
        (Err(why), None) => Err(why),
    }
}

impl Heir<'_> {
    fn take_over(mut self, handover: &Handover) -> Result<u32, String> {
        let handed = self.hand(handover);
        if let Err(why) = &handed {
            // It may be gone already.
            let _ = self.channel.send(&Message::Failed { why: why.clone() }, &[]);
            if let Some(child) = &mut self.child {
                let _ = child.kill();
                let _ = child.wait();
            }
        }
        handed
    }

    fn hand(&mut self, handover: &Handover) -> Result<u32, String> {
        let all: Vec<_> = handover.sockets.iter().collect();
        for some in all.chunks(MOST_SOCKETS) {
            let names = some.iter().map(|(name, _)| (*name).to_owned()).collect();
            let sockets: Vec<_> = some.iter().map(|(_, socket)| *socket).collect();
            self.give(&Message::Sockets { names }, &sockets)?;
        }
        let sealed =
            || (handover.state)().seal().map_err(|error| format!("what was learned cannot be written: {error}"));
        self.give(&Message::Learned, &[sealed()?.as_fd()])?;
        let pid = match self.hear()? {
            Message::Ready { pid } => pid,
            other => return Err(unexpected(&other)),
        };
        // Until it was ready time went by: what is at work now is other work.
        self.give(&Message::Yours, &[sealed()?.as_fd()])?;
        self.deadline = self.deadline.max(Instant::now() + TURN);
        match self.hear()? {
            Message::Serving => Ok(pid),
            other => Err(unexpected(&other)),
        }
    }

    fn give(&mut self, message: &Message, sockets: &[BorrowedFd<'_>]) -> Result<(), String> {
        self.channel.send(message, sockets).map_err(|error| match error.kind() {
            // It may end before it has taken anything.
            io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => self.how_it_ended(),
            _ => format!("the successor does not take what it is given: {error}"),
        })
    }

    /// What the successor says next.
    fn hear(&mut self) -> Result<Message, String> {
        loop {
            if self.cancelled.load(Relaxed) {
                return Err("this process was told to stop".to_owned());
            }
            match self.channel.receive(self.deadline.min(Instant::now() + LOOK)) {
                Ok(Some((Message::Failed { why }, _))) => return Err(why),
                Ok(Some((message, _))) => return Ok(message),
                Ok(None) => return Err(self.how_it_ended()),
                // It ended before it took all that it was given.
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Err(self.how_it_ended()),
                Err(error) if error.kind() != io::ErrorKind::TimedOut => {
                    return Err(format!("what the successor says cannot be read: {error}"));
                }
                Err(_) if Instant::now() >= self.deadline => {
                    return Err("the successor is not ready in time".to_owned());
                }
                Err(_) => {}
            }
        }
    }

    /// The successor hung up. One that lives on nevertheless is not waited for.
    fn how_it_ended(&mut self) -> String {
        let hung_up = Instant::now();
        while let Some(child) = &mut self.child {
            match child.try_wait() {
                Ok(Some(status)) => return format!("the successor ended before it was ready: {status}"),
                Ok(None) if hung_up.elapsed() < ENDING => thread::sleep(SOON),
                _ => break,
            }
        }
        "the successor hung up before it was ready".to_owned()
    }
}

fn unexpected(message: &Message) -> String {
    format!("the successor is of a version that does not take over like this: it says {message:?}")
}
