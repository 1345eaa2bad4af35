//! The daemon: moves news to the plane, steps to the provider, and orders to sentries.
//!
//! One task owns everything; connections, the provider's threads and the admin API send it messages. So there is one
//! order of inputs, and the journal has it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use thiserror::Error;
use tidegate_engine::provision::{Place, ServerNews};
use tidegate_engine::{Sla, Timestamp};
use tidegate_wire::control::{
    ApplicationOrders, Coming, FromControl, FromSentry, Orders, ServerOrder, Step as TargetStep, TargetOrder,
};
use tokio::net::TcpListener;
use tokio::sync::mpsc::{self, Receiver, Sender};
use tokio::sync::oneshot;

use crate::clock::{Clock, wall};
use crate::config::Config;
use crate::desk::{Connection, Desk};
use crate::link::{self, News};
use crate::plane::{Input, Plane, Process, Step, What};
use crate::provider::{self, Presence, Pretend, Provider, ProviderError};
use crate::store::{Store, StoreError};

/// A provider that takes longer for a step is said to hang.
const HANGS: Duration = Duration::from_secs(15);
/// After a step that failed, the same one is tried again so much later.
const AGAIN: Duration = Duration::from_secs(5);
/// A sentry that says nothing for so many periods is cut off.
const SILENT_PERIODS: u32 = 5;
/// The most records of one answer.
const PAGE: usize = 1000;

/// A running control plane.
#[derive(Debug)]
pub struct Daemon {
    config: Config,
    dry_run: bool,
    plane: Plane,
    store: Store,
    provider: Arc<dyn Provider>,
    clock: Clock,
    desk: Desk,
    links: BTreeMap<Connection, Sender<FromControl>>,
    revision: u64,
    /// Servers that a thread is busy with, and since when.
    busy: BTreeMap<usize, (Timestamp, bool)>,
    /// Steps that failed, and when they are tried again.
    again: BTreeMap<u64, Timestamp>,
    /// Since when servers that serve have not answered.
    silent: BTreeMap<usize, Timestamp>,
    looking: bool,
    without_sentries: BTreeSet<usize>,
    counts: Counts,
    to_self: Sender<Message>,
    inbox: Receiver<Message>,
    /// Where sentries connect to.
    address: SocketAddr,
}

/// What is counted since the start.
#[derive(Debug, Default)]
struct Counts {
    inputs: u64,
    steps: u64,
    failures: u64,
    reports: u64,
    refused: u64,
}

/// What the daemon is told.
#[derive(Debug)]
enum Message {
    Link(News),
    Applied(Step, Result<Option<Process>, ProviderError>),
    Looked(Vec<(usize, Presence)>),
    Ask(Question, oneshot::Sender<Value>),
    Stop,
}

/// What the admin API asks.
#[derive(Clone, Copy, Debug)]
pub enum Question {
    /// How everything is.
    State,
    /// What would be done now.
    Plan,
    /// What was decided after a record's number.
    Audit(u64),
}

/// Speaks with a running daemon.
#[derive(Clone, Debug)]
pub struct Handle(Sender<Message>);

/// Why a control plane does not start, or ends.
#[derive(Debug, Error)]
pub enum DaemonError {
    /// Its state cannot be read or written.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The provider cannot work.
    #[error(transparent)]
    Provider(#[from] ProviderError),
    /// It cannot listen.
    #[error("cannot listen for sentries on {address}: {source}")]
    Listen {
        /// Where.
        address: SocketAddr,
        /// What the system said.
        source: std::io::Error,
    },
}

impl Handle {
    /// Asks; `None` when the daemon has ended.
    pub async fn ask(&self, question: Question) -> Option<Value> {
        let (answer, answered) = oneshot::channel();
        self.0.send(Message::Ask(question, answer)).await.ok()?;
        answered.await.ok()
    }

    /// Ends the daemon; what it started goes on.
    pub async fn stop(&self) {
        // It may have ended.
        let _ = self.0.send(Message::Stop).await;
    }
}

impl Daemon {
    /// Opens the store, goes on from what is in it, and listens. A dry run has a store of its own and does nothing.
    ///
    /// # Errors
    /// When the store cannot be used, or the address not be listened on.
    pub async fn start(config: Config, dry_run: bool) -> Result<(Daemon, Handle), DaemonError> {
        let path = if dry_run { config.store.with_extension("dry.redb") } else { config.store.clone() };
        let now = wall();
        let mut store = Store::open(&path, now)?;
        let plane = store.plane(config.site.clone())?;
        let (clock, odd) = Clock::start(plane.now(), store.origin(), now);
        let provider: Arc<dyn Provider> =
            if dry_run { Arc::new(Pretend) } else { provider::build(&config.provider, store.id())? };
        let listener = TcpListener::bind(config.listen).await;
        let failed = |source| DaemonError::Listen { address: config.listen, source };
        let listener = listener.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let (to_self, inbox) = mpsc::channel(1024);
        let (news, mut told) = mpsc::channel(1024);
        tokio::spawn(link::listen(listener, config.key.clone(), news));
        let forward = to_self.clone();
        tokio::spawn(async move {
            while let Some(news) = told.recv().await {
                if forward.send(Message::Link(news)).await.is_err() {
                    return;
                }
            }
        });
        let applications: Vec<(String, usize)> =
            config.site.applications.iter().map(|a| (a.name.clone(), a.revenues.len())).collect();
        let known: Vec<Vec<String>> = (0..applications.len()).map(|at| plane.sentries(at).to_vec()).collect();
        let desk = Desk::new(applications, config.forget_after, &known, clock.now());
        let handle = Handle(to_self.clone());
        let mut daemon = Daemon {
            config,
            dry_run,
            plane,
            store,
            provider,
            clock,
            desk,
            links: BTreeMap::new(),
            revision: 0,
            busy: BTreeMap::new(),
            again: BTreeMap::new(),
            silent: BTreeMap::new(),
            looking: false,
            without_sentries: BTreeSet::new(),
            counts: Counts::default(),
            to_self,
            inbox,
            address,
        };
        let began = daemon.clock.now();
        daemon.input(Input::Began { now: began })?;
        if let Some(odd) = odd {
            daemon.note("clock", odd)?;
        }
        Ok((daemon, handle))
    }

    /// Where sentries connect to.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Runs until it is told to stop.
    ///
    /// # Errors
    /// When its state cannot be written: nothing is decided that would not survive.
    pub async fn run(mut self) -> Result<(), DaemonError> {
        let mut periods = tokio::time::interval(self.config.period);
        periods.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            self.carry_out();
            tokio::select! {
                _ = periods.tick() => self.period()?,
                message = self.inbox.recv() => match message {
                    Some(Message::Stop) | None => break,
                    Some(message) => self.take(message)?,
                },
            }
        }
        self.store.keep_state(&self.plane)?;
        Ok(())
    }

    fn take(&mut self, message: Message) -> Result<(), DaemonError> {
        match message {
            Message::Link(News::Opened(connection, sender)) => drop(self.links.insert(connection, sender)),
            Message::Link(News::Said(connection, said)) => self.said(connection, said)?,
            Message::Link(News::Closed(connection, why)) => self.closed(connection, &why)?,
            Message::Applied(step, result) => self.applied(&step, result)?,
            Message::Looked(seen) => self.looked(&seen)?,
            Message::Ask(question, answer) => {
                // Who asked may have gone.
                let _ = answer.send(self.answer(question)?);
            }
            Message::Stop => {}
        }
        Ok(())
    }

    fn said(&mut self, connection: Connection, said: FromSentry) -> Result<(), DaemonError> {
        let now = self.clock.now();
        match said {
            FromSentry::Hello(hello) => match self.desk.hello(now, connection, &hello) {
                Ok(()) => {
                    let period_ms = self.config.period.as_millis() as u64;
                    self.send(connection, FromControl::Welcome { period_ms });
                    self.note("sentry-registered", format!("{} speaks", hello.sentry))?;
                    self.follow_sentries()?;
                    self.tell();
                }
                Err(why) => {
                    self.counts.refused += 1;
                    self.note("sentry-refused", format!("{}: {why}", hello.sentry))?;
                    self.send(connection, FromControl::Refused { why });
                    self.links.remove(&connection);
                }
            },
            FromSentry::Report(report) => {
                self.counts.reports += 1;
                self.desk.report(now, connection, report);
            }
            FromSentry::Goodbye => {
                if let Some(name) = self.desk.goodbye(connection) {
                    self.note("sentry-left", format!("{name} stops on purpose"))?;
                    self.follow_sentries()?;
                    self.tell();
                }
                self.links.remove(&connection);
            }
        }
        Ok(())
    }

    fn closed(&mut self, connection: Connection, why: &str) -> Result<(), DaemonError> {
        self.links.remove(&connection);
        if let Some(name) = self.desk.lost(connection) {
            let kept = self.config.forget_after;
            self.note("sentry-cut-off", format!("{name}: {why}; its last report counts on, for at most {kept:?}"))?;
        }
        Ok(())
    }

    /// A period is over: what was offered, what is drained, who has gone, and what follows.
    fn period(&mut self) -> Result<(), DaemonError> {
        let now = self.clock.now();
        if let Some(jump) = self.clock.jump(wall()) {
            self.note("clock", jump)?;
        }
        for connection in self.desk.silent(now, self.config.period * SILENT_PERIODS + Duration::from_secs(1)) {
            self.closed(connection, "it says nothing any more")?;
        }
        for name in self.desk.forget(now) {
            self.note("sentry-forgotten", format!("{name} was not heard for too long; its servers go to the others"))?;
        }
        self.follow_sentries()?;
        let seconds = now.seconds_since(self.plane.last_period());
        let applications = 0..self.config.site.applications.len();
        let reports: Vec<_> = applications.clone().map(|at| self.desk.take_report(at, seconds)).collect();
        for at in applications.clone() {
            self.watch_for_sentries(at)?;
        }
        let sentries =
            applications.flat_map(|at| self.desk.cpus(at).into_iter().map(move |(sentry, cpu)| (at, sentry, cpu)));
        let sentries = sentries.collect();
        self.input(Input::Period { now, reports, sentries })?;
        self.drained()?;
        self.hanging()?;
        self.look();
        self.tell();
        Ok(())
    }

    /// The plane learns who the sentries are when that changes.
    fn follow_sentries(&mut self) -> Result<(), DaemonError> {
        for application in 0..self.config.site.applications.len() {
            let names = self.desk.names(application);
            if names != self.plane.sentries(application) {
                let now = self.clock.now();
                self.input(Input::Sentries { now, application, names })?;
            }
        }
        Ok(())
    }

    fn watch_for_sentries(&mut self, application: usize) -> Result<(), DaemonError> {
        let name = &self.config.site.applications[application].name;
        match (self.desk.names(application).is_empty(), self.without_sentries.contains(&application)) {
            (true, false) => {
                let text =
                    format!("{name} has no sentries: nothing is known of its load, and everything stays as it is");
                self.without_sentries.insert(application);
                self.note("no-sentries", text)
            }
            (false, true) => {
                self.without_sentries.remove(&application);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn drained(&mut self) -> Result<(), DaemonError> {
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
    fn hanging(&mut self) -> Result<(), DaemonError> {
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
    fn carry_out(&mut self) {
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

    fn applied(&mut self, step: &Step, result: Result<Option<Process>, ProviderError>) -> Result<(), DaemonError> {
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
    fn look(&mut self) {
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

    fn looked(&mut self, seen: &[(usize, Presence)]) -> Result<(), DaemonError> {
        self.looking = false;
        let now = self.clock.now();
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

    /// Tells sentries what they do not know yet.
    fn tell(&mut self) {
        if self.dry_run {
            return;
        }
        let names: Vec<String> = self.desk.sentries().map(|(name, _)| name.clone()).collect();
        for sentry in names {
            let Some(known) = self.desk.sentry_mut(&sentry) else { continue };
            let (Some(connection), at) = (known.connection, known.applications().to_vec()) else { continue };
            let applications: Vec<ApplicationOrders> = at.iter().map(|at| self.orders(*at, &sentry)).collect();
            let Some(known) = self.desk.sentry_mut(&sentry) else { continue };
            if known.told.as_ref().is_some_and(|(_, told)| same(told, &applications)) {
                continue;
            }
            self.revision += 1;
            known.told = Some(((self.store.term(), self.revision), applications.clone()));
            let orders = Orders { term: self.store.term(), revision: self.revision, applications };
            self.send(connection, FromControl::Orders(orders));
        }
    }

    fn orders(&self, application: usize, sentry: &str) -> ApplicationOrders {
        let server = |server: usize| ServerOrder { name: name(server), address: self.config.provider.address(server) };
        let coming = |(time, servers): (Duration, f64)| Coming { in_ms: time.as_millis() as u64, servers };
        ApplicationOrders {
            name: self.config.site.applications[application].name.clone(),
            servers: self.plane.servers_of(application, sentry).into_iter().map(server).collect(),
            target: target(&self.plane.target(application)),
            coming: self.plane.coming(application).into_iter().map(coming).collect(),
        }
    }

    /// One that lags too far is cut off, and told everything when it comes back.
    fn send(&mut self, connection: Connection, message: FromControl) {
        if self.links.get(&connection).is_some_and(|link| link.try_send(message).is_err()) {
            self.links.remove(&connection);
        }
    }

    fn news(&mut self, server: usize, news: ServerNews, reason: String) -> Result<(), DaemonError> {
        let now = self.clock.now();
        self.input(Input::Server { now, server, news, reason })
    }

    fn note(&mut self, kind: &str, reason: String) -> Result<(), DaemonError> {
        let now = self.clock.now();
        self.input(Input::Note { now, kind: kind.to_owned(), reason })
    }

    fn input(&mut self, input: Input) -> Result<(), DaemonError> {
        self.counts.inputs += 1;
        for record in self.store.handle(&mut self.plane, &input)? {
            eprintln!("tidegate: {}", line(&record));
        }
        Ok(())
    }

    fn answer(&self, question: Question) -> Result<Value, DaemonError> {
        Ok(match question {
            Question::State => self.state(),
            Question::Plan => json!(self.plane.plan()),
            Question::Audit(after) => Value::Array(self.store.audit(after, PAGE)?),
        })
    }

    fn state(&self) -> Value {
        let server = |(at, place): (usize, &Place)| {
            json!({
                "server": name(at),
                "address": self.config.provider.address(at),
                "place": place,
                "process": self.plane.process(at),
            })
        };
        let now = self.clock.now();
        let sentry = |(name, known): (&String, &crate::desk::Known)| {
            json!({
                "name": name,
                "connected": known.connection.is_some(),
                "heard_seconds_ago": now.seconds_since(known.heard),
                "applied": known.report.as_ref().map(|report| report.applied),
                "told": known.told.as_ref().map(|(number, _)| number),
            })
        };
        json!({
            "dry_run": self.dry_run,
            "term": self.store.term(),
            "revision": self.revision,
            "applications": self.plane.plan(),
            "servers": self.plane.places().iter().enumerate().map(server).collect::<Vec<_>>(),
            "sentries": self.desk.sentries().map(sentry).collect::<Vec<_>>(),
            "pending": self.plane.pending().collect::<Vec<_>>(),
            "counts": {
                "inputs": self.counts.inputs,
                "steps": self.counts.steps,
                "provider_failures": self.counts.failures,
                "reports": self.counts.reports,
                "sentries_refused": self.counts.refused,
            },
        })
    }
}

/// A record in a line.
pub fn line(record: &Value) -> String {
    let text = |key: &str| record[key].as_str().unwrap_or_default();
    let mut line = text("kind").to_owned();
    if let Some(application) = record["application"].as_str() {
        line.push_str(&format!(" {application}"));
    }
    if let Some(server) = record["server"].as_u64() {
        line.push_str(&format!(" server {server}"));
    }
    format!("{line}: {}", text("text"))
}

/// A server's name at sentries.
fn name(server: usize) -> String {
    format!("server-{server}")
}

fn target(sla: &Sla) -> TargetOrder {
    let step = |step: &tidegate_engine::Step| TargetStep {
        below: step.below.is_finite().then_some(step.below),
        target_ms: step.target.as_secs_f64() * 1e3,
    };
    TargetOrder { statistic: sla.statistic().name().to_owned(), steps: sla.steps().iter().map(step).collect() }
}

/// What is coming is told once; that it comes nearer is no news.
fn same(told: &[ApplicationOrders], now: &[ApplicationOrders]) -> bool {
    let alike = |(told, now): (&ApplicationOrders, &ApplicationOrders)| {
        let amounts =
            |orders: &ApplicationOrders| orders.coming.iter().map(|coming| coming.servers).collect::<Vec<_>>();
        told.name == now.name
            && told.servers == now.servers
            && told.target == now.target
            && amounts(told) == amounts(now)
    };
    told.len() == now.len() && told.iter().zip(now).all(alike)
}
