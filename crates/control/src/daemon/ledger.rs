//! The ledger records each input before it takes effect, and handles an unreachable store.
//!
//! *Awkward cases.* An input that the store did not answer to may be written all the same: the very same one is given
//! first when the store is back. Meanwhile nothing is decided. Of what happens in between only that is kept which could
//! not be seen again: steps that were done, and what became of servers by them. The rest follows from the next look.

use std::collections::VecDeque;
use std::time::Duration;

use serde_json::Value;
use tidegate_engine::Timestamp;
use tidegate_provision::ServerNews;
use tracing::warn;

use super::log::log;
use crate::backend::{Lease, Store, StoreError};
use crate::clock::{Clock, wall};
use crate::plane::{Input, Plane, Step, Unit};

/// Inputs that wait for the store, at most.
const OWED: usize = 10_000;
/// Inputs that are written as one, at most.
const LOT: usize = 500;
/// Sentries are sent to look for another leader so often while it is not known whether there is one.
const SHAKE: Duration = Duration::from_secs(30);
/// The most records of one answer.
const PAGE: usize = 1000;

/// The plane with its store: nothing changes it but inputs that were written.
#[derive(Debug)]
pub(super) struct Ledger {
    plane: Plane,
    store: Box<dyn Store>,
    clock: Clock,
    /// What was odd about the time when it began.
    odd: Option<String>,
    /// Inputs that are written together.
    batch: Vec<Input>,
    away: Option<Away>,
    /// Inputs that were written.
    inputs: u64,
}

/// The store is away.
#[derive(Debug)]
struct Away {
    since: Timestamp,
    why: String,
    shaken: Timestamp,
    owed: VecDeque<Input>,
}

impl Ledger {
    /// Goes on from the plane that was in the store.
    pub(super) fn new(store: Box<dyn Store>, plane: Plane) -> Ledger {
        let (clock, odd) = Clock::start(plane.now(), store.origin(), wall());
        Ledger { plane, store, clock, odd, batch: Vec::new(), away: None, inputs: 0 }
    }

    /// Notes that this one leads from now on.
    pub(super) fn begin(&mut self) -> Result<(), StoreError> {
        self.input(Input::Began { now: self.now() })?;
        match self.odd.take() {
            Some(odd) => self.note("clock", odd),
            None => Ok(()),
        }
    }

    /// Notes that what a step was to start has failed.
    pub(super) fn failed(&mut self, step: &Step, reason: String) -> Result<(), StoreError> {
        let (now, news) = (self.now(), ServerNews::Failed);
        self.input(match step.unit {
            Unit::Server => Input::Server { now, server: step.place, news, reason },
            Unit::Sentry => Input::Post { now, post: step.place, news, name: None, reason },
        })
    }

    /// Notes an event.
    pub(super) fn note(&mut self, kind: &str, reason: String) -> Result<(), StoreError> {
        self.input(Input::Note { now: self.now(), kind: kind.to_owned(), reason })
    }

    /// As [`Ledger::note`], written together with what comes at the same time.
    pub(super) fn note_later(&mut self, kind: &str, reason: String) {
        self.later(Input::Note { now: self.now(), kind: kind.to_owned(), reason });
    }

    /// Notes when the wall clock jumped since this was last called.
    pub(super) fn watch_clock(&mut self) -> Result<(), StoreError> {
        match self.clock.jump(wall()) {
            Some(jump) => self.note("clock", jump),
            None => Ok(()),
        }
    }

    /// Gathers an input, to be written with others.
    pub(super) fn later(&mut self, input: Input) {
        self.batch.push(input);
    }

    /// Writes what was gathered: many inputs cost hardly more than one.
    pub(super) fn write_batch(&mut self) -> Result<(), StoreError> {
        let mut left = std::mem::take(&mut self.batch).into_iter().peekable();
        while left.peek().is_some() {
            let lot: Vec<Input> = left.by_ref().take(LOT).collect();
            match lot.as_slice() {
                [_] => lot.into_iter().try_for_each(|input| self.input(input))?,
                // Kept apart, so that each is looked at for whether it is to be kept.
                _ if self.away.is_some() => lot.into_iter().try_for_each(|input| self.input(input))?,
                _ => self.input(Input::Several { now: self.now(), inputs: lot })?,
            }
        }
        Ok(())
    }

    /// Writes an input, which takes effect then; while the store is away it is kept until the store is back.
    ///
    /// # Errors
    /// When it cannot be written, and this one is to end.
    pub(super) fn input(&mut self, input: Input) -> Result<(), StoreError> {
        match &mut self.away {
            Some(away) => away.owe(input),
            None => {
                if let Some(away) = self.write(input)? {
                    warn!("store-away: {}; nothing is changed until it is back", away.why);
                    self.away = Some(away);
                }
            }
        }
        Ok(())
    }

    /// Goes on when the store is back.
    pub(super) fn back_again(&mut self) -> Result<(), StoreError> {
        if self.store.away().is_some() {
            return Ok(());
        }
        let Some(mut away) = self.away.take() else { return Ok(()) };
        while let Some(input) = away.owed.pop_front() {
            if let Some(Away { why, owed, .. }) = self.write(input)? {
                (away.why, away.owed) = (why, owed.into_iter().chain(away.owed).collect());
                self.away = Some(away);
                return Ok(());
            }
        }
        let time = self.now().since(away.since);
        self.note("store-away", format!("{} for {time:.1?}; nothing was changed meanwhile", away.why))
    }

    /// Whether sentries are to look for another leader now: one may lead by now, and not be known here.
    pub(super) fn shake(&mut self) -> bool {
        let now = self.now();
        let leads = self.store.leads();
        let Some(away) = self.away.as_mut().filter(|away| now.since(away.shaken) > SHAKE && !leads) else {
            return false;
        };
        away.shaken = now;
        true
    }

    /// Writes the whole state, and leaves the lead to another control plane.
    pub(super) fn close(&mut self) -> Result<(), StoreError> {
        match self.store.keep_state(&self.plane) {
            // The journal has everything.
            Ok(()) | Err(StoreError::Away(_) | StoreError::Deposed { .. }) => {}
            Err(error) => return Err(error),
        }
        self.store.resign();
        Ok(())
    }

    /// What is decided by now.
    pub(super) fn plane(&self) -> &Plane {
        &self.plane
    }

    /// The plane's time.
    pub(super) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Whether something may be done outside of the store: it is sure that nobody else leads, and what comes of it can
    /// be written down.
    pub(super) fn may_act(&self) -> bool {
        self.away.is_none() && self.store.leads()
    }

    /// Whether the store is away.
    pub(super) fn is_away(&self) -> bool {
        self.away.is_some()
    }

    /// Why the store is away, while it is.
    pub(super) fn why_away(&self) -> Option<&str> {
        self.away.as_ref().map(|away| away.why.as_str())
    }

    /// Why a service does not lead to this one by its pod's label, while that is so.
    pub(super) fn label_problem(&self) -> Option<String> {
        self.store.label_problem()
    }

    /// The term in which this one leads.
    pub(super) fn term(&self) -> u64 {
        self.store.term()
    }

    /// Whether this one surely leads, now and later.
    pub(super) fn lease(&self) -> Lease {
        self.store.lease()
    }

    /// Records after number `after`, some of them.
    pub(super) fn audit(&self, after: u64) -> Result<Vec<Value>, StoreError> {
        self.store.audit(after, PAGE)
    }

    /// Inputs that were written since the start.
    pub(super) fn inputs(&self) -> u64 {
        self.inputs
    }

    /// Writes an input; what is to be done when the store is away.
    fn write(&mut self, input: Input) -> Result<Option<Away>, StoreError> {
        match self.store.handle(&mut self.plane, &input) {
            Ok(records) => {
                self.inputs += 1;
                records.iter().for_each(log);
                Ok(None)
            }
            Err(StoreError::Away(why)) => {
                let now = self.now();
                Ok(Some(Away { since: now, why, shaken: now, owed: VecDeque::from([input]) }))
            }
            Err(error) => Err(error),
        }
    }
}

impl Away {
    fn owe(&mut self, input: Input) {
        let again = matches!(input, Input::Period { .. } | Input::Sentries { .. });
        if !again && self.owed.len() < OWED {
            self.owed.push_back(input);
        }
    }
}
