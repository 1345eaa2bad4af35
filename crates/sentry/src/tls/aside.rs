//! Handshakes on a thread that gives way to the worker.
//!
//! *Intuition.* A worker does one thing at a time, and a full handshake is most of a millisecond in which nobody else
//! gets an answer. In a flood that is most of what it does, and everybody else waits for some of them at each step. So
//! what a flood is given is done on another thread, from its first message to its last. That thread is of such niceness
//! that the system takes the processor from it when the worker has something to do.
//!
//! *Awkward cases.* Beside a worker that never rests the thread still has a quarter of a processor (the weights of
//! niceness 5 and 0 in Linux are 335 and 1024), which is more than handshakes get in any case; a worker that takes less
//! than the other three hardly waits for it. Beside other programs it has a third of what one of them has. How much may
//! wait for it is the [budget](super::budget)'s business. It is begun when it is first needed, and again after a panic;
//! where there is none to be had the worker does its work. Whose time is over before its turn comes costs nothing.
//!
//! *Source.* Ours.

use std::cell::RefCell;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{self, Receiver, SyncSender, TrySendError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustls::ServerConnection;
use tokio::sync::oneshot;
use tracing::error;

use super::budget::Took;
use super::session::processor_time;

/// Handshakes that wait at most; of the cheapest it is more than the budget allows.
const MOST_WAITING: usize = 1024;

/// How far it gives way, beyond what the process is: nice(2).
const NICENESS: i32 = 5;

/// A worker's thread for handshakes that nobody else is to wait for.
#[derive(Debug, Default)]
pub(crate) struct Aside {
    thread: RefCell<Option<Thread>>,
    waiting: Arc<AtomicUsize>,
    /// Processor time that it has had, nanoseconds.
    used: Arc<AtomicU64>,
}

/// What it is given, and itself.
type Thread = (SyncSender<Box<Job>>, JoinHandle<()>);

/// A session that has heard more of its client.
#[derive(Debug)]
pub(crate) struct Step {
    /// What it has to say to that is in it, an alert too.
    pub(crate) session: ServerConnection,
    /// Whether it can go on.
    pub(crate) result: io::Result<()>,
    /// What that took.
    pub(crate) took: Took,
}

/// Tells a session what its client said: the costly part of a handshake.
pub(crate) fn advance(session: ServerConnection, said: &[u8]) -> Step {
    let (session, result, here) = hear(session, said);
    Step { session, result, took: Took { here, aside: Duration::ZERO } }
}

fn hear(mut session: ServerConnection, mut said: &[u8]) -> (ServerConnection, io::Result<()>, Duration) {
    let before = processor_time();
    let mut result = Ok(());
    while !said.is_empty() && result.is_ok() {
        result = session.read_tls(&mut said).and_then(|_| {
            let processed = session.process_new_packets();
            processed.map(drop).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
        });
    }
    (session, result, processor_time().saturating_sub(before))
}

impl Aside {
    /// A place among those that wait.
    pub(crate) fn enter(&self) -> Waits {
        self.waiting.fetch_add(1, Relaxed);
        Waits(Arc::clone(&self.waiting))
    }

    /// As [`advance`], when the worker rests.
    ///
    /// # Errors
    /// When the thread panics over it: the session is lost.
    pub(crate) async fn advance(&self, session: ServerConnection, said: Vec<u8>, waits: Waits) -> io::Result<Step> {
        let (done, step) = oneshot::channel();
        match self.hand_over(Box::new(Job { session, said, done, waits })) {
            Ok(()) => step.await.map_err(|_| {
                error!("a thread for handshakes panicked and is begun anew: please report it");
                io::Error::other("the thread for handshakes panicked")
            }),
            Err(job) => Ok(advance(job.session, &job.said)),
        }
    }

    /// Handshakes that wait for the thread, or are being done there.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(Relaxed)
    }

    /// Processor time that the thread has had.
    pub(crate) fn used(&self) -> Duration {
        Duration::from_nanos(self.used.load(Relaxed))
    }

    /// Gives the job back when there is no thread for it.
    fn hand_over(&self, job: Box<Job>) -> Result<(), Box<Job>> {
        let mut thread = self.thread.borrow_mut();
        if thread.as_ref().is_none_or(|(_, thread)| thread.is_finished()) {
            *thread = self.begin().ok();
        }
        let Some((jobs, _)) = &*thread else { return Err(job) };
        jobs.try_send(job).map_err(|(TrySendError::Full(job) | TrySendError::Disconnected(job))| job)
    }

    fn begin(&self) -> io::Result<Thread> {
        let (sender, jobs) = mpsc::sync_channel(MOST_WAITING);
        let used = Arc::clone(&self.used);
        let thread = thread::Builder::new().name(String::from("sentry-aside"));
        Ok((sender, thread.spawn(move || work(&jobs, &used))?))
    }
}

/// Until the worker is gone.
fn work(jobs: &Receiver<Box<Job>>, used: &AtomicU64) {
    // Where it may not, the two share the processor as equals.
    let _ = rustix::process::nice(NICENESS);
    let mut before = Duration::ZERO;
    while let Ok(job) = jobs.recv() {
        let Job { session, said, done, waits } = *job;
        if !done.is_closed() {
            let (session, result, aside) = hear(session, &said);
            drop(waits);
            let _ = done.send(Step { session, result, took: Took { here: Duration::ZERO, aside } });
        }
        let now = processor_time();
        used.fetch_add(u64::try_from(now.saturating_sub(before).as_nanos()).unwrap_or(u64::MAX), Relaxed);
        before = now;
    }
}

#[derive(Debug)]
struct Job {
    session: ServerConnection,
    said: Vec<u8>,
    done: oneshot::Sender<Step>,
    waits: Waits,
}

/// One that waits, until this is dropped.
#[derive(Debug)]
pub(crate) struct Waits(Arc<AtomicUsize>);

impl Drop for Waits {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Waker};

    use rustls::pki_types::ServerName;
    use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig};

    use super::*;

    /// A server's session, and what a client says to it.
    fn meeting() -> (ServerConnection, Vec<u8>) {
        let made = rcgen::generate_simple_self_signed(vec!["shop.example".to_owned()]).expect("a certificate");
        let key = rustls::pki_types::PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()).into();
        let (server, client) = (ServerConfig::builder(), ClientConfig::builder());
        let server = server.with_no_client_auth().with_single_cert(vec![made.cert.der().clone()], key).expect("usable");
        let client = client.with_root_certificates(RootCertStore::empty()).with_no_client_auth();
        let name = ServerName::try_from("shop.example").expect("a name");
        let mut said = Vec::new();
        let mut client = ClientConnection::new(client.into(), name).expect("a client");
        client.write_tls(&mut said).expect("memory");
        (ServerConnection::new(server.into()).expect("a session"), said)
    }

    fn block_on<T>(future: impl Future<Output = T>) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        runtime.block_on(future)
    }

    #[test]
    fn the_answer_is_made_by_another_thread() {
        let (aside, (session, said)) = (Aside::default(), meeting());
        let step = block_on(aside.advance(session, said, aside.enter())).expect("an answer");
        assert!(step.result.is_ok() && step.session.wants_write(), "{:?}", step.result);
        assert!(step.took.aside > Duration::ZERO && step.took.here == Duration::ZERO, "{:?}", step.took);
        assert_eq!(aside.waiting(), 0);
    }

    #[test]
    fn what_is_no_handshake_is_an_error_with_an_alert() {
        let (aside, (session, mut said)) = (Aside::default(), meeting());
        // A message of another kind than a client's first.
        said[5] = 0x0E;
        let step = block_on(aside.advance(session, said, aside.enter())).expect("an answer");
        assert_eq!(step.result.expect_err("no handshake").kind(), io::ErrorKind::InvalidData);
        assert!(step.session.wants_write());
    }

    /// A thread that works when it is told to, and ends with its jobs.
    fn patient(aside: &Aside) -> SyncSender<()> {
        let (sender, jobs) = mpsc::sync_channel(MOST_WAITING);
        let (word, told) = mpsc::sync_channel(1);
        let used = Arc::clone(&aside.used);
        let thread = thread::spawn(move || {
            told.recv().expect("the word");
            work(&jobs, &used);
        });
        *aside.thread.borrow_mut() = Some((sender, thread));
        word
    }

    /// Those that wait are counted until they are done or gone, and who is gone costs nothing.
    #[test]
    fn who_is_gone_does_not_wait_any_more() {
        let aside = Aside::default();
        let word = patient(&aside);
        let (first, second) = (meeting(), meeting());
        let mut gone = Box::pin(aside.advance(first.0, first.1, aside.enter()));
        assert!(gone.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        assert_eq!(aside.waiting(), 1);
        drop(gone);
        word.send(()).expect("it waits");
        let step = block_on(aside.advance(second.0, second.1, aside.enter())).expect("an answer");
        assert_eq!((step.result.is_ok(), aside.waiting()), (true, 0));
        let (jobs, thread) = aside.thread.take().expect("a thread");
        drop(jobs);
        thread.join().expect("it ends with its jobs");
        assert!(aside.used() >= step.took.aside);
    }

    /// There is no room, or no thread: the worker does it, and it is known that it did.
    #[test]
    fn what_cannot_wait_is_done_here() {
        let aside = Aside::default();
        let (sender, jobs) = mpsc::sync_channel(0);
        // It is there, but never takes a job: what waits to take one would make room for it.
        let (word, told) = mpsc::sync_channel::<()>(1);
        let thread = thread::spawn(move || drop((told.recv(), jobs)));
        *aside.thread.borrow_mut() = Some((sender, thread));
        let (session, said) = meeting();
        let step = block_on(aside.advance(session, said, aside.enter())).expect("an answer");
        assert!(step.took.here > Duration::ZERO && step.took.aside == Duration::ZERO, "{:?}", step.took);
        assert_eq!(aside.waiting(), 0);
        drop(word);
    }

    #[test]
    fn after_a_panic_there_is_another_thread() {
        let (aside, (sender, jobs)) = (Aside::default(), mpsc::sync_channel(MOST_WAITING));
        let thread = thread::spawn(move || {
            let _job: Box<Job> = jobs.recv().expect("one");
            std::panic::resume_unwind(Box::new("on purpose"));
        });
        *aside.thread.borrow_mut() = Some((sender, thread));
        let (first, second) = (meeting(), meeting());
        assert!(block_on(aside.advance(first.0, first.1, aside.enter())).is_err(), "it is lost");
        while !aside.thread.borrow().as_ref().is_some_and(|(_, thread)| thread.is_finished()) {
            thread::yield_now();
        }
        assert!(block_on(aside.advance(second.0, second.1, aside.enter())).is_ok());
        assert_eq!(aside.waiting(), 0);
    }
}
