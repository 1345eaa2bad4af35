//! Servers that speak HTTP/2, behind a real sentry: shared connections, bodies, trailers, and what goes wrong.

use std::cell::Cell;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use h2::Reason;
use h2::server::{Builder, SendResponse};
use http::{HeaderMap, Request, Response};
use tidegate_engine::{ServerSetup, Status};
use tidegate_sentry::config::{Application, Server};
use tidegate_sentry::counters::Counter;

use crate::http2::{PREFACE, frame};
use crate::support::{Client, Door, PATIENCE, Running, application, until};

/// A server of HTTP/2 alone. What it does stands in the path of a request.
struct Http2Server {
    address: SocketAddr,
    door: Door,
    seen: Arc<Seen>,
}

/// What it has seen so far.
#[derive(Debug, Default)]
struct Seen {
    connections: AtomicUsize,
    requests: AtomicUsize,
    resets: AtomicUsize,
    /// The most requests at once of one connection.
    most: AtomicUsize,
}

impl Http2Server {
    fn start(builder: &Builder) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
        listener.set_nonblocking(true).expect("a listener");
        let address = listener.local_addr().expect("an address");
        let (door, seen) = (Door::default(), Arc::<Seen>::default());
        let server = Http2Server { address, door: door.clone(), seen: seen.clone() };
        let builder = builder.clone();
        thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            let local = tokio::task::LocalSet::new();
            local.block_on(&runtime, async move {
                let listener = tokio::net::TcpListener::from_std(listener).expect("a listener");
                while let Ok((socket, _)) = listener.accept().await {
                    tokio::task::spawn_local(connection(socket, builder.clone(), door.clone(), seen.clone()));
                }
            });
        });
        server
    }

    fn application(&self) -> Application {
        let mut application = application(&[self.address]);
        application.servers[0].address = format!("h2c://{}", self.address);
        application
    }
}

async fn connection(socket: tokio::net::TcpStream, builder: Builder, door: Door, seen: Arc<Seen>) {
    let Ok(mut connection) = builder.handshake::<_, Bytes>(socket).await else { return };
    let (open, mut is_new) = (Rc::new(Cell::new(0)), true);
    while let Some(Ok((request, answer))) = connection.accept().await {
        // A health check without a path only connects.
        seen.connections.fetch_add(usize::from(std::mem::take(&mut is_new)), Relaxed);
        seen.requests.fetch_add(1, Relaxed);
        match request.uri().path() {
            "/goaway" => connection.graceful_shutdown(),
            "/abort" => return,
            _ => {}
        }
        open.set(open.get() + 1);
        seen.most.fetch_max(open.get(), Relaxed);
        let (open, door, seen) = (open.clone(), door.clone(), seen.clone());
        tokio::task::spawn_local(async move {
            respond(request, answer, &door, &seen).await;
            open.set(open.get() - 1);
        });
    }
}

async fn respond(request: Request<h2::RecvStream>, mut answer: SendResponse<Bytes>, door: &Door, seen: &Seen) {
    let (head, mut body) = request.into_parts();
    match head.uri.path() {
        "/hold" => {
            while !door.is_open() {
                let reset = std::future::poll_fn(|cx| answer.poll_reset(cx));
                if tokio::time::timeout(Duration::from_millis(1), reset).await.is_ok() {
                    seen.resets.fetch_add(1, Relaxed);
                    return;
                }
            }
        }
        "/refuse" if seen.requests.load(Relaxed) == 1 => return answer.send_reset(Reason::REFUSED_STREAM),
        "/unhealthy" => {
            let refusal = Response::builder().status(503).body(()).expect("an answer");
            drop(answer.send_response(refusal, true));
            return;
        }
        _ => {}
    }
    let mut sent = Vec::new();
    while let Some(Ok(data)) = body.data().await {
        body.flow_control().release_capacity(data.len()).expect("what was taken");
        sent.extend_from_slice(&data);
    }
    let trailers = body.trailers().await.ok().flatten();
    let field = |name: &str| head.headers.get(name).map_or("-", |value| value.to_str().expect("text")).to_owned();
    let response = Response::builder()
        .header("x-read", format!("{} {} {}", head.method, head.uri, head.headers.contains_key("host")))
        .header("x-hop", format!("{} {} {}", field("connection"), field("upgrade"), field("te")))
        .header("x-from", field("x-forwarded-for"))
        .header("x-agent", field("user-agent"));
    let Ok(mut stream) = answer.send_response(response.body(()).expect("an answer"), false) else { return };
    let mut left = Bytes::from(sent);
    while !left.is_empty() {
        stream.reserve_capacity(left.len());
        let Some(Ok(room)) = std::future::poll_fn(|cx| stream.poll_capacity(cx)).await else { return };
        let part = left.split_to(room.min(left.len()));
        if stream.send_data(part, false).is_err() {
            return;
        }
    }
    let mut told = HeaderMap::new();
    told.insert("grpc-status", "0".parse().expect("a value"));
    if let Some(sum) = trailers.and_then(|trailers| trailers.get("x-sum").cloned()) {
        told.insert("x-sum", sum);
    }
    drop(stream.send_trailers(told));
}

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: shop.example\r\n\r\n")
}

#[test]
fn requests_share_a_connection_and_are_read_as_they_were_sent() {
    let server = Http2Server::start(&Builder::new());
    let sentry = Running::start(server.application());
    let mut client = sentry.client();
    for i in 0..20 {
        // A change of protocol is no wish that HTTP/2 could fulfil; trailers are.
        let (wish, te) = [("upgrade\r\nUpgrade: websocket", "-"), ("te\r\nTE: trailers", "trailers")][i % 2];
        client.send(format!(
            "GET /{i}?a=b HTTP/1.1\r\nHost: Shop.example:8080\r\nUser-Agent: a\r\nConnection: {wish}\r\n\r\n"
        ));
        let answer = client.answer();
        assert_eq!(answer.status, 200);
        assert_eq!(answer.field("x-read"), Some(&*format!("GET http://Shop.example:8080/{i}?a=b false")));
        assert_eq!(answer.field("x-hop"), Some(&*format!("- - {te}")));
        assert_eq!(answer.field("x-from"), Some("127.0.0.1"));
        assert_eq!(answer.field("x-agent"), Some("a"));
    }
    // A request of which nothing is odd.
    client.send("GET / HTTP/1.1\r\nHost: x\r\nUser-Agent: b\r\n\r\n");
    assert_eq!(client.answer().field("x-agent"), Some("b"));
    assert_eq!(server.seen.connections.load(Relaxed), 1);
    assert_eq!((sentry.count(Counter::ServerConnects), sentry.count(Counter::ServerReuses)), (1, 20));
    drop(client);
    sentry.assert_quiet();
}

#[test]
fn bodies_and_trailers_pass_both_ways() {
    let server = Http2Server::start(&Builder::new());
    let sentry = Running::start(server.application());
    let mut client = sentry.client();
    for length in [0, 1, 70_000, 1 << 20] {
        let body = "x".repeat(length);
        client.send(format!("POST / HTTP/1.1\r\nHost: t\r\nContent-Length: {length}\r\n\r\n"));
        client.send(&body);
        let answer = client.answer();
        assert_eq!((answer.status, answer.body.len()), (200, length));
    }
    client.send("POST / HTTP/1.1\r\nHost: t\r\nTE: trailers\r\nConnection: te\r\nTransfer-Encoding: chunked\r\nTrailer: x-sum\r\n\r\n");
    client.send("3\r\nabc\r\n0\r\nx-sum: 7\r\n\r\n");
    let answer = client.answer();
    assert_eq!((answer.status, &*answer.text()), (200, "abc"));
    drop(client);
    sentry.assert_quiet();
}

#[test]
fn further_connections_are_opened_where_one_has_no_room_and_not_too_many() {
    // Streams that the server allows; connections, and requests at once in all.
    for (limit, connections, at_once) in [(1000, 3, 250), (100, 3, 250), (50, 5, 250), (10, 16, 160), (1, 16, 16)] {
        let server = Http2Server::start(Builder::new().max_concurrent_streams(limit));
        let sentry = Running::start(server.application());
        let clients = hold(&sentry, 250);
        until("all wait for their server", || sentry.app().in_flight() == 250);
        until("as many as may be are there", || server.seen.requests.load(Relaxed) >= at_once);
        server.door.open();
        for mut client in clients {
            assert_eq!(client.answer().status, 200, "limit {limit}");
        }
        assert_eq!(server.seen.connections.load(Relaxed), connections, "limit {limit}");
        assert_eq!(server.seen.most.load(Relaxed), limit.min(100) as usize);
        sentry.assert_quiet();
    }
}

#[test]
fn who_waits_for_room_and_leaves_holds_nobody_up() {
    let server = Http2Server::start(Builder::new().max_concurrent_streams(1));
    let sentry = Running::start(server.application());
    let mut clients = hold(&sentry, 50);
    until("all wait for their server", || sentry.app().in_flight() == 50);
    until("as many as may be are there", || server.seen.requests.load(Relaxed) == 16);
    let leavers: Vec<_> = clients.drain(10..40).collect();
    drop(leavers);
    until("they are gone", || sentry.count(Counter::ClientGone) == 30);
    server.door.open();
    for mut client in clients {
        assert_eq!(client.answer().status, 200);
    }
    sentry.assert_quiet();
}

/// So many clients, each with a request.
fn hold(sentry: &Running, count: usize) -> Vec<Client> {
    let ask = |_| {
        let mut client = sentry.client();
        client.send(get("/hold"));
        client
    };
    (0..count).map(ask).collect()
}

/// A server's end of a connection, frame by frame.
struct RawEnd {
    socket: TcpStream,
    asked: usize,
}

impl RawEnd {
    /// The first that is more than a health check: these only connect.
    fn accept(listener: &TcpListener) -> Self {
        loop {
            let (mut socket, _) = listener.accept().expect("the sentry");
            socket.set_read_timeout(Some(PATIENCE)).expect("a socket");
            if socket.read_exact(&mut [0; PREFACE.len()]).is_ok() {
                return RawEnd { socket, asked: 0 };
            }
        }
    }

    /// So many requests come in all, and no more.
    fn expect(&mut self, asked: usize) {
        const PING: u8 = 6;
        while self.asked < asked {
            self.frame();
        }
        // What the first lets happen is there before the answer to a later one.
        for round in 0..8_u64 {
            self.write(&frame(PING, 0, 0, &round.to_be_bytes()));
            while self.frame() != (PING, 1) {}
        }
        assert_eq!(self.asked, asked);
    }

    /// The next frame's kind and flags.
    fn frame(&mut self) -> (u8, u8) {
        const HEADERS: u8 = 1;
        let mut head = [0; 9];
        self.socket.read_exact(&mut head).expect("a frame");
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        self.socket.read_exact(&mut vec![0; length as usize]).expect("a payload");
        self.asked += usize::from(head[3] == HEADERS);
        (head[3], head[4])
    }

    fn allow(&mut self, streams: u32) {
        const SETTINGS: u8 = 4;
        self.write(&frame(SETTINGS, 0, 0, &[&[0, 3][..], &streams.to_be_bytes()].concat()));
    }

    /// 204 to a request.
    fn answer(&mut self, request: u32) {
        self.write(&frame(1, 5, 2 * request + 1, &[0x89]));
    }

    fn write(&mut self, bytes: &[u8]) {
        self.socket.write_all(bytes).expect("the sentry reads");
    }
}

#[test]
fn no_more_is_asked_than_the_server_wants_as_of_now() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    let address = listener.local_addr().expect("an address");
    let mut application = application(&[address]);
    application.servers[0].address = format!("h2c://{address}");
    let sentry = Running::start(application);
    let clients = hold(&sentry, 20);
    until("all wait for their server", || sentry.app().in_flight() == 20);
    let mut server = RawEnd::accept(&listener);
    // It has not said what it wants.
    server.expect(0);
    server.allow(2);
    server.expect(2);
    // Others wait for another connection, on which the server says nothing, or for room on this one.
    server.allow(5);
    server.expect(5);
    server.allow(1);
    for answered in 0..4 {
        server.answer(answered);
        // There are more than it wants still.
        server.expect(5);
    }
    server.answer(4);
    server.expect(6);
    server.allow(100);
    // All but the one that opens the other connection.
    server.expect(19);
    drop((clients, server));
}

#[test]
fn a_server_that_says_nothing_gets_no_request() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    let address = listener.local_addr().expect("an address");
    let server = Http2Server::start(&Builder::new());
    let mut application = server.application();
    application.servers.insert(0, Server { name: "s1".to_owned(), address: format!("h2c://{address}") });
    application.setup.servers.push(ServerSetup::new("s1"));
    application.retry.attempts = 1;
    application.retry.budget = 1.0;
    application.timeouts.connect = Duration::from_millis(20);
    let sentry = Running::start(application);
    // It was not sent there, so that it may be sent elsewhere, whatever it is.
    let ask = |_| {
        let mut client = sentry.client();
        client.send("POST /hold HTTP/1.1\r\nHost: t\r\nContent-Length: 1\r\n\r\nx");
        client
    };
    let clients: Vec<_> = (0..4).map(ask).collect();
    until("all are there", || server.seen.requests.load(Relaxed) == 4);
    server.door.open();
    for mut client in clients {
        assert_eq!(client.answer().status, 200);
    }
    assert!(sentry.count(Counter::Retries) > 0, "it was tried");
}

#[test]
fn a_client_that_leaves_resets_its_stream_and_no_other() {
    let server = Http2Server::start(&Builder::new());
    let sentry = Running::start(server.application());
    let (mut leaver, mut stayer) = (sentry.client(), sentry.client());
    leaver.send(get("/hold"));
    stayer.send(get("/hold"));
    until("both are there", || server.seen.requests.load(Relaxed) == 2);
    drop(leaver);
    until("one is reset", || server.seen.resets.load(Relaxed) == 1);
    server.door.open();
    assert_eq!(stayer.answer().status, 200);
    assert_eq!((sentry.count(Counter::ClientGone), server.seen.connections.load(Relaxed)), (1, 1));
}

#[test]
fn a_connection_that_its_server_ends_is_followed_by_another() {
    let server = Http2Server::start(&Builder::new());
    let sentry = Running::start(server.application());
    let mut client = sentry.client();
    // GOAWAY lets what is under way end; a connection that breaks off is one that had rested, and GET may be repeated.
    for (path, connections) in [("/goaway", 1), ("/", 2), ("/", 2)] {
        client.send(get(path));
        assert_eq!(client.answer().status, 200, "{path}");
        assert_eq!(server.seen.connections.load(Relaxed), connections, "{path}");
    }
    client.send("POST /abort HTTP/1.1\r\nHost: t\r\nContent-Length: 1\r\n\r\nx");
    assert_eq!(client.answer().status, 502);
    client.send(get("/"));
    assert_eq!(client.answer().status, 200);
    assert_eq!(server.seen.connections.load(Relaxed), 3);
}

#[test]
fn a_stream_that_the_server_refused_is_asked_for_again() {
    let server = Http2Server::start(&Builder::new());
    let mut application = server.application();
    application.retry.attempts = 1;
    application.retry.budget = 1.0;
    // The same once more: who is refused there asks another one.
    let address = application.servers[0].address.clone();
    application.servers.push(Server { name: "s1".to_owned(), address });
    application.setup.servers.push(ServerSetup::new("s1"));
    let sentry = Running::start(application);
    let mut client = sentry.client();
    client.send(get("/refuse"));
    assert_eq!(client.answer().status, 200);
    assert_eq!((server.seen.requests.load(Relaxed), sentry.count(Counter::Retries)), (2, 1));
}

#[test]
fn a_connection_on_which_a_request_waited_in_vain_gets_no_more() {
    let server = Http2Server::start(&Builder::new());
    let mut application = server.application();
    application.timeouts.first_byte = Duration::from_millis(250);
    let sentry = Running::start(application);
    let mut client = sentry.client();
    client.send(get("/hold"));
    assert_eq!(client.answer().status, 504);
    server.door.open();
    client.send(get("/"));
    assert_eq!(client.answer().status, 200);
    assert_eq!(server.seen.connections.load(Relaxed), 2);
}

#[test]
fn who_speaks_http1_only_is_no_server() {
    let server = crate::support::RawServer::echo();
    let mut application = application(&[server.address]);
    application.servers[0].address = format!("h2c://{}", server.address);
    let sentry = Running::start(application);
    let mut client = sentry.client();
    for _ in 0..2 {
        client.send(get("/"));
        assert_eq!(client.answer().status, 502);
    }
}

#[test]
fn health_is_asked_for_in_the_same_protocol() {
    let server = Http2Server::start(&Builder::new());
    for (path, status) in [("/", Status::Up), ("/unhealthy", Status::Down)] {
        let mut application = server.application();
        application.health.path = Some(path.to_owned());
        application.health.interval = Duration::from_millis(5);
        application.health.fall = 2;
        let before = server.seen.requests.load(Relaxed);
        let sentry = Running::start(application);
        until("it was asked three times", || server.seen.requests.load(Relaxed) >= before + 3);
        until("it counts as it should", || sentry.app().live().servers().all(|server| server.status() == status));
    }
}
