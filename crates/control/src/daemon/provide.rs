//! Steps to the provider, and its news of servers.

use std::collections::BTreeSet;
use std::time::Duration;

use tidegate_engine::provision::{Place, ServerNews};

use super::{Daemon, DaemonError, Message, name};
use crate::plane::{Input, Plane, Process, Step, What};
use crate::provider::{Adopted, Presence, ProviderError};

/// A provider that takes longer for a step is said to hang.
const HANGS: Duration = Duration::from_secs(15);
/// After a step that failed, the same one is tried again so much later.
const AGAIN: Duration = Duration::from_secs(5);

/// The places that are in use, or are about to be.
pub(super) fn adopted(plane: &Plane) -> Vec<Adopted> {
    let starting =
        |server| plane.pending().any(|step| step.server == server && matches!(step.what, What::Start { .. }));
    let in_use = plane.places().iter().enumerate().filter_map(|(server, place)| match *place {
        Place::Coming { application, .. }
        | Place::Serving { application, .. }
        | Place::Draining { application, .. } => Some((server, application)),
        Place::Free | Place::Failed { .. } => None,
    });
    let known = in_use.filter(|(server, _)| plane.process(*server).is_some() || starting(*server));
    known.map(|(server, application)| Adopted { server, application, process: plane.process(server) }).collect()
}

impl Daemon {
    pub(super) fn drained(&mut self) -> Result<(), DaemonError> {
        for server in 0..self.plane.places().len() {
            if let Place::Draining { application, .. } = self.plane.places()[server]
                && (self.dry_run || self.desk.is_drained(application, &name(server)))
            {
                let reason = String::from("no sentry has anything in flight there");
                self.news(server, ServerNews::Drained, reason)?;
            }
        }
        Ok(())
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
        let now = self.clock.now();
        let mut taken: BTreeSet<usize> = self.busy.keys().copied().collect();
        let pending: Vec<Step> = self.plane.pending().cloned().collect();
        for step in pending {
            // Later steps of the same server wait for it.
            if !taken.insert(step.server) || self.again.get(&step.number).is_some_and(|at| *at > now) {
                continue;
            }
            self.busy.insert(step.server, (now, false));
            self.counts.steps += 1;
            let (provider, known, done) =
                (self.provider.clone(), self.plane.process(step.server), self.to_self.clone());
            tokio::task::spawn_blocking(move || {
                let result = provider.apply(&step, known);
                // The daemon may be ending; the step is not marked as done then.
                let _ = done.blocking_send(Message::Applied(step, result));
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
                self.input(Input::Done { now, step: step.number, process })
            }
            (Err(error), What::Start { .. }) => {
                self.counts.failures += 1;
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
        let servers = (0..self.plane.places().len()).filter(used).filter(|server| !waits.contains(server));
        let servers: Vec<(usize, Option<Process>)> =
            servers.map(|server| (server, self.plane.process(server))).collect();
        if servers.is_empty() {
            return;
        }
        self.looking = true;
        let (provider, done) = (self.provider.clone(), self.to_self.clone());
        tokio::task::spawn_blocking(move || {
            let look = |(server, known): &(usize, Option<Process>)| (*server, provider.look(*server, *known));
            // Some at a time, so that one that does not answer holds up few others.
            let seen = std::thread::scope(|scope| {
                let lots: Vec<_> = servers
                    .chunks(servers.len().div_ceil(8))
                    .map(|lot| scope.spawn(move || lot.iter().map(look).collect::<Vec<_>>()))
                    .collect();
                lots.into_iter().flat_map(|lot| lot.join().unwrap_or_default()).collect()
            });
            // The daemon may be ending.
            let _ = done.blocking_send(Message::Looked(seen));
        });
    }

    pub(super) fn looked(&mut self, seen: &[(usize, Presence)]) -> Result<(), DaemonError> {
        self.looking = false;
        let now = self.clock.now();
        for (kind, text) in self.provider.take_notes() {
            self.note(&kind, text)?;
        }
        for (server, presence) in seen {
            let place = self.plane.places()[*server];
            // A step that came up meanwhile changes what is to be seen.
            if self.plane.pending().any(|step| step.server == *server) {
                continue;
            }
            if *presence != Presence::Silent {
                self.silent.remove(server);
            }
            match (place, presence) {
                (Place::Coming { .. }, Presence::Serving) => {
                    self.news(*server, ServerNews::Up, String::from("it answers"))?;
                    self.tell();
                }
                (Place::Coming { .. } | Place::Serving { .. } | Place::Draining { .. }, Presence::Absent) => {
                    self.news(*server, ServerNews::Failed, String::from("its process has ended by itself"))?;
                    self.tell();
                }
                (Place::Serving { .. }, Presence::Silent) => {
                    let since = *self.silent.entry(*server).or_insert(now);
                    let patience = self.config.provider.check().hung_after;
                    if now.since(since) > patience {
                        self.silent.remove(server);
                        let text = format!("it runs and has not answered for {patience:?}");
                        self.news(*server, ServerNews::Failed, text)?;
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }
}
