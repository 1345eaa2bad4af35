//! The plane's time: never goes back, whatever the system's clock does.
//!
//! *Awkward cases.* While a daemon runs, time is the monotonic clock's; a jump of the wall clock is noticed and counts
//! for nothing. Between two daemons only the wall clock knows how much time has passed; when it says that it was less
//! than none, time goes on from where it was.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tidegate_engine::Timestamp;

/// A difference between the clocks below this is drift.
const JUMP: Duration = Duration::from_secs(2);

/// The clock of one daemon.
#[derive(Debug)]
pub struct Clock {
    base: Timestamp,
    began: Instant,
    wall: u64,
    wall_began: Instant,
}

impl Clock {
    /// A clock that goes on from `last`, or from the wall clock where that is later; `origin` is the wall time of the
    /// plane's origin. What is odd about that is said.
    pub fn start(last: Timestamp, origin: u64, wall: u64) -> (Clock, Option<String>) {
        let by_wall = Timestamp::from_nanos(wall.saturating_sub(origin));
        let note = match by_wall < last {
            true => Some(format!(
                "the clock is {:?} behind the store's; time goes on from the store's",
                last.since(by_wall)
            )),
            false if by_wall.since(last) > Duration::from_secs(86_400) && last > Timestamp::ZERO => {
                Some(format!("nothing ran for {:?}, or the clock was put forward", by_wall.since(last)))
            }
            false => None,
        };
        let now = Instant::now();
        (Clock { base: by_wall.max(last), began: now, wall, wall_began: now }, note)
    }

    /// The present time since the clock's origin.
    pub fn now(&self) -> Timestamp {
        self.base + self.began.elapsed()
    }

    /// Whether the wall clock has jumped since this was last asked, and how.
    pub fn jump(&mut self, wall: u64) -> Option<String> {
        let expected = self.wall + self.wall_began.elapsed().as_nanos() as u64;
        let off = Duration::from_nanos(wall.abs_diff(expected));
        (self.wall, self.wall_began) = (wall, Instant::now());
        let way = if wall > expected { "forward" } else { "back" };
        (off > JUMP).then(|| format!("the wall clock went {way} by {off:?}; it changes nothing"))
    }
}

/// The wall clock: nanoseconds since 1970.
pub fn wall() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: u64 = 3_600_000_000_000;

    #[test]
    fn time_goes_on_from_the_later_of_the_two() {
        let last = Timestamp::from_nanos(5 * HOUR);
        let (clock, note) = Clock::start(last, HOUR, 8 * HOUR);
        assert!(clock.now() >= Timestamp::from_nanos(7 * HOUR) && note.is_none());
        let (clock, note) = Clock::start(last, HOUR, 2 * HOUR);
        assert!(clock.now() >= last && note.expect("is odd").contains("behind"));
        let (_, note) = Clock::start(last, HOUR, 800 * HOUR);
        assert!(note.expect("is odd").contains("put forward"));
    }

    #[test]
    fn a_jump_is_told_once() {
        let (mut clock, _) = Clock::start(Timestamp::ZERO, 0, HOUR);
        assert_eq!(clock.jump(HOUR), None);
        assert!(clock.jump(3 * HOUR).expect("a jump").contains("forward"));
        assert_eq!(clock.jump(3 * HOUR), None);
        assert!(clock.jump(HOUR).expect("a jump").contains("back"));
    }
}
