//! State of one class in a response-time controller: its bucket, its samples and its estimate.

use alloc::vec::Vec;

use super::derived::Reach;
use super::{Parameters, Run, Step};
use crate::bucket::TokenBucket;
use crate::time::Timestamp;

/// After so many runs in a row without a sample the estimate is forgotten: it says nothing of today's load, and at the
/// least rate it would take minutes to fade. After so many without a request, the class is quiet.
const FORGOTTEN_AFTER: u32 = 10;

#[derive(Clone, Debug)]
pub(super) struct Class {
    /// Seconds.
    pub(super) target: f64,
    bucket: TokenBucket,
    /// Requests per second.
    pub(super) rate: f64,
    /// Response times since the last run, seconds. As many as fit: never grows.
    pub(super) samples: Vec<f64>,
    /// The smoothed percentile (cur), seconds.
    pub(super) current: Option<f64>,
    /// Runs in a row without a sample, and without a request either.
    idle_runs: u32,
    quiet_runs: u32,
    pub(super) ran: Timestamp,
    /// A more important class was over its target: no raise at the next run.
    pub(super) is_held: bool,
    /// Runs over the target with nothing left to take from less important classes.
    pub(super) lag: u32,
    /// Requests since the last run, and whether one of them was refused.
    offered: u32,
    has_refused: bool,
    /// Whether something was refused between the last two runs, and more was offered than the rate lets in. A shallow
    /// bucket refuses some of any uneven stream.
    pub(super) was_short: bool,
    /// Whether at least half of the rate was asked for between the last two runs.
    pub(super) is_used: bool,
    /// What the service was seen to answer.
    pub(super) reach: Reach,
    pub(super) last: Option<Run>,
}

impl Class {
    pub(super) fn new(parameters: &Parameters, target: f64) -> Class {
        Class {
            target,
            bucket: TokenBucket::new(parameters.initial_rate, parameters.depth),
            rate: parameters.initial_rate,
            samples: Vec::with_capacity(parameters.samples as usize),
            current: None,
            idle_runs: 0,
            quiet_runs: 0,
            ran: Timestamp::ZERO,
            is_held: false,
            lag: 0,
            offered: 0,
            has_refused: false,
            was_short: false,
            is_used: true,
            reach: Reach::default(),
            last: None,
        }
    }

    /// A request comes; takes a token for it if it needs one.
    pub(super) fn admit(&mut self, now: Timestamp, policing: bool) -> bool {
        self.offered = self.offered.saturating_add(1);
        let conforms = !policing || self.bucket.conforms(now);
        self.has_refused |= !conforms;
        conforms
    }

    /// Whether it was the last before a run.
    pub(super) fn record(&mut self, response_time: f64, parameters: &Parameters) -> bool {
        // A driver whose clock stepped brings such a thing; it is no measurement.
        if !response_time.is_finite() {
            return false;
        }
        self.samples.push(response_time.max(0.0));
        self.samples.len() >= parameters.samples as usize
    }

    /// Takes the samples since the last run into the estimate. How many there were, and their percentile.
    pub(super) fn digest(&mut self, now: Timestamp, parameters: &Parameters) -> (u32, Option<f64>) {
        let since = now.seconds_since(self.ran);
        let allowed = self.rate() * since;
        self.reach.look(self.samples.len() as f64, since);
        let was_asked = self.offered > 0;
        self.was_short = self.has_refused && f64::from(self.offered) > allowed;
        self.is_used = 2.0 * f64::from(self.offered) >= allowed;
        (self.offered, self.has_refused, self.ran) = (0, false, now);
        let count = self.samples.len();
        if count == 0 {
            self.idle_runs = self.idle_runs.saturating_add(1);
            self.quiet_runs = if was_asked { 0 } else { self.quiet_runs.saturating_add(1) };
            if self.idle_runs >= FORGOTTEN_AFTER && parameters.forgets {
                self.current = None;
            }
            return (0, None);
        }
        (self.idle_runs, self.quiet_runs) = (0, 0);
        let sample = percentile(&mut self.samples, parameters.percentile);
        self.samples.clear();
        let keep = parameters.smoothing;
        self.current = Some(self.current.map_or(sample, |current| keep * current + (1.0 - keep) * sample));
        (count as u32, Some(sample))
    }

    /// Changes the rate, within the bounds; the bucket keeps its tokens.
    pub(super) fn set_rate(&mut self, now: Timestamp, rate: f64, parameters: &Parameters) {
        self.rate = rate.clamp(parameters.min_rate, parameters.max_rate);
        let depth = if parameters.derived { self.reach.depth(self.rate, parameters.depth) } else { parameters.depth };
        self.bucket.adjust(now, self.rate, depth);
    }

    /// Goes on at `now` with the rate that it had elsewhere, whose bucket is `ahead` seconds ahead.
    pub(super) fn recall(&mut self, now: Timestamp, rate: f64, ahead: f64, parameters: &Parameters) {
        self.ran = now;
        self.set_rate(now, rate, parameters);
        self.bucket.set_ahead(now, ahead);
    }

    /// Keeps the rate within reach of what the service was seen to answer; `late`: this run was over the target.
    pub(super) fn derive(&mut self, now: Timestamp, late: bool, parameters: &Parameters) {
        let most = self.reach.most(late);
        if self.rate > most {
            self.set_rate(now, most, parameters);
        }
    }

    /// Answers per second between the last two runs.
    pub(super) fn answered(&self) -> f64 {
        self.reach.answered()
    }

    /// The step of a raise that suits what is answered.
    pub(super) fn step(&self, raise_by: f64) -> f64 {
        self.reach.step(raise_by)
    }

    pub(super) fn note(&mut self, at: Timestamp, step: Step) {
        let (current, error) = (self.current, self.error());
        self.last = Some(Run { at, samples: 0, sample: None, current, error, step });
    }

    /// Requests per second.
    pub(super) fn rate(&self) -> f64 {
        self.rate
    }

    /// `(percentile - target) / target`.
    pub(super) fn error(&self) -> Option<f64> {
        self.current.map(|current| (current - self.target) / self.target)
    }

    /// Whether nothing came and nothing completed for so long that the past means nothing.
    pub(super) fn is_quiet(&self) -> bool {
        self.quiet_runs >= FORGOTTEN_AFTER
    }

    /// Whether its last run had a sample.
    pub(super) fn is_fresh(&self) -> bool {
        self.idle_runs == 0 && self.current.is_some()
    }

    pub(super) fn bucket(&self) -> &TokenBucket {
        &self.bucket
    }
}

/// The `(p n)`-th of n values in order, counted from 1.
fn percentile(values: &mut [f64], p: f64) -> f64 {
    // Less a hair: 0.7 * 10 is a little more than 7.
    let rank = libm::ceil(p * values.len() as f64 - 1e-9) as usize;
    let at = rank.clamp(1, values.len()) - 1;
    *values.select_nth_unstable_by(at, f64::total_cmp).1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ninetieth_of_a_hundred_is_the_ninetieth() {
        let mut values: Vec<f64> = (1..=100).rev().map(f64::from).collect();
        assert_eq!(percentile(&mut values, 0.9), 90.0);
        assert_eq!(percentile(&mut values, 1.0), 100.0);
        assert_eq!(percentile(&mut values[..1], 0.9), values[0]);
        assert_eq!(percentile(&mut [3.0, 1.0, 2.0], 0.5), 2.0);
        let mut ten: Vec<f64> = (1..=10).map(f64::from).collect();
        assert_eq!(percentile(&mut ten, 0.7), 7.0);
    }
}
