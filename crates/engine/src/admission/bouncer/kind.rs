//! What is known of requests of one type: how long they are processed, and how many of them were accepted of late.

use alloc::format;
use alloc::string::String;

use super::super::Ended;
use crate::decision::End;
use crate::estimate::DecayedHistogram;
use crate::learned::Kept;
use crate::time::Timestamp;

/// Parts of the window in which acceptances are counted: one a tick, so that it is a second long.
const PARTS: usize = 10;

/// Requests of a type.
#[derive(Debug)]
pub(super) struct Kind {
    pub(super) name: String,
    pub(super) processing: Processing,
    pub(super) acceptances: Acceptances,
}

impl Kind {
    pub(super) fn new(name: &str) -> Kind {
        Kind { name: name.into(), processing: Processing::new(), acceptances: Acceptances::default() }
    }
}

/// How far a type's share of accepted requests is below the mean over all types, as a part of that.
pub(super) fn neglect(kinds: &[Kind], at: usize) -> f64 {
    let own = kinds[at].acceptances.ratio().unwrap_or_default();
    let (mut sum, mut count) = (0.0, 0.0);
    for ratio in kinds.iter().filter_map(|kind| kind.acceptances.ratio()) {
        (sum, count) = (sum + ratio, count + 1.0);
    }
    if sum > 0.0 { (1.0 - own * count / sum).max(0.0) } else { 0.0 }
}

/// How long requests are processed, seconds. While one histogram is filled, what the one before said is in force.
#[derive(Debug)]
pub(super) struct Processing {
    filling: DecayedHistogram,
    samples: u32,
    known: Option<Times>,
}

/// Processing times of a type, seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Times {
    pub(super) mean: f64,
    pub(super) median: f64,
    /// At the SLA's statistic.
    pub(super) high: f64,
}

impl Processing {
    pub(super) fn new() -> Processing {
        let filling = DecayedHistogram::new(f64::INFINITY);
        Processing { filling, samples: 0, known: None }
    }

    /// What is in force; `None`: too little was seen.
    pub(super) fn known(&self) -> Option<Times> {
        self.known
    }

    pub(super) fn add(&mut self, now: Timestamp, ended: &Ended) {
        if ended.end != End::Failed && ended.is_over && !ended.hung {
            self.filling.record(now, ended.service_time);
            self.samples += 1;
        }
    }

    /// An interval is over: what was seen is in force, if that was enough. `quantile` is the SLA's; `None`: the mean.
    pub(super) fn close(&mut self, least: u32, quantile: Option<f64>) {
        if self.samples >= least {
            let mean = self.filling.mean().unwrap_or_default();
            let at = |q| self.filling.quantile(q).unwrap_or(mean);
            self.put(Times { mean, median: at(0.5), high: quantile.map_or(mean, at) });
        }
    }

    /// Puts away what is in force, under the type's name.
    pub(super) fn keep(&self, name: &str, kept: &mut Kept) {
        let Some(times) = self.known else { return };
        let parts = [("mean", times.mean), ("median", times.median), ("percentile", times.high)];
        parts.iter().for_each(|(part, value)| kept.put(&format!("{part} {name}"), *value));
    }

    /// Begins with what was put away.
    pub(super) fn recall(&mut self, name: &str, kept: &Kept) {
        let part = |part| kept.get(&format!("{part} {name}")).map(|value| value.clamp(0.0, 1e6));
        if let (Some(mean), Some(median), Some(high)) = (part("mean"), part("median"), part("percentile")) {
            self.put(Times { mean, median, high });
        }
    }

    fn put(&mut self, times: Times) {
        self.filling.clear();
        (self.known, self.samples) = (Some(times), 0);
    }
}

/// Requests that came and those that were accepted, within the last second.
#[derive(Debug, Default)]
pub(super) struct Acceptances {
    parts: [Counts; PARTS],
    at: usize,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    received: u32,
    accepted: u32,
}

impl Acceptances {
    pub(super) fn receive(&mut self) {
        self.parts[self.at].received += 1;
    }

    pub(super) fn accept(&mut self) {
        self.parts[self.at].accepted += 1;
    }

    /// A tick: the oldest part is forgotten.
    pub(super) fn step(&mut self) {
        self.at = (self.at + 1) % PARTS;
        self.parts[self.at] = Counts::default();
    }

    /// Which share was accepted; `None`: none came.
    pub(super) fn ratio(&self) -> Option<f64> {
        let sum = |of: fn(&Counts) -> u32| self.parts.iter().map(of).map(f64::from).sum::<f64>();
        let received = sum(|counts| counts.received);
        (received > 0.0).then(|| sum(|counts| counts.accepted) / received)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(processing: &mut Processing, times: u32, seconds: f64) {
        for _ in 0..times {
            processing.filling.record(Timestamp::ZERO, seconds);
            processing.samples += 1;
        }
    }

    #[test]
    fn an_interval_with_enough_samples_replaces_what_was_known_and_others_go_on() {
        let mut processing = Processing::new();
        seen(&mut processing, 9, 0.1);
        processing.close(10, Some(0.95));
        assert_eq!(processing.known(), None, "too few");
        seen(&mut processing, 1, 1.0);
        processing.close(10, Some(0.95));
        let times = processing.known().expect("ten are enough");
        assert!((times.mean - 0.19).abs() < 1e-9 && (times.median / 0.1 - 1.0).abs() < 0.05, "{times:?}");
        assert!((times.high - 1.0).abs() < 0.05, "{times:?}");
        processing.close(10, Some(0.95));
        assert_eq!(processing.known(), Some(times), "a lull");
        seen(&mut processing, 10, 0.5);
        processing.close(10, None);
        assert_eq!(processing.known().map(|times| times.high), Some(0.5), "a mean is bounded by a mean");
    }

    #[test]
    fn acceptances_are_those_of_the_last_second() {
        let mut acceptances = Acceptances::default();
        assert_eq!(acceptances.ratio(), None);
        (0..4).for_each(|_| acceptances.receive());
        acceptances.accept();
        assert_eq!(acceptances.ratio(), Some(0.25));
        (0..9).for_each(|_| acceptances.step());
        assert_eq!(acceptances.ratio(), Some(0.25));
        acceptances.step();
        assert_eq!(acceptances.ratio(), None);
    }
}
