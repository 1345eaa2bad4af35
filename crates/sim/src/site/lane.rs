//! One sentry of a site: its run, the servers it has to itself, and what it tells of itself.

use std::collections::BTreeSet;
use std::time::Duration;

use tidegate_engine::{SetupError, Sla, Status, Step, Timestamp};

use crate::park::Usage;
use crate::run::Run;
use crate::world::World;

pub(super) struct Lane<'w> {
    pub(super) run: Run<'w>,
    /// The most that its target may relax to.
    pub(super) ceiling: Duration,
    world: &'w World,
    /// How many of the world's servers come and go.
    pool: usize,
    /// When more capacity is to be expected, as it was last told.
    coming: Option<Timestamp>,
    /// The servers it has to itself, and those that are switched on in its run: its own and those that drain.
    own: BTreeSet<usize>,
    on: BTreeSet<usize>,
    /// Which sentry of how many it is.
    part: (u32, u32),
    told: Told,
}

/// Counters at the last report.
#[derive(Default)]
struct Told {
    offered: Vec<u64>,
    refused: u64,
    busy: f64,
    on: f64,
    worked: f64,
}

/// What a sentry saw since its last report.
pub(super) struct Seen {
    pub(super) offered: Vec<u64>,
    pub(super) refused: u64,
    /// Processor-seconds that its servers used, and had.
    pub(super) busy: f64,
    pub(super) capacity: f64,
    pub(super) mean_service: Option<f64>,
    pub(super) service_variation: Option<f64>,
    pub(super) arrival_variation: Option<f64>,
    pub(super) processors: Option<f64>,
    pub(super) sentry_cpu: f64,
}

impl<'w> Lane<'w> {
    pub(super) fn new(world: &'w World, pool: usize, seed: u64, lane: u64) -> Result<Lane<'w>, SetupError> {
        let mut run = Run::new(world, seed, lane)?;
        run.begin();
        Ok(Lane {
            run,
            ceiling: Duration::MAX,
            world,
            pool,
            coming: None,
            own: BTreeSet::new(),
            on: BTreeSet::new(),
            part: (0, 1),
            told: Told::default(),
        })
    }

    /// Whether the server is one of those it has to itself.
    pub(super) fn owns(&self, server: usize) -> bool {
        self.own.contains(&server)
    }

    /// Whether the server is switched on in its run.
    pub(super) fn is_on(&self, server: usize) -> bool {
        self.on.contains(&server)
    }

    /// Whether the server has nothing in flight here.
    pub(super) fn is_idle(&self, server: usize) -> bool {
        !self.is_on(server) || self.run.is_idle(server)
    }

    pub(super) fn switch_on(&mut self, now: Timestamp, server: usize, cold: bool) {
        if self.on.insert(server) {
            self.run.switch_on(now, server, cold);
        } else {
            self.run.resume(now, server);
        }
    }

    pub(super) fn switch_off(&mut self, now: Timestamp, server: usize) {
        if self.on.remove(&server) {
            self.run.switch_off(now, server);
        }
    }

    /// It has these servers to itself from now on; those of them that serve are on at once, others drain.
    pub(super) fn take(&mut self, now: Timestamp, own: Vec<usize>, serving: &dyn Fn(usize) -> bool) {
        let own: BTreeSet<usize> = own.into_iter().collect();
        for server in own.difference(&self.own).copied().filter(|server| serving(*server)).collect::<Vec<_>>() {
            self.switch_on(now, server, false);
        }
        for server in self.own.difference(&own).copied().filter(|server| self.on.contains(server)) {
            self.run.drain(now, server);
        }
        self.own = own;
    }

    /// What drained here and serves another sentry now is off here.
    pub(super) fn let_go(&mut self, now: Timestamp) {
        let gone = |server: &usize| !self.own.contains(server) && self.run.is_idle(*server);
        for server in self.on.iter().copied().filter(gone).collect::<Vec<_>>() {
            self.switch_off(now, server);
        }
    }

    pub(super) fn take_part(&mut self, index: u32, of: u32) {
        if self.part != (index, of) {
            self.part = (index, of);
            self.run.take_part(index, of);
        }
    }

    /// The SLA as this sentry must see it: it sees its part of the rate, and the target relaxes up to the ceiling.
    pub(super) fn agree(&mut self, now: Timestamp) -> Result<(), SetupError> {
        let whole = &self.world.setup.sla;
        let parts = f64::from(self.part.1.max(1));
        let step = |step: &Step| Step { below: step.below / parts, target: step.target.min(self.ceiling) };
        let Ok(sla) = Sla::new(whole.statistic(), whole.steps().iter().map(step).collect()) else { return Ok(()) };
        let sla = sla.bounding(whole.bounds());
        if sla != self.run.setup().sla {
            let setup = tidegate_engine::Setup { sla, ..self.run.setup().clone() };
            self.run.reconfigure(now, setup)?;
        }
        Ok(())
    }

    /// It hears when the next server will serve.
    pub(super) fn expect(&mut self, now: Timestamp, soonest: Option<Timestamp>) {
        if self.coming != soonest {
            self.coming = soonest;
            self.run.expect_capacity(now, soonest);
        }
    }

    /// What it saw since `before`.
    pub(super) fn measure(&mut self, now: Timestamp, before: Timestamp) -> Seen {
        let (snapshot, usage, worked) = self.run.measure(now);
        let offered: Vec<u64> = snapshot.classes.iter().map(|class| class.offered).collect();
        let refused = snapshot.classes.iter().map(|class| class.rejected_total()).sum();
        let cores = |server: usize| self.world.servers[server].cores;
        let sum = |of: &dyn Fn(usize, &Usage) -> f64| -> f64 {
            usage.iter().take(self.pool).enumerate().map(|(at, usage)| of(at, usage)).sum()
        };
        let (busy, on) = (sum(&|_, usage| usage.busy), sum(&|at, usage| usage.on * cores(at)));
        // Of the pool only: what data servers lend is not what the next server brings.
        let up = snapshot.servers.iter().take(self.pool).filter(|server| server.status == Status::Up);
        let (up, processors) = up.fold((0, 0.0), |(up, sum), server| (up + 1, sum + server.processors));
        let now_told = Told { offered, refused, busy, on, worked };
        let told = std::mem::replace(&mut self.told, now_told);
        let since = |at: usize| told.offered.get(at).copied().unwrap_or(0);
        Seen {
            offered: self.told.offered.iter().enumerate().map(|(at, count)| count - since(at)).collect(),
            refused: self.told.refused - told.refused,
            busy: busy - told.busy,
            capacity: on - told.on,
            mean_service: snapshot.mean_cost,
            service_variation: snapshot.cost_variation,
            arrival_variation: snapshot.arrival_variation,
            processors: (up > 0).then(|| processors / f64::from(up)),
            sentry_cpu: (worked - told.worked) / now.seconds_since(before).max(f64::MIN_POSITIVE),
        }
    }
}
