//! The control law of a resource: from what was measured to a rate.
//!
//! *Intuition.* Every sample the rate moves by what the measured use lies off its reference (P), and, where a queue is
//! measured, also by how much it grew since the last sample (D): between letting in too much and a long queue there is
//! time, and growth shows first.
//!
//! *Awkward cases.* A resource that nobody asks for is far below its reference; its rate would climb without bound, and
//! let in everything at the next rush. So it is raised only when it was nearly used up (90 %), and by a queue's length
//! only when that changed: most of the time it is zero. A rate that is used up while its queue does not change for some
//! samples is raised nevertheless: else one that fell too far would keep the queue at zero and stay for ever. Where
//! nothing was ever wrong there is no rate: the first sample of overload starts from what was let in then, not from a
//! guess. Without a measurement for some samples there is none either: as if the resource had no controller.
//!
//! *Source.* T. Voigt and P. Gunningberg, "Adaptive resource-based Web server admission control" (2002), section 3,
//! equations 1 and 2. The derivative's sign is the one that its description needs.

/// A control law with its bounds. Rates are requests per second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Law {
    /// What the measured number should be.
    pub reference: f64,
    /// Change of the rate for each unit below the reference.
    pub proportional: f64,
    /// Change of the rate for each unit that the number fell since the last sample.
    pub derivative: f64,
    /// The rate is at least this.
    pub least: f64,
    /// The rate is at most this.
    pub most: f64,
    /// The rate at the beginning; `None`: everything is let in until the first sample over the reference.
    pub start: Option<f64>,
    /// Up to this rate steps are the law's; beyond it they grow in proportion to the rate.
    pub scale: f64,
    /// Whether the length of a queue is measured: raised when it changed, rather than when the rate was used.
    pub is_queue: bool,
}

/// What the last sample showed, and what was done about it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Look {
    /// What was measured.
    pub input: Option<f64>,
    /// The reference less the input.
    pub error: f64,
    /// What the law said, requests per second.
    pub step: f64,
    /// Requests per second that wanted in.
    pub hits: f64,
    /// What was done.
    pub why: Why,
}

/// What a controller did with its rate, or why it did nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// Nothing was measured yet, or not for some samples: everything is let in.
    NoSignal,
    /// Nothing was measured in this sample: the rate stays.
    NoSample,
    /// The resource was never short: everything is let in.
    NeverShort,
    /// The resource is short for the first time: the rate begins at what was let in.
    Began,
    /// Lowered.
    Lowered,
    /// It should be lowered, and is the least there may be.
    AtLeast,
    /// Raised.
    Raised,
    /// It should be raised, and is the most there may be.
    AtMost,
    /// Not raised: less than 90 % of it was asked for.
    Unused,
    /// Not raised: the queue did not change.
    QueueUnchanged,
    /// Not raised: the processors are used enough.
    CpuBusy,
    /// It is short for the first time, but others, whose turn is first, can still do something about it.
    OthersFirst,
    /// It is short for the first time, and only just now, or less and less.
    Passing,
    /// The number is where it should be.
    Kept,
}

impl Why {
    /// Its name in output.
    pub const fn name(self) -> &'static str {
        match self {
            Why::NoSignal => "no-signal",
            Why::NoSample => "no-sample",
            Why::NeverShort => "never-short",
            Why::Began => "began",
            Why::Lowered => "lowered",
            Why::AtLeast => "at-least",
            Why::Raised => "raised",
            Why::AtMost => "at-most",
            Why::Unused => "unused",
            Why::QueueUnchanged => "queue-unchanged",
            Why::CpuBusy => "cpu-busy",
            Why::OthersFirst => "others-first",
            Why::Passing => "passing",
            Why::Kept => "kept",
        }
    }
}

/// What else is so when a controller samples.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Beside {
    /// The processors are used enough: nothing may be raised.
    pub cpu_busy: bool,
    /// Others can still do something: nothing may begin.
    pub others_first: bool,
    /// A rate falls so many times as fast.
    pub haste: f64,
    /// So many samples in a row it must be short, and not less and less, to begin.
    pub patience: u32,
    /// Requests per second that were worked off since the last sample, where that is known: a rate begins there.
    pub worked: Option<f64>,
    /// Whether it ends when it has not been needed for long.
    pub ends: bool,
}

impl Default for Beside {
    fn default() -> Self {
        Beside { cpu_busy: false, others_first: false, haste: 1.0, patience: 1, worked: None, ends: false }
    }
}

/// The share of a rate that must have been asked for before it is raised.
const USED: f64 = 0.9;
/// So many samples in a row without a measurement end the control.
const SILENT: u32 = 3;
/// So many samples in a row a used-up rate waits for its queue to change.
const STANDING: u32 = 5;
/// A control begins with this share of what came, at least.
const SLOWEST: f64 = 1.0 / 3.0;
/// A rate that is used up rises faster with each raise in a row, up to so many times its step.
const FASTEST: f64 = 8.0;
/// So many samples in a row without need end a control that may end.
const CALM: u32 = 30;
/// A queue of this share of its reference that grows begins the control.
const STRAINED: f64 = 0.5;

/// A controller.
#[derive(Clone, Debug)]
pub struct Control {
    law: Law,
    rate: Option<f64>,
    before: Option<f64>,
    silent: u32,
    standing: u32,
    /// Samples in a row in which it was short and had not begun; and in which it was not needed.
    strained: u32,
    calm: u32,
    /// Raises in a row of a rate that was used up.
    raises: u32,
    last: Look,
}

impl Control {
    /// A controller that has measured nothing yet.
    pub fn new(law: Law) -> Control {
        let last = Look { input: None, error: 0.0, step: 0.0, hits: 0.0, why: Why::NoSignal };
        Control { law, rate: law.start, before: None, silent: 0, standing: 0, strained: 0, calm: 0, raises: 0, last }
    }

    /// A sample: `input` was measured, and `hits` requests per second wanted in.
    pub fn sample(&mut self, input: Option<f64>, hits: f64, beside: Beside) {
        let Some(input) = input else { return self.miss(hits) };
        self.silent = 0;
        let error = self.law.reference - input;
        let fell = self.before.map_or(0.0, |before| before - input);
        let gain = self.rate.map_or(1.0, |rate| (rate / self.law.scale).max(1.0));
        let step = (self.law.proportional * error + self.law.derivative * fell) * gain;
        let why = match self.rate {
            None => self.begin(input, step, fell, hits, beside),
            Some(rate) if step < 0.0 => self.lower(rate, step * beside.haste),
            Some(rate) if step > 0.0 => self.raise(rate, step, hits, fell != 0.0, beside.cpu_busy),
            Some(_) => Why::Kept,
        };
        let why = if self.is_over(input, hits, beside) { Why::NeverShort } else { why };
        self.before = Some(input);
        self.last = Look { input: Some(input), error, step, hits, why };
    }

    /// Requests per second that are let in; `None`: all.
    pub fn rate(&self) -> Option<f64> {
        self.rate
    }

    /// Whether it is short now and its rate could still be lower.
    pub fn can_do_more(&self) -> bool {
        let rate = self.rate.unwrap_or(f64::INFINITY);
        self.last.step < 0.0 && self.last.input.is_some() && rate > self.law.least
    }

    /// Whether it is short now, and its rate the least: it does not suffice.
    pub fn is_exhausted(&self) -> bool {
        self.last.step < 0.0 && self.last.input.is_some() && self.rate.is_some_and(|rate| rate <= self.law.least)
    }

    /// The law.
    pub fn law(&self) -> &Law {
        &self.law
    }

    /// What the last sample showed.
    pub fn last(&self) -> &Look {
        &self.last
    }

    fn miss(&mut self, hits: f64) {
        self.silent = self.silent.saturating_add(1);
        let is_lost = self.silent >= SILENT || self.before.is_none();
        if is_lost {
            (self.rate, self.before) = (self.law.start, None);
            (self.standing, self.strained, self.calm, self.raises) = (0, 0, 0, 0);
        }
        let why = if is_lost { Why::NoSignal } else { Why::NoSample };
        self.last = Look { input: None, error: 0.0, step: 0.0, hits, why };
    }

    fn begin(&mut self, input: f64, step: f64, fell: f64, hits: f64, beside: Beside) -> Why {
        if step >= 0.0 || input <= self.strain() {
            self.strained = 0;
            return Why::NeverShort;
        }
        if beside.others_first {
            self.strained = 0;
            return Why::OthersFirst;
        }
        self.strained = if beside.patience > 1 && fell > 0.0 { 0 } else { self.strained + 1 };
        if self.strained < beside.patience {
            return Why::Passing;
        }
        self.strained = 0;
        // What was worked off while the resource was short is what it can do. Something may have stood still: then it
        // is not that little.
        let worked = beside.worked.map_or(hits, |worked| worked.max(hits * SLOWEST));
        let start = hits.min(worked).min(self.law.most);
        let gain = (start / self.law.scale).max(1.0);
        self.rate = Some((start + step * gain).clamp(self.law.least, self.law.most));
        Why::Began
    }

    /// Whether a rate has not been needed for long, and ends: then the next rush finds others first again.
    fn is_over(&mut self, input: f64, hits: f64, beside: Beside) -> bool {
        let Some(rate) = self.rate.filter(|_| beside.ends && self.law.start.is_none()) else { return false };
        let is_calm = input <= self.strain() && !beside.cpu_busy && hits < USED * rate;
        self.calm = if is_calm { self.calm + 1 } else { 0 };
        if self.calm < CALM {
            return false;
        }
        self.rate = None;
        (self.standing, self.calm, self.raises) = (0, 0, 0);
        true
    }

    /// Above this it is short.
    fn strain(&self) -> f64 {
        if self.law.is_queue { STRAINED * self.law.reference } else { self.law.reference }
    }

    fn lower(&mut self, rate: f64, step: f64) -> Why {
        (self.standing, self.raises) = (0, 0);
        self.rate = Some((rate + step).max(self.law.least));
        if rate <= self.law.least { Why::AtLeast } else { Why::Lowered }
    }

    fn raise(&mut self, rate: f64, step: f64, hits: f64, changed: bool, cpu_busy: bool) -> Why {
        let used = hits >= USED * rate;
        self.standing = if used && !changed { self.standing + 1 } else { 0 };
        let why = match self.law.is_queue {
            _ if cpu_busy => Why::CpuBusy,
            true if !changed && self.standing < STANDING => Why::QueueUnchanged,
            false if !used => Why::Unused,
            _ if rate >= self.law.most => Why::AtMost,
            _ => Why::Raised,
        };
        if why == Why::Raised {
            // Of queues only: at a resource that is shared by what is not tagged a step is soon too large.
            let is_fast = used && self.law.is_queue;
            let haste = if is_fast { (1.0 + 0.25 * f64::from(self.raises)).min(FASTEST) } else { 1.0 };
            self.rate = Some((rate + step * haste).min(self.law.most));
        }
        self.raises = if used && why == Why::Raised { self.raises + 1 } else { 0 };
        why
    }
}

#[cfg(test)]
mod tests {
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
}
