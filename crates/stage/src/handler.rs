//! Handlers: what a stage does with its events.

use std::future::Future;
use std::marker::PhantomData;

use crate::batch::Batch;
use crate::context::Context;
use crate::event::Event;

/// What a stage does with a batch of events, asynchronously.
///
/// [`each`] makes a handler from a closure over single events. Implement the trait to work on batches: one write for
/// many rows, one call for many keys. A handler that returns before it asked for all events is called again with the
/// rest; one that asks for none at all loses them, and they count as lost.
///
/// A panic is contained: the events in hand are lost and counted, and the stage goes on with the others.
pub trait Handler<T>: Send + Sync + 'static {
    /// Works on the batch.
    fn handle(&self, batch: &mut Batch<T>, context: &Context) -> impl Future<Output = ()> + Send;
}

/// What a stage does with a batch of events on a thread of its own, where it may block.
///
/// [`each_blocking`] makes one from a closure over single events. Otherwise as [`Handler`].
pub trait BlockingHandler<T>: Send + Sync + 'static {
    /// Works on the batch.
    fn handle(&self, batch: &mut Batch<T>, context: &Context);
}

/// A handler that calls `work` for one event after the other.
///
/// The closure gets a reference to the context; what its future needs of it, it reads or clones before it begins:
/// `each(|event, context| { let quality = context.quality(); async move { ... } })`.
pub fn each<T, F, R>(work: F) -> Each<F, R>
where
    T: Send + 'static,
    F: Fn(Event<T>, &Context) -> R + Send + Sync + 'static,
    R: Future<Output = ()> + Send + 'static,
{
    Each { work, result: PhantomData }
}

/// A blocking handler that calls `work` for one event after the other.
pub fn each_blocking<T, F>(work: F) -> EachBlocking<F>
where
    T: Send + 'static,
    F: Fn(Event<T>, &Context) + Send + Sync + 'static,
{
    EachBlocking { work }
}

/// A handler for single events, made by [`each`].
pub struct Each<F, R> {
    work: F,
    result: PhantomData<fn() -> R>,
}

impl<T, F, R> Handler<T> for Each<F, R>
where
    T: Send + 'static,
    F: Fn(Event<T>, &Context) -> R + Send + Sync + 'static,
    R: Future<Output = ()> + Send + 'static,
{
    // Not an async fn: that would move its arguments at its first poll, 5 ns for each batch.
    #[expect(clippy::manual_async_fn, reason = "see above")]
    fn handle(&self, batch: &mut Batch<T>, context: &Context) -> impl Future<Output = ()> + Send {
        async move {
            while let Some(event) = batch.next() {
                (self.work)(event, context).await;
            }
        }
    }
}

/// A blocking handler for single events, made by [`each_blocking`].
pub struct EachBlocking<F> {
    work: F,
}

impl<T, F> BlockingHandler<T> for EachBlocking<F>
where
    T: Send + 'static,
    F: Fn(Event<T>, &Context) + Send + Sync + 'static,
{
    fn handle(&self, batch: &mut Batch<T>, context: &Context) {
        while let Some(event) = batch.next() {
            (self.work)(event, context);
        }
    }
}
