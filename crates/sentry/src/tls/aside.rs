//! Handshakes on a thread that gives way to the worker.
//!
//! *Intuition.* A worker does one thing at a time, and a full handshake is most of a millisecond in which nobody else
//! gets an answer. In a flood that is most of what it does, and everybody else waits for some of them at each step. So
//! what a flood is given is done on another thread, which the system interrupts whenever the worker has something to
//! do.
//!
//! *Awkward cases.* Beside a worker that never rests the thread still has a tenth of a processor, as much as handshakes
//! get in any case (the weights of niceness 10 and 0 in Linux are 110 and 1024). What waits for it is bounded by the
//! [budget](super::budget). It is begun when it is first needed, and again after a panic; where there is none to be
//! had the worker does its work. Whoever left meanwhile costs nothing.
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

use super::session::processor_time;

/// Handshakes that wait at most; of the cheapest it is more than the budget allows.
const MOST_WAITING: usize = 1024;

/// How far it gives way: nice(2).
const NICENESS: i32 = 10;

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

/// A session after the client's first message.
#[derive(Debug)]
pub(crate) struct Greeted {
    /// The server's answer is in it, or an alert.
    pub(crate) session: ServerConnection,
    /// Whether there can be a handshake.
    pub(crate) result: io::Result<()>,
    /// Processor time that the answer took.
    pub(crate) took: Duration,
}

/// Makes the answer to what a client says first, which is nearly all that a handshake costs.
pub(crate) fn greet(mut session: ServerConnection, mut said: &[u8]) -> Greeted {
    let before = processor_time();
    let mut result = Ok(());
    while !said.is_empty() && result.is_ok() {
        result = session.read_tls(&mut said).and_then(|_| {
            let processed = session.process_new_packets();
            processed.map(drop).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
        });
    }
    Greeted { session, result, took: processor_time().saturating_sub(before) }
}

impl Aside {
    /// As [`greet`], when the worker rests. `None`: that failed on the way, and the session is lost.
    pub(crate) async fn greet(&self, session: ServerConnection, said: Vec<u8>) -> Option<Greeted> {
        let (done, greeted) = oneshot::channel();
        let job = Box::new(Job { session, said, done, waits: Waits::new(&self.waiting) });
        match self.hand_over(job) {
            Ok(()) => greeted.await.ok(),
            Err(job) => Some(greet(job.session, &job.said)),
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
    let _ = rustix::process::setpriority_process(None, NICENESS);
    let mut before = Duration::ZERO;
    while let Ok(job) = jobs.recv() {
        let Job { session, said, done, waits } = *job;
        // Who left meanwhile does not want it.
        if !done.is_closed() {
            let greeted = greet(session, &said);
            drop(waits);
            let _ = done.send(greeted);
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
    done: oneshot::Sender<Greeted>,
    waits: Waits,
}

/// One that waits, until it is dropped.
#[derive(Debug)]
struct Waits(Arc<AtomicUsize>);

impl Waits {
    fn new(waiting: &Arc<AtomicUsize>) -> Waits {
        waiting.fetch_add(1, Relaxed);
        Waits(Arc::clone(waiting))
    }
}

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
        let greeted = block_on(aside.greet(session, said)).expect("an answer");
        assert!(greeted.result.is_ok() && greeted.session.wants_write(), "{:?}", greeted.result);
        assert!(greeted.took > Duration::ZERO && aside.waiting() == 0);
    }

    #[test]
    fn what_is_no_handshake_is_an_error_with_an_alert() {
        let (aside, (session, mut said)) = (Aside::default(), meeting());
        // A message of another kind than a client's first.
        said[5] = 0x0E;
        let greeted = block_on(aside.greet(session, said)).expect("an answer");
        assert_eq!(greeted.result.expect_err("no handshake").kind(), io::ErrorKind::InvalidData);
        assert!(greeted.session.wants_write());
    }

    /// The thread is busy, or there is none: those that wait are counted until they are done or gone.
    #[test]
    fn who_leaves_does_not_wait_any_more() {
        let (aside, (sender, jobs)) = (Aside::default(), mpsc::sync_channel(MOST_WAITING));
        let (end, ended) = mpsc::sync_channel::<()>(1);
        let used = Arc::clone(&aside.used);
        let thread = thread::spawn(move || {
            ended.recv().expect("the word");
            work(&jobs, &used);
        });
        *aside.thread.borrow_mut() = Some((sender, thread));
        let (first, second) = (meeting(), meeting());
        let mut left = Box::pin(aside.greet(first.0, first.1));
        assert!(left.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        assert_eq!(aside.waiting(), 1);
        drop(left);
        end.send(()).expect("it waits");
        assert!(block_on(aside.greet(second.0, second.1)).is_some_and(|greeted| greeted.result.is_ok()));
        assert_eq!(aside.waiting(), 0);
        let (_, thread) = aside.thread.take().expect("a thread");
        thread.join().expect("no panic");
        assert!(aside.used() > Duration::ZERO);
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
        assert!(block_on(aside.greet(first.0, first.1)).is_none(), "it is lost");
        while !aside.thread.borrow().as_ref().is_some_and(|(_, thread)| thread.is_finished()) {
            thread::yield_now();
        }
        assert!(block_on(aside.greet(second.0, second.1)).is_some());
        assert_eq!(aside.waiting(), 0);
    }
}
