//! HTTP/2 in front of a real sentry: requests by `h2`'s client, attacks frame by frame.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use bytes::Bytes;
use h2::Reason;
use h2::client::{ResponseFuture, SendRequest};
use http::{HeaderMap, Request, Response};
use tidegate_sentry::Process;
use tidegate_sentry::counters::Counter;

use crate::support::{Door, PATIENCE, RawServer, Running, application, config, ok, refuse_all, until};

/// Runs `test` with a connection.
pub(crate) fn with_client<F: Future<Output = ()>>(address: SocketAddr, test: impl FnOnce(SendRequest<Bytes>) -> F) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let socket = tokio::net::TcpStream::connect(address).await.expect("a connection");
        let (sender, connection) = h2::client::handshake(socket).await.expect("a handshake");
        let test = async { tokio::time::timeout(PATIENCE, test(sender)).await.expect("in time") };
        tokio::select! {
            () = test => {}
            ended = connection => panic!("the connection ended: {ended:?}"),
        }
    });
}

fn get(path: &str) -> http::request::Builder {
    Request::builder().uri(format!("http://test{path}"))
}

pub(crate) async fn ask(sender: &SendRequest<Bytes>, request: Request<()>) -> ResponseFuture {
    let mut sender = sender.clone().ready().await.expect("room for a stream");
    sender.send_request(request, true).expect("a stream").0
}

/// Head, body and trailers of an answer.
pub(crate) async fn whole(answer: ResponseFuture) -> (Response<()>, String, Option<HeaderMap>) {
    let (head, mut body) = answer.await.expect("an answer").into_parts();
    let mut text = Vec::new();
    while let Some(data) = body.data().await {
        let data = data.expect("a whole body");
        body.flow_control().release_capacity(data.len()).expect("what was taken");
        text.extend_from_slice(&data);
    }
    let trailers = body.trailers().await.expect("a whole answer");
    (Response::from_parts(head, ()), String::from_utf8(text).expect("text"), trailers)
}

#[test]
fn requests_of_one_connection_go_to_the_server_and_come_back() {
    let server = RawServer::echo();
    let sentry = Running::start(application(&[server.address]));
    with_client(sentry.address, |sender| async move {
        let mut answers = Vec::new();
        for i in 0..20 {
            answers.push(ask(&sender, get(&format!("/{i}")).body(()).expect("a request")).await);
        }
        for (i, answer) in answers.into_iter().enumerate() {
            let (head, text, _) = whole(answer).await;
            assert_eq!((head.status().as_u16(), text), (200, format!("/{i}")));
            assert!(head.headers().get("connection").is_none());
        }
    });
    sentry.assert_quiet();
    assert_eq!((sentry.count(Counter::Http2Connections), sentry.count(Counter::Http2Requests)), (1, 20));
    assert_eq!(sentry.app().snapshot().classes[0].completed, 20);
    until("the connection is closed", || sentry.count(Counter::ConnectionsClosed) == 1);
}

#[test]
fn rules_and_servers_read_one_host_one_path_and_one_cookie() {
    let server = RawServer::answering(|asked| {
        let field = |name| asked.field(name).unwrap_or("nothing").to_owned();
        ok(&format!("{} {} {}", field("host"), field("cookie"), field("x-forwarded-for")))
    });
    let sentry = Running::start(application(&[server.address]));
    with_client(sentry.address, |sender| async move {
        let request = get("/%61").header("cookie", "a=1").header("cookie", "b=2").body(());
        let (_, text, _) = whole(ask(&sender, request.expect("a request")).await).await;
        assert_eq!(text, "test a=1; b=2 127.0.0.1");
        for (request, status) in [
            (get("/").header("host", "other"), 400),
            (get("/a/..%2fb"), 400),
            (get("/").method("TRACE"), 501),
            (get("/").header("expect", "tea"), 417),
        ] {
            let (head, ..) = whole(ask(&sender, request.body(()).expect("a request")).await).await;
            assert_eq!(head.status().as_u16(), status);
        }
    });
}

#[test]
fn a_refusal_is_an_answer_and_says_why() {
    let server = RawServer::echo();
    let mut app = application(&[server.address]);
    app.setup.admission = refuse_all();
    let sentry = Running::start(app);
    with_client(sentry.address, |sender| async move {
        for _ in 0..3 {
            let (head, text, _) = whole(ask(&sender, get("/").body(()).expect("a request")).await).await;
            assert_eq!((head.status().as_u16(), text.as_str()), (503, ""));
            let why = "rejected; reason=concurrency-limit; policy=concurrency; class=default";
            assert_eq!(head.headers()["tidegate-decision"], why);
            assert!(head.headers().contains_key("retry-after"));
        }
        // With a body still to come: the answer, and then that it is not wanted.
        let mut ready = sender.clone().ready().await.expect("room for a stream");
        let request = get("/").method("POST").body(()).expect("a request");
        let (answer, mut body) = ready.send_request(request, false).expect("a stream");
        assert_eq!(answer.await.expect("an answer").status(), 503);
        let reset = std::future::poll_fn(|cx| body.poll_reset(cx)).await.expect("a reset");
        assert_eq!(reset, Reason::NO_ERROR);
        // gRPC in its own words.
        let request = get("/a.B/C").method("POST").header("content-type", "application/grpc+proto").body(());
        let (head, _, _) = whole(ask(&sender, request.expect("a request")).await).await;
        let field = |name: &str| head.headers()[name].to_str().expect("text").to_owned();
        assert_eq!((head.status().as_u16(), field("grpc-status").as_str()), (200, "14"));
        assert!(field("grpc-retry-pushback-ms").parse::<u32>().expect("milliseconds") >= 1);
    });
    assert_eq!(sentry.count(Counter::ServerConnects), 0);
    assert_eq!(sentry.count(Counter::RefusedByGate), 5);
}

#[test]
fn bodies_and_trailers_pass_both_ways_whatever_their_size() {
    let server = RawServer::start(|mut peer| {
        while let Some(asked) = peer.request() {
            let body = &asked.body;
            let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: x-sum\r\n\r\n";
            let chunk = format!("{:x}\r\n", body.len());
            let whole = [head.as_bytes(), chunk.as_bytes(), body, b"\r\n0\r\nx-sum: 7\r\n\r\n"].concat();
            if !peer.send(whole) {
                return;
            }
        }
    });
    let sentry = Running::start(application(&[server.address]));
    with_client(sentry.address, |sender| async move {
        let sent = "0123456789abcdef".repeat(1 << 16);
        let mut ready = sender.clone().ready().await.expect("room for a stream");
        let request = get("/").method("POST").header("te", "trailers").header("content-length", sent.len());
        let (answer, mut body) = ready.send_request(request.body(()).expect("a request"), false).expect("a stream");
        let mut left = Bytes::from(sent.clone());
        while !left.is_empty() {
            body.reserve_capacity(left.len());
            let room = std::future::poll_fn(|cx| body.poll_capacity(cx)).await.expect("open").expect("room");
            let part = left.split_to(room.min(left.len()));
            body.send_data(part, left.is_empty()).expect("sent");
        }
        let (head, text, trailers) = whole(answer).await;
        assert_eq!(head.status().as_u16(), 200);
        assert!(text == sent, "{} bytes came back of {}", text.len(), sent.len());
        assert_eq!(trailers.expect("trailers")["x-sum"], "7");
    });
    sentry.assert_quiet();
}

#[test]
fn who_resets_a_stream_has_left() {
    let door = Door::default();
    let server = door.server("late");
    let sentry = Running::start(application(&[server.address]));
    let seen = &sentry;
    with_client(sentry.address, |sender| async move {
        let sentry = seen;
        let answer = ask(&sender, get("/").body(()).expect("a request")).await;
        while sentry.app().in_flight() == 0 {
            tokio::task::yield_now().await;
        }
        drop(answer);
        while sentry.count(Counter::Http2Resets) == 0 {
            tokio::task::yield_now().await;
        }
    });
    until("its client has left", || sentry.count(Counter::ClientGone) == 1);
    door.open();
    sentry.assert_quiet();
}

pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = payload.len() as u32;
    [&length.to_be_bytes()[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

const GOAWAY: u8 = 7;

/// No frame's kind.
pub const END: u8 = 0xff;

/// The kinds of the frames that come, and of a GOAWAY its reason, until the connection ends or one is of this kind.
pub fn frames_until(io: &mut impl Read, kind: u8) -> Vec<(u8, u32)> {
    let mut all = Vec::new();
    let mut head = [0; 9];
    while all.last().is_none_or(|(last, _)| *last != kind) && io.read_exact(&mut head).is_ok() {
        let mut payload = vec![0; usize::from(head[0]) << 16 | usize::from(head[1]) << 8 | usize::from(head[2])];
        if io.read_exact(&mut payload).is_err() {
            break;
        }
        let is_goaway = head[3] == GOAWAY;
        all.push((
            head[3],
            if is_goaway { u32::from_be_bytes(payload[4..8].try_into().expect("four bytes")) } else { 0 },
        ));
    }
    all
}

/// `GET / HTTP/2` to `a`, as a block of fields.
pub const GET: &[u8] = &[0x82, 0x86, 0x84, 0x41, 1, b'a'];

/// A connection that only sends; whatever comes is read by a thread of its own, until the sentry closes.
struct Attacker {
    socket: TcpStream,
    reader: std::thread::JoinHandle<Vec<u8>>,
}

impl Attacker {
    fn connect(address: SocketAddr) -> Self {
        let mut socket = TcpStream::connect(address).expect("a connection");
        socket.set_read_timeout(Some(PATIENCE)).expect("a time-out");
        socket.write_all(&[PREFACE, &frame(4, 0, 0, &[])].concat()).expect("the preface");
        let mut reading = socket.try_clone().expect("the same socket");
        let reader = std::thread::spawn(move || {
            let mut all = Vec::new();
            let mut part = [0; 4096];
            while let Ok(n @ 1..) = reading.read(&mut part) {
                all.extend_from_slice(&part[..n]);
            }
            all
        });
        Attacker { socket, reader }
    }

    /// Sends until the sentry closes; the reason that it gives.
    fn until_closed(mut self, mut frames: impl FnMut(u32) -> Vec<u8>) -> Reason {
        for i in 0.. {
            if self.socket.write_all(&frames(i)).is_err() {
                break;
            }
            assert!(i < 1_000_000, "the sentry lets it go on");
        }
        let read = self.reader.join().expect("a reader");
        let goaway = frames_until(&mut &read[..], END).into_iter().rfind(|(kind, _)| *kind == GOAWAY);
        goaway.map_or(0, |(_, reason)| reason).into()
    }
}

/// The sentry survives `attack`, names the reason, and serves others after it.
fn survives(reason: Reason, attack: impl FnMut(u32) -> Vec<u8>) {
    let server = RawServer::echo();
    let sentry = Running::start(application(&[server.address]));
    let given = Attacker::connect(sentry.address).until_closed(attack);
    assert_eq!(given, reason);
    until("the connection is closed", || sentry.count(Counter::ConnectionsClosed) == 1);
    sentry.assert_quiet();
    assert_eq!(sentry.app().counters.held(), 0, "nothing is held");
    assert_eq!(sentry.ask("GET /x HTTP/1.1\r\nHost: a\r\n\r\n").text(), "/x");
}

#[test]
fn rapid_reset_ends_the_connection() {
    survives(Reason::ENHANCE_YOUR_CALM, |i| {
        let stream = 2 * i + 1;
        [frame(1, 5, stream, GET), frame(3, 0, stream, &8_u32.to_be_bytes())].concat()
    });
}

#[test]
fn made_you_reset_ends_the_connection() {
    // A window of which more is given than there can be is the stream's error.
    survives(Reason::ENHANCE_YOUR_CALM, |i| {
        let stream = 2 * i + 1;
        [frame(1, 4, stream, GET), frame(8, 0, stream, &0x7fff_ffff_u32.to_be_bytes())].concat()
    });
}

#[test]
fn a_flood_of_continuations_ends_the_connection() {
    survives(Reason::ENHANCE_YOUR_CALM, |i| match i {
        0 => frame(1, 1, 1, GET),
        _ => frame(9, 0, 1, &[&[0, 1, b'x', 100][..], &[b'y'; 100]].concat()),
    });
}

#[test]
fn pings_and_settings_without_end_end_the_connection() {
    survives(Reason::ENHANCE_YOUR_CALM, |_| frame(6, 0, 0, &[0; 8]).repeat(50));
    survives(Reason::ENHANCE_YOUR_CALM, |_| frame(4, 0, 0, &[]).repeat(50));
}

#[test]
fn data_without_data_ends_the_connection() {
    survives(Reason::ENHANCE_YOUR_CALM, |i| match i {
        0 => frame(1, 4, 1, GET),
        _ => frame(0, 0, 1, &[]).repeat(50),
    });
}

#[test]
fn a_bomb_of_fields_is_refused_and_its_size_never_held() {
    let server = RawServer::echo();
    let sentry = Running::start(application(&[server.address]));
    let mut attacker = Attacker::connect(sentry.address);
    // One field of 4,000 bytes in the table, and then 8,000 references to it: 32 MB.
    let field = [&[0x40, 1, b'x', 0x7f, 0xa1, 0x1e][..], &[b'y'; 4000]].concat();
    let bomb = [GET, &field, &[0xbe; 8000]].concat();
    attacker.socket.write_all(&frame(1, 5, 1, &bomb)).expect("sent");
    attacker.socket.shutdown(std::net::Shutdown::Write).expect("closed");
    attacker.reader.join().expect("a reader");
    until("the connection is closed", || sentry.count(Counter::ConnectionsClosed) == 1);
    assert_eq!((sentry.count(Counter::ServerConnects), sentry.count(Counter::Requests)), (0, 0));
}

#[test]
fn connections_are_told_to_go_one_after_the_other() {
    /// So many that, of times drawn at random, it takes a hundred million tries until all are in the first three
    /// quarters.
    const MANY: usize = 64;
    const SPREAD: Duration = Duration::from_secs(2);
    let door = Door::default();
    let server = door.server("late");
    let process = Process::start(config(application(&[server.address]), 1), None).expect("a sentry");
    let (app, address) = (process.sentry().apps()[0].clone(), process.sentry().addresses("app")[0]);
    let connect = || {
        let mut socket = TcpStream::connect(address).expect("a connection");
        socket.set_read_timeout(Some(PATIENCE)).expect("a time-out");
        socket.write_all(&[PREFACE, &frame(4, 0, 0, &[])].concat()).expect("the preface");
        socket
    };
    let mut all: Vec<_> = (0..MANY).map(|_| connect()).collect();
    let mut busy = connect();
    busy.write_all(&frame(1, 5, 1, GET)).expect("it is open");
    until("all are there", || app.counters.get(Counter::Http2Connections) == MANY as u64 + 1 && app.in_flight() == 1);
    let begun = Instant::now();
    let leaving = std::thread::spawn(move || process.leave(PATIENCE, SPREAD));
    for socket in &mut all {
        // What they may have asked before they heard of it is served.
        assert_eq!(frames_until(socket, GOAWAY).last(), Some(&(GOAWAY, 0)));
    }
    // tidy-allow(measured-time): so much passes at least, however slow the machine is
    assert!(begun.elapsed() >= SPREAD.mul_f64(0.75), "{:?}", begun.elapsed());
    assert_eq!(frames_until(&mut busy, GOAWAY).last(), Some(&(GOAWAY, 0)));
    door.open();
    assert!(frames_until(&mut busy, END).contains(&(0, 0)), "its request is answered");
    drop((all, busy));
    let cut = leaving.join().expect("it leaves");
    assert_eq!((cut.connections, cut.requests), (0, 0));
}

#[test]
fn without_streams_the_preface_is_not_spoken() {
    let server = RawServer::echo();
    let mut app = application(&[server.address]);
    app.limits.streams = 0;
    let sentry = Running::start(app);
    let mut client = sentry.client();
    client.send(PREFACE);
    assert_eq!(client.answer().status, 505);
    assert_eq!(sentry.count(Counter::Http2Connections), 0);
}

#[test]
fn the_preface_counts_only_at_the_beginning_and_however_it_is_cut() {
    let server = RawServer::echo();
    let sentry = Running::start(application(&[server.address]));
    let mut client = sentry.client();
    client.send([b"GET /a HTTP/1.1\r\nHost: a\r\n\r\n", PREFACE].concat());
    assert_eq!(client.answer().text(), "/a");
    assert_eq!(client.answer().status, 505);
    let mut socket = TcpStream::connect(sentry.address).expect("a connection");
    socket.set_nodelay(true).expect("at once");
    for byte in PREFACE.iter().chain(&frame(4, 0, 0, &[])) {
        socket.write_all(&[*byte]).expect("sent");
    }
    let mut settings = [0; 9];
    socket.read_exact(&mut settings).expect("the sentry's settings");
    assert_eq!(settings[3], 4);
    let mut post = sentry.client();
    post.send("P");
    post.send("OST /b HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n");
    assert_eq!(post.answer().text(), "/b");
}
