//! Time as the engine sees it: nanoseconds since an origin that the driver chose.

use core::ops::{Add, Sub};
use core::time::Duration;

/// A point on the driver's monotonic clock, in nanoseconds since the driver's origin.
///
/// The engine never reads a clock: every call brings its own `now`, which never goes back. Ties are
/// ordinary (a simulator delivers many events at one instant), so nothing may assume that two calls
/// see different times.
///
/// Kept as a plain number of nanoseconds, by those who keep it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Deserialize, serde::Serialize)]
#[serde(transparent)]
pub struct Timestamp(u64);

impl Timestamp {
    /// The origin of the driver's time.
    pub const ZERO: Timestamp = Timestamp(0);
    /// Later than anything that happens (584 years after the origin).
    pub const MAX: Timestamp = Timestamp(u64::MAX);

    /// The point `nanos` nanoseconds after the origin.
    pub const fn from_nanos(nanos: u64) -> Self {
        Timestamp(nanos)
    }

    /// The point `millis` milliseconds after the origin.
    pub const fn from_millis(millis: u64) -> Self {
        Timestamp(millis * 1_000_000)
    }

    /// The point `seconds` after the origin; negative and NaN become the origin.
    pub fn from_secs_f64(seconds: f64) -> Self {
        Timestamp((seconds * 1e9) as u64)
    }

    /// Nanoseconds since the origin.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Seconds since the origin.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 * 1e-9
    }

    /// The time from `earlier` to `self`; zero when `earlier` is later.
    pub const fn since(self, earlier: Timestamp) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// Like [`Timestamp::since`], in seconds; of more than 292 years, these.
    pub fn seconds_since(self, earlier: Timestamp) -> f64 {
        // A number that fits one with a sign is converted at once; others take a processor several steps.
        self.0.saturating_sub(earlier.0).min(i64::MAX as u64) as f64 * 1e-9
    }
}

impl Add<Duration> for Timestamp {
    type Output = Timestamp;

    fn add(self, duration: Duration) -> Timestamp {
        Timestamp(self.0.saturating_add(duration.as_nanos().min(u64::MAX as u128) as u64))
    }
}

impl Sub<Duration> for Timestamp {
    type Output = Timestamp;

    fn sub(self, duration: Duration) -> Timestamp {
        Timestamp(self.0.saturating_sub(duration.as_nanos().min(u64::MAX as u128) as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_saturates_at_both_ends() {
        let t = Timestamp::from_millis(5);
        assert_eq!(t - Duration::from_secs(1), Timestamp::ZERO);
        assert_eq!(Timestamp::MAX + Duration::from_secs(1), Timestamp::MAX);
        assert_eq!(Timestamp::ZERO.since(t), Duration::ZERO);
        assert_eq!(Timestamp::from_secs_f64(-1.0), Timestamp::ZERO);
        assert_eq!(Timestamp::from_secs_f64(0.005), t);
    }
}
