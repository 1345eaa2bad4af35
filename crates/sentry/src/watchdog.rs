//! Sees workers that are stuck, and lets another take their place.
//!
//! *Intuition.* A worker that hangs, in an endless loop or a system call that does not return, cannot be stopped: a
//! thread has no end from outside. But what it owes can be done by another: the kernel keeps dealing connections to its
//! sockets, and these are held in the harbour ([`crate::plan::Harbour`]), too. So a new worker accepts from the same
//! sockets. *Awkward cases.* The requests on the stuck worker's own connections stay stuck. If it comes back, both go
//! on side by side. A process that was stopped as a whole has no stuck worker: time is counted in looks, of which a
//! stopped process makes none.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use tracing::error;

use crate::app::App;
use crate::worker::{Crew, Left};

/// Between two looks.
const LOOK: Duration = Duration::from_millis(250);

/// A worker is stuck that was not seen to do anything in so many looks: ten seconds. It looks after its connections
/// four times in the shortest time-out, once a second at least.
const LOOKS: u32 = 40;

/// A running watchdog. Dropped, it stops.
#[derive(Debug)]
pub(crate) struct Watchdog {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// All workers' threads, those that took another's place included.
pub(crate) type Threads = Arc<Mutex<Vec<JoinHandle<Left>>>>;

impl Watchdog {
    /// Watches the first `workers` of `crew`. There may be as many more as the crew has room for.
    ///
    /// # Errors
    /// When the thread cannot be started.
    pub(crate) fn start(crew: Crew, workers: usize, threads: Threads) -> io::Result<Watchdog> {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let watch = move || {
            let mut posts: Vec<Post> = (0..workers).map(Post::new).collect();
            let mut next = posts.len();
            while !stopped.load(Relaxed) {
                std::thread::park_timeout(LOOK);
                for post in &mut posts {
                    if post.is_stuck(&crew.apps) && next < crew.room {
                        post.replace(&crew, next, &threads);
                        next += 1;
                    }
                }
            }
        };
        let thread = std::thread::Builder::new().name(String::from("sentry-watchdog")).spawn(watch)?;
        Ok(Watchdog { stop, thread: Some(thread) })
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // A panic was printed.
            let _ = thread.join();
        }
    }
}

/// A place at some sockets, and who has it.
struct Post {
    worker: usize,
    first: usize,
    seen: u64,
    looks: u32,
}

impl Post {
    fn new(worker: usize) -> Post {
        Post { worker, first: worker, seen: 0, looks: 0 }
    }

    /// Whether its worker was not seen to do anything for too long. One that has not begun yet is not judged.
    fn is_stuck(&mut self, apps: &[Arc<App>]) -> bool {
        let seen = apps.first().map_or(0, |app| app.counters.lane(self.worker).last_beat());
        self.looks = if seen == self.seen && seen > 0 { self.looks + 1 } else { 0 };
        self.seen = seen;
        self.looks >= LOOKS
    }

    /// Another worker, `index`, takes the place.
    fn replace(&mut self, crew: &Crew, index: usize, threads: &Threads) {
        let stuck = self.worker;
        match crew.begin(index, self.first) {
            Ok(thread) => {
                error!(worker = stuck, by = index, "a worker is stuck and was replaced: please report it");
                threads.lock().unwrap_or_else(PoisonError::into_inner).push(thread);
                for app in &crew.apps {
                    // It is no reason any more to hold the process for dead.
                    app.counters.lane(stuck).forget_beat();
                    app.note_replaced();
                }
                (self.worker, self.seen) = (index, 0);
            }
            Err(error) => {
                error!(worker = stuck, %error, "a worker is stuck and cannot be replaced: restart the sentry")
            }
        }
        self.looks = 0;
    }
}
