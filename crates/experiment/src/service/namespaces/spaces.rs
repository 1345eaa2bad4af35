//! Network namespaces of the run's own: a server's, and two of clients, whose addresses tell them apart.

use std::fs::File;
use std::net::Ipv4Addr;
use std::os::fd::AsFd as _;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::JoinHandle;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::NamespacesError;

/// Three namespaces and the links between them; gone when dropped.
#[derive(Debug)]
pub(super) struct Spaces {
    tag: String,
}

/// One of the namespaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Space {
    /// Of the server and the sentry.
    Server,
    /// Of clients with the premium prefix, [`PREMIUM`].
    Premium,
    /// Of everybody else, 10.77.2.0/24.
    Others,
}

/// The network of clients with a part of their own.
pub(super) const PREMIUM: &str = "10.77.1.0/24";

impl Space {
    const CLIENTS: [Space; 2] = [Space::Premium, Space::Others];

    const fn letter(self) -> char {
        match self {
            Space::Server => 's',
            Space::Premium => 'p',
            Space::Others => 'o',
        }
    }

    /// The server's address on the link to these clients.
    pub(super) const fn server(self) -> Ipv4Addr {
        match self {
            Space::Premium => Ipv4Addr::new(10, 77, 1, 1),
            Space::Server | Space::Others => Ipv4Addr::new(10, 77, 2, 1),
        }
    }
}

impl Spaces {
    /// Makes them.
    ///
    /// # Errors
    /// When the system does not let us.
    pub(super) fn new() -> Result<Spaces, NamespacesError> {
        if !rustix::process::geteuid().is_root() {
            return Err(NamespacesError::NoRoot);
        }
        static MADE: AtomicU32 = AtomicU32::new(0);
        // The name of a link has 15 letters at most.
        let number = MADE.fetch_add(1, Ordering::Relaxed) % 10;
        let spaces = Spaces { tag: format!("tg{}{number}", std::process::id()) };
        for space in [Space::Server, Space::Premium, Space::Others] {
            ip(&["netns", "add", &spaces.name(space)])?;
            ip(&["-n", &spaces.name(space), "link", "set", "lo", "up"])?;
            spaces.within(space, many_connections)?;
        }
        for space in Space::CLIENTS {
            spaces.link(space)?;
        }
        Ok(spaces)
    }

    /// Does something in one of them; processes and threads that it starts are there too. It is this thread that goes
    /// there and comes back: Apache ends with the thread that started it.
    ///
    /// # Errors
    /// What it says, or when the namespace cannot be entered.
    pub(super) fn within<T, E: From<NamespacesError>>(
        &self,
        space: Space,
        act: impl FnOnce() -> Result<T, E>,
    ) -> Result<T, E> {
        let before = open(PathBuf::from("/proc/thread-self/ns/net"))?;
        enter(&self.file(space)?)?;
        let result = act();
        enter(&before)?;
        result
    }

    /// Starts a thread in one of them.
    ///
    /// # Errors
    /// When the namespace is not there, or the system has no thread.
    pub(super) fn spawn<T: Send + 'static>(
        &self,
        space: Space,
        act: impl FnOnce() -> T + Send + 'static,
    ) -> Result<JoinHandle<Result<T, NamespacesError>>, NamespacesError> {
        let file = self.file(space)?;
        let body = move || enter(&file).map(|()| act());
        let thread = std::thread::Builder::new().name("tidegate-space".to_owned()).spawn(body);
        thread.map_err(|error| NamespacesError::System { what: "cannot start a thread".to_owned(), error })
    }

    /// Bounds what the server sends to some clients: a bottleneck with a queue of 100 packets, each of which is one on
    /// the wire. The server's TCP is the paper's (Reno), which fills a queue until it loses packets.
    ///
    /// # Errors
    /// When `ip` or `tc` do not do it.
    pub(super) fn bound(&self, space: Space, rate: &str) -> Result<(), NamespacesError> {
        let device = self.device(space, 's');
        let name = self.name(Space::Server);
        ip(&["-n", &name, "link", "set", "dev", &device, "gso_max_segs", "1", "gso_max_size", "1514"])?;
        let words = ["-n", &name, "qdisc", "replace", "dev", &device, "root", "tbf", "rate", rate];
        run(Command::new("tc").args(words).args(["burst", "16kb", "limit", "151400"]), "iproute2")?;
        self.within(Space::Server, || write("tcp_congestion_control", "reno"))
    }

    fn link(&self, space: Space) -> Result<(), NamespacesError> {
        let (server, client) = (self.device(space, 's'), self.device(space, 'c'));
        let (at_server, at_client) = (self.name(Space::Server), self.name(space));
        let [a, b, c, _] = space.server().octets();
        ip(&[
            "link", "add", &server, "netns", &at_server, "type", "veth", "peer", "name", &client, "netns", &at_client,
        ])?;
        ip(&["-n", &at_server, "addr", "add", &format!("{a}.{b}.{c}.1/24"), "dev", &server])?;
        ip(&["-n", &at_client, "addr", "add", &format!("{a}.{b}.{c}.2/24"), "dev", &client])?;
        ip(&["-n", &at_server, "link", "set", &server, "up"])?;
        ip(&["-n", &at_client, "link", "set", &client, "up"])
    }

    fn file(&self, space: Space) -> Result<File, NamespacesError> {
        open(PathBuf::from("/run/netns").join(self.name(space)))
    }

    fn name(&self, space: Space) -> String {
        format!("{}{}", self.tag, space.letter())
    }

    fn device(&self, space: Space, end: char) -> String {
        format!("{}{}{end}", self.tag, space.letter())
    }
}

impl Drop for Spaces {
    fn drop(&mut self) {
        for space in [Space::Premium, Space::Others, Space::Server] {
            // What is not there need not be removed.
            let _ = ip(&["netns", "delete", &self.name(space)]);
        }
    }
}

/// Runs a program, which the Debian package has.
///
/// # Errors
/// When it is missing, or fails.
pub(super) fn run(command: &mut Command, package: &'static str) -> Result<(), NamespacesError> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = match command.output() {
        Ok(output) => output,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Err(NamespacesError::Missing { program: name, package });
        }
        Err(error) => return Err(NamespacesError::System { what: format!("cannot start {name}"), error }),
    };
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(NamespacesError::Command { command: format!("{command:?}"), said })
}

/// A connection for every request: 28,000 ports of which each rests for a minute would be used up after 48 s at 600/s.
fn many_connections() -> Result<(), NamespacesError> {
    write("ip_local_port_range", "10000 65535")?;
    write("tcp_tw_reuse", "1")
}

fn write(name: &str, value: &str) -> Result<(), NamespacesError> {
    let file = PathBuf::from("/proc/sys/net/ipv4").join(name);
    let failed = |error| NamespacesError::System { what: format!("cannot write {}", file.display()), error };
    std::fs::write(&file, value).map_err(failed)
}

fn open(path: PathBuf) -> Result<File, NamespacesError> {
    File::open(&path).map_err(|error| NamespacesError::System { what: path.display().to_string(), error })
}

fn enter(space: &File) -> Result<(), NamespacesError> {
    let failed = |error: rustix::io::Errno| NamespacesError::System {
        what: "cannot enter a network namespace".to_owned(),
        error: error.into(),
    };
    move_into_link_name_space(space.as_fd(), Some(LinkNameSpaceType::Network)).map_err(failed)
}

fn ip(words: &[&str]) -> Result<(), NamespacesError> {
    run(Command::new("ip").args(words), "iproute2")
}
