//! One request that HAProxy asks about, and what it is told.

use std::fmt::Write as _;
use std::net::IpAddr;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, Uri, Version, header, request};

use super::frame::{self, Set};
use super::value::{Malformed, Pair, Reader, Value};
use crate::gate::head::Bad;
use crate::grpc;
use crate::headers::{X_FORWARDED_FOR, X_REQUEST_ID};
use crate::reject::DECISION;

/// The message with a request's head in its arguments.
const MESSAGE: &[u8] = b"tidegate";

/// A request's head. `None`: HAProxy asks about something else.
///
/// # Errors
/// What was sent is no list of messages.
pub(super) fn read(payload: &[u8]) -> Result<Option<Result<request::Parts, Bad>>, Malformed> {
    Ok(frame::arguments(payload, MESSAGE)?.map(|arguments| head(&arguments)))
}

fn head(arguments: &[Pair<'_>]) -> Result<request::Parts, Bad> {
    let (mut parts, ()) = Request::new(()).into_parts();
    let (mut path, mut id, mut source) = (None, None, None);
    for (name, value) in arguments {
        match (*name, *value) {
            (b"method", Value::Bytes(method)) => {
                parts.method = Method::from_bytes(method).map_err(|_| Bad::Syntax)?;
            }
            (b"path", value) => path = value.bytes(),
            (b"headers", Value::Bytes(fields)) => parts.headers = read_fields(fields).ok_or(Bad::Syntax)?,
            (b"id", value) => id = value.bytes(),
            (b"src", Value::Ip(address)) => source = Some(address),
            _ => {}
        }
    }
    parts.uri = Uri::try_from(path.ok_or(Bad::Target)?).map_err(|_| Bad::Target)?;
    if !parts.headers.contains_key(header::HOST) {
        // Others must name one; HAProxy has let it pass.
        parts.version = Version::HTTP_10;
    }
    // By this id its end will be told, whatever the client calls it.
    match id.and_then(|id| HeaderValue::from_bytes(id).ok()) {
        Some(id) => parts.headers.insert(X_REQUEST_ID, id),
        None => parts.headers.remove(X_REQUEST_ID),
    };
    if let Some(value) = source.and_then(address_value) {
        parts.headers.append(X_FORWARDED_FOR, value);
    }
    Ok(parts)
}

fn address_value(address: IpAddr) -> Option<HeaderValue> {
    HeaderValue::from_str(&address.to_canonical().to_string()).ok()
}

/// `req.hdrs_bin`: names and values in turn, and two empty ones at the end.
fn read_fields(bytes: &[u8]) -> Option<HeaderMap> {
    let mut reader = Reader(bytes);
    let mut map = HeaderMap::new();
    loop {
        let (name, value) = (reader.bytes().ok()?, reader.bytes().ok()?);
        if name.is_empty() {
            return Some(map);
        }
        let value = HeaderValue::from_bytes(value).ok()?;
        map.try_append(HeaderName::from_bytes(name).ok()?, value).ok()?;
    }
}

/// What HAProxy is told instead of this answer to the client.
pub(super) fn refusal(head: &Response<()>, body: Bytes) -> Vec<(&'static str, Set)> {
    // gRPC takes a 503 for `UNAVAILABLE`.
    let is_grpc = grpc::status(head.headers()).is_some();
    let status = if is_grpc { 503 } else { head.status().as_u16() };
    let mut told = vec![("status", Set::Number(status.into()))];
    let names = [(header::RETRY_AFTER, "retry_after"), (DECISION, "decision"), (header::CONTENT_TYPE, "type")];
    let fields = names.into_iter().filter_map(|(field, name)| Some((head.headers().get(field)?, name)));
    told.extend(fields.filter(|(_, name)| !is_grpc || *name != "type").map(|(value, name)| (name, text(value))));
    if !body.is_empty() {
        // The last: a page that is too large is left out.
        told.push(("body", Set::Text(one_line(body, head.headers().get(header::CONTENT_TYPE)))));
    }
    told
}

/// A page as one line of ASCII, as far as its type has a way to say the rest: by a log format, which is how HAProxy
/// gives it out, it would say `%0A`.
fn one_line(page: Bytes, kind: Option<&HeaderValue>) -> Bytes {
    let page = page.slice_ref(page.trim_ascii());
    if page.iter().all(|byte| matches!(byte, b' '..=b'~')) {
        return page;
    }
    let is = |name: &str| kind.and_then(|kind| kind.to_str().ok()).is_some_and(|kind| kind.contains(name));
    let (is_html, is_json) = (is("html"), is("json"));
    let mut line = String::with_capacity(page.len());
    for letter in String::from_utf8_lossy(&page).chars() {
        // Writing to a text does not fail.
        let _ = match letter {
            ' '..='~' => line.write_char(letter),
            _ if letter.is_ascii() => line.write_char(' '),
            _ if is_html => write!(line, "&#{};", u32::from(letter)),
            _ if is_json => letter.encode_utf16(&mut [0; 2]).iter().try_for_each(|unit| write!(line, "\\u{unit:04x}")),
            _ => line.write_char(letter),
        };
    }
    line.into()
}

/// What is to be another in the request than it was: `path`, where rules have read another than came; `quality`.
pub(super) fn changes(came: &Uri, read: &Uri, quality: Option<HeaderValue>) -> Vec<(&'static str, Set)> {
    let path = read.path_and_query().filter(|path| Some(*path) != came.path_and_query());
    let path = path.map(|path| ("path", Set::Text(Bytes::copy_from_slice(path.as_str().as_bytes()))));
    path.into_iter().chain(quality.map(|value| ("quality", text(&value)))).collect()
}

/// The value of a field.
pub(super) fn text(value: &HeaderValue) -> Set {
    Set::Text(Bytes::copy_from_slice(value.as_bytes()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::value::{put_bytes, put_text};
    use super::*;

    /// A message with these arguments, all of them text, and an address.
    fn message(arguments: &[(&str, &[u8])]) -> Vec<u8> {
        let mut out = Vec::new();
        put_bytes(&mut out, MESSAGE);
        out.push(arguments.len() as u8 + 1);
        for (name, value) in arguments {
            put_bytes(&mut out, name.as_bytes());
            put_text(&mut out, value);
        }
        out.extend(b"\x03src\x06\xc0\x00\x02\x07");
        out
    }

    fn asked(arguments: &[(&str, &[u8])]) -> Result<request::Parts, Bad> {
        read(&message(arguments)).expect("it can be read").expect("it is the message")
    }

    const FIELDS: &[u8] = b"\x04host\x04shop\x0fx-forwarded-for\x04fake\x0cx-request-id\x03own\x00\x00";

    /// `headers` as HAProxy 2.6 sent them.
    #[test]
    fn a_head_is_as_the_client_sent_it_with_whose_it_is() {
        let parts =
            asked(&[("id", b"7-a"), ("method", b"POST"), ("path", b"/a?b"), ("headers", FIELDS)]).expect("a head");
        assert_eq!((parts.method.as_str(), parts.uri.to_string().as_str()), ("POST", "/a?b"));
        assert_eq!(
            (&parts.headers["host"], &parts.headers["x-request-id"]),
            (&"shop".parse().unwrap(), &"7-a".parse().unwrap())
        );
        let forwarded: Vec<_> = parts.headers.get_all(X_FORWARDED_FOR).iter().collect();
        assert_eq!(forwarded, ["fake", "192.0.2.7"]);
        let parts = asked(&[("path", b"/"), ("headers", b"\x00\x00")]).expect("a head");
        assert_eq!((parts.method, parts.version), (Method::GET, Version::HTTP_10));
        assert!(!parts.headers.contains_key(X_REQUEST_ID));
    }

    #[test]
    fn what_is_no_head_is_refused_and_what_is_no_question_passes() {
        for arguments in [
            &[("method", &b"G T"[..]), ("path", b"/")][..],
            &[("headers", FIELDS)],
            &[("path", b"a b"), ("headers", FIELDS)],
            &[("path", b"/"), ("headers", b"\x04host\x04sho")],
            &[("path", b"/"), ("headers", b"\x04ho t\x04shop\x00\x00")],
            &[("path", b"/"), ("headers", b"\x04host\x04sh\x0ap\x00\x00")],
        ] {
            assert!(asked(arguments).is_err(), "{arguments:?}");
        }
        assert!(matches!(read(b"\x05other\x00"), Ok(None)));
        assert!(read(b"\x05othe").is_err());
    }

    #[test]
    fn a_refusal_is_told_in_variables() {
        let answer = Response::builder().status(429).header("retry-after", "3").header("content-type", "text/html");
        let told = refusal(&answer.body(()).expect("a head"), Bytes::from_static(b"later"));
        let word = |text: &'static str| Set::Text(Bytes::from_static(text.as_bytes()));
        let page = [("retry_after", word("3")), ("type", word("text/html")), ("body", word("later"))];
        assert_eq!(told, [&[("status", Set::Number(429))][..], &page].concat());
        let answer = Response::builder().header("grpc-status", "14").header("content-type", "application/grpc");
        let told = refusal(&answer.body(()).expect("a head"), Bytes::new());
        assert_eq!(told, [("status", Set::Number(503))]);
    }

    #[test]
    fn a_page_is_one_line() {
        let line = |page: &'static str, kind| {
            one_line(Bytes::from_static(page.as_bytes()), Some(&HeaderValue::from_static(kind)))
        };
        assert_eq!(line("a\tb\r\n\n", "text/plain"), "a b");
        assert_eq!(line("<p>\nzurück</p>", "text/html; charset=utf-8"), "<p> zur&#252;ck</p>");
        assert_eq!(line("{\"a\":\n\"ü😀\"}", "application/json"), r#"{"a": "\u00fc\ud83d\ude00"}"#);
        assert_eq!(line("zurück\n", "text/plain"), "zurück");
    }

    proptest! {
        #[test]
        fn nothing_breaks_it(bytes: Vec<u8>, fields: Vec<u8>, path: Vec<u8>) {
            let _ = read(&bytes);
            let _ = read_fields(&fields);
            let _ = asked(&[("path", &path), ("method", &path), ("id", &fields), ("headers", &fields)]);
        }
    }
}
