//! The control law, sample by sample.

use super::*;
use alloc::vec::Vec;
use proptest::prelude::*;

fn cpu() -> Law {
    Law {
        reference: 90.0,
        proportional: 0.2,
        derivative: 0.0,
        least: 10.0,
        most: f64::INFINITY,
        start: Some(50.0),
        scale: 100.0,
        is_queue: false,
        is_strict: false,
    }
}

fn queue() -> Law {
    let (proportional, derivative) = (1.0 / 16.0, 0.25);
    Law { reference: 100.0, proportional, derivative, start: Some(1000.0), scale: 1000.0, is_queue: true, ..cpu() }
}

fn after(law: Law, samples: &[(f64, f64)]) -> Control {
    let mut control = Control::new(law);
    samples.iter().for_each(|&(input, hits)| control.sample(Some(input), hits, Beside::default()));
    control
}

/// The paper's example: 50 CGI requests per second are allowed, the CPU is at 60 %, 30 came.
#[test]
fn the_papers_example_of_a_rate_that_is_not_used() {
    let control = after(cpu(), &[(60.0, 30.0)]);
    assert_eq!((control.rate(), control.last().why), (Some(50.0), Why::Unused));
    assert!((control.last().step - 6.0).abs() < 1e-9, "it would be");
    let used = after(cpu(), &[(60.0, 45.0)]);
    assert_eq!((used.rate(), used.last().why), (Some(56.0), Why::Raised));
}

#[test]
fn a_full_processor_lowers_by_two_a_sample_down_to_the_least() {
    let mut control = after(cpu(), &[(100.0, 170.0)]);
    assert_eq!((control.rate(), control.last().why), (Some(48.0), Why::Lowered));
    (0..40).for_each(|_| control.sample(Some(100.0), 170.0, Beside::default()));
    assert_eq!((control.rate(), control.last().why), (Some(10.0), Why::AtLeast));
}

#[test]
fn a_growing_queue_lowers_before_it_is_long_and_faster_when_it_is() {
    let growing = after(queue(), &[(0.0, 300.0), (60.0, 300.0)]);
    assert!((growing.rate().unwrap() - (1000.0 + 40.0 / 16.0 - 60.0 / 4.0)).abs() < 1e-9);
    let longer = after(queue(), &[(60.0, 300.0), (200.0, 300.0)]);
    assert!((longer.last().step - (-100.0 / 16.0 - 140.0 / 4.0)).abs() < 1e-9);
    assert_eq!(longer.last().why, Why::Lowered);
}

#[test]
fn an_unchanged_queue_raises_nothing_unless_the_rate_is_used_up_for_long() {
    let idle = after(queue(), &[(0.0, 300.0); 50]);
    assert_eq!((idle.rate(), idle.last().why), (Some(1000.0), Why::QueueUnchanged));
    let used = after(queue(), &[(0.0, 1200.0); 5]);
    assert_eq!((used.rate(), used.last().why), (Some(1006.25), Why::Raised));
    let changed = after(queue(), &[(0.0, 300.0), (1.0, 300.0)]);
    assert_eq!(changed.last().why, Why::Raised);
}

#[test]
fn nothing_is_raised_while_the_processors_are_busy() {
    let mut control = after(queue(), &[(5.0, 300.0)]);
    control.sample(Some(4.0), 300.0, Beside { cpu_busy: true, ..Beside::default() });
    assert_eq!((control.rate(), control.last().why), (Some(1000.0), Why::CpuBusy));
}

#[test]
fn what_was_never_short_has_no_rate_and_begins_at_what_came() {
    let law = Law { start: None, ..cpu() };
    let mut control = after(law, &[(80.0, 40.0), (90.0, 45.0)]);
    assert_eq!((control.rate(), control.last().why), (None, Why::NeverShort));
    control.sample(Some(100.0), 70.0, Beside::default());
    assert_eq!((control.rate(), control.last().why), (Some(68.0), Why::Began));
    let large = after(law, &[(100.0, 1000.0)]);
    assert_eq!(large.rate(), Some(980.0), "ten times the scale, ten times the step");
}

#[test]
fn a_lost_signal_ends_the_control_after_three_samples() {
    let mut control = after(Law { start: None, ..cpu() }, &[(100.0, 70.0)]);
    control.sample(None, 70.0, Beside::default());
    assert_eq!((control.rate().is_some(), control.last().why), (true, Why::NoSample));
    (0..2).for_each(|_| control.sample(None, 70.0, Beside::default()));
    assert_eq!((control.rate(), control.last().why), (None, Why::NoSignal));
}

#[test]
fn what_comes_last_begins_when_the_others_can_do_no_more() {
    let law = Law { start: None, ..queue() };
    let mut control = Control::new(law);
    let waits = Beside { others_first: true, ..Beside::default() };
    (0..3).for_each(|_| control.sample(Some(500.0), 800.0, waits));
    assert_eq!((control.rate(), control.last().why), (None, Why::OthersFirst));
    control.sample(Some(500.0), 800.0, Beside::default());
    assert_eq!((control.rate(), control.last().why), (Some(775.0), Why::Began));
    let mut others = after(cpu(), &[(100.0, 170.0)]);
    assert!(others.can_do_more());
    others.sample(Some(100.0), 170.0, Beside { haste: 4.0, ..Beside::default() });
    assert_eq!(others.rate(), Some(40.0));
    (0..4).for_each(|_| others.sample(Some(100.0), 170.0, Beside { haste: 4.0, ..Beside::default() }));
    assert_eq!((others.rate(), others.can_do_more()), (Some(10.0), false));
    assert!(!after(cpu(), &[(60.0, 170.0)]).can_do_more(), "it is not short");
}

#[test]
fn what_comes_last_waits_whether_a_long_queue_passes() {
    let law = Law { start: None, ..queue() };
    let patient = Beside { patience: 3, ..Beside::default() };
    let mut control = Control::new(law);
    for length in [300.0, 310.0, 290.0, 300.0, 400.0] {
        assert!(control.rate().is_none());
        control.sample(Some(length), 800.0, patient);
        assert_eq!((control.rate(), control.last().why), (None, Why::Passing), "at 290 it was shrinking");
    }
    control.sample(Some(500.0), 800.0, patient);
    assert_eq!(control.last().why, Why::Began);
    assert!(!control.is_exhausted() && control.can_do_more());
}

#[test]
fn a_rate_begins_at_what_was_worked_off_and_a_used_one_rises_faster_and_faster() {
    let law = Law { start: None, ..queue() };
    let begin = |worked: f64| {
        let mut control = Control::new(law);
        control.sample(Some(100.0), 1125.0, Beside::default());
        control.sample(Some(101.0), 1125.0, Beside { worked: Some(worked), ..Beside::default() });
        control
    };
    let near = |control: &Control, rate: f64| (control.rate().expect("it began") - rate).abs() < 1.0;
    assert!(near(&begin(600.0), 600.0) && near(&begin(2000.0), 1125.0), "not more than came");
    assert!(near(&begin(0.0), 375.0), "nor much less");
    let mut control = begin(600.0);
    let mut before = control.rate().expect("it began");
    let mut steps = Vec::new();
    for at in 0..20 {
        control.sample(Some(f64::from(at % 2)), before, Beside::default());
        let rate = control.rate().expect("it began");
        steps.push(rate - before);
        before = rate;
    }
    assert!(steps[19] > 4.0 * steps[1] && steps[19] < 9.0 * steps[1], "{steps:?}");
    control.sample(Some(0.0), 0.1 * before, Beside::default());
    assert!(control.rate().expect("it began") - before < 8.0, "the step of one that is not used up");
}

#[test]
fn a_control_that_may_end_does_when_it_is_not_needed() {
    let ends = Beside { ends: true, ..Beside::default() };
    let mut control = after(Law { start: None, ..queue() }, &[(500.0, 300.0)]);
    for _ in 0..40 {
        let rate = control.rate().expect("it began, and is used");
        control.sample(Some(0.0), rate, ends);
    }
    assert!(control.rate().is_some(), "it is nearly used up");
    (0..29).for_each(|_| control.sample(Some(0.0), 100.0, ends));
    control.sample(Some(0.0), 100.0, Beside { cpu_busy: true, ..ends });
    (0..29).for_each(|_| control.sample(Some(0.0), 100.0, ends));
    assert!(control.rate().is_some(), "30 samples in a row");
    control.sample(Some(0.0), 100.0, ends);
    assert_eq!((control.rate(), control.last().why), (None, Why::NeverShort));
    let mut given = after(Law { start: Some(400.0), ..queue() }, &[]);
    (0..100).for_each(|_| given.sample(Some(0.0), 100.0, ends));
    assert_eq!(given.rate(), Some(400.0), "one that is set by hand stays");
}

proptest! {
    #[test]
    fn rates_stay_in_bounds_and_rise_only_for_a_reason(
        samples in prop::collection::vec((0.0f64..500.0, 0.0f64..5000.0, any::<bool>(), 0u8..8), 1..200),
        is_queue: bool, has_start: bool, most in 20.0f64..3000.0,
    ) {
        let base = if is_queue { queue() } else { cpu() };
        let law = Law { start: has_start.then_some(most.min(400.0)), most, ..base };
        let mut control = Control::new(law);
        let mut inputs: Vec<f64> = Vec::new();
        for (input, hits, busy, lost) in samples {
            let before = control.rate();
            control.sample((lost > 0).then_some(input), hits, Beside { cpu_busy: busy, ..Beside::default() });
            let look = *control.last();
            if let Some(rate) = control.rate() {
                prop_assert!((law.least..=most).contains(&rate), "{rate}");
            }
            if let (Some(before), Some(after)) = (before, control.rate()) && after > before && lost > 0 {
                prop_assert!(look.why == Why::Raised && look.step > 0.0 && !busy);
                prop_assert!(is_queue || hits >= 0.9 * before);
                prop_assert!(!is_queue || inputs.last() != Some(&input) || hits >= 0.9 * before);
            }
            if let (Some(before), Some(after)) = (before, control.rate()) && after < before && lost > 0 {
                prop_assert!(look.step < 0.0 && (before - after) <= -look.step + 1e-9);
            }
            match lost {
                0 => {}
                _ => inputs.push(input),
            }
        }
    }
}

#[test]
fn a_strict_controller_does_nothing_but_the_papers() {
    let standing: Vec<(f64, f64)> = alloc::vec![(0.0, 1000.0); 20];
    assert!(after(queue(), &standing).rate() > Some(1000.0), "ours is raised when its queue stands still");
    assert_eq!(after(Law { is_strict: true, ..queue() }, &standing).rate(), Some(1000.0));
    // Ours falls in proportion to a large rate.
    let steps = |law: Law| 400.0 - after(law, &[(100.0, 400.0)]).rate().expect("it began with one");
    let law = Law { start: Some(400.0), ..cpu() };
    assert!((steps(law) - 8.0).abs() < 1e-9 && (steps(Law { is_strict: true, ..law }) - 2.0).abs() < 1e-9);
    let mut lost = after(Law { is_strict: true, ..law }, &[(100.0, 400.0)]);
    (0..10).for_each(|_| lost.sample(None, 0.0, Beside::default()));
    assert_eq!(lost.rate(), Some(398.0), "without a measurement it stays");
}
