//! Netlink messages as bytes: attributes are length, type and value, and begin at multiples of four bytes.

/// A message, or several in a row, being written.
#[derive(Debug, Default)]
pub(crate) struct Writer {
    bytes: Vec<u8>,
}

/// An attribute that has others in it.
const NESTED: u16 = 0x8000;
/// The bits of a type that are not flags.
const TYPE: u16 = 0x3fff;

impl Writer {
    /// A message: header, family, `resource` (in network order), and what `body` adds.
    pub(crate) fn message(
        &mut self,
        kind: u16,
        flags: u16,
        sequence: u32,
        family: u8,
        resource: u16,
        body: impl FnOnce(&mut Self),
    ) {
        let start = self.bytes.len();
        self.put(&0u32.to_ne_bytes());
        self.put(&kind.to_ne_bytes());
        self.put(&flags.to_ne_bytes());
        self.put(&sequence.to_ne_bytes());
        self.put(&0u32.to_ne_bytes());
        self.put(&[family, 0]);
        self.put(&resource.to_be_bytes());
        body(self);
        let length = (self.bytes.len() - start) as u32;
        self.bytes[start..start + 4].copy_from_slice(&length.to_ne_bytes());
    }

    /// An attribute with these bytes.
    pub(crate) fn attribute(&mut self, kind: u16, value: &[u8]) {
        self.put(&(4 + value.len() as u16).to_ne_bytes());
        self.put(&kind.to_ne_bytes());
        self.put(value);
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }

    /// Text, which ends with a zero.
    pub(crate) fn text(&mut self, kind: u16, text: &str) {
        self.attribute(kind, &[text.as_bytes(), &[0]].concat());
    }

    /// A number in network order.
    pub(crate) fn u32(&mut self, kind: u16, value: u32) {
        self.attribute(kind, &value.to_be_bytes());
    }

    /// The same with 64 bits.
    pub(crate) fn u64(&mut self, kind: u16, value: u64) {
        self.attribute(kind, &value.to_be_bytes());
    }

    /// An attribute that has others in it.
    pub(crate) fn nested(&mut self, kind: u16, inside: impl FnOnce(&mut Self)) {
        let start = self.bytes.len();
        self.put(&[0; 2]);
        self.put(&(kind | NESTED).to_ne_bytes());
        inside(self);
        let length = (self.bytes.len() - start) as u16;
        self.bytes[start..start + 2].copy_from_slice(&length.to_ne_bytes());
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    fn put(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }
}

/// A message of an answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Received<'a> {
    pub(crate) kind: u16,
    pub(crate) sequence: u32,
    /// What follows the header.
    pub(crate) body: &'a [u8],
}

/// The messages in what was received; ends at the first that is not whole.
pub(crate) fn messages(mut bytes: &[u8]) -> impl Iterator<Item = Received<'_>> {
    std::iter::from_fn(move || {
        let length = u32::from_ne_bytes(bytes.get(..4)?.try_into().ok()?) as usize;
        let message = bytes.get(..length).filter(|message| message.len() >= 16)?;
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some(Received {
            kind: u16::from_ne_bytes(message[4..6].try_into().ok()?),
            sequence: u32::from_ne_bytes(message[8..12].try_into().ok()?),
            body: &message[16..],
        })
    })
}

/// The attributes in a row: type and value. Ends at the first that is not whole.
pub(crate) fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let length = usize::from(u16::from_ne_bytes(bytes.get(..2)?.try_into().ok()?));
        let kind = u16::from_ne_bytes(bytes.get(2..4)?.try_into().ok()?) & TYPE;
        let value = bytes.get(4..length)?;
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, value))
    })
}

/// One attribute's value.
pub(crate) fn find(bytes: &[u8], kind: u16) -> Option<&[u8]> {
    attributes(bytes).find(|(found, _)| *found == kind).map(|(_, value)| value)
}

/// One attribute's text.
pub(crate) fn find_text(bytes: &[u8], kind: u16) -> Option<&str> {
    let value = find(bytes, kind)?;
    std::str::from_utf8(value.strip_suffix(&[0]).unwrap_or(value)).ok()
}

/// One attribute's number of 64 bits.
pub(crate) fn find_u64(bytes: &[u8], kind: u16) -> Option<u64> {
    Some(u64::from_be_bytes(find(bytes, kind)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_written_reads_back() {
        let mut writer = Writer::default();
        writer.message(7, 1, 42, 1, 0, |writer| {
            writer.text(1, "table");
            writer.nested(2, |writer| writer.u64(3, 1 << 40));
        });
        writer.message(8, 0, 43, 1, 0, |_| {});
        let read: Vec<_> = messages(writer.bytes()).collect();
        assert_eq!(read.iter().map(|m| (m.kind, m.sequence)).collect::<Vec<_>>(), [(7, 42), (8, 43)]);
        let body = &read[0].body[4..];
        assert_eq!(find_text(body, 1), Some("table"));
        assert_eq!(find_u64(find(body, 2).expect("it is there"), 3), Some(1 << 40));
        assert_eq!(find(body, 9), None);
    }

    proptest! {
        #[test]
        fn any_bytes_do_no_harm(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(messages(&bytes).take(1000).count() <= bytes.len() / 16);
            prop_assert!(attributes(&bytes).take(1000).count() <= bytes.len() / 4);
            let _ = find_text(&bytes, 1);
        }
    }
}
