//! Active health checks: every server is asked in its own time, with a request or just a connection. Never policed.

pub(crate) mod grpc;
mod probe;
pub(crate) mod record;

use std::cmp::Reverse;
use std::collections::binary_heap::PeekMut;
use std::collections::{BinaryHeap, HashMap};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use tidegate_engine::Status;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tracing::{info, warn};

use self::probe::Probe;
use self::record::Verdict;
use crate::app::App;
use crate::config::Asker;
use crate::in_force::{InForce, Server};

/// After so many good checks in a row an earlier ejection weighs less.
const CALM: u32 = 10;

/// How often it is looked whether the configuration is another one.
const LOOK: Duration = Duration::from_secs(1);

/// Checks an application's servers, forever.
pub(crate) async fn run(app: Arc<App>) {
    let mut patients = HashMap::new();
    let mut queue = BinaryHeap::new();
    let mut checks = JoinSet::new();
    let mut admitted = None;
    loop {
        let (live, now) = (app.live(), Instant::now());
        if admitted.is_none_or(|(generation, at)| generation != live.generation || now >= at + LOOK) {
            admit(&mut patients, &live);
            queue = patients.values().filter_map(|patient| patient.appointment(&live, now)).map(Reverse).collect();
            admitted = Some((live.generation, now));
        }
        while let Some(patient) = next_due(&mut queue, &mut patients, now) {
            patient.turn = Turn::UnderWay;
            let (server, probe) = (patient.server.clone(), patient.probe.clone());
            let timeout = live.config.health.timeout;
            checks.spawn_local(async move {
                let verdict = tokio::time::timeout(timeout, probe.check(&server)).await;
                (server, verdict.unwrap_or(Verdict::Timeout))
            });
        }
        let wake = queue.peek().map_or(now + LOOK, |Reverse(next)| next.at.min(now + LOOK));
        tokio::select! {
            Some(ended) = checks.join_next() => match ended {
                Ok((server, verdict)) => if let Some(patient) = note(&app, &mut patients, &server, verdict) {
                    queue.extend(patient.appointment(&app.live(), now).map(Reverse));
                },
                // The supervisor of this task counts it, and begins anew.
                Err(error) => if let Ok(panic) = error.try_into_panic() {
                    std::panic::resume_unwind(panic);
                },
            },
            () = tokio::time::sleep_until(wake) => {}
        }
    }
}

/// When a server is asked next: the earliest first.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Appointment {
    at: Instant,
    server: String,
}

/// Whose turn it is.
fn next_due<'a>(
    queue: &mut BinaryHeap<Reverse<Appointment>>,
    patients: &'a mut HashMap<String, Patient>,
    now: Instant,
) -> Option<&'a mut Patient> {
    let first = queue.peek_mut().filter(|first| first.0.at <= now)?;
    let Reverse(first) = PeekMut::pop(first);
    patients.get_mut(&first.server)
}

/// A server that is checked.
struct Patient {
    server: Arc<Server>,
    probe: Arc<Probe>,
    /// The configuration that the probe was made for.
    generation: u64,
    turn: Turn,
}

/// When a server is asked next.
#[derive(Clone, Copy, Debug)]
enum Turn {
    /// At once: it never was.
    First,
    /// It is being asked.
    UnderWay,
    /// After its last check's end, with so much of the jitter, -1 to 1.
    After(Instant, f64),
}

impl Patient {
    fn new(server: &Arc<Server>, live: &InForce) -> Self {
        let probe = Probe::new(&live.config.health, server, live.config.server_tls.as_ref());
        Patient { server: server.clone(), probe: Arc::new(probe), generation: live.generation, turn: Turn::First }
    }

    /// When its next check begins; `None`: one is under way.
    fn due(&self, live: &InForce, now: Instant) -> Option<Instant> {
        let health = &live.config.health;
        match self.turn {
            Turn::First => Some(now),
            Turn::UnderWay => None,
            Turn::After(ended, draw) => Some(ended + health.interval.mul_f64(1.0 + health.jitter * draw)),
        }
    }

    fn appointment(&self, live: &InForce, now: Instant) -> Option<Appointment> {
        Some(Appointment { at: self.due(live, now)?, server: self.server.name.clone() })
    }
}

/// Brings the list in step with what is in force. A server that is new is asked at once.
fn admit(patients: &mut HashMap<String, Patient>, live: &InForce) {
    let mut before = std::mem::take(patients);
    let is_asked = |server: &&Arc<Server>| server.status() != Status::Draining && Asker::of(&server.address).is_none();
    for server in live.servers().filter(is_asked) {
        let mut patient = match before.remove(&server.name) {
            Some(patient) if Arc::ptr_eq(&patient.server, server) => patient,
            _ => Patient::new(server, live),
        };
        if patient.generation != live.generation {
            let probe = Probe::new(&live.config.health, server, live.config.server_tls.as_ref());
            (patient.probe, patient.generation) = (Arc::new(probe), live.generation);
        }
        patients.insert(server.name.clone(), patient);
    }
}

/// What a check said; of whom, if that is still checked.
fn note<'a>(
    app: &App,
    patients: &'a mut HashMap<String, Patient>,
    server: &Arc<Server>,
    verdict: Verdict,
) -> Option<&'a Patient> {
    let patient = patients.get_mut(&server.name).filter(|patient| Arc::ptr_eq(&patient.server, server))?;
    patient.turn = Turn::After(Instant::now(), draw());
    let (good, why) = (verdict.is_good(), verdict.to_string());
    server.checks.note(&patient.probe, verdict, app.now());
    let Some(good) = good else { return Some(patient) };
    let streak = server.checks.streak();
    if !good && streak.failed == 1 && server.health() == Status::Up {
        info!(application = app.name(), server = server.name, check = %patient.probe, why, "a check of a server failed");
    }
    judge(app, patient, streak, &why);
    Some(patient)
}

fn judge(app: &App, patient: &Patient, streak: record::Streak, why: &str) {
    let (live, server, check) = (app.live(), &patient.server, &patient.probe);
    let health = &live.config.health;
    match server.health() {
        Status::Up if streak.failed >= health.fall.max(1) => {
            let failed = streak.failed;
            warn!(application = app.name(), server = server.name, %check, why, failed, "a server is down: its checks fail");
            app.set_status(server.id, Status::Down);
        }
        Status::Up if streak.good > 0 && streak.good.is_multiple_of(CALM) => server.blame.calm(),
        Status::Down if streak.good >= health.rise.max(1) && server.blame.may_return(app.now()) => {
            info!(application = app.name(), server = server.name, %check, "a server is up again");
            server.blame.forgive();
            app.set_status(server.id, Status::Up);
        }
        _ => {}
    }
}

/// From -1 to 1.
fn draw() -> f64 {
    RandomState::new().hash_one(()) as f64 / u64::MAX as f64 * 2.0 - 1.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jitter_is_drawn_from_both_sides() {
        let draws: Vec<f64> = (0..200).map(|_| draw()).collect();
        assert!(draws.iter().all(|draw| (-1.0..=1.0).contains(draw)));
        assert!(draws.iter().any(|draw| *draw < 0.0) && draws.iter().any(|draw| *draw > 0.0));
    }
}
