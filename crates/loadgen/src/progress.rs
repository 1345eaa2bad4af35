//! The run as it goes: what a progress bar and a live display show.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// The state of a run, ten times a second.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Progress {
    /// Since the first request could be sent.
    pub elapsed: Duration,
    /// The planned duration.
    pub duration: Duration,
    /// Whether the run is over.
    pub finished: bool,
    /// By class, in the order of the plan.
    pub classes: Vec<ClassProgress>,
}

/// What became of the requests of one class until now.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ClassProgress {
    /// Name of the class.
    pub class: String,
    /// Requests scheduled until now.
    pub offered: u64,
    /// Answered with 2xx or 3xx.
    pub admitted: u64,
    /// Requests answered with status 503.
    pub refused: u64,
    /// Errors, other statuses, not sent.
    pub failed: u64,
    /// Admitted within the target.
    pub good: u64,
    /// Waiting for an answer now.
    pub in_flight: u64,
    /// Rates of the last second.
    pub recent: Recent,
}

/// What happened in the last second, by the time at which it happened.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Recent {
    /// Requests scheduled per second.
    pub offered_per_s: f64,
    /// Admitted answers per second.
    pub admitted_per_s: f64,
    /// Refusals per second.
    pub refused_per_s: f64,
    /// Failures per second.
    pub failed_per_s: f64,
    /// 95th percentile of the response times of admitted requests, seconds.
    pub p95: Option<f64>,
}

/// Drives the live display and the look at the processor: `look` is told how long ago it was called last.
pub(crate) async fn ten_times_a_second(look: impl Fn(Duration)) {
    let mut interval = tokio::time::interval(Duration::from_millis(100));
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut last = Instant::now();
    loop {
        interval.tick().await;
        let length = last.elapsed();
        last = Instant::now();
        look(length);
    }
}

/// Counts between two ticks.
#[derive(Debug, Clone, Default)]
pub(crate) struct Slice {
    pub(crate) offered: u64,
    pub(crate) admitted: u64,
    pub(crate) refused: u64,
    pub(crate) failed: u64,
    pub(crate) latencies: Vec<f32>,
}

/// The slices of the last second.
#[derive(Debug, Default)]
pub(crate) struct Window {
    pub(crate) now: Slice,
    past: VecDeque<(Duration, Slice)>,
}

impl Window {
    /// Closes the current slice, which took `length`, and sums up the last second.
    pub(crate) fn tick(&mut self, length: Duration) -> Recent {
        self.past.push_back((length, std::mem::take(&mut self.now)));
        if self.past.len() > SLICES {
            self.past.pop_front();
        }
        let seconds = self.past.iter().map(|(length, _)| length.as_secs_f64()).sum::<f64>().max(1e-9);
        let rate = |count: fn(&Slice) -> u64| self.past.iter().map(|(_, s)| count(s)).sum::<u64>() as f64 / seconds;
        let mut latencies: Vec<f32> = self.past.iter().flat_map(|(_, s)| s.latencies.iter().copied()).collect();
        Recent {
            offered_per_s: rate(|s| s.offered),
            admitted_per_s: rate(|s| s.admitted),
            refused_per_s: rate(|s| s.refused),
            failed_per_s: rate(|s| s.failed),
            p95: p95(&mut latencies),
        }
    }
}

/// The 95th percentile by nearest rank; reorders `values`.
pub(crate) fn p95(values: &mut [f32]) -> Option<f64> {
    if values.is_empty() {
        return None;
    }
    let rank = (values.len() * 95).div_ceil(100) - 1;
    let (_, value, _) = values.select_nth_unstable_by(rank, f32::total_cmp);
    Some(f64::from(*value))
}

/// Ticks in the last second.
const SLICES: usize = 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p95_by_nearest_rank() {
        let mut values: Vec<f32> = (1..=100).rev().map(|v| v as f32).collect();
        assert_eq!(p95(&mut values), Some(95.0));
        assert_eq!(p95(&mut [7.0]), Some(7.0));
        assert_eq!(p95(&mut []), None);
    }

    #[test]
    fn the_window_forgets_after_a_second() {
        let mut window = Window::default();
        window.now.admitted = 50;
        let length = Duration::from_millis(100);
        assert_eq!(window.tick(length).admitted_per_s, 500.0);
        let rates: Vec<f64> = (0..10).map(|_| window.tick(length).admitted_per_s.round()).collect();
        assert_eq!((rates[8], rates[9]), (50.0, 0.0));
    }
}
