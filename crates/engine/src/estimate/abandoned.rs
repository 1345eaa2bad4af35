//! What a server does with a request that nobody waits for any more, learned from those that were watched to their end.
//!
//! *Intuition.* Some servers notice that a connection is closed and stop; most work on. Which of the two a server is
//! hardly ever changes, so a few of its ghosts tell of all the others: of those that nobody can watch, because there
//! are too many at once or because the process drains.
//!
//! *Awkward cases.* A server that stops for one kind of request and works on for another is taken to work on: to free a
//! place too early puts too much to work, to free it too late costs an answer at most. A server that closes its
//! connection and works on all the same looks as if it stopped. Nothing that can be seen from here tells the two apart:
//! clients leave *because* a server is slow, so slowness comes with closed connections in either case. What such a
//! server has left for others is what completes there, and so what [`Capacity`](super::Capacity) learns.
//!
//! *Source.* None; the bounds below are ours.

/// Ghosts watched to their end that make a habit.
const ENOUGH: f64 = 8.0;
/// This share of them must have stopped, for the others to be taken to stop, too.
const STOPS: f64 = 0.9;
/// At most this share of them may have stopped for the server to be said to work on.
const WORKS_ON: f64 = 0.1;
/// How many are remembered.
const MEMORY: f64 = 64.0;
/// A server that stops has stopped after so many times the mean that it takes.
const SURELY: f64 = 2.0;

/// What became of one server's abandoned requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Abandoned {
    /// Those that stopped, old ones faded.
    stopped: f64,
    /// Those that were worked on.
    worked_on: f64,
    /// What it took those that stopped, seconds in all.
    seconds: f64,
}

/// What a server does with the work that nobody wants any more.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Habit {
    /// Too little was seen of it, or it does now this, now that.
    #[default]
    Unknown,
    /// It stops, within about so many seconds.
    Stops {
        /// Mean time from the request's being abandoned to the server's closing, seconds.
        after: f64,
    },
    /// It does not notice.
    WorksOn,
}

impl Habit {
    /// Its name in output.
    pub const fn name(self) -> &'static str {
        match self {
            Habit::Unknown => "unknown",
            Habit::Stops { .. } => "stops",
            Habit::WorksOn => "works-on",
        }
    }
}

impl Abandoned {
    /// The server closed, `after` seconds after the request was abandoned, without an answer.
    pub fn stopped(&mut self, after: f64) {
        self.fade();
        self.stopped += 1.0;
        self.seconds += after.max(0.0);
    }

    /// The server answered all the same, or did nothing for longer than it was watched.
    pub fn worked_on(&mut self) {
        self.fade();
        self.worked_on += 1.0;
    }

    /// What it does, as far as is known.
    pub fn habit(&self) -> Habit {
        let total = self.stopped + self.worked_on;
        if total < ENOUGH {
            return Habit::Unknown;
        }
        match self.stopped / total {
            share if share >= STOPS => Habit::Stops { after: self.seconds / self.stopped },
            share if share <= WORKS_ON => Habit::WorksOn,
            _ => Habit::Unknown,
        }
    }

    /// For how long a request keeps its place that is abandoned now and that nobody watches, seconds, when `left` is
    /// what its work would still take.
    pub fn stay(&self, left: f64) -> f64 {
        match self.habit() {
            Habit::Stops { after } => left.min(after * SURELY),
            Habit::Unknown | Habit::WorksOn => left,
        }
    }

    fn fade(&mut self) {
        let total = self.stopped + self.worked_on;
        if total >= MEMORY {
            let keep = (MEMORY - 1.0) / total;
            let Abandoned { stopped, worked_on, seconds } = *self;
            *self = Abandoned { stopped: stopped * keep, worked_on: worked_on * keep, seconds: seconds * keep };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(stops: u32, works_on: u32) -> Abandoned {
        let mut seen = Abandoned::default();
        (0..stops).for_each(|_| seen.stopped(0.01));
        (0..works_on).for_each(|_| seen.worked_on());
        seen
    }

    #[test]
    fn a_few_ghosts_tell_what_a_server_does() {
        assert_eq!(after(7, 0).habit(), Habit::Unknown);
        assert!(matches!(after(8, 0).habit(), Habit::Stops { after } if (after - 0.01).abs() < 1e-9));
        assert_eq!(after(0, 8).habit(), Habit::WorksOn);
        assert_eq!(after(30, 30).habit(), Habit::Unknown);
    }

    #[test]
    fn only_who_stops_gives_the_place_back_before_the_work_is_done() {
        assert_eq!(after(0, 20).stay(3.0), 3.0);
        assert_eq!(after(4, 0).stay(3.0), 3.0);
        assert!((after(20, 0).stay(3.0) - 0.02).abs() < 1e-9);
        assert_eq!(after(20, 0).stay(0.005), 0.005, "never longer than its work");
    }

    #[test]
    fn a_server_that_changed_is_known_again() {
        let mut seen = after(10_000, 0);
        (0..200).for_each(|_| seen.worked_on());
        assert_eq!(seen.habit(), Habit::WorksOn);
        (0..200).for_each(|_| seen.stopped(0.5));
        assert!(matches!(seen.habit(), Habit::Stops { after } if after > 0.4));
    }
}
