//! Where a sentry listens, and who is behind each listener: made of the configuration at the start and at every reload,
//! the same for all workers.

use std::collections::HashMap;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustls::ServerConfig;
use tidegate_classify::{Route, Routes, RuleProblem};

use crate::config::{Application, Listen, ProxyOut};
use crate::gate::head::HeadLimits;
use crate::sockets::{Sockets, listen_all, name};
use crate::tls::certificates::Certificates;

/// Every listener.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    /// Each once, in the order of the file.
    pub(crate) fronts: Vec<Arc<Front>>,
    /// Where each application listens, in its own order: places in `fronts`.
    of_apps: Vec<Vec<usize>>,
    /// How long connections may go on whose listener is gone.
    pub(crate) drain: Duration,
}

/// A listener, whatever sockets it has.
#[derive(Debug)]
pub(crate) struct Front {
    /// Which it is.
    pub(crate) place: Place,
    /// Where it listens, with the port that the system chose where it was left open.
    pub(crate) address: SocketAddr,
    /// What comes before requests.
    pub(crate) listen: Listen,
    /// The first application in the file that listens here: what concerns a connection is its affair.
    pub(crate) home: usize,
    /// Its name, which the sockets have for a successor.
    pub(crate) owner: String,
    /// Whether servers of any application behind it are told of connections.
    pub(crate) tells_servers: bool,
    /// The most classes that an application with TLS has: so many levels the handshakes of a worker have.
    pub(crate) levels: usize,
    /// `None`: every request is that application's.
    pub(crate) sharing: Option<Sharing>,
}

/// What makes a listener the same one after a reload: its address, or its Unix socket's file. Port 0 is a port of one's
/// own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Place {
    address: SocketAddr,
    socket: Option<&'static Path>,
    /// Whose port it is, and which of its own.
    own: Option<(usize, usize)>,
}

/// How requests are told apart whose listener is not one application's alone.
#[derive(Debug)]
pub(crate) struct Sharing {
    routes: Routes,
    /// Who they are.
    pub(crate) apps: Vec<usize>,
    /// The largest that any of them takes.
    pub(crate) head: HeadLimits,
    /// For handshakes, by application; `None`: it speaks no TLS.
    tls: Vec<Option<Handshakes>>,
}

/// What an application's handshakes need, and what is asked of clients by it ([`crate::config::Tls`]).
pub(crate) type Handshakes = (Arc<ServerConfig>, u64);

impl Plan {
    /// The plan that follows from a configuration, on `before`'s ports where they are the same listeners.
    ///
    /// # Errors
    /// A route that cannot be compiled.
    pub(crate) fn of(apps: &[Application], drain: Duration, before: &Plan) -> Result<Plan, (usize, RuleProblem)> {
        let mut plan = Plan { fronts: Vec::new(), of_apps: Vec::new(), drain };
        let mut places: Vec<(Place, Listen, Vec<usize>)> = Vec::new();
        for (number, app) in apps.iter().enumerate() {
            let mut of_app = Vec::new();
            let mut open = 0;
            for given in &app.listen {
                let is_open = given.address.port() == 0 && given.socket.is_none();
                let own = is_open.then_some((number, open));
                let place = Place { address: given.address, socket: given.socket.map(|file| file.path()), own };
                open += usize::from(is_open);
                let at = places.iter().position(|(other, ..)| *other == place).unwrap_or_else(|| {
                    places.push((place, *given, Vec::new()));
                    places.len() - 1
                });
                places[at].2.push(number);
                of_app.push(at);
            }
            plan.of_apps.push(of_app);
        }
        let with_tls = apps.iter().filter(|app| app.tls.is_some());
        let levels = with_tls.map(|app| app.setup.classes.len()).max().unwrap_or(1);
        for (place, listen, sharers) in places {
            let address = before.front(place).map_or(place.address, |front| front.address);
            let home = sharers[0];
            let is_alone = sharers.len() == 1 && apps[home].routing.routes.is_empty();
            let sharing =
                if is_alone { None } else { Some(Sharing::of(apps, &sharers).map_err(|problem| (home, problem))?) };
            let owner = apps[home].name.clone();
            let tells_servers = sharers.iter().any(|at| apps[*at].server_proxy != ProxyOut::Off);
            plan.fronts.push(Arc::new(Front { place, address, listen, home, owner, tells_servers, levels, sharing }));
        }
        Ok(plan)
    }

    /// The listener at a place.
    pub(crate) fn front(&self, place: Place) -> Option<&Arc<Front>> {
        self.fronts.iter().find(|front| front.place == place)
    }

    /// Where an application listens.
    pub(crate) fn addresses(&self, app: usize) -> Vec<SocketAddr> {
        self.of_app(app).map(|front| front.address).collect()
    }

    /// The same as listeners.
    pub(crate) fn of_app(&self, app: usize) -> impl Iterator<Item = &Arc<Front>> {
        self.of_apps.get(app).into_iter().flatten().map(|at| &self.fronts[*at])
    }

    /// The same plan with the addresses that its sockets have.
    fn settle(&mut self, harbour: &Harbour) {
        for front in &mut self.fronts {
            if let (Some(address), Some(front)) = (harbour.address(front.place), Arc::get_mut(front)) {
                front.address = address;
            }
        }
    }
}

impl Front {
    /// What a worker's socket is called.
    fn name(&self, worker: usize) -> String {
        match &self.listen.socket {
            Some(file) => name(&self.owner, file, worker),
            None => name(&self.owner, self.address, worker),
        }
    }
}

impl Sharing {
    fn of(apps: &[Application], sharers: &[usize]) -> Result<Sharing, RuleProblem> {
        let routes: Vec<(Route, usize)> =
            sharers.iter().flat_map(|at| apps[*at].routing.all().into_iter().map(|route| (route, *at))).collect();
        let routes = Routes::compile(routes.iter().map(|(route, at)| (route, *at)))?;
        let limits = || sharers.iter().map(|at| &apps[*at].limits);
        let head = HeadLimits {
            bytes: limits().map(|limits| limits.header_bytes).max().unwrap_or_default(),
            headers: limits().map(|limits| limits.headers).max().unwrap_or_default(),
            body: limits()
                .map(|limits| limits.body_bytes)
                .collect::<Option<Vec<_>>>()
                .and_then(|all| all.into_iter().max()),
            paths: apps[sharers[0]].paths,
        };
        let all = || sharers.iter().filter_map(|at| apps[*at].tls.as_ref());
        // What is offered must be spoken, whoever's handshake it is: by what the first speaks.
        let offered = all().next().map(|tls| tls.server.alpn_protocols.clone()).unwrap_or_default();
        let mut tls: Vec<Option<Handshakes>> = vec![None; apps.len()];
        for &at in sharers {
            tls[at] = apps[at].tls.as_ref().map(|own| {
                let mut config = ServerConfig::clone(&own.server);
                let others = all().flat_map(|other| other.keys.iter().cloned());
                config.cert_resolver = Arc::new(Certificates::among(own.keys.clone(), others));
                config.alpn_protocols = offered.clone();
                (Arc::new(config), own.asks)
            });
        }
        Ok(Sharing { routes, apps: sharers.to_vec(), head, tls })
    }

    /// Whose requests they are.
    pub(crate) fn routes(&self) -> &Routes {
        &self.routes
    }

    /// How to shake hands with who asks for a name; `home`'s way where that is nobody's.
    pub(crate) fn handshakes(&self, name: Option<&str>, home: usize) -> Option<&Handshakes> {
        self.tls.get(self.shaker(name).unwrap_or(home))?.as_ref()
    }

    /// Whose handshakes are those for a name; `None`: nobody's.
    pub(crate) fn shaker(&self, name: Option<&str>) -> Option<usize> {
        let of_name = self.routes.find_host(name?)?;
        self.tls.get(of_name)?.as_ref().map(|_| of_name)
    }
}

/// The sockets of all listeners: for each worker its own, one or more. They are here until a listener is gone, so that
/// another worker may take a stuck one's place, and another process the place of this one.
#[derive(Debug, Default)]
pub(crate) struct Harbour(Mutex<HashMap<Place, Vec<Vec<TcpListener>>>>);

/// An address that cannot be listened on.
pub(crate) struct Taken {
    /// The first application that listens there.
    pub(crate) app: usize,
    /// The address, or Unix socket.
    pub(crate) address: Listen,
    /// What the system says.
    pub(crate) source: io::Error,
}

impl Harbour {
    /// Opens what of `plan` is not open yet, for `workers`, with the sockets that were `given` where they are what it
    /// asks for: all of it or nothing. `plan` then has the ports.
    ///
    /// # Errors
    /// What the system says: address in use, not permitted, not ours.
    pub(crate) fn open(&self, plan: &mut Plan, workers: usize, given: &mut Sockets) -> Result<(), Taken> {
        let mut opened = Vec::new();
        for front in &plan.fronts {
            if self.sockets().contains_key(&front.place) {
                continue;
            }
            let failed = |source| Taken { app: front.home, address: front.listen, source };
            let sockets = listen_all(given, &front.owner, front.listen, workers).map_err(failed)?;
            opened.push((front.place, sockets));
        }
        self.sockets().extend(opened);
        plan.settle(self);
        Ok(())
    }

    /// Lets go of the sockets of all listeners that are not in `plan`. Who accepts there has its own.
    pub(crate) fn keep(&self, plan: &Plan) {
        self.sockets().retain(|place, _| plan.front(*place).is_some());
    }

    /// A worker's own copies of its sockets.
    ///
    /// # Errors
    /// When there are none, or no descriptors for them.
    pub(crate) fn sockets_of(&self, place: Place, post: usize) -> io::Result<Vec<TcpListener>> {
        let sockets = self.sockets();
        let own = sockets.get(&place).and_then(|workers| workers.get(post));
        own.ok_or(io::Error::from(io::ErrorKind::NotFound))?.iter().map(TcpListener::try_clone).collect()
    }

    /// Copies of all sockets of a listener.
    pub(crate) fn copies(&self, place: Place) -> Vec<TcpListener> {
        let sockets = self.sockets();
        sockets.get(&place).into_iter().flatten().flatten().filter_map(|socket| socket.try_clone().ok()).collect()
    }

    /// A table of the sockets of `plan`, for a successor.
    ///
    /// # Errors
    /// When there are no file descriptors left.
    pub(crate) fn table(&self, plan: &Plan) -> io::Result<Sockets> {
        let sockets = self.sockets();
        let mut table = Sockets::default();
        for front in &plan.fronts {
            for (worker, own) in sockets.get(&front.place).into_iter().flatten().enumerate() {
                for socket in own {
                    table.add(front.name(worker), socket.try_clone()?);
                }
            }
        }
        Ok(table)
    }

    fn address(&self, place: Place) -> Option<SocketAddr> {
        self.sockets().get(&place)?.iter().flatten().next()?.local_addr().ok()
    }

    fn sockets(&self) -> MutexGuard<'_, HashMap<Place, Vec<Vec<TcpListener>>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
