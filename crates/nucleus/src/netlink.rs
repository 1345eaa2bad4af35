//! Netlink queries: listening sockets, connections, queues of network interfaces. Tens of
//! microseconds, where `/proc/net/tcp` takes milliseconds.

mod messages;

use std::io;
use std::net::SocketAddr;

use netlink_packet_core::{
    NLM_F_DUMP, NLM_F_REQUEST, NetlinkDeserializable, NetlinkHeader, NetlinkMessage, NetlinkPayload,
    NetlinkSerializable,
};
use netlink_sys::Socket;
use netlink_sys::protocols::{NETLINK_ROUTE, NETLINK_SOCK_DIAG};

use messages::{Queue, Queues, Sockets, State};

/// The kernel's parts of an answer are no larger.
const BUFFER: usize = 32 * 1024;

/// Open netlink sockets, and a buffer.
#[derive(Debug)]
pub(crate) struct Netlink {
    diag: Channel,
    route: Channel,
    buffer: Vec<u8>,
}

/// An open netlink socket.
#[derive(Debug)]
struct Channel {
    socket: Socket,
    /// The number of the last request.
    sequence: u32,
}

/// Kinds of sockets. One that listens at all addresses may have IPv4 connections too: those are of its own family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    V4,
    V6,
}

/// A TCP socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TcpSocket {
    pub(crate) local: SocketAddr,
    pub(crate) peer: SocketAddr,
    pub(crate) inode: u32,
    /// Of a listener: connections that wait to be accepted, and the most that may.
    pub(crate) waiting: u32,
    pub(crate) backlog: u32,
}

/// The queues of all network interfaces together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Qdiscs {
    /// Bytes.
    pub(crate) backlog: u64,
    pub(crate) packets: u64,
    pub(crate) drops: u64,
}

impl Netlink {
    /// # Errors
    /// When the kernel has no netlink, or does not let this process use it.
    pub(crate) fn open() -> io::Result<Netlink> {
        let (diag, route) = (Channel::open(NETLINK_SOCK_DIAG)?, Channel::open(NETLINK_ROUTE)?);
        Ok(Netlink { diag, route, buffer: vec![0; BUFFER] })
    }

    /// Sockets that listen at a port.
    pub(crate) fn listeners(&mut self, port: u16, mut each: impl FnMut(TcpSocket)) -> io::Result<()> {
        self.sockets(State::Listen, Family::V4, port, &mut each)?;
        self.sockets(State::Listen, Family::V6, port, &mut each)
    }

    /// Established connections to a port here, of a family. The kernel walks its whole table for each family: hundreds
    /// of microseconds.
    pub(crate) fn connections(&mut self, family: Family, port: u16, mut each: impl FnMut(TcpSocket)) -> io::Result<()> {
        self.sockets(State::Established, family, port, &mut each)
    }

    fn sockets(&mut self, state: State, family: Family, port: u16, each: &mut impl FnMut(TcpSocket)) -> io::Result<()> {
        // By the port, too: the kernel leaves the others out, and writing them down is most of the work.
        self.diag.dump(&mut self.buffer, Sockets { family, state, port }, each)
    }

    /// The queues of all network interfaces.
    pub(crate) fn qdiscs(&mut self) -> io::Result<Qdiscs> {
        let mut sum = Qdiscs::default();
        self.route.dump(&mut self.buffer, Queues, |Queue(queue)| {
            let queue = queue.unwrap_or_default();
            sum.backlog += queue.backlog;
            sum.packets += queue.packets;
            sum.drops += queue.drops;
        })?;
        Ok(sum)
    }
}

impl TcpSocket {
    pub(crate) fn family(&self) -> Family {
        if self.local.is_ipv4() { Family::V4 } else { Family::V6 }
    }
}

impl Channel {
    fn open(protocol: isize) -> io::Result<Channel> {
        let mut socket = Socket::new(protocol)?;
        socket.bind_auto()?;
        socket.connect(&netlink_sys::SocketAddr::new(0, 0))?;
        Ok(Channel { socket, sequence: 0 })
    }

    /// Asks for a list and hands on each entry.
    fn dump<A: NetlinkDeserializable>(
        &mut self,
        buffer: &mut [u8],
        request: impl NetlinkSerializable,
        mut each: impl FnMut(A),
    ) -> io::Result<()> {
        self.ask(buffer, request)?;
        loop {
            let length = self.socket.recv(&mut &mut buffer[..], 0)?;
            let mut rest = &buffer[..length];
            while !rest.is_empty() {
                let message = NetlinkMessage::<A>::deserialize(rest).map_err(io::Error::other)?;
                // Messages begin at multiples of four bytes.
                let step = (message.header.length as usize).next_multiple_of(4);
                rest = rest.get(step.max(16)..).unwrap_or_default();
                if message.header.sequence_number != self.sequence {
                    // What is left of an answer that could not be read to its end.
                    continue;
                }
                match message.payload {
                    NetlinkPayload::InnerMessage(inner) => each(inner),
                    NetlinkPayload::Done(_) => return Ok(()),
                    NetlinkPayload::Error(error) => return Err(error.to_io()),
                    _ => {}
                }
            }
        }
    }

    fn ask(&mut self, buffer: &mut [u8], request: impl NetlinkSerializable) -> io::Result<()> {
        self.sequence = self.sequence.wrapping_add(1);
        let mut header = NetlinkHeader::default();
        header.flags = NLM_F_REQUEST | NLM_F_DUMP;
        header.sequence_number = self.sequence;
        let mut packet = NetlinkMessage::new(header, NetlinkPayload::InnerMessage(request));
        packet.finalize();
        packet.serialize(&mut buffer[..packet.header.length as usize]);
        self.socket.send(&buffer[..packet.header.length as usize], 0)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn a_listener_and_who_waits_there() {
        let mut netlink = Netlink::open().expect("netlink");
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
        let address = listener.local_addr().expect("an address");
        let clients: Vec<_> = (0..3).map(|_| TcpStream::connect(address).expect("a connection")).collect();
        let (mut found, port) = (Vec::new(), address.port());
        // A client has its connection a moment before the listener has.
        let deadline = Instant::now() + Duration::from_secs(60);
        while found.first().is_none_or(|socket: &TcpSocket| socket.waiting < 3) {
            assert!(Instant::now() < deadline, "{found:?}");
            found.clear();
            netlink
                .listeners(port, |socket| found.extend((socket.local == address).then_some(socket)))
                .expect("a list");
        }
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].waiting, found[0].backlog > 0, found[0].inode > 0), (3, true, true));
        let mut peers = Vec::new();
        let mut each = |socket: TcpSocket| peers.extend((socket.local == address).then_some(socket.peer));
        netlink.connections(Family::V4, port, &mut each).expect("a list");
        netlink.connections(Family::V6, port, &mut each).expect("a list");
        let mut expected: Vec<_> = clients.iter().map(|client| client.local_addr().expect("an address")).collect();
        peers.sort();
        expected.sort();
        assert_eq!(peers, expected);
        let other = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
        let mut ports = Vec::new();
        netlink.listeners(port, |socket| ports.push(socket.local.port())).expect("a list");
        assert!(ports.iter().all(|found| *found == port), "{ports:?}, not {other:?}");
    }

    #[test]
    fn a_connection_is_of_its_listeners_family() {
        let mut netlink = Netlink::open().expect("netlink");
        // The standard library's listens to both kinds.
        let Ok(listener) = TcpListener::bind(("::", 0)) else { return };
        let port = listener.local_addr().expect("an address").port();
        let client = TcpStream::connect(("127.0.0.1", port)).expect("a connection");
        let (_server, _) = listener.accept().expect("a connection");
        let (mut listens, mut has) = (Vec::new(), [Vec::new(), Vec::new()]);
        netlink.listeners(port, |socket| listens.push(socket.family())).expect("a list");
        for (family, list) in [Family::V4, Family::V6].into_iter().zip(&mut has) {
            let peers = |socket: TcpSocket| list.extend((socket.local.port() == port).then_some(socket.peer));
            netlink.connections(family, port, peers).expect("a list");
        }
        assert_eq!(listens, [Family::V6]);
        assert_eq!(has, [vec![], vec![client.local_addr().expect("an address")]]);
    }

    #[test]
    fn an_answer_that_was_not_read_is_not_taken_for_the_next_one() {
        let mut netlink = Netlink::open().expect("netlink");
        let (one, two) = (TcpListener::bind(("127.0.0.1", 0)), TcpListener::bind(("127.0.0.1", 0)));
        let [one, two] = [one, two].map(|listener| listener.expect("a port"));
        let port = |listener: &TcpListener| listener.local_addr().expect("an address").port();
        let request = Sockets { family: Family::V4, state: State::Listen, port: port(&one) };
        netlink.diag.ask(&mut netlink.buffer, request).expect("asked");
        let mut found = Vec::new();
        // The kernel may refuse to begin before the other is read; then the time after.
        let listed = netlink.listeners(port(&two), |socket| found.push(socket.local.port()));
        if listed.is_err() {
            netlink.listeners(port(&two), |socket| found.push(socket.local.port())).expect("a list");
        }
        assert_eq!(found, [port(&two)]);
    }

    #[test]
    fn queues_of_interfaces_can_be_asked_for() {
        let mut netlink = Netlink::open().expect("netlink");
        // Whatever they hold; twice, for the first answer must have been read to its end.
        netlink.qdiscs().expect("a sum");
        netlink.qdiscs().expect("a sum");
    }
}
