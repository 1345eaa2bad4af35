//! The last hour of an application, second by second: what the dashboard's charts are drawn from.
//!
//! It is sampled once a second from a [`Snapshot`] and costs the data path nothing. Memory is bounded: [`KEPT`] seconds
//! of 168 bytes and 48 bytes for each class, 0.6 MB and 173 kB a class, whatever arrives.

mod columns;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::time::Duration;

use tidegate_engine::{ClassSnapshot, PolicyState, Reason, Snapshot};

use crate::metrics::{controllers, stealing};

/// Seconds kept.
pub const KEPT: usize = 3600;

/// Numbers of the controller's own that are kept. A policy that shows more is cut off here.
pub const GAUGES: usize = 24;

const REASONS: usize = Reason::ALL.len();

/// One application's last hour.
#[derive(Debug, Default)]
pub struct History {
    seconds: VecDeque<Second>,
    /// Of every second in `seconds`, one entry for each class of `classes`, in that order.
    by_class: VecDeque<ClassSecond>,
    classes: Vec<ClassTotals>,
    gauges: Vec<Gauge>,
    last: Duration,
    reasons: [u64; REASONS],
}

/// One second of the application.
#[derive(Clone, Copy, Debug)]
struct Second {
    /// When it ended, milliseconds since the process began.
    at_ms: u64,
    /// How long it was: the clock that samples may be late.
    span_ms: u32,
    target: f32,
    shadow: bool,
    in_flight: u32,
    waiting: u32,
    /// Requests refused, by reason.
    reasons: [u32; REASONS],
    /// NaN where there is none.
    gauges: [f32; GAUGES],
}

/// One second of a class. Counts are of this second alone.
#[derive(Clone, Copy, Debug)]
struct ClassSecond {
    offered: u32,
    admitted: u32,
    rejected: u32,
    completed: u32,
    in_target: u32,
    failed: u32,
    in_flight: u32,
    waiting: u32,
    /// Seconds; NaN where nothing was answered yet.
    p50: f32,
    p95: f32,
    p99: f32,
    statistic: f32,
}

/// A class's counters as they last were.
#[derive(Clone, Debug, Default)]
struct ClassTotals {
    name: String,
    offered: u64,
    admitted: u64,
    rejected: u64,
    completed: u64,
    in_target: u64,
    failed: u64,
}

/// A number of the controller's own.
#[derive(Debug)]
struct Gauge {
    name: String,
    seen: Duration,
}

impl History {
    /// Takes in the second that ends `at`, since the process began. The first call only starts the count.
    pub fn sample(&mut self, at: Duration, now: &Snapshot) {
        let first = self.classes.is_empty();
        self.match_classes(&now.classes);
        let reasons = totals_by_reason(&now.classes);
        let second = Second {
            at_ms: at.as_millis() as u64,
            span_ms: clamp(at.saturating_sub(self.last).as_millis() as u64),
            target: now.target as f32,
            shadow: now.shadow,
            in_flight: clamp(now.in_flight as u64),
            waiting: clamp(now.waiting as u64),
            reasons: std::array::from_fn(|i| clamp(reasons[i].saturating_sub(self.reasons[i]))),
            gauges: self.gauges_of(at, now),
        };
        (self.last, self.reasons) = (at, reasons);
        if self.seconds.len() == KEPT {
            self.seconds.pop_front();
            self.by_class.drain(..self.classes.len());
        }
        for (totals, class) in self.classes.iter_mut().zip(&now.classes) {
            let class_second = totals.advance(class);
            if !first {
                self.by_class.push_back(class_second);
            }
        }
        if !first {
            self.seconds.push_back(second);
        }
    }

    /// Seconds kept now.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.seconds.len()
    }

    /// After a reload: what is kept follows the classes' names; what is kept of a class that is gone, goes.
    fn match_classes(&mut self, now: &[ClassSnapshot]) {
        if self.classes.len() == now.len() && self.classes.iter().zip(now).all(|(old, new)| old.name == new.name) {
            return;
        }
        let from: Vec<Option<usize>> =
            now.iter().map(|class| self.classes.iter().position(|old| old.name == class.name)).collect();
        let width = self.classes.len();
        let old = std::mem::replace(&mut self.by_class, VecDeque::with_capacity(KEPT * now.len()));
        // At once and not by doubling: what is never touched costs nothing.
        self.seconds.reserve_exact(KEPT - self.seconds.len());
        for second in 0..self.seconds.len() {
            let entry = |at: &Option<usize>| at.map_or(ClassSecond::NOTHING, |at| old[second * width + at]);
            self.by_class.extend(from.iter().map(entry));
        }
        let totals = |(class, at): (&ClassSnapshot, &Option<usize>)| match at {
            Some(at) => self.classes[*at].clone(),
            None => ClassTotals { name: class.name.clone(), ..ClassTotals::default() },
        };
        self.classes = now.iter().zip(&from).map(totals).collect();
    }

    fn gauges_of(&mut self, at: Duration, now: &Snapshot) -> [f32; GAUGES] {
        let mut values = [f32::NAN; GAUGES];
        gauges(now, |name, value| {
            if let Some(slot) = self.slot(at, name) {
                values[slot] = value as f32;
            }
        });
        values
    }

    /// Where a number is kept. When all places are taken, the one that was not seen for the longest time gives way.
    fn slot(&mut self, at: Duration, name: &str) -> Option<usize> {
        if let Some(slot) = self.gauges.iter().position(|gauge| gauge.name == name) {
            self.gauges[slot].seen = at;
            return Some(slot);
        }
        let gauge = Gauge { name: name.to_owned(), seen: at };
        if self.gauges.len() < GAUGES {
            self.gauges.push(gauge);
            return Some(self.gauges.len() - 1);
        }
        let (slot, oldest) = self.gauges.iter_mut().enumerate().min_by_key(|(_, gauge)| gauge.seen)?;
        if oldest.seen == at {
            return None;
        }
        *oldest = gauge;
        self.seconds.iter_mut().for_each(|second| second.gauges[slot] = f32::NAN);
        Some(slot)
    }
}

impl ClassSecond {
    const NOTHING: ClassSecond = ClassSecond {
        offered: 0,
        admitted: 0,
        rejected: 0,
        completed: 0,
        in_target: 0,
        failed: 0,
        in_flight: 0,
        waiting: 0,
        p50: f32::NAN,
        p95: f32::NAN,
        p99: f32::NAN,
        statistic: f32::NAN,
    };
}

impl ClassTotals {
    /// What was added since the last call.
    fn advance(&mut self, now: &ClassSnapshot) -> ClassSecond {
        let added = |then: &mut u64, now: u64| clamp(now.saturating_sub(std::mem::replace(then, now)));
        let seconds = |value: Option<f64>| value.map_or(f32::NAN, |value| value as f32);
        ClassSecond {
            offered: added(&mut self.offered, now.offered),
            admitted: added(&mut self.admitted, now.admitted),
            rejected: added(&mut self.rejected, now.rejected_total()),
            completed: added(&mut self.completed, now.completed),
            in_target: added(&mut self.in_target, now.in_target),
            failed: added(&mut self.failed, now.failed),
            in_flight: clamp(now.in_flight),
            waiting: clamp(now.waiting),
            p50: seconds(now.p50),
            p95: seconds(now.p95),
            p99: seconds(now.p99),
            statistic: seconds(now.statistic),
        }
    }
}

/// Every number of the controller's own, by name. Names that end in `_s` are of seconds.
fn gauges(now: &Snapshot, mut keep: impl FnMut(&str, f64)) {
    let PolicyState { limit, threshold, delays, full, more, .. } = &now.policy;
    let known = [
        ("limit", *limit),
        // Classes are counted from 1 wherever people see them.
        ("threshold_class", threshold.map(|(class, _)| f64::from(class) + 1.0)),
        ("threshold_share", threshold.map(|(_, share)| share)),
        ("full_probability", *full),
        ("processors", Some(now.processors)),
        ("mean_cost_s", now.mean_cost),
        ("calibration", Some(now.calibration)),
    ];
    known.into_iter().for_each(|(name, value)| value.into_iter().for_each(|value| keep(name, value)));
    more.iter().for_each(|(name, value)| keep(name, *value));
    for (class, delay) in now.classes.iter().zip(delays) {
        keep(&format!("delay {}_s", class.name), *delay);
    }
    stealing::gauges(now, &mut keep);
    if now.partitions.len() > 1 {
        now.partitions
            .iter()
            .for_each(|part| keep(&format!("servers of {}", part.classes.join(", ")), part.servers as f64));
    }
    // Last: with many request types these are what the bound on their number cuts off.
    controllers::gauges(now, &mut keep);
}

fn totals_by_reason(classes: &[ClassSnapshot]) -> [u64; REASONS] {
    let of = |reason: Reason| {
        classes.iter().flat_map(|class| &class.rejected).filter(move |(name, _)| *name == reason.name())
    };
    Reason::ALL.map(|reason| of(reason).map(|(_, count)| count).sum())
}

fn clamp(count: u64) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}
