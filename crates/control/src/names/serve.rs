//! DNS server by UDP and TCP.
//!
//! *Awkward cases.* An answer by UDP has at most 1,232 bytes, which every path carries whole, or less if the asker says
//! so; what does not fit is cut, and marked so that the asker comes again by TCP. So is every second answer of those
//! that a network gets too many of (`limit.rs`); the others are not sent. Connections are bounded in number and in
//! time, and who is silent for the longest makes room: any number of them would take the descriptors that sentries'
//! connections need. What is no query is answered as such, or, where that could be made to bounce, not at all. The
//! library's own loops do not do all that, so only its messages are used.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, UdpSocket};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use axum::serve::Listener;
use hickory_server::net::xfer::Protocol;
use hickory_server::proto::op::{Edns, Message, Metadata, OpCode, ResponseCode};
use hickory_server::proto::rr::{RData, Record};
use hickory_server::proto::serialize::binary::BinEncoder;
use hickory_server::server::Request;
use hickory_server::zone_handler::MessageResponseBuilder;
use tidegate_visitors::{Bounds, Visit, Visitors};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::oneshot;
use tokio::time::Instant;
use tracing::warn;

use super::limit::{Limiter, RATE, RATE_OF_ALL, Verdict, network};
use super::zone::{Answer, Zone};

/// The most bytes of an answer by UDP (DNS Flag Day 2020), and the least that an asker must take.
const UDP_MOST: u16 = 1232;
const UDP_LEAST: u16 = 512;
/// The most bytes of a query by UDP.
const UDP_QUERY: usize = 4096;
/// Bytes of a message's head, of its options, and of a record whose name stands in the message already: the first one
/// has it in full, which is no longer than the question.
const HEADER: usize = 12;
const OPTIONS: usize = 11;
const RECORD: usize = 12;
/// The bit of a head's third byte that makes a message an answer.
const IS_ANSWER: u8 = 0x80;
/// Connections: a query must come, and its answer be taken, within seconds.
const CONNECTIONS: Bounds = Bounds { seats: 64, to_answer: Duration::from_secs(5), rest: Duration::from_secs(5) };
/// Between two tries to receive, where the system has no room for it.
const AGAIN: Duration = Duration::from_millis(100);
/// Between two warnings of answers that are limited.
const QUIET: Duration = Duration::from_secs(60);
/// With a port of the system's choice: how often one is looked for that both have free.
const TRIES: usize = 16;

/// Answers by UDP that were limited, since the start.
#[derive(Debug, Default)]
pub(super) struct Limited {
    pub(super) truncated: AtomicU64,
    pub(super) dropped: AtomicU64,
}

/// Both on one port.
#[derive(Debug)]
pub(super) struct Sockets {
    udp: UdpSocket,
    tcp: TcpListener,
}

impl Sockets {
    pub(super) fn bind(listen: SocketAddr) -> io::Result<Sockets> {
        let mut tries = 0;
        let (udp, tcp) = loop {
            tries += 1;
            let udp = UdpSocket::bind(listen)?;
            match TcpListener::bind(udp.local_addr()?) {
                Ok(tcp) => break (udp, tcp),
                Err(_) if listen.port() == 0 && tries < TRIES => {}
                Err(error) => return Err(error),
            }
        };
        udp.set_nonblocking(true)?;
        tcp.set_nonblocking(true)?;
        Ok(Sockets { udp, tcp })
    }

    pub(super) fn address(&self) -> io::Result<SocketAddr> {
        self.udp.local_addr()
    }
}

/// Serves until `stopped` says something or is dropped by the other side.
pub(super) async fn serve(
    sockets: Sockets,
    zone: Arc<RwLock<Zone>>,
    limited: Arc<Limited>,
    stopped: oneshot::Receiver<()>,
) -> io::Result<()> {
    let handler = Handler { zone };
    let visitors = Visitors::new(tokio::net::TcpListener::from_std(sockets.tcp)?, CONNECTIONS);
    let udp = tokio::net::UdpSocket::from_std(sockets.udp)?;
    tokio::select! {
        () = receive(&udp, &handler, &limited) => {}
        () = accept(visitors, &handler) => {}
        _ = stopped => {}
    }
    Ok(())
}

/// Answers what comes by UDP.
async fn receive(socket: &tokio::net::UdpSocket, handler: &Handler, limited: &Limited) {
    let (mut limiter, start) = (Limiter::new(), Instant::now());
    let (mut buffer, mut told) = (vec![0; UDP_QUERY], None);
    loop {
        let Ok((length, from)) = socket.recv_from(&mut buffer).await else {
            tokio::time::sleep(AGAIN).await;
            continue;
        };
        let Some(asked) = Asked::read(&buffer[..length], from, Protocol::Udp).filter(|_| can_answer(from)) else {
            continue;
        };
        let verdict = limiter.judge(start.elapsed(), from.ip());
        let is_cut = verdict != Verdict::Answer;
        if is_cut && told.is_none_or(|told: Instant| told.elapsed() >= QUIET) {
            told = Some(Instant::now());
            let network = network(from.ip());
            warn!(
                %network,
                "DNS answers are limited: more than {RATE} a second to this network, or {RATE_OF_ALL} to all; resolvers \
                 come by TCP"
            );
        }
        let answer = if verdict == Verdict::Drop { None } else { handler.reply(&asked, is_cut) };
        if let Some(answer) = &answer {
            // What the system does not take is asked for again.
            let _ = socket.try_send_to(answer, from);
        }
        if is_cut {
            let count = if answer.is_some() { &limited.truncated } else { &limited.dropped };
            count.fetch_add(1, Relaxed);
        }
    }
}

/// Whether there may be somebody at an address that a datagram claims to be from.
fn can_answer(from: SocketAddr) -> bool {
    let is_one = match from.ip().to_canonical() {
        IpAddr::V4(ip) => !ip.is_unspecified() && !ip.is_broadcast() && !ip.is_multicast(),
        IpAddr::V6(ip) => !ip.is_unspecified() && !ip.is_multicast(),
    };
    is_one && from.port() != 0
}

/// What came.
enum Asked {
    /// A query, or something else that is to be answered.
    Request(Box<Request>),
    /// Something that cannot be read but for its number.
    Garbled(u16),
}

impl Asked {
    /// None of what must not be answered: answers, which two servers would send each other for ever.
    fn read(bytes: &[u8], from: SocketAddr, protocol: Protocol) -> Option<Asked> {
        let head = bytes.first_chunk::<HEADER>().filter(|head| head[2] & IS_ANSWER == 0)?;
        let id = u16::from_be_bytes([head[0], head[1]]);
        let request = Request::from_bytes(bytes.to_vec(), from, protocol);
        Some(request.map_or(Asked::Garbled(id), |request| Asked::Request(Box::new(request))))
    }
}

#[derive(Clone)]
struct Handler {
    zone: Arc<RwLock<Zone>>,
}

impl Handler {
    /// The answer as bytes; `is_cut`: without what was asked for, and marked so. None where that says nothing.
    fn reply(&self, asked: &Asked, is_cut: bool) -> Option<Vec<u8>> {
        let request = match asked {
            Asked::Request(request) => request,
            Asked::Garbled(_) if is_cut => return None,
            Asked::Garbled(id) => return Message::error_msg(*id, OpCode::Query, ResponseCode::FormErr).to_vec().ok(),
        };
        let edns = request.edns.as_ref().map(|asked| {
            let mut edns = Edns::new();
            edns.set_max_payload(asked.max_payload().clamp(UDP_LEAST, UDP_MOST));
            edns
        });
        let most = match request.protocol() {
            Protocol::Udp => edns.as_ref().map_or(UDP_LEAST, Edns::max_payload),
            _ => u16::MAX,
        };
        let mut answer = match is_cut {
            true => Answer { code: ResponseCode::NoError, is_ours: false, records: Vec::new(), soa: None },
            false => self.answer(request),
        };
        let mut metadata = Metadata::response_from_request(&request.metadata);
        metadata.truncation = is_cut || cut(&mut answer.records, request, usize::from(most));
        metadata.response_code = answer.code;
        metadata.authoritative = answer.is_ours && answer.code != ResponseCode::ServFail;
        let builder = MessageResponseBuilder::new(&request.queries, edns.as_ref());
        let response = builder.build(metadata, &answer.records, None::<&Record>, answer.soa.as_ref(), None::<&Record>);
        let mut bytes = Vec::new();
        let mut encoder = BinEncoder::new(&mut bytes);
        encoder.set_max_size(most);
        response.destructive_emit(&mut encoder).ok()?;
        Some(bytes)
    }

    fn answer(&self, request: &Request) -> Answer {
        let say = |code| Answer { code, is_ours: false, records: Vec::new(), soa: None };
        if request.edns.as_ref().is_some_and(|edns| edns.version() > 0) {
            return say(ResponseCode::BADVERS);
        }
        if request.metadata.op_code != OpCode::Query {
            return say(ResponseCode::NotImp);
        }
        match request.queries.queries() {
            [query] => self.zone.read().unwrap_or_else(PoisonError::into_inner).answer(query),
            _ => say(ResponseCode::FormErr),
        }
    }

    /// One connection, to its end.
    async fn talk(&self, mut visit: Visit, from: SocketAddr) -> io::Result<()> {
        loop {
            let query = read(&mut visit).await?;
            let asked = Asked::read(&query, from, Protocol::Tcp);
            let Some(answer) = asked.and_then(|asked| self.reply(&asked, false)) else { return Ok(()) };
            let Ok(length) = u16::try_from(answer.len()) else { return Ok(()) };
            visit.write_all(&[&length.to_be_bytes(), answer.as_slice()].concat()).await?;
        }
    }
}

/// Leaves as many addresses as an answer of so many bytes holds; whether some had to go. The library would cut, too,
/// but fill the message to the last byte, with no room for what must come after the addresses (RFC 6891, 6.1.1).
fn cut(records: &mut Vec<Record>, request: &Request, most: usize) -> bool {
    let each = match records.first().map(|record| &record.data) {
        Some(RData::A(_)) => RECORD + 4,
        Some(RData::AAAA(_)) => RECORD + 16,
        _ => return false,
    };
    let room = most.saturating_sub(HEADER + 2 * request.queries.as_bytes().len() + OPTIONS) / each;
    let is_cut = records.len() > room;
    records.truncate(room);
    is_cut
}

async fn read(visit: &mut Visit) -> io::Result<Vec<u8>> {
    let length = visit.read_u16().await?;
    let mut query = vec![0; usize::from(length)];
    visit.read_exact(&mut query).await?;
    Ok(query)
}

async fn accept(mut visitors: Visitors, handler: &Handler) {
    loop {
        let (visit, from) = visitors.accept().await;
        let handler = handler.clone();
        // However it ended, the asker knows.
        tokio::spawn(async move { drop(handler.talk(visit, from).await) });
    }
}
