//! Ghosts: requests that nobody waits for any more while their servers work on.
//!
//! The sentry closes its half of the connection and reads on. A server that stops when it is abandoned closes at once;
//! one that does not notice answers when its work is done, and closes then. Either end is exact, and frees the place.
//! What a server sends is thrown away. There are bounds on how many are watched, for how long, and on what is read;
//! beyond them the connection is closed, and the work is taken to last as long as it is expected to.

use std::rc::Rc;

use tidegate_engine::{AbandonedBy, Outcome};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::spawn_local;
use tokio::time::timeout;

use crate::counters::Counter;
use crate::permit::Permit;
use crate::share::WorkerApp;
use crate::transport::Transport;
use crate::upstream::ServerConn;

/// How many a worker watches at once: a descriptor each.
const MOST_WATCHED: usize = 1000;

/// Of an answer nobody wants so much is read. Whoever has sent more is done with the work, and only sends.
const MOST_READ: usize = 256 * 1024;

/// How a ghost's work ended.
enum Laid {
    /// The server answered.
    Answered,
    /// It closed without an answer.
    Stopped,
    /// It did neither in time.
    Unknown,
}

/// Nobody waits for the answer any more that `server` owes. The permit ends when its work does.
pub(crate) fn leave(worker: &Rc<WorkerApp>, permit: Permit, by: AbandonedBy, server: Box<ServerConn>) {
    let watched = worker.ghosts.get();
    // A sentry that drains has no time, and perhaps no runtime any more.
    let socket = server.into_abandoned().filter(|_| watched < MOST_WATCHED && !worker.app.draining());
    let Some(socket) = socket else {
        worker.lane().bump(Counter::GhostsUnseen);
        return permit.abandon(by);
    };
    let permit = permit.haunt(by);
    worker.ghosts.set(watched + 1);
    let watch = Watched(worker.clone());
    spawn_local(async move {
        let most = watch.0.local().live.config.timeouts.first_byte;
        let mut read = 0;
        let laid = match timeout(most, read_to_end(socket, &mut read)).await {
            Ok(()) if read == 0 => Laid::Stopped,
            Err(_) if read == 0 => Laid::Unknown,
            _ => Laid::Answered,
        };
        let lane = watch.0.lane();
        match laid {
            Laid::Answered => {
                lane.bump(Counter::GhostsAnswered);
                permit.complete(Outcome::answered(), None);
            }
            Laid::Stopped => {
                lane.bump(Counter::GhostsStopped);
                drop(permit);
            }
            Laid::Unknown => {
                lane.bump(Counter::GhostsUnseen);
                permit.abandon(by);
            }
        }
    });
}

/// Counts a ghost that is watched, until dropped.
struct Watched(Rc<WorkerApp>);

impl Drop for Watched {
    fn drop(&mut self) {
        self.0.ghosts.update(|ghosts| ghosts - 1);
    }
}

/// Closes this half, and reads what comes until the server closes or has said enough.
async fn read_to_end(mut socket: Transport, read: &mut usize) {
    let mut buffer = [0; 2048];
    if socket.shutdown().await.is_err() {
        return;
    }
    while *read < MOST_READ
        && let Ok(n @ 1..) = socket.read(&mut buffer).await
    {
        *read += n;
    }
}
