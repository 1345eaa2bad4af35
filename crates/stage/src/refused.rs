//! Refusal of an event: what a sender gets back from a stage that does not accept it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use tidegate_engine::ClassId;

use crate::event::Event;

/// A stage did not take an event. The event comes back, and its sender decides: refuse the user, answer from
/// elsewhere, answer more cheaply, or wait.
pub struct Refused<T> {
    /// What was to be done.
    pub event: Event<T>,
    /// Why the stage did not accept the event.
    pub reason: RefusalReason,
    /// When the stage is expected to take an event of this class again; zero where there is no such time.
    pub retry_after: Duration,
    /// The stage that refuses. With early refusal this may be a stage further down.
    pub stage: Arc<str>,
    /// Refused at the entry on behalf of `stage`, before any work was spent.
    pub is_early: bool,
}

/// Why an event was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum RefusalReason {
    /// The admission controller lets in fewer per second, to keep the response-time target.
    RateLimit,
    /// As many events wait as the queue may hold.
    QueueFull,
    /// The sender's time for waiting is over.
    TimedOut,
    /// The service takes no more work, and finishes what it has.
    Draining,
    /// The graph does not run (any more).
    Stopped,
}

impl RefusalReason {
    /// Every reason, for tables and metrics.
    pub const ALL: [RefusalReason; 5] = [
        RefusalReason::RateLimit,
        RefusalReason::QueueFull,
        RefusalReason::TimedOut,
        RefusalReason::Draining,
        RefusalReason::Stopped,
    ];

    /// The reason's name in metrics and logs.
    pub const fn name(self) -> &'static str {
        match self {
            RefusalReason::RateLimit => "rate-limit",
            RefusalReason::QueueFull => "queue-full",
            RefusalReason::TimedOut => "timed-out",
            RefusalReason::Draining => "draining",
            RefusalReason::Stopped => "stopped",
        }
    }

    /// The reason's position in [`RefusalReason::ALL`].
    pub(crate) const fn index(self) -> usize {
        self as usize
    }
}

/// A refusal without its event: what the inside of the crate passes on.
#[derive(Clone, Debug)]
pub(crate) struct Refusal {
    pub(crate) reason: RefusalReason,
    pub(crate) retry_after: Duration,
    pub(crate) stage: Arc<str>,
    pub(crate) is_early: bool,
}

impl Refusal {
    pub(crate) fn of<T>(self, event: Event<T>) -> Refused<T> {
        let Refusal { reason, retry_after, stage, is_early } = self;
        Refused { event, reason, retry_after, stage, is_early }
    }
}

impl<T> Refused<T> {
    /// The class of the refused event.
    pub fn class(&self) -> ClassId {
        self.event.class()
    }

    /// The same refusal about the event's former body.
    pub fn map<U>(self, change: impl FnOnce(T) -> U) -> Refused<U> {
        let Refused { event, reason, retry_after, stage, is_early } = self;
        Refused { event: event.map(change), reason, retry_after, stage, is_early }
    }
}

impl<T> fmt::Display for Refused<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (stage, class) = (&self.stage, self.class());
        match self.reason {
            RefusalReason::RateLimit => {
                let seconds = self.retry_after.as_secs_f64();
                write!(f, "stage \"{stage}\" is overloaded for class {class}; try again in {seconds:.3} s")
            }
            RefusalReason::QueueFull => write!(f, "the queue of stage \"{stage}\" is full"),
            RefusalReason::TimedOut => write!(f, "stage \"{stage}\" did not take the event in time"),
            RefusalReason::Draining => write!(f, "stage \"{stage}\" takes no more work: the service shuts down"),
            RefusalReason::Stopped => write!(f, "stage \"{stage}\" does not run"),
        }
    }
}

impl<T> fmt::Debug for Refused<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Refused")
            .field("reason", &self.reason)
            .field("retry_after", &self.retry_after)
            .field("stage", &self.stage)
            .field("class", &self.class())
            .field("is_early", &self.is_early)
            .finish_non_exhaustive()
    }
}

impl<T> std::error::Error for Refused<T> {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_stand_at_their_index() {
        for (index, reason) in RefusalReason::ALL.into_iter().enumerate() {
            assert_eq!(reason.index(), index);
            assert_eq!(serde_json::to_value(reason).unwrap(), reason.name());
        }
    }
}
