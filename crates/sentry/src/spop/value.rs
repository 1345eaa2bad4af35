//! What frames are made of: whole numbers of a length that varies, names, and values that say of what type they are.
//!
//! *Source.* HAProxy's `doc/SPOE.txt`, section 3.1; a number's first byte has four bits of it where it is 240 or more,
//! each that follows seven, the lowest first.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use bytes::BufMut;

/// What cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Malformed;

/// A value with its type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Value<'a> {
    Null,
    Bool(bool),
    /// Of 32 or 64 bits, with a sign or without; one below 0 is here as what it is without a sign.
    Number(u64),
    Ip(IpAddr),
    /// Text, or bytes.
    Bytes(&'a [u8]),
}

impl<'a> Value<'a> {
    pub(super) fn bytes(self) -> Option<&'a [u8]> {
        if let Value::Bytes(bytes) = self { Some(bytes) } else { None }
    }

    pub(super) fn number(self) -> Option<u64> {
        if let Value::Number(number) = self { Some(number) } else { None }
    }
}

// Types, in the lower four bits of the byte before a value.
const NULL: u8 = 0;
const BOOL: u8 = 1;
const INT32: u8 = 2;
const UINT32: u8 = 3;
const UINT64: u8 = 5;
const IPV4: u8 = 6;
const IPV6: u8 = 7;
const STRING: u8 = 8;
const BINARY: u8 = 9;

/// The bit beside the type by which a truth value is true.
const TRUE: u8 = 0x10;

/// A name, and the value that it has.
pub(super) type Pair<'a> = (&'a [u8], Value<'a>);

/// Bytes that are read from the first on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reader<'a>(pub(super) &'a [u8]);

impl<'a> Reader<'a> {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn byte(&mut self) -> Result<u8, Malformed> {
        self.take(1).map(|one| one[0])
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        self.take(N)?.try_into().map_err(|_| Malformed)
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or(Malformed)?;
        self.0 = rest;
        Ok(taken)
    }

    /// A whole number.
    pub(super) fn number(&mut self) -> Result<u64, Malformed> {
        let mut number = u64::from(self.byte()?);
        if number < 240 {
            return Ok(number);
        }
        for shift in (4..u64::BITS).step_by(7) {
            let byte = self.byte()?;
            let part = u64::from(byte);
            if (part << shift) >> shift != part {
                return Err(Malformed);
            }
            number = number.checked_add(part << shift).ok_or(Malformed)?;
            if byte < 0x80 {
                return Ok(number);
            }
        }
        Err(Malformed)
    }

    /// Bytes behind their number: a name, what a value has.
    pub(super) fn bytes(&mut self) -> Result<&'a [u8], Malformed> {
        let length = self.number()?;
        self.take(usize::try_from(length).map_err(|_| Malformed)?)
    }

    pub(super) fn value(&mut self) -> Result<Value<'a>, Malformed> {
        let first = self.byte()?;
        Ok(match first & 0x0f {
            NULL => Value::Null,
            BOOL => Value::Bool(first & TRUE != 0),
            INT32..=UINT64 => Value::Number(self.number()?),
            IPV4 => Value::Ip(Ipv4Addr::from(self.array::<4>()?).into()),
            IPV6 => Value::Ip(Ipv6Addr::from(self.array::<16>()?).into()),
            STRING | BINARY => Value::Bytes(self.bytes()?),
            _ => return Err(Malformed),
        })
    }

    /// The next pair.
    pub(super) fn pair(&mut self) -> Result<Pair<'a>, Malformed> {
        Ok((self.bytes()?, self.value()?))
    }
}

/// Writes a whole number.
pub(super) fn put_number(out: &mut impl BufMut, number: u64) {
    if number < 240 {
        return out.put_u8(number as u8);
    }
    out.put_u8(0xf0 | number as u8);
    let mut rest = (number - 240) >> 4;
    while rest >= 0x80 {
        out.put_u8(0x80 | rest as u8);
        rest = (rest - 0x80) >> 7;
    }
    out.put_u8(rest as u8);
}

/// Writes bytes behind their number.
pub(super) fn put_bytes(out: &mut impl BufMut, bytes: &[u8]) {
    put_number(out, bytes.len() as u64);
    out.put_slice(bytes);
}

/// Writes a value that is text.
pub(super) fn put_text(out: &mut impl BufMut, text: &[u8]) {
    out.put_u8(STRING);
    put_bytes(out, text);
}

/// Writes a value that is a number of 32 bits without a sign.
pub(super) fn put_uint32(out: &mut impl BufMut, number: u32) {
    out.put_u8(UINT32);
    put_number(out, number.into());
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(bytes: &[u8]) -> Result<u64, Malformed> {
        let mut reader = Reader(bytes);
        let number = reader.number();
        assert!(number.is_err() || reader.is_empty());
        number
    }

    /// The bounds of section 3.1, and the bytes by its pictures.
    #[test]
    fn numbers_are_as_the_specification_shows_them() {
        for (number, bytes) in [
            (0, &[0][..]),
            (239, &[239]),
            (240, &[0xf0, 0]),
            (255, &[0xff, 0]),
            (256, &[0xf0, 1]),
            (2287, &[0xff, 0x7f]),
            (2288, &[0xf0, 0x80, 0]),
            (16380, &[0xfc, 0xf0, 0x06]),
            (264_431, &[0xff, 0xff, 0x7f]),
            (264_432, &[0xf0, 0x80, 0x80, 0]),
            (33_818_864, &[0xf0, 0x80, 0x80, 0x80, 0]),
            (4_328_786_159, &[0xff, 0xff, 0xff, 0xff, 0x7f]),
        ] {
            let mut out = Vec::new();
            put_number(&mut out, number);
            assert_eq!((&*out, read(bytes)), (bytes, Ok(number)));
        }
        for bad in [
            &[][..],
            &[0xf0],
            &[0xf0, 0x80],
            &[0xff; 12],
            &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f],
        ] {
            assert_eq!(read(bad), Err(Malformed), "{bad:?}");
        }
    }

    #[test]
    fn values_say_of_what_type_they_are() {
        let value = |bytes: &'static [u8]| Reader(bytes).value();
        assert_eq!(value(&[0x00]), Ok(Value::Null));
        assert_eq!((value(&[0x01]), value(&[0x11])), (Ok(Value::Bool(false)), Ok(Value::Bool(true))));
        for kind in [2, 3, 4, 5] {
            assert_eq!(Reader(&[kind, 0xf0, 1]).value(), Ok(Value::Number(256)));
        }
        assert_eq!(value(&[6, 192, 0, 2, 1]), Ok(Value::Ip([192, 0, 2, 1].into())));
        assert_eq!(value(b"\x07\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x01"), Ok(Value::Ip(Ipv6Addr::LOCALHOST.into())));
        assert_eq!((value(b"\x08\x02ab"), value(b"\x09\x00")), (Ok(Value::Bytes(b"ab")), Ok(Value::Bytes(b""))));
        for bad in [&b"\x0a"[..], b"\x06\x01", b"\x08\x03ab", b"\x03", b""] {
            assert_eq!(Reader(bad).value(), Err(Malformed), "{bad:?}");
        }
        assert_eq!(Reader(b"\x01a\x03\x07").pair(), Ok((&b"a"[..], Value::Number(7))));
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(number: u64, small in 0..5000_u64, text: Vec<u8>, word: u32) {
            let mut out = Vec::new();
            put_number(&mut out, number);
            put_number(&mut out, small);
            put_text(&mut out, &text);
            put_uint32(&mut out, word);
            let mut reader = Reader(&out);
            prop_assert_eq!((reader.number(), reader.number()), (Ok(number), Ok(small)));
            prop_assert_eq!(reader.value(), Ok(Value::Bytes(&text)));
            prop_assert_eq!(reader.value(), Ok(Value::Number(word.into())));
            prop_assert!(reader.is_empty());
        }

        #[test]
        fn nothing_breaks_it(bytes: Vec<u8>) {
            let mut reader = Reader(&bytes);
            while !reader.is_empty() && reader.pair().is_ok() {}
        }
    }
}
