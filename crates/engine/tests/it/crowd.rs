//! A crowd before a controller: Poisson requests of several kinds, and servers that share their processors.

use std::time::Duration;

use tidegate_engine::{
    Action, Controller, Decision, NoEvents, Outcome, Reason, Request, Rng, ServerSetup, Setup, Sla, Statistic,
    TenantKey, Ticket, Timestamp, UrlKey,
};

/// Servers of every crowd, and the processors of each.
const SERVERS: usize = 2;
const PROCESSORS: f64 = 2.0;
/// How long it takes a server to have another worker.
const ANOTHER: Duration = Duration::from_secs(3);
/// Seconds of work that they do per second.
pub const CAPACITY: f64 = SERVERS as f64 * PROCESSORS;

/// Requests that are alike.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    /// Requests per second.
    pub rate: f64,
    /// Seconds of work of each.
    pub cost: f64,
    /// On whose behalf.
    pub tenant: u64,
}

/// What became of a kind.
#[derive(Clone, Copy, Debug, Default)]
pub struct Course {
    pub offered: u32,
    /// Answered within the target.
    pub good: u32,
    pub admitted: u32,
    /// Refused for the tenant's sake.
    pub for_tenant: u32,
}

impl Course {
    pub fn good_share(&self) -> f64 {
        f64::from(self.good) / f64::from(self.offered.max(1))
    }
}

/// One class before such servers, with a target of so many seconds at the 95th percentile, under this policy.
pub fn setup(target: u64, policy: &str) -> Setup {
    let sla = Sla::constant(Statistic::P95, Duration::from_secs(target)).expect("more than zero");
    let mut setup = Setup::simple("crowd", sla, (0..SERVERS).map(|at| ServerSetup::new(format!("s{at}"))));
    setup.admission = serde_json::from_str(policy).unwrap_or_else(|error| panic!("{policy}: {error}"));
    setup
}

/// In what a crowd's world differs from others.
#[derive(Clone, Copy, Debug)]
pub struct World {
    /// For so many seconds in the beginning a sixth of the requests comes.
    pub calm: u64,
    /// Each server has so many workers. What comes while all are taken waits until there is one more, whoever leaves,
    /// as at an Apache that must make another process first.
    pub workers: usize,
}

impl Default for World {
    fn default() -> World {
        World { calm: 0, workers: usize::MAX }
    }
}

/// Plays a crowd for so many seconds; the courses of its kinds.
pub fn play(setup: Setup, kinds: &[Kind], seconds: u64, seed: u64) -> Vec<Course> {
    play_in(World::default(), setup, kinds, seconds, seed)
}

/// The same in a world.
pub fn play_in(world: World, setup: Setup, kinds: &[Kind], seconds: u64, seed: u64) -> Vec<Course> {
    let mut crowd = Crowd::new(world, setup, kinds, seed);
    let end = Timestamp::ZERO + Duration::from_secs(seconds);
    while crowd.step(end) {}
    crowd.courses
}

struct Job {
    ticket: Ticket,
    kind: usize,
    /// Nobody works on it before.
    begins: Timestamp,
    left: f64,
    arrived: Timestamp,
}

struct Waiting {
    ticket: Ticket,
    kind: usize,
    arrived: Timestamp,
}

struct Crowd<'k> {
    controller: Controller,
    kinds: &'k [Kind],
    /// Requests per second of all kinds.
    rate: f64,
    /// Seconds.
    target: f64,
    workers: [usize; SERVERS],
    calm: Timestamp,
    rng: Rng,
    now: Timestamp,
    next: Timestamp,
    servers: Vec<Vec<Job>>,
    waiting: Vec<Waiting>,
    courses: Vec<Course>,
}

impl<'k> Crowd<'k> {
    fn new(world: World, setup: Setup, kinds: &'k [Kind], seed: u64) -> Crowd<'k> {
        let mut crowd = Crowd {
            target: setup.sla.target(0.0).as_secs_f64(),
            controller: Controller::new(setup, 1, seed, Box::new(NoEvents)).expect("it makes sense"),
            kinds,
            rate: kinds.iter().map(|kind| kind.rate).sum(),
            workers: [world.workers; SERVERS],
            calm: Timestamp::from_millis(1000 * world.calm),
            rng: Rng::new(seed ^ 0xC0FF_EE00),
            now: Timestamp::ZERO,
            next: Timestamp::ZERO,
            servers: (0..SERVERS).map(|_| Vec::new()).collect(),
            waiting: Vec::new(),
            courses: vec![Course::default(); kinds.len()],
        };
        crowd.next = crowd.gap();
        crowd
    }

    /// Plays what happens next; `false` at the end.
    fn step(&mut self, end: Timestamp) -> bool {
        let timer = self.controller.poll_timeout().map_or(end, |(at, _)| at);
        let done = self.next_done();
        let begin = self.next_begin().unwrap_or(end);
        let at = self.next.min(timer).min(begin).min(done.map_or(end, |(at, ..)| at)).max(self.now);
        if at >= end {
            return false;
        }
        self.work_until(at);
        match done {
            _ if begin <= at => {}
            Some((done, server, index)) if done <= at => self.complete(server, index),
            _ if timer <= at => self.controller.handle_timeout(self.now),
            _ => self.arrive(),
        }
        while let Some(action) = self.controller.poll_action() {
            self.act(action);
        }
        true
    }

    fn arrive(&mut self) {
        let mut draw = self.rng.next_f64() * self.rate;
        let last = self.kinds.len() - 1;
        let kind = self.kinds.iter().position(|kind| {
            draw -= kind.rate;
            draw < 0.0
        });
        let kind = kind.unwrap_or(last);
        self.next = self.gap();
        self.courses[kind].offered += 1;
        let Kind { cost, tenant, .. } = self.kinds[kind];
        let url = UrlKey(cost.to_bits());
        let request = Request { url, tenant: TenantKey(tenant), ..Request::default() };
        match self.controller.handle_arrival(self.now, request) {
            Decision::Admit { ticket, server, .. } => self.start(ticket, server.index(), kind, self.now),
            Decision::Enqueue { ticket } => self.waiting.push(Waiting { ticket, kind, arrived: self.now }),
            Decision::Reject(rejection) => self.refused(kind, rejection.reason),
        }
    }

    fn act(&mut self, action: Action) {
        let (ticket, fate) = match action {
            Action::Start { ticket, server } => (ticket, Ok(server)),
            Action::Refuse { ticket, rejection } => (ticket, Err(rejection.reason)),
            _ => return,
        };
        let at = self.waiting.iter().position(|waiting| waiting.ticket == ticket).expect("it waits");
        let Waiting { kind, arrived, .. } = self.waiting.swap_remove(at);
        match fate {
            Ok(server) => self.start(ticket, server.index(), kind, arrived),
            Err(reason) => self.refused(kind, reason),
        }
    }

    fn start(&mut self, ticket: Ticket, server: usize, kind: usize, arrived: Timestamp) {
        self.courses[kind].admitted += 1;
        // Service times spread around what is learned: half of it is fixed, half exponential.
        let spread = 0.5 - 0.5 * (1.0 - self.rng.next_f64()).ln();
        let mut begins = self.now;
        if self.servers[server].len() >= self.workers[server] {
            begins = begins + ANOTHER;
            self.workers[server] += 1;
        }
        self.servers[server].push(Job { ticket, kind, begins, left: self.kinds[kind].cost * spread, arrived });
    }

    fn refused(&mut self, kind: usize, reason: Reason) {
        self.courses[kind].for_tenant += u32::from(reason == Reason::TenantShare);
    }

    fn complete(&mut self, server: usize, index: usize) {
        let job = self.servers[server].swap_remove(index);
        let in_time = self.now.seconds_since(job.arrived) <= self.target;
        self.courses[job.kind].good += u32::from(in_time);
        self.controller.handle_completion(self.now, job.ticket, Outcome::answered());
    }

    fn work_until(&mut self, at: Timestamp) {
        let elapsed = at.seconds_since(self.now);
        let now = self.now;
        for jobs in &mut self.servers {
            let worked = elapsed * speed(in_service(jobs, now));
            jobs.iter_mut().filter(|job| job.begins <= now).for_each(|job| job.left -= worked);
        }
        self.now = at;
    }

    /// When the next one that hangs begins.
    fn next_begin(&self) -> Option<Timestamp> {
        self.servers.iter().flatten().map(|job| job.begins).filter(|begins| *begins > self.now).min()
    }

    /// When and where the next request is done.
    fn next_done(&self) -> Option<(Timestamp, usize, usize)> {
        let of = |(server, jobs): (usize, &Vec<Job>)| {
            let served = jobs.iter().enumerate().filter(|(_, job)| job.begins <= self.now);
            let (index, job) = served.min_by(|(_, a), (_, b)| a.left.total_cmp(&b.left))?;
            // A nanosecond more, so that it is surely done then.
            let seconds = (job.left / speed(in_service(jobs, self.now))).max(0.0) + 1e-9;
            Some((self.now + Duration::from_secs_f64(seconds), server, index))
        };
        self.servers.iter().enumerate().filter_map(of).min()
    }

    fn gap(&mut self) -> Timestamp {
        let rate = if self.now < self.calm { self.rate / 6.0 } else { self.rate };
        let seconds = -(1.0 - self.rng.next_f64()).ln() / rate;
        self.now + Duration::from_secs_f64(seconds)
    }
}

/// Those that a worker has.
fn in_service(jobs: &[Job], now: Timestamp) -> usize {
    jobs.iter().filter(|job| job.begins <= now).count()
}

/// Of each request at a server with so many.
fn speed(jobs: usize) -> f64 {
    (PROCESSORS / jobs.max(1) as f64).min(1.0)
}
