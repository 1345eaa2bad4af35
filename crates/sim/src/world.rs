//! A world: everything about a run but its seed.

use std::time::Duration;

use tidegate_engine::{Open, Setup, SetupError, Tags, Timestamp};
use tidegate_workload::{ArrivalProcess, Profile, Retry, ServiceTime, Tenants};

use crate::model::{Channel, Fault, Host, Link, Program, Reading, SentryFleet, SentryModel, ServerModel, Tier};
use crate::protocol::Protocol;
use crate::report::Report;
use crate::run::Run;

/// Everything about a run but its seed.
#[derive(Clone, Debug)]
pub struct World {
    /// The application under control.
    pub setup: Setup,
    /// Its servers, in the order of the setup's.
    pub servers: Vec<ServerModel>,
    /// What these call.
    pub tiers: Vec<Tier>,
    /// Servers of tiers that are servers behind the sentry too.
    pub hosts: Vec<Host>,
    /// What requests and calls do besides using the processors; [`Url::program`] and calls refer to it. The first is
    /// empty: nothing besides.
    pub programs: Vec<Program>,
    /// What arrives, whoever is there already.
    pub streams: Vec<Stream>,
    /// Who waits for an answer before asking for more.
    pub users: Vec<Users>,
    /// Web users who come, ask for pages, and leave.
    pub sessions: Vec<Sessions>,
    /// The sentry's own processors; `None`: they are never short.
    pub sentry: Option<SentryModel>,
    /// How many sentries there are, if more than one, and what they know of each other.
    pub fleet: Option<SentryFleet>,
    /// The way to the clients; `None`: answers are there at once.
    pub link: Option<Link>,
    /// The way of measurements to the engine.
    pub channel: Channel,
    /// Measurements given, in place of measured ones.
    pub readings: Vec<Reading>,
    /// What happens to servers.
    pub faults: Vec<Fault>,
    /// How long a client waits for an answer. A client that may retry leaves then; one that may not is counted, when
    /// its answer is there, as failed. The server does the work in both cases.
    pub patience: Duration,
    /// Arrivals stop here; what is in flight then is still served.
    pub duration: Duration,
    /// Whether [`Report::classes`] are kept, by second of the answer, beside the courses by second of arrival.
    pub by_answer: bool,
    /// Whether requests in flight are counted once a second, and the most that a server had at work in it.
    pub count_in_flight: bool,
    /// Whether the sentry holds bodies: a request comes to be decided on when its client has sent it all, and an answer
    /// is taken from its server at the server's pace. Otherwise whoever sends or reads slowly has a place meanwhile.
    pub holds_bodies: bool,
    /// Whether the sentry knows whose requests they are, where they are some [tenant](Manner::tenants)'s.
    pub tells_tenants: bool,
    /// Whether a sentry hears that a service further down refused a request, where such have sentries.
    pub tells_refusals: bool,
    /// How services and their callers keep overload out together; `None`: by their sentries, if they have any.
    pub protocol: Option<Protocol>,
    /// Whether nuclei measure the servers, for a policy that protects resources.
    pub nuclei: bool,
    /// Courses are kept by stretches of this length: what is a second of a [`Course`](tidegate_workload::Course) is a
    /// stretch of the run.
    pub stretch: Duration,
}

/// A request that is given, where those of a [`Stream`] are drawn: nothing but time on a processor.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Offer {
    /// When it arrives.
    pub at: Duration,
    /// Its class, 0 = most important.
    pub class: u8,
    /// Its request type; 0 is the setup's first.
    pub request_type: u16,
    /// Its URL's key in the cost table.
    pub url: u64,
    /// Inherent time on a server's processors, seconds.
    pub work: f64,
}

/// Requests of one class, at a rate that does not depend on how they fare.
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
    /// What clients do that were not answered; `None`: nothing.
    pub retry: Option<Retry>,
    /// How they behave besides.
    pub manner: Manner,
}

/// How a stream's clients behave, besides trying again.
#[derive(Clone, Debug, Default)]
pub struct Manner {
    /// How long they wait for an answer before they leave; `None`: [`World::patience`] holds for them.
    pub patience: Option<Duration>,
    /// The same, said with their requests; whichever is sooner holds.
    pub deadline: Option<Duration>,
    /// Whose requests they are; `None`: nobody's in particular.
    pub tenants: Option<Tenants>,
    /// How long a client takes to send a request, seconds; `None`: no time.
    pub sends: Option<ServiceTime>,
    /// How long a client takes to read an answer, seconds; `None`: no time.
    pub reads: Option<ServiceTime>,
    /// The requests are drawn and do not come: those of other streams are the very same as if they did.
    pub absent: bool,
}

/// One URL.
#[derive(Clone, Debug)]
pub struct Url {
    /// Its key in the cost table.
    pub key: u64,
    /// Its request type.
    pub request_type: u16,
    /// The resources that it strains.
    pub tags: Tags,
    /// Its share among the URLs it stands with.
    pub weight: f64,
    /// Inherent time on a server's processors, seconds.
    pub cost: ServiceTime,
    /// The share of `cost` that remains at quality 0; 1: it cannot be answered cheaper.
    pub degrades_to: f64,
    /// What else it does at the server: of [`World::programs`].
    pub program: u16,
    /// Size of the answer, bytes, for the way to the clients.
    pub bytes: u64,
    /// How long it is open besides being work; `None`: it is work and nothing else.
    pub lasts: Option<Lasting>,
}

/// A request that is open without being work: the time besides that on the processors.
#[derive(Clone, Copy, Debug)]
pub struct Lasting {
    /// A stream goes on after its first byte; a poll waits before it. Anything else is a stream here.
    pub kind: Open,
    /// For how long, seconds.
    pub time: ServiceTime,
    /// Whether the sentry is told: of a poll by a rule, of a stream by its content type. It finds out a stream of which
    /// it is not told by its pace.
    pub told: bool,
}

impl Url {
    /// A URL of the default type that is nothing but time on a processor.
    pub fn new(key: u64, cost: ServiceTime) -> Url {
        Url {
            key,
            request_type: 0,
            tags: Tags(0),
            weight: 1.0,
            cost,
            degrades_to: 1.0,
            program: 0,
            bytes: 0,
            lasts: None,
        }
    }
}

/// A fixed number of users of one class: each asks, waits for the answer, thinks, and asks again, from type to type.
#[derive(Clone, Debug)]
pub struct Users {
    /// Their class, 0 = most important.
    pub class: u8,
    /// How many.
    pub count: u32,
    /// When they come.
    pub from: Duration,
    /// When they stop asking; with the run's end at the latest.
    pub until: Duration,
    /// Time between an answer and the next request, seconds.
    pub think: ServiceTime,
    /// What they ask for: per state (request type) its URLs.
    pub states: Vec<Vec<Url>>,
    /// With which state a session begins: weights.
    pub start: Vec<f64>,
    /// From each state to each: probabilities. What is missing to 1 is the end of the session.
    pub next: Vec<Vec<f64>>,
    /// Time between the end of a session and the beginning of the next, seconds.
    pub pause: ServiceTime,
    /// What they do when they are not answered; `None`: they give up. A user who gives up ends the session.
    pub retry: Option<Retry>,
}

/// Sessions of pages: a page and what is embedded in it are one request.
#[derive(Clone, Debug)]
pub struct Sessions {
    /// Their class, 0 = most important.
    pub class: u8,
    /// When they begin, what they ask for, and what objects and bytes cost.
    pub source: tidegate_workload::Sessions,
    /// One URL or more for each kind of page, in the order of
    /// [`types`](tidegate_workload::Sessions::types).
    pub urls: [Vec<Url>; 4],
}

impl World {
    /// `servers` under `setup`, nothing arriving yet.
    pub fn new(setup: Setup, servers: Vec<ServerModel>, duration: Duration) -> World {
        World {
            setup,
            servers,
            tiers: Vec::new(),
            hosts: Vec::new(),
            programs: vec![Program::default()],
            streams: Vec::new(),
            users: Vec::new(),
            sessions: Vec::new(),
            sentry: None,
            fleet: None,
            link: None,
            channel: Channel::default(),
            readings: Vec::new(),
            faults: Vec::new(),
            patience: Duration::MAX,
            duration,
            by_answer: true,
            count_in_flight: false,
            holds_bodies: true,
            tells_tenants: true,
            tells_refusals: true,
            protocol: None,
            nuclei: true,
            stretch: Duration::from_secs(1),
        }
    }

    /// Plays the world. Equal seeds give equal reports.
    ///
    /// # Errors
    /// When the setup makes no sense.
    ///
    /// # Panics
    /// When the world is not whole: another number of servers than the setup has, or a program, tier or resource that
    /// is not there. Worlds made from scenario files are.
    pub fn run(&self, seed: u64) -> Result<Report, SetupError> {
        assert_eq!(self.servers.len(), self.setup.servers.len(), "as many servers as the setup has");
        Ok(Run::new(self, seed, 0)?.play())
    }

    /// Plays the world with requests that are given, beside those of its streams. They must be in order of time. One is
    /// taken when the one before has arrived, so there may be any number of them.
    ///
    /// An offer comes last of its instant. Offers may come after [`World::duration`]: the run ends with the last. What
    /// is not answered a day later has failed. Their courses follow the others: one for each class.
    ///
    /// # Errors
    /// When the setup makes no sense.
    ///
    /// # Panics
    /// As [`World::run`], and when an offer is of a class or type that the setup has not.
    pub fn run_with(&self, seed: u64, offers: impl IntoIterator<Item = Offer>) -> Result<Report, SetupError> {
        assert_eq!(self.servers.len(), self.setup.servers.len(), "as many servers as the setup has");
        Ok(Run::new(self, seed, 0)?.play_with(offers.into_iter()))
    }

    /// How many courses there are without those of offers.
    pub(crate) fn courses(&self) -> usize {
        self.streams.len() + self.users.len() + 2 * self.sessions.len()
    }

    /// The target at the rate that is offered at `now`.
    pub(crate) fn target(&self, now: Timestamp) -> Duration {
        let sla = &self.setup.sla;
        if sla.steps().len() <= 1 {
            return sla.target(0.0);
        }
        let at = now.since(Timestamp::ZERO);
        let comes = self.streams.iter().filter(|stream| !stream.manner.absent);
        sla.target(comes.map(|stream| stream.profile.rate_at(at).per_second()).sum())
    }
}
