//! What a run is worth.

use std::time::Duration;

use serde::Serialize;
use tidegate_sim::Report;
use tidegate_workload::Second;

use super::arena::{Arena, Ideal};

/// What came of a run, or of several on average.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Score {
    /// Answers in time, over those of the ideal.
    pub goodput: f64,
    /// The work in them, over that of the ideal.
    pub work: f64,
    /// Response times of the answers, over the target.
    pub p95: f64,
    /// The same.
    pub p99: f64,
    /// Of the most important class, the share answered in time; of a single class nothing is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub important: Option<f64>,
    /// Refused although there was room for them, as a share of what came.
    pub needless: f64,
    /// From the disturbance until nine tenths of the ideal are answered in time again, seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recovery: Option<f64>,
}

/// Recovered is who reaches this share of the ideal, over so many seconds.
const RECOVERED: f64 = 0.9;
const OVER: usize = 3;

impl Score {
    /// Of one run.
    pub fn of(arena: &Arena, ideal: &Ideal, report: &Report) -> Score {
        let (from, to) = (arena.from as usize, arena.seconds as usize);
        let sum = |of: &[f64], from: usize, to: usize| of[from.min(of.len())..to.min(of.len())].iter().sum::<f64>();
        let span = |from: usize, to: usize| {
            let [from, to] = [from, to].map(|at| Duration::from_secs(at as u64));
            let mut all = Sum::default();
            arena.loads.iter().zip(&report.courses).for_each(|(load, course)| {
                all.add(load.class, load.cost.mean(), &course.span(from, to));
            });
            all
        };
        let all = span(from, to);
        let possible = sum(&ideal.requests, from, to);
        let quantile = |q| all.answered.quantile(q).unwrap_or(0.0) / arena.target.as_secs_f64();
        let recovered = |at: &usize| {
            let possible = sum(&ideal.requests, *at, at + OVER);
            span(*at, at + OVER).good >= RECOVERED * possible
        };
        let recovery = arena.disturbed.map(|at| {
            let found = (at as usize..to.saturating_sub(OVER - 1)).find(recovered);
            (found.unwrap_or(to) - at as usize) as f64
        });
        Score {
            goodput: all.good / possible.max(f64::MIN_POSITIVE),
            work: all.work / sum(&ideal.work, from, to).max(f64::MIN_POSITIVE),
            p95: quantile(0.95),
            p99: quantile(0.99),
            important: (arena.classes > 1).then(|| all.first.1 / all.first.0.max(1.0)),
            needless: (all.refused - (all.offered - possible).max(0.0)).max(0.0) / all.offered.max(1.0),
            recovery,
        }
    }

    /// The mean of several.
    pub fn mean(scores: &[Score]) -> Score {
        let mean = |of: &dyn Fn(&Score) -> f64| scores.iter().map(of).sum::<f64>() / scores.len().max(1) as f64;
        let some = |of: fn(&Score) -> Option<f64>| {
            scores.first().and_then(of).map(|_| mean(&|score| of(score).unwrap_or_default()))
        };
        Score {
            goodput: mean(&|score| score.goodput),
            work: mean(&|score| score.work),
            p95: mean(&|score| score.p95),
            p99: mean(&|score| score.p99),
            important: some(|score| score.important),
            needless: mean(&|score| score.needless),
            recovery: some(|score| score.recovery),
        }
    }

    /// Whether the target is held.
    pub fn holds(&self) -> bool {
        self.p95 <= 1.0
    }
}

#[derive(Default)]
struct Sum {
    offered: f64,
    refused: f64,
    good: f64,
    work: f64,
    /// Of the most important class: offered and good.
    first: (f64, f64),
    answered: tidegate_workload::Responses,
}

impl Sum {
    fn add(&mut self, class: u8, cost: f64, second: &Second) {
        self.offered += second.offered as f64;
        self.refused += second.refused as f64;
        self.good += second.good as f64;
        self.work += second.good as f64 * cost;
        if class == 0 {
            self.first.0 += second.offered as f64;
            self.first.1 += second.good as f64;
        }
        self.answered.merge(&second.responses);
    }
}
