//! Certificates by ACME (RFC 8555): a thread orders them, puts them into a folder, and does so again before they end.
//!
//! *Intuition.* The thread is to the sentry what another program would be that writes files: a certificate that is
//! new on disk is put in force by a reload, with all else or not at all. *Awkward cases.* Several sentries may share
//! the folder: one of them orders at a time, under a lock, and all of them answer the authority, which comes to any of
//! them. An authority that refuses is asked ever less often, for it counts failures and locks out who does not stop.

mod cache;
pub(crate) mod challenge;
mod http;
mod order;

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use serde_json::{Value, json};
use tracing::{info, warn};

use crate::board::Board;
use crate::config::Acme;
use crate::tls::validity::{Validity, covers};

/// How often it is looked at folders and configuration.
const PERIOD: Duration = Duration::from_secs(1);

/// After a failure, and at most: an authority forgives five an hour.
const AGAIN: Duration = Duration::from_secs(60);
const AGAIN_MOST: Duration = Duration::from_secs(6 * 3600);

/// A whole order.
const PATIENCE: Duration = Duration::from_secs(300);

/// The thread that orders. Dropped, it stops; an order under way is given up.
#[derive(Debug)]
pub(crate) struct Issuer {
    stop: Option<SyncSender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// How it stands with a certificate.
#[derive(Clone, Debug, Default)]
pub(crate) struct Standing {
    /// From when to when the one that is kept is good; `None`: there is none for all of the names.
    pub(crate) validity: Option<Validity>,
    /// Orders that came to nothing.
    pub(crate) failures: u64,
    /// Those in a row, and why the last one did.
    pub(crate) in_a_row: u32,
    pub(crate) problem: Option<String>,
    /// When it is ordered next.
    next: Option<SystemTime>,
}

/// How it stands, by the certificate's file: for the admin API.
static STANDING: LazyLock<Mutex<BTreeMap<PathBuf, Standing>>> = LazyLock::new(Mutex::default);

/// How it stands with a certificate.
pub(crate) fn standing(acme: &Acme) -> Standing {
    standings().get(&acme.certificate()).cloned().unwrap_or_default()
}

/// The same as the admin API shows it.
pub(crate) fn shown(acme: &Acme) -> Value {
    let Standing { validity, failures, problem, next, .. } = standing(acme);
    let seconds = |at: SystemTime| at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
    json!({
        "domains": acme.domains,
        "not_after": validity.map(|validity| seconds(validity.not_after)),
        "next_order": next.map(seconds),
        "failures": failures,
        "problem": problem,
    })
}

fn standings() -> MutexGuard<'static, BTreeMap<PathBuf, Standing>> {
    STANDING.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Issuer {
    /// Starts ordering what the configuration on the board says, now and whenever it changes.
    ///
    /// # Errors
    /// When the thread cannot be started.
    pub(crate) fn start(board: Arc<Board>) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (stop, stopped) = sync_channel(1);
        let thread = std::thread::Builder::new().name("tidegate-acme".to_owned());
        static ISSUERS: AtomicU64 = AtomicU64::new(0);
        let this = ISSUERS.fetch_add(1, Relaxed);
        let thread = thread.spawn(move || run(this, &runtime, &board, &stopped))?;
        Ok(Issuer { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Issuer {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            // A panic has been printed.
            let _ = thread.join();
        }
    }
}

fn run(this: u64, runtime: &tokio::runtime::Runtime, board: &Board, stopped: &Receiver<()>) {
    let mut due: BTreeMap<PathBuf, Instant> = BTreeMap::new();
    loop {
        let wanted = wanted(board);
        put_up(this, &wanted);
        for acme in &wanted {
            let path = acme.certificate();
            if due.get(&path).is_some_and(|due| Instant::now() < *due) {
                continue;
            }
            let order = look(runtime, acme, &|| put_up(this, &wanted), stopped);
            due.insert(path, Instant::now() + order.unwrap_or(PERIOD));
        }
        match stopped.recv_timeout(PERIOD) {
            Err(RecvTimeoutError::Timeout) => {}
            _ => return challenge::set(this, []),
        }
    }
}

/// What is to be ordered, each once.
fn wanted(board: &Board) -> Vec<Acme> {
    let mut all: Vec<Acme> = Vec::new();
    for acme in board.config().applications.iter().filter_map(|app| app.tls.as_ref()?.acme.as_ref()) {
        if !all.iter().any(|other| other.certificate() == acme.certificate()) {
            all.push(acme.clone());
        }
    }
    all
}

/// Lets the workers answer all challenges that are up in these folders.
fn put_up(issuer: u64, wanted: &[Acme]) {
    let mut folders: Vec<PathBuf> = wanted.iter().map(Acme::challenges).collect();
    folders.dedup();
    challenge::set(issuer, folders.iter().flat_map(|folder| cache::posted(folder)));
}

/// Orders a certificate if it is time, with `put_up` called when challenges are; when to look again, if not at the next
/// turn.
fn look(
    runtime: &tokio::runtime::Runtime,
    acme: &Acme,
    put_up: &(dyn Fn() + Send + Sync),
    stopped: &Receiver<()>,
) -> Option<Duration> {
    if let Some(left) = kept(acme) {
        return Some(left);
    }
    let done = order::prepare(&acme.cache).and_then(|()| {
        let turn = cache::Turn::take(&acme.cache);
        turn.map_err(|error| format!("{}: {error}", acme.cache.display()))
    });
    let turn = match done {
        Ok(Some(turn)) => turn,
        // Another sentry orders it; its certificate is found here soon.
        Ok(None) => return None,
        Err(problem) => return Some(failed(acme, problem)),
    };
    // It may have done so while this one waited for its turn.
    if let Some(left) = kept(acme) {
        return Some(left);
    }
    info!(domains = acme.domains.join(", "), directory = acme.directory, "a certificate is ordered");
    let ordered = runtime.block_on(async {
        tokio::select! {
            ordered = tokio::time::timeout(PATIENCE, order::order(acme, put_up)) => {
                Some(ordered.unwrap_or_else(|_| Err("it took too long".to_owned())))
            }
            () = stops(stopped) => None,
        }
    })?;
    drop(turn);
    let written = ordered.and_then(|pem| {
        let path = acme.certificate();
        crate::tls::certificates::certified(pem.as_bytes(), pem.as_bytes())?;
        cache::write(&path, pem.as_bytes()).map_err(|error| format!("{}: {error}", path.display()))
    });
    match written {
        Ok(()) => {
            info!(domains = acme.domains.join(", "), "there is a certificate; the configuration is read again");
            standings().entry(acme.certificate()).and_modify(|standing| {
                (standing.in_a_row, standing.problem) = (0, None);
            });
            // A certificate that is none for these names would be ordered again and again.
            kept(acme)
                .or_else(|| Some(failed(acme, "what was issued is not for these names, or ends too soon".to_owned())))
        }
        Err(problem) => Some(failed(acme, problem)),
    }
}

/// Until who starts the thread wants it to stop.
async fn stops(stopped: &Receiver<()>) {
    while !matches!(stopped.try_recv(), Err(std::sync::mpsc::TryRecvError::Disconnected)) {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// How long the certificate that is kept need not be replaced, at most until the next look at the file; `None`: it is
/// time.
fn kept(acme: &Acme) -> Option<Duration> {
    let validity = validity(&acme.certificate(), &acme.domains);
    let mut standings = standings();
    let standing = standings.entry(acme.certificate()).or_default();
    standing.validity = validity;
    // The same for as long as the certificate is the same: it is not drawn again at each look.
    let draw = validity.map_or(0.0, |validity| {
        let ends = validity.not_after.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        (ends.as_secs().wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 11) as f64 / (1_u64 << 53) as f64
    });
    let at = validity.map(|validity| validity.renewed_at(draw));
    standing.next = at.or(standing.next);
    at.and_then(|at| at.duration_since(SystemTime::now()).ok()).map(|left| left.min(AGAIN))
}

/// From when to when the certificate in a file is good, if it is for these hosts.
fn validity(path: &Path, hosts: &[String]) -> Option<Validity> {
    let certificate = CertificateDer::from_pem_file(path).ok()?;
    Validity::of(&certificate).filter(|_| covers(&certificate, hosts))
}

/// It came to nothing: when to try again.
fn failed(acme: &Acme, problem: String) -> Duration {
    let mut standings = standings();
    let standing = standings.entry(acme.certificate()).or_default();
    standing.failures += 1;
    standing.in_a_row = standing.in_a_row.saturating_add(1);
    let again = AGAIN.saturating_mul(1 << (standing.in_a_row - 1).min(20)).min(AGAIN_MOST);
    let again = again.mul_f64(1.0 + RandomState::new().hash_one(()) as f64 / u64::MAX as f64 / 2.0);
    standing.next = Some(SystemTime::now() + again);
    warn!(domains = acme.domains.join(", "), problem, again_in = ?again, "no certificate was issued");
    standing.problem = Some(problem);
    again
}
