//! What is shown of names, and of files of servers.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use serde_json::{Value, json};

use super::LONGEST_LOOK;
use super::course::{Answer, Course, Standing};
use super::files::Watched;
use super::lookup::{Named, Source};
use super::seeker::Seeker;
use crate::config::{Config, Spoken};

/// What is known of names and files, as it was after the last change.
#[derive(Debug, Default)]
pub struct View(Mutex<Vec<Seen>>);

/// What is known of a name or a file.
#[derive(Clone, Debug)]
pub struct Seen {
    /// The name, or the file's path.
    pub source: String,
    /// The applications whose servers come from it.
    pub applications: Vec<String>,
    /// It is where other sentries are.
    pub is_of_peers: bool,
    /// `"fresh"`; `"stale"`: what is in force is older than the last answer; `"unknown"`: there was no good one.
    pub state: &'static str,
    /// Where it leads, for names.
    pub addresses: Vec<SocketAddr>,
    /// How many servers, or sentries, it is; `None`: what the configuration read, which is not counted.
    pub servers: Option<usize>,
    /// Why the last answer is not in force.
    pub problem: Option<String>,
    /// Addresses that are not used: there is no way to them, or there are too many.
    pub left_out: usize,
    /// When the last good answer came.
    pub good_at: Option<Instant>,
    /// What became of look-ups, by kind.
    pub lookups: [(&'static str, u64); 3],
    /// How often something else came of it.
    pub changes: u64,
}

impl View {
    /// Everything, by name.
    pub fn all(&self) -> Vec<Seen> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Everything, as `/api/state` shows it.
    pub fn to_json(&self) -> Value {
        self.all().iter().map(Seen::to_json).collect()
    }

    pub(super) fn show(&self, mut all: Vec<Seen>) {
        all.sort_by(|a, b| a.source.cmp(&b.source));
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = all;
    }
}

impl Seen {
    pub(super) fn of_name(named: &Named, course: &Course, users: &[&Seeker], origin: Instant) -> Seen {
        Seen {
            source: named.to_string(),
            applications: users.iter().filter_map(|seeker| seeker.application()).map(str::to_owned).collect(),
            is_of_peers: users.iter().any(|seeker| seeker.application().is_none()),
            state: match course.standing {
                Standing::Unknown => "unknown",
                Standing::Fresh => "fresh",
                Standing::Stale => "stale",
            },
            addresses: course.members.iter().map(|member| member.address).collect(),
            servers: Some(course.members.len()),
            problem: course.problem.clone(),
            left_out: course.left_out,
            good_at: course.good_at.map(|at| origin + at),
            lookups: [
                ("good", course.counts.good),
                ("nothing", course.counts.nothing),
                ("failed", course.counts.failed),
            ],
            changes: course.counts.changes,
        }
    }

    pub(super) fn of_file(path: &Path, watched: &Watched, applications: Vec<String>) -> Seen {
        Seen {
            source: path.display().to_string(),
            applications,
            is_of_peers: false,
            state: if watched.problem.is_some() { "stale" } else { "fresh" },
            addresses: Vec::new(),
            servers: watched.servers.as_ref().map(Vec::len),
            problem: watched.problem.clone(),
            left_out: 0,
            good_at: None,
            lookups: [("good", watched.reads), ("nothing", 0), ("failed", watched.failures)],
            changes: watched.changes,
        }
    }

    fn to_json(&self) -> Value {
        let age = self.good_at.map(|at| at.elapsed().as_secs_f64());
        let lookups: BTreeMap<_, _> = self.lookups.into_iter().collect();
        json!({
            "source": self.source,
            "applications": self.applications,
            "is_of_peers": self.is_of_peers,
            "state": self.state,
            "addresses": self.addresses,
            "servers": self.servers,
            "problem": self.problem,
            "left_out": self.left_out,
            "age": age,
            "lookups": lookups,
            "changes": self.changes,
        })
    }
}

impl fmt::Display for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Named::Host { name, port } => write!(f, "{name}:{port}"),
            Named::Service(name) => write!(f, "srv:{name}"),
            Named::Pods(service) => service.fmt(f),
        }
    }
}

/// A name, and its addresses, or why there are none.
pub type Led = (String, Result<Vec<SocketAddr>, String>);

/// Looks every name of a configuration up, once: its addresses, or why there are none. Blocks until all is known.
///
/// # Errors
/// When the system does not give what it needs.
pub fn look_up(config: &Config) -> std::io::Result<Vec<Led>> {
    let in_files = |app: &crate::config::Application| {
        app.server_files
            .iter()
            .flat_map(|file| file.servers.iter().map(|(server, _)| server.clone()))
            .collect::<Vec<_>>()
    };
    let servers = config.applications.iter().flat_map(|app| app.servers.iter().cloned().chain(in_files(app)));
    let of_servers = servers.filter_map(|server| Named::of(Spoken::of(&server.address).1));
    let of_peers = config.peers.iter().flat_map(|peers| peers.sentries.iter().filter_map(Named::of_peers));
    let mut names: Vec<Named> = of_servers.chain(of_peers).collect();
    let mut seen = std::collections::HashSet::new();
    names.retain(|named| seen.insert(named.clone()));
    if names.is_empty() {
        return Ok(Vec::new());
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut source = Source::default();
        source.ask(&config.sentry.resolvers);
        let asker = source.asker();
        let one = |named: Named| {
            let asker = asker.clone();
            async move {
                let answer = tokio::time::timeout(LONGEST_LOOK, asker.look_up(&named)).await;
                let found = match answer {
                    Ok(Answer::Found(good)) => Ok(good.members.iter().map(|member| member.address).collect()),
                    Ok(Answer::Nothing(why) | Answer::Failed(why)) => Err(why),
                    Err(_) => Err(late()),
                };
                (named.to_string(), found)
            }
        };
        Ok(futures_util::future::join_all(names.into_iter().map(one)).await)
    })
}

/// Why there is no answer, in the end.
pub(super) fn late() -> String {
    format!("there is no answer within {} s", LONGEST_LOOK.as_secs())
}
