//! What gRPC adds to HTTP/2: messages behind a prefix, statuses in trailers, deadlines and tries in header fields.
//!
//! *Source.* The documents `PROTOCOL-HTTP2`, `http-grpc-status-mapping` and proposal A6 (retries) of the gRPC authors.

use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use http::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, TE};
use http::{Method, Request};

/// The field of an answer's end that says how it went.
pub const STATUS: HeaderName = HeaderName::from_static("grpc-status");
/// The field in which a retry says how many tries were before it.
pub(crate) const PREVIOUS_ATTEMPTS: HeaderName = HeaderName::from_static("grpc-previous-rpc-attempts");
const PUSHBACK: HeaderName = HeaderName::from_static("grpc-retry-pushback-ms");
const TIMEOUT: HeaderName = HeaderName::from_static("grpc-timeout");
const GRPC: HeaderValue = HeaderValue::from_static("application/grpc");

pub(crate) const UNKNOWN: u8 = 2;

/// Bytes before each message: whether it is compressed, and how long it is.
pub const PREFIX: usize = 5;

/// The smallest message that is not empty.
pub const SMALLEST: usize = 7;

/// The length that a message of `bytes` bytes really has: none is between 0 and [`SMALLEST`].
pub fn length(bytes: u64) -> u64 {
    if bytes == 0 { 0 } else { bytes.max(SMALLEST as u64) }
}

/// What goes before a message of this length.
pub fn prefix(length: u64) -> [u8; PREFIX] {
    let mut prefix = [0; PREFIX];
    prefix[1..].copy_from_slice(&u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes());
    prefix
}

/// The beginning of a message of `length` bytes, one of [`length()`]: the rest may be anything. Every program reads it,
/// whatever message it expects, for it is one field that nobody knows (number 2000), and fields that are not known
/// are skipped. The field's length is written in as many bytes for all.
pub fn opening(length: u64) -> Bytes {
    if length == 0 {
        return Bytes::new();
    }
    let rest = length.saturating_sub(SMALLEST as u64);
    let mut opening = vec![0x82, 0x7d];
    opening.extend((0..5).map(|at| ((rest >> (7 * at)) & 0x7f) as u8 | if at < 4 { 0x80 } else { 0 }));
    opening.into()
}

/// A message of `bytes` bytes, or [`length()`] of them, that every service can read.
pub fn message(bytes: u64) -> Bytes {
    let length = length(bytes) as usize;
    let mut message = BytesMut::with_capacity(length);
    message.extend_from_slice(&opening(length as u64));
    message.put_bytes(b'.', length - message.len());
    message.freeze()
}

/// The body of a call with this message.
pub(crate) fn framed(message: &[u8]) -> Bytes {
    [&prefix(message.len() as u64)[..], message].concat().into()
}

/// Makes a call of a request, whose body is framed already.
pub(crate) fn fit<B>(request: &mut Request<B>) {
    *request.method_mut() = Method::POST;
    let headers = request.headers_mut();
    let says = |headers: &HeaderMap| {
        headers.get(CONTENT_TYPE).is_some_and(|value| value.as_bytes().starts_with(b"application/grpc"))
    };
    if !says(headers) {
        headers.insert(CONTENT_TYPE, GRPC);
    }
    headers.insert(TE, HeaderValue::from_static("trailers"));
}

/// Says how long the client still waits, at least a microsecond.
pub(crate) fn say_timeout(headers: &mut HeaderMap, left: Duration) {
    // Eight digits at most, so the unit grows with the time.
    let (amount, unit) = match left.as_micros().max(1) {
        us @ ..100_000_000 => (us, 'u'),
        us if us / 1000 < 100_000_000 => (us / 1000, 'm'),
        us => ((us / 1_000_000).min(99_999_999), 'S'),
    };
    if let Ok(value) = HeaderValue::from_str(&format!("{amount}{unit}")) {
        headers.insert(TIMEOUT, value);
    }
}

/// How it went, where that is said.
pub(crate) fn status(headers: &HeaderMap) -> Option<u8> {
    let value = headers.get(STATUS)?;
    // Who says something that is no status has said that it is over.
    Some(value.to_str().ok().and_then(|text| text.parse().ok()).unwrap_or(UNKNOWN))
}

/// When to try again: at once where nothing is said, and never (`None`) where that is said.
pub(crate) fn pushback(headers: &HeaderMap) -> Option<Duration> {
    let Some(value) = headers.get(PUSHBACK) else { return Some(Duration::ZERO) };
    let milliseconds = value.to_str().ok().and_then(|text| text.parse::<i64>().ok());
    // What makes no sense means never, as A6 has it.
    milliseconds.and_then(|ms| u64::try_from(ms).ok()).map(Duration::from_millis)
}

/// What gRPC takes an answer for that has no status of its own.
pub fn of_http(status: u16) -> u8 {
    match status {
        400 => 13,
        401 => 16,
        403 => 7,
        404 => 12,
        429 | 502..=504 => 14,
        _ => UNKNOWN,
    }
}

/// What HTTP would say.
pub(crate) fn as_http(status: u8) -> u16 {
    match status {
        0 => 200,
        1 => 499,
        3 | 9 | 11 => 400,
        4 => 504,
        5 => 404,
        6 | 10 => 409,
        7 => 403,
        8 => 429,
        12 => 501,
        14 => 503,
        16 => 401,
        _ => 500,
    }
}

/// The status in gRPC's words.
pub(crate) fn words(status: u8) -> &'static str {
    const WORDS: [&str; 17] = [
        "OK",
        "CANCELLED",
        "UNKNOWN",
        "INVALID_ARGUMENT",
        "DEADLINE_EXCEEDED",
        "NOT_FOUND",
        "ALREADY_EXISTS",
        "PERMISSION_DENIED",
        "RESOURCE_EXHAUSTED",
        "FAILED_PRECONDITION",
        "ABORTED",
        "OUT_OF_RANGE",
        "UNIMPLEMENTED",
        "INTERNAL",
        "UNAVAILABLE",
        "DATA_LOSS",
        "UNAUTHENTICATED",
    ];
    WORDS.get(usize::from(status)).copied().unwrap_or("no status of gRPC")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads one field with a length, as every reader of protocol buffers does.
    fn varint(bytes: &mut &[u8]) -> u64 {
        let mut value = 0;
        for at in 0.. {
            let byte = bytes[0];
            *bytes = &bytes[1..];
            value |= u64::from(byte & 0x7f) << (7 * at);
            if byte < 0x80 {
                return value;
            }
        }
        unreachable!()
    }

    #[test]
    fn messages_have_the_length_that_was_asked_for_and_one_field() {
        for bytes in [0, 7, 8, 134, 135, 300, 70_000] {
            let message = message(bytes);
            assert_eq!((message.len() as u64, length(bytes)), (bytes, bytes));
            let mut rest = &message[..];
            if bytes > 0 {
                assert_eq!(varint(&mut rest), 2000 << 3 | 2, "field 2000, with a length");
                assert_eq!(varint(&mut rest), rest.len() as u64);
            }
        }
        assert_eq!((message(3).len(), length(3)), (SMALLEST, 7));
        assert_eq!(&framed(b"ab")[..], b"\0\0\0\0\x02ab");
    }

    #[test]
    fn times_fit_into_eight_digits() {
        let said = |left| {
            let mut headers = HeaderMap::new();
            say_timeout(&mut headers, left);
            headers[TIMEOUT].to_str().expect("text").to_owned()
        };
        for (left, text) in [
            (Duration::ZERO, "1u"),
            (Duration::from_millis(500), "500000u"),
            (Duration::from_micros(99_999_999), "99999999u"),
            (Duration::from_secs(100), "100000m"),
            (Duration::from_secs(200_000), "200000S"),
            (Duration::MAX, "99999999S"),
        ] {
            assert_eq!(said(left), text);
        }
    }

    #[test]
    fn every_status_has_words_and_both_ways_agree_on_unavailable() {
        assert_eq!((words(0), words(14), words(16), words(17)), ("OK", "UNAVAILABLE", "UNAUTHENTICATED", words(99)));
        assert_eq!((as_http(of_http(503)), as_http(0)), (503, 200));
    }
}
