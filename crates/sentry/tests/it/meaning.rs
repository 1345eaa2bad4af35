//! One request, one meaning: what the rules read is what the server reads, and what can be read twice does not pass.

use crate::support::{Answer, RawServer, Running, admission, application, ok};
use serde_json::json;
use tidegate_classify::{PathMatch, Paths, Rule, ValueMatch, ValuePattern};
use tidegate_engine::ClassSetup;
use tidegate_sentry::config::Application;

/// Two classes, `gold` by path, host, field or cookie; only gold gets in. `/healthz` is exempt.
fn gold_only(server: &RawServer) -> Application {
    let mut app = application(&[server.address]);
    let gold = ClassSetup { min_rate: 1e6, burst: 1e6, ..ClassSetup::new("gold") };
    app.setup.classes = vec![gold, ClassSetup::new("low")];
    let path = |path: &str| Rule { path: Some(PathMatch::Prefix(String::from(path))), ..Rule::default() };
    let tier = || vec![ValueMatch { name: String::from("x-tier"), value: ValuePattern::Exact(String::from("gold")) }];
    app.classifier.classes = vec![
        vec![
            path("/gold"),
            Rule { hosts: vec![String::from("vip.example")], ..Rule::default() },
            Rule { headers: tier(), ..Rule::default() },
            Rule { cookies: tier(), ..Rule::default() },
        ],
        Vec::new(),
    ];
    app.exempt = vec![path("/healthz")];
    app.setup.admission = admission(json!({"policy": "concurrency", "limit": 0}));
    app
}

/// A server that answers with the head it got, in lower case but for the first line.
fn mirror() -> RawServer {
    RawServer::answering(|asked| {
        let (first, fields) = asked.head.split_once("\r\n").unwrap_or((&asked.head, ""));
        ok(&format!("{first}\n{}", fields.to_ascii_lowercase()))
    })
}

/// Status, and what the server got.
fn ask(sentry: &Running, request: &str) -> (u16, String) {
    let Answer { status, body, .. } = sentry.ask(request);
    (status, String::from_utf8_lossy(&body).into_owned())
}

fn get(sentry: &Running, target: &str) -> (u16, String) {
    ask(sentry, &format!("GET {target} HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n"))
}

/// Each was a way into a better class, or past the policy.
const TWO_READINGS: [&str; 8] = [
    "/search/..%2fhealthz",
    "/search/..%2f..%2fhealthz?q=1",
    "/search/%2e%2e%5chealthz",
    "/search/..;/healthz",
    "/search/..%2fgold",
    "/search/a%2f..%2f..%2fgold/x",
    "//gold",
    "/search/../gold",
];

#[test]
fn a_path_with_two_readings_is_refused() {
    let server = mirror();
    let sentry = Running::start(gold_only(&server));
    for target in TWO_READINGS {
        assert_eq!(get(&sentry, target).0, 400, "{target}");
        assert_eq!(get(&sentry, &format!("http://t{target}")).0, 400, "{target}, in absolute form");
    }
    let long = String::from("/search/") + &"%61".repeat(1400);
    assert_eq!(get(&sentry, &long).0, 414, "longer than rules read");
    assert_eq!(sentry.count(tidegate_sentry::counters::Counter::ServerConnects), 0);
    assert_eq!(sentry.app().counters.bad(tidegate_sentry::counters::Bad::AmbiguousPath), 16);
}

#[test]
fn or_it_is_resolved_for_rules_and_server_alike() {
    let server = mirror();
    let sentry = Running::start(Application { paths: Paths::Merge, ..gold_only(&server) });
    let first = |target: &str| get(&sentry, target).1.lines().next().map(String::from);
    assert_eq!(first("/search/..%2fhealthz?q=1").as_deref(), Some("GET /healthz?q=1 HTTP/1.1"));
    assert_eq!(first("/search/..;/gold/%2e").as_deref(), Some("GET /gold/ HTTP/1.1"));
    assert_eq!(get(&sentry, "/gold/..%2fsearch").0, 503);
    assert_eq!(get(&sentry, "/gold/%zz").0, 400, "nobody knows what that is");
}

#[test]
fn or_it_gains_nothing() {
    let server = mirror();
    let sentry = Running::start(Application { paths: Paths::AsIs, ..gold_only(&server) });
    for target in TWO_READINGS {
        assert_eq!(get(&sentry, target).0, 503, "{target}");
    }
    assert_eq!(get(&sentry, "/gold/..%2fsearch").0, 503, "the worse of both");
    let (status, got) = get(&sentry, "/gold/a%2fb");
    assert!(status == 200 && got.starts_with("GET /gold/a%2fb "), "{status} {got}");
}

#[test]
fn escapes_that_change_nothing_are_spelt_in_one_way() {
    let server = mirror();
    let sentry = Running::start(gold_only(&server));
    let (status, got) = get(&sentry, "/%67old/caf%c3%a9?%67");
    assert!(status == 200 && got.starts_with("GET /gold/caf%C3%A9?%67 "), "{status} {got}");
}

#[test]
fn a_user_in_the_target_makes_no_host() {
    let server = mirror();
    let sentry = Running::start(gold_only(&server));
    for target in ["http://vip.example:80@bulk.example/", "http://:x@vip.example/", "http://x@vip.example/"] {
        assert_eq!(get(&sentry, target).0, 400, "{target}");
    }
    let (status, got) = get(&sentry, "http://vip.example:80/");
    assert!(status == 200 && got.contains("host: vip.example:80"), "{status} {got}");
}

#[test]
fn fields_that_nobody_may_send_do_not_pass() {
    let server = mirror();
    let sentry = Running::start(application(&[server.address]));
    let fields = "X_Forwarded_For: 6.6.6.6\r\nTidegate_Quality: 0\r\nX-Real-IP: 6.6.6.6\r\nX-Original-URL: /admin\r\n\
                  Proxy: 6.6.6.6\r\nX-Kept: 1\r\n";
    let (_, got) = ask(&sentry, &format!("GET / HTTP/1.1\r\nHost: t\r\n{fields}Connection: close\r\n\r\n"));
    assert!(got.contains("x-kept: 1"), "{got}");
    for gone in ["6.6.6.6", "quality", "original"] {
        assert!(!got.contains(gone), "{gone}: {got}");
    }
}

#[test]
fn trailers_cannot_say_what_heads_cannot() {
    let (sender, receiver) = std::sync::mpsc::sync_channel(1);
    let server = RawServer::start(move |mut peer| {
        let Some(_) = peer.head() else { return };
        let mut all = Vec::new();
        while !all.ends_with(b"\r\n\r\n") {
            let Ok(byte) = peer.exactly(1) else { return };
            all.extend(byte);
        }
        let _ = sender.send(String::from_utf8_lossy(&all).to_ascii_lowercase());
        peer.send(ok("fine"));
    });
    let sentry = Running::start(application(&[server.address]));
    let head = "POST / HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\nTE: trailers\r\n\
                Trailer: X-Forwarded-For, Tidegate-Quality, Cookie, X-Sum\r\n\r\n";
    let body =
        "1\r\na\r\n0\r\nX-Forwarded-For: 6.6.6.6\r\nTidegate-Quality: 0.01\r\nCookie: admin=1\r\nX-Sum: 7\r\n\r\n";
    assert_eq!(sentry.ask(&format!("{head}{body}")).text(), "fine");
    let got = receiver.recv().expect("a request");
    for gone in ["x-forwarded-for", "tidegate-quality", "cookie"] {
        assert!(!got.contains(gone), "{gone}: {got}");
    }
}

#[test]
fn connection_takes_nothing_away_that_was_decided_on() {
    let server = mirror();
    let sentry = Running::start(gold_only(&server));
    let (status, got) = ask(
        &sentry,
        "GET / HTTP/1.1\r\nHost: t\r\nX-Tier: gold\r\nX-Hop: 1\r\nConnection: X-Tier, X-Hop, close\r\n\r\n",
    );
    assert!(status == 200 && got.contains("x-tier: gold") && !got.contains("x-hop"), "{status} {got}");
    let (status, got) =
        ask(&sentry, "GET / HTTP/1.1\r\nHost: t\r\nCookie: x-tier=gold\r\nConnection: Cookie, close\r\n\r\n");
    assert!(status == 200 && got.contains("cookie: x-tier=gold"), "{status} {got}");
}

#[test]
fn cookies_are_read_as_servers_read_them() {
    let server = mirror();
    let sentry = Running::start(gold_only(&server));
    let asked =
        |cookies: &str| ask(&sentry, &format!("GET / HTTP/1.1\r\nHost: t\r\n{cookies}Connection: close\r\n\r\n"));
    assert_eq!(asked("Cookie: x-tier=bulk; x-tier=gold\r\n").0, 503, "the first counts");
    assert_eq!(asked("Cookie: a=\"b; x-tier=gold\"\r\n").0, 503, "in quotes");
    let (status, got) = asked("Cookie: a=1\r\nCookie: x-tier=gold\r\n");
    assert!(status == 200 && got.contains("cookie: a=1; x-tier=gold\r\n"), "{status} {got}");
}

#[test]
fn protocols_that_are_not_listed_are_not_wished_for() {
    let server = mirror();
    let sentry = Running::start(application(&[server.address]));
    let upgrade = "Connection: upgrade, close, http2-settings\r\nHTTP2-Settings: AAMAAABk\r\nUpgrade:";
    let (status, got) = ask(&sentry, &format!("GET / HTTP/1.1\r\nHost: t\r\n{upgrade} h2c\r\n\r\n"));
    assert!(status == 200 && !got.contains("upgrade") && !got.contains("http2"), "{status} {got}");
    let (_, got) = ask(&sentry, &format!("GET / HTTP/1.1\r\nHost: t\r\n{upgrade} websocket\r\n\r\n"));
    assert!(got.contains("upgrade: websocket"), "{got}");
    assert_eq!(ask(&sentry, "TRACE / HTTP/1.1\r\nHost: t\r\nCookie: secret\r\n\r\n").0, 501);
}

#[test]
fn a_server_always_gets_a_host() {
    let server = mirror();
    let sentry = Running::start(application(&[server.address]));
    let (status, got) = ask(&sentry, "GET / HTTP/1.0\r\n\r\n");
    assert!(status == 200 && got.contains(&format!("host: {}\r\n", server.address)), "{status} {got}");
}

#[test]
fn options_of_a_whole_server_stay_so() {
    let server = mirror();
    let sentry = Running::start(application(&[server.address]));
    let first = |target: &str| {
        let (_, got) = ask(&sentry, &format!("OPTIONS {target} HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n"));
        got.lines().next().map(String::from)
    };
    assert_eq!(first("http://a").as_deref(), Some("OPTIONS * HTTP/1.1"));
    assert_eq!(first("http://a/").as_deref(), Some("OPTIONS / HTTP/1.1"));
}

#[test]
fn refusals_can_keep_their_reasons_to_themselves() {
    let server = mirror();
    let mut app = gold_only(&server);
    app.rejection.details = false;
    let sentry = Running::start(app);
    for accept in ["text/html", "application/json", "text/plain"] {
        // The gate answers one, the service the other.
        for target in ["/a", "/{a}"] {
            let request = format!("GET {target} HTTP/1.1\r\nHost: t\r\nAccept: {accept}\r\n\r\n");
            let answer = sentry.ask(&request);
            assert_eq!((answer.status, answer.field("retry-after").is_some()), (503, true));
            let told = answer.head.to_ascii_lowercase() + &answer.text();
            assert!(!told.contains("concurrency") && !told.contains("low") && !told.contains("decision"), "{told}");
        }
    }
}

#[test]
fn a_chunked_body_that_does_not_end_as_it_must_is_refused() {
    let server = RawServer::echo();
    let sentry = Running::start(application(&[server.address]));
    let head = "POST / HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n";
    assert_eq!(sentry.ask(&format!("{head}2\r\nhi\r\n0\r\n\r\n")).status, 200);
    // hyper takes both, and swallows what follows up to an empty line.
    for body in ["0\r\n\n", "2\r\nhi\r\n0\r\n\nX: y\r\n\r\n"] {
        let mut client = sentry.client();
        client.send(format!("{head}{body}"));
        assert_eq!(client.answer().status, 400, "{body:?}");
        client.assert_closed();
    }
    sentry.assert_quiet();
}

#[test]
fn an_answer_that_is_coded_for_its_way_is_no_answer() {
    let coded = |coding: &str| format!("HTTP/1.1 200 OK\r\n{coding}\r\n\r\n2\r\nhi\r\n0\r\n\r\n");
    let server = RawServer::answering(move |asked| match asked.target.as_str() {
        "/gzip" => coded("Transfer-Encoding: gzip, chunked"),
        "/two" => coded("Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked"),
        _ => coded("Transfer-Encoding: Chunked"),
    });
    let sentry = Running::start(application(&[server.address]));
    let get = |path: &str| sentry.ask(&format!("GET {path} HTTP/1.1\r\nHost: t\r\n\r\n"));
    assert_eq!(get("/").text(), "hi");
    assert_eq!((get("/gzip").status, get("/two").status), (502, 502));
    sentry.assert_quiet();
}
