//! Listeners that come and go while the sentry runs.

use std::net::TcpListener;

use super::*;
use crate::support::Door;

fn at(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}

fn refused(address: SocketAddr) -> bool {
    std::net::TcpStream::connect(address).is_err()
}

/// Answers `/slow` once the door is open, and everything else at once.
fn slow(door: &Door) -> RawServer {
    let door = door.clone();
    RawServer::answering(move |asked| {
        if asked.target == "/slow" {
            door.wait();
        }
        ok("slow")
    })
}

fn get_one(address: SocketAddr, path: &str) -> String {
    let mut client = Client::connect(address);
    client.send(get("x", path));
    client.answer().text()
}

#[test]
fn a_reload_listens_where_the_file_says_now() {
    let (server, door) = (named("b"), Door::default());
    let (first, second) = (at(free_port()), at(free_port()));
    let slow = slow(&door);
    let text = |listen: SocketAddr| app("a", listen, slow.address, "") + &app("b", "127.0.0.1:0", server.address, "");
    let sentry = start(&text(first));
    let own = sentry.addresses("b")[0];
    let (mut idle, mut busy) = (Client::connect(first), Client::connect(first));
    idle.send(get("x", "/"));
    assert_eq!(idle.answer().status, 200);
    busy.send(get("x", "/slow"));
    until("it is at work", || sentry.apps()[0].in_flight() == 1);

    sentry.reload(parsed(&text(second))).expect("a reload");
    assert_eq!((sentry.addresses("a"), sentry.addresses("b")), (vec![second], vec![own]), "an open port stays");
    assert_eq!(get_one(second, "/"), "slow");
    until("nobody listens there any more", || refused(first));
    idle.assert_closed();
    door.open();
    let answer = busy.answer();
    assert_eq!((answer.text().as_str(), answer.field("connection")), ("slow", Some("close")));
    busy.assert_closed();
    assert_eq!(get_one(own, "/"), "b /");
    // And back.
    sentry.reload(parsed(&text(first))).expect("a reload");
    until("nobody listens there any more", || refused(second));
    assert_eq!(get_one(first, "/"), "slow");
}

#[test]
fn a_port_that_is_taken_changes_nothing() {
    let (server, other_server) = (named("a"), named("other"));
    let (first, second) = (at(free_port()), at(free_port()));
    let taken = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    let other = taken.local_addr().expect("an address");
    let text = |listen: &str, server: &RawServer| {
        app("a", "127.0.0.1:0", server.address, "").replace("\"127.0.0.1:0\"", listen)
    };
    let sentry = start(&text(&format!("\"{first}\""), &server));
    let wanted = text(&format!("[\"{second}\", \"{other}\"]"), &other_server);
    let error = sentry.reload(parsed(&wanted)).expect_err("it is taken").to_string();
    assert!(error.starts_with(&format!("application \"a\": cannot listen on {other}: ")), "{error}");
    assert!(error.ends_with("; nothing has changed"), "{error}");
    assert_eq!(sentry.addresses("a"), [first]);
    assert!(refused(second), "what could be opened is closed again");
    assert_eq!(get_one(first, "/"), "a /");
}

#[test]
fn open_connections_follow_the_routes_of_a_reload() {
    let (a, b) = (named("a"), named("b"));
    let at = at(free_port());
    let text = |of_a: &str, of_b: &str| app("a", at, a.address, of_a) + &app("b", at, b.address, of_b);
    let (one, other) = (text("", "route = { path = \"/b\" }"), text("route = { path = \"/b\" }", ""));
    let sentry = start(&one);
    let mut client = Client::connect(at);
    let mut asked = |path: &str| {
        client.send(get("x", path));
        client.answer().text()
    };
    assert_eq!((asked("/a"), asked("/b")), ("a /a".to_owned(), "b /b".to_owned()));
    sentry.reload(parsed(&other)).expect("a reload");
    until("the worker has heard of it", || asked("/b") == "a /b");
    assert_eq!(asked("/a"), "b /a");
    // The application whose connection it is listens there no more.
    let alone = app("a", "127.0.0.1:0", a.address, "") + &app("b", at, b.address, "");
    sentry.reload(parsed(&alone)).expect("a reload");
    until("the worker has heard of it", || asked("/b") == "b /b");
    drop(client);
    for app in sentry.apps() {
        until("all is given back", || app.counters.connections_open() == 0 && app.counters.held() == 0);
    }
}

/// Who does not go by itself is cut off after the time for a drain.
#[test]
fn what_is_left_of_a_listener_is_cut_off_in_the_end() {
    let door = Door::default();
    let (first, second) = (at(free_port()), at(free_port()));
    let slow = slow(&door);
    let text = |listen: SocketAddr| format!("drain = \"100ms\"\n{}", app("a", listen, slow.address, ""));
    let sentry = start(&text(first));
    let mut busy = Client::connect(first);
    busy.send(get("x", "/slow"));
    until("it is at work", || sentry.apps()[0].in_flight() == 1);
    sentry.reload(parsed(&text(second))).expect("a reload");
    assert_eq!(busy.answer().text(), "504 Gateway Timeout: request-timeout\n");
    busy.assert_closed();
    door.open();
    until("nothing is in flight", || sentry.apps()[0].in_flight() == 0);
}
