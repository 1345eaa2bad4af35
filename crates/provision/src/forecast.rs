//! Forecast of the offered load from its history.
//!
//! *Intuition.* Load has habits: the same hour yesterday, the same hour a week ago. The busiest rate of a slot of the
//! day is foreseen from the same slot of the days (or weeks) before, put up or down by how the last hour compares with
//! the same hour of that pattern. How far such forecasts were off lately is the width of the interval.
//!
//! *Awkward cases.* A forecast is only as good as its record: each way of forecasting (weekly, daily, the last peak) is
//! scored on every slot as it comes to pass, and the best one speaks. So a new application, and one without habits,
//! falls back to the last observed peak. A quiet night must not make the next morning's ratio infinite: the ratio is
//! bounded. Slots without reports are not zeros, they are unknown. Where a policy's intervals are shorter than a slot,
//! the last peak is kept by these: else what an interval long past brought would be foreseen until its slot is over.
//!
//! *Source.* Ours; Cataclysm (section 4.1) leaves its predictor out. Why not a library: those that are kept up need the
//! standard library, refit everything at each forecast and keep weeks of raw history, which a control plane would have
//! to store at every step. This is a few numbers for each slot. Another one can stand behind [`Forecaster`].

use alloc::collections::VecDeque;
use core::fmt::Debug;
use core::time::Duration;

use libm::{exp, fabs, log};
use serde::{Deserialize, Serialize};

use tidegate_engine::Timestamp;

/// Foresees an application's offered rate.
pub trait Forecaster: Debug + Send {
    /// `rate` requests per second were offered on the mean up to `at`, since the call before. Calls are in order of
    /// time.
    fn observe(&mut self, at: Timestamp, rate: f64);

    /// The highest rate between two instants that are not in the past.
    fn forecast(&self, from: Timestamp, to: Timestamp) -> Forecast;

    /// Itself, where it is the one that can be kept by [`Provisioner::snapshot`](super::Provisioner::snapshot); others
    /// begin anew.
    fn seasonal(&self) -> Option<&Seasonal> {
        None
    }
}

/// What is foreseen: of the highest rate in a period, requests per second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Forecast {
    /// One in ten turns out below this.
    pub low: f64,
    /// The middle of what may come.
    pub expected: f64,
    /// One in ten turns out above this.
    pub high: f64,
    /// What it stands on.
    pub basis: Basis,
}

/// What a forecast stands on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Basis {
    /// The same hour of the same day of the weeks before.
    Weekly,
    /// The same hour of the days before.
    Daily,
    /// The last observed peak.
    Peak,
    /// Nothing was observed yet.
    Nothing,
}

/// The forecaster that comes along: daily and weekly habits, or else the last peak.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Seasonal {
    slot: Duration,
    /// The last peak is that of so long; the level is compared over so long.
    recent: Duration,
    /// The busiest mean rate observed in each slot, newest last; NaN where nothing was.
    #[serde(with = "unknown")]
    peaks: VecDeque<f64>,
    /// The number of the slot after the newest.
    next: u64,
    /// The slot that is being observed, and its busiest rate so far.
    open: Option<(u64, f64)>,
    scores: [Score; 3],
    /// The last peak where it is known better than by slots. Not in what earlier versions kept.
    #[serde(default)]
    last: Option<Last>,
}

/// The busiest rate in each of the last intervals.
#[derive(Clone, Debug, Deserialize, Serialize)]
struct Last {
    interval: Duration,
    /// Numbers of intervals and their rates, oldest first; the last one is not over yet.
    peaks: VecDeque<(u64, f64)>,
}

const DAY: Duration = Duration::from_secs(86_400);
/// So many weeks are kept, and looked back on.
const WEEKS: usize = 4;
/// So many days are looked back on for the daily habit.
const DAYS: usize = 5;
/// How far the level may lie from the pattern's.
const MOST_RATIO: f64 = 4.0;
/// Weight of the newest slot in a score: about a day counts, so that a quiet night does not judge alone.
const NEWEST: f64 = 0.003;
/// Of a normal distribution, the quantile 0.9, in standard deviations, times mean absolute deviations in those.
const NINE_OF_TEN: f64 = 1.2816 * 1.2533;
/// Below this rate, requests per second, nothing is to be learned from a ratio.
const FAINT: f64 = 1e-3;

/// How far a way of forecasting was off: the mean of |log(observed / foreseen)|.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
struct Score {
    error: f64,
    slots: u32,
}

const WAYS: [Basis; 3] = [Basis::Weekly, Basis::Daily, Basis::Peak];

impl Seasonal {
    /// A forecaster with slots of that length, at least a second; a few minutes suit a service. The last peak is that
    /// of `recent`.
    pub fn new(slot: Duration, recent: Duration) -> Seasonal {
        let slot = slot.max(Duration::from_secs(1));
        let scores = [Score::default(); 3];
        Seasonal { slot, recent, peaks: VecDeque::new(), next: 0, open: None, scores, last: None }
    }

    /// The same, with a last peak that is known by intervals of that length, at least a second, where they are shorter
    /// than slots.
    pub fn with_interval(self, interval: Duration) -> Seasonal {
        let interval = interval.max(Duration::from_secs(1));
        let last = (interval < self.slot).then_some(Last { interval, peaks: VecDeque::new() });
        Seasonal { last, ..self }
    }

    /// What `past` knows, by these settings. Of a past that knows the last peak by other intervals, or by slots, it is
    /// taken to be of now: until it is two intervals old it counts.
    pub(super) fn going_on(&self, past: Seasonal) -> Seasonal {
        let last = match (self.last.clone(), &past.last) {
            (Some(mine), Some(kept)) if mine.interval == kept.interval => Some(kept.clone()),
            (Some(mine), _) => Some(Last { peaks: past.newest(mine.interval).into_iter().collect(), ..mine }),
            (None, _) => None,
        };
        Seasonal { recent: self.recent, last, ..past }
    }

    /// The last peak, with the number of the interval that it is taken to be of.
    fn newest(&self, interval: Duration) -> Option<(u64, f64)> {
        let end = self.open.map_or(self.next, |(open, _)| open + 1);
        Some((end * self.slot.as_nanos() as u64 / interval.as_nanos() as u64, self.last_peak()?))
    }

    /// Slots in which nothing was observed are unknown; those before the first are not kept.
    fn close(&mut self, until: u64) {
        let Some((number, peak)) = self.open.take() else { return };
        self.judge(number, peak);
        if self.peaks.is_empty() {
            self.next = number;
        }
        self.push_unknown(number);
        self.push(peak);
        self.push_unknown(until);
    }

    fn push_unknown(&mut self, until: u64) {
        let gap = until.saturating_sub(self.next).min(self.most() as u64);
        (0..gap).for_each(|_| self.push(f64::NAN));
        self.next = self.next.max(until);
    }

    fn push(&mut self, peak: f64) {
        if self.peaks.len() == self.most() {
            self.peaks.pop_front();
        }
        self.peaks.push_back(peak);
        self.next += 1;
    }

    /// Every way is asked for what is known by now, as if it were the forecast of a moment ago.
    fn judge(&mut self, number: u64, observed: f64) {
        for (at, way) in WAYS.into_iter().enumerate() {
            let Some(foreseen) = self.foresee(way, number, number) else { continue };
            let error = fabs(log(observed.max(FAINT) / foreseen.max(FAINT)));
            let score = &mut self.scores[at];
            score.slots += 1;
            let weight = NEWEST.max(1.0 / f64::from(score.slots));
            score.error += weight * (error - score.error);
        }
    }

    /// The highest rate of the slots `from..=to`, by one way; `None` where it knows nothing.
    fn foresee(&self, way: Basis, from: u64, to: u64) -> Option<f64> {
        match way {
            Basis::Weekly => self.habit(self.a_day() * 7, WEEKS, from, to),
            Basis::Daily => self.habit(self.a_day(), DAYS, from, to),
            Basis::Peak => self.highest(self.next.saturating_sub(self.slots_in(self.recent)), self.next),
            Basis::Nothing => None,
        }
    }

    fn habit(&self, season: u64, seasons: usize, from: u64, to: u64) -> Option<f64> {
        let highest = (from..=to).filter_map(|slot| self.usual(season, seasons, slot)).reduce(f64::max)?;
        // How the last hour compares with what is usual.
        let begin = self.next.saturating_sub(self.slots_in(self.recent));
        let (mut now, mut usual) = (0.0, 0.0);
        for slot in begin..self.next {
            if let (Some(seen), Some(habit)) = (self.at(slot), self.usual(season, seasons, slot)) {
                (now, usual) = (now + seen, usual + habit);
            }
        }
        let ratio = if usual > FAINT && now > FAINT { now / usual } else { 1.0 };
        Some(highest * ratio.clamp(1.0 / MOST_RATIO, MOST_RATIO))
    }

    /// The mean of a slot over the seasons before of which it may be known, the newer the weightier.
    fn usual(&self, season: u64, seasons: usize, slot: u64) -> Option<f64> {
        let newest = if slot < self.next { 1 } else { (slot - self.next) / season + 1 };
        let (mut sum, mut weights, mut weight) = (0.0, 0.0, 1.0);
        for back in newest..newest + seasons as u64 {
            if let Some(peak) = slot.checked_sub(season * back).and_then(|before| self.at(before)) {
                (sum, weights) = (sum + weight * peak, weights + weight);
            }
            weight *= 0.5;
        }
        (weights > 0.0).then(|| sum / weights)
    }

    /// The last observed peak, as well as it is known.
    fn last_peak(&self) -> Option<f64> {
        let by_interval = self.last.as_ref().and_then(|last| last.peaks.iter().map(|(_, peak)| *peak).reduce(f64::max));
        by_interval.or_else(|| self.foresee(Basis::Peak, self.next, self.next))
    }

    fn highest(&self, from: u64, to: u64) -> Option<f64> {
        let closed = (from..to).filter_map(|slot| self.at(slot));
        closed.chain(self.open.map(|(_, peak)| peak)).reduce(f64::max)
    }

    fn at(&self, slot: u64) -> Option<f64> {
        let back = self.next.checked_sub(slot)? as usize;
        let place = self.peaks.len().checked_sub(back)?;
        self.peaks.get(place).copied().filter(|peak| !peak.is_nan())
    }

    fn number(&self, at: Timestamp) -> u64 {
        at.as_nanos() / self.slot.as_nanos() as u64
    }

    fn slots_in(&self, time: Duration) -> u64 {
        (time.as_nanos() / self.slot.as_nanos()).max(1) as u64
    }

    fn a_day(&self) -> u64 {
        self.slots_in(DAY)
    }

    fn most(&self) -> usize {
        (self.a_day() * 7) as usize * WEEKS
    }
}

impl Last {
    /// Keeps the open interval and those before it that `recent` reaches back to.
    fn observe(&mut self, at: Timestamp, rate: f64, recent: Duration) {
        let length = self.interval.as_nanos();
        let number = (u128::from(at.as_nanos()) / length) as u64;
        match self.peaks.back_mut() {
            Some((open, peak)) if *open >= number => *peak = peak.max(rate),
            _ => self.peaks.push_back((number, rate)),
        }
        let oldest = number.saturating_sub((recent.as_nanos() / length).max(1) as u64);
        while self.peaks.front().is_some_and(|(before, _)| *before < oldest) {
            self.peaks.pop_front();
        }
    }
}

/// Text formats know no NaN: what is unknown is kept as nothing.
mod unknown {
    use alloc::collections::VecDeque;
    use alloc::vec::Vec;

    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(peaks: &VecDeque<f64>, to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(peaks.iter().map(|peak| (!peak.is_nan()).then_some(*peak)))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<VecDeque<f64>, D::Error> {
        let peaks = Vec::<Option<f64>>::deserialize(from)?;
        Ok(peaks.into_iter().map(|peak| peak.unwrap_or(f64::NAN)).collect())
    }
}

impl Forecaster for Seasonal {
    fn seasonal(&self) -> Option<&Seasonal> {
        Some(self)
    }

    fn observe(&mut self, at: Timestamp, rate: f64) {
        if !(rate.is_finite() && rate >= 0.0) {
            return;
        }
        // What is told at the very end of a slot is about it, not about the next.
        let end = at - Duration::from_nanos(1);
        let (number, recent) = (self.number(end), self.recent);
        if let Some(last) = &mut self.last {
            last.observe(end, rate, recent);
        }
        match &mut self.open {
            Some((open, peak)) if *open >= number => *peak = peak.max(rate),
            _ => {
                self.close(number);
                self.open = Some((number, rate));
            }
        }
    }

    fn forecast(&self, from: Timestamp, to: Timestamp) -> Forecast {
        let (from, to) = (self.number(from), self.number(to - Duration::from_nanos(1)).max(self.number(from)));
        let foresee = |way| match way {
            Basis::Peak => self.last_peak(),
            way => self.foresee(way, from, to),
        };
        let known = |(at, way): (usize, Basis)| Some((self.scores[at].error, way, foresee(way)?));
        // Of equals the one that stands on less history.
        let judged = WAYS.into_iter().enumerate().filter(|(at, _)| self.scores[*at].slots > 0).rev().filter_map(known);
        let first = || self.last_peak().map(|peak| (0.5, Basis::Peak, peak));
        let best = judged.reduce(|best, other| if other.0 < best.0 { other } else { best }).or_else(first);
        let Some((error, basis, expected)) = best else {
            return Forecast { low: 0.0, expected: 0.0, high: 0.0, basis: Basis::Nothing };
        };
        let spread = exp(NINE_OF_TEN * error.min(log(MOST_RATIO)));
        Forecast { low: expected / spread, expected, high: expected * spread, basis }
    }
}

#[cfg(test)]
mod tests;
