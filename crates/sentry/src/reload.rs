//! Putting a changed configuration file in force: on SIGHUP, or when the file changes.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use tracing::warn;

use crate::access_log::AccessLog;
use crate::board::Board;
use crate::config::Config;
use crate::notify;
use crate::sentry::SentryHandle;

/// How often the file is looked at.
const PERIOD: Duration = Duration::from_secs(1);

/// What a new configuration is put in force on.
pub trait Target: Send {
    /// Puts `config` in force, wholly or not at all.
    ///
    /// # Errors
    /// Why it was not; nothing has changed then.
    fn apply(&self, config: Config) -> Result<(), String>;
}

/// Watches one configuration file.
pub struct Reloader<T> {
    path: PathBuf,
    /// Certificates and keys of the configuration in force.
    watched: Watched,
    target: T,
    board: Arc<Board>,
    log: Arc<AccessLog>,
    /// What the files looked like when they were last read.
    read: Option<Prints>,
    /// What they looked like a moment ago: they are read once they have stopped changing.
    seen: Option<Prints>,
}

/// What tells one version of a file from another without reading it.
pub(crate) type Print = (SystemTime, u64, u64);

/// The same of the configuration and of the files that take effect when they change: certificates and keys.
type Prints = Vec<Print>;

impl<T: Target> Reloader<T> {
    /// A reloader for a file whose present content is in force.
    pub fn new(path: &Path, target: T, board: Arc<Board>, log: Arc<AccessLog>) -> Self {
        let watched = Watched::of(&board.config());
        let now = prints(path, &watched);
        Reloader { path: path.to_owned(), watched, target, board, log, read: now.clone(), seen: now }
    }

    /// Looks at the file; reads it when it has changed and looks the same as the last time.
    pub fn poll(&mut self) {
        let now = prints(&self.path, &self.watched);
        let settled = now == std::mem::replace(&mut self.seen, now.clone());
        // A file that is gone for a moment is being replaced.
        if settled && now.is_some() && now != self.read {
            self.reload();
        }
    }

    /// Reads the file and puts it in force. An invalid file changes nothing; why is said in the log, as a
    /// notice and in the metrics.
    pub fn reload(&mut self) {
        self.read = prints(&self.path, &self.watched);
        match self.try_reload() {
            Ok(()) => {
                // There may be others now. What changes from here on is seen at the next look.
                let watched = Watched::of(&self.board.config());
                if watched != self.watched {
                    self.watched = watched;
                    self.read = prints(&self.path, &self.watched);
                }
            }
            Err(why) => self.board.reload_failed(why),
        }
    }

    fn try_reload(&self) -> Result<(), String> {
        let checked = Config::load(&self.path).map_err(|errors| errors.to_string())?;
        let config = checked.config;
        needs_restart(&self.board.config(), &config)?;
        self.target.apply(config.clone())?;
        self.log.redirect(&config.access_log);
        let source = self.path.display().to_string();
        for warning in &checked.warnings {
            warn!("{}", warning.at(&source));
        }
        self.board.reloaded(config, self.board.applications().to_vec(), format!("{source} is in force"));
        Ok(())
    }
}

/// What only a restart can change.
fn needs_restart(old: &Config, new: &Config) -> Result<(), String> {
    let reports = |config: &Config| config.reports.as_ref().map(|r| (r.listen, r.key_file.clone()));
    let peers = |config: &Config| config.peers.as_ref().map(|p| (p.listen, p.key_file.clone()));
    let control = |config: &Config| {
        let all = config.control.as_ref();
        all.map(|c| (c.connect.clone(), c.key_file.clone(), c.name.clone(), c.addresses.clone()))
    };
    let changed = [
        ("[admin]", old.admin != new.admin),
        ("[reports] listen and key_file", reports(old) != reports(new)),
        ("[peers] listen and key_file", peers(old) != peers(new)),
        ("ends", old.ends != new.ends),
        ("[traces]", old.traces != new.traces),
        ("[control]", control(old) != control(new)),
        ("[sentry] workers", old.sentry.workers != new.sentry.workers),
    ];
    match changed.iter().find(|(_, changed)| *changed) {
        Some((what, _)) => Err(format!("{what} cannot change while the sentry runs; restart it")),
        None => Ok(()),
    }
}

/// Files that take effect when they change.
#[derive(Clone, Debug, Default, PartialEq)]
struct Watched {
    certificates: Vec<PathBuf>,
    /// What may be missing: certificates that are ordered, and files of keys, without which a reload says why it fails.
    others: Vec<PathBuf>,
}

impl Watched {
    fn of(config: &Config) -> Self {
        Watched { certificates: certificates(config), others: issued(config).chain(keys(config)).collect() }
    }
}

fn certificates(config: &Config) -> Vec<PathBuf> {
    let front = config.applications.iter().filter_map(|app| app.tls.as_ref()).flat_map(|tls| tls.files());
    let servers = config.applications.iter().filter_map(|app| app.server_tls.as_ref()).flat_map(|tls| tls.files());
    front.chain(servers).cloned().collect()
}

/// Keys that are shared with nuclei, other sentries and the control plane.
fn keys(config: &Config) -> impl Iterator<Item = PathBuf> {
    let reports = config.reports.as_ref().map(|reports| reports.key_file.clone());
    let peers = config.peers.as_ref().map(|peers| peers.key_file.clone());
    let control = config.control.as_ref().map(|control| control.key_file.clone());
    // Where keys were given without a file there is none to look at.
    reports.into_iter().chain(peers).chain(control).filter(|file| !file.as_os_str().is_empty())
}

fn issued(config: &Config) -> impl Iterator<Item = PathBuf> {
    config.applications.iter().filter_map(|app| app.tls.as_ref()?.issued())
}

/// `None`: a file that must be there is not.
fn prints(path: &Path, watched: &Watched) -> Option<Prints> {
    let must = std::iter::once(path).chain(watched.certificates.iter().map(PathBuf::as_path)).map(print);
    // What is not issued yet is as good as empty.
    let may = watched.others.iter().map(|path| Some(print(path).unwrap_or((SystemTime::UNIX_EPOCH, 0, 0))));
    must.chain(may).collect()
}

pub(crate) fn print(path: &Path) -> Option<Print> {
    use std::os::unix::fs::MetadataExt;
    let metadata = std::fs::metadata(path).ok()?;
    Some((metadata.modified().ok()?, metadata.size(), metadata.ino()))
}

impl Target for Arc<SentryHandle> {
    fn apply(&self, config: Config) -> Result<(), String> {
        self.reload(config).map_err(|error| error.to_string())
    }
}

/// A reloader on a thread of its own. Dropped, it stops.
#[derive(Debug)]
pub struct Watcher {
    bell: Option<SyncSender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Watcher {
    /// Starts watching.
    ///
    /// # Errors
    /// When the thread cannot be started.
    pub fn start<T: Target + 'static>(reloader: Reloader<T>) -> std::io::Result<Self> {
        let (bell, rings) = sync_channel(1);
        let thread = std::thread::Builder::new().name("tidegate-reload".to_owned());
        let thread = thread.spawn(move || watch(reloader, &rings))?;
        Ok(Watcher { bell: Some(bell), thread: Some(thread) })
    }

    /// Reads the file now, changed or not (SIGHUP): files that it names may have changed.
    pub fn reload(&self) {
        // A bell that has been rung and not yet heard is enough.
        let _ = self.bell.as_ref().map(|bell| bell.try_send(()));
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.bell = None;
        if let Some(thread) = self.thread.take() {
            // A panic has been printed.
            let _ = thread.join();
        }
    }
}

fn watch<T: Target>(mut reloader: Reloader<T>, rings: &Receiver<()>) {
    loop {
        match rings.recv_timeout(PERIOD) {
            Ok(()) => {
                reloader.reload();
                // Whoever rang has said that something is under way.
                notify::ready();
            }
            Err(RecvTimeoutError::Timeout) => reloader.poll(),
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::board::NoticeKind;
    use crate::events::Events;
    use std::sync::Mutex;

    /// Keeps what was applied; refuses applications called "bad".
    #[derive(Clone, Default)]
    struct Applied(Arc<Mutex<Vec<Duration>>>);

    impl Target for Applied {
        fn apply(&self, config: Config) -> Result<(), String> {
            if config.applications[0].name == "bad" {
                return Err("no".to_owned());
            }
            self.0.lock().expect("not poisoned").push(config.applications[0].setup.sla.target(0.0));
            Ok(())
        }
    }

    struct Bench {
        path: PathBuf,
        reloader: Reloader<Applied>,
        applied: Applied,
        board: Arc<Board>,
    }

    impl Bench {
        fn new(name: &str) -> Self {
            Bench::with(name, &file("shop", "1s"))
        }

        fn with(name: &str, text: &str) -> Self {
            let path = std::env::temp_dir().join(format!("tidegate-reload-{name}-{}.toml", std::process::id()));
            std::fs::write(&path, text).expect("writes");
            let config = Config::load(&path).expect("valid").config;
            let board = Arc::new(Board::new(config, Vec::new(), Arc::default()));
            let log = Arc::new(AccessLog::open(&crate::config::AccessLog::Off).expect("opens"));
            let applied = Applied::default();
            let reloader = Reloader::new(&path, applied.clone(), board.clone(), log);
            Bench { path, reloader, applied, board }
        }

        /// Writes the file and looks at it until it has settled.
        fn write(&mut self, text: &str) {
            std::fs::write(&self.path, text).expect("writes");
            self.reloader.poll();
            self.reloader.poll();
        }

        fn applied(&self) -> Vec<Duration> {
            self.applied.0.lock().expect("not poisoned").clone()
        }
    }

    impl Drop for Bench {
        fn drop(&mut self) {
            // The folder is temporary: leaving the file harms nobody.
            let _ = std::fs::remove_file(&self.path);
        }
    }

    fn file(name: &str, target: &str) -> String {
        format!("[[application]]\nname = \"{name}\"\ntarget = \"{target}\"\nservers = \"127.0.0.1:1\"\n")
    }

    #[test]
    fn a_changed_file_is_read_once_it_has_settled() {
        let mut bench = Bench::new("changed");
        bench.reloader.poll();
        assert!(bench.applied().is_empty(), "nothing has changed");
        std::fs::write(&bench.path, file("shop", "2500ms")).expect("writes");
        bench.reloader.poll();
        assert!(bench.applied().is_empty(), "it may still be being written");
        bench.reloader.poll();
        bench.reloader.poll();
        assert_eq!(bench.applied(), [Duration::from_millis(2500)], "once");
        assert_eq!(bench.board.reload_counts(), (1, 0));
        assert_eq!(bench.board.config().applications[0].setup.sla.target(0.0), Duration::from_millis(2500));
    }

    #[test]
    fn an_invalid_file_changes_nothing_and_says_why() {
        let (mut bench, logged) = (Bench::new("invalid"), Events::catch());
        bench.write("[[application]]\ntagret = \"500ms\"\n");
        assert!(bench.applied().is_empty());
        assert_eq!(bench.board.reload_counts(), (0, 1));
        let notice = bench.board.notices().pop().expect("a notice");
        assert_eq!(notice.kind, NoticeKind::ReloadFailed);
        let refused = "ERROR the new configuration is refused, the old one stays in force:\n";
        assert_eq!(logged.lines(), [format!("{refused}{}", notice.text)]);
        assert!(
            notice.text.contains(":2: unknown key \"tagret\" in [[application]]; did you mean \"target\"?"),
            "{notice:?}"
        );
        bench.write(&file("bad", "1500ms"));
        assert_eq!(bench.board.reload_counts(), (0, 2), "refused by the sentry");
        bench.write(&file("shop", "3s"));
        assert_eq!((bench.applied(), bench.board.reload_counts()), (vec![Duration::from_secs(3)], (1, 2)));
        assert_eq!(logged.lines().pop(), Some(format!("INFO {} is in force", bench.path.display())));
    }

    #[test]
    fn what_needs_a_restart_is_said() {
        let mut bench = Bench::new("restart");
        bench.write(&format!("{}[sentry]\nworkers = 77\n", file("shop", "1s")));
        let why = bench.board.notices().pop().expect("a notice").text;
        assert_eq!(why, "[sentry] workers cannot change while the sentry runs; restart it");
    }

    #[test]
    fn keys_that_change_are_put_in_force_and_their_file_may_be_gone() {
        let keys = std::env::temp_dir().join(format!("tidegate-reload-keys-{}", std::process::id()));
        let write = |text: &str| std::fs::write(&keys, text).expect("writes");
        write("0123456789abcdef");
        let text = |target| format!("[reports]\nkey_file = \"{}\"\n{}", keys.display(), file("shop", target));
        let mut bench = Bench::with("keys", &text("1s"));
        let looked = |bench: &mut Bench| {
            bench.reloader.poll();
            bench.reloader.poll();
            bench.board.reload_counts()
        };
        assert_eq!(looked(&mut bench), (0, 0));
        write("0123456789abcdef\nand another one, long enough");
        assert_eq!(looked(&mut bench), (1, 0));
        write("short");
        assert_eq!(looked(&mut bench), (1, 1));
        std::fs::remove_file(&keys).expect("our own file");
        bench.write(&text("2s"));
        assert_eq!(bench.board.reload_counts(), (1, 2), "nothing is put in force without keys, and that is said");
        assert!(bench.board.notices().pop().expect("a notice").text.contains("cannot be read"));
        write("and another one, long enough");
        assert_eq!(looked(&mut bench), (2, 2));
        std::fs::remove_file(&keys).expect("our own file");
    }

    #[test]
    fn a_file_that_is_gone_changes_nothing() {
        let mut bench = Bench::new("gone");
        std::fs::remove_file(&bench.path).expect("removes");
        bench.reloader.poll();
        bench.reloader.poll();
        assert_eq!(bench.board.reload_counts(), (0, 0), "it may be being replaced");
        bench.reloader.reload();
        assert_eq!(bench.board.reload_counts(), (0, 1), "asked for by a signal, a missing file is an error");
    }
}
