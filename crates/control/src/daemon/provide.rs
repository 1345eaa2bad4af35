//! Steps to the provider, and its news of servers.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tidegate_engine::Timestamp;
use tidegate_provision::{Place, ServerNews};

use super::{Daemon, DaemonError, Message, Seen, name};
use crate::plane::{Input, Plane, Process, Step, What};
use crate::provider::{Adopted, Presence, ProviderError};

/// A provider that takes longer for a step is said to hang.
const HANGS: Duration = Duration::from_secs(15);
/// After a step that failed, the same one is tried again so much later.
const AGAIN: Duration = Duration::from_secs(5);
/// Steps that are carried out at the same time, at most.
const AT_ONCE: usize = 128;
/// Servers that are looked at in one round, at most; of more, in turns.
const LOOKS: usize = 1000;

/// Servers that a thread of this process carries out a step for: it may have been begun in a term before this one, and
/// the same step at the same time a second time would start a second server.
#[derive(Clone, Debug, Default)]
pub(crate) struct AtWork(Arc<Mutex<BTreeSet<usize>>>);

/// Until it is dropped, a thread is at work for a server.
#[derive(Debug)]
pub(crate) struct Turn(AtWork, usize);

impl AtWork {
    pub(super) fn begin(&self, server: usize) -> Option<Turn> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(server).then(|| Turn(self.clone(), server))
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.1);
    }
}

/// The places that are in use, or are about to be.
pub(super) fn adopted(plane: &Plane) -> Vec<Adopted> {
    let starts = plane.pending().filter(|step| matches!(step.what, What::Start { .. }));
    let starting: BTreeSet<usize> = starts.map(|step| step.server).collect();
    let in_use = plane.places().iter().enumerate().filter_map(|(server, place)| match *place {
        Place::Coming { application, .. }
        | Place::Serving { application, .. }
        | Place::Draining { application, .. } => Some((server, application)),
        Place::Free | Place::Failed { .. } => None,
    });
    let known = in_use.filter(|(server, _)| plane.process(*server).is_some() || starting.contains(server));
    known.map(|(server, application)| Adopted { server, application, process: plane.process(server) }).collect()
}

impl Daemon {
    pub(super) fn drained(&mut self) -> Result<(), DaemonError> {
        let is_drained = |server: &usize| {
            matches!(self.plane.places()[*server], Place::Draining { application, .. }
                if self.dry_run || self.desk.is_drained(application, &name(*server)))
        };
        let drained: Vec<usize> = (0..self.plane.places().len()).filter(is_drained).collect();
        let now = self.clock.now();
        self.batch.extend(drained.into_iter().map(|server| Input::Server {
            now,
            server,
            news: ServerNews::Drained,
            reason: String::from("no sentry has anything in flight there"),
        }));
        self.write_batch()
    }

    /// Says of steps that take too long that they do; they are waited for.
    pub(super) fn hanging(&mut self) -> Result<(), DaemonError> {
        let now = self.clock.now();
        let mut late = Vec::new();
        for (server, (since, said)) in &mut self.busy {
            if !*said && now.since(*since) > HANGS {
                *said = true;
                late.push(*server);
            }
        }
        for server in late {
            self.note(
                "provider-hangs",
                format!("server {server}: its step takes longer than {HANGS:?}; it is waited for"),
            )?;
        }
        Ok(())
    }

    /// Gives the provider what is not done: one step at a time for each server, all servers side by side.
    pub(super) fn carry_out(&mut self) {
        // Only while it is sure that nobody else leads, and that what comes of it can be written down.
        if self.away.is_some() || !self.store.leads() {
            return;
        }
        let now = self.clock.now();
        let mut taken: BTreeSet<usize> = self.busy.keys().copied().collect();
        let pending: Vec<Step> = self.plane.pending().cloned().collect();
        for step in pending {
            // Later steps of the same server wait for it.
            if self.busy.len() >= AT_ONCE {
                break;
            }
            if !taken.insert(step.server) || self.again.get(&step.number).is_some_and(|at| *at > now) {
                continue;
            }
            let Some(turn) = self.mailbox.at_work.begin(step.server) else { continue };
            self.busy.insert(step.server, (now, false));
            self.counts.steps += 1;
            let (provider, known, done) =
                (self.provider.clone(), self.plane.process(step.server), self.mailbox.to_self.clone());
            let (lease, term) = (self.store.lease(), self.store.term());
            tokio::task::spawn_blocking(move || {
                let result = lease.holds().then(|| provider.apply(&step, known));
                drop(turn);
                // The daemon may be ending; the step is not marked as done then.
                let _ = done.blocking_send(Message::Applied(term, step, result));
            });
        }
    }

    pub(super) fn applied(
        &mut self,
        step: &Step,
        result: Result<Option<Process>, ProviderError>,
    ) -> Result<(), DaemonError> {
        self.busy.remove(&step.server);
        let now = self.clock.now();
        match (result, &step.what) {
            (Ok(process), _) => {
                self.again.remove(&step.number);
                self.batch.push(Input::Done { now, step: step.number, process });
                Ok(())
            }
            (Err(error), What::Start { .. }) => {
                self.counts.failures += 1;
                self.write_batch()?;
                self.news(step.server, ServerNews::Failed, error.to_string())?;
                self.input(Input::Done { now, step: step.number, process: None })
            }
            (Err(error), What::Stop) => {
                self.counts.failures += 1;
                if self.again.insert(step.number, now + AGAIN).is_none() {
                    self.note("provider-failed", format!("server {}: {error}; it is tried again", step.server))?;
                }
                Ok(())
            }
        }
    }

    /// Asks the provider how servers are, one round at a time.
    pub(super) fn look(&mut self) {
        if self.looking {
            return;
        }
        let waits: BTreeSet<usize> = self.plane.pending().map(|step| step.server).collect();
        let used = |server: &usize| !matches!(self.plane.places()[*server], Place::Free | Place::Failed { .. });
        let count = self.plane.places().len();
        // Those that did not answer are looked at every time.
        let silent: Vec<usize> = self.silent.keys().copied().filter(used).collect();
        let in_turn = (0..count).map(|at| (self.look_next + at) % count).filter(used);
        let in_turn: Vec<usize> = in_turn.filter(|server| !self.silent.contains_key(server)).take(LOOKS).collect();
        self.look_next = in_turn.last().map_or(0, |server| server + 1);
        let servers = silent.into_iter().chain(in_turn).filter(|server| !waits.contains(server));
        let servers: Vec<(usize, Place, Option<Process>)> =
            servers.map(|server| (server, self.plane.places()[server], self.plane.process(server))).collect();
        if servers.is_empty() {
            return;
        }
        self.looking = true;
        let (provider, done, term) = (self.provider.clone(), self.mailbox.to_self.clone(), self.store.term());
        tokio::task::spawn_blocking(move || {
            let look = |&(server, place, known): &(usize, Place, Option<Process>)| Seen {
                server,
                place,
                presence: provider.look(server, known),
            };
            // Some at a time, so that one that does not answer holds up few others.
            let seen = std::thread::scope(|scope| {
                let lots: Vec<_> = servers
                    .chunks(servers.len().div_ceil(8))
                    .map(|lot| scope.spawn(move || lot.iter().map(look).collect::<Vec<_>>()))
                    .collect();
                lots.into_iter().flat_map(|lot| lot.join().unwrap_or_default()).collect()
            });
            // The daemon may be ending.
            let _ = done.blocking_send(Message::Looked(term, seen));
        });
    }

    pub(super) fn looked(&mut self, seen: &[Seen]) -> Result<(), DaemonError> {
        self.looking = false;
        if self.away.is_some() {
            // It is looked again when it can be written down.
            return Ok(());
        }
        let now = self.clock.now();
        for (kind, text) in self.provider.take_notes() {
            self.note(&kind, text)?;
        }
        // What came up meanwhile changes what is to be seen, also where the step for it is done already.
        let waits: BTreeSet<usize> = self.plane.pending().map(|step| step.server).collect();
        let holds = |seen: &&Seen| !waits.contains(&seen.server) && self.plane.places()[seen.server] == seen.place;
        let seen: Vec<Seen> = seen.iter().filter(holds).copied().collect();
        let news: Vec<_> = seen.iter().filter_map(|seen| self.judge(now, seen.server, seen.presence)).collect();
        if !news.is_empty() {
            let input = |(server, news, reason)| Input::Server { now, server, news, reason };
            self.batch.extend(news.into_iter().map(input));
            self.write_batch()?;
            self.tell();
        }
        Ok(())
    }

    /// What it means for a server that it was seen so.
    fn judge(&mut self, now: Timestamp, server: usize, presence: Presence) -> Option<(usize, ServerNews, String)> {
        if presence != Presence::Silent {
            self.silent.remove(&server);
        }
        match (self.plane.places()[server], presence) {
            (Place::Coming { .. }, Presence::Serving) => Some((server, ServerNews::Up, String::from("it answers"))),
            (Place::Coming { .. } | Place::Serving { .. } | Place::Draining { .. }, Presence::Absent) => {
                Some((server, ServerNews::Failed, String::from("its process has ended by itself")))
            }
            (Place::Serving { .. }, Presence::Silent) => {
                let since = *self.silent.entry(server).or_insert(now);
                let patience = self.config.provider.check().hung_after;
                (now.since(since) > patience).then(|| {
                    self.silent.remove(&server);
                    (server, ServerNews::Failed, format!("it runs and has not answered for {patience:?}"))
                })
            }
            _ => None,
        }
    }
}
