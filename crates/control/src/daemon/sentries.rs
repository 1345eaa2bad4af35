//! Sentries that speak, come and go, and what follows.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tidegate_engine::Timestamp;
use tidegate_provision::{ApplicationReport, Place, ServerNews};
use tidegate_wire::control::{FromControl, FromSentry, Hello};
use tokio::sync::mpsc::Sender;

use super::ledger::Ledger;
use super::name;
use crate::backend::StoreError;
use crate::desk::{Connection, Desk};
use crate::plane::{Input, Plane, Unit};

/// Connections of sentries, who speaks by them, and what they were told.
#[derive(Debug)]
pub(super) struct Sentries {
    pub(super) desk: Desk,
    links: BTreeMap<Connection, Sender<FromControl>>,
    /// The number of the orders that were given last.
    pub(super) revision: u64,
    /// How long one that is cut off counts on.
    forget_after: Duration,
    /// Applications of which it was said that they have none.
    without: BTreeSet<usize>,
    /// Those that spoke first since what follows from it was done.
    arrived: Vec<String>,
    /// What follows from some that left is to be done.
    left: bool,
    reports: u64,
    refused: u64,
}

impl Sentries {
    /// With connections that have not said anything yet.
    pub(super) fn new(
        desk: Desk,
        links: BTreeMap<Connection, Sender<FromControl>>,
        forget_after: Duration,
    ) -> Sentries {
        Sentries {
            desk,
            links,
            revision: 0,
            forget_after,
            without: BTreeSet::new(),
            arrived: Vec::new(),
            left: false,
            reports: 0,
            refused: 0,
        }
    }

    /// A connection is there.
    pub(super) fn opened(&mut self, connection: Connection, link: Sender<FromControl>) {
        self.links.insert(connection, link);
    }

    /// A sentry says something; `period` is how often it is to report.
    pub(super) fn said(
        &mut self,
        ledger: &mut Ledger,
        period: Duration,
        connection: Connection,
        said: FromSentry,
    ) -> Result<(), StoreError> {
        match said {
            FromSentry::Hello(hello) => self.hello(ledger, period, connection, hello)?,
            FromSentry::Report(report) => {
                self.reports += 1;
                self.desk.report(ledger.now(), connection, report);
            }
            FromSentry::Goodbye => {
                if let Some(name) = self.desk.goodbye(connection) {
                    ledger.note_later("sentry-left", format!("{name} stops on purpose"));
                    self.left = true;
                }
                self.links.remove(&connection);
            }
        }
        Ok(())
    }

    /// A connection is over, for this reason.
    pub(super) fn closed(&mut self, ledger: &mut Ledger, connection: Connection, why: &str) {
        self.links.remove(&connection);
        if let Some(name) = self.desk.lost(connection) {
            let kept = self.forget_after;
            ledger.note_later(
                "sentry-cut-off",
                format!("{name}: {why}; its last report counts on, for at most {kept:?}"),
            );
            // Names follow who is there.
            self.left = true;
        }
    }

    /// Cuts off those that have been silent for longer than `patience`.
    pub(super) fn cut_off_silent(&mut self, ledger: &mut Ledger, now: Timestamp, patience: Duration) {
        for connection in self.desk.silent(now, patience) {
            self.closed(ledger, connection, "it says nothing any more");
        }
    }

    /// Tells those that ask for it that the control plane is there.
    pub(super) fn greet(&mut self) {
        let asks = self.desk.sentries().filter(|(_, known)| known.asks).filter_map(|(_, known)| known.connection);
        for connection in asks.collect::<Vec<_>>() {
            self.send(connection, FromControl::Here);
        }
    }

    /// Forgets those that were not heard for too long.
    pub(super) fn forget(&mut self, ledger: &mut Ledger, now: Timestamp) {
        for name in self.desk.forget(now) {
            ledger.note_later(
                "sentry-forgotten",
                format!("{name} was silent for too long and is removed; its servers go to the others"),
            );
        }
    }

    /// Cuts off all of them: they look for another leader, and come back where there is none.
    pub(super) fn let_go(&mut self) {
        self.links.clear();
    }

    /// Notes who came; whether something follows, as some came or left.
    pub(super) fn settle(&mut self, ledger: &mut Ledger) -> Result<bool, StoreError> {
        if self.arrived.is_empty() && !std::mem::take(&mut self.left) {
            return Ok(false);
        }
        let arrived = std::mem::take(&mut self.arrived);
        if let Some((last, others)) = arrived.split_last() {
            let who =
                if others.is_empty() { format!("{last} speaks") } else { format!("{} speak", arrived.join(", ")) };
            ledger.note("sentry-registered", who)?;
        }
        Ok(true)
    }

    /// The plane learns which sentries stand at posts, by the names that `name` has for those who stand there.
    pub(super) fn watch_posts(
        &self,
        ledger: &mut Ledger,
        name: impl Fn(usize) -> Option<String>,
    ) -> Result<(), StoreError> {
        let plane = ledger.plane();
        let waits = |post: usize| plane.pending().any(|step| (step.unit, step.place) == (Unit::Sentry, post));
        let is_new = |(post, place): (usize, &Place)| {
            let name = match place {
                Place::Coming { .. } if !waits(post) => name(post)?,
                // A pod that was replaced has another name.
                Place::Serving { .. } => name(post).filter(|name| plane.stands(post) != Some(name))?,
                _ => return None,
            };
            self.desk.speaks(&name).then_some((post, name))
        };
        let new: Vec<(usize, String)> = plane.posts().iter().enumerate().filter_map(is_new).collect();
        let now = ledger.now();
        for (post, name) in new {
            let (news, reason) = (ServerNews::Up, format!("{name} speaks"));
            ledger.later(Input::Post { now, post, news, name: Some(name), reason });
        }
        ledger.write_batch()
    }

    /// The plane learns who the sentries are when that changes.
    pub(super) fn register(&self, ledger: &mut Ledger) -> Result<(), StoreError> {
        for application in 0..self.desk.applications() {
            let names = self.desk.names(application);
            if names != ledger.plane().sentries(application) {
                ledger.later(Input::Sentries { now: ledger.now(), application, names });
            }
        }
        let cut_off = self.desk.sentries().filter(|(_, known)| known.connection.is_none());
        let names: Vec<String> = cut_off.map(|(name, _)| name.clone()).collect();
        if !names.iter().eq(ledger.plane().silent()) {
            ledger.later(Input::Silent { now: ledger.now(), names });
        }
        ledger.write_batch()
    }

    /// What each application's sentries saw in a period of `seconds` that ends now.
    pub(super) fn take_reports(&mut self, seconds: f64) -> Vec<Option<ApplicationReport>> {
        (0..self.desk.applications()).map(|at| self.desk.take_report(at, seconds)).collect()
    }

    /// How busy sentries are that speak and stay: the application, the sentry's place among these, share of its CPU.
    pub(super) fn cpus(&self, plane: &Plane) -> Vec<(usize, usize, f64)> {
        let of = |at: usize| {
            let stay = self.desk.cpus(at).into_iter().filter(|(name, _)| !plane.is_leaving(name));
            stay.enumerate().map(move |(sentry, (_, cpu))| (at, sentry, cpu))
        };
        (0..self.desk.applications()).flat_map(of).collect()
    }

    /// Notes which applications have none, once.
    pub(super) fn watch_for_none(&mut self, ledger: &mut Ledger) -> Result<(), StoreError> {
        for at in 0..self.desk.applications() {
            if !self.desk.names(at).is_empty() {
                self.without.remove(&at);
            } else if self.without.insert(at) {
                let name = self.desk.application(at);
                ledger.note(
                    "no-sentries",
                    format!("{name} has no sentries: nothing is known of its load, and everything stays as it is"),
                )?;
            }
        }
        Ok(())
    }

    /// Notes which servers no sentry has anything in flight at any more. A dry run has nobody to ask.
    pub(super) fn watch_drains(&self, ledger: &mut Ledger, dry_run: bool) -> Result<(), StoreError> {
        let is_drained = |(server, place): (usize, &Place)| match place {
            Place::Draining { application, .. } => {
                (dry_run || self.desk.is_drained(*application, &name(server))).then_some(server)
            }
            _ => None,
        };
        let drained: Vec<usize> = ledger.plane().places().iter().enumerate().filter_map(is_drained).collect();
        let now = ledger.now();
        for server in drained {
            let (news, reason) = (ServerNews::Drained, String::from("no sentry has anything in flight there"));
            ledger.later(Input::Server { now, server, news, reason });
        }
        ledger.write_batch()
    }

    /// Sends a message. One that lags too far is cut off, and told everything when it comes back.
    pub(super) fn send(&mut self, connection: Connection, message: FromControl) {
        if self.links.get(&connection).is_some_and(|link| link.try_send(message).is_err()) {
            self.links.remove(&connection);
        }
    }

    /// Reports since the start, and sentries that were refused.
    pub(super) fn counts(&self) -> (u64, u64) {
        (self.reports, self.refused)
    }

    fn hello(
        &mut self,
        ledger: &mut Ledger,
        period: Duration,
        connection: Connection,
        hello: Hello,
    ) -> Result<(), StoreError> {
        match self.desk.hello(ledger.now(), connection, &hello) {
            Ok(before) => {
                if let Some(before) = before {
                    self.links.remove(&before);
                }
                let period_ms = period.as_millis() as u64;
                self.send(connection, FromControl::Welcome { period_ms, is_told: hello.asks });
                self.arrived.push(hello.sentry);
            }
            Err(why) => {
                self.refused += 1;
                ledger.note("sentry-refused", format!("{}: {why}", hello.sentry))?;
                self.send(connection, FromControl::Refused { why, waits: false });
                self.links.remove(&connection);
                // It may have spoken for another one.
                self.closed(ledger, connection, "it was refused");
            }
        }
        Ok(())
    }
}
