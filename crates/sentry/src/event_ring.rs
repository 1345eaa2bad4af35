//! The last events of an application, and whoever listens to new ones.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use tidegate_engine::{Event, EventSink, Timestamp};
use tokio::sync::broadcast;

/// How many events are kept, and how many a slow listener may lag behind.
const KEPT: usize = 1000;

/// An event with its number and time.
#[derive(Clone, Debug)]
pub struct Stamped {
    /// Counts up from 0 without gaps.
    pub number: u64,
    /// On the application's clock.
    pub at: Timestamp,
    /// What happened.
    pub event: Event,
}

/// The last events. Cheap to clone: all clones are one ring.
#[derive(Clone, Debug)]
pub struct EventRing {
    kept: Arc<Mutex<Kept>>,
    news: broadcast::Sender<Stamped>,
}

#[derive(Debug, Default)]
struct Kept {
    next: u64,
    events: VecDeque<Stamped>,
}

impl EventRing {
    /// An empty ring.
    pub fn new() -> Self {
        EventRing { kept: Arc::default(), news: broadcast::channel(KEPT).0 }
    }

    /// The last events, oldest first.
    pub fn recent(&self) -> Vec<Stamped> {
        self.lock().events.iter().cloned().collect()
    }

    /// New events from now on. A listener that lags loses the oldest ones and is told so.
    pub fn subscribe(&self) -> broadcast::Receiver<Stamped> {
        self.news.subscribe()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for EventRing {
    fn default() -> Self {
        EventRing::new()
    }
}

impl EventSink for EventRing {
    fn record(&mut self, now: Timestamp, event: Event) {
        let mut kept = self.lock();
        let stamped = Stamped { number: kept.next, at: now, event };
        kept.next += 1;
        if kept.events.len() == KEPT {
            kept.events.pop_front();
        }
        kept.events.push_back(stamped.clone());
        drop(kept);
        // Nobody listens: that is fine.
        let _ = self.news.send(stamped);
    }
}
