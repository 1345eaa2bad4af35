//! Network namespaces of the test's own: a server's, and two of clients, whose addresses tell them apart.

use std::fs::File;
use std::net::Ipv4Addr;
use std::os::fd::AsFd as _;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::command::{find_program, output};

/// Three namespaces and the links between them; gone when dropped.
#[derive(Debug)]
pub struct Spaces {
    tag: String,
}

/// One of the namespaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Space {
    /// Of the server and the sentry.
    Server,
    /// Of clients with the premium prefix, 10.77.1.0/24.
    Premium,
    /// Of everybody else, 10.77.2.0/24.
    Others,
}

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
    pub const fn server(self) -> Ipv4Addr {
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
    pub fn new() -> Result<Self> {
        let spaces = Self { tag: format!("tg{}", std::process::id()) };
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

    /// Does something in one of them; processes that it starts are there too. It is this thread that goes there and
    /// comes back: services end with the thread that started them.
    ///
    /// # Errors
    /// What it says, or when the namespace cannot be entered.
    pub fn within<T>(&self, space: Space, act: impl FnOnce() -> Result<T>) -> Result<T> {
        let before = File::open("/proc/thread-self/ns/net")?;
        enter(&File::open(PathBuf::from("/run/netns").join(self.name(space)))?)?;
        let result = act();
        enter(&before)?;
        result
    }

    /// Bounds what the server sends to some clients: a bottleneck with a queue of 100 packets, each of which is one on
    /// the wire. The server's TCP is the paper's (Reno), which fills a queue until it loses packets.
    ///
    /// # Errors
    /// When `ip` or `tc` do not do it.
    pub fn bound(&self, space: Space, rate: &str) -> Result<()> {
        let device = self.device(space, 's');
        let name = self.name(Space::Server);
        ip(&["-n", &name, "link", "set", "dev", &device, "gso_max_segs", "1", "gso_max_size", "1514"])?;
        let tc = find_program("tc").context("tc is missing (Debian package iproute2)")?;
        let words = ["-n", &name, "qdisc", "replace", "dev", &device, "root", "tbf", "rate", rate];
        output(Command::new(tc).args(words).args(["burst", "16kb", "limit", "151400"]))?;
        self.within(Space::Server, || {
            std::fs::write("/proc/sys/net/ipv4/tcp_congestion_control", "reno").context("cannot choose Reno")
        })
    }

    fn link(&self, space: Space) -> Result<()> {
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

/// A connection for every request: 28,000 ports of which each rests for a minute would be used up after 48 s at 600/s.
fn many_connections() -> Result<()> {
    for (name, value) in [("ip_local_port_range", "10000 65535"), ("tcp_tw_reuse", "1")] {
        let file = PathBuf::from("/proc/sys/net/ipv4").join(name);
        std::fs::write(&file, value).with_context(|| format!("cannot write {}", file.display()))?;
    }
    Ok(())
}

fn enter(space: &File) -> Result<()> {
    move_into_link_name_space(space.as_fd(), Some(LinkNameSpaceType::Network))
        .context("cannot enter a network namespace")
}

fn ip(words: &[&str]) -> Result<()> {
    let ip = find_program("ip").context("ip is missing (Debian package iproute2)")?;
    output(Command::new(ip).args(words)).map(drop)
}
