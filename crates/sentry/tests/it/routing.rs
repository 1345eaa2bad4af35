//! Several applications on one listener: by host and path, over HTTP/1, HTTP/2 and TLS, and listeners that come and go.

mod access;
mod books;
mod changes;
mod listeners;
mod tls;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use tidegate_sentry::app::App;
use tidegate_sentry::config::Config;
use tidegate_sentry::counters::{Bad, Counter};

use tidegate_sentry::record::NoRecords;
use tidegate_sentry::{Sentry, SentryHandle};

use crate::http2::{ask, whole, with_client};
use crate::support::{Client, Door, RawServer, ok, until};

/// A port that nobody has at the moment; the sentry shares it with whoever takes it meanwhile, or fails.
fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    listener.local_addr().expect("an address").port()
}

/// Tells who it is, and what it was asked for.
fn named(name: &'static str) -> RawServer {
    RawServer::answering(move |asked| ok(&format!("{name} {}", asked.target)))
}

/// An application at `listen` and its keys.
fn app(name: &str, listen: impl std::fmt::Display, server: SocketAddr, keys: &str) -> String {
    format!(
        "[[application]]\nname = \"{name}\"\nlisten = \"{listen}\"\nservers = \"{server}\"\nadmission = \"none\"\n\
         health.interval = \"1h\"\n{keys}\n"
    )
}

fn parsed(text: &str) -> Config {
    match Config::parse(&format!("[sentry]\nworkers = 2\n{text}"), Path::new("/nowhere/tidegate.toml")) {
        Ok(checked) => checked.config,
        Err(errors) => panic!("{errors}"),
    }
}

fn start(text: &str) -> SentryHandle {
    Sentry::start(parsed(text), Arc::new(NoRecords)).expect("a sentry")
}

fn of<'a>(sentry: &'a SentryHandle, name: &str) -> &'a Arc<App> {
    sentry.apps().iter().find(|app| app.name() == name).expect("an application")
}

fn get(host: &str, path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nhost: {host}\r\n\r\n")
}

const CLOSED: &str = "shadow = false\nadmission = { policy = \"concurrency\", limit = 0 }";

/// The shop, its API, everything else, and an application that refuses everything.
fn shops() -> (Vec<RawServer>, SentryHandle, SocketAddr) {
    let servers = vec![named("shop"), named("api"), named("rest"), named("closed")];
    let at = SocketAddr::from(([127, 0, 0, 1], free_port()));
    let text = [
        app("rest", at, servers[2].address, ""),
        app("shop", at, servers[0].address, "route = { host = [\"shop.example\", \"*.shop.example\"] }"),
        app(
            "api",
            at,
            servers[1].address,
            "route = { host = \"shop.example\", path = \"/api\" }\nlimits.body_bytes = 4",
        ),
        app("closed", at, servers[3].address, "route = { path = \"/closed\" }").replace("admission = \"none\"", CLOSED),
    ];
    let sentry = start(&text.concat());
    (servers, sentry, at)
}

/// Host, target, and what is to answer.
const ASKED: [(&str, &str, &str); 10] = [
    ("shop.example", "/", "shop /"),
    ("Shop.Example.:8080", "/apis", "shop /apis"),
    ("shop.example", "/api", "api /api"),
    ("shop.example", "/api/x?y", "api /api/x?y"),
    ("www.shop.example", "/api", "shop /api"),
    ("bank.example", "/api", "rest /api"),
    ("shop.example", "/%61pi/%7e", "api /api/~"),
    ("bank.example", "http://shop.example/api", "api /api"),
    ("a.b.shop.example", "http://bank.example/", "rest /"),
    ("127.0.0.1", "/closed", "refused"),
];

#[test]
fn requests_of_one_connection_go_each_to_its_application() {
    let (_servers, sentry, at) = shops();
    let mut client = Client::connect(at);
    for (host, target, wanted) in ASKED {
        client.send(get(host, target));
        let answer = client.answer();
        let got = if answer.status == 503 { "refused".to_owned() } else { answer.text() };
        assert_eq!(got, wanted, "{host} {target}: {answer:?}");
    }
    let answered = |name: &str| of(&sentry, name).snapshot().classes[0].completed;
    until("all are reported", || ["rest", "shop", "api"].map(answered) == [2, 3, 4]);
    assert_eq!(of(&sentry, "closed").snapshot().classes[0].rejected_total(), 1);
    assert_eq!(of(&sentry, "closed").counters.get(Counter::Requests), 1);
    let accepted = |name: &str| of(&sentry, name).counters.get(Counter::ConnectionsAccepted);
    assert_eq!(["rest", "shop", "api", "closed"].map(accepted), [1, 0, 0, 0], "the first one's affair");
}

#[test]
fn pipelined_requests_of_several_applications_are_answered_in_their_order() {
    let (_servers, sentry, at) = shops();
    let mut client = Client::connect(at);
    let all: String = ASKED.iter().cycle().take(200).map(|(host, target, _)| get(host, target)).collect();
    client.send(all);
    for (_, target, wanted) in ASKED.iter().cycle().take(200) {
        let answer = client.answer();
        let got = if answer.status == 503 { "refused".to_owned() } else { answer.text() };
        assert_eq!(&got, wanted, "{target}");
    }
    for app in sentry.apps() {
        until("nothing is in flight", || app.in_flight() == 0 && app.waiting() == 0);
    }
}

#[test]
fn streams_of_one_connection_go_each_to_its_application() {
    let (_servers, sentry, at) = shops();
    with_client(at, |sender| async move {
        let mut answers = Vec::new();
        for (host, target, wanted) in ASKED {
            let target = if target.starts_with('/') { format!("http://{host}{target}") } else { target.to_owned() };
            let request = http::Request::builder().uri(target).body(()).expect("a request");
            answers.push((ask(&sender, request).await, wanted));
        }
        for (answer, wanted) in answers {
            let (head, text, _) = whole(answer).await;
            let got = if head.status() == 503 { "refused".to_owned() } else { text };
            assert_eq!(got, wanted);
        }
    });
    assert_eq!(of(&sentry, "api").counters.get(Counter::Requests), 4);
}

#[test]
fn a_request_that_is_nobody_s_is_answered_with_404() {
    let (a, b) = (named("a"), named("b"));
    let at = SocketAddr::from(([127, 0, 0, 1], free_port()));
    let sentry = start(
        &[
            app("a", at, a.address, "route = { host = \"a.example\" }"),
            app("b", at, b.address, "route = { host = \"b.example\" }"),
        ]
        .concat(),
    );
    for request in [get("c.example", "/"), get("a.example", "http://c.example/"), get("c.example", "/%61")] {
        let mut client = Client::connect(at);
        client.send(request + &get("a.example", "/"));
        let answer = client.answer();
        assert_eq!((answer.status, &*answer.text()), (404, "404 Not Found: no-application\n"));
        client.assert_closed();
    }
    with_client(at, |sender| async move {
        let request = |host: &str| http::Request::builder().uri(format!("http://{host}/")).body(()).expect("a request");
        let (head, ..) = whole(ask(&sender, request("c.example")).await).await;
        assert_eq!(head.status(), 404);
        let (_, text, _) = whole(ask(&sender, request("b.example")).await).await;
        assert_eq!(text, "b /");
    });
    assert_eq!(sentry.apps()[0].counters.bad(Bad::NoApplication), 4);
}

#[test]
fn one_application_s_limit_on_bodies_is_not_another_s() {
    let (_servers, _sentry, at) = shops();
    let post = |path: &str, framing: &str, body: &str| {
        let mut client = Client::connect(at);
        client.send(format!("POST {path} HTTP/1.1\r\nhost: shop.example\r\n{framing}\r\n\r\n{body}"));
        client.answer().status
    };
    let chunks = "transfer-encoding: chunked";
    for (path, long) in [("/", 200), ("/api", 413)] {
        assert_eq!(post(path, "content-length: 4", "1234"), 200);
        assert_eq!(post(path, "content-length: 5", "12345"), long, "{path}");
        assert_eq!(
            post(path, "content-length: 5\r\nexpect: 100-continue", "12345"),
            if long == 200 { 100 } else { 413 }
        );
        assert_eq!(post(path, chunks, "5\r\n12345\r\n0\r\n\r\n"), long, "{path}");
    }
}

/// A runaway of an application is ended on a connection that is another one's affair.
#[test]
fn a_runaway_is_ended_wherever_it_came_in() {
    let door = Door::default();
    let slow = |door: &Door| {
        let door = door.clone();
        RawServer::answering(move |asked| {
            if asked.target == "/b/slow" {
                door.wait();
            }
            ok("done")
        })
    };
    let (home, server) = (named("a"), slow(&door));
    let at = SocketAddr::from(([127, 0, 0, 1], free_port()));
    let limited =
        "admission = { policy = \"concurrency\", limit = 1, queue = 0 }\ntarget = \"100ms\"\ncancel = \"runaways\"";
    let keys = "route = { path = \"/b\" }\nclass = [{ name = \"gold\", match = { path_prefix = \"/b/gold\" } }, { name = \"bronze\" }]";
    let b = app("b", at, server.address, keys).replace("admission = \"none\"", limited);
    let sentry = start(&(app("a", at, home.address, "") + &b));
    let ask = |path: &str| {
        let mut client = Client::connect(at);
        client.send(get("x", path));
        client.answer().status
    };
    let mut client = Client::connect(at);
    for _ in 0..150 {
        client.send(get("x", "/b"));
        assert_eq!(client.answer().status, 200);
    }
    let mut runaway = Client::connect(at);
    runaway.send(get("x", "/b/slow"));
    until("it is in flight", || of(&sentry, "b").in_flight() == 1);
    until("it is ended", || {
        ask("/b/gold");
        of(&sentry, "b").snapshot().classes[1].runaways == 1
    });
    assert_eq!(runaway.answer().field("tidegate-decision"), Some("cancelled; reason=runaway; class=bronze"));
    door.open();
}
