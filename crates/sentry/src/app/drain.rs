//! The end of an application's connections: all at once when the sentry stops, one after the other when another process
//! has taken over.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::SocketAddr;
use std::time::Duration;

use tidegate_engine::Timestamp;

use super::App;

/// How long connections without a request stay open, so that one that is already on its way is still answered.
pub(crate) const DRAIN_IDLE: Duration = Duration::from_secs(1);

/// The last part of the time for a drain, in which connections without a request are closed whose clients had their
/// chance to hear of it.
const AT_LAST: Duration = Duration::from_secs(1);

/// A drain under way.
#[derive(Debug)]
pub(super) struct Drain {
    since: Timestamp,
    /// Over so long connections are told to end.
    spread: Duration,
    /// There is a successor.
    is_patient: bool,
    /// After so long those without a request are closed, whoever waits at the other end.
    idle: Duration,
}

impl App {
    /// Whether the sentry is shutting down: it answers what it has and takes nothing new.
    pub fn draining(&self) -> bool {
        self.drain.get().is_some()
    }

    /// Begins to drain, for `grace` at most. With a `spread`, a successor serves: connections end one after the other
    /// over that time, and one without a request when its client was told so with an answer, or at last.
    pub(crate) fn drain(&self, grace: Duration, spread: Option<Duration>) {
        let idle = spread.map_or(DRAIN_IDLE, |spread| grace.saturating_sub(AT_LAST).max(spread));
        let is_patient = spread.is_some();
        let drain = Drain { since: self.now(), spread: spread.unwrap_or_default(), is_patient, idle };
        // It ends once.
        let _ = self.drain.set(drain);
    }

    /// Whether the connection with `peer` is to end.
    pub(crate) fn is_leaving(&self, now: Timestamp, peer: SocketAddr) -> bool {
        let Some(drain) = self.drain.get() else { return false };
        drain.spread.is_zero() || now.since(drain.since) >= drain.spread.mul_f64(turn(peer))
    }

    /// Whether it ends without a successor: connections are closed when they can be, and not only when their clients
    /// were told.
    pub(crate) fn stops(&self) -> bool {
        self.drain.get().is_some_and(|drain| !drain.is_patient)
    }

    /// Whether connections are to be closed whose clients were not told.
    pub(crate) fn leaves_idle(&self, now: Timestamp) -> bool {
        self.drain.get().is_some_and(|drain| now.since(drain.since) >= drain.idle)
    }
}

/// When a connection's turn comes, 0 to 1: the same whoever asks, and any for different connections.
fn turn(peer: SocketAddr) -> f64 {
    let mut hasher = DefaultHasher::new();
    peer.hash(&mut hasher);
    (hasher.finish() >> 11) as f64 / (1u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_are_spread() {
        let turns: Vec<f64> = (0..1000).map(|port| turn(SocketAddr::from(([192, 0, 2, 1], port)))).collect();
        for quarter in 0..4 {
            let from = f64::from(quarter) / 4.0;
            let count = turns.iter().filter(|turn| (from..from + 0.25).contains(*turn)).count();
            assert!((180..320).contains(&count), "{count} of 1000 in a quarter");
        }
    }
}
