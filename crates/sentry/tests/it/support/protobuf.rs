//! Just enough of protobuf's wire format to read what was said.

/// A field's value.
#[derive(Clone, Debug)]
pub enum Field {
    Number(u64),
    Bytes(Vec<u8>),
}

impl Field {
    #[track_caller]
    pub fn bytes(&self) -> &[u8] {
        match self {
            Field::Bytes(bytes) => bytes,
            Field::Number(number) => panic!("{number} is no message"),
        }
    }

    #[track_caller]
    pub fn number(&self) -> u64 {
        match self {
            Field::Number(number) => *number,
            Field::Bytes(bytes) => panic!("{} bytes are no number", bytes.len()),
        }
    }
}

/// The fields of a message with their numbers, in order.
pub fn fields(mut message: &[u8]) -> Vec<(u64, Field)> {
    let mut found = Vec::new();
    while !message.is_empty() {
        let tag = varint(&mut message);
        let field = match tag & 7 {
            0 => Field::Number(varint(&mut message)),
            1 => Field::Number(u64::from_le_bytes(take(&mut message, 8).try_into().expect("eight bytes"))),
            2 => {
                let length = varint(&mut message) as usize;
                Field::Bytes(take(&mut message, length).to_vec())
            }
            5 => Field::Number(u64::from(u32::from_le_bytes(take(&mut message, 4).try_into().expect("four bytes")))),
            other => panic!("wire type {other}"),
        };
        found.push((tag >> 3, field));
    }
    found
}

fn varint(message: &mut &[u8]) -> u64 {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let byte = take(message, 1)[0];
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return value;
        }
    }
    panic!("a number without an end")
}

fn take<'a>(message: &mut &'a [u8], length: usize) -> &'a [u8] {
    let (taken, rest) = message.split_at(length);
    *message = rest;
    taken
}
