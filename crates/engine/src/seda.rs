//! The response-time controller of SEDA: a token bucket whose rate follows a percentile of the response time.
//!
//! *Intuition.* Nobody knows how many requests per second a stage can take, and it changes by the minute. But whether
//! it takes too many is seen at once: its response times are over the target. So measure them, lower the rate by a
//! factor while they are over, and raise it a little while they are well under, as TCP does.
//!
//! *Applied.* One [`Controller`] guards one stage, or one request type at the sentry. It runs every `samples`
//! completions of a class, and every `timeout`:
//!
//! ```text
//! samp = the (percentile n)-th of the n response times since the last run, in order
//! cur  = smoothing cur + (1 - smoothing) samp
//! err  = (cur - target) / target
//! err > lower_above:  rate = rate / lower_by
//! err < raise_below:  rate = rate + raise_by (raise_offset - err)
//! ```
//!
//! The response time of an event is the time from its entry into the service to the end of the stage's processing.
//!
//! *Classes.* Each has a bucket, an estimate and a target of its own. A class over its target takes from less important
//! ones first: their rates are divided by `lower_others_by` and are not raised at their next run. Only when they are
//! all at the least rate, for `lag` runs, or when there are none, its own is lowered.
//!
//! *Quality.* With [`QualityParameters`] a run over the target first makes answers cheaper. Admission control is off
//! until the quality is at its least and the target still missed; it goes off again when fewer requests come than it
//! lets in.
//!
//! *Awkward cases.* A run without a sample changes no rate: nothing was learned. After ten of them in a row the
//! estimate is forgotten, and after ten without even a request a class starts anew at the initial rate: else an
//! overload would be remembered through a quiet night (not in the paper; [`Parameters::forgets`] switches it off). The
//! first sample counts in full. The lag counts runs in a row: a run on target ends it. A rate that is hardly used runs
//! away unseen, unless `raise_unused` is off; on, as in the paper, a spike may find thousands let in.
//!
//! *Source.* M. Welsh and D. Culler, "Adaptive overload control for busy Internet servers" (2003), sections 3.2 to 3.4.

mod class;
mod derived;
mod kept;
mod parameters;
#[cfg(test)]
mod tests;

use alloc::vec::Vec;
use core::time::Duration;

use crate::request::ClassId;
use crate::setup::SetupError;
use crate::time::Timestamp;

use class::Class;
use parameters::wrong_unless;
pub use parameters::{Parameters, QualityParameters};

/// Guards one stage, or one request type. Completing and admitting allocate nothing.
#[derive(Clone, Debug)]
pub struct Controller {
    parameters: Parameters,
    classes: Vec<Class>,
    quality: f64,
    policing: bool,
}

/// A run of the controller for one class: what it saw and what it did.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Run {
    /// Time of the run.
    pub at: Timestamp,
    /// Response times since the run before.
    pub samples: u32,
    /// Their percentile, seconds.
    pub sample: Option<f64>,
    /// The smoothed percentile, seconds.
    pub current: Option<f64>,
    /// `(current - target) / target`.
    pub error: Option<f64>,
    /// What the run did to the rate.
    pub step: Step,
}

/// What a run did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Step {
    /// The rate was raised.
    Raised,
    /// The rate was lowered: over the target.
    Lowered,
    /// Nothing: near the target.
    Kept,
    /// Nothing: nothing completed since the run before.
    Idle,
    /// Nothing came for long: the rate starts anew.
    Renewed,
    /// Nothing, though under the target: a more important class was over its own since the run before.
    Held,
    /// Nothing, though under the target: less than half of the rate is asked for.
    Unused,
    /// The rates of less important classes were lowered: over the target.
    LoweredOthers,
    /// Nothing, though over the target: less important classes have nothing left to give; see [`Parameters::lag`].
    Lagged,
    /// This more important class was over its target, and the rate was lowered.
    LoweredByClass(ClassId),
    /// The quality was lowered: over the target.
    Degraded,
    /// The quality was raised: under the target.
    Improved,
    /// Admission control was switched off: fewer requests came than it lets in.
    Opened,
}

impl Step {
    /// Its name in state and logs.
    pub const fn name(self) -> &'static str {
        match self {
            Step::Raised => "raised",
            Step::Lowered => "lowered",
            Step::Kept => "kept",
            Step::Idle => "idle",
            Step::Renewed => "renewed",
            Step::Held => "held",
            Step::Unused => "unused",
            Step::LoweredOthers => "lowered-others",
            Step::Lagged => "lagged",
            Step::LoweredByClass(_) => "lowered-by-class",
            Step::Degraded => "degraded",
            Step::Improved => "improved",
            Step::Opened => "opened",
        }
    }
}

impl Controller {
    /// A controller for `classes` classes with these targets, seconds: one for each class, or one for all.
    ///
    /// # Errors
    /// [`SetupError::Wrong`] when a setting is out of range, a target is not more than zero, or their number
    /// fits neither; [`SetupError::Count`] when there is no class or there are more than 255.
    pub fn new(parameters: Parameters, targets: &[f64], classes: usize) -> Result<Self, SetupError> {
        parameters.check()?;
        if !(1..=255).contains(&classes) {
            return Err(SetupError::Count { what: "classes", least: 1, most: 255, given: classes });
        }
        let fits = targets.len() == 1 || targets.len() == classes;
        wrong_unless(fits, "targets", "must be one for all classes or one for each")?;
        let positive = targets.iter().all(|target| target.is_finite() && *target > 0.0);
        wrong_unless(positive, "target", "must be more than zero; give a time such as \"500ms\"")?;
        let target = |class: usize| *targets.get(class).unwrap_or(&targets[0]);
        let classes = (0..classes).map(|class| Class::new(&parameters, target(class))).collect();
        Ok(Controller { policing: parameters.quality.is_none(), classes, quality: 1.0, parameters })
    }

    /// Whether a request of the class may enter; takes a token if so. Always, while admission control is off.
    ///
    /// # Panics
    /// Like every method that takes one, when there is no such class.
    pub fn admit(&mut self, now: Timestamp, class: ClassId) -> bool {
        self.classes[class.index()].admit(now, self.policing)
    }

    /// A request of the class was processed, `response_time` seconds after it entered the service. Whether the
    /// controller ran: rates may have moved.
    pub fn completed(&mut self, now: Timestamp, class: ClassId, response_time: f64) -> bool {
        let full = self.classes[class.index()].record(response_time, &self.parameters);
        if full {
            self.run(now, class);
        }
        full
    }

    /// The time that [`Controller::next_timeout`] named has come (calling earlier does no harm).
    pub fn on_timeout(&mut self, now: Timestamp) {
        for index in 0..self.classes.len() {
            if now >= self.timeout_of(&self.classes[index]) {
                self.run(now, ClassId(index as u8));
            }
        }
    }

    /// Switches admission control on or off. With [`Parameters::quality`] the controller does so itself, too.
    pub fn set_policing(&mut self, policing: bool) {
        self.policing = policing;
    }

    /// Gives the class another target, seconds; one that is not more than zero is ignored.
    pub fn set_target(&mut self, class: ClassId, target: f64) {
        if target.is_finite() && target > 0.0 {
            self.classes[class.index()].target = target;
        }
    }

    /// When to call [`Controller::on_timeout`] next. Later than the `now` of the last call.
    pub fn next_timeout(&self) -> Timestamp {
        self.classes.iter().map(|class| self.timeout_of(class)).min().unwrap_or(Timestamp::MAX)
    }

    /// How long until the class's bucket has a token, if nobody takes it before; zero while admission control is off.
    pub fn retry_after(&self, now: Timestamp, class: ClassId) -> Duration {
        match self.policing {
            true => self.classes[class.index()].bucket().wait(now).unwrap_or(Duration::MAX),
            false => Duration::ZERO,
        }
    }

    /// The class's rate in force while admission control is on, requests per second.
    pub fn rate(&self, class: ClassId) -> f64 {
        self.classes[class.index()].rate()
    }

    /// The class's smoothed percentile (cur), seconds; `None` before the first sample, and when it is forgotten.
    pub fn percentile(&self, class: ClassId) -> Option<f64> {
        self.classes[class.index()].current
    }

    /// The class's target, seconds.
    pub fn target(&self, class: ClassId) -> f64 {
        self.classes[class.index()].target
    }

    /// How good answers should be: from [`QualityParameters::min`] to 1, and 1 without quality control.
    pub fn quality(&self) -> f64 {
        self.quality
    }

    /// Whether admission control is on.
    pub fn policing(&self) -> bool {
        self.policing
    }

    /// What the last run for the class did, or a more important class's run to it.
    pub fn last_run(&self, class: ClassId) -> Option<Run> {
        self.classes[class.index()].last
    }

    /// How many classes it tells apart.
    pub fn classes(&self) -> usize {
        self.classes.len()
    }

    /// Settings of the controller.
    pub fn parameters(&self) -> &Parameters {
        &self.parameters
    }

    fn timeout_of(&self, class: &Class) -> Timestamp {
        class.ran + self.parameters.timeout.duration()
    }

    fn run(&mut self, now: Timestamp, class: ClassId) {
        let index = class.index();
        let (samples, sample) = self.classes[index].digest(now, &self.parameters);
        let step = match (samples, self.classes[index].error()) {
            (0, _) | (_, None) => self.idle(now, class),
            (_, Some(error)) if error > self.parameters.lower_above => self.over_target(now, class),
            (_, Some(error)) => self.on_target(now, class, error),
        };
        let class = &mut self.classes[index];
        class.is_held &= matches!(step, Step::Idle);
        if self.parameters.derived {
            class.derive(now, matches!(step, Step::Lowered), &self.parameters);
        }
        class.note(now, step);
        class.last = class.last.map(|run| Run { samples, sample, ..run });
    }

    /// Nothing completed. Whether there was nothing to do or everything is stuck is not known until it is long.
    fn idle(&mut self, now: Timestamp, class: ClassId) -> Step {
        let index = class.index();
        if !self.classes[index].is_quiet() {
            return Step::Idle;
        }
        if self.classes.iter().all(Class::is_quiet)
            && let Some(step) = self.improve()
        {
            return step;
        }
        if !self.parameters.forgets {
            return Step::Idle;
        }
        let above_is_over = self.classes[..index].iter().any(|above| self.is_over(above));
        let initial = self.parameters.initial_rate;
        if above_is_over || self.classes[index].rate() >= initial {
            return Step::Idle;
        }
        self.classes[index].set_rate(now, initial, &self.parameters);
        Step::Renewed
    }

    fn over_target(&mut self, now: Timestamp, class: ClassId) -> Step {
        if let Some(quality) = &self.parameters.quality {
            if self.quality > quality.min {
                self.quality = (self.quality / quality.lower_by).max(quality.min);
                return Step::Degraded;
            }
            if !self.policing && !quality.then_police {
                return Step::Kept;
            }
            self.policing = true;
        }
        if self.parameters.lower_own_always {
            self.lower_others(now, class);
            return self.lower_own(now, class);
        }
        if class.index() + 1 == self.classes.len() {
            return self.lower_own(now, class);
        }
        if self.lower_others(now, class) {
            return Step::LoweredOthers;
        }
        let lag = self.parameters.lag;
        let own = &mut self.classes[class.index()];
        own.lag = own.lag.saturating_add(1);
        if own.lag >= lag { self.lower_own(now, class) } else { Step::Lagged }
    }

    fn lower_own(&mut self, now: Timestamp, class: ClassId) -> Step {
        let own = &mut self.classes[class.index()];
        let reached = if self.parameters.derived { own.answered() } else { f64::INFINITY };
        own.set_rate(now, own.rate().min(reached) / self.parameters.lower_by, &self.parameters);
        Step::Lowered
    }

    /// Lowers the rates of less important classes. Whether there was something to take.
    fn lower_others(&mut self, now: Timestamp, class: ClassId) -> bool {
        let parameters = &self.parameters;
        let mut took = false;
        for other in &mut self.classes[class.index() + 1..] {
            other.is_held = true;
            if other.rate() > parameters.min_rate {
                took = true;
                other.set_rate(now, other.rate() / parameters.lower_others_by, parameters);
                other.note(now, Step::LoweredByClass(class));
            }
        }
        took
    }

    fn on_target(&mut self, now: Timestamp, class: ClassId, error: f64) -> Step {
        self.classes[class.index()].lag = 0;
        if let Some(quality) = &self.parameters.quality {
            let all_below =
                self.classes.iter().all(|class| !class.is_fresh() || class.error() < Some(quality.raise_below));
            if all_below && let Some(step) = self.improve() {
                return step;
            }
        }
        let Parameters { raise_below, raise_by, raise_offset, raise_unused, derived, .. } = self.parameters;
        let own = &mut self.classes[class.index()];
        let (raise_by, raise_unused) = if derived { (own.step(raise_by), false) } else { (raise_by, raise_unused) };
        match () {
            () if error >= raise_below => Step::Kept,
            () if own.is_held => Step::Held,
            () if !raise_unused && !own.is_used => Step::Unused,
            () => {
                own.set_rate(now, own.rate() + raise_by * (raise_offset - error), &self.parameters);
                Step::Raised
            }
        }
    }

    /// Goes one step back towards full quality for everybody: first admission control off, if fewer requests come
    /// than it lets in, then the quality up.
    fn improve(&mut self) -> Option<Step> {
        let quality = self.parameters.quality.as_ref()?;
        if self.policing {
            let is_short = self.classes.iter().any(|class| class.was_short);
            self.policing = is_short;
            return (!is_short).then_some(Step::Opened);
        }
        let better = (self.quality + quality.raise_by).min(1.0);
        let improved = better > self.quality;
        self.quality = better;
        improved.then_some(Step::Improved)
    }

    fn is_over(&self, class: &Class) -> bool {
        class.is_fresh() && class.error() > Some(self.parameters.lower_above)
    }
}
