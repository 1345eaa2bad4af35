//! Answers: where the sender of an event waits for what becomes of it.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::sync::oneshot;

use crate::tag;

/// Why there will be no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Lost {
    /// The handler that held the event panicked.
    #[error("the handler{} panicked", stage.as_ref().map(|stage| format!(" of stage \"{stage}\"")).unwrap_or_default())]
    Panicked {
        /// The stage, where the handler was a stage's.
        stage: Option<Arc<str>>,
    },
    /// The event was dropped without an answer, or the graph stopped.
    #[error("the event was dropped without an answer")]
    Dropped,
}

/// The right to answer, once. It travels in the body of an event. Dropped unused, the one who waits hears [`Lost`].
#[derive(Debug)]
pub struct Reply<R> {
    sender: Option<oneshot::Sender<Result<R, Lost>>>,
}

/// Waits for the answer. Dropped, nobody waits any more: the handler can see it with [`Reply::is_awaited`].
#[derive(Debug)]
pub struct Answer<R> {
    receiver: oneshot::Receiver<Result<R, Lost>>,
}

/// A reply to send along, and the place to wait for it.
pub fn reply<R>() -> (Reply<R>, Answer<R>) {
    let (sender, receiver) = oneshot::channel();
    (Reply { sender: Some(sender) }, Answer { receiver })
}

impl<R> Reply<R> {
    /// Answers. Does nothing when nobody waits any more.
    pub fn send(mut self, answer: R) {
        if let Some(sender) = self.sender.take() {
            // Nobody waits: the answer is not missed.
            let _ = sender.send(Ok(answer));
        }
    }

    /// Whether somebody still waits. Work for a user who left can be skipped.
    pub fn is_awaited(&self) -> bool {
        self.sender.as_ref().is_some_and(|sender| !sender.is_closed())
    }
}

impl<R> Future for Answer<R> {
    type Output = Result<R, Lost>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.receiver).poll(cx).map(|received| received.unwrap_or(Err(Lost::Dropped)))
    }
}

impl<R> Drop for Reply<R> {
    fn drop(&mut self) {
        let Some(sender) = self.sender.take() else { return };
        if !std::thread::panicking() {
            return;
        }
        // Nobody listening is fine, in either case.
        let _ = sender.send(Err(Lost::Panicked { stage: tag::current() }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_answer_or_the_reason_why_there_is_none() {
        let (sender, answer) = reply();
        assert!(sender.is_awaited());
        sender.send(7);
        assert_eq!(answer.await, Ok(7));
        let (sender, answer) = reply::<u8>();
        drop(sender);
        assert_eq!(answer.await, Err(Lost::Dropped));
        let (sender, answer) = reply::<u8>();
        drop(answer);
        assert!(!sender.is_awaited());
    }

    #[tokio::test]
    async fn a_panic_outside_of_stages_is_told_too() {
        let (sender, answer) = reply::<u8>();
        let thread = std::thread::spawn(move || {
            let _sender = sender;
            panic!("on purpose");
        });
        assert_eq!(answer.await, Err(Lost::Panicked { stage: None }));
        assert!(thread.join().is_err());
    }
}
