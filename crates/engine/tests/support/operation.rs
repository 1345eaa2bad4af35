//! What can be done to a controller, four bytes each, so that the property test and the fuzzer speak one language.

use tidegate_engine::{AbandonedBy, End, Open, Signal, Status, Watch};

/// Bytes of one operation.
pub const BYTES: usize = 4;

/// One thing to do to a controller. `which` picks one of what is there when its turn comes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Operation {
    /// Requests arrive, all at one instant.
    Arrive { class: u8, request_type: u8, url: u8, count: u8 },
    /// A request in flight ends; its time at the server is told in milliseconds, or left out (0).
    Complete { which: u8, end: End, millis: u16 },
    /// The client of a waiting or running request leaves.
    Cancel { which: u8 },
    /// Nobody waits any more for a running request, or a stream; its server may work on.
    Abandon { which: u8, by: AbandonedBy, watch: Watch },
    /// A request in flight turns out to be no work: its answer began so many milliseconds ago, at most.
    Open { which: u8, kind: Open, millis: u8 },
    /// The answer to a request in flight began so many milliseconds ago, at most.
    FirstByte { which: u8, millis: u8 },
    /// A ticket is used after its end.
    Stale { which: u8, cancel: bool },
    /// A request in flight goes elsewhere.
    Redispatch { which: u8 },
    /// Time passes, and the controller is called whenever it asked for it.
    Advance { micros: u32 },
    /// Time passes and nobody calls: the driver was busy.
    Stall { millis: u16 },
    /// The controller is called although it did not ask.
    Early,
    /// A server changes its state.
    Server { which: u8, status: Status },
    /// The sentry's own load, in percent.
    SentryCpu { percent: u8 },
    /// A resource in use at a server (0: at the sentry), in percent.
    Signal { which: u8, signal: Signal, percent: u8 },
    /// Shadow mode on or off.
    Shadow { on: bool },
    /// Another setup, see `cases::reconfigured`.
    Reconfigure { which: u8 },
}

impl Operation {
    /// Any four bytes are an operation; four zeros are an arrival.
    pub fn decode([kind, a, b, c]: [u8; BYTES]) -> Operation {
        match kind % 40 {
            0..=11 => Operation::Arrive { class: a % 3, request_type: b % 3, url: b / 3, count: 1 + c % 4 },
            12 => Operation::Arrive { class: a % 3, request_type: b % 3, url: b / 3, count: c % 64 },
            13..=22 => Operation::Complete { which: a, end: end(b), millis: u16::from(c) * u16::from(b % 8) },
            23 => Operation::Cancel { which: a },
            24 => {
                let by = if b % 2 == 0 { AbandonedBy::Client } else { AbandonedBy::TimeOut };
                let watch = if b & 2 == 0 { Watch::Driver } else { Watch::Nobody };
                Operation::Abandon { which: a, by, watch }
            }
            25 => Operation::Stale { which: a, cancel: b % 2 == 0 },
            26 if b % 4 == 3 => Operation::FirstByte { which: a, millis: c },
            26 => Operation::Redispatch { which: a },
            27..=32 => Operation::Advance { micros: u32::from(a) * u32::from(b) * (1 + u32::from(c % 16)) },
            33 => Operation::Stall { millis: u16::from(a) * u16::from(b % 16) },
            34 if b % 4 > 0 => {
                let kind = [Open::Stream, Open::Poll, Open::Tunnel][usize::from(b) % 3];
                Operation::Open { which: a, kind, millis: c }
            }
            34 => Operation::Early,
            35 => {
                let status = [Status::Up, Status::Up, Status::Down, Status::Draining][usize::from(b % 4)];
                Operation::Server { which: a, status }
            }
            36 if b % 4 > 0 => {
                let signal = Signal::ALL[usize::from(b) % Signal::ALL.len()];
                Operation::Signal { which: c, signal, percent: a }
            }
            36 => Operation::SentryCpu { percent: a },
            37 => Operation::Shadow { on: a % 2 == 1 },
            38 => Operation::Reconfigure { which: a },
            _ => Operation::Advance { micros: u32::from(a) * 10_000 },
        }
    }

    /// As many operations as there are whole fours of bytes.
    pub fn decode_all(bytes: &[u8]) -> Vec<Operation> {
        bytes.as_chunks::<BYTES>().0.iter().copied().map(Operation::decode).collect()
    }
}

fn end(byte: u8) -> End {
    match byte % 10 {
        0 => End::Failed,
        1 => End::TimedOut,
        _ => End::Answered,
    }
}
