//! Writing the head of a request.

use std::io::Write;

use http::header::{self, HeaderMap, HeaderName};
use http::{Uri, request};

use super::head::number;
use crate::gate::head::Framing;
use crate::headers::has_token;
use crate::headers::lines::Lines;
use crate::out::field;

/// What a request's head says of what follows it.
#[derive(Debug)]
pub(super) struct Said {
    pub(super) framing: Framing,
    /// The fields that may follow its chunks.
    pub(super) announced: Vec<HeaderName>,
    /// Another request may follow.
    pub(super) keeps: bool,
}

/// Writes a request's head, with those of its fields that stay `lines`. `length`: how long its body is, where there is
/// one; `Some(None)`: who knows.
pub(super) fn write(
    to: &mut Vec<u8>,
    parts: &request::Parts,
    lines: Option<&Lines>,
    length: Option<Option<u64>>,
) -> Said {
    let framing = frame(&parts.headers, length);
    to.extend_from_slice(parts.method.as_str().as_bytes());
    to.push(b' ');
    write_target(to, &parts.uri);
    to.extend_from_slice(b" HTTP/1.1\r\n");
    let (mut is_framed, mut keeps) = (false, true);
    for (name, value) in &parts.headers {
        if *name == header::CONNECTION {
            keeps &= !has_token(value.as_bytes(), b"close");
        }
        match (framing, name) {
            (Framing::Chunked, &header::TRANSFER_ENCODING) | (Framing::Length(_), &header::CONTENT_LENGTH) => {
                if std::mem::replace(&mut is_framed, true) {
                    continue;
                }
                write_framing(to, framing);
            }
            (_, &header::TRANSFER_ENCODING) | (Framing::Chunked, &header::CONTENT_LENGTH) => {}
            _ => field(to, name.as_str(), value.as_bytes()),
        }
    }
    if let Some(lines) = lines {
        lines.write(to);
    }
    if !is_framed {
        write_framing(to, framing);
    }
    to.extend_from_slice(b"\r\n");
    let announced = if framing == Framing::Chunked { announced(&parts.headers) } else { Vec::new() };
    Said { framing, announced, keeps }
}

/// What a body's length is said by.
fn frame(headers: &HeaderMap, length: Option<Option<u64>>) -> Framing {
    let Some(length) = length else { return Framing::None };
    let said = || headers.get(header::CONTENT_LENGTH).and_then(|value| number(value.as_bytes()));
    let known = if headers.contains_key(header::TRANSFER_ENCODING) { None } else { said().or(length) };
    known.map_or(Framing::Chunked, Framing::Length)
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

fn write_framing(to: &mut Vec<u8>, framing: Framing) {
    match framing {
        Framing::None => {}
        Framing::Length(length) => drop(write!(to, "content-length: {length}\r\n")),
        Framing::Chunked => field(to, "transfer-encoding", b"chunked"),
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The head of a request with these fields, and how its body is sent.
    fn written(method: &str, uri: &str, fields: &[(&str, &str)], length: Option<Option<u64>>) -> (String, Said) {
        let mut builder = http::Request::builder().method(method).uri(uri);
        for (name, value) in fields {
            builder = builder.header(*name, *value);
        }
        let (parts, ()) = builder.body(()).expect("a request").into_parts();
        let mut text = Vec::new();
        let said = write(&mut text, &parts, None, length);
        assert_eq!(said.keeps, !fields.contains(&("connection", "close")));
        (String::from_utf8(text).expect("text"), said)
    }

    #[test]
    fn a_request_s_head_is_written_as_it_is() {
        let (text, said) = written("GET", "/a?b=c", &[("host", "h"), ("X-Empty", ""), ("accept", "*/*")], None);
        assert_eq!(text, "GET /a?b=c HTTP/1.1\r\nhost: h\r\nx-empty: \r\naccept: */*\r\n\r\n");
        assert_eq!(said.framing, Framing::None);
        assert!(written("OPTIONS", "*", &[], None).0.starts_with("OPTIONS * HTTP/1.1\r\n"));
        assert!(written("GET", "/?", &[], None).0.starts_with("GET /? HTTP/1.1\r\n"));
        assert!(written("GET", "http://h/a?b", &[], None).0.starts_with("GET http://h/a?b HTTP/1.1\r\n"));
        let (text, _) = written("GET", "/", &[("transfer-encoding", "chunked"), ("content-length", "0")], None);
        assert_eq!(text, "GET / HTTP/1.1\r\ncontent-length: 0\r\n\r\n");
    }

    #[test]
    fn a_request_says_once_where_its_body_ends() {
        let post = |fields: &[(&str, &str)], length| written("POST", "/", fields, Some(length));
        let (text, said) = post(&[("content-length", "5"), ("x", "y")], Some(5));
        assert_eq!(text, "POST / HTTP/1.1\r\ncontent-length: 5\r\nx: y\r\n\r\n");
        assert_eq!(said.framing, Framing::Length(5));
        let (text, said) = post(&[("x", "y")], Some(7));
        assert_eq!(text, "POST / HTTP/1.1\r\nx: y\r\ncontent-length: 7\r\n\r\n");
        assert_eq!(said.framing, Framing::Length(7));
        for fields in [&[("transfer-encoding", "chunked"), ("content-length", "5"), ("trailer", "A, b,?")][..], &[]] {
            let (text, said) = post(fields, None);
            assert_eq!(text.matches("transfer-encoding: chunked\r\n").count(), 1, "{text}");
            assert!(!text.contains("content-length"), "{text}");
            assert_eq!(said.framing, Framing::Chunked, "{text}");
            assert_eq!(said.announced.len(), if fields.is_empty() { 0 } else { 2 });
        }
    }
}
