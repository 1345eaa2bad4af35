//! What the kernel is asked and what it answers, byte by byte: sockets (`linux/inet_diag.h`) and queues of interfaces
//! (`linux/rtnetlink.h`, `linux/gen_stats.h`). Two of netlink's hundreds of messages, so that nobody has to compile
//! the others.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use libc::{AF_INET, AF_INET6, IPPROTO_TCP, RTM_GETQDISC, TCA_STATS2};
use netlink_packet_core::{DecodeError, NetlinkDeserializable, NetlinkHeader, NetlinkSerializable, NlasIterator};

use super::{Family, Qdiscs, TcpSocket};

const SOCK_DIAG_BY_FAMILY: u16 = 20;
/// The parent of a queue that is in no other.
const TC_H_ROOT: u32 = u32::MAX;
const TCA_STATS_QUEUE: u16 = 3;

/// Bytes of a `struct inet_diag_req_v2`, `struct inet_diag_msg`, `struct tcmsg`.
const SOCKETS: usize = 56;
const SOCKET: usize = 72;
const QUEUE: usize = 20;

/// States of sockets, a bit each.
#[derive(Clone, Copy, Debug)]
pub(super) enum State {
    Established = 1 << 1,
    Listen = 1 << 10,
}

/// Asks for TCP sockets.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sockets {
    pub(super) family: Family,
    pub(super) state: State,
    /// The port here.
    pub(super) port: u16,
}

impl NetlinkSerializable for Sockets {
    fn message_type(&self) -> u16 {
        SOCK_DIAG_BY_FAMILY
    }

    fn buffer_len(&self) -> usize {
        SOCKETS
    }

    fn serialize(&self, buffer: &mut [u8]) {
        buffer.fill(0);
        let family = match self.family {
            Family::V4 => AF_INET,
            Family::V6 => AF_INET6,
        };
        (buffer[0], buffer[1]) = (family as u8, IPPROTO_TCP as u8);
        buffer[4..8].copy_from_slice(&(self.state as u32).to_ne_bytes());
        buffer[8..10].copy_from_slice(&self.port.to_be_bytes());
    }
}

impl NetlinkDeserializable for TcpSocket {
    type Error = DecodeError;

    fn deserialize(_: &NetlinkHeader, message: &[u8]) -> Result<TcpSocket, DecodeError> {
        let message = first::<SOCKET>(message)?;
        let address = |at: usize, port: usize| {
            let bytes: [u8; 16] = at_once(message, at);
            let ip: IpAddr = match i32::from(message[0]) {
                AF_INET => Ipv4Addr::from_octets(at_once(&bytes, 0)).into(),
                AF_INET6 => Ipv6Addr::from_octets(bytes).into(),
                other => return Err(DecodeError::from(format!("a TCP socket of the family {other}"))),
            };
            Ok(SocketAddr::new(ip, u16::from_be_bytes(at_once(message, port))))
        };
        let peer = address(24, 6)?;
        Ok(TcpSocket {
            local: address(8, 4)?,
            peer: SocketAddr::new(peer.ip().to_canonical(), peer.port()),
            waiting: number(message, 56),
            backlog: number(message, 60),
            inode: number(message, 68),
        })
    }
}

/// Asks for the queues of all interfaces.
#[derive(Clone, Copy, Debug)]
pub(super) struct Queues;

impl NetlinkSerializable for Queues {
    fn message_type(&self) -> u16 {
        RTM_GETQDISC
    }

    fn buffer_len(&self) -> usize {
        QUEUE
    }

    fn serialize(&self, buffer: &mut [u8]) {
        buffer.fill(0);
    }
}

/// A queue of an interface. Nothing, if another counts what is in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Queue(pub(super) Option<Qdiscs>);

impl NetlinkDeserializable for Queue {
    type Error = DecodeError;

    fn deserialize(_: &NetlinkHeader, message: &[u8]) -> Result<Queue, DecodeError> {
        if number(first::<QUEUE>(message)?, 12) != TC_H_ROOT {
            return Ok(Queue(None));
        }
        let mut sum = Qdiscs::default();
        for attribute in NlasIterator::new(&message[QUEUE..]) {
            let attribute = attribute?;
            if attribute.kind() != TCA_STATS2 {
                continue;
            }
            for stats in NlasIterator::new(attribute.value()) {
                let stats = stats?;
                if stats.kind() == TCA_STATS_QUEUE {
                    let stats = first::<12>(stats.value())?;
                    sum.packets += u64::from(number(stats, 0));
                    sum.backlog += u64::from(number(stats, 4));
                    sum.drops += u64::from(number(stats, 8));
                }
            }
        }
        Ok(Queue(Some(sum)))
    }
}

/// The first bytes of a message.
fn first<const LENGTH: usize>(bytes: &[u8]) -> Result<&[u8; LENGTH], DecodeError> {
    bytes.first_chunk().ok_or_else(|| DecodeError::from(format!("{} bytes instead of {LENGTH}", bytes.len())))
}

/// Some bytes of what has them.
fn at_once<const LENGTH: usize>(bytes: &[u8], at: usize) -> [u8; LENGTH] {
    *bytes[at..].first_chunk().expect("it is long enough")
}

fn number(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(at_once(bytes, at))
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
        let length = u16::try_from(4 + value.len()).expect("it is short");
        let mut bytes: Vec<u8> = [length.to_ne_bytes(), kind.to_ne_bytes()].concat();
        bytes.extend(value);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    fn queue(parent: u32, attributes: &[u8]) -> Result<Queue, DecodeError> {
        let mut bytes = vec![0; QUEUE];
        bytes[12..16].copy_from_slice(&parent.to_ne_bytes());
        bytes.extend(attributes);
        Queue::deserialize(&NetlinkHeader::default(), &bytes)
    }

    #[test]
    fn a_root_counts_what_is_in_its_children() {
        let numbers = [3_u32, 4_500, 7, 11, 13].map(u32::to_ne_bytes).concat();
        let stats = [attribute(1, &[9; 16]), attribute(TCA_STATS_QUEUE, &numbers)].concat();
        // As from the kernel: the queue's name is padded, and its statistics may be marked as nested.
        for kind in [TCA_STATS2, TCA_STATS2 | 0x8000] {
            let attributes = [attribute(1, b"pfifo\0"), attribute(kind, &stats)].concat();
            let expected = Qdiscs { packets: 3, backlog: 4_500, drops: 7 };
            assert_eq!(queue(TC_H_ROOT, &attributes).expect("a queue"), Queue(Some(expected)));
            assert_eq!(queue(0x1_0000, &attributes).expect("a queue"), Queue(None));
            assert!(queue(TC_H_ROOT, &attributes[..attributes.len() - 1]).is_err());
        }
        assert_eq!(queue(TC_H_ROOT, &[]).expect("a queue"), Queue(Some(Qdiscs::default())));
    }

    #[test]
    fn an_ipv4_peer_is_one_behind_an_ipv6_socket_too() {
        let mut bytes = [0; SOCKET];
        bytes[0] = AF_INET6 as u8;
        bytes[4..8].copy_from_slice(&[0, 80, 4, 0]);
        bytes[24..40].copy_from_slice(&Ipv4Addr::new(192, 0, 2, 7).to_ipv6_mapped().octets());
        bytes[68..72].copy_from_slice(&42_u32.to_ne_bytes());
        let socket = TcpSocket::deserialize(&NetlinkHeader::default(), &bytes).expect("a socket");
        assert_eq!((socket.local, socket.inode), ("[::]:80".parse().expect("an address"), 42));
        assert_eq!(socket.peer, "192.0.2.7:1024".parse().expect("an address"));
        bytes[0] = 1;
        assert!(TcpSocket::deserialize(&NetlinkHeader::default(), &bytes).is_err());
    }

    proptest! {
        #[test]
        fn no_bytes_bring_it_down(mut bytes in vec(any::<u8>(), 0..200), root in any::<bool>()) {
            if let (true, Some(parent)) = (root, bytes.get_mut(12..16)) {
                parent.fill(0xff);
            }
            let _ = Queue::deserialize(&NetlinkHeader::default(), &bytes);
            let _ = TcpSocket::deserialize(&NetlinkHeader::default(), &bytes);
        }
    }
}
