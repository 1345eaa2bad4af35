//! What a controller has set by hand in the paper, from what the service was seen to do.
//!
//! *Intuition.* Nobody has to be told how much a kitchen can cook who counts the plates that leave it. Twice as many
//! guests as ever had a plate in a minute are more than it can be expected to serve; and when guests wait too long, as
//! many may come in as leave fed.
//!
//! *Applied.* The highest rate of answers so far, which every late run lowers a little in case the service has become
//! slower, bounds the rate at twice itself. When answers are late the rate falls by the paper's factor from what was
//! answered since the last run, if that is less than the rate: so what has piled up melts from the first such run on.
//! Steps up are the paper's 2/s at a rate of 100/s, and in proportion at others.
//! The bucket holds a quarter of a second of the rate: one that was bounded by what few users ask for would refuse
//! them half.
//!
//! *Awkward cases.* Before anything was answered there is no bound but `initial_rate`. Little that was asked for says
//! little of what could be answered: no bound is below [`FLOOR`]. Where several types share what is short, what one
//! answers is its part of it at that time.
//!
//! *Source.* Ours: Welsh and Culler (2003) call the setting of these parameters an open problem.

/// No bound is lower, per second.
const FLOOR: f64 = 10.0;
/// The bound, in multiples of the highest rate of answers.
const BEYOND: f64 = 2.0;
/// What a late run leaves of the highest rate.
const FADES: f64 = 0.98;
/// The rate at which the paper's step is 2/s, and the least part of that step.
const SCALE: f64 = 100.0;
const LEAST_STEP: f64 = 0.1;
/// The bucket holds what comes in so many seconds.
const BURST: f64 = 0.25;

/// What the service answers of a class.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Reach {
    /// Per second, since the run before.
    answered: f64,
    /// The highest of these; `None` until something was answered.
    highest: Option<f64>,
}

impl Reach {
    /// As it was elsewhere.
    pub(super) fn of(answered: f64, highest: Option<f64>) -> Reach {
        Reach { answered, highest }
    }

    /// The highest rate of answers, if there were any.
    pub(super) fn highest(&self) -> Option<f64> {
        self.highest
    }

    /// So many were answered in the last `seconds`.
    pub(super) fn look(&mut self, answers: f64, seconds: f64) {
        self.answered = if seconds > 0.0 { answers / seconds } else { 0.0 };
        if self.answered > 0.0 {
            self.highest = Some(self.highest.unwrap_or(0.0).max(self.answered));
        }
    }

    /// The largest rate; a late run lowers what later ones have.
    pub(super) fn most(&mut self, late: bool) -> f64 {
        let Some(highest) = &mut self.highest else { return f64::INFINITY };
        if late {
            *highest = (*highest * FADES).max(self.answered);
        }
        (*highest * BEYOND).max(FLOOR)
    }

    pub(super) fn answered(&self) -> f64 {
        self.answered
    }

    pub(super) fn step(&self, raise_by: f64) -> f64 {
        raise_by * (self.highest.unwrap_or(SCALE) / SCALE).max(LEAST_STEP)
    }

    pub(super) fn depth(&self, rate: f64, depth: f64) -> f64 {
        depth.max(rate * BURST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bound_follows_what_was_answered() {
        let mut reach = Reach::default();
        assert_eq!(reach.most(false), f64::INFINITY, "nothing is known");
        reach.look(2.0, 1.0);
        assert_eq!(reach.most(false), FLOOR, "two users say little");
        reach.look(60.0, 2.0);
        assert_eq!((reach.answered(), reach.most(false)), (30.0, 60.0));
        reach.look(0.0, 1.0);
        assert_eq!(reach.most(false), 60.0, "a quiet second takes nothing");
        (0..100).for_each(|_| {
            reach.look(5.0, 1.0);
            reach.most(true);
        });
        assert_eq!(reach.most(true), FLOOR, "a service that became slower is believed in time");
    }

    #[test]
    fn steps_and_bursts_grow_with_the_service() {
        let mut reach = Reach::default();
        assert_eq!((reach.step(2.0), reach.depth(10.0, 1.0), reach.depth(2.0, 1.0)), (2.0, 2.5, 1.0));
        reach.look(25.0, 1.0);
        assert_eq!(reach.step(2.0), 0.5);
        reach.look(1000.0, 1.0);
        assert_eq!(reach.step(2.0), 20.0);
    }
}
