//! Habits, peaks, gaps, and what earlier versions kept.

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
