//! A control plane of a site: it leads, or stands by.
//!
//! *Intuition.* With a file as its store it leads from the beginning to the end. With a cluster's API server
//! it stands for election again and again; elected, it reads what the one before it wrote and goes on as after a
//! kill -9; deposed, it forgets all of that and waits again. The address that sentries connect to stays: while it
//! waits they are told who leads.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use serde_json::{Value, json};
use tidegate_wire::control::{FromControl, FromSentry};
use tokio::net::TcpListener;
use tokio::sync::mpsc::{self, Sender};
use tokio::time::sleep;
use tracing::{info, warn};

use crate::backend::{self, Backend, Contact, Leader, Store, StoreError, Turn};
use crate::clock::wall;
use crate::config::Config;
use crate::daemon::{AtWork, Daemon, DaemonError, Ended, Handle, Mailbox, Message, Question};
use crate::desk::Connection;
use crate::link::{self, News};

/// A control plane that runs.
#[derive(Debug)]
pub struct Member {
    config: Config,
    dry_run: bool,
    address: SocketAddr,
    role: Role,
}

#[derive(Debug)]
enum Role {
    Leads(Box<Daemon>),
    Waits(Box<Standby>),
}

/// One that waits for its turn.
#[derive(Debug)]
struct Standby {
    backend: Arc<dyn Backend>,
    contact: Contact,
    mailbox: Mailbox,
    links: BTreeMap<Connection, Sender<FromControl>>,
    leader: Option<Leader>,
    problem: Option<String>,
}

impl Member {
    /// Listens, and with a file as its store goes on from what is in it. A dry run has a file of its own and does
    /// nothing.
    ///
    /// # Errors
    /// When the store cannot be used, or the address not be listened on.
    pub async fn start(config: Config, dry_run: bool) -> Result<(Member, Handle), DaemonError> {
        let failed = |source| DaemonError::Listen { address: config.listen, source };
        let backend = backend::at(&config.store_of(dry_run))?;
        // Before anything is listened on: a store that is held is what a second start is told of.
        let store = backend.open_alone(wall())?;
        let listener = TcpListener::bind(config.listen).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let (to_self, inbox) = mpsc::channel(1024);
        let keys = link::follow_keys(&config);
        tokio::spawn(link::listen(listener, keys, to_self.clone()));
        let handle = Handle(to_self.clone());
        let mailbox = Mailbox { to_self, inbox, at_work: AtWork::default() };
        let role = match store {
            Some(store) => {
                let daemon = Daemon::begin(config.clone(), dry_run, store, mailbox, BTreeMap::new())?;
                Role::Leads(Box::new(daemon))
            }
            None => Role::Waits(Box::new(Standby::new(backend, &config, address, mailbox))),
        };
        Ok((Member { config, dry_run, address, role }, handle))
    }

    /// Where sentries connect to.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where DNS queries are answered, while it leads.
    pub fn names_address(&self) -> Option<SocketAddr> {
        match &self.role {
            Role::Leads(daemon) => daemon.names_address(),
            Role::Waits(_) => None,
        }
    }

    /// Runs until it is told to stop.
    ///
    /// # Errors
    /// When its state cannot be read or written: nothing is decided that would not survive.
    pub async fn run(self) -> Result<(), DaemonError> {
        let Member { config, dry_run, address, mut role } = self;
        loop {
            role = match role {
                Role::Waits(mut standby) => match standby.wait().await {
                    None => return Ok(()),
                    Some(store) => standby.lead(&config, dry_run, store)?,
                },
                Role::Leads(daemon) => match daemon.run().await? {
                    Ended::Stopped => return Ok(()),
                    Ended::Deposed(mailbox, leader) => {
                        let by = leader.as_ref().map_or(String::new(), |leader| format!("; {} does", leader.name));
                        warn!("deposed: this control plane does not lead any more{by}");
                        let backend = backend::at(&config.store_of(dry_run))?;
                        let mut standby = Standby::new(backend, &config, address, mailbox);
                        standby.leader = leader.map(|leader| *leader);
                        Role::Waits(Box::new(standby))
                    }
                },
            }
        }
    }
}

impl Standby {
    fn new(backend: Arc<dyn Backend>, config: &Config, address: SocketAddr, mailbox: Mailbox) -> Standby {
        let admin = config.admin.map(|admin| admin.to_string());
        let contact = Contact { listen: address.to_string(), admin };
        Standby { backend, contact, mailbox, links: BTreeMap::new(), leader: None, problem: None }
    }

    /// Waits until this one is elected; `None`: it is told to stop.
    async fn wait(&mut self) -> Option<Box<dyn Store>> {
        loop {
            let (backend, contact) = (self.backend.clone(), self.contact.clone());
            let standing = tokio::task::spawn_blocking(move || backend.stand(&contact, wall()));
            match self.meanwhile(standing).await? {
                Ok(Ok(Turn::Mine(store))) => return Some(store),
                Ok(Ok(Turn::Others(leader))) => self.follows(leader),
                Ok(Err(error)) => self.is_lost(&error),
                Err(_) => {}
            }
            self.meanwhile(sleep(self.backend.look_every())).await?;
        }
    }

    /// Goes on from what the one before this one wrote; waits on when the store is gone again.
    fn lead(self: Box<Self>, config: &Config, dry_run: bool, mut store: Box<dyn Store>) -> Result<Role, DaemonError> {
        let term = store.term();
        info!(term, "elected: this control plane leads, in term {term}");
        let plane = match store.plane(config.site.clone()) {
            Ok(plane) => plane,
            Err(error) => return self.not_yet(error),
        };
        let Standby { mailbox, links, .. } = *self;
        let daemon = Daemon::go_on(config.clone(), dry_run, store, plane, mailbox, links)?;
        Ok(Role::Leads(Box::new(daemon)))
    }

    fn not_yet(mut self: Box<Self>, error: StoreError) -> Result<Role, DaemonError> {
        match error {
            StoreError::Away(_) | StoreError::Deposed { .. } => {
                warn!("not-elected: {error}");
                self.problem = Some(error.to_string());
                Ok(Role::Waits(self))
            }
            error => Err(error.into()),
        }
    }

    /// Answers whoever speaks until `done` is; `None`: it is told to stop.
    async fn meanwhile<T>(&mut self, done: impl Future<Output = T>) -> Option<T> {
        tokio::pin!(done);
        loop {
            tokio::select! {
                value = &mut done => return Some(value),
                message = self.mailbox.inbox.recv() => match message {
                    None | Some(Message::Stop) => return None,
                    Some(message) => self.take(message),
                },
            }
        }
    }

    fn take(&mut self, message: Message) {
        match message {
            Message::Link(News::Opened(connection, sender)) => drop(self.links.insert(connection, sender)),
            Message::Link(News::Said(connection, FromSentry::Hello(_))) => {
                if let Some(link) = self.links.remove(&connection) {
                    // It is gone already, else.
                    let _ = link.try_send(FromControl::Refused { why: self.who_leads(), waits: true });
                }
            }
            Message::Link(News::Said(..)) => {}
            Message::Link(News::Closed(connection, _)) => drop(self.links.remove(&connection)),
            Message::Ask(question, answer) => {
                // Who asked may have gone.
                let _ = answer.send(self.answer(question));
            }
            // Of a time when this one led.
            Message::Applied(..) | Message::Looked(..) | Message::Stop => {}
        }
    }

    fn answer(&self, question: Question) -> Value {
        match question {
            Question::Status | Question::State | Question::Metrics => json!({
                "role": "waits",
                "leader": self.leader,
                "store_away": self.problem,
            }),
            Question::Plan | Question::Audit(_) => Value::Null,
        }
    }

    fn who_leads(&self) -> String {
        match &self.leader {
            Some(leader) => format!("this control plane waits; {} at {} leads", leader.name, leader.listen),
            None => String::from("this control plane waits, and none leads now"),
        }
    }

    fn follows(&mut self, leader: Leader) {
        self.problem = None;
        if self.leader.as_ref() != Some(&leader) {
            let Leader { name, listen, term, .. } = &leader;
            info!(leader = name, listen, term, "waits: {name} at {listen} leads, in term {term}");
            self.leader = Some(leader);
        }
    }

    fn is_lost(&mut self, error: &StoreError) {
        let why = error.to_string();
        // Its details may change with every try.
        if self.problem.is_none() {
            warn!("store-away: {why}; it is tried again");
        }
        (self.leader, self.problem) = (None, Some(why));
    }
}
