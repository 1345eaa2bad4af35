//! Back-pressure: senders that wait until the stage takes their event.
//!
//! Senders of a class pass a turnstile in the order they came, and only the first one waits for room or for a token, so
//! nobody is woken in vain. Room that it waits for is kept for it: who does not wait cannot snatch it.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tidegate_engine::ClassId;
use tokio::time::Instant;

use super::{Stage, Turn};
use crate::clock;
use crate::event::Event;
use crate::refused::{RefusalReason, Refused};
use crate::shared::Phase;

impl<T> Stage<T> {
    /// Waits until the event is taken, until `deadline` if there is one. `may_drain`: whether the sender goes on while
    /// the graph drains.
    pub(crate) async fn offer_waiting(
        &self,
        event: Event<T>,
        deadline: Option<Instant>,
        may_drain: bool,
    ) -> Result<(), Refused<T>> {
        let class = self.count_arrival(&event);
        let mut slot = Some(event);
        let taken = self.until_taken(&mut slot, class, may_drain);
        let reason = match deadline {
            None => taken.await,
            Some(deadline) => match tokio::time::timeout_at(deadline, taken).await {
                Ok(reason) => reason,
                Err(_) => Some(RefusalReason::TimedOut),
            },
        };
        match (reason, slot) {
            (Some(reason), Some(event)) => Err(self.refuse_waiting(event, class, reason)),
            _ => Ok(()),
        }
    }

    fn count_arrival(&self, event: &Event<T>) -> ClassId {
        let mut core = self.lock();
        let class = core.gate.class(event.mark.class);
        core.count_offered(self.index, class, event.mark);
        class
    }

    fn refuse_waiting(&self, event: Event<T>, class: ClassId, reason: RefusalReason) -> Refused<T> {
        let now = clock::now();
        let core = self.lock();
        let retry_after = core.gate.retry_after(now, class);
        self.refuse(core, event, now, class, (reason, retry_after))
    }

    /// Empties `slot` once the stage takes its event; else why it never will.
    async fn until_taken(&self, slot: &mut Option<Event<T>>, class: ClassId, may_drain: bool) -> Option<RefusalReason> {
        let _turn = self.turnstiles[class.index()].lock().await;
        loop {
            // Made before the phase is read, so that a stop in between is not missed.
            let changed = self.shared.changed.notified();
            match (self.shared.phase(), may_drain) {
                (Phase::Building | Phase::Stopped, _) => return Some(RefusalReason::Stopped),
                (Phase::Draining, false) => return Some(RefusalReason::Draining),
                _ => {}
            }
            match self.try_first(slot, class) {
                Ok(()) => return None,
                Err((RefusalReason::RateLimit, wait)) => tokio::select! {
                    () = tokio::time::sleep(wait) => {}
                    () = changed => {}
                },
                Err((RefusalReason::QueueFull, _)) => tokio::select! {
                    () = self.room(class) => {}
                    () = changed => {}
                },
                Err((reason, _)) => return Some(reason),
            }
        }
    }

    fn try_first(&self, slot: &mut Option<Event<T>>, class: ClassId) -> Result<(), (RefusalReason, Duration)> {
        let Some(mark) = slot.as_ref().map(|event| event.mark) else { return Ok(()) };
        let mut core = self.lock();
        core.room_for(self, clock::recent(), class, mark, Turn::First)?;
        if let Some(event) = slot.take() {
            let wake = core.push(self.index, event, class);
            drop(core);
            self.after_push(wake);
        }
        Ok(())
    }

    /// Waits until there is room for the first sender of the class.
    async fn room(&self, class: ClassId) {
        let _seat = Seat { stage: self, class };
        poll_fn(|cx| {
            let mut core = self.lock();
            let kept = core.room[..class.index()].iter().flatten().count();
            if core.queue.len() + kept < self.settings.queue {
                return Poll::Ready(());
            }
            core.room[class.index()] = Some(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }
}

/// The place of a sender that waits for room; given up when it has it, and when it stops waiting.
struct Seat<'a, T> {
    stage: &'a Stage<T>,
    class: ClassId,
}

impl<T> Drop for Seat<'_, T> {
    fn drop(&mut self) {
        let mut core = self.stage.lock();
        core.room[self.class.index()] = None;
        // What was kept for this one is now for less important classes that wait.
        let others: Vec<_> = core.room[self.class.index()..].iter().flatten().cloned().collect();
        drop(core);
        others.into_iter().for_each(|waker| waker.wake());
    }
}

/// A stage that a blocking handler sends to waits on the thread.
impl<T: Send> Stage<T> {
    /// Like [`Stage::offer_waiting`], on this thread.
    pub(crate) fn offer_blocking(self: &Arc<Self>, event: Event<T>, may_drain: bool) -> Result<(), Refused<T>> {
        let Some(runtime) = self.shared.runtime.get() else {
            return Err(self.refusal(RefusalReason::Stopped, Duration::ZERO).of(event));
        };
        runtime.block_on(self.offer_waiting(event, None, may_drain))
    }
}
