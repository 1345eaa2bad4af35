//! What gRPC says of a call's end, in a head without messages or in trailers; and how a message is sent.
//!
//! *Intuition.* By HTTP every call of gRPC succeeds: the status is 200, whatever came of it. What came of it is
//! `grpc-status`. A server that is overloaded says `UNAVAILABLE` after a millisecond; that is no answer, and a
//! millisecond is not what an answer costs. *Awkward cases.* `NOT_FOUND`, `PERMISSION_DENIED` and their like are
//! answers: somebody was told what is the case. `UNKNOWN` is what most libraries make of an exception, like 500 in
//! HTTP.

use std::fmt::Write as _;

use bytes::{BufMut, Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue, header};
use prost::Message;

const STATUS: HeaderName = HeaderName::from_static("grpc-status");
const MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
const PUSHBACK: HeaderName = HeaderName::from_static("grpc-retry-pushback-ms");

const CANCELLED: u8 = 1;
const UNKNOWN: u8 = 2;
pub(crate) const DEADLINE_EXCEEDED: u8 = 4;
pub(crate) const PERMISSION_DENIED: u8 = 7;
pub(crate) const RESOURCE_EXHAUSTED: u8 = 8;
pub(crate) const UNIMPLEMENTED: u8 = 12;
pub(crate) const INTERNAL: u8 = 13;
pub(crate) const UNAVAILABLE: u8 = 14;
const DATA_LOSS: u8 = 15;

/// The status, where there is one.
pub(crate) fn status(fields: &HeaderMap) -> Option<u8> {
    fields.get(STATUS)?.to_str().ok()?.parse().ok()
}

/// Whether a call that ended so was not answered: `CANCELLED`, `UNKNOWN`, `DEADLINE_EXCEEDED`, `RESOURCE_EXHAUSTED`,
/// `INTERNAL`, `UNAVAILABLE`, `DATA_LOSS`.
pub(crate) const fn is_failure(status: u8) -> bool {
    is_error(status) || matches!(status, CANCELLED | DEADLINE_EXCEEDED | RESOURCE_EXHAUSTED)
}

/// Whether it is held against the server as a 500 is: `UNKNOWN`, `INTERNAL`, `UNAVAILABLE`, `DATA_LOSS`. Not
/// `DEADLINE_EXCEEDED` and `CANCELLED`, which a client can cause at will.
pub(crate) const fn is_error(status: u8) -> bool {
    matches!(status, UNKNOWN | INTERNAL | UNAVAILABLE | DATA_LOSS)
}

/// A message as it is sent: not compressed, behind its length.
pub(crate) fn framed(message: &impl Message) -> Bytes {
    let length = message.encoded_len();
    let mut bytes = BytesMut::with_capacity(5 + length);
    bytes.put_u8(0);
    bytes.put_u32(u32::try_from(length).unwrap_or(u32::MAX));
    message.encode_raw(&mut bytes);
    bytes.freeze()
}

/// What a call is told that is over before it was answered: `message` in words, when it may be made again.
pub(crate) fn end(headers: &mut HeaderMap, status: u8, message: &str, push_back: PushBack) {
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    headers.insert(STATUS, HeaderValue::from(u16::from(status)));
    headers.insert(MESSAGE, HeaderValue::from_str(&percent(message)).unwrap_or(HeaderValue::from_static("")));
    match push_back {
        PushBack::Unsaid => {}
        PushBack::Never => _ = headers.insert(PUSHBACK, HeaderValue::from_static("-1")),
        PushBack::Milliseconds(milliseconds) => _ = headers.insert(PUSHBACK, HeaderValue::from(milliseconds)),
    }
}

/// When a call may be made again, by its client's own rules for that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PushBack {
    /// When the client thinks right.
    Unsaid,
    Never,
    Milliseconds(u32),
}

/// `grpc-message` is percent-encoded.
fn percent(text: &str) -> String {
    text.bytes().fold(String::new(), |mut out, byte| {
        match byte {
            b' '..=b'~' if byte != b'%' => out.push(byte as char),
            _ => {
                let _ = write!(out, "%{byte:02X}");
            }
        }
        out
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_numbers_are_statuses_and_only_some_are_failures() {
        let of = |value: &'static str| {
            status(&HeaderMap::from_iter([("grpc-status".parse().unwrap(), value.parse().unwrap())]))
        };
        assert_eq!(
            [of("0"), of("14"), of("x"), of("999"), status(&HeaderMap::new())],
            [Some(0), Some(14), None, None, None]
        );
        let failures: Vec<u8> = (0..20).filter(|status| is_failure(*status)).collect();
        assert_eq!(failures, [1, 2, 4, 8, 13, 14, 15]);
    }

    #[test]
    fn a_message_is_a_field() {
        let mut headers = HeaderMap::new();
        end(&mut headers, UNAVAILABLE, "a%\n", PushBack::Milliseconds(20));
        let fields: Vec<&str> = headers.values().filter_map(|value| value.to_str().ok()).collect();
        assert_eq!(fields, ["application/grpc", "14", "a%25%0A", "20"]);
        end(&mut headers, INTERNAL, "", PushBack::Never);
        assert_eq!((status(&headers), headers[PUSHBACK].as_bytes()), (Some(13), &b"-1"[..]));
    }
}
