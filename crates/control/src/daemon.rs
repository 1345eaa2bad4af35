//! The daemon: moves news to the plane, steps to the provider, and orders to sentries.
//!
//! One task owns everything; connections, the provider's threads and the admin API send it messages. So there is one
//! order of inputs, and the journal has it.

mod log;
mod named;
mod provide;
mod record;
mod sentries;
mod show;
mod tell;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use thiserror::Error;
use tidegate_engine::Timestamp;
use tidegate_engine::provision::Place;
use tidegate_wire::control::FromControl;
use tokio::sync::mpsc::{Receiver, Sender};
use tokio::sync::oneshot;

use crate::backend::{Leader, Store, StoreError};
use crate::clock::{Clock, wall};
use crate::config::Config;
use crate::desk::{Connection, Desk};
use crate::link::News;
use crate::names::{Names, NamesError};
use crate::plane::{Input, Plane, Process, Step};
use crate::provider::{self, Presence, Pretend, Provider, ProviderError};

pub(crate) use provide::AtWork;
use record::Away;

/// A sentry that says nothing for so many periods is cut off.
const SILENT_PERIODS: u32 = 5;

/// The most messages that are taken before what follows from them is done.
const AT_ONCE: usize = 1000;

/// A control plane that leads.
#[derive(Debug)]
pub(crate) struct Daemon {
    config: Config,
    dry_run: bool,
    plane: Plane,
    store: Box<dyn Store>,
    provider: Arc<dyn Provider>,
    clock: Clock,
    /// What was odd about the time when it began.
    odd: Option<String>,
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
    /// Sentries that spoke first since what follows from it was done.
    arrived: Vec<String>,
    /// What follows from sentries that left is to be done.
    left: bool,
    /// Inputs that are written together.
    batch: Vec<Input>,
    /// The server that is looked at next, where there are too many to look at all.
    look_next: usize,
    away: Option<Away>,
    mailbox: Mailbox,
}

/// Where it is told things.
#[derive(Debug)]
pub(crate) struct Mailbox {
    pub(crate) to_self: Sender<Message>,
    pub(crate) inbox: Receiver<Message>,
    pub(crate) at_work: AtWork,
}

/// How it came to its end.
#[derive(Debug)]
pub(crate) enum Ended {
    /// It was told to stop.
    Stopped,
    /// Another control plane leads, or none: its mailbox goes on.
    Deposed(Mailbox, Option<Box<Leader>>),
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
pub(crate) enum Message {
    Link(News),
    /// What came of a step, begun in this term. `None`: it was not tried, for it was not sure any more whether this one
    /// leads.
    Applied(u64, Step, Option<Result<Option<Process>, ProviderError>>),
    /// How servers were, looked at in this term.
    Looked(u64, Vec<Seen>),
    Ask(Question, oneshot::Sender<Value>),
    Stop,
}

/// How a server was.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    server: usize,
    /// Where it was when it was asked.
    place: Place,
    presence: Presence,
}

impl From<News> for Message {
    fn from(news: News) -> Message {
        Message::Link(news)
    }
}

/// What the admin API asks.
#[derive(Clone, Copy, Debug)]
pub enum Question {
    /// Whether it leads, who does, and whether its store is there.
    Status,
    /// What is counted; nothing is planned for it.
    Metrics,
    /// How everything is.
    State,
    /// What would be done now.
    Plan,
    /// What was decided after a record's number.
    Audit(u64),
}

/// Speaks with a running daemon.
#[derive(Clone, Debug)]
pub struct Handle(pub(crate) Sender<Message>);

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
    /// Goes on from what is in the store.
    pub(crate) fn begin(
        config: Config,
        dry_run: bool,
        mut store: Box<dyn Store>,
        mailbox: Mailbox,
        links: BTreeMap<Connection, Sender<FromControl>>,
    ) -> Result<Daemon, DaemonError> {
        let plane = store.plane(config.site.clone())?;
        Daemon::go_on(config, dry_run, store, plane, mailbox, links)
    }

    /// Goes on from the plane that was in the store, with connections that have not said anything yet.
    pub(crate) fn go_on(
        config: Config,
        dry_run: bool,
        store: Box<dyn Store>,
        plane: Plane,
        mailbox: Mailbox,
        links: BTreeMap<Connection, Sender<FromControl>>,
    ) -> Result<Daemon, DaemonError> {
        let (clock, odd) = Clock::start(plane.now(), store.origin(), wall());
        let provider: Arc<dyn Provider> =
            if dry_run { Arc::new(Pretend) } else { provider::build(&config.provider, store.id())? };
        provider.adopt(&provide::adopted(&plane));
        let applications: Vec<(String, usize)> =
            config.site.applications.iter().map(|a| (a.name.clone(), a.revenues.len())).collect();
        let known: Vec<Vec<String>> = (0..applications.len()).map(|at| plane.sentries(at).to_vec()).collect();
        let desk = Desk::new(applications, config.forget_after, &known, clock.now());
        let mut daemon = Daemon {
            config,
            dry_run,
            plane,
            store,
            provider,
            clock,
            odd,
            desk,
            links,
            names: None,
            revision: 0,
            busy: BTreeMap::new(),
            again: BTreeMap::new(),
            silent: BTreeMap::new(),
            looking: false,
            without_sentries: BTreeSet::new(),
            counts: Counts::default(),
            arrived: Vec::new(),
            left: false,
            batch: Vec::new(),
            look_next: 0,
            away: None,
            mailbox,
        };
        daemon.answer_names()?;
        Ok(daemon)
    }

    /// Runs until it is told to stop, or does not lead any more.
    ///
    /// # Errors
    /// When its state cannot be written: nothing is decided that would not survive.
    pub(crate) async fn run(mut self) -> Result<Ended, DaemonError> {
        match self.serve().await {
            Ok(()) => {}
            Err(DaemonError::Store(StoreError::Deposed { leader })) => return Ok(Ended::Deposed(self.mailbox, leader)),
            Err(error) => return Err(error),
        }
        match self.store.keep_state(&self.plane) {
            // The journal has everything.
            Ok(()) | Err(StoreError::Away(_) | StoreError::Deposed { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        self.store.resign();
        Ok(Ended::Stopped)
    }

    async fn serve(&mut self) -> Result<(), DaemonError> {
        // Here and not before: it may have been deposed by now, which is no reason to end.
        self.input(Input::Began { now: self.clock.now() })?;
        if let Some(odd) = self.odd.take() {
            self.note("clock", odd)?;
        }
        let mut periods = tokio::time::interval(self.config.period);
        periods.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            self.carry_out();
            tokio::select! {
                _ = periods.tick() => self.period()?,
                message = self.mailbox.inbox.recv() => {
                    let mut next = message;
                    for _ in 0..AT_ONCE {
                        match next {
                            Some(Message::Stop) | None => return self.settle(),
                            Some(message) => self.take(message)?,
                        }
                        // What came at the same time is settled together.
                        match self.mailbox.inbox.try_recv() {
                            Ok(message) => next = Some(message),
                            Err(_) => break,
                        }
                    }
                    self.settle()?;
                }
            }
        }
    }

    fn take(&mut self, message: Message) -> Result<(), DaemonError> {
        match message {
            Message::Link(News::Opened(connection, sender)) => drop(self.links.insert(connection, sender)),
            Message::Link(News::Said(connection, said)) => self.said(connection, said)?,
            Message::Link(News::Closed(connection, why)) => self.closed(connection, &why),
            // Of a time when this one led before: others have gone on since, or this one has begun it anew.
            Message::Applied(term, ..) | Message::Looked(term, _) if term != self.store.term() => {}
            Message::Applied(_, step, Some(result)) => self.applied(&step, result)?,
            Message::Applied(_, step, None) => drop(self.busy.remove(&step.server)),
            Message::Looked(_, seen) => self.looked(&seen)?,
            Message::Ask(question, answer) => {
                // Who asked may have gone.
                let _ = answer.send(self.answer(question));
            }
            Message::Stop => {}
        }
        Ok(())
    }

    /// A period is over: what was offered, what is drained, who has gone, and what follows.
    fn period(&mut self) -> Result<(), DaemonError> {
        let now = self.clock.now();
        self.back_again()?;
        if let Some(jump) = self.clock.jump(wall()) {
            self.note("clock", jump)?;
        }
        for connection in self.desk.silent(now, self.config.period * SILENT_PERIODS + Duration::from_secs(1)) {
            self.closed(connection, "it says nothing any more");
        }
        if self.away.is_some() {
            self.write_batch()?;
            self.shake();
            self.tell();
            return Ok(());
        }
        for name in self.desk.forget(now) {
            self.note_later(
                "sentry-forgotten",
                format!("{name} was not heard for too long; its servers go to the others"),
            );
        }
        self.write_batch()?;
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
}

/// A server's name at sentries.
fn name(server: usize) -> String {
    format!("server-{server}")
}

#[cfg(test)]
mod tests;
