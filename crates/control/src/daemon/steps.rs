//! Steps to the providers: one at a time for each server and each post, all of them side by side.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tidegate_engine::Timestamp;
use tidegate_provision::Place;

use super::ledger::Ledger;
use super::{Mailbox, Message, Providers};
use crate::backend::StoreError;
use crate::plane::{Input, Plane, Process, Step, Unit, What};
use crate::provider::{Adopted, ProviderError};

/// A provider that takes longer for a step is said to hang.
const HANGS: Duration = Duration::from_secs(15);
/// After a step that failed, the same one is tried again so much later.
const AGAIN: Duration = Duration::from_secs(5);
/// Steps that are carried out at the same time, at most.
const AT_ONCE: usize = 128;

/// A server of the pool, or a post.
type Spot = (Unit, usize);

/// Servers and posts that a thread of this process carries out a step for: it may have been begun in a term before this
/// one, and the same step at the same time a second time would start a second server.
#[derive(Clone, Debug, Default)]
pub(crate) struct AtWork(Arc<Mutex<BTreeSet<Spot>>>);

/// Until it is dropped, a thread is at work there.
#[derive(Debug)]
pub(crate) struct Turn(AtWork, Spot);

/// The steps that are under way in this term.
#[derive(Debug, Default)]
pub(super) struct Steps {
    /// What a thread is busy with, since when, and whether it was said that this takes too long.
    busy: BTreeMap<Spot, (Timestamp, bool)>,
    /// Steps that failed, and when they are tried again.
    again: BTreeMap<u64, Timestamp>,
    /// Steps that were given to the provider, each try counted.
    begun: u64,
    failures: u64,
}

impl AtWork {
    pub(super) fn begin(&self, spot: Spot) -> Option<Turn> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(spot).then(|| Turn(self.clone(), spot))
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.1);
    }
}

impl Steps {
    /// Gives the providers what is not done.
    pub(super) fn carry_out(&mut self, ledger: &Ledger, providers: &Providers, mailbox: &Mailbox) {
        if !ledger.may_act() {
            return;
        }
        let now = ledger.now();
        let mut taken: BTreeSet<Spot> = self.busy.keys().copied().collect();
        for step in ledger.plane().pending() {
            if self.busy.len() >= AT_ONCE {
                break;
            }
            let spot = (step.unit, step.place);
            // Later steps of the same server wait for it.
            if !taken.insert(spot) || self.again.get(&step.number).is_some_and(|at| *at > now) {
                continue;
            }
            let Some(turn) = mailbox.at_work.begin(spot) else { continue };
            self.busy.insert(spot, (now, false));
            self.begun += 1;
            let (step, known) = (step.clone(), ledger.plane().process(step.unit, step.place));
            let (provider, done) = (providers.of(step.unit).clone(), mailbox.to_self.clone());
            let (lease, term) = (ledger.lease(), ledger.term());
            tokio::task::spawn_blocking(move || {
                let result = lease.holds().then(|| provider.apply(&step, known));
                drop(turn);
                // The daemon may be ending; the step is not marked as done then.
                let _ = done.blocking_send(Message::Applied(term, step, result));
            });
        }
    }

    /// What came of a step. `None`: it was not tried.
    pub(super) fn applied(
        &mut self,
        ledger: &mut Ledger,
        step: &Step,
        result: Option<Result<Option<Process>, ProviderError>>,
    ) -> Result<(), StoreError> {
        self.busy.remove(&(step.unit, step.place));
        let now = ledger.now();
        match (result, &step.what) {
            (None, _) => Ok(()),
            (Some(Ok(process)), _) => {
                self.again.remove(&step.number);
                ledger.later(Input::Done { now, step: step.number, process });
                Ok(())
            }
            (Some(Err(error)), What::Start { .. }) => {
                self.failures += 1;
                ledger.write_batch()?;
                ledger.failed(step, error.to_string())?;
                ledger.input(Input::Done { now, step: step.number, process: None })
            }
            (Some(Err(error)), What::Stop) => {
                self.failures += 1;
                match self.again.insert(step.number, now + AGAIN) {
                    Some(_) => Ok(()),
                    None => {
                        let text = format!("{} {}: {error}; it is tried again", step.unit, step.place);
                        ledger.note("provider-failed", text)
                    }
                }
            }
        }
    }

    /// Says of steps that take too long that they do; they are waited for.
    pub(super) fn watch(&mut self, ledger: &mut Ledger) -> Result<(), StoreError> {
        let now = ledger.now();
        for ((unit, place), (since, said)) in &mut self.busy {
            if !*said && now.since(*since) > HANGS {
                *said = true;
                let text = format!("{unit} {place}: its step takes longer than {HANGS:?}; it is waited for");
                ledger.note("provider-hangs", text)?;
            }
        }
        Ok(())
    }

    /// Steps that were given to the provider since the start, each try counted; and those that it failed.
    pub(super) fn counts(&self) -> (u64, u64) {
        (self.begun, self.failures)
    }
}

/// The places of a unit that are in use, or are about to be.
pub(super) fn adopted(plane: &Plane, unit: Unit) -> Vec<Adopted> {
    let starts = plane.pending().filter(|step| step.unit == unit && matches!(step.what, What::Start { .. }));
    let starting: BTreeSet<usize> = starts.map(|step| step.place).collect();
    let in_use = plane.places_of(unit).iter().enumerate().filter_map(|(server, place)| match *place {
        Place::Coming { application, .. }
        | Place::Serving { application, .. }
        | Place::Draining { application, .. } => Some((server, application)),
        Place::Free | Place::Failed { .. } => None,
    });
    let known = in_use.filter(|(server, _)| plane.process(unit, *server).is_some() || starting.contains(server));
    known.map(|(server, application)| Adopted { server, application, process: plane.process(unit, server) }).collect()
}
