//! Messages between sentries and the control plane, over an encrypted stream.
//!
//! | file | question |
//! |---|---|
//! | `channel.rs` | how bytes become messages that nobody else can read or make |
//! | `message.rs` | what is said |
//!
//! Both sides hold the same secret, as nuclei and sentries do; a file of it is all that an operator hands out. A
//! connection begins with the version, so that two versions meet with an explanation instead of garbage.

mod channel;
mod message;

pub use channel::{Channel, ChannelError, ControlKey, MAX_MESSAGE, VERSION};
pub use message::{
    ApplicationOrders, ApplicationSeen, Coming, FromControl, FromSentry, Hello, Orders, Report, ServerOrder,
    ServerSeen, Step, TargetOrder,
};
