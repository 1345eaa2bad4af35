//! Where a running process is asked for its sockets, or for a successor: a Unix socket.
//!
//! Whoever is let in gets every connection of the service and its secrets. So the socket is its owner's alone, and of
//! who connects the kernel is asked who it is: only the same user and root are listened to.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{Mode, fchmod};
use rustix::net::sockopt::socket_peercred;
use rustix::process::geteuid;
use rustix::time::Timespec;
use socket2::{Domain, SockAddr, Socket, Type};
use tokio::sync::mpsc;
use tracing::warn;

use super::channel::Channel;
use super::message::Message;
use crate::sockets::Sockets;

/// Its name in the table of sockets.
const NAME: &str = "upgrade";

/// How often it is looked whether it is over.
const LOOK: Duration = Duration::from_millis(100);

/// Who connects says within this time what it wants.
const PATIENCE: Duration = Duration::from_secs(2);

/// The socket. Dropped, it listens no more; where it is, it stays for a successor, unless [`Desk::close`] is called.
#[derive(Debug)]
pub struct Desk {
    path: PathBuf,
    listener: UnixListener,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// Somebody who asks.
#[derive(Debug)]
pub struct Call {
    /// What for: [`Message::Upgrade`] or [`Message::Succeed`].
    pub wants: Message,
    pub(super) channel: Channel,
}

impl Desk {
    /// Opens the socket at `path`, or goes on with the one that was given. Nobody is listened to before
    /// [`Desk::start`].
    ///
    /// # Errors
    /// When another process listens there, or the system does not let it.
    pub fn open(path: &Path, given: &mut Sockets) -> io::Result<Desk> {
        let given = given.take_named(NAME).pop().filter(|given| is_at(given, path));
        let listener = match given {
            Some(given) => UnixListener::from(given),
            None => bind(path)?,
        };
        listener.set_nonblocking(true)?;
        Ok(Desk { path: path.to_owned(), listener, stop: Arc::default(), thread: None })
    }

    /// From now on calls go to `calls`; as many as there is room for, the others are told to come later.
    ///
    /// # Errors
    /// When the thread cannot be started.
    pub fn start(&mut self, calls: mpsc::Sender<Call>) -> io::Result<()> {
        let (listener, stop) = (self.listener.try_clone()?, self.stop.clone());
        let thread = std::thread::Builder::new().name(String::from("tidegate-upgrade"));
        self.thread = Some(thread.spawn(move || attend(&listener, &stop, &calls))?);
        Ok(())
    }

    /// The socket, for the table.
    ///
    /// # Errors
    /// When there are no file descriptors left.
    pub fn sockets(&self) -> io::Result<Sockets> {
        let mut sockets = Sockets::default();
        sockets.add(NAME, self.listener.try_clone()?);
        Ok(sockets)
    }

    /// Ends it for good: nobody finds it any more.
    pub fn close(self) {
        // Somebody may have removed it.
        let _ = std::fs::remove_file(&self.path);
    }
}

impl Drop for Desk {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        if let Some(thread) = self.thread.take() {
            // A panic was printed.
            let _ = thread.join();
        }
    }
}

impl Call {
    /// Connects to the process that listens at `path`, and says what is wanted.
    ///
    /// # Errors
    /// When nobody listens there, or one may not.
    pub(super) fn make(path: &Path, wants: Message) -> io::Result<Call> {
        let mut channel = Channel::new(UnixStream::connect(path)?)?;
        channel.send(&wants, &[])?;
        Ok(Call { wants, channel })
    }

    /// The successor of the process that listens at `path` is asked for: the process number of who serves then.
    ///
    /// # Errors
    /// Why there is none, in words; the process serves on.
    pub fn upgrade(path: &Path) -> Result<u32, String> {
        let mut call = Call::make(path, Message::Upgrade).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
                format!(
                    "no sentry listens at {} ({error}); give the path that its [upgrade] socket has",
                    path.display()
                )
            }
            _ => format!("the sentry at {} cannot be asked: {error}", path.display()),
        })?;
        loop {
            // The process has its own time limit, and says when it has passed.
            match call.channel.receive(Instant::now() + Duration::from_secs(24 * 3600)) {
                Ok(Some((Message::Done { pid }, _))) => return Ok(pid),
                Ok(Some((Message::Failed { why }, _))) => return Err(why),
                Ok(Some(_)) => {}
                Ok(None) => return Err("the sentry ended, or did not let this user ask".to_owned()),
                Err(error) => return Err(format!("the sentry's answer cannot be read: {error}")),
            }
        }
    }

    /// It is not to be, and why.
    pub fn refuse(mut self, why: &str) {
        // Whoever asked may be gone.
        let _ = self.channel.send(&Message::Failed { why: why.to_owned() }, &[]);
    }

    /// It is done: this process serves.
    pub(super) fn done(mut self, pid: u32) {
        let _ = self.channel.send(&Message::Done { pid }, &[]);
    }
}

fn attend(listener: &UnixListener, stop: &AtomicBool, calls: &mpsc::Sender<Call>) {
    while !stop.load(Relaxed) {
        // An interrupted wait is a short one.
        let _ = poll(&mut [PollFd::new(listener, PollFlags::IN)], Timespec::try_from(LOOK).ok().as_ref());
        let Ok((stream, _)) = listener.accept() else { continue };
        match hear(stream) {
            Ok(call) => {
                if let Err(rejected) = calls.try_send(call) {
                    rejected.into_inner().refuse("the sentry is asked too often");
                }
            }
            Err(error) => warn!(%error, "who asked to take over is not listened to"),
        }
    }
}

/// What somebody wants who may want something.
fn hear(stream: UnixStream) -> io::Result<Call> {
    let peer = socket_peercred(&stream)?;
    if !peer.uid.is_root() && peer.uid != geteuid() {
        let what = format!("user {} is neither this process's nor root", peer.uid.as_raw());
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, what));
    }
    let mut channel = Channel::new(stream)?;
    let Some((wants, _)) = channel.receive(Instant::now() + PATIENCE)? else {
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it said nothing"));
    };
    let call = Call { wants, channel };
    if !matches!(call.wants, Message::Upgrade | Message::Succeed { .. }) {
        call.refuse("this sentry does not know what that is: it may be of another version");
        return Err(io::Error::other("it asked for something else"));
    }
    Ok(call)
}

/// A socket that nobody but its owner can connect to, from its first moment on.
fn bind(path: &Path) -> io::Result<UnixListener> {
    let is_socket = std::fs::symlink_metadata(path).is_ok_and(|metadata| metadata.file_type().is_socket());
    if is_socket {
        match UnixStream::connect(path) {
            Ok(_) => return Err(io::Error::new(io::ErrorKind::AddrInUse, "another sentry has its socket there")),
            // Of a process that is no more.
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => std::fs::remove_file(path)?,
            Err(error) => return Err(error),
        }
    }
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
    socket.bind(&SockAddr::unix(path)?)?;
    socket.listen(8)?;
    Ok(UnixListener::from(OwnedFd::from(socket)))
}

fn is_at(socket: &OwnedFd, path: &Path) -> bool {
    let address = socket2::SockRef::from(socket).local_addr();
    address.is_ok_and(|address| address.as_pathname() == Some(path))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn path(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("tidegate-desk-{name}-{}", std::process::id()))
    }

    #[test]
    fn only_the_owner_can_connect_and_a_dead_ones_socket_is_replaced() {
        let path = path("mode");
        let desk = Desk::open(&path, &mut Sockets::default()).expect("it opens");
        assert_eq!(std::fs::metadata(&path).expect("it is there").permissions().mode() & 0o777, 0o600);
        let second = Desk::open(&path, &mut Sockets::default()).expect_err("one is enough");
        assert_eq!(second.kind(), io::ErrorKind::AddrInUse);
        let mut given = desk.sockets().expect("a descriptor");
        drop(desk);
        let kept = Desk::open(&path, &mut given).expect("it goes on");
        drop((kept, given));
        Desk::open(&path, &mut Sockets::default()).expect("nobody listens there any more").close();
        assert!(!path.exists());
    }

    #[test]
    fn who_asks_for_too_much_or_for_nonsense_is_told() {
        let path = path("calls");
        let mut desk = Desk::open(&path, &mut Sockets::default()).expect("it opens");
        let (sender, mut calls) = mpsc::channel(1);
        desk.start(sender).expect("a thread");
        let asking = |wants| {
            let mut call = Call::make(&path, wants).expect("it listens");
            call.channel.receive(Instant::now() + Duration::from_secs(60)).expect("an answer")
        };
        let nonsense = asking(Message::Serving).expect("an answer").0;
        assert!(matches!(nonsense, Message::Failed { why } if why.contains("another version")));
        let first = Call::make(&path, Message::Upgrade).expect("it listens");
        let second = asking(Message::Succeed { pid: 1 }).expect("an answer").0;
        assert!(matches!(second, Message::Failed { why } if why.contains("too often")));
        let call = calls.blocking_recv().expect("the first");
        assert_eq!(call.wants, Message::Upgrade);
        call.refuse("not today");
        drop(first);
        desk.close();
        let none = Call::upgrade(&path).expect_err("nobody is there");
        assert!(none.starts_with("no sentry listens at "), "{none}");
    }
}
