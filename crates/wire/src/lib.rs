//! Messages between the sentry and the nuclei beside its servers; those between sentries before the same servers are in
//! `peer`, those between sentries and the control plane in `control`.
//!
//! A message is one UDP datagram of at most [`MAX_DATAGRAM`] bytes. All numbers are little-endian:
//!
//! ```text
//! "TGW"  version:u8  kind:u8  own:u8  length:u16  boot:u64  sequence:u64  token:u64  body...  mac:[u8; 16]
//! ```
//!
//! Between sentry and nucleus four kinds: a *report* says how a server is doing, a *goodbye* that its nucleus stops on
//! purpose; a *challenge* and a *command* go the other way (see below). The MAC is keyed BLAKE3 over everything before
//! it, cut to 128 bits and compared in constant time. The key follows from a secret that sentries and nuclei share, and
//! whoever holds it may report for any server; or, where `own` is 1, from the secret and the name of the server that
//! the body begins with, and whoever holds it may report for that server only. Answers are sealed with the key of what
//! they answer. Nothing is encrypted.
//!
//! # Replay, without a clock
//!
//! Clocks jump, so none is on the wire. A nucleus draws a random `boot` id when it starts and counts its datagrams in
//! `sequence`. A sentry that does not know a boot id yet answers with a challenge, which holds a `token` that depends
//! on a secret of this sentry process, the server's name, the boot id, and how often the server's nucleus has changed
//! so far. Only a report that carries the token opens a session ([`Session`]). So a recording is worth nothing: not
//! within a session (its sequence number has been seen), not after the nucleus or the sentry was restarted (its token
//! is of another session). A lost datagram costs one period, a lost challenge two.
//!
//! A command says how a data server's cores are to be divided. It is a wish and not a step, so the sentry repeats it
//! until a report shows it in force, and a lost one is harmless. It carries the session's token, and a number that only
//! rises within the session; the nucleus obeys the newest only ([`Sender::obey`]).
//!
//! Of two nuclei that claim one server the first keeps it as long as it speaks.
//!
//! # Versions
//!
//! A receiver takes its own [`VERSION`] only and counts others. Within a version, gauges may be added: unknown ones are
//! skipped.

#![deny(clippy::print_stderr, clippy::print_stdout)]
#![forbid(unsafe_code)]

#[cfg(feature = "control")]
pub mod control;
mod datagram;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzz;
mod gauge;
mod isolation;
mod key;
mod peer;
mod rejected;
mod report;
mod sender;
mod session;

pub use datagram::{Header, Kind, open, seal};
pub use gauge::{Gauge, Gauges};
pub use isolation::IsolationProblem;
pub use key::{Key, KeyError, KeyFile, Keys, Owner, exposed, own_key};
pub use peer::{PeerMessage, PeerSession, Said};
pub use rejected::{Counts, Rejected};
pub use report::{Active, Command, Connection, Message, Report, ReportWriter, Rest};
pub use sender::Sender;
pub use session::{Refused, Secret, Session, Window};

/// The version spoken here.
pub const VERSION: u8 = 1;

/// The most bytes of a datagram: it fits an Ethernet frame with room for tunnels, so it is never cut into fragments.
pub const MAX_DATAGRAM: usize = 1400;

/// The most bytes of a server's name.
pub const MAX_NAME: usize = 128;

/// 64 random bits from the system.
///
/// # Panics
/// When the system has no random numbers; it is then not safe to go on.
pub fn random_u64() -> u64 {
    getrandom::u64().expect("the system gives random numbers")
}
