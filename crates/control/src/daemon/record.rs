//! Inputs on their way to the store, and what happens while it is away.
//!
//! *Awkward cases.* An input that the store did not answer to may be written all the same: the very same one is given
//! first when the store is back. Meanwhile nothing is decided. Of what happens in between only that is kept which could
//! not be seen again: steps that were done, and what became of servers by them. The rest follows from the next look.

use std::collections::VecDeque;
use std::time::Duration;

use tidegate_engine::Timestamp;
use tidegate_engine::provision::ServerNews;
use tracing::warn;

use super::log::log;
use super::{Daemon, DaemonError};
use crate::backend::StoreError;
use crate::plane::Input;

/// Inputs that wait for the store, at most.
const OWED: usize = 10_000;
/// Inputs that are written as one, at most.
const LOT: usize = 500;
/// Sentries are sent to look for another leader so often while it is not known whether there is one.
const SHAKE: Duration = Duration::from_secs(30);

/// The store is away.
#[derive(Debug)]
pub(super) struct Away {
    since: Timestamp,
    pub(super) why: String,
    shaken: Timestamp,
    owed: VecDeque<Input>,
}

impl Daemon {
    pub(super) fn news(&mut self, server: usize, news: ServerNews, reason: String) -> Result<(), DaemonError> {
        let now = self.clock.now();
        self.input(Input::Server { now, server, news, reason })
    }

    pub(super) fn note(&mut self, kind: &str, reason: String) -> Result<(), DaemonError> {
        let now = self.clock.now();
        self.input(Input::Note { now, kind: kind.to_owned(), reason })
    }

    /// As [`Daemon::note`], written together with what comes at the same time.
    pub(super) fn note_later(&mut self, kind: &str, reason: String) {
        let now = self.clock.now();
        self.batch.push(Input::Note { now, kind: kind.to_owned(), reason });
    }

    /// Writes what was gathered: many inputs cost hardly more than one.
    pub(super) fn write_batch(&mut self) -> Result<(), DaemonError> {
        let mut left = std::mem::take(&mut self.batch).into_iter().peekable();
        while left.peek().is_some() {
            let lot: Vec<Input> = left.by_ref().take(LOT).collect();
            match lot.as_slice() {
                [_] => lot.into_iter().try_for_each(|input| self.input(input))?,
                // Kept apart, so that each is looked at for whether it is to be kept.
                _ if self.away.is_some() => lot.into_iter().try_for_each(|input| self.input(input))?,
                _ => self.input(Input::Several { now: self.clock.now(), inputs: lot })?,
            }
        }
        Ok(())
    }

    pub(super) fn input(&mut self, input: Input) -> Result<(), DaemonError> {
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
    pub(super) fn back_again(&mut self) -> Result<(), DaemonError> {
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
        let time = self.clock.now().since(away.since);
        self.note("store-away", format!("{} for {time:.1?}; nothing was changed meanwhile", away.why))
    }

    /// Whoever else may lead by now has its sentries within reach: those that are here look for it.
    pub(super) fn shake(&mut self) {
        let now = self.clock.now();
        let Some(away) = &mut self.away else { return };
        if now.since(away.shaken) > SHAKE && !self.store.leads() {
            away.shaken = now;
            self.links.clear();
        }
    }

    /// Writes an input; what is to be done when the store is away.
    fn write(&mut self, input: Input) -> Result<Option<Away>, DaemonError> {
        match self.store.handle(&mut self.plane, &input) {
            Ok(records) => {
                self.counts.inputs += 1;
                records.iter().for_each(log);
                Ok(None)
            }
            Err(StoreError::Away(why)) => {
                let now = self.clock.now();
                Ok(Some(Away { since: now, why, shaken: now, owed: VecDeque::from([input]) }))
            }
            Err(error) => Err(error.into()),
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
