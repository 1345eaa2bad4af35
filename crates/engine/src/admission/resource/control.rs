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
    /// Nothing but the paper's law: steps do not grow, no rate is raised because it stood still, and none is given up
    /// when nothing is measured.
    pub is_strict: bool,
}

/// What the last sample showed, and what was done about it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Look {
    /// The latest measurement, in the signal's unit.
    pub input: Option<f64>,
    /// The reference less the input.
    pub error: f64,
    /// What the law said, requests per second.
    pub step: f64,
    /// Requests per second that wanted in.
    pub hits: f64,
    /// What the controller did, and why.
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
    /// The rate was lowered.
    Lowered,
    /// It should be lowered, and is the least there may be.
    AtLeast,
    /// The rate was raised.
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

/// The controller of one resource.
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
        let gain = self.rate.filter(|_| !self.law.is_strict).map_or(1.0, |rate| (rate / self.law.scale).max(1.0));
        let step = (self.law.proportional * error + self.law.derivative * fell) * gain;
        let why = match self.rate {
            None => self.begin(input, step, fell, hits, beside),
            Some(rate) if step < 0.0 => self.lower(rate, step * if self.law.is_strict { 1.0 } else { beside.haste }),
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

    /// The control law with its settings.
    pub fn law(&self) -> &Law {
        &self.law
    }

    /// What the last sample showed.
    pub fn last(&self) -> &Look {
        &self.last
    }

    fn miss(&mut self, hits: f64) {
        self.silent = self.silent.saturating_add(1);
        let is_lost = !self.law.is_strict && (self.silent >= SILENT || self.before.is_none());
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
            true if !changed && (self.law.is_strict || self.standing < STANDING) => Why::QueueUnchanged,
            false if !used => Why::Unused,
            _ if rate >= self.law.most => Why::AtMost,
            _ => Why::Raised,
        };
        if why == Why::Raised {
            // Of queues only: at a resource that is shared by what is not tagged a step is soon too large.
            let is_fast = used && self.law.is_queue && !self.law.is_strict;
            let haste = if is_fast { (1.0 + 0.25 * f64::from(self.raises)).min(FASTEST) } else { 1.0 };
            self.rate = Some((rate + step * haste).min(self.law.most));
        }
        self.raises = if used && why == Why::Raised { self.raises + 1 } else { 0 };
        why
    }
}

#[cfg(test)]
mod tests;
