//! A run: requests arrive, the controller decides, machines serve, clients go on.
//!
//! A request's way: a client makes it (`run/clients.rs`), it comes to the sentry (`run/sentry.rs`), where the
//! controller decides; it stays at its server (`park.rs`), and the answer goes back over the link (`run/answer.rs`).
//! All of it is driven by the agenda, one happening at a time; after each the controller's actions are carried out.

mod answer;
mod clients;
mod faults;
mod kernel;
mod look;
mod menu;
mod offers;
mod pages;
mod part;
mod sentry;

use std::time::Duration;

use slab::Slab;
use tidegate_engine::{
    Action, Controller, LoadReport, Outcome, Rejection, RequestTypeId, ServerId, SetupError, Status, Ticket, Timestamp,
};
use tidegate_workload::{Arrivals, Rng, rng};

use crate::agenda::{Agenda, SlotId};
use crate::park::{Owner, Park, Task, Usage};
use crate::report::{EventLog, Report, ReportBuilder, Subject};
use crate::world::World;
use answer::Way;
use clients::{Client, Group};
use kernel::Kernel;
use menu::Menu;
use pages::Source;
use sentry::Desk;

/// Something that happens. Small, as the agenda is full of them.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Happening {
    /// A stream's next request arrives.
    Arrival {
        stream: u16,
    },
    /// A station's next job is done.
    Completion {
        station: u32,
    },
    /// The time that the controller named has come.
    Timeout,
    /// A call arrives at its tier.
    Call {
        chain: u32,
        number: u32,
    },
    /// A worker of the sentry is done with a request.
    SentryDone {
        request: u32,
        then: sentry::Then,
    },
    /// The sentry says how busy it was.
    SentryReport,
    /// The next answer is over the link.
    Transferred,
    /// An answer is at the client.
    Received {
        request: u32,
    },
    /// A client waited long enough.
    Impatience {
        request: u32,
    },
    /// A client tries again.
    Again {
        request: u32,
    },
    /// A user has thought.
    Thought {
        group: u16,
        user: u32,
    },
    /// The next page of a session is asked for.
    Page {
        source: u16,
    },
    /// A measurement given by the world is sent; one reaches the engine.
    Reading {
        number: u32,
    },
    Report {
        report: LoadReport,
    },
    /// Nuclei measure.
    Measurement,
    /// Something happens to a server; health checks notice; setup and warming up are over.
    Fault {
        number: u32,
    },
    Health {
        server: u16,
        status: Status,
    },
    SetUp {
        server: u32,
    },
    Warm {
        server: u32,
    },
    /// Arrivals are over.
    End,
}

/// A request between its arrival and its end, or between two tries.
pub(crate) struct Flying {
    subject: Subject,
    client: Client,
    /// Which of its menu's URLs.
    url: u32,
    task: Task,
    ticket: Option<Ticket>,
    started: Timestamp,
    /// Time at the server, once it is answered there.
    served_in: Duration,
    tries: u32,
    /// Its client's patience.
    timer: Option<SlotId>,
    /// Its client left.
    gone: bool,
    /// It waits in the controller.
    waiting: bool,
}

pub(crate) struct Run<'w> {
    world: &'w World,
    end: Timestamp,
    controller: Controller,
    log: EventLog,
    plans: Agenda<Happening>,
    park: Park<'w>,
    arrivals: Vec<(Arrivals, SlotId)>,
    /// Of the streams, then of the users' groups by state, then of the sessions by kind of page.
    menus: Vec<Menu<'w>>,
    groups: Vec<Group<'w>>,
    sources: Vec<Source<'w>>,
    desk: Option<Desk>,
    kernel: Kernel,
    way: Way,
    requests: Slab<Flying>,
    /// The request that waits in the controller under a ticket, by the ticket's low half, which is unique among live
    /// ones.
    waiting: Vec<u32>,
    rng: Rng,
    /// What must not disturb the streams' numbers: losses of reports, and clients' waits.
    aside: Rng,
    report: ReportBuilder,
    usage: Option<(Vec<Usage>, Option<f64>)>,
    timeout: Timestamp,
    timer: SlotId,
    /// When to look at response-time controllers again; never without any.
    look: Timestamp,
    happenings: u64,
    part: part::Part,
}

/// A run that does not empty is broken off so long after the last arrival.
const DRAIN: Duration = Duration::from_secs(24 * 3600);

impl<'w> Run<'w> {
    /// One of several sentries has a `lane` of its own: the same arrivals, of which it takes its part, and other costs.
    pub(crate) fn new(world: &'w World, seed: u64, lane: u64) -> Result<Run<'w>, SetupError> {
        let log = EventLog::default();
        let controller = Controller::new(world.setup.clone(), 1, seed, Box::new(log.clone()))?;
        let mut plans = Agenda::new();
        let arrivals = world.streams.iter().enumerate().map(|(at, stream)| {
            let profile = stream.profile.until(world.duration);
            let slot = plans.slot(Happening::Arrival { stream: at as u16 });
            (stream.process.arrivals(&profile, seed, at as u64 + 1), slot)
        });
        let arrivals = arrivals.collect();
        let park = Park::new(&world.servers, &world.tiers, &world.hosts, &world.programs, &mut plans);
        let mut menus: Vec<Menu<'w>> =
            world.streams.iter().map(|stream| Menu::new(stream.class, &stream.urls)).collect();
        let groups = Group::all(&world.users, seed, &mut menus);
        let sources = Source::all(world, seed, &mut menus, &mut plans);
        let timer = plans.slot(Happening::Timeout);
        Ok(Run {
            end: Timestamp::ZERO + world.duration,
            controller,
            log,
            arrivals,
            park,
            menus,
            groups,
            sources,
            desk: world.sentry.map(Desk::new),
            kernel: Kernel::default(),
            way: Way::new(world.link, &mut plans),
            requests: Slab::new(),
            waiting: Vec::new(),
            part: part::Part::new(world.streams.len()),
            rng: rng(seed, lane.wrapping_mul(part::LANES)),
            aside: rng(seed, u64::MAX - 1),
            report: ReportBuilder::new(&world.setup, world.by_answer, world.courses(), world.patience, world.stretch),
            usage: None,
            timeout: Timestamp::MAX,
            timer,
            look: Timestamp::ZERO,
            happenings: 0,
            plans,
            world,
        })
    }

    /// From the first happening to the last.
    pub(crate) fn play(mut self) -> Report {
        self.plan_all();
        self.play_on()
    }

    /// From where it is to the last.
    pub(crate) fn play_on(mut self) -> Report {
        self.empty();
        self.finish()
    }

    /// Everything until the end, and until no request is left.
    fn empty(&mut self) {
        while let Some((now, happening)) = self.plans.next() {
            if now > self.end && (self.requests.is_empty() || now > self.end + DRAIN) {
                break;
            }
            self.step(now, happening);
        }
    }

    fn step(&mut self, now: Timestamp, happening: Happening) {
        self.happenings += 1;
        if now >= self.look {
            self.look_at_controllers(now);
        }
        self.happen(now, happening);
        self.follow_up(now);
    }

    fn plan_all(&mut self) {
        for stream in 0..self.arrivals.len() {
            self.plan_arrival(stream);
        }
        for (number, fault) in self.world.faults.iter().enumerate() {
            self.plans.once(Timestamp::ZERO + fault.at, Happening::Fault { number: number as u32 });
        }
        for (number, reading) in self.world.readings.iter().enumerate() {
            self.plans.once(Timestamp::ZERO + reading.at, Happening::Reading { number: number as u32 });
        }
        for (server, model) in self.world.servers.iter().enumerate() {
            if model.off {
                self.controller.handle_server(Timestamp::ZERO, ServerId(server as u16), Status::Down);
            }
        }
        self.open_desk();
        self.watch();
        self.start_users();
        (0..self.sources.len()).for_each(|source| self.plan_page(source));
        self.plans.once(self.end, Happening::End);
        self.follow_up(Timestamp::ZERO);
    }

    fn plan_arrival(&mut self, stream: usize) {
        let (arrivals, slot) = &mut self.arrivals[stream];
        if let Some(at) = arrivals.next() {
            self.plans.plan(*slot, Timestamp::ZERO + at);
        }
    }

    fn happen(&mut self, now: Timestamp, happening: Happening) {
        match happening {
            Happening::Arrival { stream } => {
                self.plan_arrival(usize::from(stream));
                if self.part.takes(usize::from(stream)) {
                    self.arrive(now, stream);
                }
            }
            Happening::Completion { station } => {
                self.park.complete(now, station, &mut self.plans);
                self.collect(now);
            }
            Happening::Timeout => {
                self.timeout = Timestamp::MAX;
                self.controller.handle_timeout(now);
            }
            Happening::Call { chain, number } => {
                self.park.arrive_at_tier(now, chain, number, &mut self.plans);
                self.collect(now);
            }
            Happening::SentryDone { request, then } => self.sentry_done(now, request, then),
            Happening::SentryReport => self.report_sentry(now),
            Happening::Transferred => self.transferred(now),
            Happening::Received { request } => self.received(now, request),
            Happening::Impatience { request } => self.lose_patience(now, request),
            Happening::Again { request } => self.try_again(now, request),
            Happening::Thought { group, user } => self.ask(now, group, user),
            Happening::Page { source } => self.ask_for_page(now, source),
            Happening::Reading { number } => self.send(now, self.world.readings[number as usize].report),
            Happening::Measurement => self.measure_servers(now),
            Happening::Report { report } => self.controller.handle_report(now, report),
            Happening::Fault { number } => self.fault(now, number),
            Happening::Health { server, status } => self.controller.handle_server(now, ServerId(server), status),
            Happening::SetUp { server } => self.set_up(now, server),
            Happening::Warm { server } => self.park.warm(now, server, &mut self.plans),
            Happening::End => self.usage = Some(self.use_until(now)),
        }
    }

    /// What the controller wants done about other requests, and when it wants to be called again.
    fn follow_up(&mut self, now: Timestamp) {
        while let Some(action) = self.controller.poll_action() {
            match action {
                Action::Start { ticket, server } => {
                    let request = self.stop_waiting(ticket);
                    self.start_waiting(now, request, server);
                }
                Action::Refuse { ticket, rejection } => {
                    let request = self.stop_waiting(ticket);
                    self.requests[request as usize].ticket = None;
                    self.refuse(now, request, &rejection);
                }
                Action::Isolate { server, cores } => self.park.divide(now, u32::from(server.0), cores, &mut self.plans),
                Action::SynRate { rate, depth } => self.kernel.set(now, rate, depth),
                other => unreachable!("an action that the simulator does not know: {other:?}"),
            }
        }
        if let Some((at, _)) = self.controller.poll_timeout()
            && at < self.timeout
        {
            self.timeout = at;
            self.plans.plan(self.timer, at.max(now));
        }
    }

    /// A request waits in the controller.
    fn wait(&mut self, request: u32, ticket: Ticket) {
        let at = low_half(ticket);
        if self.waiting.len() <= at {
            self.waiting.resize(at + 1, u32::MAX);
        }
        self.waiting[at] = request;
        let flying = &mut self.requests[request as usize];
        (flying.ticket, flying.waiting) = (Some(ticket), true);
    }

    fn stop_waiting(&mut self, ticket: Ticket) -> u32 {
        let request = self.waiting[low_half(ticket)];
        let flying = &mut self.requests[request as usize];
        assert_eq!(flying.ticket, Some(ticket), "the low half of a ticket is unique among live ones");
        flying.waiting = false;
        request
    }

    /// A request sets off for its server. One that is off is noticed at once, and the request sent to another, as the
    /// sentry does it; one that is full refuses it.
    fn start(&mut self, now: Timestamp, request: u32, mut server: ServerId) {
        let flying = &mut self.requests[request as usize];
        flying.started = now;
        let mut task = flying.task;
        if let Some(url) = menu::url(&self.menus, flying)
            && url.degrades_to < 1.0
        {
            let quality = self.controller.policer().quality(RequestTypeId(url.request_type));
            task.work *= url.degrades_to + (1.0 - url.degrades_to) * quality;
        }
        for attempt in 0..3 {
            if self.park.begin(now, u32::from(server.0), Owner::Request(request), task, &mut self.plans) {
                return;
            }
            let Some(ticket) = self.requests[request as usize].ticket else { break };
            if attempt == 2 || self.park.is_on(u32::from(server.0)) {
                break;
            }
            match self.controller.handle_redispatch(now, ticket, server) {
                Some(other) => server = other,
                None => break,
            }
        }
        self.fail(now, request);
    }

    /// What became of requests at their servers.
    fn collect(&mut self, now: Timestamp) {
        while let Some(ended) = self.park.next_ended() {
            if ended.served {
                self.answer(now, ended.request);
            } else {
                self.fail(now, ended.request);
            }
        }
    }

    /// The server failed the request.
    fn fail(&mut self, now: Timestamp, request: u32) {
        if let Some(ticket) = self.requests[request as usize].ticket.take() {
            self.controller.handle_completion(now, ticket, Outcome::failed());
        }
        let subject = self.requests[request as usize].subject;
        if !self.requests[request as usize].gone {
            self.report.failed(subject);
        }
        self.close(now, request, clients::Fate::Failed);
    }

    fn refuse(&mut self, now: Timestamp, request: u32, rejection: &Rejection) {
        let flying = &self.requests[request as usize];
        if !flying.gone {
            self.report.refused(now, flying.subject);
        }
        self.close(now, request, clients::Fate::Refused(rejection.retry_after));
    }

    fn use_until(&mut self, now: Timestamp) -> (Vec<Usage>, Option<f64>) {
        (self.park.usage(now), self.desk.as_mut().map(|desk| desk.use_until(now)))
    }

    fn finish(mut self) -> Report {
        let (servers, sentry_cpu) = match self.usage.take() {
            Some(usage) => usage,
            None => self.use_until(self.end),
        };
        let (events, events_left_out) = self.log.take();
        Report {
            classes: self.report.classes(),
            courses: std::mem::take(&mut self.report.courses),
            types: std::mem::take(&mut self.report.types),
            controls: std::mem::take(&mut self.report.controls),
            resources: std::mem::take(&mut self.report.resources),
            in_flight: std::mem::take(&mut self.report.in_flight),
            partitions: std::mem::take(&mut self.report.partitions),
            clients: std::mem::take(&mut self.report.clients),
            servers,
            sentry_cpu,
            duration: self.end.since(Timestamp::ZERO),
            events,
            events_left_out,
            happenings: self.happenings,
            snapshot: self.controller.snapshot(self.end),
        }
    }
}

fn low_half(ticket: Ticket) -> usize {
    ticket.as_u64() as u32 as usize
}
