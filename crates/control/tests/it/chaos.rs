//! Thousands of random faults, in virtual time, through the pure parts of both sides: the control plane's core, and
//! the controllers of the sentries that follow it. Servers die and come back, answers and reports are lost, late or
//! doubled, clients leave, clocks jump, controllers are built anew, the control plane is killed and goes on from what
//! it wrote.
//!
//! Whatever happened, no place is lost or doubled; and once it stops, nothing is in flight or waiting, no step is left,
//! no process was started twice, and every application is served.

mod sentry;

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use tidegate_control::plane::{Input, Plane, PlaneState, Process, What};
use tidegate_engine::units::Seconds;
use tidegate_engine::{
    AbandonedBy, Action, Decision, Outcome, Request, Rng, ServerId, Status, Ticket, Timestamp, Watch,
};
use tidegate_provision::{ApplicationReport, FollowConfig, Place, Pool, ProvisionConfig, ServerNews, Site};

use crate::support::application::application;
use sentry::{Job, Sentry, controller};

/// Places for servers, and applications that want them; a sentry each.
const SERVERS: usize = 8;
const APPLICATIONS: usize = 2;

/// A turn, and how many faults fall on each run.
const TURN: Duration = Duration::from_millis(100);
const TURNS: u64 = 600;
const CALM: u64 = 1500;
const RUNS: u64 = 12;
const FAULTS: u64 = 5000;

/// When a sentry gives up on an answer.
const TIME_OUT: Duration = Duration::from_secs(2);

/// What runs at a place.
#[derive(Clone, Copy, Debug)]
struct Server {
    step: u64,
    ready: Timestamp,
}

/// Everything, and what befalls it.
struct World {
    rng: Rng,
    now: Timestamp,
    /// The control plane's clock is so much ahead.
    ahead: Duration,
    plane: Plane,
    /// As it was last written; while this is set it is dead.
    written: Option<String>,
    servers: BTreeMap<usize, Server>,
    /// Steps that a process was started for.
    started: Vec<u64>,
    sentries: Vec<Sentry>,
    /// Orders and reports on their way: when they arrive.
    orders: Vec<(Timestamp, usize, u64, Vec<usize>)>,
    last_report: Vec<Option<ApplicationReport>>,
    number: u64,
    faults: u64,
    calm: bool,
}

fn site() -> Site {
    let (every, smooth) = (Seconds(1.0), Seconds(3.0));
    let follow = FollowConfig { every, smooth, trend: Seconds(10.0), hold: Seconds(5.0), ..FollowConfig::default() };
    Site {
        servers: SERVERS as u32,
        pool: Pool { setup_time: Duration::from_secs(2), drain_limit: Duration::from_secs(10), ..Pool::default() },
        applications: vec![application("shop"), application("mail")],
        policy: ProvisionConfig::Follow(follow),
        sentries: Default::default(),
        posts: Default::default(),
    }
}

impl World {
    fn new(seed: u64) -> World {
        let mut rng = Rng::new(seed);
        let policies = ["sentry", "concurrency", "batch", "waiting", "none"];
        let sentry = |rng: &mut Rng| Sentry::new(policies[rng.below(policies.len())], rng.next_u64());
        let sentries = (0..APPLICATIONS).map(|_| sentry(&mut rng)).collect();
        let mut world = World {
            rng,
            now: Timestamp::from_nanos(1_000_000_000),
            ahead: Duration::ZERO,
            plane: Plane::new(site()).expect("it makes sense"),
            written: None,
            servers: BTreeMap::new(),
            started: Vec::new(),
            sentries,
            orders: Vec::new(),
            last_report: vec![None; APPLICATIONS],
            number: 0,
            faults: 0,
            calm: false,
        };
        let now = world.plane_now();
        world.plane.handle(&Input::Began { now });
        for at in 0..APPLICATIONS {
            let names = vec![format!("sentry-{at}")];
            world.plane.handle(&Input::Sentries { now, application: at, names });
        }
        world
    }

    fn plane_now(&self) -> Timestamp {
        self.now + self.ahead
    }

    /// Whether a fault befalls, once in so many times.
    fn fault(&mut self, one_in: usize) -> bool {
        let strikes = !self.calm && self.rng.below(one_in) == 0;
        self.faults += u64::from(strikes);
        strikes
    }

    fn turn(&mut self, number: u64) {
        self.now = self.now + TURN;
        if self.fault(100) {
            // Nobody ran for a while.
            self.now = self.now + Duration::from_millis(self.rng.below(5000) as u64);
        }
        self.servers_live_and_die();
        for at in 0..APPLICATIONS {
            self.clients(at);
            self.answers(at);
        }
        if number.is_multiple_of(10) {
            self.period();
        }
        self.steps();
        self.tell();
        (0..APPLICATIONS).for_each(|at| self.deliver(at));
        self.sentries.iter().for_each(Sentry::adds_up);
    }

    fn servers_live_and_die(&mut self) {
        for place in 0..SERVERS {
            if self.servers.contains_key(&place) && self.fault(150) {
                self.servers.remove(&place);
                for at in 0..APPLICATIONS {
                    self.dies(at, ServerId(place as u16));
                }
            }
        }
    }

    /// What was at a server that died: its connections break, or nobody hears of them again.
    fn dies(&mut self, at: usize, server: ServerId) {
        let now = self.now;
        let partition = self.rng.below(2) == 0;
        let sentry = &mut self.sentries[at];
        let there: Vec<Ticket> =
            sentry.jobs.iter().filter(|(_, job)| job.server == server).map(|(key, _)| *key).collect();
        for ticket in there {
            let sentry = &mut self.sentries[at];
            if partition {
                sentry.jobs.entry(ticket).and_modify(|job| job.ends = None);
            } else {
                sentry.jobs.remove(&ticket);
                sentry.controller.handle_completion(now, ticket, Outcome::failed());
                self.act(at);
            }
        }
        // Health checks see it before long.
        self.sentries[at].controller.handle_server(now, server, Status::Down);
        self.act(at);
    }

    /// Clients come, and leave.
    fn clients(&mut self, at: usize) {
        let arrivals = if self.calm { 2 } else { self.rng.below(12) };
        for _ in 0..arrivals {
            let now = self.now;
            let sentry = &mut self.sentries[at];
            sentry.offered += 1;
            match sentry.controller.handle_arrival(now, Request::default()) {
                Decision::Admit { ticket, server, .. } => self.begin(at, ticket, server),
                Decision::Enqueue { ticket } => sentry.waiting.push(ticket),
                Decision::Reject(_) => {}
            }
            self.act(at);
        }
        if self.fault(8) {
            let sentry = &mut self.sentries[at];
            if let Some(ticket) = sentry.waiting.pop() {
                sentry.controller.handle_cancel(self.now, ticket);
            }
            self.act(at);
        }
        if self.fault(8) {
            let sentry = &mut self.sentries[at];
            let oldest = sentry.jobs.iter_mut().filter(|(_, job)| !job.left).min_by_key(|(ticket, _)| **ticket);
            if let Some((ticket, job)) = oldest {
                job.left = true;
                sentry.controller.handle_abandon(self.now, *ticket, AbandonedBy::Client, Watch::Driver);
            }
            self.act(at);
        }
    }

    /// What the controller wants is done: after every call, before the next one.
    fn act(&mut self, at: usize) {
        while let Some(action) = self.sentries[at].controller.poll_action() {
            match action {
                Action::Start { ticket, server } => {
                    self.sentries[at].waiting.retain(|other| *other != ticket);
                    self.begin(at, ticket, server);
                }
                Action::Refuse { ticket, .. } => self.sentries[at].waiting.retain(|other| *other != ticket),
                _ => {}
            }
        }
    }

    fn begin(&mut self, at: usize, ticket: Ticket, server: ServerId) {
        let takes = Duration::from_millis(20 + self.rng.below(200) as u64);
        let lost = self.fault(50);
        let (since, there) = (self.now, self.servers.contains_key(&server.index()));
        let ends = (!lost && there).then(|| since + takes);
        let before = self.sentries[at].jobs.insert(ticket, Job { server, since, ends, left: false });
        assert!(before.is_none(), "one ticket for two requests");
    }

    /// Servers answer, or their time is up.
    fn answers(&mut self, at: usize) {
        let now = self.now;
        let over = |job: &Job| job.ends.is_some_and(|ends| ends <= now) || now.since(job.since) >= TIME_OUT;
        let mut ended: Vec<Ticket> =
            self.sentries[at].jobs.iter().filter(|(_, job)| over(job)).map(|(ticket, _)| *ticket).collect();
        ended.sort_unstable();
        for ticket in ended {
            let twice = self.fault(60);
            let sentry = &mut self.sentries[at];
            let job = sentry.jobs.remove(&ticket).expect("it was there");
            match job.ends.filter(|ends| *ends <= now) {
                Some(ends) => {
                    sentry.controller.handle_completion(now, ticket, Outcome::answered_in(ends.since(job.since)))
                }
                None => sentry.controller.handle_abandon(now, ticket, AbandonedBy::TimeOut, Watch::Nobody),
            }
            if twice {
                // Said again, or by somebody who does not know that it is over: it must count once.
                sentry.controller.handle_completion(now, ticket, Outcome::answered());
                sentry.controller.handle_cancel(now, ticket);
            }
            self.act(at);
        }
        if self.fault(300) {
            // Its controller panicked: a new one, which knows nothing of what is under way.
            let seed = self.rng.next_u64();
            let sentry = &mut self.sentries[at];
            sentry.controller = controller(sentry.policy, seed);
            sentry.jobs.clear();
            sentry.waiting.clear();
            sentry.obey(now);
        }
    }

    /// The controller is called when it asked for it, and what it wants is done.
    fn deliver(&mut self, at: usize) {
        let now = self.now;
        let due = |order: &&(Timestamp, usize, u64, Vec<usize>)| order.0 <= now && order.1 == at;
        let newest = self.orders.iter().filter(due).max_by_key(|order| order.2).cloned();
        self.orders.retain(|order| !due(&order));
        if let Some((_, _, number, places)) = newest
            && number > self.sentries[at].orders.0
        {
            self.sentries[at].orders = (number, places);
            self.sentries[at].obey(now);
            self.act(at);
        }
        for _ in 0..1000 {
            let sentry = &mut self.sentries[at];
            match sentry.controller.poll_timeout() {
                Some((when, _)) if when <= now => sentry.controller.handle_timeout(now),
                _ => break,
            }
            self.act(at);
        }
    }

    /// What sentries saw, as far as it gets there.
    fn period(&mut self) {
        let mut reports = Vec::new();
        for at in 0..APPLICATIONS {
            let offered = std::mem::take(&mut self.sentries[at].offered);
            let report = Some(ApplicationReport { offered: vec![offered], ..ApplicationReport::default() });
            let late = self.fault(10);
            let said = if late { self.last_report[at].clone() } else { report.clone() };
            self.last_report[at] = report;
            reports.push(if self.fault(10) { None } else { said });
        }
        match self.written.take() {
            Some(text) if self.calm || self.rng.below(3) > 0 => {
                let state: PlaneState = serde_json::from_str(&text).expect("what was written can be read");
                self.plane = Plane::restore(site(), state).expect("it is of this site");
                let again = serde_json::to_string(&self.plane.state()).expect("text");
                assert_eq!(again, text, "a decision that was written is lost");
                if self.fault(3) {
                    // Its machine's clock was set meanwhile. Back counts for nothing: see `Clock`.
                    self.ahead += Duration::from_secs(self.rng.below(3600) as u64);
                }
                let now = self.plane_now();
                self.plane.handle(&Input::Began { now });
            }
            Some(text) => self.written = Some(text),
            None if self.fault(15) => self.written = Some(serde_json::to_string(&self.plane.state()).expect("text")),
            None => {}
        }
        if self.written.is_none() {
            let now = self.plane_now();
            self.plane.handle(&Input::Period { now, reports, sentries: Vec::new() });
        }
    }

    /// The provider carries steps out, and says what became of servers.
    fn steps(&mut self) {
        if self.written.is_some() {
            return;
        }
        loop {
            let next = self.plane.pending().next().cloned();
            let Some(step) = next.filter(|_| !self.fault(6)) else { break };
            let now = self.plane_now();
            let process = match step.what {
                What::Start { .. } => {
                    let there = self.servers.get(&step.place).is_some_and(|server| server.step == step.number);
                    if !there && !self.started.contains(&step.number) {
                        self.started.push(step.number);
                        let ready = self.now + Duration::from_secs(1);
                        self.servers.insert(step.place, Server { step: step.number, ready });
                    }
                    Some(Process { pid: step.number as u32, started: 1, step: step.number })
                }
                What::Stop => {
                    if self.servers.get(&step.place).is_some_and(|server| server.step < step.number) {
                        self.servers.remove(&step.place);
                        (0..APPLICATIONS).for_each(|at| self.dies(at, ServerId(step.place as u16)));
                    }
                    None
                }
            };
            if self.fault(6) {
                // It was done, and nobody hears of it: it is asked for again, by the same number.
                break;
            }
            self.plane.handle(&Input::Done { now, step: step.number, process });
        }
        for place in 0..SERVERS {
            self.news(place);
        }
    }

    fn news(&mut self, place: usize) {
        if self.plane.pending().any(|step| step.place == place) || self.fault(20) {
            return;
        }
        let there = self.servers.get(&place).copied();
        let news = match (self.plane.places()[place], there) {
            (Place::Coming { .. } | Place::Serving { .. } | Place::Draining { .. }, None) => ServerNews::Failed,
            (Place::Coming { .. }, Some(server)) if server.ready <= self.now => ServerNews::Up,
            (Place::Draining { .. }, Some(_)) => ServerNews::Drained,
            _ => return,
        };
        let now = self.plane_now();
        self.plane.handle(&Input::Server { now, server: place, news, reason: String::from("seen") });
    }

    /// Sentries are told what is theirs; it may come late, twice, in another order, or not at all.
    fn tell(&mut self) {
        if self.written.is_some() {
            return;
        }
        for at in 0..APPLICATIONS {
            self.number += 1;
            let places = self.plane.servers_of(at, &format!("sentry-{at}"));
            if places.is_empty() || self.fault(10) {
                // An empty set is not believed.
                continue;
            }
            let late = if self.fault(10) { self.rng.below(3000) as u64 } else { 0 };
            let order = (self.now + Duration::from_millis(late), at, self.number, places);
            if self.fault(10) {
                self.orders.push(order.clone());
            }
            self.orders.push(order);
        }
    }

    /// No more faults: everything finds its end, and goes on.
    fn assert_recovers(&mut self) {
        self.calm = true;
        // A server that failed is left alone for a while.
        for number in 1..=CALM {
            self.turn(number);
        }
        assert_eq!(self.plane.pending().count(), 0, "steps are left");
        for at in 0..APPLICATIONS {
            let mine = self.plane.servers_of(at, &format!("sentry-{at}"));
            assert!(!mine.is_empty(), "application {at} has no server: {:?}", self.plane.places());
            assert!(mine.iter().all(|place| self.servers.contains_key(place)), "a server that is not there serves");
            let sentry = &self.sentries[at];
            assert_eq!(sentry.orders.1, mine, "sentry {at} follows other orders");
            let served = sentry.jobs.values().all(|job| mine.contains(&job.server.index()));
            assert!(served && !sentry.jobs.is_empty(), "application {at} is not served: {:?}", sentry.jobs);
        }
        // Nobody comes any more.
        for _ in 0..100 {
            self.now = self.now + TURN;
            (0..APPLICATIONS).for_each(|at| {
                self.answers(at);
                self.deliver(at);
            });
        }
        for sentry in &self.sentries {
            let left = (sentry.controller.in_flight(), sentry.controller.waiting(), sentry.jobs.len());
            assert_eq!(left, (0, 0, 0), "{}: in flight, waiting, requests", sentry.policy);
        }
        let mut once = self.started.clone();
        once.sort_unstable();
        once.dedup();
        assert_eq!(once.len(), self.started.len(), "a step was carried out twice");
    }
}

#[test]
fn after_thousands_of_faults_nothing_is_left_and_everything_serves() {
    let told = std::env::var("TIDEGATE_SEED").ok().and_then(|text| text.parse().ok());
    let seed: u64 = told.unwrap_or_else(|| RandomState::new().hash_one(()));
    println!("TIDEGATE_SEED={seed}");
    let mut faults = 0;
    for run in 0..RUNS {
        let mut world = World::new(seed.wrapping_add(run));
        for number in 1..=TURNS {
            world.turn(number);
        }
        world.assert_recovers();
        faults += world.faults;
    }
    assert!(faults >= FAULTS, "only {faults} faults");
}
