//! A DNS server on loopback whose answers change.

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex};

use hickory_server::Server;
use hickory_server::net::runtime::Time;
use hickory_server::proto::op::{Header, HeaderCounts, Metadata, ResponseCode};
use hickory_server::proto::rr::rdata::{A, SRV};
use hickory_server::proto::rr::{Name, RData, Record};
use hickory_server::server::{Request, RequestHandler, ResponseHandler, ResponseInfo};
use hickory_server::zone_handler::MessageResponseBuilder;

/// The server. Dropped, it stops.
pub struct Dns {
    pub address: SocketAddr,
    zone: Arc<Mutex<Zone>>,
    _stop: tokio::sync::oneshot::Sender<()>,
}

#[derive(Default)]
struct Zone {
    /// By name, without the last dot.
    records: HashMap<String, Vec<RData>>,
    /// What every query gets instead.
    fails: Option<ResponseCode>,
    queries: usize,
}

impl Dns {
    pub fn start() -> Self {
        let socket = UdpSocket::bind(("127.0.0.1", 0)).expect("a port");
        let address = socket.local_addr().expect("an address");
        socket.set_nonblocking(true).expect("a socket");
        let zone: Arc<Mutex<Zone>> = Arc::default();
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let handler = Handler(zone.clone());
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async {
                let mut server = Server::new(handler);
                server.register_socket(tokio::net::UdpSocket::from_std(socket).expect("a socket"));
                let _ = stopped.await;
            });
        });
        Dns { address, zone, _stop: stop }
    }

    /// From now on `name` has these addresses.
    pub fn set(&self, name: &str, addresses: &[Ipv4Addr]) {
        let records = addresses.iter().map(|address| RData::A(A(*address))).collect();
        self.zone.lock().expect("a lock").records.insert(name.to_owned(), records);
    }

    /// From now on `name` has these SRV records: priority, weight, port, target.
    pub fn set_services(&self, name: &str, services: &[(u16, u16, u16, &str)]) {
        let record = |(priority, weight, port, target): &(u16, u16, u16, &str)| {
            RData::SRV(SRV::new(*priority, *weight, *port, Name::from_utf8(target).expect("a name")))
        };
        let records = services.iter().map(record).collect();
        self.zone.lock().expect("a lock").records.insert(name.to_owned(), records);
    }

    /// From now on every query gets this code, or its answer.
    pub fn fail(&self, code: Option<ResponseCode>) {
        self.zone.lock().expect("a lock").fails = code;
    }

    /// How many queries came.
    pub fn queries(&self) -> usize {
        self.zone.lock().expect("a lock").queries
    }
}

struct Handler(Arc<Mutex<Zone>>);

#[async_trait::async_trait]
impl RequestHandler for Handler {
    async fn handle_request<R: ResponseHandler, T: Time>(&self, request: &Request, mut out: R) -> ResponseInfo {
        let mut metadata = Metadata::response_from_request(&request.metadata);
        let records = self.answer(request, &mut metadata.response_code);
        let builder = MessageResponseBuilder::new(&request.queries, None);
        let none = None::<&Record>;
        let response = builder.build(metadata, &records, none, none, none);
        let sent = out.send_response(response).await;
        sent.unwrap_or_else(|_| ResponseInfo::from(Header { metadata, counts: HeaderCounts::default() }))
    }
}

impl Handler {
    fn answer(&self, request: &Request, code: &mut ResponseCode) -> Vec<Record> {
        let mut zone = self.0.lock().expect("a lock");
        zone.queries += 1;
        let query = &request.queries.queries()[0];
        let name = Name::from(query.name().clone());
        if let Some(fails) = zone.fails {
            *code = fails;
            return Vec::new();
        }
        let Some(records) = zone.records.get(name.to_utf8().trim_end_matches('.')) else {
            *code = ResponseCode::NXDomain;
            return Vec::new();
        };
        let kind = |data: &&RData| data.record_type() == query.query_type();
        let record = |data: &RData| Record::from_rdata(name.clone(), 0, data.clone());
        records.iter().filter(kind).map(record).collect()
    }
}
