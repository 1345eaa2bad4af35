//! A connection against a server that says what it is told to, in any pieces.

mod compared;

use std::cell::Cell;
use std::convert::Infallible;
use std::future::poll_fn;
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::task::Waker;

use http::{HeaderMap, Request};
use tokio::net::TcpStream;
use tokio::runtime::LocalRuntime;

use super::*;

/// A request's body: these frames, where `None` is a pause.
#[derive(Debug, Default)]
struct Frames {
    frames: Vec<Option<Frame<Bytes>>>,
    length: Option<u64>,
}

impl Frames {
    fn of(pieces: &[&'static str], length: Option<u64>) -> Self {
        let frames = pieces.iter().rev();
        let frame =
            |piece: &&'static str| (!piece.is_empty()).then(|| Frame::data(Bytes::from_static(piece.as_bytes())));
        Frames { frames: frames.map(frame).collect(), length }
    }
}

impl Body for Frames {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match self.frames.pop() {
            None => Poll::Ready(None),
            Some(None) => Poll::Pending,
            Some(Some(frame)) => Poll::Ready(Some(Ok(frame))),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.frames.is_empty()
    }

    fn size_hint(&self) -> http_body::SizeHint {
        self.length.map(http_body::SizeHint::with_exact).unwrap_or_default()
    }
}

/// A socket that is a connection's, and its other end.
fn pair() -> (Transport, UnixStream) {
    let (ours, theirs) = UnixStream::pair().expect("a pair of sockets");
    ours.set_nonblocking(true).expect("no waiting");
    theirs.set_nonblocking(true).expect("no waiting");
    let ours = TcpStream::from_std(std::net::TcpStream::from(OwnedFd::from(ours))).expect("a socket");
    (Transport::Plain(ours), theirs)
}

fn runtime() -> LocalRuntime {
    tokio::runtime::Builder::new_current_thread().enable_all().build_local(Default::default()).expect("a runtime")
}

fn request(method: &str, fields: &[(&str, &str)], body: Frames) -> Request<Frames> {
    let mut builder = Request::builder().method(method).uri("/a");
    for (name, value) in fields {
        builder = builder.header(*name, *value);
    }
    builder.body(body).expect("a request")
}

fn begin(conn: &mut Conn<Frames>, request: Request<Frames>) {
    let (parts, body) = request.into_parts();
    conn.begin(&parts, None, (!body.is_end_stream()).then_some(body));
}

/// What there is to read.
fn drain(server: &mut UnixStream) -> String {
    let (mut text, mut buffer) = (Vec::new(), [0; 4096]);
    while let Ok(read @ 1..) = server.read(&mut buffer) {
        text.extend_from_slice(&buffer[..read]);
    }
    String::from_utf8(text).expect("text")
}

/// Lets the runtime see what happened to sockets.
async fn look_around() {
    for _ in 0..3 {
        tokio::task::yield_now().await;
    }
}

/// An answer as somebody read it; `None`: it is none, or broke off.
#[derive(Debug, PartialEq)]
struct Answer {
    status: u16,
    reason: Option<Vec<u8>>,
    headers: HeaderMap,
    body: Option<(Vec<u8>, HeaderMap)>,
    keeps: bool,
}

/// Sends `pieces` one after the other, whenever there is nothing else to do; closes after the last one, or does not.
fn feed<'p>(
    server: &'p mut Option<UnixStream>,
    pieces: &'p [&'p [u8]],
    closes: bool,
) -> impl FnMut(&mut Context<'_>) -> bool {
    let (mut pieces, mut piece) = (pieces.iter(), &[][..]);
    move |cx| {
        cx.waker().wake_by_ref();
        let Some(io) = server else { return false };
        drain(io);
        if piece.is_empty() {
            piece = match pieces.next() {
                Some(piece) => piece,
                None => return closes && server.take().is_some(),
            };
        }
        let sent = io.write(piece).unwrap_or(0);
        piece = &piece[sent..];
        sent > 0
    }
}

/// So many turns of nothing mean that nothing comes any more.
const QUIET: usize = 20;

/// What comes of `step`, while `feed` goes on; `None`: nothing does.
async fn fed<R>(
    feed: &mut impl FnMut(&mut Context<'_>) -> bool,
    mut step: impl FnMut(&mut Context<'_>) -> Poll<R>,
) -> Option<R> {
    let mut quiet = 0;
    poll_fn(|cx| {
        if let Poll::Ready(done) = step(cx) {
            return Poll::Ready(Some(done));
        }
        quiet = if feed(cx) { 0 } else { quiet + 1 };
        if quiet > QUIET { Poll::Ready(None) } else { Poll::Pending }
    })
    .await
}

/// How a connection reads an answer.
fn read(method: &str, pieces: &[&[u8]], closes: bool) -> Option<Answer> {
    runtime().block_on(async {
        let (socket, server) = pair();
        let mut server = Some(server);
        let mut conn = Conn::new(socket);
        begin(&mut conn, request(method, &[("host", "h")], Frames::default()));
        let mut feed = feed(&mut server, pieces, closes);
        let response = fed(&mut feed, |cx| conn.poll_answer(cx)).await?.ok()?;
        let (parts, mut rest) = response.into_parts();
        let (mut body, mut trailers) = (Vec::new(), HeaderMap::new());
        let whole = loop {
            let (is_over, exact) = (rest.is_over(), rest.exact());
            match fed(&mut feed, |cx| conn.poll_frame(&mut rest, cx)).await {
                None | Some(Some(Err(_))) => break None,
                Some(None) => break Some((body, trailers)),
                Some(Some(Ok(frame))) => {
                    assert!(!is_over, "a frame after the end");
                    match frame.into_data() {
                        Ok(data) => {
                            assert!(exact.is_none_or(|exact| rest.exact() == Some(exact - data.len() as u64)));
                            body.extend(data);
                        }
                        Err(frame) => trailers = frame.into_trailers().expect("trailers"),
                    }
                }
            }
        };
        let keeps = whole.is_some() && poll_fn(|cx| Poll::Ready(conn.finish(cx))).await;
        let reason = parts.extensions.get::<hyper::ext::ReasonPhrase>().map(|reason| reason.as_bytes().to_vec());
        Some(Answer { status: parts.status.as_u16(), reason, headers: parts.headers, body: whole, keeps })
    })
}

const WHOLE: &[&str] = &[
    "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nA;x\r\n0123456789\r\n0\r\n\r\n",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nT: v\r\n\r\n",
    "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 Fine\r\nContent-Length: 0\r\n\r\n",
    "HTTP/1.0 404 Not Found\r\nX: y\r\n\r\nto the end",
];

#[test]
fn whole_answers_are_read_however_they_come_and_the_connection_is_kept() {
    for (text, body, keeps) in [
        (WHOLE[0], "abc", true),
        (WHOLE[1], "abc0123456789", true),
        (WHOLE[2], "abc", true),
        (WHOLE[3], "", true),
        (WHOLE[4], "to the end", false),
        ("HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nhi", "hi", true),
        ("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nhi", "hi", false),
        ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi, unasked", "hi", false),
    ] {
        for size in 1..text.len() + 1 {
            // What comes too late is seen when the connection is used again.
            let size = if text.ends_with("unasked") { text.len() } else { size };
            let pieces: Vec<&[u8]> = text.as_bytes().chunks(size).collect();
            let answer = read("GET", &pieces, !keeps).expect("an answer");
            let got = answer.body.expect("a body").0;
            assert_eq!((String::from_utf8_lossy(&got).as_ref(), answer.keeps), (body, keeps), "{text:?} by {size}");
        }
    }
}

#[test]
fn large_answers_come_in_few_pieces() {
    let body = "0123456789abcdef".repeat(64 * 1024);
    for text in [
        format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len()),
        format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{:x}\r\n{body}\r\n0\r\n\r\n", body.len()),
        format!("HTTP/1.1 200 OK\r\n\r\n{body}"),
    ] {
        for size in [1000, 16 * 1024, 100_000] {
            let pieces: Vec<&[u8]> = text.as_bytes().chunks(size).collect();
            let answer = read("GET", &pieces, true).expect("an answer");
            assert!(answer.body.expect("a body").0 == body.as_bytes(), "by {size}");
        }
    }
}

#[test]
fn a_head_has_a_bound() {
    let fields: String = (0..90).map(|at| format!("X-{at}: {}\r\n", "y".repeat(1000))).collect();
    let text = format!("HTTP/1.1 200 OK\r\n{fields}\r\n");
    for size in [1000, 60_000] {
        let pieces: Vec<&[u8]> = text.as_bytes().chunks(size).collect();
        assert_eq!(read("GET", &pieces, true), None);
    }
    let text = text.replace(&"y".repeat(1000), &"y".repeat(600));
    assert!(read("GET", &text.as_bytes().chunks(1000).collect::<Vec<_>>(), true).is_some());
}

#[test]
fn what_follows_a_101_is_not_read() {
    runtime().block_on(async {
        let (socket, mut server) = pair();
        look_around().await;
        let mut conn = Conn::new(socket);
        begin(&mut conn, request("GET", &[("connection", "upgrade"), ("upgrade", "x")], Frames::default()));
        server.write_all(b"HTTP/1.1 103 Early\r\n\r\nHTTP/1.1 101 Other\r\nUpgrade: x\r\n\r\n\nown").expect("room");
        let response = poll_fn(|cx| conn.poll_answer(cx)).await.expect("an answer");
        assert_eq!((response.status().as_u16(), response.body().is_over()), (101, true));
        assert_eq!(conn.into_parts().1, "\nown");
    });
}

/// What a server reads of a request with this body, and whether it was all sent.
fn sent(fields: &[(&str, &str)], body: Frames) -> (String, bool) {
    runtime().block_on(async {
        let (socket, mut server) = pair();
        look_around().await;
        let mut conn = Conn::new(socket);
        begin(&mut conn, request("POST", fields, body));
        for _ in 0..10 {
            let polled = poll_fn(|cx| Poll::Ready(conn.poll_answer(cx))).await;
            if let Poll::Ready(Err(_)) = polled {
                return (drain(&mut server), false);
            }
            look_around().await;
        }
        let is_out = !conn.is_sending();
        (drain(&mut server).split_once("\r\n\r\n").expect("a head").1.to_owned(), is_out)
    })
}

#[test]
fn a_request_s_body_is_framed_as_its_head_says() {
    const LONG: &str = match std::str::from_utf8(&[b'x'; 5000]) {
        Ok(text) => text,
        Err(_) => "",
    };
    let length = [("content-length", "5")];
    assert_eq!(sent(&length, Frames::of(&["he", "", "llo"], Some(5))), ("hello".into(), true));
    assert_eq!(sent(&length, Frames::of(&["hello, world"], Some(5))), ("hello".into(), true), "no more than promised");
    assert!(!sent(&length, Frames::of(&["hell"], Some(5))).1, "no less");
    let chunked = [("transfer-encoding", "chunked")];
    let of = |pieces| sent(&chunked, Frames::of(pieces, None));
    assert_eq!(of(&["he", "", "llo"]), ("2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n".into(), true));
    assert_eq!(of(&["", "", "hello"]), ("5\r\nhello\r\n0\r\n\r\n".into(), true));
    assert_eq!(of(&["a", LONG, "", "b"]), (format!("1\r\na\r\n1388\r\n{LONG}\r\n1\r\nb\r\n0\r\n\r\n"), true));
    assert_eq!(of(&["a", LONG]), (format!("1\r\na\r\n1388\r\n{LONG}\r\n0\r\n\r\n"), true));
}

#[test]
fn announced_trailers_follow_a_body() {
    let with = |fields: &[(&str, &str)]| {
        let trailers = [("a", "1"), ("b", "2"), ("host", "3"), ("c", "4")];
        let trailers = trailers.map(|(name, value)| (name.parse().expect("a name"), value.parse().expect("a value")));
        let mut body = Frames::of(&["x"], None);
        body.frames.insert(0, Some(Frame::trailers(HeaderMap::from_iter(trailers))));
        sent(&[&[("transfer-encoding", "chunked")][..], fields].concat(), body)
    };
    assert_eq!(with(&[]), ("1\r\nx\r\n0\r\n\r\n".into(), true));
    assert_eq!(with(&[("trailer", "C, host"), ("trailer", "a")]), ("1\r\nx\r\n0\r\na: 1\r\nc: 4\r\n\r\n".into(), true));
}

/// The answer is passed on, and the rest of the request is sent on meanwhile; the connection is of use only after both.
#[test]
fn an_answer_may_come_before_the_request_is_out() {
    runtime().block_on(async {
        let (socket, mut server) = pair();
        look_around().await;
        let mut conn = Conn::new(socket);
        begin(&mut conn, request("POST", &[("content-length", "4")], Frames::of(&["ab", "", "", "cd"], Some(4))));
        assert!(poll_fn(|cx| Poll::Ready(conn.poll_answer(cx))).await.is_pending());
        assert!(drain(&mut server).ends_with("\r\n\r\nab"));
        server.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nhe").expect("room");
        look_around().await;
        let mut rest = poll_fn(|cx| conn.poll_answer(cx)).await.expect("an answer").into_body();
        poll_fn(|cx| conn.poll_frame(&mut rest, cx)).await.expect("a frame").expect("data");
        assert_eq!(drain(&mut server), "cd");
        server.write_all(b"re").expect("room");
        look_around().await;
        poll_fn(|cx| conn.poll_frame(&mut rest, cx)).await.expect("a frame").expect("data");
        assert!(rest.is_over() && poll_fn(|cx| Poll::Ready(conn.finish(cx))).await);
    });
    runtime().block_on(async {
        let (socket, mut server) = pair();
        look_around().await;
        let mut conn = Conn::new(socket);
        let pieces = [&["ab"][..], &[""; 100], &["cd"]].concat();
        begin(&mut conn, request("POST", &[("content-length", "4")], Frames::of(&pieces, Some(4))));
        server.write_all(b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n").expect("room");
        let response = poll_fn(|cx| conn.poll_answer(cx)).await.expect("an answer");
        assert!(response.body().is_over() && !poll_fn(|cx| Poll::Ready(conn.finish(cx))).await);
    });
}

/// Who says why it takes no more is heard.
#[test]
fn an_answer_is_read_though_the_request_cannot_be_sent() {
    for says in ["HTTP/1.1 413 Content Too Large\r\nConnection: close\r\nContent-Length: 2\r\n\r\nno", ""] {
        runtime().block_on(async {
            let (socket, mut server) = pair();
            look_around().await;
            let mut conn = Conn::new(socket);
            begin(&mut conn, request("POST", &[("content-length", "4")], Frames::of(&["abcd"], Some(4))));
            server.write_all(says.as_bytes()).expect("room");
            drop(server);
            look_around().await;
            match poll_fn(|cx| conn.poll_answer(cx)).await {
                Ok(response) => {
                    let mut rest = response.into_body();
                    let frame = poll_fn(|cx| conn.poll_frame(&mut rest, cx)).await.expect("a frame").expect("data");
                    assert_eq!((frame.into_data().expect("data").as_ref(), says.is_empty()), (&b"no"[..], false));
                    assert!(!poll_fn(|cx| Poll::Ready(conn.finish(cx))).await);
                }
                Err(fault) => assert_eq!((fault, says), (Fault::Broken, "")),
            }
        });
    }
}

#[test]
fn one_request_follows_the_other_and_a_quiet_connection_holds_nothing() {
    runtime().block_on(async {
        let (socket, mut server) = pair();
        look_around().await;
        let mut conn = Conn::new(socket);
        for _ in 0..3 {
            assert!(poll_fn(|cx| Poll::Ready(conn.is_quiet(cx))).await);
            begin(&mut conn, request("GET", &[("host", "h")], Frames::default()));
            assert!(poll_fn(|cx| Poll::Ready(conn.poll_answer(cx))).await.is_pending());
            assert_eq!(drain(&mut server), "GET /a HTTP/1.1\r\nhost: h\r\n\r\n");
            server.write_all(WHOLE[0].as_bytes()).expect("room");
            let mut rest = poll_fn(|cx| conn.poll_answer(cx)).await.expect("an answer").into_body();
            while poll_fn(|cx| conn.poll_frame(&mut rest, cx)).await.is_some() {}
            assert!(poll_fn(|cx| Poll::Ready(conn.finish(cx))).await);
            assert!(conn.read.is_empty() && conn.out.is_empty() && conn.out.front().is_empty());
            conn.out = Out::default();
        }
        server.write_all(b"HTTP/1.1 408 Request Timeout\r\n\r\n").expect("room");
        look_around().await;
        assert!(!conn.is_quiet(&mut Context::from_waker(Waker::noop())), "nobody asked for that");
        let (socket, server) = pair();
        let mut conn: Conn<Frames> = Conn::new(socket);
        drop(server);
        look_around().await;
        assert!(!conn.is_quiet(&mut Context::from_waker(Waker::noop())), "it is closed");
    });
}

/// Whoever polls is woken by what comes, and by room for what is to go.
#[test]
fn who_polls_is_woken() {
    runtime().block_on(async {
        let (socket, mut server) = pair();
        look_around().await;
        let mut conn = Conn::new(socket);
        let body =
            Frames { frames: vec![Some(Frame::data(Bytes::from(vec![b'x'; 3_000_000])))], length: Some(3_000_000) };
        begin(&mut conn, request("POST", &[], body));
        let read = Cell::new(0);
        let serve = async {
            let mut buffer = vec![0; 100_000];
            while read.get() < 3_000_000 {
                match server.read(&mut buffer) {
                    Ok(more) => read.update(|read| read + more),
                    Err(_) => tokio::task::yield_now().await,
                }
            }
            server.write_all(WHOLE[0].as_bytes()).expect("room");
        };
        let (response, ()) = tokio::join!(poll_fn(|cx| conn.poll_answer(cx)), serve);
        assert!(response.is_ok() && read.get() > 3_000_000);
    });
}
