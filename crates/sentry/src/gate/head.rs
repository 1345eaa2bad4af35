//! Reading one request head in place: where it ends, how its body is framed, and whether it is *plain*.
//!
//! The gate and hyper read the same bytes one after the other. Whatever two readers of HTTP could read in different
//! ways is therefore either refused here (ambiguous framing: [`Bad`]) or left to hyper alone (odd but lawful:
//! `plain` is false). Only plain requests are ever answered by the gate.

mod target;

use std::mem::MaybeUninit;

use tidegate_classify::Paths;

pub use super::bad::Bad;
use crate::headers::{has_token, is_grpc};
pub(crate) use target::is_host;

/// The most header fields that can be configured: the parser's table lives on the stack.
pub const MAX_HEADERS: usize = 256;

/// The table that header fields are parsed into.
pub type HeaderTable<'b> = [MaybeUninit<httparse::Header<'b>>; MAX_HEADERS];

/// An empty table.
pub fn header_table<'b>() -> HeaderTable<'b> {
    [const { MaybeUninit::uninit() }; MAX_HEADERS]
}

/// Bounds on a request.
#[derive(Clone, Copy, Debug)]
pub struct HeadLimits {
    /// Bytes of the head.
    pub bytes: usize,
    /// Header fields; at most `MAX_HEADERS` are kept.
    pub headers: usize,
    /// Bytes of the body.
    pub body: Option<u64>,
    /// What becomes of ambiguous paths.
    pub paths: Paths,
}

/// What the bytes at a message boundary are.
#[derive(Debug)]
pub enum Examined<'h, 'b> {
    /// Not yet a whole head.
    Partial,
    /// A whole head.
    Whole(Head<'h, 'b>),
    /// Not a request that may be passed on.
    Bad(Bad),
}

/// A request head, in place.
#[derive(Debug)]
pub struct Head<'h, 'b> {
    /// Bytes of the head, its empty line included.
    pub len: usize,
    /// The method.
    pub method: &'b str,
    /// The request target as sent.
    pub target: &'b str,
    /// The `Host` field.
    pub host: Option<&'b str>,
    /// Every header field.
    pub headers: &'h [httparse::Header<'b>],
    /// How the body is framed.
    pub framing: Framing,
    /// Both readers must read it the same way, and nothing about it asks for more than an answer.
    pub plain: bool,
    /// The client wants the connection closed after the answer.
    pub close: bool,
}

/// Where a request's body ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// There is none.
    None,
    /// After this many bytes.
    Length(u64),
    /// After the last chunk and its trailers.
    Chunked,
}

impl<'b> Head<'_, 'b> {
    /// The first value of a header field; `name` in lower case.
    pub fn header(&self, name: &str) -> Option<&'b [u8]> {
        self.headers.iter().find(|h| h.name.eq_ignore_ascii_case(name)).map(|h| h.value)
    }

    /// Whether the target names a host and no path.
    pub(crate) fn asks_whole_server(&self) -> bool {
        !self.target.starts_with('/') && self.target.matches('/').count() == 2 && !self.target.contains('?')
    }
}

/// Reads the head at the start of `bytes`. Empty lines before it must have been skipped ([`leading_lines`]).
pub fn examine<'h, 'b>(bytes: &'b [u8], table: &'h mut HeaderTable<'b>, limits: &HeadLimits) -> Examined<'h, 'b> {
    // A parser that skips empty lines would wait for the rest of a head that does not begin.
    if bytes.first() == Some(&b'\n') {
        return Examined::Bad(Bad::BareLineFeed);
    }
    let table = &mut table[..limits.headers.min(MAX_HEADERS)];
    let mut request = httparse::Request::new(&mut []);
    let len = match request.parse_with_uninit_headers(bytes, table) {
        Ok(httparse::Status::Complete(len)) if len <= limits.bytes => len,
        Ok(httparse::Status::Partial) if bytes.len() <= limits.bytes => return Examined::Partial,
        Ok(_) if bytes[..bytes.len().min(limits.bytes)].contains(&b'\n') => return Examined::Bad(Bad::HeaderTooLarge),
        Ok(_) => return Examined::Bad(Bad::TargetTooLong),
        Err(error) => return Examined::Bad(syntax(error, bytes)),
    };
    let (Some(method), Some(target), Some(minor)) = (request.method, request.path, request.version) else {
        return Examined::Bad(Bad::Syntax);
    };
    let head = Head {
        len,
        method,
        target,
        host: None,
        headers: request.headers,
        framing: Framing::None,
        plain: minor == 1,
        close: minor == 0,
    };
    match judge(head, bytes, minor, limits) {
        Ok(head) => Examined::Whole(head),
        Err(bad) => Examined::Bad(bad),
    }
}

/// How many bytes of empty lines come before the request: clients of old send one after a body (RFC 9112, 2.2).
pub fn leading_lines(bytes: &[u8]) -> usize {
    bytes.chunks_exact(2).take_while(|pair| pair == b"\r\n").count() * 2
}

/// Whether an unfinished head, of which the first `examined` bytes were examined, is to be examined again: it may be
/// whole now, or it is twice as long. So who sends it byte by byte makes nobody read it more than three times, and what
/// is wrong with it is still found before its end.
pub(crate) fn has_grown(head: &[u8], examined: usize) -> bool {
    let fresh = &head[examined.saturating_sub(3).min(head.len())..];
    // Its last line is empty; whether lines end as they must is judged with the rest.
    let ends = fresh.windows(2).any(|pair| pair == b"\n\n") || fresh.windows(3).any(|three| three == b"\n\r\n");
    ends || head.len() >= 2 * examined
}

fn syntax(error: httparse::Error, bytes: &[u8]) -> Bad {
    match error {
        httparse::Error::TooManyHeaders => Bad::HeaderTooLarge,
        httparse::Error::Version if names_other_version(bytes) => Bad::Version,
        _ => Bad::Syntax,
    }
}

/// Whether the request line ends in `HTTP/` and a digit: another version of the protocol, rather than garbage.
fn names_other_version(bytes: &[u8]) -> bool {
    let line = bytes.split(|&b| b == b'\r' || b == b'\n').next().unwrap_or_default();
    let word = line.rsplit(|&b| b == b' ').next().unwrap_or_default();
    word.strip_prefix(b"HTTP/").and_then(|rest| rest.first()).is_some_and(u8::is_ascii_digit)
}

fn judge<'h, 'b>(mut head: Head<'h, 'b>, bytes: &'b [u8], minor: u8, limits: &HeadLimits) -> Result<Head<'h, 'b>, Bad> {
    if !lines_end_in_crlf(&bytes[..head.len], head.headers.len() + 2) {
        return Err(Bad::BareLineFeed);
    }
    target::judge(&mut head, limits.paths)?;
    let mut seen = Seen::default();
    for header in head.headers {
        judge_header(&mut head.plain, &mut head.close, &mut seen, header)?;
    }
    head.framing = seen.framing(minor)?;
    match seen.host {
        Some(host) => head.host = Some(host),
        None if minor == 1 => return Err(Bad::Host),
        None => {}
    }
    match (head.framing, limits.body) {
        (Framing::Length(length), Some(most)) if length > most => return Err(Bad::BodyTooLarge),
        (Framing::Chunked, _) => head.plain = false,
        _ => {}
    }
    Ok(head)
}

/// What the header fields that matter here said.
#[derive(Default)]
struct Seen<'b> {
    host: Option<&'b str>,
    length: Option<u64>,
    chunked: bool,
    connection: bool,
    cookie: bool,
}

impl Seen<'_> {
    fn framing(&self, minor: u8) -> Result<Framing, Bad> {
        match (self.length, self.chunked) {
            (Some(_), true) => Err(Bad::BothLengths),
            (None, true) if minor == 0 => Err(Bad::TransferEncoding),
            (None, true) => Ok(Framing::Chunked),
            (Some(0) | None, false) => Ok(Framing::None),
            (Some(length), false) => Ok(Framing::Length(length)),
        }
    }
}

fn judge_header<'b>(
    plain: &mut bool,
    close: &mut bool,
    seen: &mut Seen<'b>,
    header: &httparse::Header<'b>,
) -> Result<(), Bad> {
    let is = |name: &str| header.name.eq_ignore_ascii_case(name);
    match header.name.len() {
        4 if is("host") => {
            let host = Some(header.value).filter(|h| target::is_host(h)).and_then(|h| std::str::from_utf8(h).ok());
            let host = host.ok_or(Bad::Host)?;
            *plain &= !host.is_empty();
            if seen.host.replace(host).is_some() {
                return Err(Bad::Host);
            }
        }
        // Several lines are made one before anybody reads them.
        6 if is("cookie") => *plain &= !std::mem::replace(&mut seen.cookie, true),
        6 if is("expect") => {
            *plain = false;
            if !header.value.eq_ignore_ascii_case(b"100-continue") {
                return Err(Bad::Expectation);
            }
        }
        7 if is("upgrade") => *plain = false,
        10 if is("connection") => {
            let keep = header.value.eq_ignore_ascii_case(b"keep-alive");
            let one = keep || header.value.eq_ignore_ascii_case(b"close");
            *plain &= one && !seen.connection;
            seen.connection = true;
            // Once a line asked to close, nothing undoes it.
            *close |= has_token(header.value, b"close");
        }
        // A gRPC client must hear of its refusal in gRPC's own words, which takes hyper.
        12 if is("content-type") => *plain &= !is_grpc(header.value),
        14 if is("content-length") => {
            let length = plain_number(header.value).ok_or(Bad::ContentLength)?;
            if seen.length.replace(length).is_some() {
                return Err(Bad::ContentLength);
            }
        }
        17 if is("transfer-encoding") => {
            if std::mem::replace(&mut seen.chunked, true) {
                return Err(Bad::TransferEncoding);
            }
            judge_coding(header.value)?;
        }
        _ => {}
    }
    Ok(())
}

fn judge_coding(value: &[u8]) -> Result<(), Bad> {
    if value.eq_ignore_ascii_case(b"chunked") {
        return Ok(());
    }
    let last = value.rsplit(|&b| b == b',').next().unwrap_or_default().trim_ascii();
    let chunked = |token: &[u8]| token.trim_ascii().eq_ignore_ascii_case(b"chunked");
    let times = value.split(|&b| b == b',').filter(|token| chunked(token)).count();
    // "gzip, chunked" is lawful, but who decodes gzip? "chunked, gzip" has no end.
    Err(if chunked(last) && times == 1 { Bad::NotImplemented } else { Bad::TransferEncoding })
}

/// A number in plain decimal digits that fits: no sign, no spaces, no list.
pub(crate) fn plain_number(value: &[u8]) -> Option<u64> {
    let digits = !value.is_empty() && value.len() <= 18 && value.iter().all(u8::is_ascii_digit);
    digits.then(|| value.iter().fold(0, |n, d| n * 10 + u64::from(d - b'0')))
}

/// Whether every line feed follows a carriage return, none of which stands alone, and there are `lines` of them.
fn lines_end_in_crlf(head: &[u8], lines: usize) -> bool {
    // Plain loops without a way out, in bytes: the compiler makes each a few wide instructions.
    let ends = |part: &[u8]| usize::from(part.iter().fold(0, |ends: u8, &byte| ends + u8::from(byte == b'\n')));
    head.chunks(255).map(ends).sum::<usize>() == lines && all_line_feeds_follow_returns(head) && head[0] != b'\n'
}

/// Whether each line feed but a first byte follows a carriage return, none of which stands alone but as the last byte.
pub(crate) fn all_line_feeds_follow_returns(bytes: &[u8]) -> bool {
    let pairs = bytes.iter().zip(bytes.get(1..).unwrap_or_default());
    pairs.fold(0, |odd, (&before, &byte)| odd | u8::from((byte == b'\n') != (before == b'\r'))) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: HeadLimits = HeadLimits { bytes: 1024, headers: 20, body: Some(1000), paths: Paths::Strict };

    fn verdict(text: &str) -> Result<(bool, Framing, bool), &'static str> {
        match examine(text.as_bytes(), &mut header_table(), &LIMITS) {
            Examined::Partial => Err("partial"),
            Examined::Bad(bad) => Err(bad.name()),
            Examined::Whole(head) => Ok((head.plain, head.framing, head.close)),
        }
    }

    #[test]
    fn plain_requests_are_seen_as_such() {
        let plain = |text| assert_eq!(verdict(text), Ok((true, Framing::None, false)), "{text:?}");
        plain("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        plain("DELETE /a?b=c%20d HTTP/1.1\r\nhost: a.example:8080\r\nConnection: Keep-Alive\r\n\r\n");
        plain("POST /a HTTP/1.1\r\nHost: [::1]:80\r\nContent-Length: 0\r\n\r\n");
        let close = verdict("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        assert_eq!(close, Ok((true, Framing::None, true)));
        let length = verdict("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 12\r\n\r\n");
        assert_eq!(length, Ok((true, Framing::Length(12), false)));
    }

    #[test]
    fn lawful_but_odd_requests_are_left_to_hyper() {
        let odd = |text| assert!(matches!(verdict(text), Ok((false, _, _))), "{text:?}: {:?}", verdict(text));
        odd("GET / HTTP/1.0\r\n\r\n");
        odd("GET http://a/ HTTP/1.1\r\nHost: a\r\n\r\n");
        odd("OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n");
        odd("PURGE / HTTP/1.1\r\nHost: a\r\n\r\n");
        odd("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
        odd("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nExpect: 100-Continue\r\n\r\n");
        odd("GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n");
        odd("GET / HTTP/1.1\r\nHost: a\r\nConnection: close, x-a\r\n\r\n");
        odd("GET /{a} HTTP/1.1\r\nHost: a\r\n\r\n");
        odd("GET /%61 HTTP/1.1\r\nHost: a\r\n\r\n");
        odd("GET / HTTP/1.1\r\nHost: a\r\nCookie: a=1\r\nCookie: b=2\r\n\r\n");
        odd("POST / HTTP/1.1\r\nHost: a\r\nContent-Type: application/grpc+proto\r\n\r\n");
    }

    #[test]
    fn what_two_readers_could_read_differently_is_refused() {
        let bad = |text: &str, name| assert_eq!(verdict(text), Err(name), "{text:?}");
        let post = "POST / HTTP/1.1\r\nHost: a\r\n";
        bad(&format!("{post}Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n"), "both-lengths");
        bad(&format!("{post}Transfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\n"), "both-lengths");
        bad(&format!("{post}Content-Length: 1\r\nContent-Length: 1\r\n\r\n"), "content-length");
        bad(&format!("{post}Content-Length: 1, 1\r\n\r\n"), "content-length");
        bad(&format!("{post}Content-Length: +1\r\n\r\n"), "content-length");
        bad(&format!("{post}Content-Length: 0x1\r\n\r\n"), "content-length");
        bad(&format!("{post}Content-Length:\r\n\r\n"), "content-length");
        bad(&format!("{post}Content-Length: 99999999999999999999\r\n\r\n"), "content-length");
        bad(&format!("{post}Transfer-Encoding: gzip\r\n\r\n"), "transfer-encoding");
        bad(&format!("{post}Transfer-Encoding: chunked, gzip\r\n\r\n"), "transfer-encoding");
        bad(&format!("{post}Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n"), "transfer-encoding");
        bad(&format!("{post}Transfer-Encoding: gzip, chunked\r\n\r\n"), "not-implemented");
        bad("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", "transfer-encoding");
        bad("GET / HTTP/1.1\r\nHost: a\n\r\n", "bare-line-feed");
        bad("GET / HTTP/1.1\nHost: a\n\n", "bare-line-feed");
        bad("GET / HTTP/1.1\r\nHost: a\r\nX: b\r\n c\r\n\r\n", "syntax");
        bad("GET / HTTP/1.1\r\nHost : a\r\n\r\n", "syntax");
        bad("GET / HTTP/1.1\r\n\r\n", "host");
        bad("GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", "host");
        bad("GET / HTTP/1.1\r\nHost: a b\r\n\r\n", "host");
        bad("GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", "host");
        bad("GET /#x HTTP/1.1\r\nHost: a\r\n\r\n", "target");
        bad("GET a HTTP/1.1\r\nHost: a\r\n\r\n", "target");
        bad("GET * HTTP/1.1\r\nHost: a\r\n\r\n", "target");
        for path in ["//a", "/a/../b", "/a%2fb", "/a/..;b", "/a%5Cb", "/%zz", "/a%00", "/."] {
            bad(&format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"), "ambiguous-path");
            bad(&format!("GET http://a{path} HTTP/1.1\r\nHost: a\r\n\r\n"), "ambiguous-path");
        }
        bad("GET http://a:80@b/ HTTP/1.1\r\nHost: b\r\n\r\n", "target");
        bad("GET http://a@b/ HTTP/1.1\r\nHost: b\r\n\r\n", "target");
        bad("GET http:/// HTTP/1.1\r\nHost: b\r\n\r\n", "target");
        bad("TRACE / HTTP/1.1\r\nHost: a\r\n\r\n", "not-implemented");
        bad("CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n", "not-implemented");
        bad("GET / HTTP/1.1\r\nHost: a\r\nExpect: 200-ok\r\n\r\n", "expectation");
        bad("GET / HTTP/2.0\r\nHost: a\r\n\r\n", "version");
        bad("GET / FTP/1.0\r\nHost: a\r\n\r\n", "syntax");
        bad(&format!("{post}Content-Length: 1001\r\n\r\n"), "body-too-large");
        bad("\u{16}\u{3}\u{1}\u{2}", "syntax");
    }

    /// How many bytes are examined in all of a head that comes in pieces of `size` bytes.
    fn examined(head: &[u8], size: usize) -> usize {
        let limits = HeadLimits { bytes: 1 << 20, ..LIMITS };
        let (mut last, mut all) = (0, 0);
        for end in (size..head.len() + size).step_by(size) {
            let held = &head[..end.min(head.len())];
            if last > 0 && !has_grown(held, last) {
                continue;
            }
            all += held.len();
            last = held.len();
            match examine(held, &mut header_table(), &limits) {
                Examined::Partial => {}
                Examined::Whole(whole) => {
                    assert_eq!((whole.len, held.len()), (head.len(), head.len()));
                    return all;
                }
                Examined::Bad(bad) => panic!("{bad:?}"),
            }
        }
        panic!("not whole after {} bytes", head.len());
    }

    #[test]
    fn a_head_in_pieces_is_read_three_times_at_most() {
        let fields: String = (0..15).map(|field| format!("X-{field}: {}\r\n", "y".repeat(1000))).collect();
        let head = format!("GET / HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
        for size in [1, 2, 3, 7, 100, 4096, 1 << 20] {
            let all = examined(head.as_bytes(), size);
            assert!(all <= 3 * head.len(), "{size}: {all} of {}", head.len());
        }
    }

    #[test]
    fn a_line_feed_begins_no_request() {
        assert_eq!(verdict("\n"), Err("bare-line-feed"));
        assert_eq!(verdict("\n\nGET / HTTP/1.1\r\nHost: a\r\n\r\n"), Err("bare-line-feed"));
    }

    #[test]
    fn sizes_are_bounded() {
        assert_eq!(verdict(&format!("GET /{} HTTP/1.1\r\n", "a".repeat(2000))), Err("target-too-long"));
        assert_eq!(verdict(&format!("GET / HTTP/1.1\r\nX: {}", "a".repeat(2000))), Err("header-too-large"));
        let many = "X: y\r\n".repeat(21);
        assert_eq!(verdict(&format!("GET / HTTP/1.1\r\n{many}\r\n")), Err("header-too-large"));
        assert_eq!(verdict("GET / HTTP/1.1\r\nHost:"), Err("partial"));
    }

    #[test]
    fn leading_empty_lines_are_counted_whole() {
        assert_eq!(leading_lines(b"\r\n\r\nGET"), 4);
        assert_eq!(leading_lines(b"\r\nGET"), 2);
        assert_eq!(leading_lines(b"\rGET"), 0);
        assert_eq!(leading_lines(b"\nGET"), 0);
    }
}
