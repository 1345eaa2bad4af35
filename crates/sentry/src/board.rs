//! The sentry process as a whole, as the admin API and metrics see it: its applications, its configuration, and what
//! happened to the process itself. What is put up here is logged here.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Instant, SystemTime};

use arc_swap::ArcSwap;
use tokio::sync::broadcast;
use tracing::{debug, error, info, warn};

use crate::app::App;
use crate::config::Config;
use crate::reports::View;

/// How many notices are kept, and how many a slow listener may lag behind.
const KEPT: usize = 200;

/// What the whole process shows. One per sentry; written at start, on reload and when draining begins.
#[derive(Debug)]
pub struct Board {
    applications: ArcSwap<Vec<Arc<App>>>,
    config: ArcSwap<Config>,
    draining: AtomicBool,
    reloads: AtomicU64,
    reload_failures: AtomicU64,
    upgrade_failures: AtomicU64,
    /// Processors in use, as bits of an `f64`.
    cpu: AtomicU64,
    dropped_records: Arc<AtomicU64>,
    reports: OnceLock<Arc<View>>,
    peers: OnceLock<Arc<crate::peers::View>>,
    control: OnceLock<Arc<crate::control::View>>,
    names: OnceLock<Arc<crate::names::View>>,
    notices: Mutex<VecDeque<Notice>>,
    news: broadcast::Sender<Notice>,
    next_notice: AtomicU64,
    began: Instant,
    began_at: SystemTime,
}

/// Something that happened to the process.
#[derive(Clone, Debug, PartialEq)]
pub struct Notice {
    /// Counts up from 0 without gaps.
    pub number: u64,
    /// When, since the process began.
    pub at: std::time::Duration,
    /// What.
    pub kind: NoticeKind,
    /// In words.
    pub text: String,
}

/// The kinds of notices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NoticeKind {
    /// A new configuration is in force.
    Reloaded,
    /// A new configuration was refused; the old one stays in force.
    ReloadFailed,
    /// The sentry takes no new requests.
    Draining,
    /// A person changed something through the admin API.
    Changed,
    /// The control plane was found or lost, or said something.
    Control,
    /// A successor is to take over, or did not.
    Upgrade,
}

impl NoticeKind {
    /// The name in the event stream.
    pub const fn name(self) -> &'static str {
        match self {
            NoticeKind::Reloaded => "config-reloaded",
            NoticeKind::ReloadFailed => "config-reload-failed",
            NoticeKind::Draining => "draining",
            NoticeKind::Changed => "changed-by-hand",
            NoticeKind::Control => "control-plane",
            NoticeKind::Upgrade => "upgrade",
        }
    }
}

impl Board {
    /// A board for a process that starts now. `dropped_records` is the access log's counter.
    pub(crate) fn new(config: Config, applications: Vec<Arc<App>>, dropped_records: Arc<AtomicU64>) -> Self {
        Board {
            applications: ArcSwap::from_pointee(applications),
            config: ArcSwap::from_pointee(config),
            draining: AtomicBool::new(false),
            reloads: AtomicU64::new(0),
            reload_failures: AtomicU64::new(0),
            upgrade_failures: AtomicU64::new(0),
            cpu: AtomicU64::new(0),
            dropped_records,
            reports: OnceLock::new(),
            peers: OnceLock::new(),
            control: OnceLock::new(),
            names: OnceLock::new(),
            notices: Mutex::default(),
            news: broadcast::channel(KEPT).0,
            next_notice: AtomicU64::new(0),
            began: Instant::now(),
            began_at: SystemTime::now(),
        }
    }

    /// The applications in force.
    pub fn applications(&self) -> Arc<Vec<Arc<App>>> {
        self.applications.load_full()
    }

    /// The application of that name.
    pub fn application(&self, name: &str) -> Option<Arc<App>> {
        self.applications.load().iter().find(|app| app.name() == name).cloned()
    }

    /// The configuration in force.
    pub fn config(&self) -> Arc<Config> {
        self.config.load_full()
    }

    /// Shows what nuclei report. Once; later calls change nothing.
    pub fn show_reports(&self, view: Arc<View>) {
        // There is one listener in the life of a process.
        let _ = self.reports.set(view);
    }

    /// What nuclei report.
    pub fn reports(&self) -> Option<&View> {
        self.reports.get().map(|view| &**view)
    }

    /// Shows what is known of other sentries. Once; later calls change nothing.
    pub fn show_peers(&self, view: Arc<crate::peers::View>) {
        // There is one exchange in the life of a process.
        let _ = self.peers.set(view);
    }

    /// What is known of other sentries.
    pub fn peers(&self) -> Option<&crate::peers::View> {
        self.peers.get().map(|view| &**view)
    }

    /// Shows how it stands with the control plane. Once; later calls change nothing.
    pub fn show_control(&self, view: Arc<crate::control::View>) {
        // There is one control plane in the life of a process.
        let _ = self.control.set(view);
    }

    /// How it stands with the control plane, if there is one to follow.
    pub fn control(&self) -> Option<&crate::control::View> {
        self.control.get().map(|view| &**view)
    }

    /// Shows what is known of names of servers. Once; later calls change nothing.
    pub fn show_names(&self, view: Arc<crate::names::View>) {
        // There is one thread for them in the life of a process.
        let _ = self.names.set(view);
    }

    /// What is known of names of servers, and of files of servers.
    pub fn names(&self) -> Option<&crate::names::View> {
        self.names.get().map(|view| &**view)
    }

    /// Records that the control plane is heard, and what it said.
    pub fn control_news(&self, what: impl Into<String>) {
        let what = what.into();
        info!("{what}");
        self.notice(NoticeKind::Control, what);
    }

    /// Records that the control plane is not heard, or cannot be followed, and why.
    pub fn control_trouble(&self, what: impl Into<String>) {
        let what = what.into();
        warn!("{what}");
        self.notice(NoticeKind::Control, what);
    }

    /// Puts up what a reload brought. `text` says what changed.
    pub fn reloaded(&self, config: Config, applications: Vec<Arc<App>>, text: impl Into<String>) {
        self.config.store(Arc::new(config));
        self.applications.store(Arc::new(applications));
        self.reloads.fetch_add(1, Relaxed);
        let text = text.into();
        info!("{text}");
        self.notice(NoticeKind::Reloaded, text);
    }

    /// Records that a new configuration was refused, and why.
    pub fn reload_failed(&self, why: impl Into<String>) {
        self.reload_failures.fetch_add(1, Relaxed);
        let why = why.into();
        error!("the new configuration is refused, the old one stays in force:\n{why}");
        self.notice(NoticeKind::ReloadFailed, why);
    }

    /// Records how it stands with a successor.
    pub fn upgrading(&self, what: impl Into<String>) {
        let what = what.into();
        info!("{what}");
        self.notice(NoticeKind::Upgrade, what);
    }

    /// Records that there is no successor, and why: the process goes on.
    pub fn upgrade_failed(&self, why: impl Into<String>) {
        self.upgrade_failures.fetch_add(1, Relaxed);
        let why = why.into();
        error!("there is no successor, this process serves on: {why}");
        self.notice(NoticeKind::Upgrade, why);
    }

    /// Upgrades that failed.
    pub fn upgrade_failures(&self) -> u64 {
        self.upgrade_failures.load(Relaxed)
    }

    /// Records that a person changed something through the admin API, and what.
    pub fn changed(&self, what: impl Into<String>) {
        let what = what.into();
        info!("changed by hand: {what}");
        self.notice(NoticeKind::Changed, what);
    }

    /// Says that no new requests are taken: `/readyz` fails from now on.
    pub fn drain(&self) {
        if !self.draining.swap(true, Relaxed) {
            let text = "the sentry finishes what it has and takes nothing new";
            // At this level as whoever drains it knows more: for how long.
            debug!("{text}");
            self.notice(NoticeKind::Draining, text.to_owned());
        }
    }

    /// Whether [`Board::drain`] was called.
    pub fn draining(&self) -> bool {
        self.draining.load(Relaxed)
    }

    /// Reloads that took effect, and reloads that were refused.
    pub fn reload_counts(&self) -> (u64, u64) {
        (self.reloads.load(Relaxed), self.reload_failures.load(Relaxed))
    }

    /// Processors in use over the last second or so: 1.0 is one processor fully busy.
    pub fn cpu(&self) -> f64 {
        f64::from_bits(self.cpu.load(Relaxed))
    }

    /// Measures [`Board::cpu`] once a second, for ever.
    pub(crate) async fn measure_cpu(&self) {
        let (mut used, mut at) = (cpu_time(), Instant::now());
        loop {
            tokio::time::sleep(std::time::Duration::from_secs(1)).await;
            let (used_now, now) = (cpu_time(), Instant::now());
            let share = used_now.saturating_sub(used).as_secs_f64() / now.duration_since(at).as_secs_f64();
            (used, at) = (used_now, now);
            self.cpu.store(share.to_bits(), Relaxed);
        }
    }

    /// Access log lines that were dropped because the disk could not follow.
    pub fn dropped_records(&self) -> u64 {
        self.dropped_records.load(Relaxed)
    }

    /// How long the process has been running.
    pub fn uptime(&self) -> std::time::Duration {
        self.began.elapsed()
    }

    /// When the process began.
    pub fn began_at(&self) -> SystemTime {
        self.began_at
    }

    /// The last notices, oldest first.
    pub fn notices(&self) -> Vec<Notice> {
        self.lock().iter().cloned().collect()
    }

    /// New notices from now on.
    pub fn subscribe(&self) -> broadcast::Receiver<Notice> {
        self.news.subscribe()
    }

    fn notice(&self, kind: NoticeKind, text: String) {
        let mut notices = self.lock();
        let number = self.next_notice.fetch_add(1, Relaxed);
        let notice = Notice { number, at: self.uptime(), kind, text };
        if notices.len() == KEPT {
            notices.pop_front();
        }
        notices.push_back(notice.clone());
        // Sent under the lock, so that listeners see numbers in order. Nobody listens: that is fine.
        let _ = self.news.send(notice);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, VecDeque<Notice>> {
        self.notices.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Processor time that the process has used.
pub(crate) fn cpu_time() -> std::time::Duration {
    let used = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    std::time::Duration::new(used.tv_sec.unsigned_abs(), used.tv_nsec.unsigned_abs() as u32)
}
