//! The gate before a stage or a tower service: the response-time controller, what it counted, and what it published.
//!
//! A gate lives within a short lock of its owner. What handlers read while they work (quality, percentiles, whether the
//! controller refuses) is published in atomics whenever it may have moved. Notices are kept until the lock is released.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tidegate_engine::seda::Controller;
use tidegate_engine::{ClassId, Timestamp};

use crate::notice::{What, is_heard};
use crate::refused::RefusalReason;
use crate::settings::{Settings, SettingsError};

/// Refusals are over when a class had none for so long.
const REFUSAL_ENDS: Duration = Duration::from_secs(1);

/// The controller of one stage or layer with its counters.
pub(crate) struct Gate {
    controller: Controller,
    counts: Vec<ClassCounts>,
    published: Arc<Published>,
    /// When the controller wants to run without completions.
    timeout: Timestamp,
    /// Time never goes back for the controller, though threads read the clock before they take the lock.
    latest: Timestamp,
    /// Rates of the classes when last looked at.
    rates: Vec<f64>,
    notices: Vec<(Timestamp, What)>,
    has_sink: bool,
}

/// What happened to the events of one class since the start.
#[derive(Clone, Debug, Default)]
pub(crate) struct ClassCounts {
    pub(crate) offered: u64,
    pub(crate) admitted: u64,
    pub(crate) refused: [u64; RefusalReason::ALL.len()],
    /// Of the refused: those that other stages had worked on.
    pub(crate) refused_late: u64,
    /// Refused at the entry on this stage's behalf; not among the offered.
    pub(crate) refused_early: u64,
    pub(crate) completed: u64,
    pub(crate) within_target: u64,
    pub(crate) lost: u64,
    /// Sum of response times, nanoseconds.
    pub(crate) response_nanos: u64,
    refusing: Option<Refusing>,
}

#[derive(Clone, Copy, Debug)]
struct Refusing {
    last: Timestamp,
    count: u64,
}

/// What a handler may read without a lock.
#[derive(Debug)]
pub(crate) struct Published {
    quality: AtomicU64,
    policing: AtomicBool,
    /// Seconds; NaN: none.
    percentiles: Vec<AtomicU64>,
    targets: Vec<f64>,
}

impl Published {
    pub(crate) fn quality(&self) -> f64 {
        f64::from_bits(self.quality.load(Ordering::Relaxed))
    }

    pub(crate) fn is_policing(&self) -> bool {
        self.policing.load(Ordering::Relaxed)
    }

    pub(crate) fn percentile(&self, class: ClassId) -> Option<f64> {
        let index = class.index().min(self.percentiles.len() - 1);
        let percentile = f64::from_bits(self.percentiles[index].load(Ordering::Relaxed));
        (!percentile.is_nan()).then_some(percentile)
    }

    pub(crate) fn target(&self, class: ClassId) -> f64 {
        self.targets[class.index().min(self.targets.len() - 1)]
    }
}

impl Gate {
    /// A gate that refuses as `settings` say; `has_sink`: whether its notices go to more than the log.
    pub(crate) fn new(settings: &Settings, now: Timestamp, has_sink: bool) -> Result<Gate, SettingsError> {
        settings.check()?;
        let targets = settings.target_of_each_class();
        let mut controller = Controller::new(settings.parameters.clone(), &targets, settings.classes)?;
        if !settings.policing {
            controller.set_policing(false);
        }
        // Its first run counts from now, not from the clock's origin.
        controller.on_timeout(now);
        let published = Arc::new(Published {
            quality: AtomicU64::new(controller.quality().to_bits()),
            policing: AtomicBool::new(controller.policing()),
            percentiles: targets.iter().map(|_| AtomicU64::new(f64::NAN.to_bits())).collect(),
            targets,
        });
        let rates = (0..settings.classes).map(|class| controller.rate(ClassId(class as u8))).collect();
        let counts = vec![ClassCounts::default(); settings.classes];
        let timeout = controller.next_timeout();
        Ok(Gate { controller, counts, published, timeout, latest: now, rates, notices: Vec::new(), has_sink })
    }

    /// The class as this gate counts it: one beyond the last is the last.
    #[inline]
    pub(crate) fn class(&self, class: ClassId) -> ClassId {
        if class.index() < self.counts.len() { class } else { ClassId((self.counts.len() - 1) as u8) }
    }

    /// Whether an event of `class` may pass now; takes its token if so. Not counted.
    #[inline]
    pub(crate) fn admit(&mut self, now: Timestamp, class: ClassId) -> Result<(), Duration> {
        let now = self.forward(now);
        if self.controller.admit(now, class) {
            return Ok(());
        }
        Err(self.retry_after(now, class))
    }

    /// When a token of the class is expected.
    pub(crate) fn retry_after(&self, now: Timestamp, class: ClassId) -> Duration {
        // The controller may say never; a year is as good and fits every timer.
        let most = Duration::from_secs(365 * 86_400);
        self.controller.retry_after(now.max(self.latest), class).clamp(Duration::from_nanos(1), most)
    }

    /// An event came. Called before [`Gate::count_admitted`] or [`Gate::count_refused`].
    #[inline]
    pub(crate) fn count_offered(&mut self, class: ClassId) {
        self.counts[class.index()].offered += 1;
    }

    #[inline]
    pub(crate) fn count_admitted(&mut self, class: ClassId) {
        self.counts[class.index()].admitted += 1;
    }

    /// `is_late`: other stages had worked on it before.
    pub(crate) fn count_refused(&mut self, now: Timestamp, class: ClassId, reason: RefusalReason, is_late: bool) {
        let now = self.forward(now);
        let counts = &mut self.counts[class.index()];
        counts.refused[reason.index()] += 1;
        counts.refused_late += u64::from(is_late);
        self.note_refusal(now, class, reason);
    }

    /// An event was refused at the entry on behalf of this gate.
    pub(crate) fn count_refused_early(&mut self, now: Timestamp, class: ClassId, reason: RefusalReason) {
        let now = self.forward(now);
        self.counts[class.index()].refused_early += 1;
        self.note_refusal(now, class, reason);
    }

    /// An event of `class` that entered the service at `entered` was processed until `ended`.
    #[inline]
    pub(crate) fn complete(&mut self, ended: Timestamp, class: ClassId, entered: Timestamp) {
        let now = self.forward(ended);
        let class = self.class(class);
        let nanos = ended.as_nanos().saturating_sub(entered.as_nanos());
        let response_time = nanos as f64 * 1e-9;
        let counts = &mut self.counts[class.index()];
        counts.completed += 1;
        counts.response_nanos += nanos;
        counts.within_target += u64::from(response_time <= self.published.targets[class.index()]);
        if self.controller.completed(now, class, response_time) {
            self.look_at(now);
        }
    }

    /// Events whose handler panicked.
    pub(crate) fn count_lost(&mut self, class: ClassId) {
        let class = self.class(class);
        self.counts[class.index()].lost += 1;
    }

    /// Lets the controller run when it wants to without completions, and ends refusals that are over.
    pub(crate) fn tick(&mut self, now: Timestamp) {
        let now = self.forward(now);
        if now >= self.timeout {
            self.controller.on_timeout(now);
            self.look_at(now);
        }
        for (class, counts) in self.counts.iter_mut().enumerate() {
            let over = counts.refusing.filter(|refusing| now.since(refusing.last) >= REFUSAL_ENDS);
            if let Some(Refusing { count, .. }) = over {
                counts.refusing = None;
                if is_heard(self.has_sink) {
                    self.notices.push((now, What::RefusalEnded { class: class as u8, refused: count }));
                }
            }
        }
    }

    /// Switches the admission controller on or off.
    pub(crate) fn set_policing(&mut self, now: Timestamp, on: bool) {
        let now = self.forward(now);
        self.controller.set_policing(on);
        self.look_at(now);
    }

    /// What is to be said once the lock is released.
    pub(crate) fn take_notices(&mut self) -> Vec<(Timestamp, What)> {
        std::mem::take(&mut self.notices)
    }

    /// Whether the controller wants to run: [`Gate::tick`].
    pub(crate) fn is_due(&self, now: Timestamp) -> bool {
        now >= self.timeout
    }

    /// When [`Gate::tick`] has something to do.
    pub(crate) fn next_timeout(&self) -> Timestamp {
        let ends = |counts: &ClassCounts| counts.refusing.map(|refusing| refusing.last + REFUSAL_ENDS);
        self.counts.iter().filter_map(ends).fold(self.timeout, Timestamp::min)
    }

    /// The latest time it was told.
    pub(crate) fn latest(&self) -> Timestamp {
        self.latest
    }

    /// Whether somebody was refused within the last second, as far as [`Gate::tick`] saw.
    pub(crate) fn is_refusing(&self) -> bool {
        self.counts.iter().any(|counts| counts.refusing.is_some())
    }

    pub(crate) fn published(&self) -> &Arc<Published> {
        &self.published
    }

    pub(crate) fn counts(&self) -> &[ClassCounts] {
        &self.counts
    }

    pub(crate) fn controller(&self) -> &Controller {
        &self.controller
    }

    /// The time, which does not go back.
    #[inline]
    pub(crate) fn forward(&mut self, now: Timestamp) -> Timestamp {
        self.latest = self.latest.max(now);
        self.latest
    }

    fn note_refusal(&mut self, now: Timestamp, class: ClassId, reason: RefusalReason) {
        match &mut self.counts[class.index()].refusing {
            Some(refusing) => *refusing = Refusing { last: now, count: refusing.count + 1 },
            began @ None => {
                *began = Some(Refusing { last: now, count: 1 });
                if is_heard(self.has_sink) {
                    self.notices.push((now, What::RefusalBegan { class: class.0, reason }));
                }
            }
        }
    }

    /// The controller ran: publishes what moved, and tells of it.
    fn look_at(&mut self, now: Timestamp) {
        self.timeout = self.controller.next_timeout();
        for (index, known) in self.rates.iter_mut().enumerate() {
            let class = ClassId(index as u8);
            let (rate, percentile) = (self.controller.rate(class), self.controller.percentile(class));
            let bits = percentile.unwrap_or(f64::NAN).to_bits();
            self.published.percentiles[index].store(bits, Ordering::Relaxed);
            let from = std::mem::replace(known, rate);
            if from != rate && is_heard(self.has_sink) {
                self.notices.push((now, What::RateChanged { class: class.0, from, to: rate, percentile }));
            }
        }
        let quality = self.controller.quality();
        let from = f64::from_bits(self.published.quality.swap(quality.to_bits(), Ordering::Relaxed));
        if from != quality && is_heard(self.has_sink) {
            self.notices.push((now, What::QualityChanged { from, to: quality }));
        }
        let on = self.controller.policing();
        if self.published.policing.swap(on, Ordering::Relaxed) != on && is_heard(self.has_sink) {
            self.notices.push((now, What::PolicingSwitched { on }));
        }
    }
}
