//! One process takes over from another: with its sockets, without losing a connection, and knowing what it knew.
//!
//! *Intuition.* A relief crew comes aboard before the old crew leaves, is handed keys and log, says that it is ready,
//! takes the wheel; and only then the others finish what they have in hand. If the relief does not come, or is not fit,
//! the old crew sails on.
//!
//! *Applied.* Process and successor talk over a Unix socket (`channel.rs`, `message.rs`).
//!
//! 1. The process is asked to ([`Desk`]), or gets a signal, and starts its program again; or a process that was started
//!    already calls.
//! 2. It gives every socket, and what was learned ([`Handover`]).
//! 3. The successor reads its configuration, listens at what it was given, starts workers that do not accept yet, and
//!    says `ready`.
//! 4. The process says `yours`. The successor accepts, and says `serving`.
//! 5. The process stops accepting.
//!
//! From `yours` until it stops both accept from the same sockets: there is no moment in which nobody does. *Awkward
//! cases.* Whatever fails before `serving`, the predecessor goes on as if nothing had happened, and the successor ends.
//! If the predecessor ends without a word, the successor is the only one left, and serves. A connection whose handshake
//! or first bytes are not here yet (`TCP_DEFER_ACCEPT`) belongs to its socket, too, and is served by the successor.

mod channel;
mod desk;
mod message;
mod office;
mod saved;
mod state;
mod successor;

pub use desk::{Call, Desk};
pub use message::Message;
pub use office::{Handover, Launch, Successor, hand_over};
pub use state::State;
pub use successor::{Given, Predecessor, Verdict};
