//! Messages between sentries and the control plane, over an encrypted stream.
//!
//! | file | question |
//! |---|---|
//! | `channel.rs` | how bytes become messages that nobody else can read or make |
//! | `keys.rs` | what a connection is opened with |
//! | `message.rs` | what is said |
//!
//! Both sides hold the same secret, as nuclei and sentries do, or a sentry has a key of its own that follows from it; a
//! file is all that an operator hands out. A connection begins with the version, so that two versions meet with an
//! explanation instead of garbage.

mod channel;
mod keys;
mod message;

pub use channel::{Channel, ChannelError, MAX_MESSAGE, VERSION};
pub use keys::{ControlKey, ControlKeys};
pub use message::{
    ApplicationOrders, ApplicationSeen, Coming, FromControl, FromSentry, Hello, Orders, Report, ServerOrder,
    ServerSeen, Step, TargetOrder,
};
