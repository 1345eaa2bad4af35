//! How long answers lie unread because the sentry itself is busy.
//!
//! *Intuition.* While the cashier is away from the window, dishes that are ready stand on it. A kitchen that may have
//! no more orders than cooks would stand still.
//!
//! *Applied.* A tick is due at a known time, and waits for its turn among all that the sentry has to do, as answers do.
//! With `r` completions per second, `r` times that delay are counted as in service and keep no server busy (Little's
//! law): so many places there are beside those that do.
//!
//! *Source.* Ours.

use crate::controller::TICK;
use crate::time::Timestamp;

/// What a tick keeps of what was seen before it: half of it is left after seven.
const KEEP: f64 = 0.9;
/// So many times the delay: requests are sent late, too; and to let in more than before is how it is found out that the
/// servers can do more.
const BOTH_WAYS: f64 = 2.0;
/// A tick that is later, seconds, was not waited for: there was nothing to do, or the sentry begins.
const SLEPT: f64 = 1.0;
/// Nobody is at a server for more than this part of the target because of it.
const MOST: f64 = 0.2;

/// The delay of late.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Lag {
    seconds: f64,
    /// The last tick.
    ticked: Timestamp,
}

impl Lag {
    /// Ticks count from here on.
    pub(super) fn begin(&mut self, now: Timestamp) {
        self.ticked = now;
    }

    /// A tick: the seconds since the last one.
    pub(super) fn tick(&mut self, now: Timestamp) -> f64 {
        let elapsed = now.seconds_since(self.ticked);
        let late = elapsed - TICK.as_secs_f64();
        self.seconds = (self.seconds * KEEP).max(if late < SLEPT { late } else { 0.0 });
        self.ticked = now;
        elapsed
    }

    /// For so many seconds a request may be at a server, with a target, because the sentry is late.
    pub(super) fn allowance(&self, target: f64) -> f64 {
        (BOTH_WAYS * self.seconds).min(MOST * target)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_late_tick_is_remembered_for_a_while_and_is_worth_no_more_than_a_fifth_of_the_target() {
        let (mut lag, mut now) = (Lag::default(), 0);
        let mut tick = |after: u64| {
            now += after;
            lag.tick(Timestamp::from_millis(now));
            lag
        };
        tick(3_600_000);
        assert!(tick(100).allowance(1.0) < 1e-9);
        tick(150);
        let lag = tick(100);
        assert!((lag.allowance(1.0) - 0.09).abs() < 1e-9 && (lag.allowance(0.1) - 0.02).abs() < 1e-9);
        (0..60).for_each(|_| _ = tick(100));
        assert!(tick(100).allowance(1.0) < 1e-3);
    }
}
