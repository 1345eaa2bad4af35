//! What will be offered: from what was.
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

use crate::time::Timestamp;

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
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MINUTE: Duration = Duration::from_secs(60);
    const HOUR: Duration = Duration::from_secs(3600);

    fn at(minutes: u64) -> Timestamp {
        Timestamp::ZERO + MINUTE * minutes as u32
    }

    /// Observes every minute up to `until`.
    fn observed(slot: Duration, until: u64, rate: impl Fn(u64) -> f64) -> Seasonal {
        let mut forecaster = Seasonal::new(slot, HOUR);
        (1..=until).for_each(|minute| forecaster.observe(at(minute), rate(minute)));
        forecaster
    }

    /// 100/s at night, 500/s from 8 to 20 o'clock.
    fn days(minute: u64) -> f64 {
        if (480..1200).contains(&(minute % 1440)) { 500.0 } else { 100.0 }
    }

    #[test]
    fn nothing_is_known_of_a_new_application_and_then_its_last_peak() {
        let forecast = Seasonal::new(MINUTE * 5, HOUR).forecast(at(0), at(30));
        assert_eq!((forecast.expected, forecast.basis), (0.0, Basis::Nothing));
        let forecaster = observed(MINUTE * 5, 30, |minute| if minute == 12 { 80.0 } else { 10.0 });
        let forecast = forecaster.forecast(at(30), at(60));
        assert_eq!((forecast.expected, forecast.basis), (80.0, Basis::Peak));
        assert!(forecast.low < 80.0 && forecast.high > 80.0);
    }

    #[test]
    fn tomorrow_is_like_today() {
        let forecaster = observed(MINUTE * 5, 3 * 1440 + 420, days);
        // At 7 o'clock of the fourth day, for 8 to 8:30.
        let begin = 3 * 1440 + 480;
        let forecast = forecaster.forecast(at(begin), at(begin + 30));
        assert_eq!(forecast.basis, Basis::Daily);
        assert!((forecast.expected / 500.0 - 1.0).abs() < 0.05, "{forecast:?}");
        // And for before that.
        let forecast = forecaster.forecast(at(begin - 50), at(begin - 20));
        assert!((forecast.expected / 100.0 - 1.0).abs() < 0.05, "{forecast:?}");
    }

    #[test]
    fn a_busier_day_is_foreseen_as_a_busier_day() {
        let busier = |minute: u64| if minute > 3 * 1440 { 1.5 * days(minute) } else { days(minute) };
        let forecast = observed(MINUTE * 5, 3 * 1440 + 420, busier).forecast(at(3 * 1440 + 480), at(3 * 1440 + 510));
        assert!((forecast.expected / 750.0 - 1.0).abs() < 0.1, "{forecast:?}");
    }

    #[test]
    fn weekends_are_weekly() {
        let weeks = |minute: u64| if (minute / 1440) % 7 >= 5 { 50.0 } else { days(minute) };
        let forecaster = observed(MINUTE * 15, 3 * 7 * 1440, weeks);
        // On the Sunday evening of the third week, for Monday noon.
        let noon = 3 * 7 * 1440 + 720;
        let forecast = forecaster.forecast(at(noon), at(noon + 30));
        assert_eq!(forecast.basis, Basis::Weekly);
        assert!((forecast.expected / 500.0 - 1.0).abs() < 0.1, "{forecast:?}");
    }

    #[test]
    fn what_has_no_habits_falls_back_to_the_last_peak() {
        // Another level every day at another time: yesterday says nothing.
        let wild = |minute: u64| 10.0 + 1000.0 * ((minute / 777 * 7919 % 13) as f64) / 13.0;
        let forecast = observed(MINUTE * 5, 4 * 1440, wild).forecast(at(4 * 1440), at(4 * 1440 + 30));
        assert_eq!(forecast.basis, Basis::Peak);
    }

    #[test]
    fn a_gap_is_unknown_and_not_zero() {
        let mut forecaster = observed(MINUTE * 5, 1440, days);
        (1..=60).for_each(|minute| forecaster.observe(at(2 * 1440 + 400 + minute), 100.0));
        let forecast = forecaster.forecast(at(2 * 1440 + 480), at(2 * 1440 + 510));
        assert!(forecast.expected > 90.0, "{forecast:?}");
        forecaster.observe(at(400 * 1440), 7.0);
        assert!(forecaster.forecast(at(400 * 1440), at(400 * 1440 + 5)).expected > 0.0);
    }

    /// 500/s until the tenth minute, 10/s from then on.
    fn burst(minute: u64) -> f64 {
        if minute <= 10 { 500.0 } else { 10.0 }
    }

    #[test]
    fn the_last_peak_is_that_of_the_last_intervals_however_short_they_are() {
        // As a plan whose intervals are of a minute: it looks back on two.
        let begin = || Seasonal::new(MINUTE * 5, MINUTE * 2).with_interval(MINUTE);
        let mut forecaster = begin();
        let expected = |forecaster: &Seasonal, minute: u64| forecaster.forecast(at(minute), at(minute + 5)).expected;
        for minute in 1..=14 {
            forecaster.observe(at(minute), burst(minute));
            assert_eq!(expected(&forecaster, minute), if minute <= 12 { 500.0 } else { 10.0 }, "{minute}");
        }
        let mut by_slots = Seasonal::new(MINUTE * 5, MINUTE * 2).with_interval(MINUTE * 5);
        (1..=14).for_each(|minute| by_slots.observe(at(minute), burst(minute)));
        assert_eq!(expected(&by_slots, 14), 500.0, "known by slots, it lasts until the slot after it is over");
        assert_eq!(forecaster.peaks, by_slots.peaks, "habits are learned by slots all the same");
    }

    #[test]
    fn a_past_that_was_kept_by_an_earlier_version_goes_on() {
        let now = 3 * 1440;
        let rate = |minute: u64| if minute > now { burst(minute - now) } else { days(minute) };
        let old = observed(MINUTE * 5, now + 13, rate);
        let mut text: serde_json::Value = serde_json::to_value(&old).expect("text");
        text.as_object_mut().expect("fields").remove("last").expect("is new");
        let past: Seasonal = serde_json::from_value(text).expect("can be read");
        let mut forecaster = Seasonal::new(MINUTE * 5, MINUTE * 2).with_interval(MINUTE).going_on(past);
        assert_eq!(forecaster.recent, MINUTE * 2, "settings are not kept");
        assert_eq!(forecaster.peaks.len(), old.peaks.len());
        assert_eq!(forecaster.last_peak(), Some(500.0), "nothing better is known");
        // It is taken to be of the end of its slot, the fifteenth minute.
        (14..=18).for_each(|minute| forecaster.observe(at(now + minute), 10.0));
        assert_eq!(forecaster.last_peak(), Some(500.0));
        forecaster.observe(at(now + 19), 10.0);
        assert_eq!(forecaster.last_peak(), Some(10.0));
        let again: Seasonal = serde_json::from_value(serde_json::to_value(&forecaster).expect("text")).expect("read");
        let same = Seasonal::new(MINUTE * 5, MINUTE * 2).with_interval(MINUTE).going_on(again);
        assert_eq!(same.last.map(|last| last.peaks), forecaster.last.map(|last| last.peaks));
    }

    proptest! {
        #[test]
        fn a_forecast_is_finite_and_in_order(
            seen in prop::collection::vec((1u64..4000, prop_oneof![0.0f64..1e6, Just(0.0), Just(f64::NAN)]), 0..300),
            slot in 1u64..3600, ahead in 0u64..100_000, length in 0u64..10_000,
        ) {
            let mut forecaster = Seasonal::new(Duration::from_secs(slot), HOUR).with_interval(MINUTE);
            let mut now = 0;
            for (after, rate) in seen {
                now += after;
                forecaster.observe(Timestamp::from_millis(now * 1000), rate);
            }
            let from = Timestamp::from_millis((now + ahead) * 1000);
            let forecast = forecaster.forecast(from, from + Duration::from_secs(length));
            prop_assert!(forecast.low >= 0.0 && forecast.low <= forecast.expected);
            prop_assert!(forecast.expected <= forecast.high && forecast.high.is_finite());
        }
    }
}
