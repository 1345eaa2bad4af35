//! What a run gave, by second. Memory grows with the length of the run, not with the number of requests.

use std::time::Duration;

use tidegate_engine::{Event, EventSink, Facts, Snapshot, Timestamp};
use tidegate_workload::{Course, Responses};

pub use crate::park::Usage;
use crate::world::{Stream, World};

/// The outcome of a run.
#[derive(Clone, Debug)]
pub struct Report {
    /// Per class, most important first; empty unless [`World::by_answer`](crate::World::by_answer).
    pub classes: Vec<ClassReport>,
    /// Per stream of the world, then per group of users, two for each kind of sessions, and with offers one for each
    /// class; by second ([`World::stretch`](crate::World::stretch)) of arrival.
    pub courses: Vec<Course>,
    /// Per request type of the setup, by second (stretch) of arrival.
    pub types: Vec<Course>,
    /// What the admission policy showed of its own, second by second; empty when it shows nothing.
    pub shown: Vec<(Duration, Facts)>,
    /// Servers by partition, second by second; empty where they are not divided.
    pub partitions: Vec<Vec<usize>>,
    /// Requests in flight, second by second, in the order of `courses`; empty unless
    /// [`World::count_in_flight`](crate::World::count_in_flight).
    pub in_flight: Vec<Vec<u32>>,
    /// Per stream, its tenants by rank, the one that sends most first; empty where nobody asks whose requests they are.
    pub tenants: Vec<Vec<TenantReport>>,
    /// The most requests that one server behind the sentry had at work at once, waiting for a place there included,
    /// second by second; empty unless [`World::count_in_flight`](crate::World::count_in_flight).
    pub at_work: Vec<u32>,
    /// Requests that nothing had become of a day after the last arrival. They count as failed.
    pub unfinished: u64,
    /// In the order of `courses`: what became of what clients wanted, whatever number of tries it took.
    pub clients: Vec<ClientReport>,
    /// Every server while requests arrived: those behind the sentry, then tier by tier.
    pub servers: Vec<Usage>,
    /// Share of the sentry's processors in use while requests arrived; `None` when its own load is not simulated.
    pub sentry_cpu: Option<f64>,
    /// How long requests arrived.
    pub duration: Duration,
    /// What the engine said meanwhile: the first [`Report::EVENTS`].
    pub events: Vec<(Timestamp, Event)>,
    /// How many events came after those.
    pub events_left_out: u64,
    /// What happened in the simulation, in number: arrivals, completions at a resource, timers of the engine and of
    /// clients, transfers, calls, reports and faults, each once.
    pub happenings: u64,
    /// The controller at the end.
    pub snapshot: Snapshot,
    /// The same of the services that are called and have sentries, by tier; empty where none has.
    pub services: Vec<Option<Snapshot>>,
}

/// One class.
#[derive(Clone, Debug)]
pub struct ClassReport {
    /// Its name.
    pub name: String,
    /// By second of arrival (offered, refused) or of the answer (the rest).
    pub seconds: Vec<Second>,
}

/// One second of a class.
#[derive(Clone, Debug, Default)]
pub struct Second {
    /// Requests that arrived.
    pub offered: u32,
    /// Requests refused.
    pub refused: u32,
    /// Response times of the requests answered.
    pub responses: Responses,
    /// Of these, within the target.
    pub in_target: u32,
}

/// What became of one tenant's requests, over the whole run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TenantReport {
    /// Requests that arrived.
    pub offered: u64,
    /// Of these, answered within the target.
    pub good: u64,
}

/// What became of what clients wanted. A request that is tried three times is one that was wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClientReport {
    /// Requests wanted.
    pub wanted: u64,
    /// Of these, answered in time at last.
    pub satisfied: u64,
    /// Of these, given up: refused, failed or too late, and not tried again.
    pub given_up: u64,
    /// Tries after the first.
    pub retries: u64,
}

impl Report {
    /// So many events are kept.
    pub const EVENTS: usize = 10_000;

    /// A class's figures over the seconds `from..to`.
    pub fn span(&self, class: usize, from: usize, to: usize) -> Second {
        let seconds = &self.classes[class].seconds;
        let mut sum = Second::default();
        for second in &seconds[from.min(seconds.len())..to.min(seconds.len())] {
            sum.add(second);
        }
        sum
    }

    /// All classes' figures over the seconds `from..to`.
    pub fn span_all(&self, from: usize, to: usize) -> Second {
        let mut sum = Second::default();
        (0..self.classes.len()).for_each(|class| sum.add(&self.span(class, from, to)));
        sum
    }

    /// Energy of all servers while requests arrived, joules.
    pub fn joules(&self) -> f64 {
        self.servers.iter().map(|server| server.joules).sum()
    }
}

impl Second {
    /// The response time below which the share `q` of the answers lies, seconds; 0 without answers.
    pub fn quantile(&self, q: f64) -> f64 {
        self.responses.quantile(q).unwrap_or(0.0)
    }

    /// Requests answered.
    pub fn answered(&self) -> usize {
        self.responses.count() as usize
    }

    fn add(&mut self, other: &Second) {
        self.offered += other.offered;
        self.refused += other.refused;
        self.in_target += other.in_target;
        self.responses.merge(&other.responses);
    }
}

pub(crate) struct ReportBuilder {
    classes: Vec<ClassReport>,
    pub(crate) courses: Vec<Course>,
    pub(crate) types: Vec<Course>,
    pub(crate) shown: Vec<(Duration, Facts)>,
    pub(crate) partitions: Vec<Vec<usize>>,
    pub(crate) in_flight: Vec<Vec<u32>>,
    pub(crate) tenants: Vec<Vec<TenantReport>>,
    pub(crate) at_work: Vec<u32>,
    pub(crate) unfinished: u64,
    pub(crate) clients: Vec<ClientReport>,
    /// Answers that take longer have nobody left to read them.
    patience: Duration,
    /// What is a second of a course, nanoseconds.
    stretch: u64,
    /// When to look at controllers again; never without any.
    pub(crate) look: Timestamp,
    pub(crate) happenings: u64,
    /// What servers and the sentry's processors did until requests ceased to arrive.
    pub(crate) usage: Option<(Vec<Usage>, Option<f64>)>,
}

/// A request, as far as the report is concerned.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Subject {
    pub(crate) class: u8,
    pub(crate) course: u16,
    /// By rank among the course's tenants, from 1; 0: nobody's in particular.
    pub(crate) tenant: u32,
    pub(crate) request_type: u16,
    pub(crate) arrived: Timestamp,
    /// The response-time target when it arrived.
    pub(crate) target: Duration,
}

impl ReportBuilder {
    pub(crate) fn new(world: &World) -> Self {
        let (setup, by_answer, courses) = (&world.setup, world.by_answer, world.courses());
        let kept = setup.classes.iter().filter(|_| by_answer);
        let classes = kept.map(|class| ClassReport { name: class.name.clone(), seconds: Vec::new() }).collect();
        let clients = vec![ClientReport::default(); courses];
        let types = vec![Course::default(); setup.request_types.len()];
        let courses = vec![Course::default(); courses];
        ReportBuilder {
            classes,
            courses,
            types,
            shown: Vec::new(),
            partitions: Vec::new(),
            in_flight: Vec::new(),
            tenants: world.streams.iter().map(tenants).collect(),
            at_work: Vec::new(),
            unfinished: 0,
            clients,
            patience: world.patience,
            stretch: u64::try_from(world.stretch.as_nanos()).unwrap_or(u64::MAX).max(1),
            look: Timestamp::ZERO,
            happenings: 0,
            usage: None,
        }
    }

    /// So many courses more.
    pub(crate) fn add_courses(&mut self, more: usize) {
        self.courses.resize(self.courses.len() + more, Course::default());
        self.clients.resize(self.courses.len(), ClientReport::default());
    }

    pub(crate) fn offered(&mut self, subject: Subject) {
        if let Some(class) = self.classes.get_mut(usize::from(subject.class)) {
            class.second(subject.arrived).offered += 1;
        }
        self.count(subject, Course::offered);
        if let Some(tenant) = self.tenant(subject) {
            tenant.offered += 1;
        }
    }

    pub(crate) fn refused(&mut self, now: Timestamp, subject: Subject) {
        if let Some(class) = self.classes.get_mut(usize::from(subject.class)) {
            class.second(now).refused += 1;
        }
        self.count(subject, Course::refused);
    }

    /// Its client waited for `response`. Returns whether it was still there.
    pub(crate) fn answered(&mut self, now: Timestamp, subject: Subject, response: Duration) -> bool {
        if let Some(class) = self.classes.get_mut(usize::from(subject.class)) {
            let second = class.second(now);
            second.in_target += u32::from(response <= subject.target);
            second.responses.add(response);
        }
        let in_time = response <= self.patience;
        if let Some(tenant) = self.tenant(subject) {
            tenant.good += u64::from(in_time && response <= subject.target);
        }
        self.count(subject, |course, arrived| match in_time {
            true => course.answered(arrived, response, subject.target),
            false => course.failed(arrived),
        });
        in_time
    }

    fn tenant(&mut self, subject: Subject) -> Option<&mut TenantReport> {
        self.tenants.get_mut(usize::from(subject.course))?.get_mut((subject.tenant as usize).checked_sub(1)?)
    }

    /// Counts a request with its stream and with its type.
    fn count(&mut self, subject: Subject, what: impl Fn(&mut Course, Duration)) {
        let arrived = Duration::from_secs(subject.arrived.as_nanos() / self.stretch);
        what(&mut self.courses[usize::from(subject.course)], arrived);
        what(&mut self.types[usize::from(subject.request_type)], arrived);
    }

    pub(crate) fn failed(&mut self, subject: Subject) {
        self.count(subject, Course::failed);
    }

    /// What was kept, with what is known at the end.
    pub(crate) fn report(
        self,
        duration: Duration,
        (servers, sentry_cpu): (Vec<Usage>, Option<f64>),
        (events, events_left_out): (Vec<(Timestamp, Event)>, u64),
        (snapshot, services): (Snapshot, Vec<Option<Snapshot>>),
    ) -> Report {
        Report {
            classes: self.classes,
            courses: self.courses,
            types: self.types,
            shown: self.shown,
            partitions: self.partitions,
            in_flight: self.in_flight,
            tenants: self.tenants,
            at_work: self.at_work,
            unfinished: self.unfinished,
            clients: self.clients,
            servers,
            sentry_cpu,
            duration,
            events,
            events_left_out,
            happenings: self.happenings,
            snapshot,
            services,
        }
    }
}

/// A place for each tenant of a stream.
fn tenants(stream: &Stream) -> Vec<TenantReport> {
    vec![TenantReport::default(); stream.manner.tenants.map_or(0, |tenants| tenants.count as usize)]
}

impl ClassReport {
    fn second(&mut self, now: Timestamp) -> &mut Second {
        let second = (now.as_nanos() / 1_000_000_000) as usize;
        if self.seconds.len() <= second {
            self.seconds.resize_with(second + 1, Second::default);
        }
        &mut self.seconds[second]
    }
}

/// Keeps the first events and counts the rest. The controller has one end of it, the run the other.
#[derive(Clone, Default)]
pub(crate) struct EventLog(std::sync::Arc<std::sync::Mutex<Log>>);

#[derive(Default)]
struct Log {
    kept: Vec<(Timestamp, Event)>,
    left_out: u64,
}

impl EventLog {
    /// What was kept, and how many were not.
    pub(crate) fn take(&self) -> (Vec<(Timestamp, Event)>, u64) {
        let mut log = self.0.lock().expect("no run panics while it holds the events");
        (std::mem::take(&mut log.kept), log.left_out)
    }
}

impl EventSink for EventLog {
    fn record(&mut self, now: Timestamp, event: Event) {
        let mut log = self.0.lock().expect("no run panics while it holds the events");
        if log.kept.len() < Report::EVENTS {
            log.kept.push((now, event));
        } else {
            log.left_out += 1;
        }
    }
}
