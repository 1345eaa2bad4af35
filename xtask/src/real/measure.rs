//! The arithmetic: from answers to rates, percentiles and shares of capacity.

use std::collections::BTreeMap;

use anyhow::{Result, bail};

use crate::apache::SCRIPTS;

/// A rate for each of [`SCRIPTS`], per second.
pub type PerScript = [f64; SCRIPTS.len()];

/// One answered request; times in seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Answer {
    /// Which of [`SCRIPTS`].
    pub script: usize,
    /// When it was sent, since the load's begin.
    pub start: f64,
    /// From there to the last byte, the connection's opening included.
    pub took: f64,
    /// Its status.
    pub status: u16,
}

/// What one load gave.
///
/// Rates of an open load are over the time from the first request to the moment when the first process of the generator
/// stops: the load is whole in it but for the ramp at its begin, which is counted. Rates of a closed loop are over all
/// its time. Percentiles are over all answers.
#[derive(Debug, Clone)]
pub struct Run {
    answers: Vec<Answer>,
    from: f64,
    until: f64,
    due: f64,
    /// The part of the time in which the service wanted its core and others had it; 0 until it is known.
    pub denied: f64,
    /// The part of the time that the machine below this one took from the core of sentry and load; 0 until it is known.
    pub stolen: f64,
}

impl Run {
    /// Puts answers together; `until` is the end of the counted time, `due` the requests an open load should have sent
    /// by then (0 for a closed one).
    ///
    /// # Errors
    /// When there is no answer in the time.
    pub fn new(answers: Vec<Answer>, until: f64, due: f64) -> Result<Self> {
        let from = answers.iter().map(|answer| answer.start).fold(f64::INFINITY, f64::min);
        if from >= until {
            bail!("no request was answered");
        }
        Ok(Self { answers, from, until, due, denied: 0.0, stolen: 0.0 })
    }

    /// Counted seconds.
    pub fn seconds(&self) -> f64 {
        self.until - self.from
    }

    /// Requests sent and answered at some time, per second.
    pub fn offered(&self) -> f64 {
        self.sent() / self.seconds()
    }

    /// The part of the due requests that was sent and answered; none for a closed load.
    pub fn kept(&self) -> Option<f64> {
        (self.due > 0.0).then(|| self.sent() / self.due)
    }

    /// How many answers there were with status 200.
    pub fn answered(&self) -> f64 {
        self.ok().count() as f64
    }

    /// Answers with status 200, per second.
    pub fn admitted(&self) -> PerScript {
        self.goodput(f64::INFINITY)
    }

    /// Answers with status 200 that took at most so many seconds, per second.
    pub fn goodput(&self, target: f64) -> PerScript {
        let mut rates = [0.0; SCRIPTS.len()];
        let in_time = |answer: &&Answer| answer.start + answer.took <= self.until;
        for answer in self.ok().filter(in_time).filter(|answer| answer.took <= target) {
            rates[answer.script] += 1.0 / self.seconds();
        }
        rates
    }

    /// A quantile of the response times with status 200, seconds; none without any.
    pub fn quantile(&self, quantile: f64) -> Option<f64> {
        percentile(self.ok().map(|answer| answer.took).collect(), quantile)
    }

    /// The quantile of one script's response times with status 200.
    pub fn quantile_of(&self, script: usize, quantile: f64) -> Option<f64> {
        percentile(self.ok().filter(|answer| answer.script == script).map(|answer| answer.took).collect(), quantile)
    }

    /// How many answers had each status.
    pub fn statuses(&self) -> BTreeMap<u16, u64> {
        let mut counts = BTreeMap::new();
        for answer in &self.answers {
            *counts.entry(answer.status).or_default() += 1;
        }
        counts
    }

    /// Answers with status 200 for every second of the counted time, by their end.
    pub fn by_second(&self) -> Vec<u32> {
        let mut counts = vec![0; self.until.ceil() as usize];
        for answer in self.ok() {
            if let Some(count) = counts.get_mut((answer.start + answer.took) as usize) {
                *count += 1;
            }
        }
        counts
    }

    fn ok(&self) -> impl Iterator<Item = &Answer> {
        self.answers.iter().filter(|answer| answer.status == 200)
    }

    fn sent(&self) -> f64 {
        self.answers.iter().filter(|answer| answer.start <= self.until).count() as f64
    }
}

/// The value that this part of all values does not exceed (nearest rank).
fn percentile(mut values: Vec<f64>, quantile: f64) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let rank = (quantile * values.len() as f64).ceil() as usize;
    values.get(rank.saturating_sub(1)).copied()
}

/// What a request of each script costs, in requests of the mix.
///
/// A policy that prefers small requests answers more of them than the server alone does, and would beat it in requests
/// per second without doing more. In this measure it cannot: a heavy request counts as many times a light one as it
/// costs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Weights(PerScript);

impl Weights {
    /// From the highest rate at which a processor serves each script alone: one by the processor time of a request.
    pub fn new(alone: PerScript) -> Self {
        let mean: f64 = SCRIPTS.iter().zip(alone).map(|(script, rate)| script.share / rate).sum();
        Self(alone.map(|rate| 1.0 / (rate * mean)))
    }

    /// Requests of the mix per second that cost as much as these.
    pub fn of_mix(&self, rates: PerScript) -> f64 {
        self.0.iter().zip(rates).map(|(weight, rate)| weight * rate).sum()
    }

    /// The weights themselves.
    pub fn values(&self) -> PerScript {
        self.0
    }
}

/// So many workers in all, shared out so that a saturated server answers the scripts in their shares: it gives each
/// open request the same part of itself, so a script needs open requests in proportion to share times cost.
pub fn workers_for_mix(total: u32, weights: &Weights) -> Vec<u32> {
    let parts = SCRIPTS.iter().zip(weights.0).map(|(script, weight)| script.share * weight);
    parts.map(|part| (part * f64::from(total)).round().max(1.0) as u32).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(start: f64, took: f64, status: u16) -> Answer {
        Answer { script: 0, start, took, status }
    }

    #[test]
    fn rates_are_over_the_counted_time_and_percentiles_over_all() {
        let answers = vec![
            answer(1.0, 0.1, 200),
            answer(2.0, 0.6, 200),
            answer(2.5, 0.01, 503),
            // Sent in time, answered after it.
            answer(4.9, 0.3, 200),
            // Sent after it.
            answer(5.5, 0.2, 200),
        ];
        let run = Run::new(answers, 5.0, 5.0).unwrap();
        assert_eq!(run.seconds(), 4.0);
        assert_eq!(run.offered(), 1.0);
        assert_eq!(run.kept(), Some(0.8));
        assert_eq!(run.answered(), 4.0);
        assert_eq!(run.admitted()[0], 0.5);
        assert_eq!(run.goodput(0.5)[0], 0.25);
        assert_eq!(run.quantile(0.95), Some(0.6));
        assert_eq!(run.quantile(0.5), Some(0.2));
        assert_eq!(run.quantile_of(1, 0.5), None);
        assert_eq!(run.statuses().into_iter().collect::<Vec<_>>(), [(200, 4), (503, 1)]);
        assert_eq!(run.by_second(), [0, 1, 1, 0, 0]);
    }

    #[test]
    fn a_load_without_answers_is_an_error() {
        assert!(Run::new(Vec::new(), 5.0, 0.0).is_err());
        assert!(Run::new(vec![answer(6.0, 0.1, 200)], 5.0, 0.0).is_err());
        let refused = Run::new(vec![answer(1.0, 0.1, 503)], 5.0, 0.0).unwrap();
        assert_eq!((refused.quantile(0.95), refused.kept()), (None, None));
    }

    #[test]
    fn the_percentile_is_the_nearest_rank() {
        let values: Vec<f64> = (1..=100).rev().map(f64::from).collect();
        assert_eq!(percentile(values.clone(), 0.95), Some(95.0));
        assert_eq!(percentile(values, 1.0), Some(100.0));
        assert_eq!(percentile(vec![7.0], 0.95), Some(7.0));
        assert_eq!(percentile(Vec::new(), 0.95), None);
    }

    #[test]
    fn only_small_requests_are_no_more_work() {
        // Costs 5, 10 and 30 ms: the mix costs 11.5 ms a request.
        let weights = Weights::new([200.0, 100.0, 1000.0 / 30.0]);
        let mix = 1000.0 / 11.5;
        let close = |a: f64, b: f64| assert!((a - b).abs() < 1e-9, "{a} {b}");
        close(weights.of_mix([200.0, 0.0, 0.0]), mix);
        close(weights.of_mix([0.0, 0.0, 1000.0 / 30.0]), mix);
        close(weights.of_mix([0.5 * mix, 0.3 * mix, 0.2 * mix]), mix);
    }

    #[test]
    fn workers_follow_the_cost_of_the_mix_and_none_is_left_out() {
        let weights = Weights::new([200.0, 100.0, 1000.0 / 30.0]);
        // Work: 2.5, 3 and 6 of 11.5.
        assert_eq!(workers_for_mix(23, &weights), [5, 6, 12]);
        assert_eq!(workers_for_mix(1, &weights), [1, 1, 1]);
    }
}
