//! The daemon: moves news to the plane, steps to the provider, and orders to sentries.
//!
//! One task owns everything; connections, the provider's threads and the admin API send it messages. So there is one
//! order of inputs, and the journal has it.
//!
//! | file | question |
//! |---|---|
//! | `ledger.rs` | what is decided, written first; what while the store is away |
//! | `log.rs` | how records are logged |
//! | `sentries.rs`, `tell.rs` | who the sentries are; what they are told |
//! | `steps.rs` | which steps are under way |
//! | `looks.rs` | how servers are |
//! | `named.rs` | which names stand for whom |
//! | `show.rs` | what is shown |

mod ledger;
mod log;
mod looks;
mod named;
mod sentries;
mod show;
mod steps;
mod tell;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use serde_json::Value;
use thiserror::Error;
use tidegate_wire::control::FromControl;
use tokio::sync::mpsc::{Receiver, Sender};
use tokio::sync::oneshot;

use crate::backend::{Leader, Store, StoreError};
use crate::config::Config;
use crate::desk::{Connection, Desk};
use crate::link::News;
use crate::names::NamesError;
use crate::plane::{Input, Plane, Process, Step, Unit};
use crate::provider::{Provider, ProviderError, Providers};

use ledger::Ledger;
use looks::{Looks, Seen};
use named::Named;
use sentries::Sentries;
pub(crate) use steps::AtWork;
use steps::{Steps, adopted};

/// A sentry that says nothing for so many periods is cut off.
const SILENT_PERIODS: u32 = 5;

/// The most messages that are taken before what follows from them is done.
const AT_ONCE: usize = 1000;

/// A control plane that leads.
#[derive(Debug)]
pub(crate) struct Daemon {
    config: Config,
    dry_run: bool,
    ledger: Ledger,
    providers: Providers,
    steps: Steps,
    looks: Looks,
    sentry_looks: Looks,
    sentries: Sentries,
    names: Named,
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

/// What the daemon is told.
#[derive(Debug)]
pub(crate) enum Message {
    Link(News),
    /// What came of a step, begun in this term. `None`: it was not tried, for it was not sure any more whether this one
    /// leads.
    Applied(u64, Step, Option<Result<Option<Process>, ProviderError>>),
    /// How servers, or sentries at posts, were, looked at in this term.
    Looked(u64, Unit, Vec<Seen>),
    Ask(Question, oneshot::Sender<Value>),
    Stop,
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
        /// The address that it cannot listen on.
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
        let providers = if dry_run { Providers::pretend() } else { Providers::build(&config, store.id())? };
        [Unit::Server, Unit::Sentry].into_iter().for_each(|unit| providers.of(unit).adopt(&adopted(&plane, unit)));
        let ledger = Ledger::new(store, plane);
        let applications = &config.site.applications;
        let known: Vec<Vec<String>> = (0..applications.len()).map(|at| ledger.plane().sentries(at).to_vec()).collect();
        let applications = applications.iter().map(|a| (a.name.clone(), a.revenues.len())).collect();
        let mut desk = Desk::new(applications, config.forget_after, &known, ledger.now());
        // A dry run answers nobody.
        let names = Named::begin(config.dns.as_ref().filter(|_| !dry_run), &ledger, &mut desk)?;
        let sentries = Sentries::new(desk, links, config.forget_after);
        let (looks, sentry_looks) = (Looks::new(Unit::Server), Looks::new(Unit::Sentry));
        let steps = Steps::default();
        Ok(Daemon { config, dry_run, ledger, providers, steps, looks, sentry_looks, sentries, names, mailbox })
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
        self.ledger.close()?;
        Ok(Ended::Stopped)
    }

    /// Where DNS queries are answered.
    pub(crate) fn names_address(&self) -> Option<SocketAddr> {
        self.names.address()
    }

    async fn serve(&mut self) -> Result<(), DaemonError> {
        // Here and not before: it may have been deposed by now, which is no reason to end.
        self.ledger.begin()?;
        let mut periods = tokio::time::interval(self.config.period);
        periods.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            self.steps.carry_out(&self.ledger, &self.providers, &self.mailbox);
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
            Message::Link(News::Opened(connection, link)) => self.sentries.opened(connection, link),
            Message::Link(News::Said(connection, said)) => {
                self.sentries.said(&mut self.ledger, self.config.period, connection, said)?;
            }
            Message::Link(News::Closed(connection, why)) => self.sentries.closed(&mut self.ledger, connection, &why),
            // Of a time when this one led before: others have gone on since, or this one has begun it anew.
            Message::Applied(term, ..) | Message::Looked(term, ..) if term != self.ledger.term() => {}
            Message::Applied(_, step, result) => self.steps.applied(&mut self.ledger, &step, result)?,
            Message::Looked(_, unit, seen) => self.looked(unit, &seen)?,
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
        let Daemon { config, ledger, sentries, .. } = self;
        let now = ledger.now();
        ledger.back_again()?;
        ledger.watch_clock()?;
        sentries.cut_off_silent(ledger, now, config.period * SILENT_PERIODS + Duration::from_secs(1));
        sentries.greet();
        if ledger.is_away() {
            ledger.write_batch()?;
            if ledger.shake() {
                sentries.let_go();
            }
            self.tell();
            return Ok(());
        }
        sentries.forget(ledger, now);
        ledger.write_batch()?;
        self.follow_sentries()?;
        let Daemon { ledger, sentries, .. } = self;
        let reports = sentries.take_reports(now.seconds_since(ledger.plane().last_period()));
        sentries.watch_for_none(ledger)?;
        ledger.input(Input::Period { now, reports, sentries: sentries.cpus(ledger.plane()) })?;
        sentries.watch_drains(ledger, self.dry_run)?;
        self.steps.watch(ledger)?;
        self.looks.look(ledger, self.providers.of(Unit::Server), &self.mailbox.to_self);
        self.sentry_looks.look(ledger, self.providers.of(Unit::Sentry), &self.mailbox.to_self);
        if !ledger.plane().posts().is_empty() {
            // Who is to leave from now on is in no answer any more.
            self.names.follow(ledger, &self.sentries.desk)?;
        }
        self.tell();
        Ok(())
    }

    /// What follows when sentries came and left.
    fn settle(&mut self) -> Result<(), DaemonError> {
        self.ledger.write_batch()?;
        if self.sentries.settle(&mut self.ledger)? {
            self.follow_sentries()?;
            self.tell();
        }
        Ok(())
    }

    /// The plane and the names learn who the sentries are.
    fn follow_sentries(&mut self) -> Result<(), DaemonError> {
        // First who stands at posts: else they would count as somebody else's.
        let provider = self.providers.of(Unit::Sentry);
        self.sentries.watch_posts(&mut self.ledger, |post| provider.name(post))?;
        self.sentries.register(&mut self.ledger)?;
        Ok(self.names.follow(&mut self.ledger, &self.sentries.desk)?)
    }

    /// What follows from how servers, or sentries at posts, were.
    fn looked(&mut self, unit: Unit, seen: &[Seen]) -> Result<(), DaemonError> {
        // Nobody speaks with a dry run.
        let desk = (!self.dry_run).then_some(&self.sentries.desk);
        let (looks, provider) = match unit {
            Unit::Server => (&mut self.looks, Some(&self.config.provider)),
            Unit::Sentry => (&mut self.sentry_looks, self.config.sentries.as_ref()),
        };
        let patience = provider.map_or(Duration::MAX, |provider| provider.check().hung_after);
        if looks.looked(&mut self.ledger, self.providers.of(unit), seen, patience, desk)? {
            self.tell();
        }
        Ok(())
    }

    /// Tells sentries what they do not know yet.
    fn tell(&mut self) {
        if self.dry_run {
            return;
        }
        let address = |server: usize| address(&self.config, &**self.providers.of(Unit::Server), server);
        self.sentries.tell(&self.ledger, &address);
    }
}

/// Where a server listens; `None` while it is nowhere.
fn address(config: &Config, provider: &dyn Provider, server: usize) -> Option<String> {
    config.provider.address(server).or_else(|| provider.address(server))
}

/// A server's name at sentries.
fn name(server: usize) -> String {
    format!("server-{server}")
}

#[cfg(test)]
mod tests;
