//! What is held for a connection is counted where the connection is, whoever's its requests are.

use std::io::Write;
use std::net::{SocketAddr, TcpStream};

use super::{app, free_port, named, of, start};
use crate::http2::{PREFACE, frame};
use crate::support::until;

/// `POST / HTTP/2` to `b`, with more to come than is sent.
const POST: &[u8] = b"\x83\x86\x84\x01\x01b\x0f\x0d\x0599999";

#[test]
fn a_body_for_another_application_is_counted_where_its_connection_is() {
    let servers = [named("a"), named("b")];
    let at = SocketAddr::from(([127, 0, 0, 1], free_port()));
    let text = app("a", at, servers[0].address, "") + &app("b", at, servers[1].address, "route = { host = \"b\" }");
    let sentry = start(&text);
    let (home, other) = (of(&sentry, "a"), of(&sentry, "b"));
    let mut io = TcpStream::connect(at).expect("a connection");
    io.write_all(&[PREFACE, &frame(4, 0, 0, &[]), &frame(1, 4, 1, POST)].concat()).expect("it is open");
    until("what is waited for is counted at home", || home.counters.held() > 40_000);
    assert_eq!(other.counters.held(), 0);
    let rests = home.counters.held() - 8192;
    io.write_all(&frame(3, 0, 1, &8_u32.to_be_bytes())).expect("it is open");
    // What is held while the request is on its way to its server may have been counted above, too.
    until("the stream is over", || home.counters.held() <= rests);
    assert_eq!(other.counters.held(), 0);
    drop(io);
    until("nothing is held for who has left", || home.counters.held() == 0);
}
