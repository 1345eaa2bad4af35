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
mod pages;
mod part;
mod record;
mod sentry;

use std::time::Duration;

use slab::Slab;
use tidegate_engine::{
    Action, Controller, LoadReport, Outcome, Rejection, RequestTypeId, ServerId, SetupError, Status, Ticket, Timestamp,
};

use crate::agenda::{Agenda, SlotId};
use crate::park::{Owner, Park, Task, Usage};
use crate::report::{EventLog, Report, Subject};
use crate::world::World;
use answer::Way;
use clients::{Client, Clients};
use record::Record;
use sentry::Front;

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
    plans: Agenda<Happening>,
    /// Requests between their arrival and their end.
    requests: Slab<Flying>,
    /// Who asks.
    clients: Clients<'w>,
    /// Who decides.
    front: Front,
    /// Who serves.
    park: Park<'w>,
    /// How answers get back.
    way: Way,
    /// What is written down.
    record: Record,
}

/// A run that does not empty is broken off so long after the last arrival.
const DRAIN: Duration = Duration::from_secs(24 * 3600);

impl<'w> Run<'w> {
    /// One of several sentries has a `lane` of its own: the same arrivals, of which it takes its part, and other costs.
    pub(crate) fn new(world: &'w World, seed: u64, lane: u64) -> Result<Run<'w>, SetupError> {
        let log = EventLog::default();
        let controller = Controller::new(world.setup.clone(), 1, seed, Box::new(log.clone()))?;
        let mut plans = Agenda::new();
        // In this order: what happens at one instant happens in the order of the agenda's slots.
        let arrivals = clients::arrivals(world, seed, &mut plans);
        let park = Park::new(&world.servers, &world.tiers, &world.hosts, &world.programs, &mut plans);
        let clients = Clients::new(world, seed, lane, arrivals, &mut plans);
        let front = Front::new(controller, world.sentry, &mut plans);
        Ok(Run {
            end: Timestamp::ZERO + world.duration,
            requests: Slab::new(),
            clients,
            front,
            park,
            way: Way::new(world.link, &mut plans),
            record: Record::new(world, log),
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
        while let Some((now, happening)) = self.plans.next() {
            if now > self.end && (self.requests.is_empty() || now > self.end + DRAIN) {
                break;
            }
            self.record.happenings += 1;
            if now >= self.record.look {
                self.look_at_controllers(now);
            }
            self.happen(now, happening);
            self.follow_up(now);
        }
        self.finish()
    }

    fn plan_all(&mut self) {
        for stream in 0..self.clients.arrivals.len() {
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
                self.front.controller.handle_server(Timestamp::ZERO, ServerId(server as u16), Status::Down);
            }
        }
        self.open_desk();
        self.watch();
        self.start_users();
        (0..self.clients.sources.len()).for_each(|source| self.plan_page(source));
        self.plans.once(self.end, Happening::End);
        self.follow_up(Timestamp::ZERO);
    }

    fn plan_arrival(&mut self, stream: usize) {
        let (arrivals, slot) = &mut self.clients.arrivals[stream];
        if let Some(at) = arrivals.next() {
            self.plans.plan(*slot, Timestamp::ZERO + at);
        }
    }

    fn happen(&mut self, now: Timestamp, happening: Happening) {
        match happening {
            Happening::Arrival { stream } => {
                self.plan_arrival(usize::from(stream));
                if self.clients.part.takes(usize::from(stream)) {
                    self.arrive(now, stream);
                }
            }
            Happening::Completion { station } => {
                self.park.complete(now, station, &mut self.plans);
                self.collect(now);
            }
            Happening::Timeout => self.front.handle_timeout(now),
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
            Happening::Report { report } => self.front.controller.handle_report(now, report),
            Happening::Fault { number } => self.fault(now, number),
            Happening::Health { server, status } => self.front.controller.handle_server(now, ServerId(server), status),
            Happening::SetUp { server } => self.set_up(now, server),
            Happening::Warm { server } => self.park.warm(now, server, &mut self.plans),
            Happening::End => self.record.usage = Some(self.use_until(now)),
        }
    }

    /// What the controller wants done about other requests, and when it wants to be called again.
    fn follow_up(&mut self, now: Timestamp) {
        while let Some(action) = self.front.controller.poll_action() {
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
                Action::SynRate { rate, depth } => self.front.kernel.set(now, rate, depth),
                other => unreachable!("an action that the simulator does not know: {other:?}"),
            }
        }
        self.front.plan_timeout(now, &mut self.plans);
    }

    /// A request waits in the controller.
    fn wait(&mut self, request: u32, ticket: Ticket) {
        self.front.note_waiting(ticket, request);
        let flying = &mut self.requests[request as usize];
        (flying.ticket, flying.waiting) = (Some(ticket), true);
    }

    fn stop_waiting(&mut self, ticket: Ticket) -> u32 {
        let request = self.front.who_waits(ticket);
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
        let url = &self.clients.menus[flying.client.menu()].urls[flying.url as usize];
        if url.degrades_to < 1.0 {
            let quality = self.front.controller.policer().quality(RequestTypeId(url.request_type));
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
            match self.front.controller.handle_redispatch(now, ticket, server) {
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
            self.front.controller.handle_completion(now, ticket, Outcome::failed());
        }
        let subject = self.requests[request as usize].subject;
        if !self.requests[request as usize].gone {
            self.record.report.failed(subject);
        }
        self.close(now, request, clients::Fate::Failed);
    }

    fn refuse(&mut self, now: Timestamp, request: u32, rejection: &Rejection) {
        let flying = &self.requests[request as usize];
        if !flying.gone {
            self.record.report.refused(now, flying.subject);
        }
        self.close(now, request, clients::Fate::Refused(rejection.retry_after));
    }

    fn use_until(&mut self, now: Timestamp) -> (Vec<Usage>, Option<f64>) {
        (self.park.usage(now), self.front.desk.as_mut().map(|desk| desk.use_until(now)))
    }

    fn finish(mut self) -> Report {
        let (servers, sentry_cpu) = match self.record.usage.take() {
            Some(usage) => usage,
            None => self.use_until(self.end),
        };
        let snapshot = self.front.controller.snapshot(self.end);
        self.record.finish(servers, sentry_cpu, self.world.duration, snapshot)
    }
}
