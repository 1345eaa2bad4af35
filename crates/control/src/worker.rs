//! A thread that moves bytes, so that leases are renewed while the daemon computes.
//!
//! *Intuition.* Whoever asks may block, and may do so within another runtime; what it asks for is a task of this
//! thread. *Awkward cases.* A task that hangs holds up nobody who asks: there is a bound to how long that waits.

use std::io;
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;
use std::time::Duration;

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

/// A call with all its tries.
pub(crate) const PATIENCE: Duration = Duration::from_millis(2500);

/// The thread. Dropped, it ends, and its tasks with it.
#[derive(Debug)]
pub(crate) struct Worker {
    runtime: Handle,
    /// Gone, the thread ends.
    _alive: oneshot::Sender<()>,
}

impl Worker {
    /// Starts it.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub(crate) fn start(name: &str) -> io::Result<Worker> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (alive, ended) = oneshot::channel::<()>();
        thread::Builder::new().name(name.to_owned()).spawn(move || {
            // Ends when the other half is gone.
            let _ = runtime.block_on(ended);
        })?;
        Ok(Worker { runtime: handle, _alive: alive })
    }

    /// Runs beside whatever else there is.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        drop(self.runtime.spawn(task));
    }

    /// Runs it, and sends what comes of it.
    pub(crate) fn ask<T: Send + 'static>(&self, task: impl Future<Output = T> + Send + 'static) -> Receiver<T> {
        let (reply, answered) = sync_channel(1);
        self.spawn(async move {
            // Who asked may have given up.
            let _ = reply.try_send(task.await);
        });
        answered
    }

    /// What comes of a task that takes [`PATIENCE`] at most; `None`: the thread is gone, or too busy.
    pub(crate) fn wait<T: Send + 'static>(&self, task: impl Future<Output = T> + Send + 'static) -> Option<T> {
        // A little longer than the task itself: only a thread that is gone reaches it.
        self.ask(task).recv_timeout(PATIENCE + Duration::from_secs(1)).ok()
    }
}
