//! What a reload swaps: configuration, classifier, policer and the servers' addresses, always as one.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering::Relaxed};

use http::HeaderName;
use tidegate_classify::{AffinityBy, Classifier, ClassifierSetup, Paths, Reading, RequestView, TenantSource, reading};
use tidegate_engine::{ClassId, Controller, Policer, Request, ServerId, Status, Timestamp};

use crate::app::{AppError, Laid, Wanted};
use crate::blame::Blame;
use crate::config::{self, Asker, Place, ProxyOut, Spoken};
use crate::gate::head::HeadLimits;
use crate::headers::lines;
use crate::health::record::Checks;
use crate::reports::ledger::Ledger;
use crate::times::Times;
use crate::tls::client::ToServer;
use crate::tls::rank::Ranks;

/// An application's configuration in force. Workers hold it for as long as a request needs it.
#[derive(Debug)]
pub struct InForce {
    /// Counts up with every reload.
    pub generation: u64,
    /// Who asks for its clients, and sends their requests on, if it is not the clients who ask.
    pub(crate) behind: Option<Asker>,
    /// What the file says, with what lies over it: each server is at one address.
    pub config: config::Application,
    /// What the file says, with what was changed by hand.
    pub(crate) declared: config::Application,
    /// What is looked up and watched for it.
    pub(crate) wanted: Wanted,
    /// How servers are called whose addresses were found by name.
    hosts: HashMap<String, String>,
    /// From a request to its class and type.
    pub(crate) classifier: Classifier,
    /// The lock-free test.
    pub(crate) policer: Arc<Policer>,
    /// Bounds on request heads.
    pub(crate) head: HeadLimits,
    /// The fields that rules were decided on: `Connection` removes none of them.
    pub(crate) decisive: Vec<HeaderName>,
    /// Fields that nobody reads may pass as lines: the configuration names none of them.
    pub(crate) lines_pass: bool,
    exempt: Option<Classifier>,
    servers: Vec<Option<Arc<Server>>>,
    /// Response times per class.
    times: Vec<Arc<Times>>,
    /// Whose handshakes are important.
    pub(crate) ranks: Arc<Ranks>,
}

const NOT_DIVIDED: u32 = u32::MAX;

/// A server as the data path sees it. Survives a reload that keeps its name and address.
#[derive(Debug)]
pub struct Server {
    /// Its slot in the controller.
    pub id: ServerId,
    /// Its name.
    pub name: String,
    /// Where it is, perhaps behind a scheme.
    pub address: String,
    /// What it is called by who asks it: `host:port`, with the name by which it was found.
    pub(crate) at: String,
    /// How to speak TLS with it, or why it cannot be done; `None`: it speaks plain HTTP.
    pub(crate) tls: Option<Result<ToServer, String>>,
    /// It speaks HTTP/2.
    pub(crate) http2: bool,
    /// Where it is; `None`: nowhere, its address makes no sense.
    pub(crate) endpoint: Option<Endpoint>,
    /// Whether connections to it begin with a PROXY header.
    pub(crate) proxy: ProxyOut,
    /// Requests that failed for want of an answer.
    pub(crate) blame: Blame,
    /// What its health checks said.
    pub(crate) checks: Checks,
    health: AtomicU8,
    /// Its nucleus is silent, or says that nothing listens.
    excluded: AtomicBool,
    /// How many of its cores application work is to have; [`NOT_DIVIDED`]: nobody said.
    cores: AtomicU32,
    /// Which requests went over which connection, where its nucleus measures connections.
    pub(crate) ledger: Ledger,
}

/// Where a connection to a server goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Endpoint {
    /// To an address.
    Tcp(SocketAddr),
    /// To a Unix socket.
    Unix(PathBuf),
}

impl Endpoint {
    fn of(at: &str) -> Option<Endpoint> {
        match Place::of(at).ok()? {
            Place::Address(address) => Some(Endpoint::Tcp(address)),
            Place::Socket(path) => Some(Endpoint::Unix(path.to_owned())),
            Place::Host { .. } | Place::Service(_) | Place::Pods(_) | Place::Behind(_) => None,
        }
    }
}

/// What a server at a Unix socket is called by who asks it.
const HERE: &str = "localhost";

impl InForce {
    pub(crate) fn new(
        declared: config::Application,
        laid: Laid,
        controller: &Controller,
        generation: u64,
        before: Option<&InForce>,
    ) -> Result<Self, AppError> {
        let Laid { config, hosts, wanted } = laid;
        let (classifier, exempt) = compile(&config)?;
        let servers = servers(&config, &hosts, controller, before);
        let times = times(&config, before);
        let ranks = ranks(&config, before);
        let head = HeadLimits {
            bytes: config.limits.header_bytes,
            headers: config.limits.headers,
            body: config.limits.body_bytes,
            paths: config.paths,
        };
        let decisive = decisive(&config);
        let lines_pass = !names_a_line(&config);
        let policer = controller.policer();
        let behind = config.servers.iter().find_map(|server| Asker::of(&server.address));
        Ok(InForce {
            generation,
            behind,
            classifier,
            policer,
            head,
            decisive,
            lines_pass,
            exempt,
            servers,
            times,
            ranks,
            config,
            declared,
            wanted,
            hosts,
        })
    }

    /// What it was made of.
    pub(crate) fn laid(&self) -> Laid {
        Laid { config: self.config.clone(), hosts: self.hosts.clone(), wanted: self.wanted.clone() }
    }

    /// Whether `config` could be put in force.
    pub(crate) fn check(config: &config::Application) -> Result<(), AppError> {
        config.setup.check().map_err(|source| AppError::Setup { app: config.name.clone(), source })?;
        compile(config).map(|_| ())
    }

    /// Whether a request is one of the operator's own health checks, say: never policed.
    pub(crate) fn is_exempt(&self, view: &impl RequestView) -> bool {
        self.exempt.as_ref().is_some_and(|rules| rules.classify(view).class.index() == 0 && !self.is_ambiguous(view))
    }

    /// Its class and what else the engine needs to know.
    pub(crate) fn classify(&self, view: &impl RequestView) -> Request {
        if self.is_ambiguous(view) { self.classifier.classify_ambiguous(view) } else { self.classifier.classify(view) }
    }

    /// The same of a request that arrived at `at`, with what it says of its time and of its tries.
    pub(crate) fn classify_due(&self, view: &impl RequestView, at: Timestamp) -> Request {
        let deadline = self.classifier.time_left(view).map(|left| at + left);
        Request { deadline, is_retry: self.classifier.says_retry(view), ..self.classify(view) }
    }

    /// Whether its server may read another path than the rules.
    fn is_ambiguous(&self, view: &impl RequestView) -> bool {
        self.head.paths == Paths::AsIs && reading(view.path()) == Reading::Ambiguous
    }

    /// The server in a slot.
    pub fn server(&self, id: ServerId) -> Option<&Arc<Server>> {
        self.servers.get(id.index())?.as_ref()
    }

    /// Every server, by slot.
    pub fn servers(&self) -> impl Iterator<Item = &Arc<Server>> {
        self.servers.iter().flatten()
    }

    /// A server for a request that the controller does not dispatch: the `turn`-th that is up, or any.
    pub(crate) fn any_server(&self, turn: usize) -> Option<ServerId> {
        let up = self.servers().filter(|server| server.status() == Status::Up).count();
        let pick = |only_up: bool, count: usize| {
            let wanted = |server: &&Arc<Server>| !only_up || server.status() == Status::Up;
            self.servers().filter(wanted).nth(turn.checked_rem(count)?).map(|server| server.id)
        };
        if up > 0 { pick(true, up) } else { pick(false, self.servers().count()) }
    }

    /// Whether the last answers of half of a server's siblings, or more, were no errors; not so of one that has none.
    pub(crate) fn siblings_are_well(&self, server: &Server) -> bool {
        let up = self.servers().filter(|other| other.id != server.id && other.status() == Status::Up);
        let (well, all) = up.fold((0, 0), |(well, all), other| (well + usize::from(!other.blame.errs()), all + 1));
        all > 0 && 2 * well >= all
    }

    /// A class's response times; `None` for one that is no longer there.
    pub(crate) fn times(&self, class: ClassId) -> Option<&Times> {
        self.times.get(class.index()).map(|times| &**times)
    }

    /// A class's name.
    pub fn class_name(&self, class: ClassId) -> &str {
        self.config.setup.classes.get(class.index()).map_or("", |class| &class.name)
    }
}

impl Server {
    /// Its state: up only if both the health checks and its nucleus, where it has one, say so.
    pub fn status(&self) -> Status {
        match self.health() {
            Status::Up if self.excluded.load(Relaxed) => Status::Down,
            health => health,
        }
    }

    /// Its state by the health checks.
    pub fn health(&self) -> Status {
        match self.health.load(Relaxed) {
            0 => Status::Up,
            1 => Status::Down,
            _ => Status::Draining,
        }
    }

    pub(crate) fn set_health(&self, status: Status) {
        let word = match status {
            Status::Up => 0,
            Status::Down => 1,
            _ => 2,
        };
        self.health.store(word, Relaxed);
    }

    /// Whether its nucleus keeps it from getting requests.
    pub fn is_excluded(&self) -> bool {
        self.excluded.load(Relaxed)
    }

    pub(crate) fn set_excluded(&self, excluded: bool) {
        self.excluded.store(excluded, Relaxed);
    }

    /// How many of its cores the controller wants application work to have; `None`: it does not divide them.
    pub(crate) fn wanted_cores(&self) -> Option<u32> {
        Some(self.cores.load(Relaxed)).filter(|cores| *cores != NOT_DIVIDED)
    }

    pub(crate) fn want_cores(&self, cores: Option<u32>) {
        self.cores.store(cores.unwrap_or(NOT_DIVIDED), Relaxed);
    }
}

/// The names of all fields that a rule, affinity, or what tells tenants apart looks at.
fn decisive(config: &config::Application) -> Vec<HeaderName> {
    let classifier = &config.classifier;
    let of_types = classifier.request_types.iter().flat_map(|of_type| &of_type.rules);
    let rules = classifier.classes.iter().flatten().chain(of_types).chain(&config.exempt);
    let affinity = match &classifier.affinity {
        Some(AffinityBy::Header(name)) => Some(name),
        _ => None,
    };
    let tenant = match &classifier.tenants.source {
        TenantSource::Header(name) => Some(name),
        _ => None,
    };
    let names = rules.flat_map(|rule| rule.headers.iter().map(|header| &header.name)).chain(affinity).chain(tenant);
    names.filter_map(|name| HeaderName::from_bytes(name.as_bytes()).ok()).collect()
}

/// Whether a field is to be changed or removed on its way that might have passed as a line.
fn names_a_line(config: &config::Application) -> bool {
    let own = config.classifier.deadline.own.as_ref().map(|own| own.header.as_str());
    config.forwarded.identity.iter().map(HeaderName::as_str).chain(own).any(lines::may_pass)
}

fn compile(config: &config::Application) -> Result<(Classifier, Option<Classifier>), AppError> {
    let failed = |source| AppError::Classify { app: config.name.clone(), source };
    let classifier = Classifier::compile(&config.classifier).map_err(failed)?;
    if config.exempt.is_empty() {
        return Ok((classifier, None));
    }
    // Two classes: the exempt ones, and everything else.
    let setup = ClassifierSetup { classes: vec![config.exempt.clone(), Vec::new()], ..ClassifierSetup::default() };
    Ok((classifier, Some(Classifier::compile(&setup).map_err(failed)?)))
}

/// The histograms of classes, in their order; a class that was there before goes on with its own.
fn times(config: &config::Application, before: Option<&InForce>) -> Vec<Arc<Times>> {
    let kept = |name: &str| {
        let live = before?;
        let index = live.config.setup.classes.iter().position(|class| class.name == name)?;
        live.times.get(index).cloned()
    };
    config.setup.classes.iter().map(|class| kept(&class.name).unwrap_or_default()).collect()
}

/// What is remembered of clients, as long as classes mean the same.
fn ranks(config: &config::Application, before: Option<&InForce>) -> Arc<Ranks> {
    let same = before.filter(|live| live.config.class_names() == config.class_names());
    let kept = same.map(|live| live.ranks.clone());
    kept.unwrap_or_else(|| Arc::new(Ranks::new(config.setup.classes.len())))
}

/// The servers by slot. The controller names the slots; a server that was removed keeps its entry while it drains.
fn servers(
    config: &config::Application,
    hosts: &HashMap<String, String>,
    controller: &Controller,
    before: Option<&InForce>,
) -> Vec<Option<Arc<Server>>> {
    let slot = |state: &tidegate_engine::ServerState| {
        let old = before.and_then(|live| live.server(state.id)).filter(|old| old.name == state.name);
        let Some(new) = config.servers.iter().find(|server| server.name == state.name) else {
            let old = old?;
            old.set_health(Status::Draining);
            return Some(old.clone());
        };
        let (Spoken { tls, http2 }, at) = Spoken::of(&new.address);
        let endpoint = Endpoint::of(at);
        let at = match (hosts.get(&new.name), &endpoint) {
            (Some(host), _) => host,
            (None, Some(Endpoint::Unix(_))) => HERE,
            (None, _) => at,
        };
        let tls = tls.then(|| ToServer::new(config.server_tls.as_ref(), at, http2));
        let proxy = config.server_proxy;
        let is_same =
            |old: &&Arc<Server>| old.address == new.address && old.at == at && old.tls == tls && old.proxy == proxy;
        if let Some(old) = old.filter(is_same) {
            if old.health() == Status::Draining {
                old.set_health(Status::Up);
            }
            return Some(old.clone());
        }
        Some(Arc::new(Server {
            id: state.id,
            name: new.name.clone(),
            address: new.address.clone(),
            at: at.to_owned(),
            tls,
            http2,
            endpoint,
            proxy,
            blame: Blame::default(),
            checks: Checks::default(),
            health: AtomicU8::new(0),
            excluded: AtomicBool::new(false),
            cores: AtomicU32::new(NOT_DIVIDED),
            ledger: Ledger::default(),
        }))
    };
    controller.servers().iter().map(slot).collect()
}
