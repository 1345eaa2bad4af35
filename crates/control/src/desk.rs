//! Registry of the sentries and their reports. Pure.
//!
//! *Awkward cases.* A sentry that is cut off still serves: what it saw last counts on, and its servers stay its own,
//! until it is forgotten. While one of an application's sentries has not spoken since the daemon began, nobody knows
//! how much is offered in all, and nothing is concluded from the part that is known. Two sentries of one name are told
//! apart by what each drew at its start, and the second one is turned away while the first one speaks. A connection
//! speaks for one sentry, and a sentry by one connection: the one before is given up. Numbers that cannot be are
//! brought within bounds here: what follows is written down, and must be read again.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use tidegate_engine::Timestamp;
use tidegate_provision::ApplicationReport;
use tidegate_wire::control::{ApplicationOrders, ApplicationSeen, Hello, Report};

/// Reports by which the newest orders are not in force: then they are said again, and ever less often.
const BEHIND: u32 = 4;
const BEHIND_MOST: u32 = 64;

/// A connection, by a number of its own.
pub type Connection = u64;

/// Registry of the sentries of a site.
#[derive(Debug)]
pub struct Desk {
    applications: Vec<(String, usize)>,
    forget_after: Duration,
    sentries: BTreeMap<String, Known>,
    /// Whose a connection is.
    speakers: BTreeMap<Connection, String>,
}

/// What is known of a sentry.
#[derive(Clone, Debug)]
pub struct Known {
    /// Its connection; `None` while it is cut off.
    pub connection: Option<Connection>,
    /// When it spoke last.
    pub heard: Timestamp,
    /// It asks to be told in every period that the control plane is there.
    pub asks: bool,
    /// Its last report since the daemon began.
    pub report: Option<Report>,
    /// What it was told last, and the number of that: term and revision.
    pub told: Option<((u64, u64), Vec<ApplicationOrders>)>,
    /// Reports since then by which it was not in force, and after how many it is told again.
    behind: (u32, u32),
    instance: u64,
    addresses: Vec<(usize, IpAddr)>,
    applications: Vec<usize>,
    fresh: BTreeMap<usize, (Vec<u64>, u64)>,
}

/// Why a sentry is turned away.
pub type Refusal = String;

impl Desk {
    /// A desk for these applications: names, and how many classes each has. `known` are the sentries, by application,
    /// that there were before; they count as cut off since `now`.
    pub fn new(
        applications: Vec<(String, usize)>,
        forget_after: Duration,
        known: &[Vec<String>],
        now: Timestamp,
    ) -> Desk {
        let mut desk = Desk { applications, forget_after, sentries: BTreeMap::new(), speakers: BTreeMap::new() };
        for (application, names) in known.iter().enumerate() {
            for name in names {
                desk.sentries.entry(name.clone()).or_insert_with(|| Known::new(0, now)).applications.push(application);
            }
        }
        desk
    }

    /// A sentry says who it is. The connection that it spoke by before, which is nobody's from now on.
    ///
    /// # Errors
    /// Why it is turned away.
    pub fn hello(
        &mut self,
        now: Timestamp,
        connection: Connection,
        hello: &Hello,
    ) -> Result<Option<Connection>, Refusal> {
        if hello.sentry.trim().is_empty() {
            return Err(String::from("a sentry needs a name; give it one in [control]"));
        }
        if let Some(other) = self.speakers.get(&connection).filter(|other| **other != hello.sentry) {
            return Err(format!(
                "\"{other}\" speaks by this connection already; each sentry needs a connection of its own"
            ));
        }
        let mut applications = Vec::new();
        for (name, classes) in &hello.applications {
            let Some(at) = self.applications.iter().position(|(known, _)| known == name) else { continue };
            let wanted = self.applications[at].1;
            if wanted != *classes {
                return Err(format!(
                    "application \"{name}\" has {classes} classes at the sentry and {wanted} revenues at the control plane; \
                     give one for each class"
                ));
            }
            if !applications.contains(&at) {
                applications.push(at);
            }
        }
        if applications.is_empty() {
            let known: Vec<&str> = self.applications.iter().map(|(name, _)| name.as_str()).collect();
            return Err(format!("none of the sentry's applications is known here; known are: {}", known.join(", ")));
        }
        if let Some(other) = self.sentries.get(&hello.sentry)
            && other.instance != hello.instance
            && other.connection.is_some()
        {
            return Err(format!(
                "another sentry is called \"{}\" and speaks; give each a name of its own",
                hello.sentry
            ));
        }
        let mut known = Known::new(hello.instance, now);
        (known.connection, known.applications, known.asks) = (Some(connection), applications, hello.asks);
        let place = |name: &String| self.applications.iter().position(|(known, _)| known == name);
        known.addresses = hello.addresses.iter().filter_map(|(name, at)| Some((place(name)?, *at))).collect();
        let before = self.sentries.insert(hello.sentry.clone(), known).and_then(|before| before.connection);
        let before = before.filter(|before| *before != connection);
        if let Some(before) = &before {
            self.speakers.remove(before);
        }
        self.speakers.insert(connection, hello.sentry.clone());
        Ok(before)
    }

    /// A sentry reports; nothing happens when the connection is nobody's.
    pub fn report(&mut self, now: Timestamp, connection: Connection, mut report: Report) {
        let Some(known) = self.speakers.get(&connection).and_then(|name| self.sentries.get_mut(name)) else { return };
        report.cpu = report.cpu.clamp(0.0, 1.0);
        report.applications.iter_mut().for_each(|seen| seen.busy = seen.busy.clamp(0.0, 1.0));
        known.heard = now;
        match known.told.as_ref().is_some_and(|(number, _)| *number != report.applied) {
            true => known.behind.0 += 1,
            false => known.behind = (0, BEHIND),
        }
        for seen in &report.applications {
            let at = self.applications.iter().position(|(application, _)| *application == seen.name);
            let Some(at) = at.filter(|at| seen.offered.len() == self.applications[*at].1) else { continue };
            let (offered, refused) = known.fresh.entry(at).or_insert_with(|| (vec![0; seen.offered.len()], 0));
            offered.iter_mut().zip(&seen.offered).for_each(|(sum, count)| *sum = sum.saturating_add(*count));
            *refused = refused.saturating_add(seen.refused);
        }
        known.report = Some(report);
    }

    /// A connection has ended. Whose it was.
    pub fn lost(&mut self, connection: Connection) -> Option<String> {
        let name = self.speakers.remove(&connection)?;
        self.sentries.get_mut(&name)?.connection = None;
        Some(name)
    }

    /// A sentry stops on purpose. Who.
    pub fn goodbye(&mut self, connection: Connection) -> Option<String> {
        let name = self.lost(connection)?;
        self.sentries.remove(&name);
        Some(name)
    }

    /// Forgets who was not heard for too long. Who was.
    pub fn forget(&mut self, now: Timestamp) -> Vec<String> {
        let late = |known: &Known| known.connection.is_none() && now.since(known.heard) > self.forget_after;
        let names: Vec<String> =
            self.sentries.iter().filter(|(_, known)| late(known)).map(|(name, _)| name.clone()).collect();
        names.iter().for_each(|name| drop(self.sentries.remove(name)));
        names
    }

    /// Connections that have been silent for longer than `patience`.
    pub fn silent(&self, now: Timestamp, patience: Duration) -> Vec<Connection> {
        let silent = |known: &&Known| now.since(known.heard) > patience;
        self.sentries.values().filter(silent).filter_map(|known| known.connection).collect()
    }

    /// How many applications there are.
    pub fn applications(&self) -> usize {
        self.applications.len()
    }

    /// Name of an application, by its index.
    pub fn application(&self, application: usize) -> &str {
        &self.applications[application].0
    }

    /// The sentries of an application, by name.
    pub fn names(&self, application: usize) -> Vec<String> {
        self.of(application).map(|(name, _)| name.clone()).collect()
    }

    /// Every registered sentry, by name.
    pub fn sentries(&self) -> impl Iterator<Item = (&String, &Known)> {
        self.sentries.iter()
    }

    /// Whether a sentry of this name speaks.
    pub fn speaks(&self, name: &str) -> bool {
        self.sentries.get(name).is_some_and(|known| known.connection.is_some())
    }

    /// A registered sentry, by name.
    pub fn sentry_mut(&mut self, name: &str) -> Option<&mut Known> {
        self.sentries.get_mut(name)
    }

    /// What an application's sentries saw in a period of `seconds` that ends now, together; `None` when that is not
    /// known. Counts each report once.
    pub fn take_report(&mut self, application: usize, seconds: f64) -> Option<ApplicationReport> {
        let mut sum =
            ApplicationReport { offered: vec![0; self.applications[application].1], ..ApplicationReport::default() };
        let (mut servers, mut most, mut known_all, mut any) = (0.0, 0, true, false);
        let name = &self.applications[application].0;
        for known in self.sentries.values_mut().filter(|known| known.applications.contains(&application)) {
            any = true;
            let fresh = known.fresh.remove(&application);
            let last = known.report.as_ref();
            let seen = last.and_then(|report| report.applications.iter().find(|seen| seen.name == *name));
            let (Some(report), Some(seen)) = (last, seen) else {
                known_all = false;
                continue;
            };
            let (offered, refused) = match (fresh, known.connection) {
                (Some(fresh), _) => fresh,
                // Its next report has this period, too.
                (None, Some(_)) => (vec![0; sum.offered.len()], 0),
                (None, None) => went_on(seen, seconds / report.seconds.max(1e-3)),
            };
            sum.offered.iter_mut().zip(&offered).for_each(|(all, count)| *all = all.saturating_add(*count));
            sum.refused = sum.refused.saturating_add(refused);
            let weight = (seen.servers.len() as f64).max(1.0);
            sum.busy += seen.busy * weight;
            servers += weight;
            let total = seen.offered.iter().fold(0, |sum: u64, count| sum.saturating_add(*count));
            if total > most || sum.mean_service.is_none() {
                most = total;
                sum.mean_service = seen.mean_service.or(sum.mean_service);
                // Of the sentry that sees most: each sees a part of the same stream.
                sum.service_variation = seen.service_variation.or(sum.service_variation);
                sum.arrival_variation = seen.arrival_variation.or(sum.arrival_variation);
                sum.processors = seen.processors.or(sum.processors);
            }
        }
        sum.busy = if servers > 0.0 { sum.busy / servers } else { 0.0 };
        (any && known_all).then_some(sum)
    }

    /// How busy each sentry of an application is that speaks: its name, share of its CPU.
    pub fn cpus(&self, application: usize) -> Vec<(&str, f64)> {
        let speaks = |known: &Known| Some(known.connection.and(known.report.as_ref())?.cpu);
        self.of(application).filter_map(|(name, known)| Some((name.as_str(), speaks(known)?))).collect()
    }

    /// Whether no sentry has anything in flight at a server that none is to use: all of them have said so by the orders
    /// that they were given last.
    pub fn is_drained(&self, application: usize, server: &str) -> bool {
        self.of(application).all(|(_, known)| {
            let (Some(_), Some(report), Some((number, _))) = (known.connection, &known.report, &known.told) else {
                return false;
            };
            let mut seen = report.applications.iter().flat_map(|seen| &seen.servers).filter(|seen| seen.name == server);
            report.applied == *number && seen.all(|seen| seen.in_flight == 0 && seen.status != "up")
        })
    }

    fn of(&self, application: usize) -> impl Iterator<Item = (&String, &Known)> {
        self.sentries.iter().filter(move |(_, known)| known.applications.contains(&application))
    }
}

impl Known {
    fn new(instance: u64, now: Timestamp) -> Known {
        Known {
            connection: None,
            heard: now,
            asks: false,
            report: None,
            told: None,
            behind: (0, BEHIND),
            instance,
            addresses: Vec::new(),
            applications: Vec::new(),
            fresh: BTreeMap::new(),
        }
    }

    /// Whether it is to be told again what it was told last: it has not come into force.
    pub fn is_behind(&self) -> bool {
        self.behind.0 >= self.behind.1
    }

    /// It is told these orders, by this number.
    pub fn tell(&mut self, number: (u64, u64), orders: Vec<ApplicationOrders>) {
        let patience = if self.is_behind() { (self.behind.1 * 2).min(BEHIND_MOST) } else { BEHIND };
        (self.behind, self.told) = ((0, patience), Some((number, orders)));
    }

    /// Clients of an application reached it there before this daemon began.
    pub fn remember(&mut self, application: usize, addresses: &[IpAddr]) {
        self.addresses.extend(addresses.iter().map(|address| (application, *address)));
    }

    /// The applications that it has, by their places.
    pub fn applications(&self) -> &[usize] {
        &self.applications
    }

    /// Where clients of an application reach it: as it said last, or as a daemon before this one knew.
    pub fn addresses(&self, application: usize) -> Vec<IpAddr> {
        self.addresses.iter().filter(|(at, _)| *at == application).map(|(_, address)| *address).collect()
    }
}

/// What a sentry saw last, over another time.
fn went_on(seen: &ApplicationSeen, times: f64) -> (Vec<u64>, u64) {
    let scaled = |count: &u64| (*count as f64 * times).round() as u64;
    (seen.offered.iter().map(scaled).collect(), scaled(&seen.refused))
}

#[cfg(test)]
mod tests;
