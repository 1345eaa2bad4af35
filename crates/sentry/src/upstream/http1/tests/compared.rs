//! What a connection takes for an answer, and what hyper's client does.

use hyper::client::conn::http1::Builder;
use proptest::prelude::*;
use proptest::sample::select;

use super::*;
use crate::upstream::ServerIo;
use crate::upstream::send::is_well_framed;

/// How hyper's client reads it.
fn hyper_reads(method: &str, pieces: &[&[u8]], closes: bool) -> Option<Answer> {
    runtime().block_on(async {
        let (socket, server) = pair();
        let mut server = Some(server);
        let builder = Builder::new().max_buf_size(BUFFER).handshake(ServerIo::unwatched(socket));
        let (mut sender, mut conn) = builder.await.expect("no handshake fails");
        let mut over = false;
        let over = &mut over;
        let mut drive = |cx: &mut Context<'_>| {
            if !*over {
                *over = Pin::new(&mut conn).poll(cx).is_ready();
            }
        };
        let mut reply = Box::pin(sender.try_send_request(request(method, &[("host", "h")], Frames::default())));
        let mut feed = feed(&mut server, pieces, closes);
        let response = fed(&mut feed, |cx| {
            drive(cx);
            reply.as_mut().poll(cx)
        });
        let (parts, mut incoming) = response.await?.ok()?.into_parts();
        let (mut body, mut trailers) = (Vec::new(), HeaderMap::new());
        let whole = loop {
            let frame = fed(&mut feed, |cx| {
                drive(cx);
                Pin::new(&mut incoming).poll_frame(cx)
            });
            match frame.await {
                None | Some(Some(Err(_))) => break None,
                Some(None) => break Some((body, trailers)),
                Some(Some(Ok(frame))) => match frame.into_data() {
                    Ok(data) => body.extend(data),
                    Err(frame) => trailers = frame.into_trailers().expect("trailers"),
                },
            }
        };
        let reason = parts.extensions.get::<hyper::ext::ReasonPhrase>().map(|reason| reason.as_bytes().to_vec());
        Some(Answer { status: parts.status.as_u16(), reason, headers: parts.headers, body: whole, keeps: false })
    })
}

/// Pieces of answers, lawful and not.
const PIECES: &[&str] = &[
    "HTTP/1.1 200 OK\r\n",
    "HTTP/1.1 200 Fine\r\n",
    "HTTP/1.0 200 OK\r\n",
    "HTTP/1.1 204 No Content\r\n",
    "HTTP/1.1 304 Not Modified\r\n",
    "HTTP/1.1 100 Continue\r\n\r\n",
    "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n",
    "HTTP/1.1 200\r\n",
    "HTTP/1.1 999 \u{e9}\r\n",
    "Content-Length: 0\r\n",
    "Content-Length: 3\r\n",
    "content-length: 10\r\n",
    "Content-Length: +3\r\n",
    "Content-Length: 03 \r\n",
    "Transfer-Encoding: chunked\r\n",
    "transfer-encoding:\tChunked\r\n",
    "Transfer-Encoding: gzip, chunked\r\n",
    "Connection: close\r\n",
    "Connection: keep-alive\r\n",
    "X: y\r\n",
    "X:\r\n",
    "X : y\r\n",
    " folded\r\n",
    "X: \u{e9}\r\n",
    "X: a\rb\r\n",
    "\r\n",
    "\r\n",
    "\n",
    "\r",
    "\0",
    "abc",
    "0123456789",
    "3\r\nabc\r\n",
    "3;x=y\r\nabc\r\n",
    "003 \r\nabc\r\n",
    "0\r\n\r\n",
    "0\r\nT: v\r\n\r\n",
    "0\r\nT: v\r\nt: w\r\n",
    "A\r\n0123456789\r\n",
    "3\nabc\n",
    "ffffffffffffffffff\r\n",
];

fn wire() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![3 => select(PIECES), 1 => select(WHOLE)];
    let pieces = prop::collection::vec(piece, 1..8).prop_map(|pieces| pieces.concat().into_bytes());
    let begin = prop_oneof![select(&PIECES[..5]), Just("")];
    let change = (any::<prop::sample::Index>(), select(&b"\r\n \t:,;0aA\x00\x7f\xff-+"[..]), 0..3u8);
    (begin, pieces, prop::collection::vec(change, 0..2)).prop_map(|(begin, pieces, changes)| {
        let mut bytes = [begin.as_bytes(), &pieces].concat();
        for (at, byte, kind) in changes {
            let at = at.index(bytes.len());
            match kind {
                0 => bytes[at] = byte,
                1 => bytes.insert(at, byte),
                _ => drop(bytes.remove(at)),
            }
        }
        bytes
    })
}

/// A line feed or a carriage return stands alone, or a head may begin with an empty line.
fn ends_lines_oddly(text: &str) -> bool {
    let is_alone = text.replace("\r\n", "").contains(['\r', '\n']);
    is_alone || text.starts_with("\r\n") || text.contains("\r\n\r\n\r\n")
}

/// Found by the comparison: hyper takes the line feed for the end of the trailers, and what follows for nothing.
#[test]
fn a_line_feed_ends_no_trailers() {
    let bytes = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\nHTTP/1.1 200 OK\r\n\r\n";
    let ours = read("GET", &[bytes], true).expect("its head is sound");
    let theirs = hyper_reads("GET", &[bytes], true).expect("its head is sound");
    assert_eq!((ours.body, theirs.body), (None, Some((b"abc".to_vec(), HeaderMap::new()))));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3_000, ..ProptestConfig::default() })]

    /// What is an answer here is the same one for hyper, however it comes; and hyper takes no more for one than what is
    /// refused here on purpose.
    #[test]
    fn hyper_reads_the_same(bytes in wire(), size in 1..40usize, closes: bool, is_head: bool) {
        let method = if is_head { "HEAD" } else { "GET" };
        let pieces: Vec<&[u8]> = bytes.chunks(size).collect();
        let ours = read(method, &pieces, closes);
        let whole = read(method, &[&bytes], closes);
        // Whether more is there than was asked for depends on when it comes.
        let whole = whole.map(|whole| Answer { keeps: ours.as_ref().is_some_and(|ours| ours.keeps), ..whole });
        prop_assert_eq!(&ours, &whole, "in pieces and at once");
        match (ours, hyper_reads(method, &pieces, closes)) {
            (Some(ours), Some(theirs)) => {
                let theirs = Answer { keeps: ours.keeps, ..theirs };
                // A line feed within a trailer ends no line here; for hyper it may end the trailers, too.
                let has_trailers = theirs.body.as_ref().is_some_and(|(_, fields)| !fields.is_empty());
                let is_odd = has_trailers || ends_lines_oddly(&String::from_utf8_lossy(&bytes));
                let is_stricter = ours.body.is_none() && is_odd;
                let theirs = if is_stricter { Answer { body: None, ..theirs } } else { theirs };
                prop_assert_eq!(ours, theirs, "{}", bytes.escape_ascii());
            }
            (Some(ours), None) => prop_assert!(false, "hyper does not read {:?}: {}", ours, bytes.escape_ascii()),
            (None, Some(theirs)) => {
                let is_odd = ends_lines_oddly(&String::from_utf8_lossy(&bytes)) || !is_well_framed(&theirs.headers);
                prop_assert!(is_odd, "hyper reads {:?}: {}", theirs, bytes.escape_ascii());
            }
            (None, None) => {}
        }
    }
}
