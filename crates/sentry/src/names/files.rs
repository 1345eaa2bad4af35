//! A file of servers that is watched: read once it has changed and stopped changing; all of it counts, or nothing.

use std::path::Path;

use tidegate_engine::ServerSetup;
use tracing::{error, info};

use crate::config::{Server, ServerFile};
use crate::reload::{Print, print};

/// What is known of a file.
#[derive(Debug)]
pub(super) struct Watched {
    /// What it looked like when it was last read, and a moment ago.
    read: Option<Print>,
    seen: Option<Print>,
    /// Why what is in it now is not in force.
    pub(super) problem: Option<String>,
    /// What it named when it was good last; `None`: what the configuration read is in force.
    pub(super) servers: Option<Vec<(Server, ServerSetup)>>,
    pub(super) reads: u64,
    pub(super) changes: u64,
    pub(super) failures: u64,
}

impl Watched {
    /// A file that the configuration has just read.
    pub(super) fn new(path: &Path) -> Self {
        let now = print(path);
        Watched { read: None, seen: now, problem: None, servers: None, reads: 0, changes: 0, failures: 0 }
    }

    /// Looks at it; whether what is in it is new and good.
    pub(super) fn look(&mut self, path: &Path) -> bool {
        let now = print(path);
        let settled = now == std::mem::replace(&mut self.seen, now);
        // A file that is gone for a moment is being replaced.
        if !settled || now.is_none() || now == self.read {
            return false;
        }
        let is_first = self.read.is_none();
        self.read = now;
        match ServerFile::read(path) {
            Ok(servers) => {
                self.problem = None;
                self.reads += 1;
                if !is_first {
                    self.changes += 1;
                    info!(file = %path.display(), "it names {} servers now", servers.len());
                }
                self.servers = Some(servers);
                true
            }
            Err(errors) => {
                self.failures += 1;
                error!(file = %path.display(), "the servers that it named before stay:\n{errors}");
                self.problem = Some(errors.to_string());
                false
            }
        }
    }

    /// What is in it, if that is what was read last, and good.
    pub(super) fn current(&self) -> Option<&Vec<(Server, ServerSetup)>> {
        self.servers.as_ref().filter(|_| self.seen == self.read && self.problem.is_none())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events::Events;

    #[test]
    fn a_change_counts_wholly_once_it_has_settled_or_not_at_all() {
        let path = std::env::temp_dir().join(format!("tidegate-servers-{}.toml", std::process::id()));
        let write = |text: &str| std::fs::write(&path, text).expect("writes");
        let names = |watched: &Watched| {
            watched.current().map(|all| all.iter().map(|(server, _)| server.name.clone()).collect::<Vec<_>>())
        };
        let logged = Events::catch();
        write("servers = [\"10.0.0.1:80\"]");
        let mut watched = Watched::new(&path);
        assert_eq!((watched.look(&path), watched.look(&path)), (true, false), "it may have changed since it was read");
        assert_eq!(names(&watched), Some(vec!["10.0.0.1:80".to_owned()]));
        write("servers = [\"10.0.0.1:80\", \"10.0.0.22:80\"]");
        assert!(!watched.look(&path), "it may still be being written");
        assert_eq!(names(&watched), None);
        assert!(watched.look(&path));
        assert_eq!(names(&watched).map(|names| names.len()), Some(2));
        write("servers = [\"10.0.0.1:80\", \"10.0.0.2\"]");
        assert_eq!((watched.look(&path), watched.look(&path)), (false, false));
        assert_eq!((names(&watched), watched.servers.as_ref().map(Vec::len)), (None, Some(2)));
        assert!(watched.problem.as_ref().is_some_and(|why| why.contains(":1: ") && why.contains("port is missing")));
        assert_eq!((watched.look(&path), watched.failures), (false, 1), "said once");
        std::fs::remove_file(&path).expect("removes");
        assert_eq!((watched.look(&path), watched.look(&path)), (false, false), "it may be being replaced");
        write("servers = []");
        assert_eq!((watched.look(&path), watched.look(&path)), (false, true));
        assert_eq!(names(&watched), Some(Vec::new()));
        assert_eq!((watched.problem.is_none(), watched.changes, logged.lines().len()), (true, 2, 3));
        // The folder is temporary: leaving the file harms nobody.
        let _ = std::fs::remove_file(&path);
    }
}
