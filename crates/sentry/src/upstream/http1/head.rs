//! Reading the head of an answer in place.
//!
//! It is read as strictly as that of a request. A lone line feed is taken for the end of a line by many,
//! and a carriage return may stand where others see a line's end. The sentry writes such a head anew, so nobody behind
//! it is misled; but a cache before the server, or the server's own idea of where its head ends, may be another. Who
//! writes heads so is not believed to frame bodies well. Nor is who says in two ways where a body ends.

use std::mem::MaybeUninit;

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Method, StatusCode, Version};
use hyper::ext::ReasonPhrase;

use super::Fault;
use super::framing::Rest;
use crate::gate::head::all_line_feeds_follow_returns;
use crate::headers::has_token;
use crate::headers::lines::{Lines, may_pass_back};
use crate::headers::spare;

/// Fields of an answer.
const FIELDS: usize = 100;

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
    /// Fields that stay lines.
    pub(super) lines: Lines,
    /// Its body.
    pub(super) rest: Rest,
    /// Another request may follow.
    pub(super) keeps: bool,
}

/// What the bytes where an answer should begin are.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "nearly all heads come whole, and are taken apart at once")]
pub(super) enum Read {
    /// Not yet a whole head.
    Part,
    /// A head of so many bytes, which another one follows.
    Interim(usize),
    Whole(Head),
}

/// Reads the head at the start of `bytes`, whose first `checked` ones were here before. `lines_pass`: fields that
/// nobody reads stay lines.
///
/// # Errors
/// When it is none.
pub(super) fn read(bytes: &Bytes, checked: usize, asked: &Method, lines_pass: bool) -> Result<Read, Fault> {
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
    let mut headers = spare::take(parsed.headers.len());
    let at = |part: &str| part.as_ptr().addr() - bytes.as_ptr().addr();
    let mut lines = Lines::default();
    let mut lines_pass = lines_pass && !names_fields(parsed.headers);
    if lines_pass {
        lines = Lines::of(bytes.slice(..length));
    }
    for (field, next) in parsed.headers.iter().zip(1..) {
        if lines_pass && may_pass_back(field.name) {
            let end = parsed.headers.get(next).map_or(length - 2, |next| at(next.name));
            if lines.take(field.name, at(field.name)..end) {
                continue;
            }
            lines.give_up(&mut headers);
            lines_pass = false;
        }
        let name = HeaderName::from_bytes(field.name.as_bytes()).map_err(|_| Fault::Garbage)?;
        seen.look(&name, field.value)?;
        let value = HeaderValue::from_maybe_shared(bytes.slice_ref(field.value));
        headers.append(name, value.map_err(|_| Fault::Garbage)?);
    }
    let reason = parsed.reason.filter(|reason| Some(*reason) != status.canonical_reason());
    let reason = reason.and_then(|reason| ReasonPhrase::try_from(bytes.slice_ref(reason.as_bytes())).ok());
    let rest = seen.rest(minor, status, asked)?;
    let keeps = seen.keeps(minor) && status != StatusCode::SWITCHING_PROTOCOLS && !matches!(rest, Rest::UntilClose);
    let version = if minor == 1 { Version::HTTP_11 } else { Version::HTTP_10 };
    Ok(Read::Whole(Head { length, status, version, reason, headers, lines, rest, keeps }))
}

/// Whether `Connection` names fields that end at this hop.
fn names_fields(headers: &[httparse::Header<'_>]) -> bool {
    let is_plain = |value: &[u8]| value.eq_ignore_ascii_case(b"keep-alive") || value.eq_ignore_ascii_case(b"close");
    headers.iter().any(|field| field.name.eq_ignore_ascii_case("connection") && !is_plain(field.value))
}

/// Whether each line feed follows a carriage return, none of which stands alone, and a first line does not end at once.
/// The first `checked` bytes were found so before.
///
/// # Errors
/// When it is not so.
pub(super) fn lines_end(head: &[u8], checked: usize) -> Result<(), Fault> {
    let fresh = &head[checked.saturating_sub(1).min(head.len())..];
    let begins_well = !head.starts_with(b"\n") && !head.starts_with(b"\r\n");
    if begins_well && all_line_feeds_follow_returns(fresh) { Ok(()) } else { Err(Fault::Garbage) }
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

/// A number in decimal digits that fits.
pub(super) fn number(value: &[u8]) -> Option<u64> {
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
                match read(&bytes, checked, &Method::GET, false).ok()? {
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
        match read(&Bytes::copy_from_slice(text.as_bytes()), 0, asked, false) {
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
}
