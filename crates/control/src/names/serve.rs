//! DNS server by UDP and TCP.
//!
//! *Awkward cases.* An answer by UDP has at most 1,232 bytes, which every path carries whole, or less if the asker says
//! so; what does not fit is cut, and marked so that the asker comes again by TCP. Connections are bounded in number and
//! in time, and beyond that wait for their turn: the library's own loop for TCP takes any number, and they would take
//! the descriptors that sentries' connections need. What is no query is answered as such, or, where that could be made
//! to bounce, not at all.

use std::io;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use hickory_server::Server;
use hickory_server::net::NetError;
use hickory_server::net::runtime::{Time, TokioTime};
use hickory_server::net::xfer::Protocol;
use hickory_server::proto::op::{Edns, Header, HeaderCounts, Message, MessageType, Metadata, OpCode, ResponseCode};
use hickory_server::proto::rr::{RData, Record};
use hickory_server::proto::serialize::binary::BinEncoder;
use hickory_server::server::{Request, RequestHandler, ResponseHandler, ResponseInfo};
use hickory_server::zone_handler::{MessageResponse, MessageResponseBuilder};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, oneshot};
use tokio::time::timeout;

use super::zone::{Answer, Zone};

/// The most bytes of an answer by UDP (DNS Flag Day 2020), and the least that an asker must take.
const UDP_MOST: u16 = 1232;
const UDP_LEAST: u16 = 512;
/// Bytes of a message's head, of its options, and of a record whose name stands in the message already: the first one
/// has it in full, which is no longer than the question.
const HEADER: usize = 12;
const OPTIONS: usize = 11;
const RECORD: usize = 12;
/// Connections at once.
const CONNECTIONS: usize = 64;
/// A query must come, and its answer be taken, in so long.
const PATIENCE: Duration = Duration::from_secs(5);
/// Between two tries to accept a connection, where the system has no room for one.
const AGAIN: Duration = Duration::from_millis(100);
/// With a port of the system's choice: how often one is looked for that both have free.
const TRIES: usize = 16;

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
    stopped: oneshot::Receiver<()>,
) -> Result<(), NetError> {
    let handler = Handler { zone };
    let listener = tokio::net::TcpListener::from_std(sockets.tcp)?;
    let mut server = Server::new(handler.clone());
    server.register_socket(tokio::net::UdpSocket::from_std(sockets.udp)?);
    tokio::select! {
        ended = server.block_until_done() => ended,
        () = accept(listener, handler) => Ok(()),
        _ = stopped => Ok(()),
    }
}

#[derive(Clone)]
struct Handler {
    zone: Arc<RwLock<Zone>>,
}

#[async_trait::async_trait]
impl RequestHandler for Handler {
    async fn handle_request<R: ResponseHandler, T: Time>(&self, request: &Request, mut out: R) -> ResponseInfo {
        let edns = request.edns.as_ref().map(|asked| {
            let mut edns = Edns::new();
            edns.set_max_payload(asked.max_payload().clamp(UDP_LEAST, UDP_MOST));
            edns
        });
        let mut answer = self.answer(request);
        let mut metadata = Metadata::response_from_request(&request.metadata);
        let most = match request.protocol() {
            Protocol::Udp => edns.as_ref().map_or(UDP_LEAST, Edns::max_payload),
            _ => u16::MAX,
        };
        metadata.truncation = cut(&mut answer.records, request, usize::from(most));
        metadata.response_code = answer.code;
        metadata.authoritative = answer.is_ours && answer.code != ResponseCode::ServFail;
        let builder = MessageResponseBuilder::new(&request.queries, edns.as_ref());
        let response = builder.build(metadata, &answer.records, None::<&Record>, answer.soa.as_ref(), None::<&Record>);
        match out.send_response(response).await {
            Ok(info) => info,
            Err(_) => {
                // Nobody takes it: the asker asks again.
                metadata.response_code = ResponseCode::ServFail;
                ResponseInfo::from(Header { metadata, counts: HeaderCounts::default() })
            }
        }
    }
}

impl Handler {
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
    async fn talk(&self, mut stream: TcpStream, from: SocketAddr) -> io::Result<()> {
        loop {
            let query = timeout(PATIENCE, read(&mut stream)).await??;
            let Some(answer) = self.reply(query, from).await else { return Ok(()) };
            timeout(PATIENCE, stream.write_all(&answer)).await??;
        }
    }

    /// The answer with its length before it; none to what should not have one.
    async fn reply(&self, query: Vec<u8>, from: SocketAddr) -> Option<Vec<u8>> {
        let id = u16::from_be_bytes([*query.first()?, *query.get(1)?]);
        let out = Collect::default();
        match Request::from_bytes(query, from, Protocol::Tcp) {
            Ok(request) if request.metadata.message_type == MessageType::Response => return None,
            Ok(request) => drop(self.handle_request::<_, TokioTime>(&request, out.clone()).await),
            Err(_) => {
                let no = Message::error_msg(id, OpCode::Query, ResponseCode::FormErr);
                out.set(no.to_vec().ok()?);
            }
        }
        let message = out.take();
        let length = u16::try_from(message.len()).ok().filter(|length| *length > 0)?;
        Some([&length.to_be_bytes(), message.as_slice()].concat())
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

async fn read(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let length = stream.read_u16().await?;
    let mut query = vec![0; usize::from(length)];
    stream.read_exact(&mut query).await?;
    Ok(query)
}

async fn accept(listener: tokio::net::TcpListener, handler: Handler) {
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let Ok(place) = places.clone().acquire_owned().await else { return };
        let Ok((stream, from)) = listener.accept().await else {
            // Out of descriptors, most likely: let others end first.
            tokio::time::sleep(AGAIN).await;
            continue;
        };
        let handler = handler.clone();
        tokio::spawn(async move {
            // However it ended, the asker knows.
            let _ = handler.talk(stream, from).await;
            drop(place);
        });
    }
}

/// Takes an answer as bytes.
#[derive(Clone, Default)]
struct Collect(Arc<Mutex<Vec<u8>>>);

impl Collect {
    fn set(&self, bytes: Vec<u8>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = bytes;
    }

    fn take(&self) -> Vec<u8> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[async_trait::async_trait]
impl ResponseHandler for Collect {
    async fn send_response<'a>(
        &mut self,
        response: MessageResponse<
            '_,
            'a,
            impl Iterator<Item = &'a Record> + Send + 'a,
            impl Iterator<Item = &'a Record> + Send + 'a,
            impl Iterator<Item = &'a Record> + Send + 'a,
            impl Iterator<Item = &'a Record> + Send + 'a,
        >,
    ) -> Result<ResponseInfo, NetError> {
        let mut bytes = Vec::new();
        let mut encoder = BinEncoder::new(&mut bytes);
        encoder.set_max_size(u16::MAX);
        let info = response.destructive_emit(&mut encoder)?;
        self.set(bytes);
        Ok(info)
    }
}
