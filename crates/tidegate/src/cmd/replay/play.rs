//! One run of a trace: the engine and the simulator's stations, fed request by request.
//!
//! A world of the simulator makes its own arrivals; here each comes from the trace, at its time and with its work, and
//! no more of them than one is in memory before it arrives. So this drives the controller and the stations itself. At
//! one instant servers finish first, then the controller's timeouts come, then arrivals.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::time::Duration;

use slab::Slab;
use tidegate_engine::{
    Action, ClassId, Controller, Decision, NoEvents, Outcome, Request, Setup, SetupError, Ticket, Timestamp, UrlKey,
};
use tidegate_sim::{Discipline, Station};
use tidegate_workload::Course;
use tidegate_workload::trace::TraceError;

/// What a run is made of, but for its requests and its seed.
#[derive(Debug, Clone)]
pub struct House {
    /// The application and its policy.
    pub setup: Setup,
    /// Processors of each server.
    pub cores: f64,
    /// How they are divided.
    pub discipline: Discipline,
    /// Answers that take longer count as failed; the server does the work all the same.
    pub patience: Duration,
    /// Results are kept by stretches of this length.
    pub bin: Duration,
}

/// A request of the trace.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Offer {
    /// When it arrives.
    pub at: Duration,
    /// Its class, 0 = most important.
    pub class: u8,
    /// By what the engine can tell what it costs.
    pub url: u64,
    /// Its work, seconds of a processor.
    pub work: f64,
}

/// What came of a run.
#[derive(Debug, Clone, Default)]
pub struct Tally {
    /// Per class, by stretch of its arrival: a "second" of a course is a stretch here.
    pub classes: Vec<Course>,
    /// Work offered in each stretch, seconds.
    pub work: Vec<f64>,
    /// When the last request arrived.
    pub length: Duration,
}

/// Why a run broke off.
#[derive(Debug, thiserror::Error)]
pub enum PlayError {
    /// The trace.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// The setup.
    #[error(transparent)]
    Setup(#[from] SetupError),
}

/// What is still there so long after the last arrival has failed.
const DRAIN: Duration = Duration::from_secs(24 * 3600);

/// How many requests are played between two reports of progress.
const BATCH: u64 = 8192;

impl House {
    /// Plays the offers, which must be in order of time, and tells now and then how many more it played.
    ///
    /// # Errors
    /// The first error among the offers, or that the setup makes no sense.
    pub fn play(
        &self,
        seed: u64,
        offers: impl Iterator<Item = Result<Offer, TraceError>>,
        progress: impl Fn(u64),
    ) -> Result<Tally, PlayError> {
        let mut run = Run::new(self, seed)?;
        let mut played = 0;
        for offer in offers {
            let offer = offer?;
            let now = Timestamp::ZERO + offer.at;
            run.until(now);
            run.arrive(now, offer);
            played += 1;
            if played % BATCH == 0 {
                progress(BATCH);
            }
        }
        progress(played % BATCH);
        run.until_empty();
        Ok(run.tally)
    }
}

/// A request between its arrival and its end.
struct Work {
    class: usize,
    arrived: Timestamp,
    started: Timestamp,
    seconds: f64,
    /// Set once it is admitted or waits.
    ticket: Option<Ticket>,
}

struct Run<'h> {
    house: &'h House,
    target: Duration,
    controller: Controller,
    stations: Vec<Station>,
    /// Per station, which of its completions in the agenda still holds.
    versions: Vec<u32>,
    completions: BinaryHeap<Reverse<(Timestamp, u32, u32)>>,
    timeout: Option<Timestamp>,
    work: Slab<Work>,
    /// Requests that wait in the controller.
    waiting: HashMap<Ticket, usize>,
    now: Timestamp,
    tally: Tally,
}

impl<'h> Run<'h> {
    fn new(house: &'h House, seed: u64) -> Result<Run<'h>, SetupError> {
        let servers = house.setup.servers.len();
        let mut run = Run {
            house,
            target: house.setup.sla.target(0.0),
            controller: Controller::new(house.setup.clone(), 1, seed, Box::new(NoEvents))?,
            stations: (0..servers).map(|_| Station::new(house.cores, house.discipline)).collect(),
            versions: vec![0; servers],
            completions: BinaryHeap::new(),
            timeout: None,
            work: Slab::new(),
            waiting: HashMap::new(),
            now: Timestamp::ZERO,
            tally: Tally { classes: vec![Course::default(); house.setup.classes.len()], ..Tally::default() },
        };
        run.follow_up();
        Ok(run)
    }

    /// Everything that happens up to and at `end`.
    fn until(&mut self, end: Timestamp) {
        while let Some(at) = self.next().filter(|at| *at <= end) {
            self.happen(at);
        }
        self.now = self.now.max(end);
    }

    fn until_empty(&mut self) {
        let end = self.now + DRAIN;
        while !self.work.is_empty()
            && let Some(at) = self.next().filter(|at| *at <= end)
        {
            self.happen(at);
        }
        for (_, work) in std::mem::take(&mut self.work) {
            let stretch = self.stretch(work.arrived);
            self.tally.classes[work.class].failed(stretch);
        }
    }

    fn next(&self) -> Option<Timestamp> {
        let completion = self.completions.peek().map(|Reverse((at, ..))| *at);
        completion.into_iter().chain(self.timeout).min()
    }

    fn happen(&mut self, at: Timestamp) {
        self.now = self.now.max(at);
        match self.completions.peek() {
            Some(Reverse((due, ..))) if *due <= at => self.complete(),
            _ => {
                self.timeout = None;
                self.controller.handle_timeout(self.now);
                self.follow_up();
            }
        }
    }

    fn complete(&mut self) {
        let Some(Reverse((_, server, version))) = self.completions.pop() else { return };
        let at = server as usize;
        if version != self.versions[at] {
            return;
        }
        while let Some(id) = self.stations[at].complete(self.now) {
            let Some(work) = self.work.try_remove(id as usize) else { continue };
            self.answered(&work);
            if let Some(ticket) = work.ticket {
                let took = self.now.since(work.started);
                self.controller.handle_completion(self.now, ticket, Outcome::answered_in(took));
            }
        }
        self.plan(at);
        self.follow_up();
    }

    fn arrive(&mut self, now: Timestamp, offer: Offer) {
        let class = usize::from(offer.class);
        let work = Work { class, arrived: now, started: now, seconds: offer.work, ticket: None };
        self.offered(&work, offer.at);
        let url = UrlKey(offer.url.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let request = Request { class: ClassId(offer.class), url, ..Request::default() };
        match self.controller.handle_arrival(now, request) {
            Decision::Admit { ticket, server, .. } => {
                let id = self.work.insert(Work { ticket: Some(ticket), ..work });
                self.start(id, server.index());
            }
            Decision::Enqueue { ticket } => {
                let id = self.work.insert(Work { ticket: Some(ticket), ..work });
                self.waiting.insert(ticket, id);
            }
            Decision::Reject(_) => self.refused(&work),
        }
        self.follow_up();
    }

    fn start(&mut self, id: usize, server: usize) {
        let work = &mut self.work[id];
        work.started = self.now;
        self.stations[server].start(self.now, id as _, work.seconds);
        self.plan(server);
    }

    /// Plans a server's next completion, if nothing changes.
    fn plan(&mut self, server: usize) {
        self.versions[server] = self.versions[server].wrapping_add(1);
        if let Some(at) = self.stations[server].next() {
            self.completions.push(Reverse((at, server as u32, self.versions[server])));
        }
    }

    /// What the controller wants done about other requests, and when it wants to be called again.
    fn follow_up(&mut self) {
        while let Some(action) = self.controller.poll_action() {
            match action {
                Action::Start { ticket, server } => {
                    if let Some(id) = self.waiting.remove(&ticket) {
                        self.start(id, server.index());
                    }
                }
                Action::Refuse { ticket, .. } => {
                    let id = self.waiting.remove(&ticket);
                    if let Some(work) = id.and_then(|id| self.work.try_remove(id)) {
                        self.refused(&work);
                    }
                }
                // A trace says nothing of a data tier.
                Action::Isolate { .. } | Action::SynRate { .. } => {}
                other => unreachable!("an action that a replay does not know: {other:?}"),
            }
        }
        self.timeout = self.controller.poll_timeout().map(|(at, _)| at.max(self.now));
    }

    fn offered(&mut self, work: &Work, at: Duration) {
        let stretch = self.stretch(work.arrived);
        self.tally.classes[work.class].offered(stretch);
        let index = stretch.as_secs() as usize;
        if self.tally.work.len() <= index {
            self.tally.work.resize(index + 1, 0.0);
        }
        self.tally.work[index] += work.seconds;
        self.tally.length = at;
    }

    fn refused(&mut self, work: &Work) {
        let stretch = self.stretch(work.arrived);
        self.tally.classes[work.class].refused(stretch);
    }

    fn answered(&mut self, work: &Work) {
        let (stretch, took) = (self.stretch(work.arrived), self.now.since(work.arrived));
        let course = &mut self.tally.classes[work.class];
        if took > self.house.patience {
            course.failed(stretch);
        } else {
            course.answered(stretch, took, self.target);
        }
    }

    /// A stretch is a second of a course.
    fn stretch(&self, at: Timestamp) -> Duration {
        Duration::from_secs((at.as_nanos() as u128 / self.house.bin.as_nanos().max(1)) as u64)
    }
}
