//! Servers that the configuration does not list one by one: names, which are all of their addresses, and files of
//! servers. They are looked up and watched on a thread of the process's own; workers never wait for either.
//!
//! `course` is what is believed of a name, and when; `lookup` asks; `files` watches. What is found goes to the
//! applications that want it (`App::find`), where it enters as a reload does.

mod course;
mod files;
mod lookup;
mod view;

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tokio::task::JoinSet;
use tracing::{error, info, warn};

use crate::app::{App, Found};
use course::{Answer, Course, Standing};
use files::Watched;
use lookup::Source;

pub(crate) use course::Member;
pub(crate) use lookup::Named;
pub use view::{Led, Seen, View, look_up};

/// How long the start waits for the first answers: whoever is away then comes later.
const FIRST: Duration = Duration::from_secs(3);

/// How long a look-up may take in all, whatever name servers do.
const LONGEST_LOOK: Duration = Duration::from_secs(15);

/// Look-ups at once.
const AT_ONCE: usize = 32;

/// How often files are looked at.
const PERIOD: Duration = Duration::from_secs(1);

/// The thread. Dropped, it stops.
#[derive(Debug)]
pub(crate) struct Names {
    view: Arc<View>,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// What the thread is told.
#[derive(Debug)]
struct Shared {
    bell: Arc<Notify>,
    stop: AtomicBool,
    resolvers: Mutex<Vec<SocketAddr>>,
}

impl Names {
    /// Starts looking names up for `apps`, which ring `bell` when there may be others. Returns when there was an answer
    /// for each, or after a few seconds without.
    ///
    /// # Errors
    /// When the thread cannot be started.
    pub(crate) fn start(apps: &[Arc<App>], bell: Arc<Notify>, resolvers: &[SocketAddr]) -> io::Result<Names> {
        let shared = Shared { bell, stop: AtomicBool::new(false), resolvers: Mutex::new(resolvers.to_vec()) };
        let (shared, view) = (Arc::new(shared), Arc::new(View::default()));
        let (first, answered) = sync_channel(1);
        let mut thread = Thread {
            apps: apps.to_vec(),
            shared: shared.clone(),
            view: view.clone(),
            source: Source::default(),
            origin: Instant::now(),
            names: HashMap::new(),
            files: HashMap::new(),
            first: Some(first),
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let started = std::thread::Builder::new().name(String::from("tidegate-names"));
        let started = started.spawn(move || runtime.block_on(thread.run()))?;
        // An error means that it is late, or over; both are said where they happen.
        let _ = answered.recv_timeout(FIRST);
        Ok(Names { view, shared, thread: Some(started) })
    }

    /// What is known of names and files.
    pub(crate) fn view(&self) -> &Arc<View> {
        &self.view
    }

    /// Asks these name servers from now on; none: those of `/etc/resolv.conf`.
    pub(crate) fn ask(&self, resolvers: &[SocketAddr]) {
        resolvers.clone_into(&mut self.shared.resolvers());
    }
}

impl Drop for Names {
    fn drop(&mut self) {
        self.shared.stop.store(true, Relaxed);
        self.shared.bell.notify_one();
        if let Some(thread) = self.thread.take() {
            // A panic has been printed.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn resolvers(&self) -> MutexGuard<'_, Vec<SocketAddr>> {
        self.resolvers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A name, and whether it is being looked up now.
struct Kept {
    course: Course,
    is_asked: bool,
    /// It has had an answer of some kind.
    is_answered: bool,
}

struct Thread {
    apps: Vec<Arc<App>>,
    shared: Arc<Shared>,
    view: Arc<View>,
    source: Source,
    origin: Instant,
    names: HashMap<Named, Kept>,
    files: HashMap<PathBuf, Watched>,
    /// Told once that every name has had an answer.
    first: Option<SyncSender<()>>,
}

type Asked = JoinSet<(Named, Answer)>;

impl Thread {
    async fn run(&mut self) {
        let (mut asked, bell) = (Asked::new(), self.shared.bell.clone());
        let mut look = self.now() + PERIOD;
        while !self.shared.stop.load(Relaxed) {
            self.follow();
            self.ask(&mut asked);
            self.show();
            let dues = self.names.values().filter(|kept| !kept.is_asked).map(|kept| kept.course.due());
            let files = (!self.files.is_empty()).then_some(look);
            let next = dues.chain(files).min().filter(|_| asked.len() < AT_ONCE);
            let sleep = next.unwrap_or(Duration::from_secs(3600)).saturating_sub(self.now());
            tokio::select! {
                () = bell.notified() => {}
                () = tokio::time::sleep(sleep) => {}
                Some(Ok((named, answer))) = asked.join_next() => self.hear(named, answer),
            }
            if self.now() >= look {
                self.look();
                look = self.now() + PERIOD;
            }
        }
    }

    fn now(&self) -> Duration {
        self.origin.elapsed()
    }

    /// Which names and files are wanted may have changed.
    fn follow(&mut self) {
        let now = self.now();
        let wanted: Vec<_> = self.apps.iter().map(|app| app.wanted()).collect();
        self.names.retain(|named, _| wanted.iter().any(|wanted| wanted.names.contains(named)));
        self.files.retain(|path, _| wanted.iter().any(|wanted| wanted.files.contains(path)));
        for (app, wanted) in self.apps.iter().zip(wanted) {
            for named in wanted.names {
                match self.names.get(&named) {
                    // Another application had it before this one.
                    Some(kept) if !kept.course.members.is_empty() => {
                        let members = kept.course.members.clone();
                        give(app, |found| {
                            found.names.entry(named).or_insert(members);
                        });
                    }
                    Some(_) => {}
                    None => {
                        let course = Course::new(now);
                        self.names.insert(named, Kept { course, is_asked: false, is_answered: false });
                    }
                }
            }
            for path in wanted.files {
                self.files.entry(path).or_insert_with_key(|path| Watched::new(path));
            }
        }
        if self.names.values().all(|kept| kept.is_answered)
            && let Some(first) = self.first.take()
        {
            // Nobody waits any more: it was late.
            let _ = first.try_send(());
        }
    }

    /// Asks for names whose time has come.
    fn ask(&mut self, asked: &mut Asked) {
        let now = self.now();
        let resolvers = self.shared.resolvers().clone();
        for (named, kept) in &mut self.names {
            if kept.is_asked || kept.course.due() > now || asked.len() >= AT_ONCE {
                continue;
            }
            kept.is_asked = true;
            self.source.ask(&resolvers);
            let (asker, named) = (self.source.asker(), named.clone());
            asked.spawn(async move {
                let answer = tokio::time::timeout(LONGEST_LOOK, asker.look_up(&named)).await;
                (named, answer.unwrap_or_else(|_| Answer::Failed(view::late())))
            });
        }
    }

    /// A name has an answer.
    fn hear(&mut self, named: Named, answer: Answer) {
        let now = self.now();
        let Some(kept) = self.names.get_mut(&named) else { return };
        (kept.is_asked, kept.is_answered) = (false, true);
        let course = &mut kept.course;
        let before = (course.standing, course.problem.is_some());
        let changed = course.handle_answer(now, answer, chance());
        let shown = || course.members.iter().map(|member| member.address.to_string()).collect::<Vec<_>>().join(", ");
        let why = course.problem.as_deref().unwrap_or_default();
        match course.standing {
            // Said once, until it changes.
            Standing::Stale if before.0 != Standing::Stale => {
                warn!(name = %named, "{why}; its servers stay those of the last good answer: {}", shown());
            }
            Standing::Unknown if changed || !before.1 => warn!(name = %named, "{why}; it has no servers"),
            Standing::Fresh if changed => info!(name = %named, "its servers are {}", shown()),
            Standing::Fresh if before.0 == Standing::Stale => info!(name = %named, "it is answered again"),
            _ => {}
        }
        if changed {
            let members = course.members.clone();
            for app in self.apps.iter().filter(|app| app.wanted().names.contains(&named)) {
                give(app, |found| drop(found.names.insert(named.clone(), members.clone())));
            }
        }
    }

    /// Looks at the files.
    fn look(&mut self) {
        for (path, watched) in &mut self.files {
            let is_new = watched.look(path);
            let Some(servers) = watched.current() else { continue };
            for app in self.apps.iter().filter(|app| app.wanted().files.contains(path)) {
                // A reload puts in force what it has read, which may be older by now.
                if is_new || !app.has_found(path) {
                    give(app, |found| drop(found.files.insert(path.clone(), servers.clone())));
                }
            }
        }
    }

    fn show(&self) {
        let users = |wants: &dyn Fn(&App) -> bool| {
            self.apps.iter().filter(|app| wants(app)).map(|app| app.name().to_owned()).collect()
        };
        let names = self.names.iter().map(|(named, kept)| {
            let users = users(&|app| app.wanted().names.contains(named));
            Seen::of_name(named, &kept.course, users, self.origin)
        });
        let files = self.files.iter().map(|(path, watched)| {
            let users = users(&|app| app.wanted().files.contains(path));
            Seen::of_file(path, watched, users)
        });
        self.view.show(names.chain(files).collect());
    }
}

fn give(app: &App, change: impl FnOnce(&mut Found)) {
    if let Err(error) = app.find(change) {
        error!(%error, "servers that were found cannot be put in force, those before stay");
    }
}

/// Random, 0 to 1.
fn chance() -> f64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(0) as f64 / u64::MAX as f64
}
