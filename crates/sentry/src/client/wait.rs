//! What connections wait for.

use std::time::Duration;

use tidegate_engine::Timestamp;

use super::Client;
use crate::config::Timeouts;
use crate::serve::LINGER;

/// What a connection waits for, and so what it means when its deadline passes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Wait {
    /// The next request.
    #[default]
    Idle,
    /// The rest of what comes before requests: a PROXY header, a TLS handshake.
    Handshake,
    /// The rest of a head.
    Header,
    /// Its turn in a class queue: the engine's time-out, not ours.
    Queue,
    /// The server's answer to begin.
    FirstByte,
    /// The client's body to go on.
    RequestBody,
    /// The answer to go on.
    ResponseBody,
    /// The same; when the deadline passes, it is looked whether the answer is a stream.
    Look,
    /// Bytes through a tunnel.
    Tunnel,
    /// Its last requests: it is to close, and what is under way goes on.
    Leaving,
    /// The client to close.
    Linger,
    /// The whole request has taken too long, whatever it waits for.
    Request,
    /// For nothing: the process is short of something, and this connection is to go.
    GiveWay,
    /// Nothing: the controller wants the request ended.
    Cancelled,
}

impl Client {
    /// Since when it waits for its client and for nothing else, nanoseconds, before the clock's zero too: who never
    /// asked counts as idle for longer than anybody who did. `None`: it does not. An answer must have lain there for
    /// `unread`.
    pub(crate) fn waits_since(&self, timeouts: &Timeouts, now: Timestamp, unread: Duration) -> Option<i64> {
        if self.expired.get() == Some(Wait::GiveWay) {
            return None;
        }
        let nanos = |time: Duration| i64::try_from(time.as_nanos()).unwrap_or(i64::MAX);
        let since = |timeout| (self.deadline.get().as_nanos() as i64).saturating_sub(nanos(timeout));
        match self.wait.get() {
            Wait::Idle => Some(since(timeouts.client_idle)),
            Wait::Handshake => Some(since(timeouts.handshake)),
            Wait::Header => Some(since(timeouts.header)),
            Wait::Linger => Some(since(LINGER)),
            Wait::ResponseBody if self.holds() => {
                let progress = since(timeouts.body_idle);
                Some(progress).filter(|since| since.saturating_add(nanos(unread)) <= now.as_nanos() as i64)
            }
            Wait::RequestBody if self.holds() && self.upload.is_starved.get() => Some(since(timeouts.body_idle)),
            // Its deadline says nothing of the client; it is among the youngest.
            Wait::Look if self.holds() && unread.is_zero() => i64::try_from(now.as_nanos()).ok(),
            _ => None,
        }
    }

    /// Whether something is held for it, besides what its connection takes.
    pub(crate) fn holds(&self) -> bool {
        self.held.get() > u32::from(self.own.get()) * 1024
    }
}
