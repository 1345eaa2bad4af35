//! A run: streams of requests arrive, the controller decides, stations serve.

use std::collections::HashMap;
use std::time::Duration;

use tidegate_engine::{
    Action, ClassId, Controller, Decision, Event, EventSink, LoadReport, Outcome, Request, RequestTypeId, Setup,
    SetupError, Ticket, Timestamp, UrlKey,
};
use tidegate_workload::{ArrivalProcess, Arrivals, Profile, Rng, ServiceTime, rng};

use crate::agenda::Agenda;
use crate::report::{Report, ReportBuilder, Subject};
use crate::station::{Discipline, Station};

/// Everything about a run but its seed.
#[derive(Clone, Debug)]
pub struct World {
    /// The application under control; its servers are the stations, in order.
    pub setup: Setup,
    /// True processors of each server (what the engine must learn).
    pub processors: Vec<f64>,
    /// How the servers divide them.
    pub discipline: Discipline,
    /// What arrives.
    pub streams: Vec<Stream>,
    /// Changes of speed: when, which server, to what (1 is normal).
    pub speeds: Vec<(Duration, usize, f64)>,
    /// The sentry's own CPU use over time: reports given to the engine.
    pub sentry_cpu: Vec<(Duration, f64)>,
    /// Arrivals stop here; what is in flight then is still served.
    pub duration: Duration,
}

/// Requests of one class.
#[derive(Clone, Debug)]
pub struct Stream {
    /// Their class, 0 = most important.
    pub class: u8,
    /// Offered rate over time.
    pub profile: Profile,
    /// How arrivals are spread.
    pub process: ArrivalProcess,
    /// What they ask for: one of these, by weight.
    pub urls: Vec<Url>,
}

/// One URL of a stream.
#[derive(Clone, Debug)]
pub struct Url {
    /// Its key in the cost table.
    pub key: u64,
    /// Its request type.
    pub request_type: u16,
    /// Its share among the stream's URLs.
    pub weight: f64,
    /// Inherent service time, seconds.
    pub cost: ServiceTime,
}

enum Happening {
    Arrival { stream: usize },
    Completion { server: usize, version: u64 },
    Timeout,
    Speed { server: usize, speed: f64 },
    SentryCpu(f64),
}

impl World {
    /// Plays the world. Equal seeds give equal reports.
    ///
    /// # Errors
    /// When the setup makes no sense.
    pub fn run(&self, seed: u64) -> Result<Report, SetupError> {
        self.run_with_patience(seed, Duration::MAX)
    }

    /// As [`World::run`], with clients who wait for `patience`: later answers count as failed in [`Report::courses`].
    /// The servers do the work all the same, as a server does that does not look whether its client is still there.
    ///
    /// # Errors
    /// When the setup makes no sense.
    pub fn run_with_patience(&self, seed: u64, patience: Duration) -> Result<Report, SetupError> {
        let sink = SharedEvents::default();
        let controller = Controller::new(self.setup.clone(), 1, seed, Box::new(sink.clone()))?;
        let mut run = Run::new(self, controller, seed, patience);
        run.plan_all();
        while let Some((now, happening)) = run.agenda.next() {
            if now > Timestamp::ZERO + self.duration && run.work.is_empty() {
                break;
            }
            run.happen(now, happening);
        }
        let events = std::mem::take(&mut *sink.0.lock().expect("no run panics while it holds the events"));
        let snapshot = run.controller.snapshot(Timestamp::ZERO + self.duration);
        Ok(run.report.finish(self.duration, events, snapshot))
    }
}

impl World {
    /// The target at the rate that is offered at `now`.
    fn target(&self, now: Timestamp) -> Duration {
        let sla = &self.setup.sla;
        if sla.steps().len() <= 1 {
            return sla.target(0.0);
        }
        let at = now.since(Timestamp::ZERO);
        sla.target(self.streams.iter().map(|stream| stream.profile.rate_at(at).per_second()).sum())
    }
}

#[derive(Clone, Default)]
struct SharedEvents(std::sync::Arc<std::sync::Mutex<Vec<(Timestamp, Event)>>>);

impl EventSink for SharedEvents {
    fn record(&mut self, now: Timestamp, event: Event) {
        self.0.lock().expect("no run panics while it holds the events").push((now, event));
    }
}

/// A request between its arrival and its end.
struct Work {
    subject: Subject,
    started: Timestamp,
    seconds: f64,
}

struct Run<'a> {
    world: &'a World,
    controller: Controller,
    agenda: Agenda<Happening>,
    arrivals: Vec<Arrivals>,
    stations: Vec<Station>,
    versions: Vec<u64>,
    work: HashMap<u64, (Ticket, Work)>,
    rng: Rng,
    report: ReportBuilder,
    timeout: Timestamp,
}

impl<'a> Run<'a> {
    fn new(world: &'a World, controller: Controller, seed: u64, patience: Duration) -> Self {
        let arrivals = |(at, stream): (usize, &Stream)| {
            let profile = stream.profile.until(world.duration);
            stream.process.arrivals(&profile, seed, at as u64 + 1)
        };
        Run {
            controller,
            agenda: Agenda::new(),
            arrivals: world.streams.iter().enumerate().map(arrivals).collect(),
            stations: world.processors.iter().map(|&k| Station::new(k, world.discipline)).collect(),
            versions: vec![0; world.processors.len()],
            work: HashMap::new(),
            rng: rng(seed, 0),
            report: ReportBuilder::new(&world.setup, world.streams.len(), patience),
            timeout: Timestamp::MAX,
            world,
        }
    }

    fn plan_all(&mut self) {
        for stream in 0..self.arrivals.len() {
            self.plan_arrival(stream);
        }
        for &(at, server, speed) in &self.world.speeds {
            self.agenda.plan(Timestamp::ZERO + at, Happening::Speed { server, speed });
        }
        for &(at, cpu) in &self.world.sentry_cpu {
            self.agenda.plan(Timestamp::ZERO + at, Happening::SentryCpu(cpu));
        }
        self.follow_up(Timestamp::ZERO);
    }

    fn plan_arrival(&mut self, stream: usize) {
        if let Some(at) = self.arrivals[stream].next() {
            self.agenda.plan(Timestamp::ZERO + at, Happening::Arrival { stream });
        }
    }

    fn happen(&mut self, now: Timestamp, happening: Happening) {
        match happening {
            Happening::Arrival { stream } => {
                self.plan_arrival(stream);
                self.arrive(now, stream);
            }
            Happening::Completion { server, version } if version == self.versions[server] => {
                while let Some(id) = self.stations[server].complete(now) {
                    self.finish(now, id);
                }
                self.plan_completion(server);
            }
            Happening::Completion { .. } => return,
            Happening::Timeout => {
                self.timeout = Timestamp::MAX;
                self.controller.handle_timeout(now);
            }
            Happening::Speed { server, speed } => {
                self.stations[server].set_speed(now, speed);
                self.plan_completion(server);
            }
            Happening::SentryCpu(cpu) => self.controller.handle_report(now, LoadReport::SentryCpu(cpu)),
        }
        self.follow_up(now);
    }

    fn arrive(&mut self, now: Timestamp, number: usize) {
        let stream = &self.world.streams[number];
        let url = pick(&stream.urls, &mut self.rng);
        let target = self.world.target(now);
        let subject = Subject { class: stream.class as usize, stream: number, arrived: now, target };
        let work = Work { subject, started: now, seconds: url.cost.sample(&mut self.rng) };
        let request = Request {
            class: ClassId(stream.class),
            request_type: RequestTypeId(url.request_type),
            url: UrlKey(url.key.wrapping_mul(0x9E37_79B9_7F4A_7C15)),
            ..Request::default()
        };
        self.report.offered(subject);
        match self.controller.handle_arrival(now, request) {
            Decision::Admit { ticket, server, .. } => self.start(now, ticket, server.index(), work),
            Decision::Enqueue { ticket } => {
                self.work.insert(ticket.as_u64(), (ticket, work));
            }
            Decision::Reject(_) => self.report.refused(now, work.subject),
        }
    }

    fn start(&mut self, now: Timestamp, ticket: Ticket, server: usize, work: Work) {
        self.stations[server].start(now, ticket.as_u64(), work.seconds);
        self.work.insert(ticket.as_u64(), (ticket, Work { started: now, ..work }));
        self.plan_completion(server);
    }

    fn finish(&mut self, now: Timestamp, id: u64) {
        let Some((ticket, work)) = self.work.remove(&id) else { return };
        self.report.answered(now, work.subject);
        self.controller.handle_completion(now, ticket, Outcome::answered_in(now.since(work.started)));
    }

    fn plan_completion(&mut self, server: usize) {
        self.versions[server] += 1;
        if let Some(at) = self.stations[server].next() {
            self.agenda.plan(at, Happening::Completion { server, version: self.versions[server] });
        }
    }

    /// What the controller wants done about other requests, and when it wants to be called again.
    fn follow_up(&mut self, now: Timestamp) {
        while let Some(action) = self.controller.poll_action() {
            match action {
                Action::Start { ticket, server } => {
                    if let Some((ticket, work)) = self.work.remove(&ticket.as_u64()) {
                        self.start(now, ticket, server.index(), work);
                    }
                }
                Action::Refuse { ticket, .. } => {
                    if let Some((_, work)) = self.work.remove(&ticket.as_u64()) {
                        self.report.refused(now, work.subject);
                    }
                }
                other => unreachable!("an action that the simulator does not know: {other:?}"),
            }
        }
        if let Some((at, _)) = self.controller.poll_timeout()
            && at < self.timeout
        {
            self.timeout = at;
            self.agenda.plan(at.max(now), Happening::Timeout);
        }
    }
}

fn pick<'u>(urls: &'u [Url], rng: &mut Rng) -> &'u Url {
    use tidegate_workload::uniform;
    let mut left = uniform(rng) * urls.iter().map(|url| url.weight).sum::<f64>();
    let found = urls.iter().find(|url| {
        left -= url.weight;
        left < 0.0
    });
    found.unwrap_or(&urls[urls.len() - 1])
}
