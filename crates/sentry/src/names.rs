//! Servers and other sentries that the configuration does not list one by one: names, which are all of their
//! addresses, services of Kubernetes, which are their pods, and files of servers. They are looked up and watched on a
//! thread of the process's own; workers never wait for any of it.
//!
//! `course` is what is believed of a name, and when; `lookup` asks; `pods` and `files` watch. What is found goes to
//! those who want it (`seeker`): to applications (`App::find`), where it enters as a reload does, and to the exchange
//! with other sentries.

mod course;
mod files;
mod lookup;
mod pods;
mod seeker;
mod view;

use std::collections::HashMap;
use std::io;
use std::mem::{Discriminant, discriminant};
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
use crate::peers;
use course::{Answer, Course, Standing};
use files::Watched;
use lookup::Source;
use pods::Followed;
use seeker::Seeker;

pub(crate) use course::{Belief, Member};
pub(crate) use lookup::Named;
pub use view::{Led, Seen, View, look_up};

/// How long the start waits for the first answers: whoever is away then comes later.
const FIRST: Duration = Duration::from_secs(3);

/// The same where no servers have names: other sentries can be done without.
const FIRST_OF_PEERS: Duration = Duration::from_secs(1);

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
    /// Starts looking names up for `apps` and `peers`, which ring `bell` when there may be others. Returns when there
    /// was an answer for each, or after a few seconds without.
    ///
    /// # Errors
    /// When the thread cannot be started.
    pub(crate) fn start(
        apps: &[Arc<App>],
        peers: Option<&Arc<peers::View>>,
        bell: Arc<Notify>,
        resolvers: &[SocketAddr],
    ) -> io::Result<Names> {
        let shared = Shared { bell, stop: AtomicBool::new(false), resolvers: Mutex::new(resolvers.to_vec()) };
        let (shared, view) = (Arc::new(shared), Arc::new(View::default()));
        let (first, answered) = sync_channel(1);
        let mut thread = Thread {
            apps: apps.to_vec(),
            seekers: Seeker::all(apps, peers),
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
        let has_names = |app: &Arc<App>| !app.wanted().names.is_empty();
        // An error means that it is late, or over; both are said where they happen.
        let _ = answered.recv_timeout(if apps.iter().any(has_names) { FIRST } else { FIRST_OF_PEERS });
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
    /// Which kind of answer was the last one.
    last: Option<Discriminant<Answer>>,
    /// Where it is not looked up.
    followed: Option<Followed>,
}

impl Kept {
    /// One that is new at `now`; `bell` is rung when there is news of one that is followed.
    fn new(named: &Named, now: Duration, bell: &Arc<Notify>) -> Kept {
        let mut course = Course::new(now);
        course.belief = named.belief();
        let followed = match named {
            Named::Host { .. } | Named::Service(_) => None,
            Named::Pods(service) => Some(Followed::start(service.clone(), bell.clone())),
        };
        Kept { course, is_asked: followed.is_some(), is_answered: false, last: None, followed }
    }
}

struct Thread {
    apps: Vec<Arc<App>>,
    /// Whose names are looked up: the applications, and the exchange with other sentries.
    seekers: Vec<Seeker>,
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
            self.tell_first();
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
        let wanted: Vec<_> = self.seekers.iter().map(Seeker::names).collect();
        self.names.retain(|named, _| wanted.iter().any(|names| names.contains(named)));
        for (named, kept) in &mut self.names {
            kept.course.belief = named.belief();
        }
        for (seeker, names) in self.seekers.iter().zip(wanted) {
            for named in names {
                let new = || Kept::new(&named, now, &self.shared.bell);
                let course = &mut self.names.entry(named.clone()).or_insert_with(new).course;
                course.belief = course.belief.and(seeker.belief());
                // Another had it before this one.
                if !course.members.is_empty() {
                    let members = course.members.clone();
                    seeker.find(|found| {
                        found.entry(named).or_insert(members);
                    });
                }
            }
        }
        let wanted: Vec<_> = self.apps.iter().flat_map(|app| app.wanted().files).collect();
        self.files.retain(|path, _| wanted.contains(path));
        for path in wanted {
            self.files.entry(path).or_insert_with_key(|path| Watched::new(path));
        }
    }

    /// Says, once, that every name has had an answer.
    fn tell_first(&mut self) {
        if self.names.values().all(|kept| kept.is_answered)
            && let Some(first) = self.first.take()
        {
            // Nobody waits any more: it was late.
            let _ = first.try_send(());
        }
    }

    /// Asks for names whose time has come, and hears of those that are followed.
    fn ask(&mut self, asked: &mut Asked) {
        let now = self.now();
        let resolvers = self.shared.resolvers().clone();
        let mut heard = Vec::new();
        for (named, kept) in &mut self.names {
            if let Some(followed) = &kept.followed {
                // The last answer counts once more in time: that there is none is believed after a while.
                let is_due = !kept.is_asked && kept.course.due() <= now;
                heard.extend(followed.take(is_due).into_iter().map(|answer| (named.clone(), answer)));
                continue;
            }
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
        for (named, answer) in heard {
            self.hear(named, answer);
        }
    }

    /// A name has an answer.
    fn hear(&mut self, named: Named, answer: Answer) {
        let now = self.now();
        let users: Vec<_> = self.seekers.iter().filter(|seeker| seeker.wants(&named)).collect();
        let Some(kept) = self.names.get_mut(&named) else { return };
        (kept.is_asked, kept.is_answered) = (false, true);
        let course = &mut kept.course;
        // That there is none and that nothing is known are two things.
        let kind = Some(discriminant(&answer));
        let is_other = std::mem::replace(&mut kept.last, kind) != kind;
        let is_new = is_other || course.problem.is_none();
        let before = course.standing;
        let changed = course.handle_answer(now, answer, chance());
        let shown = || course.members.iter().map(|member| member.address.to_string()).collect::<Vec<_>>().join(", ");
        let why = course.problem.as_deref().unwrap_or_default();
        let of = users.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        match course.standing {
            // Said once, until it changes.
            Standing::Stale if before != Standing::Stale => {
                warn!(name = %named, of, "{why}; its addresses stay those of the last good answer: {}", shown());
            }
            Standing::Unknown if changed || is_new => {
                warn!(name = %named, of, "{why}; it has no addresses: {}", named.advice());
            }
            Standing::Fresh if changed => info!(name = %named, of, "its addresses are {}", shown()),
            Standing::Fresh if before == Standing::Stale => info!(name = %named, of, "it is answered again"),
            _ => {}
        }
        if changed {
            let members = course.members.clone();
            for seeker in users {
                seeker.find(|found| drop(found.insert(named.clone(), members.clone())));
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
        let names = self.names.iter().map(|(named, kept)| {
            let users: Vec<_> = self.seekers.iter().filter(|seeker| seeker.wants(named)).collect();
            Seen::of_name(named, &kept.course, &users, self.origin)
        });
        let files = self.files.iter().map(|(path, watched)| {
            let users = self.apps.iter().filter(|app| app.wanted().files.contains(path));
            Seen::of_file(path, watched, users.map(|app| app.name().to_owned()).collect())
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

#[cfg(test)]
mod tests {
    use tokio::sync::watch;

    use super::course::Good;
    use super::*;
    use crate::config::{PeerPlace, Peers};
    use crate::events::Events;
    use crate::sockets::Sockets;

    #[test]
    fn what_becomes_of_a_name_of_other_sentries_is_said_and_its_last_addresses_stay() {
        let place = PeerPlace::Host { name: String::from("sentries.example"), port: 9903 };
        let named = Named::of_peers(&place).expect("a name");
        let keys = tidegate_wire::Keys::derive(b"a secret of the tests");
        let listen = ([127, 0, 0, 1], 0).into();
        let config = Peers { listen, sentries: vec![place], key_file: PathBuf::new(), keys };
        let (_open, opened) = watch::channel(false);
        let bell = Arc::new(Notify::new());
        let peers = peers::Peers::start(&config, &[], opened, bell.clone(), &mut Sockets::default()).expect("a port");
        let view = peers.view();
        let shared = Shared { bell, stop: AtomicBool::new(false), resolvers: Mutex::default() };
        let mut thread = Thread {
            apps: Vec::new(),
            seekers: Seeker::all(&[], Some(view)),
            shared: Arc::new(shared),
            view: Arc::default(),
            source: Source::default(),
            origin: Instant::now(),
            names: HashMap::new(),
            files: HashMap::new(),
            first: None,
        };
        let logged = Events::catch();
        thread.follow();
        assert_eq!(thread.names[&named].course.belief, peers::BELIEF);
        thread.hear(named.clone(), Answer::Nothing(String::from("there is no \"sentries.example\"")));
        let said = logged.lines().join("\n");
        for part in ["sentries.example:9903", "sentries of [peers]", "there is no", "correct the name"] {
            assert!(said.contains(part), "{part}: {said}");
        }
        assert_eq!(view.peers(), []);
        let address = ([127, 0, 0, 1], 9903).into();
        let members = vec![Member { address, weight: 1.0 }];
        thread.hear(named.clone(), Answer::Found(Good { members, ..Good::default() }));
        let says = |part: &str| logged.lines().iter().any(|line| line.contains(part));
        assert!(says("its addresses are 127.0.0.1:9903"), "{:?}", logged.lines());
        thread.hear(named, Answer::Failed(String::from("timed out")));
        assert!(says("timed out; its addresses stay"), "{:?}", logged.lines());
        let known = view.peers();
        assert_eq!((known.len(), known[0].address), (1, address));
        assert_eq!(known[0].name.as_deref(), Some("sentries.example:9903"));
        thread.show();
        let shown = thread.view.to_json();
        assert_eq!((shown[0]["is_of_peers"].as_bool(), shown[0]["state"].as_str()), (Some(true), Some("stale")));
    }
}
