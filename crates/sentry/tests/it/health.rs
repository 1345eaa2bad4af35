//! How servers are checked: what is asked where, what counts as good, and what people are told.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Response};
use tidegate_engine::Status;
use tidegate_sentry::Process;
use tidegate_sentry::config::{Asks, CheckWith, Health};
use tidegate_sentry::counters::Counter;

use crate::support::{Client, PATIENCE, RawServer, Running, application, config, until};

const SOON: Duration = Duration::from_millis(5);

fn quick() -> Health {
    Health { interval: SOON, timeout: PATIENCE, rise: 2, fall: 2, passive_failures: 0, ..Health::default() }
}

fn is(sentry: &Running, status: Status) -> impl FnMut() -> bool {
    let app = sentry.app().clone();
    move || app.live().servers().all(|server| server.status() == status)
}

#[test]
fn what_is_asked_is_what_was_configured() {
    let server = RawServer::echo();
    let status = Arc::new(AtomicU16::new(204));
    let (heads, seen) = sync_channel(1000);
    let admin = {
        let (status, heads) = (status.clone(), std::sync::Mutex::new(heads));
        RawServer::answering(move |asked| {
            let _ = heads.lock().expect("a lock").try_send(asked.head.to_ascii_lowercase());
            format!("HTTP/1.1 {} X\r\ncontent-length: 0\r\n\r\n", status.load(SeqCst))
        })
    };
    let mut app = application(&[server.address]);
    app.health = Health {
        with: Some(CheckWith { tls: false, asks: Asks::Http1 }),
        path: Some("/live?deep=1".to_owned()),
        method: http::Method::HEAD,
        port: std::num::NonZeroU16::new(admin.address.port()),
        host: Some("shop.example".to_owned()),
        headers: vec![("x-check".parse().expect("a name"), "yes".parse().expect("a value"))],
        status: vec![(204, 204), (401, 403)],
        ..quick()
    };
    let sentry = Running::start(app);
    let head = seen.recv_timeout(PATIENCE).expect("a check");
    assert!(head.starts_with("head /live?deep=1 http/1.1\r\n"), "{head}");
    for field in ["host: shop.example\r\n", "x-check: yes\r\n", "user-agent: tidegate-health\r\n"] {
        assert!(head.contains(field), "{head}");
    }
    for (answered, counts_as) in [(200, Status::Down), (402, Status::Up), (500, Status::Down), (204, Status::Up)] {
        status.store(answered, SeqCst);
        until("the checks have seen it", is(&sentry, counts_as));
    }
    assert_eq!(server.connections(), 0, "nobody asks at the port of requests");
}

#[test]
fn a_reload_changes_what_is_asked_and_how_often() {
    let server = RawServer::answering(|asked| match &*asked.target {
        "/good" => crate::support::ok(""),
        _ => "HTTP/1.1 503 X\r\ncontent-length: 0\r\n\r\n".to_owned(),
    });
    let mut app = application(&[server.address]);
    app.health = Health { path: Some("/bad".to_owned()), interval: Duration::from_secs(3600), ..quick() };
    let sentry = Running::start(app);
    until("it was asked once", || server.connections() == 1);
    let mut reloaded = config(sentry.app().live().config.clone(), 1);
    reloaded.applications[0].health.interval = SOON;
    sentry.handle.reload(reloaded.clone()).expect("a reload");
    until("it is down", is(&sentry, Status::Down));
    reloaded.applications[0].health.path = Some("/good".to_owned());
    sentry.handle.reload(reloaded).expect("a reload");
    until("it is up", is(&sentry, Status::Up));
}

#[test]
fn people_are_told_which_check_failed_and_why() {
    let server = RawServer::answering(|_| "HTTP/1.1 503 X\r\ncontent-length: 0\r\n\r\n".to_owned());
    let mut app = application(&[server.address]);
    app.health = Health { path: Some("/up".to_owned()), ..quick() };
    let mut config = config(app, 1);
    config.admin.listen = Some(([127, 0, 0, 1], 0).into());
    let process = Process::start(config, None).expect("a process");
    let ask = |path: &str| {
        let mut admin = Client::connect(process.admin_address().expect("an admin API"));
        admin.send(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"));
        admin.answer().text()
    };
    let state = || serde_json::from_str::<serde_json::Value>(&ask("/api/state")).expect("JSON");
    until("it is down", || state()["applications"][0]["servers"][0]["status"] == "down");
    let checks = &state()["applications"][0]["servers"][0]["checks"];
    assert_eq!(checks["asked"], format!("GET http://{}/up", server.address));
    assert_eq!((&checks["result"], &checks["why"]), (&"status".into(), &"status 503".into()));
    assert!(checks["failed_in_a_row"].as_u64() >= Some(2), "{checks}");
    let metrics = ask("/metrics");
    let line = |outcome: &str| {
        let start = format!("tidegate_health_checks_total{{application=\"app\",server=\"s0\",outcome=\"{outcome}\"}} ");
        let found = metrics.lines().find_map(|line| line.strip_prefix(&start));
        found.unwrap_or_else(|| panic!("{start}: {metrics}")).parse::<u64>().expect("a number")
    };
    assert!(line("status") >= 2 && line("good") == 0 && line("timeout") == 0, "{metrics}");
}

/// A gRPC server that has nothing but the health service.
struct Grpc {
    address: std::net::SocketAddr,
    /// What it says of `shop.Cart`: a `ServingStatus`; 0 is left out on the wire.
    status: Arc<AtomicUsize>,
    /// It has no health service at all.
    lacks: Arc<AtomicBool>,
    asked: Receiver<Bytes>,
}

impl Grpc {
    fn start() -> Self {
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).expect("a port");
        listener.set_nonblocking(true).expect("a listener");
        let address = listener.local_addr().expect("an address");
        let (status, lacks) = (Arc::new(AtomicUsize::new(1)), Arc::new(AtomicBool::new(false)));
        let (asked, seen) = sync_channel(1000);
        let server = Grpc { address, status: status.clone(), lacks: lacks.clone(), asked: seen };
        thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async move {
                let listener = tokio::net::TcpListener::from_std(listener).expect("a listener");
                while let Ok((socket, _)) = listener.accept().await {
                    let status = (!lacks.load(SeqCst)).then(|| status.load(SeqCst) as u8);
                    if let Some(message) = call(socket, status).await {
                        let _ = asked.try_send(message);
                    }
                }
            });
        });
        server
    }
}

/// One connection with one call; `None`: the method is not there.
async fn call(socket: tokio::net::TcpStream, status: Option<u8>) -> Option<Bytes> {
    let mut connection = h2::server::handshake(socket).await.ok()?;
    let (request, mut answer) = connection.accept().await?.ok()?;
    let served = async {
        let (head, mut body) = request.into_parts();
        let message = body.data().await?.ok()?;
        let fits = head.method == "POST"
            && head.uri.path() == "/grpc.health.v1.Health/Check"
            && head.headers.get("content-type").is_some_and(|kind| kind == "application/grpc")
            && head.headers.contains_key("te")
            && head.headers.contains_key("grpc-timeout");
        let ok = Response::builder().header("content-type", "application/grpc");
        let Some(status) = status.filter(|_| fits) else {
            answer.send_response(ok.header("grpc-status", "12").body(()).expect("a head"), true).ok()?;
            return Some(message);
        };
        let mut stream = answer.send_response(ok.body(()).expect("a head"), false).ok()?;
        let reply: &[u8] = if status == 0 { b"\0\0\0\0\0" } else { &[0, 0, 0, 0, 2, 8, status] };
        stream.send_data(Bytes::copy_from_slice(reply), false).ok()?;
        let mut trailers = HeaderMap::new();
        trailers.insert("grpc-status", "0".parse().expect("a value"));
        stream.send_trailers(trailers).ok()?;
        Some(message)
    };
    let (message, ()) = tokio::join!(served, async { while connection.accept().await.is_some() {} });
    message
}

#[test]
fn a_grpc_service_is_asked_for_its_health() {
    let server = Grpc::start();
    let mut app = application(&[server.address]);
    app.servers[0].address = format!("h2c://{}", server.address);
    app.health = Health { service: Some("shop.Cart".to_owned()), ..quick() };
    let sentry = Running::start(app);
    let asked = server.asked.recv_timeout(PATIENCE).expect("a check");
    assert_eq!(&asked[..], b"\0\0\0\0\x0b\x0a\x09shop.Cart");
    for (says, counts_as) in [(2, Status::Down), (1, Status::Up), (0, Status::Down), (1, Status::Up)] {
        server.status.store(says, SeqCst);
        until("the checks have seen it", is(&sentry, counts_as));
    }
    server.lacks.store(true, SeqCst);
    until("it has no health service", is(&sentry, Status::Down));
}

#[test]
fn a_check_that_hangs_is_a_bad_one_and_holds_up_no_other() {
    let hangs = RawServer::start(|mut peer| drop((peer.head(), peer.head())));
    let good = RawServer::echo();
    let mut app = application(&[hangs.address, good.address]);
    app.health = Health { path: Some("/".to_owned()), timeout: Duration::from_millis(50), ..quick() };
    let sentry = Running::start(app);
    until("one is down", || {
        let status: Vec<Status> = sentry.app().live().servers().map(|server| server.status()).collect();
        status == [Status::Down, Status::Up]
    });
    // With one check under way for an hour, the other server's go on.
    let mut reloaded = config(sentry.app().live().config.clone(), 1);
    reloaded.applications[0].health.timeout = Duration::from_secs(3600);
    sentry.handle.reload(reloaded).expect("a reload");
    let before = good.connections();
    until("the other is asked again and again", || good.connections() >= before + 20);
}

/// Requests of several clients for several paths, until `done`; how many were answered with 200.
fn ask_from_all_sides(sentry: &Running, mut done: impl FnMut(usize) -> bool) -> usize {
    let mut clients =
        [1, 2, 3].map(|host| Client::connect_from(std::net::Ipv4Addr::new(127, 0, 0, host).into(), sentry.address));
    let mut good = 0;
    for asked in 0..10_000 {
        if done(asked) {
            return good;
        }
        let client = &mut clients[asked % 3];
        client.send(format!("GET /{} HTTP/1.1\r\nHost: t\r\n\r\n", asked % 7));
        good += usize::from(client.answer().status == 200);
    }
    panic!("asked in vain");
}

#[test]
fn a_server_that_errs_while_others_do_not_is_taken_out() {
    let bad = RawServer::answering(|_| "HTTP/1.1 500 X\r\ncontent-length: 0\r\n\r\n".to_owned());
    let (good, other) = (RawServer::echo(), RawServer::echo());
    let mut app = application(&[bad.address, good.address, other.address]);
    app.health = Health { interval: Duration::from_secs(3600), passive_errors: 10, ..quick() };
    let sentry = Running::start(app);
    let status = || sentry.app().live().servers().map(|server| server.status()).collect::<Vec<_>>();
    ask_from_all_sides(&sentry, |_| status()[0] == Status::Down);
    assert_eq!(status(), [Status::Down, Status::Up, Status::Up]);
    assert_eq!(sentry.count(Counter::Ejections), 1);
    assert_eq!(ask_from_all_sides(&sentry, |asked| asked == 30), 30, "it gets nothing more");
}

#[test]
fn a_server_whose_calls_fail_while_others_do_not_is_taken_out() {
    let call = |status: &'static str, in_trailers: fn(&str) -> bool| {
        RawServer::answering(move |asked| {
            let head = "HTTP/1.1 200 OK\r\ncontent-type: application/grpc\r\n";
            match in_trailers(&asked.target) {
                true => format!("{head}transfer-encoding: chunked\r\n\r\n1\r\nx\r\n0\r\ngrpc-status: {status}\r\n\r\n"),
                false => format!("{head}content-length: 0\r\ngrpc-status: {status}\r\n\r\n"),
            }
        })
    };
    // In trailers always, in the head always, and now here, now there.
    let places: [fn(&str) -> bool; 3] = [|_| true, |_| false, |path| path < "/3"];
    for in_trailers in places {
        let (bad, good, other) = (call("14", in_trailers), call("0", in_trailers), call("4", in_trailers));
        let mut app = application(&[bad.address, good.address, other.address]);
        app.health = Health { interval: Duration::from_secs(3600), passive_errors: 10, ..quick() };
        let sentry = Running::start(app);
        let status = || sentry.app().live().servers().map(|server| server.status()).collect::<Vec<_>>();
        ask_from_all_sides(&sentry, |asked| status()[0] == Status::Down && asked > 100);
        assert_eq!(status(), [Status::Down, Status::Up, Status::Up], "a deadline is the client's");
        assert_eq!(sentry.count(Counter::Ejections), 1);
    }
}

#[test]
fn a_call_that_fails_by_head_and_trailers_errs_once() {
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = asked.clone();
    let bad = RawServer::answering(move |_| {
        counted.fetch_add(1, SeqCst);
        let head = "HTTP/1.1 500 X\r\ncontent-type: application/grpc\r\ntransfer-encoding: chunked\r\n\r\n";
        format!("{head}1\r\nx\r\n0\r\ngrpc-status: 13\r\n\r\n")
    });
    let (good, other) = (RawServer::echo(), RawServer::echo());
    let mut app = application(&[bad.address, good.address, other.address]);
    app.health = Health { interval: Duration::from_secs(3600), passive_errors: 20, ..quick() };
    let sentry = Running::start(app);
    let is_out = || sentry.app().live().servers().next().is_some_and(|server| server.status() == Status::Down);
    ask_from_all_sides(&sentry, |_| is_out());
    assert!(is_out() && asked.load(SeqCst) >= 20, "{} are enough", asked.load(SeqCst));
}

#[test]
fn calls_that_end_at_their_deadlines_do_not_speak_for_a_server() {
    let answered = |status: fn(usize) -> u8| {
        let asked = AtomicUsize::new(0);
        RawServer::answering(move |_| {
            let status = status(asked.fetch_add(1, SeqCst));
            format!(
                "HTTP/1.1 200 OK\r\ncontent-type: application/grpc\r\ncontent-length: 0\r\ngrpc-status: {status}\r\n\r\n"
            )
        })
    };
    // INTERNAL and DEADLINE_EXCEEDED in turn.
    let (bad, good, other) = (answered(|n| if n % 2 == 0 { 13 } else { 4 }), answered(|_| 0), answered(|_| 0));
    let mut app = application(&[bad.address, good.address, other.address]);
    app.health = Health { interval: Duration::from_secs(3600), passive_errors: 10, ..quick() };
    let sentry = Running::start(app);
    let is_out = || sentry.app().live().servers().next().is_some_and(|server| server.status() == Status::Down);
    ask_from_all_sides(&sentry, |asked| is_out() || asked == 1000);
    assert!(is_out());
}

#[test]
fn errors_of_the_application_take_nobody_out() {
    let server = || RawServer::answering(|_| "HTTP/1.1 503 X\r\ncontent-length: 0\r\n\r\n".to_owned());
    let (one, other) = (server(), server());
    let mut app = application(&[one.address, other.address]);
    // Before the other one has erred, too, either is asked so often once in a million million runs.
    app.health = Health { interval: Duration::from_secs(3600), passive_errors: 40, ..quick() };
    let sentry = Running::start(app);
    ask_from_all_sides(&sentry, |asked| asked == 400);
    assert!(sentry.app().live().servers().all(|server| server.status() == Status::Up));
    assert_eq!(sentry.count(Counter::Ejections), 0);
}

#[test]
fn one_client_s_errors_take_nobody_out() {
    let bad = RawServer::answering(|_| "HTTP/1.1 500 X\r\ncontent-length: 0\r\n\r\n".to_owned());
    let good = RawServer::echo();
    let mut app = application(&[bad.address, good.address]);
    app.health = Health { interval: Duration::from_secs(3600), passive_errors: 2, ..quick() };
    let sentry = Running::start(app);
    let mut client = sentry.client();
    let errors = (0..200).filter(|i| {
        client.send(format!("GET /{i} HTTP/1.1\r\nHost: t\r\n\r\n"));
        client.answer().status == 500
    });
    assert!(errors.count() > 20);
    assert_eq!(sentry.count(Counter::Ejections), 0);
}
