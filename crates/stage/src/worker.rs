//! Workers: tasks or threads that take batches from their stage and hand them to its handler.

use std::any::Any;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll, Wake, Waker};
use std::time::Duration;

use tidegate_engine::Timestamp;
use tokio::runtime::Handle;

use crate::batch::Batch;
use crate::clock::InWorker;
use crate::context::Context;
use crate::handler::{BlockingHandler, Handler};
use crate::stage::{Pulled, Stage, WorkerId};

/// A worker's task draws on tokio's budget once in this time, not at every batch: batches of one would pay for it what
/// they pay for their lock. With the budget's 128 draws, batches shorter than this yield within a millisecond.
const DRAW_EVERY: Duration = Duration::from_micros(5);

/// And once in so many batches: a paused clock does not move.
const DRAW_AT_LEAST: u64 = 64;

/// Starts a worker as a task.
pub(crate) fn spawn<T: Send + 'static>(
    runtime: &Handle,
    stage: Arc<Stage<T>>,
    handler: Arc<impl Handler<T>>,
    context: Context,
) {
    let worker = stage.enlist();
    let tag = stage.tag.id();
    let mut work = Box::pin(run(worker, stage, handler, context));
    runtime.spawn(poll_fn(move |cx| {
        let _in_worker = InWorker::enter(tag);
        work.as_mut().poll(cx)
    }));
}

/// Starts a worker on a thread of its own.
///
/// # Errors
/// When the system gives no thread.
pub(crate) fn spawn_blocking<T: Send + 'static>(
    runtime: &Handle,
    stage: Arc<Stage<T>>,
    handler: Arc<impl BlockingHandler<T>>,
    context: Context,
) -> std::io::Result<()> {
    let worker = stage.enlist();
    let runtime = runtime.clone();
    let thread = std::thread::Builder::new().name(format!("{}-{worker}", stage.reporter.stage));
    let for_thread = stage.clone();
    let spawned = thread.spawn(move || {
        // For timers and spawned tasks in handlers, and for the clock.
        let _runtime = runtime.enter();
        run_blocking(worker, &for_thread, &*handler, &context);
    });
    if spawned.is_err() {
        stage.discharge();
    }
    spawned.map(drop)
}

async fn run<T: Send + 'static>(
    worker: WorkerId,
    stage: Arc<Stage<T>>,
    handler: Arc<impl Handler<T>>,
    context: Context,
) {
    let mut batch = Batch::new(stage.clone());
    let (mut batches, mut drew) = (0_u64, Timestamp::ZERO);
    while poll_fn(|cx| stage.poll_pull(worker, &mut batch, cx)).await == Pulled::Events {
        while !batch.is_empty() {
            let before = batch.len();
            let ended = {
                let mut work = pin!(handler.handle(&mut batch, &context));
                poll_fn(|cx| poll_contained(work.as_mut(), cx)).await
            };
            after_handler(&stage, &mut batch, before, ended);
        }
        batches += 1;
        if batches.is_multiple_of(DRAW_AT_LEAST) || batch.busy_since.since(drew) >= DRAW_EVERY {
            drew = batch.busy_since;
            tokio::task::consume_budget().await;
        }
    }
}

fn run_blocking<T: Send + 'static>(
    worker: WorkerId,
    stage: &Arc<Stage<T>>,
    handler: &impl BlockingHandler<T>,
    context: &Context,
) {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut cx = TaskContext::from_waker(&waker);
    let mut batch = Batch::new(stage.clone());
    let tag = stage.tag.id();
    loop {
        let in_worker = InWorker::enter(tag);
        match stage.poll_pull(worker, &mut batch, &mut cx) {
            Poll::Pending => {
                drop(in_worker);
                std::thread::park();
            }
            Poll::Ready(Pulled::Leave) => return,
            Poll::Ready(Pulled::Events) => {
                while !batch.is_empty() {
                    let before = batch.len();
                    let ended = catch_unwind(AssertUnwindSafe(|| handler.handle(&mut batch, context)));
                    after_handler(stage, &mut batch, before, ended);
                }
            }
        }
    }
}

/// What follows from how a handler ended: a panic is counted and told, and nothing is left lying.
fn after_handler<T>(stage: &Stage<T>, batch: &mut Batch<T>, before: usize, ended: Result<(), Box<dyn Any + Send>>) {
    if let Err(panic) = ended {
        stage.count_panic(batch, message_of(&*panic));
    }
    if batch.len() == before {
        stage.count_left_over(batch);
    }
}

/// Polls a future; a panic in it is an error.
fn poll_contained<F: Future<Output = ()>>(
    work: Pin<&mut F>,
    cx: &mut TaskContext<'_>,
) -> Poll<Result<(), Box<dyn Any + Send>>> {
    match catch_unwind(AssertUnwindSafe(|| work.poll(cx))) {
        Ok(Poll::Pending) => Poll::Pending,
        Ok(Poll::Ready(())) => Poll::Ready(Ok(())),
        Err(panic) => Poll::Ready(Err(panic)),
    }
}

fn message_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("a panic without a message").to_owned()
}

/// Wakes a thread.
struct Unpark(std::thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}
