//! The reports' port: two sockets, one for senders that are known and one for strangers, each with a queue of its own.
//!
//! *Intuition.* Whoever can send to the port can fill its queue, with datagrams that are not even looked at, and
//! reports find no room in it. So the kernel sorts them before they are queued: what comes from an address that has
//! proved itself goes to one socket, all else to the other. A flood then fills the strangers' queue only, and of that
//! little is read at once. *Awkward cases.* A new nucleus is a stranger until it is heard: in a flood it takes more
//! tries. Who forges a known address, port and all, is sorted to the known. A kernel that cannot sort divides them by
//! chance; then both are read alike. *Source.* `SO_ATTACH_REUSEPORT_CBPF`, socket(7).

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::time::Duration;

use libc::{
    BPF_ABS, BPF_ALU, BPF_B, BPF_H, BPF_JA, BPF_JEQ, BPF_JMP, BPF_K, BPF_LD, BPF_RET, BPF_RSH, BPF_W, SKF_NET_OFF,
    sock_filter, sock_fprog,
};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::RecvFlags;
use rustix::time::Timespec;
use socket2::{Domain, Protocol, Socket, Type};

use crate::sockets::{Sockets, name};

/// Room for reports that come while the thread rests: those of some thousand nuclei.
const RECEIVE_BUFFER: usize = 4 << 20;

/// The most steps that the kernel takes of a program.
const STEPS: usize = 4096;

/// Whose they are in the table of sockets.
const NAME: &str = "reports";

/// The sockets' places in their group: in the order in which they were bound.
const STRANGERS: u32 = 0;
const KNOWN: u32 = 1;

/// The two sockets of the port.
#[derive(Debug)]
pub(super) struct Port {
    strangers: UdpSocket,
    known: UdpSocket,
    sorts: bool,
}

/// Who sent a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sender {
    /// One that proved itself before.
    Known,
    /// Anybody.
    Stranger,
}

impl Port {
    /// Listens, with the sockets that were given or with new ones.
    ///
    /// # Errors
    /// When the address cannot be listened on, by another process too.
    pub(super) fn bind(address: SocketAddr, given: &mut Sockets) -> io::Result<Port> {
        let mut given = given.take(Type::DGRAM, NAME, address).into_iter().map(UdpSocket::from);
        if let (Some(strangers), Some(known)) = (given.next(), given.next()) {
            let mut port = Port { strangers, known, sorts: false };
            port.know(&[]);
            return Ok(port);
        }
        // The two share the port, and would share it with another sentry, too: one socket that does not finds out.
        if address.port() != 0 {
            drop(UdpSocket::bind(address)?);
        }
        let strangers = open(address)?;
        let known = open(strangers.local_addr()?)?;
        let mut port = Port { strangers, known, sorts: false };
        port.know(&[]);
        Ok(port)
    }

    /// Its sockets, for the table: in the order of their group.
    pub(super) fn sockets(&self) -> io::Result<Sockets> {
        let address = self.address()?;
        let mut sockets = Sockets::default();
        for (at, socket) in [&self.strangers, &self.known].into_iter().enumerate() {
            sockets.add(name(NAME, address, at), socket.try_clone()?);
        }
        Ok(sockets)
    }

    /// Where it listens.
    pub(super) fn address(&self) -> io::Result<SocketAddr> {
        self.strangers.local_addr()
    }

    /// From now on these are known; as many as there is room for.
    pub(super) fn know(&mut self, senders: &[SocketAddr]) {
        self.sorts = attach(&self.strangers, &program(senders)).is_ok();
    }

    /// Whether a stranger's datagram cannot take a known sender's place.
    pub(super) fn sorts(&self) -> bool {
        self.sorts
    }

    /// Waits until something came, for `most` at the longest.
    pub(super) fn wait(&self, most: Duration) {
        let sockets = &mut [PollFd::new(&self.strangers, PollFlags::IN), PollFd::new(&self.known, PollFlags::IN)];
        // An interrupted wait is a short one.
        let _ = poll(sockets, Timespec::try_from(most).ok().as_ref());
    }

    /// A datagram that is there already: its length, and where it came from.
    pub(super) fn receive(&self, of: Sender, buffer: &mut [u8]) -> Option<(usize, SocketAddr)> {
        let socket = if of == Sender::Known { &self.known } else { &self.strangers };
        let (_, length, from) = rustix::net::recvfrom(socket, buffer, RecvFlags::DONTWAIT).ok()?;
        Some((length, SocketAddr::try_from(from?).ok()?))
    }

    /// Sends a datagram. One that is lost is sent again with the next report.
    pub(super) fn send(&self, datagram: &[u8], to: SocketAddr) {
        let _ = self.strangers.send_to(datagram, to);
    }
}

fn open(address: SocketAddr) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
    socket.set_reuse_port(true)?;
    // What the system does not give is missed under load only.
    let _ = socket.set_recv_buffer_size(RECEIVE_BUFFER);
    socket.bind(&address.into())?;
    Ok(socket.into())
}

/// Gives the sockets' group its program.
#[expect(unsafe_code, reason = "a socket's option that no library has in a safe form")]
fn attach(socket: &UdpSocket, program: &[sock_filter]) -> io::Result<()> {
    let len = u16::try_from(program.len()).map_err(io::Error::other)?;
    let program = sock_fprog { len, filter: program.as_ptr().cast_mut() };
    // SAFETY: the descriptor is open for as long as `socket` is borrowed; the option's value is a `sock_fprog` whose
    // address and size are given, and it points to `len` steps that live until the call returns. The kernel checks and
    // copies them, changes none and keeps no pointer.
    let done = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_REUSEPORT_CBPF,
            (&raw const program).cast(),
            size_of::<sock_fprog>() as libc::socklen_t,
        )
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The program: which socket gets a datagram, by its IP and UDP headers. IP options and extension headers make a
/// stranger.
fn program(senders: &[SocketAddr]) -> Vec<sock_filter> {
    let (mut four, mut six) = (Vec::new(), Vec::new());
    for sender in senders {
        let steps = match sender.ip().to_canonical() {
            IpAddr::V4(address) => matches(&[(12, address.to_bits())], (20, sender.port())),
            IpAddr::V6(address) => {
                let bits = address.to_bits();
                let word = |at: u32| (8 + 4 * at, (bits >> (96 - 32 * at)) as u32);
                matches(&[word(0), word(1), word(2), word(3)], (40, sender.port()))
            }
        };
        if four.len() + six.len() + steps.len() + 7 <= STEPS {
            if sender.ip().to_canonical().is_ipv4() { &mut four } else { &mut six }.extend(steps);
        }
    }
    // The version of IP; past the part for IPv4, if it is another.
    let mut all = vec![
        load(BPF_B, 0),
        step(BPF_ALU | BPF_RSH | BPF_K, 4, 0, 0),
        step(BPF_JMP | BPF_JEQ | BPF_K, 4, 1, 0),
        step(BPF_JMP | BPF_JA, four.len() as u32 + 1, 0, 0),
    ];
    all.extend(four);
    all.push(answer(STRANGERS));
    all.extend(six);
    all.push(answer(STRANGERS));
    all
}

/// Answers [`KNOWN`] if the words of the address and the port are these; else goes on behind.
fn matches(words: &[(u32, u32)], (at, port): (u32, u16)) -> Vec<sock_filter> {
    let compared = words.len() as u8 + 1;
    let values = words.iter().map(|&(at, value)| (BPF_W, at, value)).chain([(BPF_H, at, port.into())]);
    let compare = |(number, (width, at, value)): (usize, (u32, u32, u32))| {
        let behind = 2 * (compared - number as u8 - 1) + 1;
        [load(width, at), step(BPF_JMP | BPF_JEQ | BPF_K, value, 0, behind)]
    };
    values.enumerate().flat_map(compare).chain([answer(KNOWN)]).collect()
}

fn load(width: u32, at: u32) -> sock_filter {
    step(BPF_LD | width | BPF_ABS, (SKF_NET_OFF as u32).wrapping_add(at), 0, 0)
}

fn answer(socket: u32) -> sock_filter {
    step(BPF_RET | BPF_K, socket, 0, 0)
}

fn step(code: u32, k: u32, jt: u8, jf: u8) -> sock_filter {
    sock_filter { code: code as u16, jt, jf, k }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sender(address: &str) -> UdpSocket {
        UdpSocket::bind(address).expect("a port")
    }

    /// Waits for a datagram, and says on which socket it came.
    fn came(port: &Port) -> Sender {
        let mut buffer = [0; 16];
        loop {
            port.wait(Duration::from_secs(60));
            for of in [Sender::Known, Sender::Stranger] {
                if port.receive(of, &mut buffer).is_some() {
                    return of;
                }
            }
        }
    }

    fn sorted(listen: &str, own: &str) {
        let mut port = Port::bind(listen.parse().expect("an address"), &mut Sockets::default()).expect("listens");
        assert!(port.sorts());
        let to = port.address().expect("an address");
        let (one, other) = (sender(own), sender(own));
        let send = |from: &UdpSocket| from.send_to(b"x", to).expect("sent");
        send(&one);
        assert_eq!(came(&port), Sender::Stranger);
        let own = |from: &UdpSocket| from.local_addr().expect("an address");
        // Some others of both kinds before and behind it.
        let others: Vec<SocketAddr> =
            ["192.0.2.1:9", "[2001:db8::1]:9"].iter().map(|text| text.parse().expect("an address")).collect();
        port.know(&[others[0], others[1], own(&one), others[0], others[1]]);
        for _ in 0..3 {
            send(&one);
            assert_eq!(came(&port), Sender::Known);
            send(&other);
            assert_eq!(came(&port), Sender::Stranger, "another port");
        }
        port.know(&[own(&other)]);
        send(&one);
        assert_eq!(came(&port), Sender::Stranger);
        send(&other);
        assert_eq!(came(&port), Sender::Known);
    }

    #[test]
    fn who_proved_itself_has_a_queue_of_its_own() {
        sorted("127.0.0.1:0", "127.0.0.1:0");
        sorted("[::1]:0", "[::1]:0");
    }

    #[test]
    fn there_may_be_more_senders_than_room() {
        let many: Vec<SocketAddr> = (1..3000).map(|port| SocketAddr::from(([127, 0, 0, 1], port))).collect();
        let program = program(&many);
        assert!(program.len() <= STEPS && program.len() > STEPS - 10, "{}", program.len());
        let port = Port::bind(SocketAddr::from(([127, 0, 0, 1], 0)), &mut Sockets::default()).expect("listens");
        attach(&port.strangers, &program).expect("the kernel takes it");
    }

    #[test]
    fn two_processes_do_not_share_a_port() {
        let port = Port::bind(SocketAddr::from(([127, 0, 0, 1], 0)), &mut Sockets::default()).expect("listens");
        let again = Port::bind(port.address().expect("an address"), &mut Sockets::default());
        assert_eq!(again.expect_err("taken").kind(), io::ErrorKind::AddrInUse);
    }
}
