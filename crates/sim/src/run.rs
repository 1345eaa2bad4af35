//! A run: requests arrive, the controller decides, machines serve, clients go on.
//!
//! A request's way: a client makes it (`run/clients.rs`), it comes to the sentry (`run/sentry.rs`), where the
//! controller decides; it stays at its server (`park.rs`), and the answer goes back over the link (`run/answer.rs`).
//! All of it is driven by the agenda, one happening at a time; after each the controller's actions are carried out.

mod agreed;
mod answer;
mod clients;
mod faults;
mod kernel;
mod lasting;
mod leaving;
mod look;
mod manner;
mod menu;
mod offers;
mod pages;
mod part;
mod sentries;
mod sentry;
mod services;
mod stay;

use std::time::Duration;

use slab::Slab;
use tidegate_engine::{Action, LoadReport, ServerId, SetupError, Status, Ticket, Timestamp};
use tidegate_workload::{Rng, rng};

use crate::agenda::{Agenda, SlotId};
use crate::park::{Park, Task, Usage};
use crate::report::{Report, ReportBuilder, Subject};
use crate::world::World;
use agreed::Agreed;
use answer::Way;
use clients::{Client, Clients};
use sentries::Sentries;
use services::Services;

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
    Timeout {
        sentry: u16,
    },
    /// The same at a service that is called.
    ServiceTimeout {
        tier: u16,
    },
    /// The same for the protocol.
    ProtocolTimeout,
    /// A call arrives at its tier.
    Call {
        chain: u32,
        number: u32,
    },
    /// A worker of the sentry is done with a request.
    SentryDone {
        sentry: u16,
        request: u32,
        then: sentry::Then,
    },
    /// The sentry says how busy it was.
    SentryReport {
        sentry: u16,
    },
    /// A sentry tells the others how it is doing, and hears of them.
    Exchange {
        sentry: u16,
    },
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
    /// A request is there whose client took its time to send it.
    Sent {
        request: u32,
    },
    /// The same, at the server that it has a place at.
    Uploaded {
        request: u32,
        server: ServerId,
    },
    /// An answer is taken over, slowly.
    Read {
        request: u32,
    },
    /// There is news for a poll; a stream is seen to be one; it is over.
    News {
        request: u32,
    },
    Noticed {
        request: u32,
    },
    Closed {
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
        to: Option<u16>,
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
    /// Which sentry it comes to.
    sentry: u16,
    ticket: Option<Ticket>,
    started: Timestamp,
    /// Time at the server, once it is answered there.
    served_in: Duration,
    tries: u32,
    /// What it is beyond its work.
    besides: Besides,
    /// Its number with the protocol.
    call: u32,
    /// Its job at its server, or one of the two that follow.
    job: u32,
    /// Its client's patience.
    timer: Option<SlotId>,
    /// Its client left.
    gone: bool,
    /// It waits in the controller.
    waiting: bool,
    /// It is open, and has no place.
    pooled: bool,
    /// The report has it already: it is between two tries, or its answer goes on.
    counted: bool,
}

/// It is not at its server yet.
const NOT_YET: u32 = u32::MAX;
/// Its server has done the work.
const DONE: u32 = u32::MAX - 1;

/// What a request is besides its work. Drawn when it arrives, so that every policy sees the same.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Besides {
    /// How long its client takes to send it and to read the answer, and how long it is open, seconds.
    sends: f64,
    reads: f64,
    lasts: f64,
    /// How long it waited for news, seconds.
    waited: f64,
}

/// A run, by question: who asks, who decides, where is it done, and what came of it.
pub(crate) struct Run<'w> {
    world: &'w World,
    end: Timestamp,
    /// What is to happen, and the requests to which it does.
    plans: Agenda<Happening>,
    requests: Slab<Flying>,
    clients: Clients<'w>,
    sentries: Sentries<'w>,
    services: Services,
    agreed: Option<Agreed>,
    park: Park<'w>,
    way: Way,
    report: ReportBuilder,
    /// What must not disturb the streams' numbers: losses of reports, and clients' waits.
    aside: Rng,
}

/// A run that does not empty is broken off so long after the last arrival.
const DRAIN: Duration = Duration::from_secs(24 * 3600);

impl<'w> Run<'w> {
    /// One of several sentries has a `lane` of its own: the same arrivals, of which it takes its part, and other costs.
    pub(crate) fn new(world: &'w World, seed: u64, lane: u64) -> Result<Run<'w>, SetupError> {
        let mut plans = Agenda::new();
        Ok(Run {
            end: Timestamp::ZERO + world.duration,
            clients: Clients::new(world, seed, lane, &mut plans),
            sentries: Sentries::new(world, seed, &mut plans)?,
            services: Services::new(world, seed, &mut plans)?,
            agreed: Agreed::new(world, &mut plans),
            park: Park::new(&world.servers, &world.tiers, &world.hosts, &world.programs, &mut plans),
            way: Way::new(world.link, &mut plans),
            requests: Slab::new(),
            report: ReportBuilder::new(world),
            aside: rng(seed, u64::MAX - 1),
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
        self.fail_the_rest();
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
        self.report.happenings += 1;
        if now >= self.report.look {
            self.look_at_controllers(now);
        }
        self.happen(now, happening);
        self.follow_up(now);
    }

    fn plan_all(&mut self) {
        if self.agreed.is_some() {
            self.park.ask_all();
        }
        self.clients.plan_arrivals(&mut self.plans);
        for (number, fault) in self.world.faults.iter().enumerate() {
            self.plans.once(Timestamp::ZERO + fault.at, Happening::Fault { number: number as u32 });
        }
        for (number, reading) in self.world.readings.iter().enumerate() {
            self.plans.once(Timestamp::ZERO + reading.at, Happening::Reading { number: number as u32 });
        }
        for (server, model) in self.world.servers.iter().enumerate() {
            if model.off {
                self.sentries.handle_server(Timestamp::ZERO, ServerId(server as u16), Status::Down);
            }
        }
        self.open_desk();
        self.sentries.begin(&mut self.plans);
        self.watch();
        self.start_users();
        (0..self.clients.sources.len()).for_each(|source| self.plan_page(source));
        self.plans.once(self.end, Happening::End);
        self.follow_up(Timestamp::ZERO);
    }

    fn happen(&mut self, now: Timestamp, happening: Happening) {
        match happening {
            Happening::Arrival { stream } => {
                self.clients.plan_arrival(usize::from(stream), &mut self.plans);
                if self.clients.part.takes(usize::from(stream)) {
                    self.arrive(now, stream);
                }
            }
            Happening::Completion { station } => {
                self.park.complete(now, station, &mut self.plans);
                self.collect(now);
            }
            Happening::Timeout { sentry } => self.sentries.of(sentry).time_out(now),
            Happening::ServiceTimeout { tier } => self.time_out_service(now, tier),
            Happening::ProtocolTimeout => self.time_out_protocol(now),
            Happening::Call { chain, number } => {
                self.park.arrive_at_tier(now, chain, number, &mut self.plans);
                self.collect(now);
            }
            Happening::SentryDone { sentry, request, then } => self.sentry_done(now, sentry, request, then),
            Happening::SentryReport { sentry } => self.report_sentry(now, sentry),
            Happening::Exchange { sentry } => self.sentries.exchange(now, sentry, &mut self.plans),
            Happening::Transferred => self.transferred(now),
            Happening::Received { request } => self.received(now, request),
            Happening::Impatience { request } => self.lose_patience(now, request),
            Happening::Again { request } => self.try_again(now, request),
            Happening::Sent { request } => self.sent_at_last(now, request),
            Happening::Uploaded { request, server } => self.uploaded(now, request, server),
            Happening::Read { request } => self.sent(now, request),
            Happening::News { request } => self.news(now, request),
            Happening::Noticed { request } => self.notice(now, request),
            Happening::Closed { request } => self.end_stream(now, request),
            Happening::Thought { group, user } => self.ask(now, group, user),
            Happening::Page { source } => self.ask_for_page(now, source),
            Happening::Reading { number } => self.send(now, None, self.world.readings[number as usize].report),
            Happening::Measurement => self.measure_servers(now),
            Happening::Report { to, report } => self.sentries.report(now, to, report),
            Happening::Fault { number } => self.fault(now, number),
            Happening::Health { server, status } => self.sentries.handle_server(now, ServerId(server), status),
            Happening::SetUp { server } => self.set_up(now, server),
            Happening::Warm { server } => self.park.warm(now, server, &mut self.plans),
            Happening::End => self.report.usage = Some(self.use_until(now)),
        }
    }

    /// What the controller wants done about other requests, and when it wants to be called again.
    fn follow_up(&mut self, now: Timestamp) {
        loop {
            while let Some(sentry) = self.sentries.next_touched() {
                self.follow(now, sentry);
            }
            self.follow_services(now);
            if self.sentries.next_touched().is_none() {
                return;
            }
        }
    }

    fn follow(&mut self, now: Timestamp, sentry: u16) {
        while let Some(action) = self.sentries.of(sentry).controller.poll_action() {
            match action {
                Action::Start { ticket, server } => {
                    let request = self.stop_waiting(sentry, ticket);
                    self.start_waiting(now, request, server);
                }
                Action::Refuse { ticket, rejection } => {
                    let request = self.stop_waiting(sentry, ticket);
                    self.requests[request as usize].ticket = None;
                    self.refuse(now, request, rejection.retry_after);
                }
                Action::Isolate { server, cores } => self.park.divide(now, u32::from(server.0), cores, &mut self.plans),
                Action::Cancel { ticket } => self.cancelled(now, sentry, ticket),
                Action::SynRate { rate, depth } => self.sentries.of(sentry).kernel.set(now, rate, depth),
                other => unreachable!("an action that the simulator does not know: {other:?}"),
            }
        }
        self.sentries.of(sentry).plan_timeout(now, &mut self.plans);
        self.sentries.settled(sentry);
    }

    fn use_until(&mut self, now: Timestamp) -> (Vec<Usage>, Option<f64>) {
        (self.park.usage(now), self.sentries.first_mut().desk.as_mut().map(|desk| desk.use_until(now)))
    }

    fn finish(mut self) -> Report {
        let usage = self.report.usage.take().unwrap_or_else(|| self.use_until(self.end));
        let snapshot = self.sentries.first().controller.snapshot(self.end);
        let services = self.services.snapshots(self.end);
        let log = self.sentries.take_log(&self.services);
        self.count_last_second();
        self.report.report(self.end.since(Timestamp::ZERO), usage, log, (snapshot, services))
    }
}
