//! The messages of `grpc.health.v1`: few enough to be written and read by hand.

use bytes::{BufMut, Bytes, BytesMut};

/// The path of the call.
pub(crate) const PATH: &str = "/grpc.health.v1.Health/Check";

/// The longest answer that is read: one field, the length before it, and whatever a later version may add.
pub(super) const LONGEST: usize = 1024;

/// What a service says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Serving {
    /// It serves.
    Yes,
    /// It does not, in its own word.
    No(&'static str),
}

/// The request for a service's health, behind its length: `string service = 1`.
pub(super) fn request(service: &str) -> Bytes {
    let mut message = BytesMut::new();
    if !service.is_empty() {
        message.put_u8(0x0a);
        put_varint(&mut message, service.len() as u64);
        message.put_slice(service.as_bytes());
    }
    let mut out = BytesMut::with_capacity(5 + message.len());
    out.put_u8(0);
    out.put_u32(message.len() as u32);
    out.put_slice(&message);
    out.freeze()
}

/// What an answer says, `ServingStatus status = 1`; `None`: it is none.
pub(super) fn answer(bytes: &[u8]) -> Option<Serving> {
    // What is left out is 0.
    let mut status = 0;
    fields(message(bytes)?, |number, value| {
        if let (1, Value::Number(value)) = (number, value) {
            status = value;
        }
    })?;
    Some(match status {
        1 => Serving::Yes,
        0 => Serving::No("UNKNOWN"),
        2 => Serving::No("NOT_SERVING"),
        3 => Serving::No("SERVICE_UNKNOWN"),
        _ => Serving::No("a status of a later version"),
    })
}

/// The service for whose health is asked, empty for all; `None`: it is no such request.
pub(crate) fn asked(bytes: &[u8]) -> Option<&str> {
    let mut service = &b""[..];
    fields(message(bytes)?, |number, value| {
        if let (1, Value::Bytes(value)) = (number, value) {
            service = value;
        }
    })?;
    std::str::from_utf8(service).ok()
}

/// The answer to it, behind its length.
pub(crate) fn says(serves: bool) -> Bytes {
    Bytes::from_static(if serves { b"\0\0\0\0\x02\x08\x01" } else { b"\0\0\0\0\x02\x08\x02" })
}

/// The one message that is there, not compressed.
pub(crate) fn message(bytes: &[u8]) -> Option<&[u8]> {
    let (&[compressed, a, b, c, d], message) = bytes.split_first_chunk::<5>()?;
    let length = u32::from_be_bytes([a, b, c, d]) as usize;
    (compressed == 0 && message.len() == length).then_some(message)
}

/// A field's value.
enum Value<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

/// Goes through a message's fields, with their numbers; `None`: it is none.
fn fields<'a>(mut rest: &'a [u8], mut take: impl FnMut(u64, Value<'a>)) -> Option<()> {
    while !rest.is_empty() {
        let (key, after) = varint(rest)?;
        rest = match key & 7 {
            0 => {
                let (value, after) = varint(after)?;
                take(key >> 3, Value::Number(value));
                after
            }
            1 => after.get(8..)?,
            2 => {
                let (length, after) = varint(after)?;
                let (value, after) = after.split_at_checked(usize::try_from(length).ok()?)?;
                take(key >> 3, Value::Bytes(value));
                after
            }
            5 => after.get(4..)?,
            _ => return None,
        };
    }
    Some(())
}

fn put_varint(out: &mut BytesMut, mut value: u64) {
    while value >= 0x80 {
        out.put_u8(value as u8 | 0x80);
        value >>= 7;
    }
    out.put_u8(value as u8);
}

fn varint(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let mut value = 0;
    for (at, byte) in bytes.iter().enumerate().take(10) {
        value |= u64::from(byte & 0x7f) << (7 * at);
        if byte & 0x80 == 0 {
            return Some((value, &bytes[at + 1..]));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_request_is_its_length_and_one_field() {
        assert_eq!(&request("")[..], b"\0\0\0\0\0");
        assert_eq!(&request("shop.Cart")[..], b"\0\0\0\0\x0b\x0a\x09shop.Cart");
        let long = request(&"x".repeat(300));
        assert_eq!(&long[..8], b"\0\0\0\x01\x2f\x0a\xac\x02");
    }

    #[test]
    fn an_answer_says_whether_it_serves() {
        assert_eq!(answer(b"\0\0\0\0\x02\x08\x01"), Some(Serving::Yes));
        assert_eq!(answer(b"\0\0\0\0\x02\x08\x02"), Some(Serving::No("NOT_SERVING")));
        assert_eq!(answer(b"\0\0\0\0\0"), Some(Serving::No("UNKNOWN")), "0 is left out");
        assert_eq!(answer(b"\0\0\0\0\x06\x12\x02ab\x08\x01"), Some(Serving::Yes), "another field before it");
        for bad in [&b""[..], b"\0\0\0\0", b"\x01\0\0\0\x02\x08\x01", b"\0\0\0\0\x03\x08\x01", b"\0\0\0\0\x01\x08"] {
            assert_eq!(answer(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn what_is_asked_is_read_back() {
        for service in ["", "shop.Cart", &"x".repeat(300)] {
            assert_eq!(asked(&request(service)), Some(service));
        }
        for bad in [&b""[..], b"\x01\0\0\0\0", b"\0\0\0\0\x02\x0a\x01", b"\0\0\0\0\x03\x0a\x01\xff"] {
            assert_eq!(asked(bad), None, "{bad:?}");
        }
        assert_eq!((answer(&says(true)), answer(&says(false))), (Some(Serving::Yes), Some(Serving::No("NOT_SERVING"))));
    }

    proptest! {
        #[test]
        fn any_answer_is_read(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            answer(&bytes);
            asked(&bytes);
        }
    }
}
