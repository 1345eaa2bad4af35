//! The gate and hyper, given the same bytes, read the same requests.

use proptest::prelude::*;
use proptest::sample::select;
use tidegate_classify::Paths;
use tidegate_sentry::fuzz::{HeadLimits, Stop, disagreement, hyper_reads, read_all};

const LIMITS: HeadLimits = HeadLimits { bytes: 4096, headers: 100, body: None, paths: Paths::AsIs };

/// Pieces of requests, lawful and not. Any sequence of them may be on the wire.
const PIECES: &[&str] = &[
    "GET / HTTP/1.1\r\n",
    "POST /a?b=c HTTP/1.1\r\n",
    "HEAD /%7e HTTP/1.1\r\n",
    "PUT //x/../y HTTP/1.1\r\n",
    "GET / HTTP/1.0\r\n",
    "OPTIONS * HTTP/1.1\r\n",
    "GET http://h/p HTTP/1.1\r\n",
    "BREW /{a} HTTP/1.1\r\n",
    "GET  / HTTP/1.1\r\n",
    "GET / HTTP/1.1\n",
    "get / HTTP/1.1\r\n",
    "PRI * HTTP/2.0\r\n",
    "GET /\u{e9} HTTP/1.1\r\n",
    "Host: a\r\n",
    "Host: a:80\r\n",
    "host: [::1]\r\n",
    "Host:\r\n",
    "Host: a b\r\n",
    "HOST:  a  \r\n",
    "Host : a\r\n",
    "Content-Length: 0\r\n",
    "Content-Length: 3\r\n",
    "content-length: 10\r\n",
    "Content-Length: +3\r\n",
    "Content-Length: 03\r\n",
    "Content-Length: 3, 3\r\n",
    "Content-Length:\t3\r\n",
    "Content-Length: 3 \r\n",
    "Transfer-Encoding: chunked\r\n",
    "Transfer-Encoding: Chunked\r\n",
    "Transfer-Encoding: gzip, chunked\r\n",
    "Transfer-Encoding: identity\r\n",
    "transfer-encoding:\tchunked\r\n",
    "Transfer-Encoding: chunked\n",
    "Connection: close\r\n",
    "Connection: keep-alive\r\n",
    "Connection: Close, x\r\n",
    "Connection: upgrade\r\n",
    "Upgrade: h2c\r\n",
    "Expect: 100-continue\r\n",
    "Expect: x\r\n",
    "TE: trailers\r\n",
    "X: y\r\n",
    "X_Y: z\r\n",
    "X:\r\n",
    ": y\r\n",
    "X: a\rb\r\n",
    "X: a\0b\r\n",
    " folded\r\n",
    "\tfolded\r\n",
    "X: \u{e9}\r\n",
    "\r\n",
    "\r\n",
    "\r\n",
    "\n",
    "\r",
    "\0",
    " ",
    "abc",
    "0123456789",
    "3\r\nabc\r\n",
    "3;x=y\r\nabc\r\n",
    "03\r\nabc\r\n",
    "0\r\n\r\n",
    "0\r\nT: v\r\n\r\n",
    "3\nabc\n",
    "3 \r\nabc\r\n",
    "A\r\n0123456789\r\n",
    "0\r\n\n",
    "ffffffffffffffffff\r\n",
    "-1\r\n",
];

/// Whole requests that follow each other, so that boundaries are reached often.
const WHOLE: &[&str] = &[
    "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
    "HEAD /x HTTP/1.1\r\nHost: a\r\nConnection: keep-alive\r\n\r\n",
    "POST /p HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc",
    "POST /c HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
    "POST /t HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTrailer: t\r\n\r\n1;e\r\na\r\n0\r\nt: v\r\n\r\n",
    "PUT /e HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\nabc",
    "GET /u HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n",
    "OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n",
];

fn wire() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![2 => select(PIECES), 3 => select(WHOLE)];
    let pieces = prop::collection::vec(piece, 1..12).prop_map(|pieces| pieces.concat().into_bytes());
    let change = (any::<prop::sample::Index>(), select(&b"\r\n \t:,;0aA\x00\x7f\xff-+"[..]), 0..3u8);
    (pieces, prop::collection::vec(change, 0..3)).prop_map(|(mut bytes, changes)| {
        for (at, byte, kind) in changes {
            let at = at.index(bytes.len());
            match kind {
                0 => bytes[at] = byte,
                1 => bytes.insert(at, byte),
                _ => drop(bytes.remove(at)),
            }
            if bytes.is_empty() {
                bytes.push(byte);
            }
        }
        bytes
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 20_000, ..ProptestConfig::default() })]

    #[test]
    fn the_gate_and_hyper_read_the_same(bytes in wire()) {
        prop_assert_eq!(disagreement(&bytes, &LIMITS), None, "{:?}", String::from_utf8_lossy(&bytes));
    }
}

/// The comparison compares something: both readers see all of these, and a gate that counts a body wrongly is caught.
#[test]
fn both_readers_see_every_whole_request() {
    let bytes = WHOLE.concat().into_bytes();
    let (gate, stop) = read_all(&bytes, &LIMITS);
    let hyper = hyper_reads(&bytes, &LIMITS);
    assert_eq!((gate.len(), stop, hyper.len()), (WHOLE.len(), Stop::More, WHOLE.len()));
    assert_eq!(gate.last().and_then(|read| read.end), Some(bytes.len()));
    assert_eq!(disagreement(&bytes, &LIMITS), None);
}
