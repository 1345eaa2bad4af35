//! A request that is all here, read where it lies: plain, without a body. The service gets it from the gate, and hyper
//! never hears of it.

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method, Request, Uri, Version, request};

use super::head::{Framing, Head};
use crate::headers::lines::{Lines, may_pass};
use crate::headers::spare;

/// Room for the fields that servers get besides the client's own.
const ADDED: usize = 6;

/// A plain request without a body.
#[derive(Debug)]
pub(crate) struct Whole {
    /// What it asks for.
    pub(crate) parts: request::Parts,
    /// The fields that go on as they came.
    pub(crate) lines: Lines,
    /// Its client wants the connection closed after the answer.
    pub(crate) close: bool,
}

impl Whole {
    /// The request whose head is at the beginning of `input`; `None`: it takes hyper. `lines_pass`: fields that nobody
    /// reads stay lines. Who wants trailers may get them
    /// only from there.
    pub(super) fn of(head: &Head<'_, '_>, input: &[u8], mut lines_pass: bool) -> Option<Box<Whole>> {
        if !head.plain || head.framing != Framing::None || head.header("te").is_some() {
            return None;
        }
        let bytes = Bytes::copy_from_slice(&input[..head.len]);
        // Fields share the head's bytes.
        let at = |part: &[u8]| part.as_ptr().addr() - input.as_ptr().addr();
        let shared = |part: &[u8]| bytes.slice(at(part)..at(part) + part.len());
        let mut lines = Lines::of(bytes.clone());
        let mut headers = spare::take(head.headers.len() + ADDED);
        for (field, next) in head.headers.iter().zip(1..) {
            if lines_pass && may_pass(field.name) {
                let end = head.headers.get(next).map_or(head.len - 2, |next| at(next.name.as_bytes()));
                if lines.take(field.name, at(field.name.as_bytes())..end) {
                    continue;
                }
                lines.give_up(&mut headers);
                lines_pass = false;
            }
            let name = HeaderName::from_bytes(field.name.as_bytes()).ok()?;
            headers.append(name, HeaderValue::from_maybe_shared(shared(field.value)).ok()?);
        }
        let (mut parts, ()) = Request::new(()).into_parts();
        parts.method = Method::from_bytes(head.method.as_bytes()).ok()?;
        parts.uri = Uri::from_maybe_shared(shared(head.target.as_bytes())).ok()?;
        parts.version = Version::HTTP_11;
        parts.headers = headers;
        Some(Box::new(Whole { parts, lines, close: head.close }))
    }
}

#[cfg(test)]
mod tests {
    use super::super::head::{Examined, HeadLimits, examine, header_table};
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;
    use tidegate_classify::Paths;

    fn read(text: &str) -> Option<Box<Whole>> {
        let limits = HeadLimits { bytes: 4096, headers: 20, body: None, paths: Paths::Strict };
        match examine(text.as_bytes(), &mut header_table(), &limits) {
            Examined::Whole(head) => Whole::of(&head, text.as_bytes(), true),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_plain_request_is_read_as_it_was_sent() {
        let whole = read("PUT /a?b=c HTTP/1.1\r\nHost: x\r\nA: 1 \r\nContent-Length: 0\r\na:2\r\nEmpty:\r\n\r\nnext");
        let Whole { parts, close, .. } = *whole.expect("it is plain");
        assert_eq!((parts.method, parts.uri.to_string().as_str(), close), (Method::PUT, "/a?b=c", false));
        let fields: Vec<_> = parts.headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
        let wanted = [("host", "x"), ("a", "1"), ("a", "2"), ("content-length", "0"), ("empty", "")];
        assert_eq!(fields, wanted.map(|(name, value)| (name, value.as_bytes())));
    }

    #[test]
    fn fields_that_nobody_reads_stay_lines() {
        let text = "GET / HTTP/1.1\r\nUser-Agent: a\r\nACCEPT-encoding:b \r\nHost: x\r\nUser_Agent: c\r\nReferer: d\r\n\r\nnext";
        let whole = read(text).expect("it is plain");
        let mut written = Vec::new();
        whole.lines.write(&mut written);
        assert_eq!(written, b"User-Agent: a\r\nACCEPT-encoding:b \r\nReferer: d\r\n");
        assert!(whole.parts.headers.keys().eq(["host", "user_agent"]), "{:?}", whole.parts.headers);
    }

    proptest! {
        /// Whichever way a field takes, it goes on once, with its value, behind those of its name that came before it.
        #[test]
        fn no_field_is_lost_or_changed(fields in vec((0..NAMES.len(), "[ -~]{0,20}", any::<bool>()), 0..19)) {
            let mut text = "GET / HTTP/1.1\r\nHost: x\r\n".to_owned();
            for (name, value, loud) in &fields {
                let name = NAMES[*name];
                let name = if *loud { name.to_ascii_uppercase() } else { name.to_owned() };
                text.push_str(&format!("{name}:{value}\r\n"));
            }
            text.push_str("\r\n");
            let limits = HeadLimits { bytes: 4096, headers: 20, body: None, paths: Paths::Strict };
            let of = |lines_pass| match examine(text.as_bytes(), &mut header_table(), &limits) {
                Examined::Whole(head) => Whole::of(&head, text.as_bytes(), lines_pass),
                _ => None,
            };
            let (Some(with), Some(without)) = (of(true), of(false)) else { return Ok(()) };
            prop_assert!(with.parts.headers.contains_key("host"));
            let mut headers = with.parts.headers.clone();
            with.lines.add_to(&mut headers);
            prop_assert_eq!(headers, without.parts.headers);
        }
    }

    const NAMES: [&str; 8] =
        ["user-agent", "cookie", "if-none-match", "x-own", "x-forwarded-for", "priority", "accept", "sec-gpc"];

    #[test]
    fn what_takes_hyper_is_left_to_it() {
        let close = read("GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        assert!(close.is_some_and(|whole| whole.close));
        for fields in ["TE: trailers\r\n", "Content-Length: 3\r\n", "Connection: upgrade\r\nUpgrade: a\r\n"] {
            assert!(read(&format!("GET / HTTP/1.1\r\nHost: x\r\n{fields}\r\nabc")).is_none(), "{fields}");
        }
    }
}
