//! What is known of each server's nucleus, and what follows from each datagram and from silence. Sans-IO: datagrams and
//! time are arguments.
//!
//! A server is named by its address, its name where only one application's server has it, or `application/name`; all
//! names of a server lead to one entry, so two nuclei cannot speak for it under two names.
//!
//! Time here advances by at most [`STEP`] between two looks: when this process was stopped for a while, everybody would
//! seem silent who was just not listened to.

mod places;
mod shown;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tidegate_engine::{LoadReport, MeasuredCost, Request, RequestTypeId, ServerId, ServerLoad};
use tidegate_wire::{
    Counts, Gauge, Gauges, Header, Key, Keys, Kind, MAX_DATAGRAM, Message, Rejected, Report, Secret, Session,
};

use crate::app::App;
use crate::config::{self, WhenSilent};

use super::cores::Cores;
use super::signals::signals;

/// The most that time advances at once, nanoseconds.
const STEP: u64 = 50_000_000;
/// How often every server is looked at while no application divides cores, nanoseconds: silence lasts longer.
const SWEEP: u64 = 20_000_000;
/// Before a nucleus names its interval; and bounds on what it names, seconds.
const INTERVAL: f64 = 0.1;
const SHORTEST: f64 = 0.05;
const LONGEST: f64 = 60.0;
/// Silent is who misses so many reports in a row.
const MISSED: f64 = 3.0;
/// Another nucleus may take a server over after this share of that.
const YIELDS: f64 = 0.7;
/// Request types kept of a report.
const TYPES: usize = 32;

/// What a server's nucleus does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NucleusState {
    /// It was never heard.
    #[default]
    Never,
    /// It reports.
    Speaks,
    /// It reports that nothing listens at the server's port: the server is down.
    NotListening,
    /// It reported before and does not any more.
    Silent,
    /// It said that it stops.
    Left,
}

impl NucleusState {
    /// Its name in output.
    pub const fn name(self) -> &'static str {
        match self {
            NucleusState::Never => "never",
            NucleusState::Speaks => "speaks",
            NucleusState::NotListening => "not-listening",
            NucleusState::Silent => "silent",
            NucleusState::Left => "left",
        }
    }
}

/// Everything about nuclei.
#[derive(Debug)]
pub(super) struct Nuclei {
    keys: Keys,
    secret: Secret,
    silent_after: Option<Duration>,
    when_silent: WhenSilent,
    counts: Arc<Counts>,
    apps: Vec<Arc<App>>,
    /// The generation of each application's configuration that `entries` is made from.
    generations: Vec<u64>,
    entries: Vec<Entry>,
    names: HashMap<String, usize>,
    /// Nanoseconds: as the caller counts them, and as counted here.
    seen: u64,
    now: u64,
    /// When every server is to be looked at again.
    next_sweep: u64,
    /// Whether an application divides servers' cores: then that is after every lot.
    divides: bool,
    /// Whether each application's policy acts on signals; there are a dozen in a report.
    takes_signals: Vec<bool>,
    /// What each application's controller is told at the end of a lot.
    told: Vec<Told>,
    /// Servers whose nuclei are to be sent a command.
    owing: Vec<usize>,
    /// Somebody proved itself who was not known before.
    moved: bool,
    answer: Box<[u8; MAX_DATAGRAM]>,
}

/// One server.
#[derive(Debug, Default)]
struct Entry {
    /// `host:port`.
    address: String,
    /// The application's index, the server's slot there, and its name.
    places: Vec<(usize, ServerId, String)>,
    session: Session,
    state: NucleusState,
    /// When it was last heard.
    heard: u64,
    /// Seconds.
    interval: f64,
    gauges: Gauges,
    active: Vec<(String, f64)>,
    connections: usize,
    reports: u64,
    /// Where its datagrams come from, and the server's name as they have it.
    from: Option<SocketAddr>,
    /// What it seals its datagrams with, and hears.
    key: Option<Key>,
    speaks_for: String,
    /// How its cores are divided, if it is a data server that lends some.
    cores: Cores,
}

#[derive(Debug, Default)]
struct Told {
    reports: Vec<LoadReport>,
    /// Requests that used so many seconds together, and where.
    costs: Vec<(ServerId, Vec<Request>, f64)>,
}

impl Nuclei {
    pub(super) fn new(config: &config::Reports, apps: Vec<Arc<App>>, counts: Arc<Counts>) -> Nuclei {
        let mut nuclei = Nuclei {
            keys: config.keys.clone(),
            secret: Secret::random(),
            silent_after: config.silent_after,
            when_silent: config.when_silent,
            counts,
            generations: vec![u64::MAX; apps.len()],
            told: apps.iter().map(|_| Told::default()).collect(),
            apps,
            entries: Vec::new(),
            names: HashMap::new(),
            seen: 0,
            now: STEP,
            next_sweep: 0,
            divides: false,
            takes_signals: Vec::new(),
            owing: Vec::new(),
            moved: false,
            answer: Box::new([0; MAX_DATAGRAM]),
        };
        nuclei.follow_reloads();
        nuclei
    }

    pub(super) fn configure(&mut self, config: &config::Reports) {
        self.keys = config.keys.clone();
        (self.silent_after, self.when_silent) = (config.silent_after, config.when_silent);
        (0..self.entries.len()).for_each(|at| self.exclude(at));
    }

    /// It is `now` (nanoseconds on the caller's clock). Call before a lot of datagrams.
    pub(super) fn advance(&mut self, now: u64) {
        self.now += now.saturating_sub(self.seen).min(STEP);
        self.seen = now;
        self.follow_reloads();
    }

    /// A datagram came. What to answer its sender.
    pub(super) fn handle(&mut self, datagram: &[u8], from: SocketAddr) -> Option<&[u8]> {
        let result = self.judge(datagram, from);
        self.counts.count(&result.as_ref().map(|_| ()).map_err(|refused| refused.0));
        match result {
            Err((_, Some(length))) => Some(&self.answer[..length]),
            _ => None,
        }
    }

    /// The lot is over: controllers are told, and silence is looked for. Then [`Nuclei::poll_command`] has what is to
    /// be sent.
    pub(super) fn finish(&mut self) {
        if self.divides || self.now >= self.next_sweep {
            self.next_sweep = self.now + SWEEP;
            self.sweep();
        }
        for (app, told) in self.apps.iter().zip(&mut self.told) {
            if told.reports.is_empty() && told.costs.is_empty() {
                continue;
            }
            app.engine(|core, now| {
                told.reports.drain(..).for_each(|report| core.controller.handle_report(now, report));
                for (server, requests, seconds) in told.costs.drain(..) {
                    let expected: Vec<f64> = requests.iter().map(|r| core.controller.expected_cost(r)).collect();
                    let sum: f64 = expected.iter().sum();
                    for (request, expected) in requests.iter().zip(expected) {
                        let share = if sum > 0.0 { expected / sum } else { 1.0 / requests.len() as f64 };
                        let cost = MeasuredCost { cpu: seconds * share, ..MeasuredCost::default() };
                        core.controller.handle_cost(now, server, request, cost);
                    }
                }
            });
        }
    }

    /// Whether commands may be owed after every lot.
    pub(super) fn divides(&self) -> bool {
        self.divides
    }

    /// The next command to a nucleus, and where to send it.
    pub(super) fn poll_command(&mut self) -> Option<(&[u8], SocketAddr)> {
        while let Some(at) = self.owing.pop() {
            let silence = self.silence(at);
            let entry = &mut self.entries[at];
            let (Some(from), Some(key)) = (entry.from, &entry.key) else { continue };
            let Some(header) = entry.session.command() else { continue };
            let Some(command) = entry.cores.command(self.now, silence) else { continue };
            let length = Message::write_command(key, &header, &entry.speaks_for, command, &mut self.answer);
            return Some((&self.answer[..length], from));
        }
        None
    }

    /// Whoever proved itself, when that has changed.
    pub(super) fn poll_senders(&mut self) -> Option<Vec<SocketAddr>> {
        let moved = std::mem::take(&mut self.moved);
        moved.then(|| self.entries.iter().filter_map(|entry| entry.from).collect())
    }

    /// Judges a datagram and takes what it says. Otherwise why not, and the length of the challenge in `answer`.
    fn judge(&mut self, datagram: &[u8], from: SocketAddr) -> Result<(), (Rejected, Option<usize>)> {
        let (message, key) = Message::open(&self.keys, datagram).map_err(|why| (why, None))?;
        if matches!(message.header.kind, Kind::Challenge | Kind::Command) {
            return Err((Rejected::Malformed, None));
        }
        let at = *self.names.get(message.server).ok_or((Rejected::UnknownServer, None))?;
        let quiet = (self.silence(at) as f64 * YIELDS) as u64;
        let session = &mut self.entries[at].session;
        session.admit(&self.secret, message.server, &message.header, self.now, quiet).map_err(|refused| {
            let challenge = refused.challenge.map(|token| {
                let header = Header { kind: Kind::Challenge, token, ..message.header };
                Message::write(&key, &header, message.server, &mut self.answer)
            });
            (refused.why, challenge)
        })?;
        let entry = &mut self.entries[at];
        entry.key = Some(key);
        self.moved |= entry.from.replace(from) != Some(from);
        if entry.speaks_for != message.server {
            message.server.clone_into(&mut entry.speaks_for);
        }
        match &message.report {
            Some(report) => self.take(at, report),
            None => {
                self.entries[at].session.leave();
                self.enter(at, NucleusState::Left);
            }
        }
        Ok(())
    }

    fn take(&mut self, at: usize, report: &Report<'_>) {
        let gauge = |gauge| report.gauges.get(gauge);
        let load = ServerLoad {
            queueing_delay: gauge(Gauge::QueueingDelay),
            in_service: gauge(Gauge::InService),
            waiting: gauge(Gauge::AcceptQueue),
            processors: gauge(Gauge::Processors),
        };
        let entry = &mut self.entries[at];
        entry.heard = self.now;
        entry.interval = gauge(Gauge::Interval).unwrap_or(INTERVAL).clamp(SHORTEST, LONGEST);
        entry.gauges = report.gauges;
        remember(&mut entry.active, report);
        entry.connections = report.connections().count();
        entry.reports += 1;
        entry.cores.hear(self.now, &report.gauges);
        for (app, id, _) in &entry.places {
            let told = &mut self.told[*app].reports;
            if !entry.active.is_empty() {
                let live = self.apps[*app].live();
                let types = &live.config.setup.request_types;
                told.extend(entry.active.iter().filter_map(|(name, count)| {
                    let request_type = RequestTypeId(types.iter().position(|known| known == name)? as u16);
                    Some(LoadReport::Active { server: *id, request_type, count: *count })
                }));
            }
            told.push(LoadReport::Server { server: *id, load });
            if self.takes_signals[*app] {
                signals(&report.gauges, |signal, value| {
                    told.push(LoadReport::Signal { server: Some(*id), signal, value });
                });
            }
            if entry.connections > 0 {
                let live = self.apps[*app].live();
                let Some(server) = live.server(*id) else { continue };
                for connection in report.connections() {
                    server.ledger.read(connection.peer, connection.cpu_ns, |requests, seconds| {
                        self.told[*app].costs.push((*id, requests.to_vec(), seconds));
                    });
                }
            }
        }
        let down = gauge(Gauge::Listeners) == Some(0.0);
        self.enter(at, if down { NucleusState::NotListening } else { NucleusState::Speaks });
    }

    /// Looks at every server: whether its cores are divided as they should be, and whether it fell silent.
    fn sweep(&mut self) {
        for at in 0..self.entries.len() {
            if self.divides || self.entries[at].cores.is_wanted() {
                self.divide(at);
            }
            let entry = &self.entries[at];
            let speaks = matches!(entry.state, NucleusState::Speaks | NucleusState::NotListening);
            if speaks && self.now - entry.heard > self.silence(at) {
                self.enter(at, NucleusState::Silent);
            } else if entry.state == NucleusState::Silent {
                // How many others are excluded may have changed.
                self.exclude(at);
            }
        }
    }

    /// Passes on how the server's cores are to be divided, and whether they are.
    fn divide(&mut self, at: usize) {
        let entry = &self.entries[at];
        let wanted = |(app, id, _): &(usize, ServerId, String)| self.apps[*app].live().server(*id)?.wanted_cores();
        // Of two applications that borrow from one server, the one that wants less has its way.
        let wanted = entry.places.iter().filter_map(wanted).min();
        let (silence, speaks) = (self.silence(at), !matches!(entry.state, NucleusState::Silent | NucleusState::Left));
        let entry = &mut self.entries[at];
        entry.cores.want(self.now, wanted);
        if let Some(can) = entry.cores.judge(self.now, silence, speaks) {
            for (app, server, _) in &entry.places {
                self.told[*app].reports.push(LoadReport::Lends { server: *server, can });
            }
        }
        if entry.cores.owes(self.now, silence) {
            self.owing.push(at);
        }
    }

    fn enter(&mut self, at: usize, state: NucleusState) {
        let entry = &mut self.entries[at];
        if entry.state == state {
            return;
        }
        entry.state = state;
        if matches!(state, NucleusState::Silent | NucleusState::Left) {
            for (app, id, _) in &entry.places {
                self.told[*app].reports.push(LoadReport::Silent(*id));
                if let Some(server) = self.apps[*app].live().server(*id) {
                    server.ledger.rest();
                }
            }
        }
        self.exclude(at);
    }

    /// Makes the data path agree with what is known here.
    fn exclude(&self, at: usize) {
        let entry = &self.entries[at];
        let excludes = self.excludes(entry);
        for (app, id, _) in &entry.places {
            let app = &self.apps[*app];
            // Silence is no evidence against a server: where many fall silent, it is the way here that is broken.
            let excluded = excludes && (entry.state != NucleusState::Silent || may_miss(app, *id));
            if app.live().server(*id).is_some_and(|server| server.is_excluded() != excluded) {
                app.exclude(*id, excluded);
            }
        }
    }

    fn excludes(&self, entry: &Entry) -> bool {
        match entry.state {
            NucleusState::NotListening => true,
            NucleusState::Silent => self.when_silent == WhenSilent::Exclude,
            NucleusState::Never | NucleusState::Speaks | NucleusState::Left => false,
        }
    }

    /// After how much silence a nucleus is silent, nanoseconds.
    fn silence(&self, at: usize) -> u64 {
        let interval = self.entries[at].interval.max(SHORTEST);
        self.silent_after.map_or((interval * MISSED * 1e9) as u64, |after| after.as_nanos() as u64)
    }
}

/// Whether half the servers at least would be left without this one.
fn may_miss(app: &App, id: ServerId) -> bool {
    let live = app.live();
    let others = live.servers().filter(|server| server.id != id && server.is_excluded()).count();
    (others + 1) * 2 <= live.servers().count()
}

/// Keeps the counts by type, using the old list's memory.
fn remember(list: &mut Vec<(String, f64)>, report: &Report<'_>) {
    let mut length = 0;
    for active in report.active().take(TYPES) {
        match list.get_mut(length) {
            Some((name, count)) if name == active.request_type => *count = active.count,
            Some(place) => *place = (active.request_type.to_owned(), active.count),
            None => list.push((active.request_type.to_owned(), active.count)),
        }
        length += 1;
    }
    list.truncate(length);
}

#[cfg(test)]
mod tests;
