//! From what was typed to what it means: defaults, checks between keys, addresses and files looked up.

mod acme;
mod address;
mod asker;
mod cluster;
mod control;
mod due;
mod headers;
mod health;
mod mirror;
mod peers;
mod profile;
mod reports;
mod routing;
mod rules;
mod server_files;
mod settings;
mod syn;
mod tenants;
mod tls;
mod upgrade;
mod world;

use std::collections::HashSet;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use tidegate_config::{At, List, Report};
use tidegate_engine::{
    AdmissionConfig, ClassSetup, DispatchConfig, Role, ServerSetup, Setup, SetupError, SetupPlace, WhenAllDown,
};

use super::raw::{RawApplication, RawConfig, RawServer, RawServerTable};
use super::{AccessLog, Admin, Application, Asker, Config, Listen, ProxyOut, SentryConfig, Server, ServerFile};

use profile::Profile;
use server_files::in_files;
#[cfg(any(test, feature = "fuzzing"))]
pub(super) use world::NoWorld;
pub(super) use world::{RealWorld, World};

/// What is not in the file and is looked up, and where problems go.
pub(super) struct Resolver<'w, 'r, 't> {
    world: &'w dyn World,
    report: &'r mut Report<'t>,
    /// Everything typed could be read. Otherwise what seems to be missing may be what could not be read.
    complete: bool,
    /// A control plane says which servers there are.
    is_governed: bool,
}

/// The place of a whole file.
const WHOLE: Range<usize> = 0..0;

impl<'w, 'r, 't> Resolver<'w, 'r, 't> {
    pub(super) fn new(world: &'w dyn World, report: &'r mut Report<'t>) -> Self {
        let complete = !report.has_errors();
        Resolver { world, report, complete, is_governed: false }
    }

    /// The configuration; only to be used when nothing was reported.
    pub(super) fn config(&mut self, raw: RawConfig, source: Option<PathBuf>) -> Config {
        let raw_sentry = raw.sentry.map(|s| s.value).unwrap_or_default();
        let sentry = SentryConfig {
            workers: self.count("workers", raw_sentry.workers, self.world.cores(), 1..=1024),
            drain: raw_sentry.drain.map_or(Duration::from_secs(30), |drain| drain.value.0),
            resolvers: raw_sentry.resolvers.map_or_else(Vec::new, |list| self.resolvers(list)),
        };
        let access_log = access_log(raw.access_log);
        self.is_governed = raw.control.is_some();
        let raw_applications = raw.application.map(|list| list.value.0).unwrap_or_default();
        if raw_applications.is_empty() {
            self.missing(&WHOLE, "there is nothing to protect; add [[application]] with servers = [\"host:port\"]");
        }
        self.unique("application", raw_applications.iter().filter_map(|a| a.value.name.as_ref()));
        let listens = self.listens(&raw_applications, raw.admin.as_ref());
        let admin = raw.admin.map_or_else(Admin::default, |admin| self.admin(admin));
        let several = raw_applications.len() > 1;
        for nameless in raw_applications.iter().filter(|app| several && app.value.name.is_none()) {
            self.missing(&nameless.span, "one of several applications needs a name; add name = \"...\"");
        }
        let places: Vec<_> = raw_applications.iter().map(routing::Places::of).collect();
        let applications = raw_applications.into_iter().zip(listens);
        let applications: Vec<_> = applications.map(|(raw, listen)| self.application(raw, listen)).collect();
        self.sharing(&applications, &places);
        let reports = raw.reports.and_then(|reports| self.reports(reports));
        let peers = raw.peers.and_then(|peers| self.peers(peers));
        let ends = self.ends(raw.ends, &applications);
        let traces = raw.traces.and_then(|traces| self.traces(traces));
        let control = raw.control.and_then(|control| self.control(control));
        let upgrade = self.upgrade(raw.upgrade);
        Config { sentry, admin, reports, peers, ends, traces, control, access_log, upgrade, applications, source }
    }

    fn application(&mut self, raw: At<RawApplication>, listen: Vec<Listen>) -> Application {
        let (span, raw) = (raw.span, raw.value);
        let blame = Blame::of(&raw, &span);
        let name = self.name(raw.name);
        let profile = self.profile(raw.profile);
        let stated = span_of(&raw.target).or_else(|| span_of(&raw.sla));
        let sla = tidegate_config::sla(raw.target, raw.sla, self.complete, self.report);
        let sla = self.sla_beside(sla, stated, profile.as_ref());
        self.servers_beside(raw.servers.as_ref(), profile.as_ref());
        let (servers, server_setups, server_files) = self.servers(raw.servers, &span);
        let (classes, class_rules, class_pages, class_kinds) = self.classes(raw.class);
        let (request_types, type_rules, kinds, tags) = self.request_types(raw.request_type);
        let max_conn = self.max_conn(raw.max_conn);
        let (dispatch, stealing) = self.dispatch(raw.dispatch, profile.as_ref());
        let (affinity, affinity_by) = self.affinity(raw.affinity).unzip();
        let (tenants_by, tenants) = self.tenants(raw.tenants, raw.tenant, process_seed());
        let (health, mirror, also_secure) = self.aside(raw.health, raw.mirror, &servers);
        let limits = self.limits(raw.limits.map(|l| l.value).unwrap_or_default());
        let setup = Setup {
            name: name.clone(),
            classes,
            tags: tags.clone(),
            servers: server_setups,
            sla,
            admission: raw.admission.map(|a| a.value.0).unwrap_or_default(),
            dispatch,
            partition: raw.partition.map(|p| p.value.0).unwrap_or_default(),
            max_conn: self.max_conn_beside(max_conn, &request_types, profile.as_ref()),
            request_types,
            affinity,
            shadow: raw.shadow.is_some_and(|s| s.value),
            default_cost: self.cost_beside(raw.default_cost, profile.as_ref()),
            when_all_down: self.when_all_down(raw.when_all_down),
            most_open: limits.most_open(),
            tenants,
            cancel: self.cancel(raw.cancel),
        };
        self.check(&setup, &blame, profile.as_ref(), stealing.as_ref());
        let all_servers = servers.iter().chain(in_files(&server_files));
        let server_tls = self.server_tls(raw.server_tls, all_servers, also_secure, &span);
        let mut application = Application {
            name,
            listen,
            routing: self.routing(raw.route, raw.rewrite, raw.access),
            tls: raw.tls.and_then(|tls| self.tls(tls, limits.streams > 0)),
            server_tls,
            server_proxy: self.choice("server_proxy", raw.server_proxy, ProxyOut::ALL, ProxyOut::name),
            classifier: tidegate_classify::ClassifierSetup {
                classes: class_rules,
                request_types: type_rules,
                seed: process_seed(),
                affinity: affinity_by,
                deadline: self.deadline(raw.deadline),
                tenants: tenants_by,
            },
            setup,
            kinds,
            class_kinds,
            tags,
            servers,
            server_files,
            timeouts: self.timeouts(raw.timeouts.map(|t| t.value).unwrap_or_default()),
            limits,
            health,
            mirror,
            retry: self.retry(raw.retry.map(|r| r.value).unwrap_or_default()),
            pool: self.pool(raw.pool.map(|p| p.value).unwrap_or_default()),
            forwarded: self.forwarded(raw.forwarded.map(|f| f.value).unwrap_or_default()),
            syn: self.syn_policing(raw.syn_policing.map(|s| s.value).unwrap_or_default()),
            rejection: self.rejection(raw.rejection.map(|r| r.value).unwrap_or_default(), class_pages),
            exempt: raw.exempt.map_or_else(Vec::new, |list| self.rules(list, "exempt")),
            paths: self.paths(raw.paths),
            refused_below: self.refused_below(raw.refused_below),
            half_close: raw.half_close.is_some_and(|given| given.value),
        };
        self.header_changes(raw.request_header, raw.response_header, &mut application);
        self.doubts(&application, &span);
        application
    }

    fn name(&mut self, given: Option<At<String>>) -> String {
        given.map_or_else(default_name, |name| {
            if name.value.trim().is_empty() {
                self.report.error(&name.span, "name is empty; give the application a name");
            }
            name.value
        })
    }

    fn when_all_down(&mut self, given: Option<At<String>>) -> WhenAllDown {
        match given.as_ref().map(|g| g.value.as_str()) {
            None | Some("try") => WhenAllDown::Try,
            Some("refuse") => WhenAllDown::Refuse,
            Some(other) => {
                let message = format!("when_all_down = \"{other}\": write \"try\" or \"refuse\"");
                self.report.error(&given.as_ref().map_or(WHOLE, |g| g.span.clone()), message);
                WhenAllDown::Try
            }
        }
    }

    fn servers(&mut self, raw: Option<At<List<RawServer>>>, span: &Range<usize>) -> Servers {
        let list = raw.map_or_else(Vec::new, |list| list.value.0);
        if list.is_empty() && !self.is_governed {
            self.missing(span, "no servers; add servers = [\"host:port\", ...]");
        }
        let (files, list) = list.into_iter().partition(|server| server.value.0.file.is_some());
        let files = self.server_files(files);
        let (servers, setups) = self.listed(list).into_iter().unzip();
        (servers, setups, files)
    }

    /// Servers with addresses of their own, or names.
    pub(super) fn listed(&mut self, list: Vec<At<RawServer>>) -> Vec<(Server, ServerSetup)> {
        let both: Vec<_> = list.into_iter().filter_map(|server| self.server(server.value.0, &server.span)).collect();
        self.once("server", "name each server once", both.iter().map(|(server, _, span)| (&*server.name, span)));
        both.into_iter().map(|(server, setup, _)| (server, setup)).collect()
    }

    fn server(&mut self, raw: RawServerTable, span: &Range<usize>) -> Option<(Server, ServerSetup, Range<usize>)> {
        if let Some(file) = &raw.file {
            self.report.error(&file.span, "a file of servers names no other file; list the servers here");
            return None;
        }
        let Some(address) = raw.address else {
            self.missing(span, "this server has no address; add address = \"host:port\"");
            return None;
        };
        let checked = match address.value.trim() {
            named if Asker::of(named).is_some() => Some(named.to_owned()),
            _ => self.server_address(&address),
        };
        let name = raw.name.map_or_else(|| address.value.clone(), |name| name.value);
        let setup = ServerSetup {
            name: name.clone(),
            role: self.role(raw.role),
            cores: raw.cores.map(|cores| self.more_than_zero("cores", cores)),
            weight: raw.weight.map_or(1.0, |weight| self.more_than_zero("weight", weight)),
            max_connections: raw
                .max_connections
                .map(|max| self.count("max_connections", Some(max), 1, 1..=1_000_000) as u32),
        };
        Some((Server { name, address: checked? }, setup, span.clone()))
    }

    fn role(&mut self, given: Option<At<String>>) -> Role {
        match given.as_ref().map(|g| g.value.as_str()) {
            None | Some("application") => Role::Application,
            Some("data") => Role::Data,
            Some(other) => {
                let message = format!("role = \"{other}\": write \"application\" or \"data\"");
                self.report.error(&given.as_ref().map_or(WHOLE, |g| g.span.clone()), message);
                Role::Application
            }
        }
    }

    /// What the engine checks itself, attached to the line most likely to blame.
    fn check(&mut self, setup: &Setup, blame: &Blame, profile: Option<&Profile>, stealing: Option<&Profile>) {
        if self.report.has_errors() {
            return;
        }
        if let Err(error) = setup.check() {
            // What contradicts the file here may stand in another one.
            let of_profile = |name: &str| profile.and_then(|profile| Some((profile, profile.place_of_kind(name)?)));
            let part = match &error {
                SetupError::Wrong { place, .. } => Some(place),
                _ => None,
            };
            let (place, elsewhere) = match part {
                Some(SetupPlace::Dispatch(_)) => {
                    let stealing = stealing.or(profile.filter(|profile| profile.softscale.is_some()));
                    (&blame.dispatch, stealing.map_or_else(String::new, Profile::place_of_stealing))
                }
                Some(SetupPlace::MaxConn(name)) => match of_profile(name) {
                    Some((profile, place)) => (&profile.span, place),
                    None => (&blame.max_conn, String::new()),
                },
                Some(SetupPlace::Partition(_)) => (&blame.partition, String::new()),
                _ => (&blame.admission, String::new()),
            };
            self.report.error(place, format!("{error}{elsewhere}"));
        }
    }

    /// What is allowed and probably not meant.
    fn doubts(&mut self, app: &Application, span: &Range<usize>) {
        let known_cores = || app.setup.servers.iter().map(|s| s.cores).sum::<Option<f64>>();
        let guaranteed: f64 = app.setup.classes.iter().map(|class: &ClassSetup| class.min_rate).sum();
        if let (Some(cores), Some(cost)) = (known_cores(), app.setup.default_cost) {
            let needed = guaranteed * cost.as_secs_f64();
            if needed > cores {
                let message = format!(
                    "the classes' min_rate add up to {guaranteed}/s, which at default_cost needs {needed} cores, but \
                     the servers have {cores}: guaranteed requests are never refused, so the target will be missed"
                );
                self.report.warn(span, message);
            }
        }
        let longest = app.setup.sla.steps().last().map_or(Duration::ZERO, |step| step.target);
        if app.timeouts.request.is_some_and(|request| request < longest) {
            self.report.warn(span, "timeouts.request is shorter than the target: requests end before they can be late");
        }
        if app.setup.shadow {
            self.report
                .warn(span, format!("\"{}\" is in shadow mode: it decides and counts, but refuses nothing", app.name));
        }
        self.unheeded(app, span);
        self.behind_asker(app, span);
    }

    /// What is said of servers and no policy goes by, and the other way round.
    fn unheeded(&mut self, app: &Application, span: &Range<usize>) {
        let demands = app.setup.demands();
        let lends = app.setup.servers.iter().any(|server| server.role == Role::Data);
        if lends && !demands.lenders {
            let stealing = quoted(&DispatchConfig::names_that_demand(|demands| demands.lenders));
            let message = format!("servers with role = \"data\" get requests under dispatch = {stealing} only");
            self.report.warn(span, message);
        }
        let counting = quoted(&AdmissionConfig::names_that_demand(|demands| demands.kinds));
        let weights = app.setup.servers.iter().any(|server| server.weight != 1.0);
        if weights && !demands.weights {
            let weighing = quoted(&DispatchConfig::names_that_demand(|demands| demands.weights));
            let message = format!(
                "weight is used by dispatch = {weighing}, admission = {counting} and partitions only; others go by \
                 cores, given or learned"
            );
            self.report.warn(span, message);
        }
        if demands.kinds && app.setup.max_conn.is_empty() {
            let message = format!(
                "admission = {counting} and partitions count requests in flight, but no [[application.max_conn]] says \
                 how many a server holds: 104 within the target and 150 at most are assumed"
            );
            self.report.warn(span, message);
        }
    }

    /// Reports that something is not there, unless it may be there and unreadable.
    fn missing(&mut self, span: &Range<usize>, message: &str) {
        if self.complete {
            self.report.error(span, message);
        }
    }

    fn unique<'n>(&mut self, what: &str, names: impl Iterator<Item = &'n At<String>>) {
        let names = names.map(|name| (&*name.value, &name.span));
        self.once(what, &format!("give each {what} a name of its own"), names);
    }

    /// Reports each that is there again, and what to do.
    fn once<'n>(&mut self, what: &str, hint: &str, given: impl Iterator<Item = (&'n str, &'n Range<usize>)>) {
        let mut seen = HashSet::new();
        for (name, span) in given {
            if !seen.insert(name) {
                self.report.error(span, format!("{what} \"{name}\" is there twice; {hint}"));
            }
        }
    }
}

/// Servers, what the engine needs of them, and files of more.
type Servers = (Vec<Server>, Vec<ServerSetup>, Vec<ServerFile>);

/// Where the parts of a setup stand that the engine judges as a whole.
struct Blame {
    admission: Range<usize>,
    dispatch: Range<usize>,
    partition: Range<usize>,
    max_conn: Range<usize>,
}

impl Blame {
    /// Where they are typed; the application where they are not.
    fn of(raw: &RawApplication, span: &Range<usize>) -> Blame {
        Blame {
            admission: span_of(&raw.admission).unwrap_or_else(|| span.clone()),
            dispatch: span_of(&raw.dispatch).unwrap_or_else(|| span.clone()),
            partition: span_of(&raw.partition).unwrap_or_else(|| span.clone()),
            max_conn: span_of(&raw.max_conn).unwrap_or_else(|| span.clone()),
        }
    }
}

/// Names of policies, as they are written in the file.
fn quoted(names: &[&str]) -> String {
    names.iter().map(|name| format!("\"{name}\"")).collect::<Vec<_>>().join(" or ")
}

fn span_of<T>(at: &Option<At<T>>) -> Option<Range<usize>> {
    at.as_ref().map(|at| at.span.clone())
}

/// The name of an only application that has none.
fn default_name() -> String {
    "default".to_owned()
}

fn access_log(raw: Option<At<String>>) -> AccessLog {
    match raw.as_ref().map(|log| log.value.as_str()) {
        None | Some("off") => AccessLog::Off,
        Some("stdout" | "-") => AccessLog::Stdout,
        Some(path) => AccessLog::File(Path::new(path).to_path_buf()),
    }
}

/// Random, and the same for the life of the process: URL keys survive a reload.
pub(crate) fn process_seed() -> u64 {
    *SEED.get_or_init(|| RandomState::new().hash_one("url keys"))
}

/// From now on it is this one, unless it was used already.
pub(crate) fn adopt_process_seed(seed: u64) {
    let _ = SEED.set(seed);
}

static SEED: OnceLock<u64> = OnceLock::new();
