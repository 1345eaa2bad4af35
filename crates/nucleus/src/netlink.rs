//! What the kernel tells over netlink: listening sockets, connections, queues of network interfaces. Tens of
//! microseconds, where `/proc/net/tcp` takes milliseconds.

use std::io;
use std::net::SocketAddr;

use netlink_packet_core::{
    NLM_F_DUMP, NLM_F_REQUEST, NetlinkDeserializable, NetlinkHeader, NetlinkMessage, NetlinkPayload,
    NetlinkSerializable,
};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::tc::{TcAttribute, TcHandle, TcMessage, TcStats2};
use netlink_packet_sock_diag::SockDiagMessage;
use netlink_packet_sock_diag::constants::{AF_INET, AF_INET6, IPPROTO_TCP};
use netlink_packet_sock_diag::inet::{ExtensionFlags, InetRequest, InetResponseHeader, SocketId, StateFlags};
use netlink_sys::Socket;
use netlink_sys::protocols::{NETLINK_ROUTE, NETLINK_SOCK_DIAG};

/// The kernel's parts of an answer are no larger.
const BUFFER: usize = 32 * 1024;

/// Open netlink sockets, and a buffer.
#[derive(Debug)]
pub(crate) struct Netlink {
    diag: Socket,
    route: Socket,
    buffer: Vec<u8>,
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
        let open = |protocol| {
            let mut socket = Socket::new(protocol)?;
            socket.bind_auto()?;
            socket.connect(&netlink_sys::SocketAddr::new(0, 0))?;
            Ok::<_, io::Error>(socket)
        };
        Ok(Netlink { diag: open(NETLINK_SOCK_DIAG)?, route: open(NETLINK_ROUTE)?, buffer: vec![0; BUFFER] })
    }

    /// Sockets that listen at a port.
    pub(crate) fn listeners(&mut self, port: u16, each: impl FnMut(TcpSocket)) -> io::Result<()> {
        self.sockets(StateFlags::LISTEN, port, each)
    }

    /// Established connections to a port here.
    pub(crate) fn connections(&mut self, port: u16, each: impl FnMut(TcpSocket)) -> io::Result<()> {
        self.sockets(StateFlags::ESTABLISHED, port, each)
    }

    fn sockets(&mut self, states: StateFlags, port: u16, mut each: impl FnMut(TcpSocket)) -> io::Result<()> {
        for (family, mut socket_id) in [(AF_INET, SocketId::new_v4()), (AF_INET6, SocketId::new_v6())] {
            // The kernel leaves the others out: writing them down is most of the work.
            socket_id.source_port = port;
            let extensions = ExtensionFlags::empty();
            let request = InetRequest { family, protocol: IPPROTO_TCP, extensions, states: states.clone(), socket_id };
            dump(&self.diag, &mut self.buffer, SockDiagMessage::InetRequest(request), |message| {
                if let SockDiagMessage::InetResponse(response) = message {
                    each(TcpSocket::from(&response.header));
                }
            })?;
        }
        Ok(())
    }

    /// The queues of all network interfaces.
    pub(crate) fn qdiscs(&mut self) -> io::Result<Qdiscs> {
        let mut sum = Qdiscs::default();
        let request = RouteNetlinkMessage::GetQueueDiscipline(TcMessage::default());
        dump(&self.route, &mut self.buffer, request, |message| {
            let RouteNetlinkMessage::NewQueueDiscipline(queue) = message else { return };
            // A root counts what is in its children.
            if queue.header.parent != TcHandle::ROOT {
                return;
            }
            for attribute in &queue.attributes {
                let TcAttribute::Stats2(stats) = attribute else { continue };
                for stats in stats {
                    if let TcStats2::Queue(stats) = stats {
                        sum.backlog += u64::from(stats.backlog);
                        sum.packets += u64::from(stats.qlen);
                        sum.drops += u64::from(stats.drops);
                    }
                }
            }
        })?;
        Ok(sum)
    }
}

impl From<&InetResponseHeader> for TcpSocket {
    fn from(header: &InetResponseHeader) -> Self {
        let id = &header.socket_id;
        TcpSocket {
            local: SocketAddr::new(id.source_address, id.source_port),
            peer: SocketAddr::new(id.destination_address.to_canonical(), id.destination_port),
            inode: header.inode,
            waiting: header.recv_queue,
            backlog: header.send_queue,
        }
    }
}

/// Asks for a list and hands on each entry.
fn dump<M>(socket: &Socket, buffer: &mut [u8], request: M, mut each: impl FnMut(M)) -> io::Result<()>
where
    M: NetlinkSerializable + NetlinkDeserializable + Into<NetlinkPayload<M>>,
{
    let mut header = NetlinkHeader::default();
    header.flags = NLM_F_REQUEST | NLM_F_DUMP;
    let mut packet = NetlinkMessage::new(header, request.into());
    packet.finalize();
    packet.serialize(&mut buffer[..packet.header.length as usize]);
    socket.send(&buffer[..packet.header.length as usize], 0)?;
    loop {
        let length = socket.recv(&mut &mut buffer[..], 0)?;
        let mut rest = &buffer[..length];
        while !rest.is_empty() {
            let message = NetlinkMessage::<M>::deserialize(rest).map_err(io::Error::other)?;
            match message.payload {
                NetlinkPayload::InnerMessage(inner) => each(inner),
                NetlinkPayload::Done(_) => return Ok(()),
                NetlinkPayload::Error(error) => return Err(error.to_io()),
                _ => {}
            }
            // Messages begin at multiples of four bytes.
            let step = (message.header.length as usize).next_multiple_of(4);
            rest = rest.get(step.max(16)..).unwrap_or_default();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn a_listener_and_who_waits_there() {
        let mut netlink = Netlink::open().expect("netlink");
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
        let address = listener.local_addr().expect("an address");
        let clients: Vec<_> = (0..3).map(|_| TcpStream::connect(address).expect("a connection")).collect();
        let (mut found, port) = (Vec::new(), address.port());
        netlink.listeners(port, |socket| found.extend((socket.local == address).then_some(socket))).expect("a list");
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].waiting, found[0].backlog > 0, found[0].inode > 0), (3, true, true));
        let mut peers = Vec::new();
        netlink
            .connections(port, |socket| peers.extend((socket.local == address).then_some(socket.peer)))
            .expect("a list");
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
    fn queues_of_interfaces_can_be_asked_for() {
        let mut netlink = Netlink::open().expect("netlink");
        // Whatever they hold; twice, for the first answer must have been read to its end.
        netlink.qdiscs().expect("a sum");
        netlink.qdiscs().expect("a sum");
    }
}
