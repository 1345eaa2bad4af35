//! The connections to the database that all stages share: this is where they contend.
//!
//! A request waits its turn for a connection (first come, first served), at most until its deadline; its statements
//! run on a thread of their own, and the connection is free again before the page is written. A connection that broke
//! is thrown away together with the idle ones, which are most likely broken too, and the next request opens a new one:
//! so the service is back as soon as the database is.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::Serialize;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout_at};

use crate::database::{Connection, Database, DatabaseError};

/// A bounded set of connections. Clones share it.
#[derive(Clone)]
pub struct Pool(Arc<Shared>);

/// Whether a piece of work may be done again when its connection turned out to be broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Again {
    /// It only reads: once more on a new connection.
    Allowed,
    /// It may have changed something already.
    Forbidden,
}

/// The pool at one instant, and since the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct PoolState {
    /// Connections at most.
    pub connections: usize,
    /// Connections in use.
    pub in_use: usize,
    /// Requests that wait for one.
    pub waiting: u64,
    /// Connections opened since the start.
    pub opened: u64,
    /// Connections that broke since the start.
    pub broken: u64,
}

struct Shared {
    database: Database,
    patience: Duration,
    connections: usize,
    turns: Arc<Semaphore>,
    idle: Mutex<Vec<Box<dyn Connection>>>,
    waiting: AtomicU64,
    opened: AtomicU64,
    broken: AtomicU64,
}

impl Pool {
    /// A pool of at most `connections`, none of them open yet. Opening one, and a statement, take `patience` at most.
    pub fn new(database: Database, connections: usize, patience: Duration) -> Pool {
        Pool(Arc::new(Shared {
            database,
            patience,
            connections,
            turns: Arc::new(Semaphore::new(connections)),
            idle: Mutex::new(Vec::with_capacity(connections)),
            waiting: AtomicU64::new(0),
            opened: AtomicU64::new(0),
            broken: AtomicU64::new(0),
        }))
    }

    /// Does `ask` with a connection and, when the connection is free again, `then` with what it gave.
    ///
    /// # Errors
    /// [`DatabaseError::TimedOut`] at the deadline, whatever was going on; else what the database said.
    pub async fn run<T, U>(
        &self,
        deadline: Instant,
        again: Again,
        ask: impl FnMut(&mut dyn Connection) -> Result<T, DatabaseError> + Send + 'static,
        then: impl FnOnce(T) -> U + Send + 'static,
    ) -> Result<U, DatabaseError>
    where
        T: Send + 'static,
        U: Send + 'static,
    {
        let waiting = Waiting::new(&self.0.waiting);
        let turn = timeout_at(deadline, Arc::clone(&self.0.turns).acquire_owned()).await;
        drop(waiting);
        let turn = turn.map_err(|_| DatabaseError::TimedOut("every connection was busy".to_owned()))?;
        let turn = turn.expect("the semaphore is never closed");
        let shared = Arc::clone(&self.0);
        let work = tokio::task::spawn_blocking(move || {
            let answer = shared.ask(deadline, again, ask);
            // The next request may have the connection while this one's page is written.
            drop(turn);
            answer.map(then)
        });
        match timeout_at(deadline, work).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(panic)) => std::panic::resume_unwind(panic.into_panic()),
            // The thread goes on until the database or its own bounds stop it, and keeps the turn until then.
            Err(_) => Err(DatabaseError::TimedOut("the request's time was over".to_owned())),
        }
    }

    /// How it is doing.
    pub fn state(&self) -> PoolState {
        let shared = &self.0;
        PoolState {
            connections: shared.connections,
            in_use: shared.connections.saturating_sub(shared.turns.available_permits()),
            waiting: shared.waiting.load(Ordering::Relaxed),
            opened: shared.opened.load(Ordering::Relaxed),
            broken: shared.broken.load(Ordering::Relaxed),
        }
    }
}

impl Shared {
    /// On a blocking thread.
    fn ask<T>(
        &self,
        deadline: Instant,
        again: Again,
        mut ask: impl FnMut(&mut dyn Connection) -> Result<T, DatabaseError>,
    ) -> Result<T, DatabaseError> {
        let idle = self.lock().pop();
        let reused = idle.is_some();
        let answer = self.attempt(idle, deadline, &mut ask);
        match answer {
            Err(DatabaseError::Unreachable(_)) if reused && again == Again::Allowed => {
                self.attempt(None, deadline, &mut ask)
            }
            answer => answer,
        }
    }

    fn attempt<T>(
        &self,
        idle: Option<Box<dyn Connection>>,
        deadline: Instant,
        ask: &mut impl FnMut(&mut dyn Connection) -> Result<T, DatabaseError>,
    ) -> Result<T, DatabaseError> {
        let mut connection = match idle {
            Some(connection) => connection,
            None => {
                let opened = self.database.connect(self.patience)?;
                self.opened.fetch_add(1, Ordering::Relaxed);
                opened
            }
        };
        connection.set_deadline(deadline.into_std());
        let answer = ask(&mut *connection);
        match &answer {
            Err(error) if error.breaks_connection() => {
                self.broken.fetch_add(1, Ordering::Relaxed);
                if matches!(error, DatabaseError::Unreachable(_)) {
                    self.lock().clear();
                }
            }
            _ => self.lock().push(connection),
        }
        answer
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Box<dyn Connection>>> {
        // A list of connections is whole whoever panicked while holding it.
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Counts a request that waits, until dropped.
struct Waiting<'a>(&'a AtomicU64);

impl<'a> Waiting<'a> {
    fn new(count: &'a AtomicU64) -> Waiting<'a> {
        count.fetch_add(1, Ordering::Relaxed);
        Waiting(count)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::sync_channel;

    use super::*;

    fn pool(connections: usize) -> Pool {
        Pool::new(Database::Sqlite(":memory:".into()), connections, Duration::from_secs(60))
    }

    fn later() -> Instant {
        Instant::now() + Duration::from_secs(60)
    }

    #[tokio::test]
    async fn a_connection_serves_one_request_after_the_other() {
        let pool = pool(1);
        for _ in 0..3 {
            let ask = |db: &mut dyn Connection| db.query("SELECT 7", &[]);
            let seven = pool.run(later(), Again::Allowed, ask, |rows| rows[0][0].int()).await;
            assert_eq!(seven, Ok(7));
        }
        let state = pool.state();
        assert_eq!((state.opened, state.broken, state.in_use, state.waiting), (1, 0, 0, 0));
    }

    #[tokio::test]
    async fn who_gets_no_connection_in_time_is_told() {
        let pool = pool(1);
        let (release, released) = sync_channel::<()>(0);
        let (tell, started) = tokio::sync::oneshot::channel();
        let mut tell = Some(tell);
        let busy = pool.clone();
        let hold = move |_: &mut dyn Connection| {
            tell.take().map(|tell| tell.send(()));
            released.recv().ok();
            Ok(())
        };
        let holder = tokio::spawn(async move { busy.run(later(), Again::Forbidden, hold, |()| ()).await });
        started.await.unwrap();
        let answer = pool.run(Instant::now(), Again::Allowed, |_| Ok(()), |()| ()).await;
        assert!(answer.unwrap_err().to_string().contains("every connection was busy"));
        release.send(()).unwrap();
        assert_eq!(holder.await.unwrap(), Ok(()));
    }

    #[tokio::test]
    async fn a_broken_connection_is_replaced_and_reads_are_done_again() {
        let pool = pool(1);
        let one = |db: &mut dyn Connection| db.query("SELECT 1", &[]);
        pool.run(later(), Again::Allowed, one, drop).await.unwrap();
        for (again, tries) in [(Again::Allowed, 2), (Again::Forbidden, 1)] {
            let mut tried = 0;
            let breaks = move |_: &mut dyn Connection| -> Result<(), _> {
                tried += 1;
                Err(DatabaseError::Unreachable(format!("try {tried}")))
            };
            let error = pool.run(later(), again, breaks, |()| ()).await.unwrap_err();
            assert_eq!(error, DatabaseError::Unreachable(format!("try {tries}")));
            pool.run(later(), Again::Allowed, one, drop).await.unwrap();
        }
    }
}
