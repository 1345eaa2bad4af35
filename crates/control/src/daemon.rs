//! The daemon: moves news to the plane, steps to the provider, and orders to sentries.
//!
//! One task owns everything; connections, the provider's threads and the admin API send it messages. So there is one
//! order of inputs, and the journal has it.

mod named;
mod provide;
mod show;
mod tell;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use thiserror::Error;
use tidegate_engine::Timestamp;
use tidegate_engine::provision::ServerNews;
use tidegate_wire::control::{FromControl, FromSentry};
use tokio::net::TcpListener;
use tokio::sync::mpsc::{self, Receiver, Sender};
use tokio::sync::oneshot;

use crate::clock::{Clock, wall};
use crate::config::Config;
use crate::desk::{Connection, Desk};
use crate::link::{self, News};
use crate::names::{Names, NamesError};
use crate::plane::{Input, Plane, Process, Step};
use crate::provider::{self, Presence, Pretend, Provider, ProviderError};
use crate::store::{Store, StoreError};

pub use show::line;

/// A sentry that says nothing for so many periods is cut off.
const SILENT_PERIODS: u32 = 5;

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
    names: Option<Names>,
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
    /// It cannot answer DNS queries.
    #[error(transparent)]
    Names(#[from] NamesError),
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
        provider.adopt(&provide::adopted(&plane));
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
            names: None,
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
        daemon.answer_names()?;
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
        self.follow_names()
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
        self.follow_names()
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
}

/// A server's name at sentries.
fn name(server: usize) -> String {
    format!("server-{server}")
}
