//! PROXY headers: who may send them, and what they change.

use super::support::{RawServer, Running, application, ok, until};
use tidegate_sentry::config::{Application, Listen, ProxyIn};
use tidegate_sentry::counters::Counter;

/// Says whom it was told that it serves.
fn server() -> RawServer {
    RawServer::answering(|asked| {
        let told = asked.head.lines().find_map(|line| line.strip_prefix("x-forwarded-for: "));
        ok(told.unwrap_or("nobody"))
    })
}

fn behind(server: &RawServer, proxy: ProxyIn, trust: &str) -> Running {
    let mut application: Application = application(&[server.address]);
    application.forwarded.trust = vec![trust.parse().expect("a network")];
    application.listen = vec![Listen { proxy, ..([127, 0, 0, 1], 0).into() }];
    Running::start(application)
}

const GET: &str = "GET / HTTP/1.1\r\nhost: a\r\n\r\n";

#[test]
fn the_client_is_the_one_that_the_proxy_speaks_for() {
    let server = server();
    let sentry = behind(&server, ProxyIn::Required, "127.0.0.0/8");
    let asked = |header: &[u8]| {
        let mut client = sentry.client();
        client.send([header, GET.as_bytes()].concat());
        let first = client.answer().text();
        client.send(GET);
        assert_eq!(client.answer().text(), first, "for as long as the connection lasts");
        first
    };
    assert_eq!(asked(b"PROXY TCP4 192.0.2.7 203.0.113.1 40000 443\r\n"), "192.0.2.7");
    assert_eq!(asked(b"PROXY TCP6 2001:db8::7 2001:db8::1 40000 443\r\n"), "2001:db8::7");
    assert_eq!(asked(b"PROXY UNKNOWN\r\n"), "127.0.0.1");
    let v2 = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c\xc0\0\x02\x07\xcb\0\x71\x01\x9c\x40\x01\xbb";
    assert_eq!(asked(v2), "192.0.2.7");
    assert_eq!(asked(b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0"), "127.0.0.1", "LOCAL");
    let mut slow = sentry.client();
    for byte in [&v2[..], GET.as_bytes()].concat() {
        slow.send([byte]);
    }
    assert_eq!(slow.answer().text(), "192.0.2.7");
}

#[test]
fn who_must_send_one_and_does_not_is_reset() {
    let server = server();
    let sentry = behind(&server, ProxyIn::Required, "127.0.0.0/8");
    for bytes in [GET, "PROXY TCP4 1.2.3.4\r\n"] {
        let mut client = sentry.client();
        client.send(bytes);
        client.assert_closed();
    }
    until("they are counted", || sentry.count(Counter::ProxyHeadersRefused) == 2);
    let elsewhere = behind(&server, ProxyIn::Required, "192.0.2.0/24");
    let mut client = elsewhere.client();
    // It may be reset while it sends.
    let _ = std::io::Write::write_all(&mut client.io, b"PROXY TCP4 192.0.2.7 203.0.113.1 1 2\r\n");
    client.assert_closed();
    until("it is counted", || elsewhere.count(Counter::ProxyHeadersRefused) == 1);
}

#[test]
fn who_may_send_one_need_not() {
    let server = server();
    let sentry = behind(&server, ProxyIn::Optional, "127.0.0.0/8");
    assert_eq!(sentry.ask(GET).text(), "127.0.0.1");
    let put = "PUT / HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\n\r\n";
    assert_eq!(sentry.ask(put).text(), "127.0.0.1", "a method that begins as a header does");
    assert_eq!(sentry.ask(&format!("PROXY TCP4 192.0.2.7 203.0.113.1 1 2\r\n{GET}")).text(), "192.0.2.7");
    let elsewhere = behind(&server, ProxyIn::Optional, "192.0.2.0/24");
    assert_eq!(elsewhere.ask(&format!("PROXY TCP4 192.0.2.7 203.0.113.1 1 2\r\n{GET}")).status, 400);
}
