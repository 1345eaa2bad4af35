//! An event of a graph: a body, with its class and the time when it entered the service.

use std::time::Duration;

use tidegate_engine::{ClassId, Timestamp};

use crate::clock;

/// Something for a stage to do: a body of the service's own type, and what controllers need to know of it.
///
/// The class and the time of entry stay with a piece of work on its whole way through the graph: [`Event::map`] and
/// [`Event::with`] change the body and keep them, so a response time is always counted from the entry into the service.
#[derive(Clone, Debug)]
pub struct Event<T> {
    /// What is to be done.
    pub body: T,
    pub(crate) mark: Mark,
}

/// What an event carries beside its body.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mark {
    /// When it entered the service.
    pub(crate) entered: Timestamp,
    /// Bit n: stage n's controller has already let it pass, at the entry.
    pub(crate) prepaid: u64,
    pub(crate) class: ClassId,
    /// The entry it came through, by number; [`Mark::NO_ENTRY`] when it was made in the middle of the graph.
    pub(crate) entry: u8,
}

impl Mark {
    pub(crate) const NO_ENTRY: u8 = u8::MAX;

    pub(crate) fn new(class: ClassId, entered: Timestamp) -> Self {
        Mark { entered, prepaid: 0, class, entry: Mark::NO_ENTRY }
    }
}

impl<T> Event<T> {
    /// An event of `class` (0 is the most important) that enters the service now.
    pub fn new(class: ClassId, body: T) -> Self {
        Event { body, mark: Mark::new(class, clock::now()) }
    }

    /// The same piece of work with another body: its class and its time of entry stay.
    pub fn map<U>(self, change: impl FnOnce(T) -> U) -> Event<U> {
        Event { body: change(self.body), mark: self.mark }
    }

    /// A further event for the same piece of work.
    pub fn with<U>(&self, body: U) -> Event<U> {
        Event { body, mark: self.mark }
    }

    /// The body, without class and time.
    pub fn into_body(self) -> T {
        self.body
    }

    /// How important it is.
    pub fn class(&self) -> ClassId {
        self.mark.class
    }

    /// How long ago it entered the service.
    pub fn age(&self) -> Duration {
        clock::now().since(self.mark.entered)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn class_and_entry_stay_when_the_body_changes() {
        let event = Event::new(ClassId(2), "7");
        tokio::time::advance(Duration::from_millis(30)).await;
        let event = event.map(|text| text.parse::<u32>().unwrap());
        let other = event.with(vec![event.body]);
        assert_eq!((other.class(), other.age(), other.body), (ClassId(2), Duration::from_millis(30), vec![7]));
    }
}
