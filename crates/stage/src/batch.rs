//! A batch: the events that a worker took from the queue at once.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tidegate_engine::Timestamp;

use crate::clock;
use crate::event::{Event, Mark};
use crate::stage::Stage;

/// Ends of events are told to the controller at the end of the batch, but not later than this.
const TELL_WITHIN: Duration = Duration::from_millis(1);

/// The events that a worker took from its stage's queue at once, in the order of the queue.
///
/// An event's processing lasts until the handler asks for the next one, or returns: that is when its response time
/// ends. Events that [`Batch::take`] gave out together end together, when the handler returns.
pub struct Batch<T> {
    /// Not yet given out.
    pub(crate) waiting: VecDeque<Event<T>>,
    /// Given out; their processing goes on.
    pub(crate) in_hand: Vec<Mark>,
    /// Processed, and the controller does not know it yet.
    pub(crate) ended: Vec<(Timestamp, Mark)>,
    /// When the worker took it; what was told of its busy time is counted from here.
    pub(crate) busy_since: Timestamp,
    /// Whether the stage counts the worker that holds it as busy.
    pub(crate) is_busy: bool,
    stage: Arc<Stage<T>>,
}

impl<T> Batch<T> {
    pub(crate) fn new(stage: Arc<Stage<T>>) -> Self {
        Batch {
            waiting: VecDeque::new(),
            in_hand: Vec::new(),
            ended: Vec::new(),
            busy_since: Timestamp::ZERO,
            is_busy: false,
            stage,
        }
    }

    /// The next event. The processing of the one before it ends.
    #[expect(clippy::should_implement_trait, reason = "a batch is more than an iterator: asking has a meaning")]
    pub fn next(&mut self) -> Option<Event<T>> {
        if self.waiting.is_empty() {
            return None;
        }
        if !self.in_hand.is_empty() {
            let now = clock::now();
            self.end_in_hand(now);
            if now.since(self.busy_since) >= TELL_WITHIN {
                self.stage.clone().tell(self, now);
            }
        }
        let event = self.waiting.pop_front()?;
        self.in_hand.push(event.mark);
        Some(event)
    }

    /// All events that were not given out yet; their processing ends together, when the handler returns.
    pub fn take(&mut self) -> impl ExactSizeIterator<Item = Event<T>> + use<'_, T> {
        self.in_hand.extend(self.waiting.iter().map(|event| event.mark));
        self.waiting.drain(..)
    }

    /// How many events were not given out yet.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether all events were given out.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// The processing of what was given out ends.
    pub(crate) fn end_in_hand(&mut self, now: Timestamp) {
        self.ended.extend(self.in_hand.drain(..).map(|mark| (now, mark)));
    }
}
