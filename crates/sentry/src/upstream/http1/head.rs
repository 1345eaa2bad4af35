//! Heads: a request's is written, an answer's is read in place.
//!
//! An answer's head is read as strictly as that of a request. A lone line feed is taken for the end of a line by many,
//! and a carriage return may stand where others see a line's end. The sentry writes such a head anew, so nobody behind
//! it is misled; but a cache before the server, or the server's own idea of where its head ends, may be another. Who
//! writes heads so is not believed to frame bodies well. Nor is who says in two ways where a body ends.

use std::io::Write;
use std::mem::MaybeUninit;

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Method, StatusCode, Uri, Version, request};
use hyper::ext::ReasonPhrase;

use super::Fault;
use super::framing::Rest;

/// Fields of an answer.
const FIELDS: usize = 100;

/// How a request's body is sent.
#[derive(Debug, Default)]
pub(super) enum Sending {
    /// There is none, or it was sent.
    #[default]
    Nothing,
    /// So many bytes are still to come.
    Length(u64),
    /// In chunks, which these fields may follow.
    Chunked(Vec<HeaderName>),
}

/// Writes a request's head. `length`: how long its body is, where there is one; `Some(None)`: who knows. How the body
/// is sent, and whether another request may follow.
pub(super) fn write(to: &mut Vec<u8>, parts: &request::Parts, length: Option<Option<u64>>) -> (Sending, bool) {
    let sending = frame(&parts.headers, length);
    to.extend_from_slice(parts.method.as_str().as_bytes());
    to.push(b' ');
    write_target(to, &parts.uri);
    to.extend_from_slice(b" HTTP/1.1\r\n");
    let (mut is_framed, mut keeps) = (false, true);
    for (name, value) in &parts.headers {
        if *name == header::CONNECTION {
            keeps &= !has_token(value.as_bytes(), b"close");
        }
        match (&sending, name) {
            (Sending::Chunked(_), &header::TRANSFER_ENCODING) | (Sending::Length(_), &header::CONTENT_LENGTH) => {
                if std::mem::replace(&mut is_framed, true) {
                    continue;
                }
                write_framing(to, &sending);
            }
            (_, &header::TRANSFER_ENCODING) | (Sending::Chunked(_), &header::CONTENT_LENGTH) => {}
            _ => write_field(to, name, value),
        }
    }
    if !is_framed {
        write_framing(to, &sending);
    }
    to.extend_from_slice(b"\r\n");
    (sending, keeps)
}

/// What a body's length is said by.
fn frame(headers: &HeaderMap, length: Option<Option<u64>>) -> Sending {
    let Some(length) = length else { return Sending::Nothing };
    let said = || headers.get(header::CONTENT_LENGTH).and_then(|value| number(value.as_bytes()));
    let known = if headers.contains_key(header::TRANSFER_ENCODING) { None } else { said().or(length) };
    match known {
        Some(length) => Sending::Length(length),
        None => Sending::Chunked(announced(headers)),
    }
}

/// The fields that a request says will follow its body.
fn announced(headers: &HeaderMap) -> Vec<HeaderName> {
    let lines = headers.get_all(header::TRAILER).iter();
    let names = lines.flat_map(|line| line.as_bytes().split(|&byte| byte == b','));
    names.filter_map(|name| HeaderName::from_bytes(name.trim_ascii()).ok()).collect()
}

fn write_target(to: &mut Vec<u8>, uri: &Uri) {
    match uri.path_and_query() {
        Some(path) if uri.scheme().is_none() && uri.authority().is_none() => {
            to.extend_from_slice(path.as_str().as_bytes());
        }
        // Writing to memory does not fail.
        _ => drop(write!(to, "{uri}")),
    }
}

fn write_framing(to: &mut Vec<u8>, sending: &Sending) {
    match sending {
        Sending::Nothing => {}
        Sending::Length(length) => drop(write!(to, "content-length: {length}\r\n")),
        Sending::Chunked(_) => to.extend_from_slice(b"transfer-encoding: chunked\r\n"),
    }
}

pub(super) fn write_field(to: &mut Vec<u8>, name: &HeaderName, value: &HeaderValue) {
    to.extend_from_slice(name.as_str().as_bytes());
    to.extend_from_slice(b": ");
    to.extend_from_slice(value.as_bytes());
    to.extend_from_slice(b"\r\n");
}

/// Whether a field may follow a body: it says nothing that must be known before.
pub(super) fn may_follow(name: &HeaderName) -> bool {
    let before = [
        header::AUTHORIZATION,
        header::CACHE_CONTROL,
        header::CONTENT_ENCODING,
        header::CONTENT_LENGTH,
        header::CONTENT_RANGE,
        header::CONTENT_TYPE,
        header::HOST,
        header::MAX_FORWARDS,
        header::SET_COOKIE,
        header::TRAILER,
        header::TRANSFER_ENCODING,
        header::TE,
    ];
    !before.contains(name)
}

/// An answer's head.
#[derive(Debug)]
pub(super) struct Head {
    /// Bytes of it.
    pub(super) length: usize,
    pub(super) status: StatusCode,
    pub(super) version: Version,
    /// How the server names the status, where others do not.
    pub(super) reason: Option<ReasonPhrase>,
    pub(super) headers: HeaderMap,
    /// Its body.
    pub(super) rest: Rest,
    /// Another request may follow.
    pub(super) keeps: bool,
}

/// What the bytes where an answer should begin are.
#[derive(Debug)]
pub(super) enum Read {
    /// Not yet a whole head.
    Part,
    /// A head of so many bytes, which another one follows.
    Interim(usize),
    Whole(Head),
}

/// Reads the head at the start of `bytes`, whose first `checked` ones were here before. `fields`: an empty map, which
/// may have room.
///
/// # Errors
/// When it is none.
pub(super) fn read(bytes: &Bytes, checked: usize, asked: &Method, fields: &mut HeaderMap) -> Result<Read, Fault> {
    let mut table = [const { MaybeUninit::uninit() }; FIELDS];
    let mut parsed = httparse::Response::new(&mut []);
    let parser = httparse::ParserConfig::default();
    let length = match parser.parse_response_with_uninit_headers(&mut parsed, bytes, &mut table) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) => return lines_end(bytes, checked).map(|()| Read::Part),
        Err(_) => return Err(Fault::Garbage),
    };
    lines_end(&bytes[..length], checked)?;
    let (Some(code), Some(minor)) = (parsed.code, parsed.version) else { return Err(Fault::Garbage) };
    let status = StatusCode::from_u16(code).map_err(|_| Fault::Garbage)?;
    if status.is_informational() && status != StatusCode::SWITCHING_PROTOCOLS {
        return Ok(Read::Interim(length));
    }
    let mut seen = Seen::default();
    let mut headers = std::mem::take(fields);
    headers.reserve(parsed.headers.len());
    for field in parsed.headers.iter() {
        let name = HeaderName::from_bytes(field.name.as_bytes()).map_err(|_| Fault::Garbage)?;
        seen.look(&name, field.value)?;
        headers.append(name, value(bytes.slice_ref(field.value)));
    }
    let reason = parsed.reason.filter(|reason| Some(*reason) != status.canonical_reason());
    let reason = reason.and_then(|reason| ReasonPhrase::try_from(bytes.slice_ref(reason.as_bytes())).ok());
    let rest = seen.rest(minor, status, asked)?;
    let keeps = seen.keeps(minor) && status != StatusCode::SWITCHING_PROTOCOLS && !matches!(rest, Rest::UntilClose);
    let version = if minor == 1 { Version::HTTP_11 } else { Version::HTTP_10 };
    Ok(Read::Whole(Head { length, status, version, reason, headers, rest, keeps }))
}

/// A field's value, as the parser found it.
#[expect(unsafe_code, reason = "the parser has looked at every byte already")]
fn value(bytes: Bytes) -> HeaderValue {
    // SAFETY: `httparse` lets no byte into a value but tabs, visible ASCII, spaces, and bytes from 0x80: those that a
    // `HeaderValue` may have.
    unsafe { HeaderValue::from_maybe_shared_unchecked(bytes) }
}

/// Whether each line feed follows a carriage return, none of which stands alone, and a first line does not end at once.
/// The first `checked` bytes were found so before.
///
/// # Errors
/// When it is not so.
pub(super) fn lines_end(head: &[u8], checked: usize) -> Result<(), Fault> {
    let fresh = &head[checked.saturating_sub(1).min(head.len())..];
    // A plain loop without a way out: the compiler makes it a few wide instructions.
    let pairs = fresh.iter().zip(fresh.get(1..).unwrap_or_default());
    let odd = pairs.filter(|&(&before, &byte)| (byte == b'\n') != (before == b'\r')).count();
    if odd > 0 || head.starts_with(b"\n") || head.starts_with(b"\r\n") { Err(Fault::Garbage) } else { Ok(()) }
}

/// What the fields that matter here said.
#[derive(Default)]
struct Seen<'b> {
    length: Option<&'b [u8]>,
    is_chunked: bool,
    closes: bool,
    keeps: bool,
}

impl<'b> Seen<'b> {
    fn look(&mut self, name: &HeaderName, value: &'b [u8]) -> Result<(), Fault> {
        match *name {
            header::CONNECTION => {
                self.closes |= has_token(value, b"close");
                self.keeps |= has_token(value, b"keep-alive");
            }
            header::CONTENT_LENGTH => {
                let digits = !value.is_empty() && value.iter().all(u8::is_ascii_digit);
                if self.length.replace(value).is_some() || !digits || self.is_chunked {
                    return Err(Fault::Ambiguous);
                }
            }
            // A coding for its way besides chunks would be undone by nobody, for it belongs to the connection, and is
            // gone behind it.
            header::TRANSFER_ENCODING => {
                let chunked = value.trim_ascii().eq_ignore_ascii_case(b"chunked");
                if std::mem::replace(&mut self.is_chunked, true) || !chunked || self.length.is_some() {
                    return Err(Fault::Ambiguous);
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Where the body ends (RFC 9112, section 6.3).
    fn rest(&self, minor: u8, status: StatusCode, asked: &Method) -> Result<Rest, Fault> {
        let has_none =
            matches!(status, StatusCode::SWITCHING_PROTOCOLS | StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
        match self.length {
            _ if has_none || *asked == Method::HEAD => Ok(Rest::NONE),
            // HTTP/1.0 knows no chunks.
            None if self.is_chunked && minor == 0 => Err(Fault::Garbage),
            None if self.is_chunked => Ok(Rest::chunked()),
            Some(length) => number(length).map(Rest::Length).ok_or(Fault::Garbage),
            None => Ok(Rest::UntilClose),
        }
    }

    fn keeps(&self, minor: u8) -> bool {
        !self.closes && (minor == 1 || self.keeps)
    }
}

fn has_token(value: &[u8], wanted: &[u8]) -> bool {
    value.split(|&byte| byte == b',').any(|token| token.trim_ascii().eq_ignore_ascii_case(wanted))
}

/// A number in decimal digits that fits.
fn number(value: &[u8]) -> Option<u64> {
    let digits = std::str::from_utf8(value).ok().filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()))?;
    digits.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How far heads reach in `text`, in pieces of `size` bytes: `None` when they are odd.
    fn heads(text: &str, size: usize) -> Option<bool> {
        let mut held: Vec<u8> = Vec::new();
        let mut checked = 0;
        for piece in text.as_bytes().chunks(size) {
            held.extend_from_slice(piece);
            loop {
                let bytes = Bytes::copy_from_slice(&held);
                match read(&bytes, checked, &Method::GET, &mut HeaderMap::new()).ok()? {
                    Read::Part => break checked = held.len(),
                    Read::Whole(_) => return Some(true),
                    Read::Interim(length) => {
                        held.drain(..length);
                        checked = 0;
                    }
                }
            }
        }
        Some(false)
    }

    fn whole(text: &str) -> Option<Head> {
        whole_of(&Method::GET, text)
    }

    fn whole_of(asked: &Method, text: &str) -> Option<Head> {
        match read(&Bytes::copy_from_slice(text.as_bytes()), 0, asked, &mut HeaderMap::new()) {
            Ok(Read::Whole(head)) => Some(head),
            _ => None,
        }
    }

    #[test]
    fn heads_are_followed_to_their_end_however_they_come() {
        for size in 1..40 {
            assert_eq!(heads("HTTP/1.1 200 OK\r\nA: b\r\n", size), Some(false));
            assert_eq!(heads("HTTP/1.1 200 OK\r\nA: b\r\n\r\nbody\nof\rany kind", size), Some(true));
            assert_eq!(heads("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 None\r\n", size), Some(false));
            assert_eq!(heads("HTTP/1.1 103 Early\r\nL: x\r\n\r\nHTTP/1.1 200 OK\r\n\r\n\n", size), Some(true));
            assert_eq!(heads("HTTP/1.1 101 Other\r\nUpgrade: x\r\n\r\n\n\n", size), Some(true));
        }
    }

    #[test]
    fn lines_that_end_oddly_are_no_head() {
        for size in 1..40 {
            for text in [
                "HTTP/1.1 200 OK\nA: b\r\n\r\n",
                "HTTP/1.1 200 OK\r\nA: b\n\r\n",
                "HTTP/1.1 200 OK\r\nA: b\r\n\n",
                "HTTP/1.1 200 OK\r\nA: b\rC: d\r\n\r\n",
                "HTTP/1.1 103 Early\r\n\r\nHTTP/1.1 200 OK\n\n",
                "\nHTTP/1.1 200 OK\r\n\r\n",
                "\r\nHTTP/1.1 200 OK\r\n\r\n",
            ] {
                assert_eq!(heads(text, size), None, "{text:?}");
            }
        }
        // Nobody waits for the rest of it.
        assert_eq!(heads("HTTP/1.1 200 OK\n", 100), None);
        assert_eq!(heads("HTTP/1.1 200 OK\r\nA: b\n", 1), None);
    }

    #[test]
    fn what_is_no_head_is_none() {
        let many = "A: b\r\n".repeat(FIELDS + 1);
        for text in [
            "hello\r\n\r\n",
            "HTTP/1.1 20\r\n\r\n",
            "HTTP/1.1 099 Low\r\n\r\n",
            "HTTP/2.0 200 OK\r\n\r\n",
            "HTTP/1.1 200 OK\r\nA : b\r\n\r\n",
            "HTTP/1.1 200 OK\r\nA: b\r\n c\r\n\r\n",
            "HTTP/1.1 200 OK\r\n A: b\r\n\r\n",
            "HTTP/1.1 200 OK\r\nA: \0\r\n\r\n",
            &format!("HTTP/1.1 200 OK\r\n{many}\r\n"),
        ] {
            assert_eq!(heads(text, 1000), None, "{text:?}");
        }
    }

    #[test]
    fn a_body_ends_in_one_way() {
        let rest = |fields: &str| whole(&format!("HTTP/1.1 200 OK\r\n{fields}\r\n")).map(|head| head.rest);
        assert!(matches!(rest("Content-Length: 0012\r\n"), Some(Rest::Length(12))));
        assert!(matches!(rest("Transfer-Encoding:  Chunked \r\n"), Some(Rest::Chunked(_))));
        assert!(matches!(rest(""), Some(Rest::UntilClose)));
        for odd in [
            "Content-Length: 2\r\nContent-Length: 2\r\n",
            "Content-Length: 2, 2\r\n",
            "Content-Length: +2\r\n",
            "Content-Length:\r\n",
            "Content-Length: 18446744073709551616\r\n",
            "Content-Length: 2\r\nTransfer-Encoding: chunked\r\n",
            "Transfer-Encoding: chunked\r\nContent-Length: 2\r\n",
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
            "Transfer-Encoding: gzip, chunked\r\n",
            "Transfer-Encoding: gzip\r\n",
        ] {
            assert!(rest(odd).is_none(), "{odd:?}");
        }
        assert!(whole("HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").is_none());
    }

    #[test]
    fn some_answers_have_no_body_whatever_they_say() {
        let length = "Content-Length: 12\r\n\r\n";
        for status in ["204 No Content", "304 Not Modified", "101 Switching Protocols"] {
            let head = whole(&format!("HTTP/1.1 {status}\r\n{length}")).expect("a head");
            assert!(head.rest.is_over(), "{status}");
            assert_eq!(head.keeps, !status.starts_with("101"), "{status}");
        }
        let head = whole_of(&Method::HEAD, &format!("HTTP/1.1 200 OK\r\n{length}")).expect("a head");
        assert!(head.rest.is_over() && head.keeps);
        assert_eq!(head.headers[header::CONTENT_LENGTH], "12");
        assert!(whole_of(&Method::HEAD, "HTTP/1.1 200 OK\r\n\r\n").expect("a head").keeps);
    }

    #[test]
    fn a_connection_is_kept_where_both_sides_want_it() {
        let keeps = |minor: u8, fields: &str| {
            whole(&format!("HTTP/1.{minor} 200 OK\r\nContent-Length: 0\r\n{fields}\r\n")).expect("a head").keeps
        };
        assert!(keeps(1, "") && keeps(1, "Connection: x\r\n") && !keeps(0, ""));
        assert!(keeps(0, "Connection: Keep-Alive\r\n") && keeps(0, "Connection: x, keep-alive\r\n"));
        assert!(!keeps(1, "Connection: x, Close\r\n") && !keeps(1, "Connection: close\r\nConnection: keep-alive\r\n"));
        assert!(!keeps(0, "Connection: keep-alive\r\nConnection: close\r\n"));
        assert!(!whole("HTTP/1.1 200 OK\r\n\r\n").expect("a head").keeps, "it ends with the connection");
    }

    #[test]
    fn other_names_of_a_status_are_kept() {
        let reason = |text: &str| whole(text).expect("a head").reason.map(|reason| reason.as_bytes().to_vec());
        assert_eq!(reason("HTTP/1.1 200 OK\r\n\r\n"), None);
        assert_eq!(reason("HTTP/1.1 200 Fine\r\n\r\n"), Some(b"Fine".to_vec()));
        assert_eq!(reason("HTTP/1.1 200 \r\n\r\n"), Some(Vec::new()));
        assert_eq!(reason("HTTP/1.1 200\r\n\r\n"), Some(Vec::new()));
        assert_eq!(reason("HTTP/1.0 799 Own\r\n\r\n"), Some(b"Own".to_vec()));
    }

    /// The head of a request with these fields, and how its body is sent.
    fn written(method: &str, uri: &str, fields: &[(&str, &str)], length: Option<Option<u64>>) -> (String, Sending) {
        let mut builder = http::Request::builder().method(method).uri(uri);
        for (name, value) in fields {
            builder = builder.header(*name, *value);
        }
        let (parts, ()) = builder.body(()).expect("a request").into_parts();
        let mut text = Vec::new();
        let (sending, keeps) = write(&mut text, &parts, length);
        assert_eq!(keeps, !fields.contains(&("connection", "close")));
        (String::from_utf8(text).expect("text"), sending)
    }

    #[test]
    fn a_request_s_head_is_written_as_it_is() {
        let (text, sending) = written("GET", "/a?b=c", &[("host", "h"), ("X-Empty", ""), ("accept", "*/*")], None);
        assert_eq!(text, "GET /a?b=c HTTP/1.1\r\nhost: h\r\nx-empty: \r\naccept: */*\r\n\r\n");
        assert!(matches!(sending, Sending::Nothing));
        assert!(written("OPTIONS", "*", &[], None).0.starts_with("OPTIONS * HTTP/1.1\r\n"));
        assert!(written("GET", "/?", &[], None).0.starts_with("GET /? HTTP/1.1\r\n"));
        assert!(written("GET", "http://h/a?b", &[], None).0.starts_with("GET http://h/a?b HTTP/1.1\r\n"));
        let (text, _) = written("GET", "/", &[("transfer-encoding", "chunked"), ("content-length", "0")], None);
        assert_eq!(text, "GET / HTTP/1.1\r\ncontent-length: 0\r\n\r\n");
    }

    #[test]
    fn a_request_says_once_where_its_body_ends() {
        let post = |fields: &[(&str, &str)], length| written("POST", "/", fields, Some(length));
        let (text, sending) = post(&[("content-length", "5"), ("x", "y")], Some(5));
        assert_eq!(text, "POST / HTTP/1.1\r\ncontent-length: 5\r\nx: y\r\n\r\n");
        assert!(matches!(sending, Sending::Length(5)));
        let (text, sending) = post(&[("x", "y")], Some(7));
        assert_eq!(text, "POST / HTTP/1.1\r\nx: y\r\ncontent-length: 7\r\n\r\n");
        assert!(matches!(sending, Sending::Length(7)));
        for fields in [&[("transfer-encoding", "chunked"), ("content-length", "5"), ("trailer", "A, b,?")][..], &[]] {
            let (text, sending) = post(fields, None);
            assert_eq!(text.matches("transfer-encoding: chunked\r\n").count(), 1, "{text}");
            assert!(!text.contains("content-length"), "{text}");
            let Sending::Chunked(announced) = sending else { panic!("{text}") };
            assert_eq!(announced.len(), if fields.is_empty() { 0 } else { 2 });
        }
    }
}
