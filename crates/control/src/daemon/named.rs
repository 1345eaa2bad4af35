//! Names follow the sentries that are there.

use std::net::{IpAddr, SocketAddr};

use serde_json::{Value, json};

use super::{Daemon, DaemonError};
use crate::clock::wall;
use crate::names::{Candidate, Names, Roll, roll};
use crate::plane::Input;

impl Daemon {
    /// Begins to answer, by what the store has. A dry run answers nobody.
    pub(super) fn answer_names(&mut self) -> Result<(), DaemonError> {
        let Some(dns) = self.config.dns.as_ref().filter(|_| !self.dry_run) else { return Ok(()) };
        let applications = self.config.site.applications.iter().map(|application| application.name.clone());
        let applications: Vec<String> = applications.collect();
        // Serials wrap around by their standard (RFC 1982).
        let names = Names::start(dns, &applications, (wall() / 1_000_000_000) as u32)?;
        for application in 0..applications.len() {
            let roll = self.plane.names(application);
            names.set(application, &addresses(roll));
            for (sentry, addresses) in roll {
                if let Some(known) = self.desk.sentry_mut(sentry) {
                    known.remember(application, addresses);
                }
            }
        }
        self.names = Some(names);
        Ok(())
    }

    /// What changes is on the disk before it is answered.
    pub(super) fn follow_names(&mut self) -> Result<(), DaemonError> {
        if self.names.is_none() || self.away.is_some() {
            // What cannot be written down is not answered either: it follows when the store is back.
            return Ok(());
        }
        for application in 0..self.config.site.applications.len() {
            let last = self.plane.names(application);
            let roll = roll(&self.candidates(application), last);
            if roll == *last {
                continue;
            }
            let (now, addresses) = (self.clock.now(), addresses(&roll));
            self.input(Input::Names { now, application, roll })?;
            if let Some(names) = &self.names {
                names.set(application, &addresses);
            }
        }
        Ok(())
    }

    /// What each application's name stands for; null where names are not answered.
    pub(super) fn names_shown(&self) -> Value {
        let shown = |at: usize| json!({ "application": self.config.site.applications[at].name, "sentries": self.plane.names(at) });
        match self.names {
            Some(_) => (0..self.config.site.applications.len()).map(shown).collect(),
            None => Value::Null,
        }
    }

    /// Where DNS queries are answered.
    pub(crate) fn names_address(&self) -> Option<SocketAddr> {
        self.names.as_ref().map(Names::address)
    }

    fn candidates(&self, application: usize) -> Vec<Candidate<'_>> {
        let known = self.desk.sentries().filter(|(_, known)| known.applications().contains(&application));
        known
            .map(|(name, known)| Candidate {
                name,
                is_connected: known.connection.is_some(),
                addresses: known.addresses(application),
            })
            .collect()
    }
}

fn addresses(roll: &Roll) -> Vec<IpAddr> {
    roll.iter().flat_map(|(_, addresses)| addresses).copied().collect()
}
