//! Frames: their heads, the two greetings, a question with its arguments, and what it is answered with.
//!
//! *Source.* HAProxy's `doc/SPOE.txt`, sections 3.2 to 3.5.

use bytes::{Buf, BufMut, Bytes, BytesMut};

use super::value::{Malformed, Pair, Reader, Value, put_bytes, put_number, put_text, put_uint32};

/// The largest frame that is read, bytes: what HAProxy's buffers hold if nothing else is said of them.
pub(super) const LARGEST: usize = 16_380;
/// Below this nobody may ask.
const SMALLEST: u64 = 256;
/// Before a frame its length is said.
const LENGTH: usize = 4;

/// What a frame has before its payload, at most, bytes: its kind, its flags, two numbers.
const HEAD_AT_MOST: usize = 1 + 4 + 2 * 10;

/// All of a message is in this frame.
const WHOLE: u32 = 1;

// What a frame is.
const HAPROXY_HELLO: u8 = 1;
const HAPROXY_DISCONNECT: u8 = 2;
const NOTIFY: u8 = 3;
const AGENT_HELLO: u8 = 101;
const AGENT_DISCONNECT: u8 = 102;
const ACK: u8 = 103;

/// `set-var`, which has three arguments.
const SET_VAR: [u8; 2] = [1, 3];
/// A variable is there for as long as the request.
const TRANSACTION: u8 = 2;

/// Why a connection ends, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Status {
    Normal = 0,
    TimedOut = 2,
    TooBig = 3,
    Invalid = 4,
    NoVersion = 5,
    NoFrameSize = 6,
    NoCapabilities = 7,
    BadVersion = 8,
    BadFrameSize = 9,
    Fragmented = 10,
}

impl Status {
    /// The same in the specification's words.
    const fn text(self) -> &'static str {
        match self {
            Status::Normal => "normal",
            Status::TimedOut => "a timeout occurred",
            Status::TooBig => "frame is too big",
            Status::Invalid => "invalid frame received",
            Status::NoVersion => "version value not found",
            Status::NoFrameSize => "max-frame-size value not found",
            Status::NoCapabilities => "capabilities value not found",
            Status::BadVersion => "unsupported version",
            Status::BadFrameSize => "max-frame-size too big or too small",
            Status::Fragmented => "payload fragmentation is not supported",
        }
    }
}

impl From<Malformed> for Status {
    fn from(_: Malformed) -> Self {
        Status::Invalid
    }
}

/// Whose question a frame has, and whose its answer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Of {
    pub(super) stream: u64,
    pub(super) frame: u64,
}

/// What HAProxy says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Heard {
    /// It greets: the largest frame that may be sent, bytes.
    Hello { largest: usize, is_check: bool },
    /// It is about to close.
    Disconnect,
    /// It asks.
    Notify(Of, Bytes),
    /// Nothing that is known here.
    Other,
}

/// Takes the next frame, once all of it is here; `most`: the largest, bytes.
///
/// # Errors
/// Why the connection is to end.
pub(super) fn next(read: &mut BytesMut, most: usize) -> Result<Option<Heard>, Status> {
    let Some(mut length) = read.get(..LENGTH) else { return Ok(None) };
    let length = length.get_u32() as usize;
    if length > most {
        return Err(Status::TooBig);
    }
    if read.len() < LENGTH + length {
        return Ok(None);
    }
    read.advance(LENGTH);
    understand(read.split_to(length).freeze()).map(Some)
}

fn understand(frame: Bytes) -> Result<Heard, Status> {
    let mut reader = Reader(&frame);
    let (kind, flags) = (reader.byte()?, u32::from_be_bytes(reader.array()?));
    let of = Of { stream: reader.number()?, frame: reader.number()? };
    // Parts that follow the first of several have no kind.
    if kind == 0 || (matches!(kind, HAPROXY_HELLO..=NOTIFY) && flags & WHOLE == 0) {
        return Err(Status::Fragmented);
    }
    match kind {
        HAPROXY_HELLO => greeting(reader),
        HAPROXY_DISCONNECT => Ok(Heard::Disconnect),
        NOTIFY => {
            let at = frame.len() - reader.0.len();
            Ok(Heard::Notify(of, frame.slice(at..)))
        }
        _ => Ok(Heard::Other),
    }
}

fn greeting(mut reader: Reader<'_>) -> Result<Heard, Status> {
    let (mut versions, mut largest, mut capabilities, mut is_check) = (None, None, None, false);
    while !reader.is_empty() {
        let (name, value) = reader.pair()?;
        match name {
            b"supported-versions" => versions = value.bytes(),
            b"max-frame-size" => largest = value.number(),
            b"capabilities" => capabilities = value.bytes(),
            b"healthcheck" => is_check = value == Value::Bool(true),
            _ => {}
        }
    }
    let versions = versions.ok_or(Status::NoVersion)?;
    let is_ours = |version: &[u8]| version.trim_ascii().starts_with(b"2.");
    if !versions.split(|&byte| byte == b',').any(is_ours) {
        return Err(Status::BadVersion);
    }
    let largest = largest.ok_or(Status::NoFrameSize)?;
    if largest < SMALLEST {
        return Err(Status::BadFrameSize);
    }
    capabilities.ok_or(Status::NoCapabilities)?;
    let largest = usize::try_from(largest).unwrap_or(LARGEST).min(LARGEST);
    Ok(Heard::Hello { largest, is_check })
}

/// The arguments of the first message that has a name; `None`: there is none.
///
/// # Errors
/// It cannot be read.
pub(super) fn arguments<'a>(payload: &'a [u8], message: &[u8]) -> Result<Option<Vec<Pair<'a>>>, Malformed> {
    let mut reader = Reader(payload);
    let mut found = None;
    while !reader.is_empty() {
        let (name, count) = (reader.bytes()?, reader.byte()?);
        let pairs = (0..count).map(|_| reader.pair()).collect::<Result<_, _>>()?;
        if name == message && found.is_none() {
            found = Some(pairs);
        }
    }
    Ok(found)
}

/// Answers a greeting.
pub(super) fn hello(out: &mut BytesMut, largest: usize) {
    framed(out, AGENT_HELLO, Of { stream: 0, frame: 0 }, |out| {
        put_bytes(out, b"version");
        put_text(out, b"2.0");
        put_bytes(out, b"max-frame-size");
        put_uint32(out, u32::try_from(largest).unwrap_or(u32::MAX));
        put_bytes(out, b"capabilities");
        put_text(out, b"pipelining");
    });
}

/// Says that the connection ends, and why.
pub(super) fn disconnect(out: &mut BytesMut, status: Status) {
    framed(out, AGENT_DISCONNECT, Of { stream: 0, frame: 0 }, |out| {
        put_bytes(out, b"status-code");
        put_uint32(out, status as u32);
        put_bytes(out, b"message");
        put_text(out, status.text().as_bytes());
    });
}

/// What a variable is to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Set {
    Number(u32),
    Text(Bytes),
}

/// Answers a question: variables that are to have values. Those that would make the frame larger than `most` are left
/// out.
pub(super) fn ack(out: &mut BytesMut, of: Of, variables: &[(&str, Set)], most: usize) {
    framed(out, ACK, of, |out| {
        let from = out.len();
        for (name, value) in variables {
            let before = out.len();
            out.put_slice(&SET_VAR);
            out.put_u8(TRANSACTION);
            put_bytes(out, name.as_bytes());
            match value {
                Set::Number(number) => put_uint32(out, *number),
                Set::Text(text) => put_text(out, text),
            }
            if HEAD_AT_MOST + out.len() - from > most {
                out.truncate(before);
            }
        }
    });
}

fn framed(out: &mut BytesMut, kind: u8, of: Of, payload: impl FnOnce(&mut BytesMut)) {
    let from = out.len();
    out.put_u32(0);
    out.put_u8(kind);
    out.put_u32(WHOLE);
    put_number(out, of.stream);
    put_number(out, of.frame);
    payload(out);
    let length = u32::try_from(out.len() - from - LENGTH).unwrap_or(u32::MAX);
    out[from..from + LENGTH].copy_from_slice(&length.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A frame with its length before it, and 0 for both numbers.
    fn frame(kind: u8, flags: u32, payload: &[u8]) -> BytesMut {
        let mut bytes = BytesMut::new();
        bytes.put_u32(7 + payload.len() as u32);
        bytes.put_u8(kind);
        bytes.put_u32(flags);
        bytes.put_slice(&[0, 0]);
        bytes.put_slice(payload);
        bytes
    }

    fn heard(kind: u8, flags: u32, payload: &[u8]) -> Result<Option<Heard>, Status> {
        next(&mut frame(kind, flags, payload), LARGEST)
    }

    const VERSIONS: &[u8] = b"\x12supported-versions\x08\x09 2.0, 1.5";
    const SIZE: &[u8] = b"\x0emax-frame-size\x03\xfc\xf0\x06";
    const CAPABILITIES: &[u8] = b"\x0ccapabilities\x08\x10pipelining,async";

    /// What HAProxy 2.6 says, and by section 3.2.4 what it may.
    #[test]
    fn a_greeting_says_what_both_sides_know() {
        let greeting = |parts: &[&[u8]]| heard(HAPROXY_HELLO, WHOLE, &parts.concat());
        let hello = |largest, is_check| Ok(Some(Heard::Hello { largest, is_check }));
        let id = b"\x09engine-id\x08\x02ab";
        assert_eq!(greeting(&[VERSIONS, SIZE, CAPABILITIES, id]), hello(LARGEST, false));
        assert_eq!(greeting(&[VERSIONS, SIZE, CAPABILITIES, b"\x0bhealthcheck\x11"]), hello(LARGEST, true));
        assert_eq!(greeting(&[b"\x0emax-frame-size\x03\xf0\x01", VERSIONS, CAPABILITIES]), hello(256, false));
        assert_eq!(greeting(&[b"\x0emax-frame-size\x03\xef", VERSIONS, CAPABILITIES]), Err(Status::BadFrameSize));
        assert_eq!(greeting(&[SIZE, CAPABILITIES]), Err(Status::NoVersion));
        assert_eq!(greeting(&[VERSIONS, CAPABILITIES]), Err(Status::NoFrameSize));
        assert_eq!(greeting(&[VERSIONS, SIZE]), Err(Status::NoCapabilities));
        let old = b"\x12supported-versions\x08\x031.0";
        assert_eq!(greeting(&[old, SIZE, CAPABILITIES]), Err(Status::BadVersion));
        assert_eq!(greeting(&[&VERSIONS[..9]]), Err(Status::Invalid));
    }

    #[test]
    fn the_answer_to_a_greeting_is_by_the_specification() {
        let mut out = BytesMut::new();
        hello(&mut out, LARGEST);
        let pairs = b"\x07version\x08\x032.0\x0emax-frame-size\x03\xfc\xf0\x06\x0ccapabilities\x08\x0apipelining";
        assert_eq!(out, frame(AGENT_HELLO, 1, pairs));
        let mut out = BytesMut::new();
        disconnect(&mut out, Status::TooBig);
        let pairs = b"\x0bstatus-code\x03\x03\x07message\x08\x10frame is too big";
        assert_eq!(out, frame(AGENT_DISCONNECT, 1, pairs));
    }

    #[test]
    fn frames_are_taken_one_by_one_when_they_are_whole() {
        let all = [frame(HAPROXY_DISCONNECT, WHOLE, b""), frame(77, WHOLE, b"x")].concat();
        let mut read = BytesMut::new();
        for byte in &all[..10] {
            read.put_u8(*byte);
            assert_eq!(next(&mut read, LARGEST), Ok(None));
        }
        read.put_slice(&all[10..]);
        assert_eq!(next(&mut read, LARGEST), Ok(Some(Heard::Disconnect)));
        assert_eq!(next(&mut read, LARGEST), Ok(Some(Heard::Other)), "what is not known is skipped");
        assert_eq!((next(&mut read, LARGEST), read.is_empty()), (Ok(None), true));
    }

    #[test]
    fn what_is_no_frame_ends_the_connection() {
        assert_eq!(next(&mut BytesMut::from(&[0, 0, 1, 1][..]), 256), Err(Status::TooBig));
        assert_eq!(next(&mut BytesMut::from(&[0, 0, 0, 0][..]), 256), Err(Status::Invalid));
        assert_eq!(heard(NOTIFY, 0, b""), Err(Status::Fragmented));
        assert_eq!(heard(0, WHOLE, b""), Err(Status::Fragmented));
    }

    #[test]
    fn a_question_has_messages_with_arguments() {
        let mut bytes = frame(NOTIFY, WHOLE, b"\x05other\x00\x08tidegate\x02\x01a\x08\x01x\x01b\x00");
        // Its numbers are not 0.
        bytes[9] = 7;
        bytes[10] = 2;
        let Ok(Some(Heard::Notify(of, payload))) = next(&mut bytes, LARGEST) else { panic!("a question") };
        assert_eq!(of, Of { stream: 7, frame: 2 });
        let expected = vec![(&b"a"[..], Value::Bytes(b"x")), (b"b", Value::Null)];
        assert_eq!(arguments(&payload, b"tidegate"), Ok(Some(expected)));
        assert_eq!(arguments(&payload, b"nobody"), Ok(None));
        assert_eq!(arguments(&payload[..payload.len() - 1], b"tidegate"), Err(Malformed));
    }

    #[test]
    fn an_answer_sets_variables_as_far_as_there_is_room() {
        let of = Of { stream: 7, frame: 2 };
        let mut out = BytesMut::new();
        let variables = [("status", Set::Number(503)), ("body", Set::Text(Bytes::from_static(b"no")))];
        ack(&mut out, of, &variables, 256);
        let mut expected = frame(ACK, 1, b"\x01\x03\x02\x06status\x03\xf7\x10\x01\x03\x02\x04body\x08\x02no");
        (expected[9], expected[10]) = (7, 2);
        assert_eq!(out, expected);
        let mut out = BytesMut::new();
        ack(&mut out, of, &[("page", Set::Text(Bytes::from(vec![b'x'; 300]))), variables[0].clone()], 256);
        assert!(out.len() < 50 && out.ends_with(&expected[11..24]), "{out:?}");
    }

    proptest! {
        #[test]
        fn nothing_breaks_it(bytes: Vec<u8>, kind in 0..4_u8, payload: Vec<u8>) {
            let mut read = BytesMut::from(&bytes[..]);
            while let Ok(Some(_)) = next(&mut read, LARGEST) {}
            if let Ok(Some(Heard::Notify(_, payload))) = heard(kind, WHOLE, &payload) {
                let _ = arguments(&payload, b"");
            }
            let _ = arguments(&payload, b"a");
        }
    }
}
