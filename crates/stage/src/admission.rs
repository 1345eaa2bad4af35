//! The controller without a stage: for services that are not made of stages, and for the tower layer.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::Serialize;
use tidegate_engine::{ClassId, Timestamp};

use crate::clock;
use crate::event::Event;
use crate::gate::{Gate, Published};
use crate::notice::{NoticeSink, Reporter};
use crate::refused::RefusalReason;
use crate::settings::{Settings, SettingsError};
use crate::snapshot::ClassSnapshot;

/// A response-time controller to share: every clone is the same controller.
///
/// ```
/// use std::time::Duration;
/// use tidegate_stage::{Admission, ClassId, Settings};
///
/// let admission = Admission::new("search", &Settings::target(Duration::from_secs(1)))?;
/// match admission.admit(ClassId(0)) {
///     Ok(permit) => {
///         // ... the work ...
///         permit.finish();
///     }
///     Err(overloaded) => println!("come back in {:?}", overloaded.retry_after),
/// }
/// # Ok::<(), tidegate_stage::SettingsError>(())
/// ```
#[derive(Clone)]
pub struct Admission {
    inner: Arc<Inner>,
}

struct Inner {
    reporter: Reporter,
    published: Arc<Published>,
    gate: Mutex<Gate>,
}

/// The right to do one piece of work; its response time is counted from here to [`Permit::finish`].
///
/// Dropped without that, the work was abandoned (the client left) and teaches the controller nothing.
#[must_use = "dropping a permit abandons the work; call `finish` when it is done"]
pub struct Permit {
    inner: Arc<Inner>,
    class: ClassId,
    entered: Timestamp,
}

/// The service lets in no more for now, to keep its response-time target.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("\"{name}\" is overloaded for class {class}; try again in {} s", retry_after.as_secs_f64())]
#[non_exhaustive]
pub struct Overloaded {
    /// The name of the controller.
    pub name: Arc<str>,
    /// The class that was refused.
    pub class: ClassId,
    /// When work of this class is expected to be let in again.
    pub retry_after: Duration,
}

impl Overloaded {
    /// What to write into an HTTP `Retry-After` header: whole seconds, at least 1.
    pub fn retry_after_seconds(&self) -> u64 {
        self.retry_after.as_secs() + u64::from(self.retry_after.subsec_nanos() > 0 || self.retry_after.is_zero())
    }
}

/// A controller at one moment. Serializes to JSON.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct AdmissionSnapshot {
    /// Name of the class.
    pub name: String,
    /// Whether it refuses.
    pub policing: bool,
    /// How good answers should be, 0 to 1.
    pub quality: f64,
    /// Its classes, most important first.
    pub classes: Vec<ClassSnapshot>,
}

impl Admission {
    /// A controller of its own. Settings of queue, workers and batches are not used.
    ///
    /// # Errors
    /// [`SettingsError`] with the first setting that is out of range.
    pub fn new(name: impl Into<Arc<str>>, settings: &Settings) -> Result<Self, SettingsError> {
        Admission::build(name.into(), settings, None)
    }

    /// The same, and its notices go to `sink`.
    ///
    /// # Errors
    /// [`SettingsError`] with the first setting that is out of range.
    pub fn with_sink(
        name: impl Into<Arc<str>>,
        settings: &Settings,
        sink: impl NoticeSink,
    ) -> Result<Self, SettingsError> {
        Admission::build(name.into(), settings, Some(Arc::new(sink)))
    }

    fn build(stage: Arc<str>, settings: &Settings, sink: Option<Arc<dyn NoticeSink>>) -> Result<Self, SettingsError> {
        let gate = Gate::new(settings, clock::now(), sink.is_some())?;
        let published = gate.published().clone();
        let inner = Inner { reporter: Reporter { stage, sink }, published, gate: Mutex::new(gate) };
        Ok(Admission { inner: Arc::new(inner) })
    }

    /// Whether work of `class` may begin now.
    ///
    /// # Errors
    /// [`Overloaded`] when not.
    pub fn admit(&self, class: ClassId) -> Result<Permit, Overloaded> {
        self.admit_since(clock::now(), class)
    }

    /// Like [`Admission::admit`] for an event, whose response time counts from its entry into the service.
    ///
    /// # Errors
    /// [`Overloaded`] when not.
    pub fn admit_event<T>(&self, event: &Event<T>) -> Result<Permit, Overloaded> {
        let permit = self.admit(event.class())?;
        Ok(Permit { entered: event.mark.entered, ..permit })
    }

    /// Switches admission control on or off. Off, it only measures.
    pub fn set_policing(&self, on: bool) {
        let mut gate = self.inner.lock();
        gate.set_policing(clock::now(), on);
        self.inner.release(gate);
    }

    /// How good answers should be, 0 to 1; 1 unless the parameters have `quality`.
    pub fn quality(&self) -> f64 {
        self.inner.published.quality()
    }

    /// The smoothed percentile of response time of the class; `None` before it is known.
    pub fn percentile(&self, class: ClassId) -> Option<Duration> {
        self.inner.published.percentile(class).and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
    }

    /// The controller as it is now.
    pub fn snapshot(&self) -> AdmissionSnapshot {
        let gate = self.inner.lock();
        AdmissionSnapshot {
            name: self.inner.reporter.stage.to_string(),
            policing: gate.controller().policing(),
            quality: gate.controller().quality(),
            classes: (0..gate.counts().len()).map(|class| ClassSnapshot::of(&gate, class)).collect(),
        }
    }

    fn admit_since(&self, now: Timestamp, class: ClassId) -> Result<Permit, Overloaded> {
        let mut gate = self.inner.lock();
        if gate.is_due(now) {
            gate.tick(now);
        }
        let class = gate.class(class);
        gate.count_offered(class);
        let admitted = gate.admit(now, class);
        match admitted {
            Ok(()) => gate.count_admitted(class),
            Err(_) => gate.count_refused(now, class, RefusalReason::RateLimit, false),
        }
        self.inner.release(gate);
        match admitted {
            Ok(()) => Ok(Permit { inner: self.inner.clone(), class, entered: now }),
            Err(retry_after) => Err(Overloaded { name: self.inner.reporter.stage.clone(), class, retry_after }),
        }
    }
}

impl Permit {
    /// The work is done: its response time goes to the controller.
    pub fn finish(self) {
        let now = clock::now();
        let mut gate = self.inner.lock();
        gate.complete(now, self.class, self.entered);
        self.inner.release(gate);
    }

    /// The class it was given to.
    pub fn class(&self) -> ClassId {
        self.class
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, Gate> {
        // No foreign code runs within the lock, so a poisoned one is as good as any.
        self.gate.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives the lock back, then says what there is to say.
    fn release(&self, mut gate: MutexGuard<'_, Gate>) {
        let notices = gate.take_notices();
        drop(gate);
        if !notices.is_empty() {
            self.reporter.report_all(notices);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Parameters;

    fn at_rate(rate: f64) -> Settings {
        Settings::default().parameters(Parameters { initial_rate: rate, ..Parameters::default() })
    }

    #[tokio::test(start_paused = true)]
    async fn clones_are_one_controller() {
        let admission = Admission::new("one", &at_rate(10.0)).unwrap();
        let other = admission.clone();
        admission.admit(ClassId(0)).unwrap().finish();
        let overloaded = other.admit(ClassId(0)).err().unwrap();
        assert_eq!(overloaded.retry_after, Duration::from_millis(100));
        assert_eq!(overloaded.retry_after_seconds(), 1);
        assert_eq!(overloaded.to_string(), "\"one\" is overloaded for class 1; try again in 0.1 s");
        let class = &other.snapshot().classes[0];
        assert_eq!((class.offered, class.admitted, class.completed), (2, 1, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn abandoned_work_teaches_nothing() {
        let admission = Admission::new("one", &at_rate(1000.0)).unwrap();
        drop(admission.admit(ClassId(0)).unwrap());
        tokio::time::advance(Duration::from_secs(2)).await;
        let event = Event::new(ClassId(0), ());
        tokio::time::advance(Duration::from_secs(3)).await;
        admission.admit_event(&event).unwrap().finish();
        let class = &admission.snapshot().classes[0];
        assert_eq!((class.completed, class.response_seconds), (1, 3.0));
    }

    #[tokio::test(start_paused = true)]
    async fn it_runs_by_time_when_too_few_complete() {
        let admission = Admission::new("one", &at_rate(100.0)).unwrap();
        for _ in 0..30 {
            admission.admit(ClassId(0)).unwrap().finish();
            tokio::time::advance(Duration::from_millis(100)).await;
        }
        assert_eq!(admission.percentile(ClassId(0)), Some(Duration::ZERO));
        assert!(admission.snapshot().classes[0].rate > 100.0);
    }
}
