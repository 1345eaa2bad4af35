//! Names follow the sentries that are there.

use std::net::{IpAddr, SocketAddr};

use serde_json::{Value, json};

use super::DaemonError;
use super::ledger::Ledger;
use crate::backend::StoreError;
use crate::clock::wall;
use crate::desk::Desk;
use crate::names::Dns;
use crate::names::{Candidate, Names, Roll, roll};
use crate::plane::Input;

/// The names of applications, where they are answered.
#[derive(Debug)]
pub(super) struct Named(Option<Names>);

impl Named {
    /// Begins to answer, by what the store has; `None`: nobody is answered.
    ///
    /// # Errors
    /// When its address cannot be listened on.
    pub(super) fn begin(dns: Option<&Dns>, ledger: &Ledger, desk: &mut Desk) -> Result<Named, DaemonError> {
        let Some(dns) = dns else { return Ok(Named(None)) };
        let applications: Vec<String> = (0..desk.applications()).map(|at| desk.application(at).to_owned()).collect();
        // Serials wrap around by their standard (RFC 1982).
        let names = Names::start(dns, &applications, (wall() / 1_000_000_000) as u32)?;
        for application in 0..applications.len() {
            let roll = ledger.plane().names(application);
            names.set(application, &addresses(roll));
            for (sentry, addresses) in roll {
                if let Some(known) = desk.sentry_mut(sentry) {
                    known.remember(application, addresses);
                }
            }
        }
        Ok(Named(Some(names)))
    }

    /// What changes is on the disk before it is answered.
    pub(super) fn follow(&self, ledger: &mut Ledger, desk: &Desk) -> Result<(), StoreError> {
        let Some(names) = &self.0 else { return Ok(()) };
        // What cannot be written down is not answered either: it follows when the store is back.
        if ledger.is_away() {
            return Ok(());
        }
        for application in 0..desk.applications() {
            let last = ledger.plane().names(application);
            let stays = |one: &Candidate<'_>| !ledger.plane().is_leaving(one.name);
            let candidates: Vec<_> = candidates(desk, application).into_iter().filter(stays).collect();
            let roll = roll(&candidates, last);
            if roll == *last {
                continue;
            }
            let addresses = addresses(&roll);
            ledger.input(Input::Names { now: ledger.now(), application, roll })?;
            names.set(application, &addresses);
        }
        Ok(())
    }

    /// What each application's name stands for; null where names are not answered.
    pub(super) fn shown(&self, ledger: &Ledger, desk: &Desk) -> Value {
        let shown = |at: usize| json!({ "application": desk.application(at), "sentries": ledger.plane().names(at) });
        match self.0 {
            Some(_) => (0..desk.applications()).map(shown).collect(),
            None => Value::Null,
        }
    }

    /// Answers that were cut and dropped because one network got too many; `None`: nobody is answered.
    pub(super) fn limited(&self) -> Option<(u64, u64)> {
        self.0.as_ref().map(Names::limited)
    }

    /// Where DNS queries are answered.
    pub(super) fn address(&self) -> Option<SocketAddr> {
        self.0.as_ref().map(Names::address)
    }
}

fn candidates(desk: &Desk, application: usize) -> Vec<Candidate<'_>> {
    let known = desk.sentries().filter(|(_, known)| known.applications().contains(&application));
    known
        .map(|(name, known)| Candidate {
            name,
            is_connected: known.connection.is_some(),
            addresses: known.addresses(application),
        })
        .collect()
}

fn addresses(roll: &Roll) -> Vec<IpAddr> {
    roll.iter().flat_map(|(_, addresses)| addresses).copied().collect()
}
