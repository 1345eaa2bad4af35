//! Following a control plane: a thread that reports what was offered, and puts in force what comes back.
//!
//! *Awkward cases.* Cut off, the sentry works on with the last it was told, says so, and tries again, ever less often.
//! Where several control planes share the work the next one is tried at once, and one that waits for its turn says so.
//! Orders are complete and numbered: those of an older control plane than the last one are not listened to. An empty
//! server set is not believed: somebody must serve, and a control plane that has lost all of them is no reason to give
//! up those that are there; its target counts. A successor goes on by the orders of the process before it, and under
//! the same number, so that the control plane takes it for the same sentry: else it would have no servers until that
//! one is gone.

mod line;
mod seen;

use std::io;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tidegate_engine::{Sla, Statistic, Step};
use tidegate_wire::control::{ApplicationOrders, ChannelError, FromControl, FromSentry, Hello, Orders, TargetOrder};

use crate::app::{App, Governed};
use crate::board::{Board, cpu_time};
use crate::config;
use line::Line;
use seen::Watch;

/// How long connecting, and waiting for the first word, may take.
const PATIENCE: Duration = Duration::from_secs(3);
/// Between two tries: at first, and at most.
const AGAIN: Duration = Duration::from_millis(200);
const AGAIN_MOST: Duration = Duration::from_secs(5);
/// At most while control planes wait for one to be elected.
const AGAIN_ELECTION: Duration = Duration::from_secs(1);
/// How often the thread looks whether it is to stop.
const TICK: Duration = Duration::from_millis(50);
/// A control plane that takes no report for so long is lost.
const STUCK: Duration = Duration::from_secs(5);
/// Nor is one there that says nothing for so many periods and a second, though it said that it would. It judges
/// sentries in the same way.
const SILENT_PERIODS: u32 = 5;

/// The thread. Dropped, it says goodbye and stops.
#[derive(Debug)]
pub struct Follower {
    view: Arc<View>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// How it stands with the control plane.
#[derive(Debug)]
pub struct View {
    name: String,
    instance: u64,
    /// Where control planes are.
    all: Vec<String>,
    seen: Mutex<Seen>,
    orders: Mutex<Orders>,
}

/// What a successor goes on with.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Followed {
    instance: u64,
    /// Whose orders.
    connect: Vec<String>,
    orders: Orders,
}

impl Followed {
    /// Puts the orders in force, if they are of the control plane that is followed from now on. What is in force.
    pub(crate) fn obey(&self, apps: &[Arc<App>], control: &config::Control) -> Followed {
        let none = Followed { orders: Orders::default(), ..self.clone() };
        if self.connect != control.connect {
            return none;
        }
        match obey_all(apps, &self.orders) {
            Ok(()) => self.clone(),
            Err(why) => {
                tracing::warn!("the orders of the process before are not in force: {why}");
                none
            }
        }
    }
}

/// How it stands with the control plane, at one instant.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Seen {
    /// Whether it is heard.
    pub is_connected: bool,
    /// Where it is, or is looked for.
    pub connect: String,
    /// The newest orders in force: term and revision; zeros for none.
    pub applied: (u64, u64),
    /// How often it was lost.
    pub cuts: u64,
    /// Orders that could not be put in force.
    pub orders_refused: u64,
    /// Why it is not heard, or why orders could not be put in force, last.
    pub problem: Option<String>,
}

impl Follower {
    /// Starts following for `apps`; what comes of it is shown on `board`. `before`: what is in force already, of the
    /// process that this one follows.
    ///
    /// # Errors
    /// When the thread cannot be started.
    pub(crate) fn start(
        control: &config::Control,
        apps: &[Arc<App>],
        board: &Arc<Board>,
        before: Option<Followed>,
    ) -> io::Result<Follower> {
        let (instance, orders) = match before {
            Some(before) => (before.instance, before.orders),
            None => (tidegate_wire::random_u64(), Orders::default()),
        };
        let connect = control.connect.first().cloned().unwrap_or_default();
        let seen = Seen { connect, applied: (orders.term, orders.revision), ..Seen::default() };
        let (name, seen, orders) = (control.name.clone(), Mutex::new(seen), Mutex::new(orders));
        let view = Arc::new(View { name, instance, all: control.connect.clone(), seen, orders });
        board.show_control(view.clone());
        let stop = Arc::new(AtomicBool::new(false));
        let thread = Thread {
            control: control.clone(),
            apps: apps.to_vec(),
            board: board.clone(),
            view: view.clone(),
            stop: stop.clone(),
        };
        let thread = std::thread::Builder::new().name(String::from("tidegate-control")).spawn(move || thread.run())?;
        Ok(Follower { view, stop, thread: Some(thread) })
    }

    /// How it stands, and what a successor goes on with.
    pub(crate) fn view(&self) -> &Arc<View> {
        &self.view
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        if let Some(thread) = self.thread.take() {
            // A panic has been printed.
            let _ = thread.join();
        }
    }
}

impl View {
    /// How it stands now.
    pub fn seen(&self) -> Seen {
        self.lock().clone()
    }

    /// These orders are in force. Where they have no servers, those before them are.
    fn remember(&self, orders: &Orders) {
        let mut known = self.orders.lock().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::replace(&mut *known, orders.clone());
        for order in known.applications.iter_mut().filter(|order| order.servers.is_empty()) {
            let same = before.applications.iter().find(|before| before.name == order.name);
            order.servers = same.map_or_else(Vec::new, |before| before.servers.clone());
        }
    }

    /// What a successor goes on with.
    pub(crate) fn followed(&self) -> Followed {
        let orders = self.orders.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Followed { instance: self.instance, connect: self.all.clone(), orders }
    }

    /// Everything, as `/api/state` shows it.
    pub fn to_json(&self) -> Value {
        let seen = self.seen();
        json!({
            "name": self.name,
            "connect": seen.connect,
            "connected": seen.is_connected,
            "term": seen.applied.0,
            "revision": seen.applied.1,
            "cuts": seen.cuts,
            "orders_refused": seen.orders_refused,
            "problem": seen.problem,
        })
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Thread {
    control: config::Control,
    apps: Vec<Arc<App>>,
    board: Arc<Board>,
    view: Arc<View>,
    stop: Arc<AtomicBool>,
}

/// Why a connection is over.
enum Over {
    /// This sentry stops.
    Stopped,
    /// It was lost, or never there.
    Lost(String),
    /// The control plane does not want this sentry.
    Refused(String),
    /// Another control plane leads, or will.
    Waits(String),
}

impl From<io::Error> for Over {
    fn from(error: io::Error) -> Over {
        Over::Lost(error.to_string())
    }
}

impl From<ChannelError> for Over {
    fn from(error: ChannelError) -> Over {
        Over::Lost(error.to_string())
    }
}

impl Thread {
    fn run(self) {
        let (mut again, mut told, mut at) = (AGAIN, None, 0);
        // Addresses that were tried in vain since one was heard, or since the last pause.
        let mut tried = 0;
        while !self.stops() {
            let connect = &self.control.connect[at % self.control.connect.len()];
            self.view.lock().connect.clone_from(connect);
            let Err(over) = self.follow(connect) else { return };
            if std::mem::take(&mut self.view.lock().is_connected) {
                (again, told, tried) = (AGAIN, None, 0);
                self.view.lock().cuts += 1;
            }
            let (why, most) = match over {
                Over::Stopped => return,
                Over::Lost(why) => (why, AGAIN_MOST),
                Over::Waits(why) => (why, AGAIN_ELECTION),
                Over::Refused(why) => {
                    again = AGAIN_MOST;
                    (format!("it does not take this sentry: {why}"), AGAIN_MOST)
                }
            };
            self.lost(connect, why, &mut told);
            (at, tried) = (at + 1, tried + 1);
            again = again.min(most);
            if tried >= self.control.connect.len() {
                self.pause(again);
                (again, tried) = ((again * 2).min(most), 0);
            }
        }
    }

    /// Says why it is not heard, once for each reason.
    fn lost(&self, connect: &str, why: String, told: &mut Option<String>) {
        self.view.lock().problem = Some(why.clone());
        // With several, each has its own reason, and they take turns.
        if told.is_none() || (self.control.connect.len() == 1 && told.as_ref() != Some(&why)) {
            self.board.control_trouble(format!(
                "the control plane at {connect} is unreachable: {why}; its last orders stay in force"
            ));
            *told = Some(why);
        }
    }

    /// One connection, to its end.
    fn follow(&self, connect: &str) -> Result<(), Over> {
        // Those of the file as it is now: keys may change while the sentry runs.
        let config = self.board.config();
        let keys = config.control.as_ref().map_or(&self.control.keys, |control| &control.keys);
        let mut line = Line::open(connect, keys)?;
        line.send(&FromSentry::Hello(self.hello()))?;
        let welcomed_by = Instant::now() + PATIENCE;
        let mut period: Option<Duration> = None;
        // When it spoke last, and how long it may say nothing: without end, if it does not tell that it is there.
        let (mut heard, mut patience) = (Instant::now(), None);
        let mut next = welcomed_by;
        let mut watches: Vec<Watch> = self.apps.iter().map(Watch::new).collect();
        let (mut since, mut used) = (Instant::now(), cpu_time());
        loop {
            if self.stops() {
                // It notices anyhow, a little later.
                let _ = line.send(&FromSentry::Goodbye);
                return Err(Over::Stopped);
            }
            let now = Instant::now();
            match period {
                None if now >= welcomed_by => return Err(Over::Lost(String::from("it does not answer"))),
                Some(period) if now >= next => {
                    let (time, used_now) = (now.duration_since(since), cpu_time());
                    let mut report = seen::report(&mut watches, time, self.cpu(used_now.saturating_sub(used), time));
                    report.applied = self.view.lock().applied;
                    line.send(&FromSentry::Report(report))?;
                    (since, used) = (now, used_now);
                    next = (next + period).max(now);
                }
                _ => {}
            }
            while let Some(message) = line.receive(TICK.min(next.saturating_duration_since(Instant::now())))? {
                heard = Instant::now();
                match message {
                    FromControl::Welcome { period_ms, is_told } => {
                        let each = Duration::from_millis(period_ms.clamp(50, 60_000));
                        (period, next) = (Some(each), heard);
                        patience = is_told.then(|| silence(period_ms));
                        self.welcomed(connect);
                    }
                    FromControl::Here => {}
                    FromControl::Refused { why, waits: true } => return Err(Over::Waits(why)),
                    FromControl::Refused { why, .. } => return Err(Over::Refused(why)),
                    FromControl::Orders(orders) => self.obey(&orders),
                }
            }
            // Behind what it had said already: this sentry may have stood still itself.
            if patience.is_some_and(|patience| heard.elapsed() > patience) {
                return Err(Over::Lost(String::from("it says nothing any more")));
            }
        }
    }

    /// Share of the workers' processors.
    fn cpu(&self, used: Duration, time: Duration) -> f64 {
        let workers = self.board.config().sentry.workers.max(1) as f64;
        (used.as_secs_f64() / time.as_secs_f64().max(1e-3) / workers).min(1.0)
    }

    fn hello(&self) -> Hello {
        let classes = |app: &Arc<App>| (app.name().to_owned(), app.live().config.setup.classes.len());
        let addresses = |app: &Arc<App>| {
            let mut all = self.control.addresses.clone();
            if all.is_empty() {
                let listens = app.live().config.listen.clone();
                let tcp = listens.iter().filter(|listen| listen.socket.is_none());
                all = tcp.map(|listen| listen.address.ip()).collect();
            }
            all.into_iter().map(|address| (app.name().to_owned(), address)).collect::<Vec<_>>()
        };
        Hello {
            addresses: self.apps.iter().flat_map(addresses).collect(),
            sentry: self.control.name.clone(),
            instance: self.view.instance,
            applications: self.apps.iter().map(classes).collect(),
            asks: true,
        }
    }

    fn welcomed(&self, connect: &str) {
        let mut seen = self.view.lock();
        (seen.is_connected, seen.problem) = (true, None);
        drop(seen);
        self.board.control_news(format!("the control plane at {connect} is followed"));
    }

    fn obey(&self, orders: &Orders) {
        let number = (orders.term, orders.revision);
        let applied = self.view.lock().applied;
        if number <= applied {
            self.refuse(format!("orders {number:?} come after {applied:?}: another control plane is at work"));
            return;
        }
        if let Err(why) = obey_all(&self.apps, orders) {
            self.refuse(why);
            return;
        }
        self.view.remember(orders);
        self.view.lock().applied = number;
    }

    fn refuse(&self, why: String) {
        let mut seen = self.view.lock();
        seen.orders_refused += 1;
        seen.problem = Some(why.clone());
        drop(seen);
        self.board.control_trouble(format!("orders of the control plane are not followed: {why}"));
    }

    fn pause(&self, time: Duration) {
        let until = Instant::now() + time;
        while !self.stops() && Instant::now() < until {
            std::thread::sleep(TICK.min(time));
        }
    }

    fn stops(&self) -> bool {
        self.stop.load(Relaxed)
    }
}

/// How long a control plane may say nothing that speaks once in its period.
fn silence(period_ms: u64) -> Duration {
    Duration::from_millis(period_ms).saturating_mul(SILENT_PERIODS).saturating_add(Duration::from_secs(1))
}

/// Puts orders in force, up to the first that cannot be.
fn obey_all(apps: &[Arc<App>], orders: &Orders) -> Result<(), String> {
    for order in &orders.applications {
        let Some(app) = apps.iter().find(|app| app.name() == order.name) else { continue };
        obey(app, order).map_err(|why| format!("{}: {why}", order.name))?;
    }
    Ok(())
}

/// Puts an application's orders in force.
fn obey(app: &App, order: &ApplicationOrders) -> Result<(), String> {
    let server = |server: &tidegate_wire::control::ServerOrder| config::Server {
        name: server.name.clone(),
        address: server.address.clone(),
    };
    let servers = (!order.servers.is_empty()).then(|| order.servers.iter().map(server).collect());
    app.govern(Governed { servers, sla: sla(&order.target)? }).map_err(|error| error.to_string())?;
    let soonest = order.coming.iter().map(|coming| coming.in_ms).min();
    app.expect_capacity(soonest.map(|in_ms| Instant::now() + Duration::from_millis(in_ms)));
    Ok(())
}

fn sla(target: &TargetOrder) -> Result<Sla, String> {
    let statistic =
        Statistic::of(&target.statistic).ok_or_else(|| format!("unknown statistic \"{}\"", target.statistic))?;
    let step = |step: &tidegate_wire::control::Step| {
        let target = Duration::try_from_secs_f64(step.target_ms / 1e3).map_err(|error| error.to_string())?;
        Ok(Step { below: step.below.unwrap_or(f64::INFINITY), target })
    };
    let steps = target.steps.iter().map(step).collect::<Result<Vec<_>, String>>()?;
    Sla::new(statistic, steps).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patience_follows_the_period_however_long_it_is() {
        assert_eq!(silence(200), Duration::from_secs(2));
        assert_eq!(silence(600_000), Duration::from_secs(3001), "a control plane may have a period of a day");
        assert_eq!(silence(u64::MAX), Duration::from_millis(u64::MAX).saturating_mul(5) + Duration::from_secs(1));
    }
}
