//! Senders: how events get into stages.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tidegate_engine::ClassId;
use tokio::time::Instant;

use crate::clock;
use crate::event::Event;
use crate::refused::{RefusalReason, Refused};
use crate::reply::{Lost, Reply, reply};
use crate::shared::Phase;
use crate::stage::Stage;

/// A queue that is full now is not asked again sooner.
const LEAST_WAIT: Duration = Duration::from_millis(1);

/// Sends events to a stage, from a handler of another one. Never waits: what the stage does not take comes back.
///
/// Made by [`GraphBuilder::link`](crate::GraphBuilder::link).
pub struct Sender<T> {
    pub(crate) stage: Arc<Stage<T>>,
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        Sender { stage: self.stage.clone() }
    }
}

impl<T: Send + 'static> Sender<T> {
    /// Sends an event.
    ///
    /// # Errors
    /// [`Refused`] with the event: the controller lets no more in, or the queue is full, or the graph has stopped.
    pub fn try_send(&self, event: Event<T>) -> Result<(), Refused<T>> {
        self.stage.offer(event, clock::recent())
    }

    /// Sends many events under one lock. What is refused is added to `refused`.
    pub fn try_send_all(&self, events: impl IntoIterator<Item = Event<T>>, refused: &mut Vec<Refused<T>>) {
        self.stage.offer_all(events.into_iter(), refused);
    }

    /// The name of the stage it sends to.
    pub fn stage(&self) -> &str {
        &self.stage.reporter.stage
    }
}

/// Sends events to a stage, from a handler of another one, and can wait until it takes them: back-pressure.
///
/// Made by [`GraphBuilder::waiting_link`](crate::GraphBuilder::waiting_link).
pub struct WaitingSender<T> {
    pub(crate) sender: Sender<T>,
}

impl<T> Clone for WaitingSender<T> {
    fn clone(&self) -> Self {
        WaitingSender { sender: self.sender.clone() }
    }
}

impl<T: Send + 'static> WaitingSender<T> {
    /// Waits until the stage takes the event. First come, first served within a class. Dropping the future drops the
    /// event.
    ///
    /// # Errors
    /// [`Refused`] with the event when the graph stops.
    pub async fn send(&self, event: Event<T>) -> Result<(), Refused<T>> {
        self.sender.stage.offer_waiting(event, None, true).await
    }

    /// Like [`WaitingSender::send`], for so long.
    ///
    /// # Errors
    /// [`Refused`] with the event when the time is over ([`RefusalReason::TimedOut`]) or the graph stops.
    pub async fn send_within(&self, event: Event<T>, patience: Duration) -> Result<(), Refused<T>> {
        let deadline = Instant::now() + patience;
        self.sender.stage.offer_waiting(event, Some(deadline), true).await
    }

    /// Like [`WaitingSender::send`], for blocking handlers: waits on this thread.
    ///
    /// # Errors
    /// As there.
    ///
    /// # Panics
    /// On a thread that drives asynchronous tasks, as tokio does not let those block.
    pub fn send_blocking(&self, event: Event<T>) -> Result<(), Refused<T>> {
        self.sender.stage.offer_blocking(event, true)
    }

    /// The sender that does not wait.
    pub fn sender(&self) -> &Sender<T> {
        &self.sender
    }
}

/// Where work enters the service. Stamps it with the time; refuses it early when a later stage would refuse it.
///
/// Made by [`GraphBuilder::entry`](crate::GraphBuilder::entry).
pub struct Entry<T> {
    pub(crate) stage: Arc<Stage<T>>,
    /// Bit n: nearly everything that enters here comes to stage n.
    pub(crate) always: Arc<AtomicU64>,
    /// Bit n: what enters here goes to stage n.
    pub(crate) route: u64,
}

impl<T> Clone for Entry<T> {
    fn clone(&self) -> Self {
        Entry { stage: self.stage.clone(), always: self.always.clone(), route: self.route }
    }
}

/// Why a call has no answer.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum CallError<T> {
    /// It did not get in.
    #[error("{0}")]
    Refused(Refused<T>),
    /// It got in and was lost.
    #[error("{0}")]
    Lost(#[from] Lost),
}

impl<T> fmt::Debug for CallError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CallError::Refused(refused) => f.debug_tuple("Refused").field(refused).finish(),
            CallError::Lost(lost) => f.debug_tuple("Lost").field(lost).finish(),
        }
    }
}

impl<T: Send + 'static> Entry<T> {
    /// Lets a piece of work enter now, if the service takes it.
    ///
    /// # Errors
    /// [`Refused`] with the work as an event: the stage's controller lets no more in, its queue is full, a later stage
    /// would refuse it, or the graph takes no more work.
    pub fn try_send(&self, class: ClassId, body: T) -> Result<(), Refused<T>> {
        let event = self.enter(Event::new(class, body))?;
        let now = event.mark.entered;
        self.stage.offer(event, now)
    }

    /// Waits until the service takes the work. The time of entry is before the wait. Dropping the future drops the
    /// work.
    ///
    /// # Errors
    /// [`Refused`] when the graph takes no more work. A later stage's early refusal is returned at once, too.
    pub async fn send(&self, class: ClassId, body: T) -> Result<(), Refused<T>> {
        let event = self.enter_waiting(Event::new(class, body), None).await?;
        self.stage.offer_waiting(event, None, false).await
    }

    /// Like [`Entry::send`], for so long.
    ///
    /// # Errors
    /// As there, and [`RefusalReason::TimedOut`].
    pub async fn send_within(&self, class: ClassId, body: T, patience: Duration) -> Result<(), Refused<T>> {
        let deadline = Instant::now() + patience;
        let event = self.enter_waiting(Event::new(class, body), Some(deadline)).await?;
        self.stage.offer_waiting(event, Some(deadline), false).await
    }

    /// Lets a piece of work enter and waits for its answer. `body` gets the reply to send along.
    ///
    /// # Errors
    /// [`CallError::Refused`] when it does not get in; [`CallError::Lost`] when its handler panics, or drops it.
    pub async fn call<R: Send>(
        &self,
        class: ClassId,
        body: impl FnOnce(Reply<R>) -> T + Send,
    ) -> Result<R, CallError<T>> {
        let (reply, answer) = reply();
        self.try_send(class, body(reply)).map_err(CallError::Refused)?;
        Ok(answer.await?)
    }

    /// The name of the stage it leads to.
    pub fn stage(&self) -> &str {
        &self.stage.reporter.stage
    }

    /// Like [`Entry::enter`], and asks again when it was told to come back.
    async fn enter_waiting(&self, mut event: Event<T>, deadline: Option<Instant>) -> Result<Event<T>, Refused<T>> {
        loop {
            // Made before the phase is read, so that a drain in between is not missed.
            let changed = self.stage.shared.changed.notified();
            let refused = match self.enter(event) {
                Err(refused) if refused.is_early => refused,
                entered_or_never => return entered_or_never,
            };
            let again = Instant::now() + refused.retry_after.max(LEAST_WAIT);
            if deadline.is_some_and(|deadline| deadline < again) {
                return Err(Refused { reason: RefusalReason::TimedOut, ..refused });
            }
            tokio::select! {
                () = tokio::time::sleep_until(again) => {}
                () = changed => {}
            }
            event = refused.event;
        }
    }

    /// Marks where the event enters, and asks those stages that refuse late.
    fn enter(&self, mut event: Event<T>) -> Result<Event<T>, Refused<T>> {
        let class = event.class();
        event.mark.prepaid = 0;
        event.mark.entry = self.stage.index;
        let shared = &self.stage.shared;
        if shared.phase() == Phase::Draining {
            return Err(self.stage.refusal(RefusalReason::Draining, Duration::ZERO).of(event));
        }
        let ask = shared.pressed() & (self.always.load(Ordering::Relaxed) | self.route) & !(1 << self.stage.index);
        if ask == 0 {
            return Ok(event);
        }
        for index in (0..64).filter(|index| ask >> index & 1 == 1) {
            let member = shared.members.get().and_then(|members| members.get(index)?.upgrade());
            if let Some(Err(refusal)) = member.map(|member| member.reserve(class)) {
                return Err(refusal.of(event));
            }
            event.mark.prepaid |= 1 << index;
        }
        Ok(event)
    }
}
