//! Several applications, each with its sentries, on one pool of servers: worlds in step, with a provisioner between.
//!
//! Every sentry of every application is a run of its own, with its own controller. All runs are played up to the same
//! instant; there the sentries report, the provisioner decides, and what it says is done to the runs. A server is in
//! one run at a time. All sentries of an application see the same arrivals and take every n-th, as names that point to
//! them in turn would do it.
//!
//! *What is left out.* A server that moves from one sentry to another finishes its old requests as if it had the time
//! of both: tens of milliseconds of work. A server that is being set up draws no power.

mod lane;

use std::time::Duration;

use tidegate_engine::{SetupError, Timestamp};
use tidegate_provision::{
    ApplicationReport, Place, ProvisionAction, ProvisionError, ProvisionEvent, Provisioner, ServerNews, Site,
};

use crate::report::Report;
use crate::world::World;
use lane::Lane;

/// Everything about a run of a site but its seed.
#[derive(Clone, Debug)]
pub struct SiteWorld {
    /// Who decides about servers. Its pool is every world's first servers, in the same order; what a world has beyond
    /// them are data servers that lend themselves, which stay.
    pub site: Site,
    /// Per application its world, as one sentry would have it.
    pub worlds: Vec<World>,
    /// How often sentries report, and the provisioner is asked.
    pub every: Duration,
    /// What was offered to each application before the run, for its forecaster: instants before `origin`, and mean
    /// rates, requests per second.
    pub past: Vec<Vec<(Timestamp, f64)>>,
    /// The provisioner's clock at the beginning of the run, so that there can be a past.
    pub origin: Duration,
}

/// What came of a site.
#[derive(Debug)]
pub struct SiteReport {
    /// Per application the report of each of its sentries.
    pub reports: Vec<Vec<Report>>,
    /// Per application what it had in each second.
    pub provisioned: Vec<Vec<Provision>>,
    /// What the provisioner did, by the run's time.
    pub events: Vec<(Timestamp, ProvisionEvent)>,
    /// Server-seconds that were paid for while requests arrived: from asking for a server until it was stopped.
    pub server_seconds: f64,
}

/// What an application had in one second.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Provision {
    /// Servers that served.
    pub servers: f64,
    /// Sentries.
    pub sentries: f64,
    /// The most that the target might relax to, seconds.
    pub ceiling: f64,
    /// CPU of the first sentry in use, 0 to 1.
    pub sentry_cpu: f64,
    /// The highest CPU of any sentry less the lowest.
    pub sentry_spread: f64,
}

/// Why a site cannot be played.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum SiteError {
    /// An application's setup makes no sense.
    #[error(transparent)]
    Setup(#[from] SetupError),
    /// The site makes no sense.
    #[error(transparent)]
    Site(#[from] ProvisionError),
}

impl SiteWorld {
    /// Plays the site. Equal seeds give equal reports.
    ///
    /// # Errors
    /// When a setup or the site makes no sense.
    ///
    /// # Panics
    /// When the worlds do not fit the site: another number of them, or fewer servers.
    pub fn run(&self, seed: u64) -> Result<SiteReport, SiteError> {
        assert_eq!(self.worlds.len(), self.site.applications.len(), "a world for each application");
        let pool = self.site.servers as usize;
        assert!(self.worlds.iter().all(|world| world.servers.len() >= pool), "every world has the whole pool");
        let worlds = self.lanes();
        let mut play = Play::new(self, &worlds, seed)?;
        play.play()?;
        Ok(play.finish())
    }

    /// A world for every sentry there may be, all servers of the pool off.
    fn lanes(&self) -> Vec<Vec<World>> {
        let lane = |world: &World| {
            let mut world = world.clone();
            world.servers.iter_mut().take(self.site.servers as usize).for_each(|server| server.off = true);
            world
        };
        let most = |at: usize| self.site.applications[at].max_sentries.max(1);
        (0..self.worlds.len()).map(|at| (0..most(at)).map(|_| lane(&self.worlds[at])).collect()).collect()
    }
}

/// A site under way.
struct Play<'w> {
    site: &'w SiteWorld,
    provisioner: Provisioner,
    /// Per application, per sentry.
    lanes: Vec<Vec<Lane<'w>>>,
    /// When servers that were asked for will serve.
    starting: Vec<(Timestamp, usize)>,
    /// At the last report.
    before: Timestamp,
    provisioned: Vec<Vec<Provision>>,
    events: Vec<(Timestamp, ProvisionEvent)>,
    server_seconds: f64,
}

impl<'w> Play<'w> {
    fn new(site: &'w SiteWorld, worlds: &'w [Vec<World>], seed: u64) -> Result<Play<'w>, SiteError> {
        let mut provisioner = Provisioner::new(site.site.clone())?;
        for (application, past) in site.past.iter().enumerate() {
            provisioner.teach(application, past.iter().copied());
        }
        // Everything that was due while nothing ran is over.
        provisioner.handle_timeout(Timestamp::ZERO + site.origin);
        let mut lanes = Vec::new();
        for (application, worlds) in worlds.iter().enumerate() {
            // One application's arrivals are not another's.
            let seed = seed.wrapping_add(0x9e37_79b9 * application as u64);
            let pool = site.site.servers as usize;
            let lane = |(at, world): (usize, &'w World)| Lane::new(world, pool, seed, at as u64);
            lanes.push(worlds.iter().enumerate().map(lane).collect::<Result<Vec<_>, _>>()?);
        }
        let applications = lanes.len();
        Ok(Play {
            site,
            provisioner,
            lanes,
            starting: Vec::new(),
            before: Timestamp::ZERO,
            provisioned: vec![Vec::new(); applications],
            events: Vec::new(),
            server_seconds: 0.0,
        })
    }

    fn play(&mut self) -> Result<(), SiteError> {
        self.act(Timestamp::ZERO)?;
        let end = Timestamp::ZERO + self.site.worlds.iter().map(|world| world.duration).max().unwrap_or_default();
        let mut report_at = Timestamp::ZERO + self.site.every;
        let mut now = Timestamp::ZERO;
        while now < end {
            let up = self.starting.iter().map(|(at, _)| *at).min().unwrap_or(Timestamp::MAX);
            let next = report_at.min(up).min(end);
            self.server_seconds += next.seconds_since(now) * self.paid_for();
            now = next;
            self.lanes.iter_mut().flatten().for_each(|lane| lane.run.play_until(now));
            self.servers_come_up(now);
            if now == report_at || now == end {
                self.servers_are_drained(now);
                self.report(now);
                self.provisioner.handle_timeout(now + self.site.origin);
                report_at = now + self.site.every;
            }
            self.act(now)?;
            self.tell_what_comes(now);
        }
        Ok(())
    }

    /// Sentries know when the next server will serve, as the control plane's orders tell it.
    fn tell_what_comes(&mut self, now: Timestamp) {
        let origin = self.site.origin;
        for (application, lanes) in self.lanes.iter_mut().enumerate() {
            let arriving = self.provisioner.arriving(now + origin, application);
            let soonest = arriving.iter().map(|(at, _)| *at - origin).min();
            lanes.iter_mut().for_each(|lane| lane.expect(now, soonest));
        }
    }

    fn servers_come_up(&mut self, now: Timestamp) {
        let up: Vec<usize> = self.starting.extract_if(.., |(at, _)| *at <= now).map(|(_, server)| server).collect();
        for server in up {
            self.provisioner.handle_server(now + self.site.origin, server, ServerNews::Up);
            if let Some(lane) = self.lanes.iter_mut().flatten().find(|lane| lane.owns(server)) {
                lane.switch_on(now, server, true);
            }
        }
    }

    fn servers_are_drained(&mut self, now: Timestamp) {
        for server in 0..self.provisioner.places().len() {
            if matches!(self.provisioner.places()[server], Place::Draining { .. })
                && self.lanes.iter().flatten().all(|lane| lane.is_idle(server))
            {
                self.provisioner.handle_server(now + self.site.origin, server, ServerNews::Drained);
            }
        }
        self.lanes.iter_mut().flatten().for_each(|lane| lane.let_go(now));
    }

    /// Every application's sentries tell what they saw, and how busy they were.
    fn report(&mut self, now: Timestamp) {
        for application in 0..self.lanes.len() {
            let sentries = self.provisioner.sentries(application) as usize;
            let mut sum = Sum::default();
            let mut cpus = Vec::new();
            for (at, lane) in self.lanes[application].iter_mut().enumerate() {
                let seen = lane.measure(now, self.before);
                if at < sentries {
                    cpus.push(seen.sentry_cpu);
                }
                sum.add(&seen);
            }
            let instant = now + self.site.origin;
            self.provisioner.handle_report(instant, application, &sum.report());
            self.keep(now, application, &cpus);
            for (at, cpu) in cpus.into_iter().enumerate() {
                self.provisioner.handle_sentry(instant, application, at, self.before + self.site.origin, cpu);
            }
        }
        self.before = now;
    }

    /// What the application had since the last report, for its course.
    fn keep(&mut self, now: Timestamp, application: usize, cpus: &[f64]) {
        let (least, most) = cpus.iter().fold((1.0f64, 0.0f64), |(least, most), cpu| (least.min(*cpu), most.max(*cpu)));
        let second = Provision {
            servers: f64::from(self.provisioner.serving(application)),
            sentries: cpus.len() as f64,
            ceiling: self.provisioner.ceiling(application).as_secs_f64(),
            sentry_cpu: cpus.first().copied().unwrap_or(0.0),
            sentry_spread: (most - least).max(0.0),
        };
        self.provisioned[application].resize(now.as_secs_f64() as usize, second);
    }

    /// Does what the provisioner says.
    fn act(&mut self, now: Timestamp) -> Result<(), SiteError> {
        while let Some(action) = self.provisioner.poll_action() {
            match action {
                ProvisionAction::Start { server, .. } => {
                    self.starting.push((now + self.site.site.pool.setup_time, server));
                }
                ProvisionAction::Drain { server, .. } => self.owners(server, |lane| lane.run.drain(now, server)),
                ProvisionAction::Resume { server, .. } => self.owners(server, |lane| lane.run.resume(now, server)),
                ProvisionAction::Stop { server } => {
                    self.starting.retain(|(_, other)| *other != server);
                    self.lanes.iter_mut().flatten().for_each(|lane| lane.switch_off(now, server));
                }
                ProvisionAction::SetCeiling { application, ceiling } => {
                    for lane in &mut self.lanes[application] {
                        lane.ceiling = ceiling;
                        lane.agree(now)?;
                    }
                }
                ProvisionAction::Partition { application, servers } => self.split(now, application, servers)?,
            }
        }
        let origin = self.site.origin;
        let told = std::iter::from_fn(|| self.provisioner.poll_event()).map(|(at, event)| (at - origin, event));
        self.events.extend(told);
        Ok(())
    }

    /// Each sentry gets its servers; those that moved are cold for nobody, they run already.
    fn split(&mut self, now: Timestamp, application: usize, servers: Vec<Vec<usize>>) -> Result<(), SiteError> {
        let sentries = servers.len() as u32;
        let serving = |server: usize| matches!(self.provisioner.places()[server], Place::Serving { .. });
        for (at, lane) in self.lanes[application].iter_mut().enumerate() {
            let own = servers.get(at).cloned().unwrap_or_default();
            lane.take(now, own, &serving);
            lane.take_part(at as u32, sentries);
            lane.agree(now)?;
        }
        Ok(())
    }

    fn owners(&mut self, server: usize, what: impl FnMut(&mut Lane<'w>)) {
        self.lanes.iter_mut().flatten().filter(|lane| lane.is_on(server)).for_each(what);
    }

    fn paid_for(&self) -> f64 {
        let is_paid_for = |place: &&Place| !matches!(place, Place::Free | Place::Failed { .. });
        self.provisioner.places().iter().filter(is_paid_for).count() as f64
    }

    fn finish(self) -> SiteReport {
        let reports = self.lanes.into_iter().map(|lanes| lanes.into_iter().map(|lane| lane.run.play_on()).collect());
        SiteReport {
            reports: reports.collect(),
            provisioned: self.provisioned,
            events: self.events,
            server_seconds: self.server_seconds,
        }
    }
}

/// What an application's sentries saw together.
#[derive(Default)]
struct Sum {
    offered: Vec<u64>,
    refused: u64,
    busy: f64,
    capacity: f64,
    /// Of the sentry that saw most.
    most: u64,
    mean_service: Option<f64>,
    service_variation: Option<f64>,
    arrival_variation: Option<f64>,
    processors: Option<f64>,
}

impl Sum {
    fn add(&mut self, seen: &lane::Seen) {
        self.offered.resize(seen.offered.len(), 0);
        self.offered.iter_mut().zip(&seen.offered).for_each(|(sum, count)| *sum += count);
        self.refused += seen.refused;
        self.busy += seen.busy;
        self.capacity += seen.capacity;
        let total = seen.offered.iter().sum();
        if total > self.most || self.mean_service.is_none() {
            self.most = total;
            self.mean_service = seen.mean_service.or(self.mean_service);
            self.service_variation = seen.service_variation.or(self.service_variation);
            self.arrival_variation = seen.arrival_variation.or(self.arrival_variation);
            self.processors = seen.processors.or(self.processors);
        }
    }

    fn report(&self) -> ApplicationReport {
        ApplicationReport {
            offered: self.offered.clone(),
            refused: self.refused,
            busy: if self.capacity > 0.0 { self.busy / self.capacity } else { 0.0 },
            mean_service: self.mean_service,
            service_variation: self.service_variation,
            arrival_variation: self.arrival_variation,
            processors: self.processors,
        }
    }
}
