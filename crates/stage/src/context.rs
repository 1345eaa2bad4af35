//! Context of a handler: what it sees of its stage, and what it can switch.

use std::sync::Arc;
use std::time::Duration;

use tidegate_engine::{ClassId, Timestamp};

use crate::clock;
use crate::gate::Published;

/// A handler's view of its own stage. Cheap to clone; reading takes no lock.
///
/// A handler that can answer more cheaply reads [`Context::quality`]; one that does its own degradation reads
/// [`Context::percentile`] and switches admission control with [`Context::set_policing`] (Welsh and Culler, section
/// 3.4).
#[derive(Clone)]
pub struct Context {
    name: Arc<str>,
    published: Arc<Published>,
    stage: Arc<dyn StageView>,
}

/// What a context asks of its stage, whatever its events are.
pub(crate) trait StageView: Send + Sync {
    fn set_policing(&self, now: Timestamp, on: bool);
    fn waiting(&self) -> usize;
}

impl Context {
    pub(crate) fn new(name: Arc<str>, published: Arc<Published>, stage: Arc<dyn StageView>) -> Self {
        Context { name, published, stage }
    }

    /// Switches the stage's admission controller on or off. While it is off, only a full queue refuses.
    pub fn set_policing(&self, on: bool) {
        self.stage.set_policing(clock::now(), on);
    }

    /// Name of the stage that runs the handler.
    pub fn stage(&self) -> &str {
        &self.name
    }

    /// How good answers should be: 1 is best. Always 1 unless the stage's parameters have `quality`.
    pub fn quality(&self) -> f64 {
        self.published.quality()
    }

    /// The smoothed percentile of response time of the class; `None` before it is known.
    pub fn percentile(&self, class: ClassId) -> Option<Duration> {
        self.published.percentile(class).and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
    }

    /// The class's response-time target.
    pub fn target(&self, class: ClassId) -> Duration {
        Duration::try_from_secs_f64(self.published.target(class)).unwrap_or(Duration::MAX)
    }

    /// Whether the admission controller refuses now.
    pub fn is_policing(&self) -> bool {
        self.published.is_policing()
    }

    /// How many events wait in the stage's queue. Takes the stage's lock for a moment.
    pub fn waiting(&self) -> usize {
        self.stage.waiting()
    }
}
