//! A listener as one worker has it, and the way from a connection's requests to the applications behind it.

use std::cell::{Cell, RefCell};
use std::net::{IpAddr, SocketAddr};
use std::ops::Deref;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tidegate_classify::RequestView;

use crate::config::{Asker, Listen};
use crate::gate::head::{Bad, HeadLimits};
use crate::in_force::InForce;
use crate::plan::{Front, Handshakes};
use crate::share::WorkerApp;
use crate::tls::Facts;

/// What a connection came in by. What concerns the connection is the affair of the listener's first application, which
/// this stands for: its buffers, its time between requests, the books on it. What concerns a request is the affair of
/// the one that it is for ([`Door::find`]).
#[derive(Debug)]
pub(crate) struct Door {
    home: Rc<WorkerApp>,
    entrance: Rc<Entrance>,
}

/// A worker's part of a listener, for as long as there are connections of it.
#[derive(Debug)]
struct Entrance {
    /// Which of its worker's.
    number: u16,
    /// All applications of this worker, in the order of the file.
    apps: Rc<[Rc<WorkerApp>]>,
    front: RefCell<Arc<Front>>,
    is_closed: Cell<bool>,
}

impl Door {
    /// The way in at a listener, the `number`-th of this worker's.
    pub(crate) fn new(number: u16, apps: &Rc<[Rc<WorkerApp>]>, front: Arc<Front>) -> Rc<Self> {
        let home = apps[front.home].clone();
        let (front, is_closed) = (RefCell::new(front), Cell::new(false));
        Rc::new(Door { home, entrance: Rc::new(Entrance { number, apps: apps.clone(), front, is_closed }) })
    }

    /// The same listener after a reload: the way in for new connections. Those that are there go on, and their requests
    /// go where they go now.
    pub(crate) fn renew(self: &Rc<Self>, front: Arc<Front>) -> Rc<Self> {
        let home = &self.entrance.apps[front.home];
        let door = match Rc::ptr_eq(home, &self.home) {
            true => self.clone(),
            false => Rc::new(Door { home: home.clone(), entrance: self.entrance.clone() }),
        };
        self.entrance.front.replace(front);
        door
    }

    /// The listener is gone: its connections close as they do when the sentry stops, and are cut off after `drain`.
    pub(crate) fn close(&self, drain: Duration) {
        self.entrance.is_closed.set(true);
        for app in &*self.entrance.apps {
            app.close_entrance(self.entrance.number, drain);
        }
    }

    /// Which of its worker's it is.
    pub(crate) fn number(&self) -> u16 {
        self.entrance.number
    }

    /// What comes before requests here.
    pub(crate) fn listen(&self) -> Listen {
        self.entrance.front.borrow().listen
    }

    /// Whether servers behind it are told of its clients' connections.
    pub(crate) fn tells_servers(&self) -> bool {
        self.entrance.front.borrow().tells_servers
    }

    /// Whether the connection with `peer` is to close after its next answer.
    pub(crate) fn is_closing(&self, peer: SocketAddr) -> bool {
        self.entrance.is_closed.get() || self.home.app.is_leaving(self.home.lately(), peer)
    }

    /// Whether no application here lets a client in, whatever it asks for.
    pub(crate) fn keeps_out(&self, client: IpAddr) -> bool {
        let front = self.entrance.front.borrow();
        let apps = &self.entrance.apps;
        match &front.sharing {
            None => apps[front.home].keeps_out(client),
            Some(sharing) => sharing.apps.iter().all(|at| apps[*at].keeps_out(client)),
        }
    }

    /// Whether a proxy asks an application here for others.
    pub(crate) fn is_asked_by(&self, asker: Asker) -> bool {
        let front = self.entrance.front.borrow();
        let apps = &self.entrance.apps;
        match &front.sharing {
            None => apps[front.home].is_asked_by(asker),
            Some(sharing) => sharing.apps.iter().any(|at| apps[*at].is_asked_by(asker)),
        }
    }

    /// Bounds on heads that hold whosever they are.
    pub(crate) fn head(&self) -> HeadLimits {
        let front = self.entrance.front.borrow();
        match &front.sharing {
            None => self.entrance.apps[front.home].local().live.head,
            Some(sharing) => sharing.head,
        }
    }

    /// The application that a request is for. `facts`: what its connection's handshake said.
    ///
    /// # Errors
    /// It is nobody's, does not belong on a connection with that handshake, or its client may not ask.
    pub(crate) fn find(&self, view: &impl RequestView, facts: Option<&Facts>) -> Result<&Rc<WorkerApp>, Bad> {
        let front = self.entrance.front.borrow();
        let Some(sharing) = &front.sharing else {
            let only = &self.entrance.apps[front.home];
            let belongs = facts.is_none_or(|facts| only.belongs(facts, view.host()));
            return match belongs {
                true if only.lets_in(view) => Ok(only),
                true => Err(Bad::ClientDenied),
                false => Err(Bad::Misdirected),
            };
        };
        let found = sharing.routes().find(view).map(|at| &self.entrance.apps[at]);
        if let Some(facts) = facts {
            // Who showed one application's authority a certificate, or none, has shown another's nothing.
            let was_asked = found.is_none_or(|app| app.asks() == facts.asked());
            if !was_asked || !found.unwrap_or(&self.home).belongs(facts, view.host()) {
                return Err(Bad::Misdirected);
            }
        }
        let found = found.ok_or(Bad::NoApplication)?;
        if found.lets_in(view) { Ok(found) } else { Err(Bad::ClientDenied) }
    }

    /// The application with whose rules to look at who asks for a name in a handshake, as it is in force.
    pub(crate) fn shakes_for(&self, name: Option<&str>) -> Arc<InForce> {
        let front = self.entrance.front.borrow();
        let of_name = front.sharing.as_ref().and_then(|sharing| sharing.shaker(name));
        self.entrance.apps[of_name.unwrap_or(front.home)].local().live.clone()
    }

    /// How many levels of importance there are in handshakes of this sentry.
    pub(crate) fn levels(&self) -> usize {
        self.entrance.front.borrow().levels
    }

    /// All applications of its worker.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(crate) fn apps(&self) -> &[Rc<WorkerApp>] {
        &self.entrance.apps
    }

    /// How to shake hands with who asks for a name; `None`: no TLS is spoken here.
    pub(crate) fn handshakes(&self, name: Option<&str>) -> Option<Handshakes> {
        let front = self.entrance.front.borrow();
        match &front.sharing {
            None => {
                let live = self.entrance.apps[front.home].local().live.clone();
                live.config.tls.as_ref().map(|tls| (tls.server.clone(), tls.asks))
            }
            Some(sharing) => sharing.handshakes(name, front.home).cloned(),
        }
    }
}

impl Deref for Door {
    type Target = Rc<WorkerApp>;

    /// The listener's first application.
    fn deref(&self) -> &Rc<WorkerApp> {
        &self.home
    }
}
