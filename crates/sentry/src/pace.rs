//! Whether a client that sends keeps up with the least rate at which a body must come.
//!
//! It may let the sentry wait for as long as a body may stand still. Waiting uses that up, and every byte earns some of
//! it back, at the least rate: so over any such time a body comes at that rate on average, and a client that stops for
//! a moment, in a tunnel or between two cells, loses nothing. Only the wait for the client counts: while its server
//! does not take what is here, no time passes.

use std::time::Duration;

use tidegate_engine::Timestamp;

/// How one body came so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pace {
    /// Since when bytes are awaited; `None`: there are some.
    since: Option<Timestamp>,
    /// Time waited that no byte has earned back.
    waited: Duration,
}

impl Pace {
    /// Bytes are awaited: how long they still may, of `most` in all.
    pub(crate) fn wait(&mut self, now: Timestamp, most: Duration) -> Duration {
        let since = *self.since.get_or_insert(now);
        most.saturating_sub(self.waited + now.since(since))
    }

    /// `bytes` came; at least `rate` a second should. 0: any byte will do.
    pub(crate) fn came(&mut self, now: Timestamp, bytes: usize, rate: u64) {
        if let Some(since) = self.since.take() {
            self.waited += now.since(since);
        }
        let earned = match rate {
            0 => Duration::MAX,
            rate => Duration::try_from_secs_f64(bytes as f64 / rate as f64).unwrap_or(Duration::MAX),
        };
        self.waited = self.waited.saturating_sub(earned);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: Duration = Duration::from_secs(30);

    /// Seconds after which a body is given up of which `bytes` come each second; `None`: not within an hour.
    fn given_up(bytes: usize, rate: u64) -> Option<u64> {
        let mut pace = Pace::default();
        for second in 0..3600 {
            if pace.wait(Timestamp::from_millis(second * 1000), MOST) < Duration::from_secs(1) {
                return Some(second);
            }
            pace.came(Timestamp::from_millis(second * 1000 + 1000), bytes, rate);
        }
        None
    }

    #[test]
    fn what_comes_at_the_least_rate_is_never_given_up_and_what_comes_at_half_of_it_is() {
        assert_eq!([given_up(500, 500), given_up(501, 500), given_up(1_000_000, 500)], [None; 3]);
        assert_eq!(given_up(250, 500), Some(59), "half of the time is earned back");
        assert_eq!(given_up(1, 500), Some(30));
        assert_eq!(given_up(1, 0), None, "any byte will do");
    }

    #[test]
    fn time_passes_only_while_bytes_are_awaited_and_bytes_earn_nothing_in_advance() {
        let mut pace = Pace::default();
        pace.came(Timestamp::from_millis(0), 1 << 30, 500);
        assert_eq!(pace.wait(Timestamp::from_millis(1000), MOST), MOST);
        assert_eq!(pace.wait(Timestamp::from_millis(11_000), MOST), Duration::from_secs(20));
        pace.came(Timestamp::from_millis(21_000), 0, 500);
        // Its server does not take it for an hour.
        assert_eq!(pace.wait(Timestamp::from_millis(3_600_000), MOST), Duration::from_secs(10));
    }
}
