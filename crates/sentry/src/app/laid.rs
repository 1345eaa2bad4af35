//! From what the file says to what is in force: over its servers lie those of files of servers, over these what a
//! control plane decided, and under every name that is left lie its addresses.
//!
//! The order makes them compose: a control plane may order servers by name, too, and who is governed goes on as it was
//! when a name's addresses change.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{MutexGuard, PoisonError};

use tidegate_engine::ServerSetup;

use super::{App, AppError, Governed};
use crate::config::{self, Place, Server, Spoken, domain};
use crate::names::{Member, Named};

/// What lies over the file.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Overlay {
    /// What the control plane decided.
    pub(super) governed: Option<Governed>,
    /// What was found since.
    pub(super) found: Found,
}

/// What was found of an application's servers that the configuration itself does not say.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Found {
    /// Where names lead.
    pub(crate) names: HashMap<Named, Vec<Member>>,
    /// What files of servers say since the configuration was read.
    pub(crate) files: HashMap<PathBuf, Vec<(Server, ServerSetup)>>,
}

/// A configuration with everything laid over it.
#[derive(Debug)]
pub(crate) struct Laid {
    /// Each of its servers is at one address.
    pub(crate) config: config::Application,
    /// How servers are called of which only the address is in `config`: `host:port`, by the server's name.
    pub(crate) hosts: HashMap<String, String>,
    /// What there is to look up and to watch.
    pub(crate) wanted: Wanted,
}

/// What an application needs to be looked up and watched.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Wanted {
    /// Names, each once.
    pub(crate) names: Vec<Named>,
    /// Files of servers.
    pub(crate) files: Vec<PathBuf>,
}

impl App {
    /// Puts in force what a control plane decided, also after later reloads. What is in flight goes on; servers that
    /// are not its own any more drain. What was set by hand stays.
    ///
    /// # Errors
    /// When it makes no sense; then nothing has changed.
    pub fn govern(&self, governed: Governed) -> Result<(), AppError> {
        let mut governed = governed;
        self.overlay_anew(|overlay| {
            let before = overlay.governed.take();
            if governed.servers.is_none() {
                governed.servers = before.and_then(|before| before.servers);
            }
            overlay.governed = Some(governed);
        })
    }

    /// Names lead elsewhere now, or files of servers say something else. Servers that are in neither any more drain,
    /// new ones enter, and what was learned of the others stays, as does what was set by hand.
    ///
    /// # Errors
    /// When it makes no sense; then nothing has changed.
    pub(crate) fn find(&self, change: impl FnOnce(&mut Found)) -> Result<(), AppError> {
        self.overlay_anew(|overlay| change(&mut overlay.found))
    }

    /// Whether what a file of servers says was found since the configuration was read.
    pub(crate) fn has_found(&self, file: &Path) -> bool {
        self.overlay().found.files.contains_key(file)
    }

    /// What there is to look up and to watch.
    pub(crate) fn wanted(&self) -> Wanted {
        self.live().wanted.clone()
    }

    /// Lays something else over what the file says, if it is something else.
    fn overlay_anew(&self, change: impl FnOnce(&mut Overlay)) -> Result<(), AppError> {
        let mut overlay = self.overlay();
        let mut changed = overlay.clone();
        change(&mut changed);
        if changed == *overlay {
            return Ok(());
        }
        self.amend(&changed, |_| Ok(()))?;
        *overlay = changed;
        Ok(())
    }

    pub(super) fn overlay(&self) -> MutexGuard<'_, Overlay> {
        self.overlay.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Overlay {
    /// Lays everything over what was declared.
    pub(super) fn lay(&self, declared: &config::Application) -> Laid {
        let mut config = declared.clone();
        let mut wanted = Wanted::default();
        for file in std::mem::take(&mut config.server_files) {
            for (server, setup) in self.found.files.get(&file.path).unwrap_or(&file.servers) {
                config.servers.push(server.clone());
                config.setup.servers.push(setup.clone());
            }
            wanted.files.push(file.path);
        }
        if let Some(governed) = &self.governed {
            governed.govern(&mut config);
        }
        let mut hosts = HashMap::new();
        self.spread(&mut config, &mut hosts, &mut wanted.names);
        Laid { config, hosts, wanted }
    }

    /// Puts a server for each of its addresses in the place of each that has a name. Of two with one name, which files
    /// and names can bring about, the first counts.
    fn spread(&self, config: &mut config::Application, hosts: &mut HashMap<String, String>, wanted: &mut Vec<Named>) {
        let both: Vec<_> = config.servers.drain(..).zip(config.setup.servers.drain(..)).collect();
        let mut seen = HashSet::new();
        let mut take = |server: Server, setup: ServerSetup| {
            let is_new = seen.insert(server.name.clone());
            if is_new {
                config.servers.push(server);
                config.setup.servers.push(setup);
            }
            is_new
        };
        for (server, setup) in both {
            let (_, at) = Spoken::of(&server.address);
            let Some(named) = Named::of(at) else {
                take(server, setup);
                continue;
            };
            let scheme = &server.address[..server.address.len() - at.len()];
            let prefix = prefix(&server, at);
            for member in self.found.names.get(&named).into_iter().flatten() {
                let name = format!("{prefix}/{}", member.address);
                let one = Server { name: name.clone(), address: format!("{scheme}{}", member.address) };
                let setup = ServerSetup { name: name.clone(), weight: setup.weight * member.weight, ..setup.clone() };
                if take(one, setup) {
                    hosts.insert(name, host(&named, member.address));
                }
            }
            if !wanted.contains(&named) {
                wanted.push(named);
            }
        }
    }
}

/// What the names of a name's servers begin with: the name that it was given, or its own.
fn prefix<'a>(server: &'a Server, at: &'a str) -> &'a str {
    match Place::of(at) {
        _ if server.name != server.address => &server.name,
        Ok(Place::Host { name, .. } | Place::Service(name)) => name,
        Ok(Place::Pods(pods)) => pods.service,
        _ => at,
    }
}

/// What a server is called by who asks it: the name, never what DNS or an API server made of it.
fn host(named: &Named, address: SocketAddr) -> String {
    match named {
        Named::Host { name, port } => format!("{}:{port}", name.trim_end_matches('.')),
        Named::Service(name) => format!("{}:{}", domain(name).trim_end_matches('.'), address.port()),
        Named::Pods(pods) => format!("{}:{}", pods.host(), address.port()),
    }
}

impl Found {
    /// Only what is wanted.
    pub(super) fn keep(&mut self, wanted: &Wanted) {
        self.names.retain(|named, _| wanted.names.contains(named));
        self.files.retain(|path, _| wanted.files.iter().any(|wanted| wanted == path as &Path));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tidegate_engine::{Sla, Statistic};

    use super::*;
    use crate::config::{Config, ServerFile};

    fn declared(servers: &str) -> config::Application {
        let text = format!("[[application]]\nservers = {servers}\n");
        let checked = Config::parse(&text, Path::new("f")).unwrap_or_else(|errors| panic!("{errors}"));
        checked.config.applications[0].clone()
    }

    fn found(all: &[(&str, &[&str])]) -> Found {
        let member = |address: &&str| Member { address: address.parse().expect("an address"), weight: 2.0 };
        let one = |(at, to): &(&str, &[&str])| (Named::of(at).expect("a name"), to.iter().map(member).collect());
        Found { names: all.iter().map(one).collect(), files: HashMap::new() }
    }

    fn all(laid: &Laid) -> Vec<(&str, &str, f64, &str)> {
        let both = laid.config.servers.iter().zip(&laid.config.setup.servers);
        let host = |name: &str| laid.hosts.get(name).map_or("", String::as_str);
        both.map(|(server, setup)| {
            assert_eq!(server.name, setup.name);
            (&*server.name, &*server.address, setup.weight, host(&server.name))
        })
        .collect()
    }

    #[test]
    fn a_name_is_all_of_its_addresses() {
        let declared = declared(
            "[\"10.0.0.1:80\", \"https://b.internal:443\", { name = \"c\", address = \"srv:_http._tcp.c.internal\", weight = 3 }]",
        );
        let found = found(&[
            ("b.internal:443", &["10.0.1.1:443", "[fd00::1]:443"]),
            ("srv:_http._tcp.c.internal", &["10.0.2.1:81"]),
        ]);
        let overlay = Overlay { governed: None, found };
        let laid = overlay.lay(&declared);
        let wanted = [
            ("10.0.0.1:80", "10.0.0.1:80", 1.0, ""),
            ("b.internal/10.0.1.1:443", "https://10.0.1.1:443", 2.0, "b.internal:443"),
            ("b.internal/[fd00::1]:443", "https://[fd00::1]:443", 2.0, "b.internal:443"),
            ("c/10.0.2.1:81", "10.0.2.1:81", 6.0, "c.internal:81"),
        ];
        assert_eq!(all(&laid), wanted);
        assert_eq!(laid.wanted.names.len(), 2);
        let unknown = Overlay::default().lay(&declared);
        assert_eq!((all(&unknown).len(), unknown.wanted.names.len()), (1, 2), "nothing is known yet");
    }

    #[test]
    fn two_ways_to_one_server_are_one() {
        let found = found(&[("b.internal:80", &["10.0.1.1:80"])]);
        let laid = Overlay { governed: None, found }.lay(&declared("[\"b.internal:80\", \"https://b.internal:80\"]"));
        assert_eq!(all(&laid), [("b.internal/10.0.1.1:80", "10.0.1.1:80", 2.0, "b.internal:80")]);
    }

    #[test]
    fn orders_may_name_names_and_files_lie_below_them() {
        let mut declared = declared("\"10.0.0.1:80\"");
        let one = |address: &str| (server(address), ServerSetup::new(address));
        let path = PathBuf::from("/etc/servers.toml");
        declared.server_files = vec![ServerFile { path: path.clone(), servers: vec![one("10.0.0.2:80")] }];
        let mut overlay = Overlay { governed: None, found: found(&[("b.internal:80", &["10.0.1.1:80"])]) };
        let names = |laid: &Laid| laid.config.servers.iter().map(|server| server.name.clone()).collect::<Vec<_>>();
        let laid = overlay.lay(&declared);
        assert_eq!(
            (names(&laid), &laid.wanted.files),
            (vec!["10.0.0.1:80".into(), "10.0.0.2:80".into()], &vec![path.clone()])
        );
        overlay.found.files.insert(path, vec![one("b.internal:80")]);
        assert_eq!(names(&overlay.lay(&declared)), ["10.0.0.1:80", "b.internal/10.0.1.1:80"]);
        let sla = Sla::constant(Statistic::P95, Duration::from_secs(1)).expect("a target");
        overlay.governed = Some(Governed { servers: Some(vec![server("b.internal:80")]), sla: sla.clone() });
        assert_eq!(names(&overlay.lay(&declared)), ["b.internal/10.0.1.1:80"]);
        overlay.governed = Some(Governed { servers: None, sla });
        assert_eq!(names(&overlay.lay(&declared)), ["10.0.0.1:80", "b.internal/10.0.1.1:80"]);
    }

    fn server(address: &str) -> Server {
        Server { name: address.to_owned(), address: address.to_owned() }
    }
}
