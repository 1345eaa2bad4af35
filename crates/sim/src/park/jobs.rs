//! Jobs: from a place at a server through the steps of a program to the end.

use tidegate_engine::Timestamp;
use tidegate_workload::{ServiceTime, rng};

use super::calls::{Answered, Asking, Computed, NOBODY};
use super::server::State;
use super::{Ended, Ending, Park, Plans};
use crate::model::{Action, Resource};
use crate::run::Happening;

/// What is to be done at a server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Task {
    /// Time on the processors, seconds.
    pub(crate) work: f64,
    /// What follows: a program.
    pub(crate) program: u16,
    /// Decides the amounts of everything that follows, whatever else happens.
    pub(crate) seed: u64,
}

/// Who is told when a job ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    Request(u32),
    Job(u32),
}

/// A request or a call at a server; or a chain of calls, which has a place nowhere.
#[derive(Clone, Copy, Debug)]
pub(super) struct Job {
    pub(super) owner: Owner,
    /// Where it is; a chain, where its owner is.
    pub(super) server: u32,
    pub(super) task: Task,
    /// The next step; a chain's own step.
    pub(super) step: u16,
    /// What must end before the next step.
    pending: u32,
    /// Jobs that have this one as their owner.
    pub(super) children: u32,
    /// Of a chain: calls not yet started.
    calls_left: u32,
    pub(super) kind: Kind,
    /// How it will end: of what it called, the worst.
    ending: Ending,
    /// Of a call that a sentry let in: its number there.
    pub(super) call: u32,
    /// Its server is gone, and its owner was told; it is still here for its children to find.
    pub(super) dead: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Served,
    Chain,
}

impl Job {
    fn new(owner: Owner, server: u32, task: Task, kind: Kind) -> Job {
        Job {
            owner,
            server,
            task,
            step: 0,
            pending: 0,
            children: 0,
            calls_left: 0,
            kind,
            ending: Ending::Served,
            call: NOBODY,
            dead: false,
        }
    }
}

impl<'w> Park<'w> {
    /// A request or call arrives at a server, and becomes a job. `None`: the server takes it not, as it is off or full.
    pub(crate) fn begin(
        &mut self,
        now: Timestamp,
        server: u32,
        owner: Owner,
        task: Task,
        plans: &mut Plans,
    ) -> Option<u32> {
        let at = &self.servers[server as usize];
        let (has_place, may_wait) = (at.has_place(), at.may_wait());
        if at.state != State::On || !(has_place || may_wait) {
            return None;
        }
        let job = self.jobs.insert(Job::new(owner, server, task, Kind::Served)) as u32;
        if has_place {
            self.enter(now, job, plans);
        } else {
            self.servers[server as usize].queue.push_back(job);
        }
        let at = &mut self.servers[server as usize];
        at.most = at.most.max(at.level());
        Some(job)
    }

    /// A server stops work that nobody wants: the job is gone, and its owner not told. `false`: it works on, because
    /// the job waits for another tier.
    pub(crate) fn abandon(&mut self, now: Timestamp, job: u32, plans: &mut Plans) -> bool {
        let Job { server, children, call, .. } = self.jobs[job as usize];
        if children > 0 {
            return false;
        }
        self.note_answer(call, Ending::Failed);
        self.jobs.remove(job as usize);
        let at = &mut self.servers[server as usize];
        if let Some(place) = at.queue.iter().position(|&other| other == job) {
            at.queue.remove(place);
            return true;
        }
        for station in at.first_station..at.first_station + 1 + at.model.resources.len() as u32 {
            self.stations[station as usize].retain(now, |other| other != job);
            self.plan(station, plans);
        }
        self.leave(now, server, plans);
        true
    }

    /// Something that the job waited for has ended.
    pub(super) fn step_done(&mut self, now: Timestamp, job: u32, plans: &mut Plans) {
        let entry = &mut self.jobs[job as usize];
        entry.pending -= 1;
        if entry.pending > 0 {
            return;
        }
        if entry.call != NOBODY && entry.step == 0 {
            let (call, work, server) = (entry.call, entry.task.work, entry.server);
            let work = work / self.rate(server, 0);
            self.computed.push_back(Computed { call, work });
        }
        let entry = &mut self.jobs[job as usize];
        if entry.ending != Ending::Served {
            return self.end(now, job, plans);
        }
        if entry.kind == Kind::Chain {
            return if entry.calls_left > 0 { self.call(now, job, plans) } else { self.end(now, job, plans) };
        }
        if usize::from(entry.step) >= self.programs[usize::from(entry.task.program)].steps.len() {
            return self.end(now, job, plans);
        }
        self.start_step(now, job, plans);
    }

    /// A call of a chain arrives at its tier.
    pub(crate) fn arrive_at_tier(&mut self, now: Timestamp, chain: u32, number: u32, plans: &mut Plans) {
        let Job { task, step, dead, .. } = self.jobs[chain as usize];
        let Action::Call { tier, .. } = *self.action(task, step) else { unreachable!("a chain stands at a call") };
        if self.asks_all || self.tiers[tier].tier.sentry.is_some() {
            return self.asking.push_back(Asking { tier: tier as u16, chain, number });
        }
        let started = match self.choose(tier) {
            Some(target) if !dead => self.begin_call(now, chain, number, target, plans).is_some(),
            _ => false,
        };
        if !started {
            self.child_ended(now, chain, Ending::Failed, plans);
        }
    }

    /// A call begins at a server.
    pub(super) fn begin_call(
        &mut self,
        now: Timestamp,
        chain: u32,
        number: u32,
        server: u32,
        plans: &mut Plans,
    ) -> Option<u32> {
        let Job { task, step, .. } = self.jobs[chain as usize];
        let Action::Call { work, program, .. } = self.action(task, step) else {
            unreachable!("a chain stands at a call");
        };
        let seed = mix(task.seed, u64::from(step), u64::from(number) + 1);
        let below = Task { work: draw(seed, work), program: *program as u16, seed };
        self.begin(now, server, Owner::Job(chain), below, plans)
    }

    /// Takes a place at its server and starts on the processors.
    fn enter(&mut self, now: Timestamp, job: u32, plans: &mut Plans) {
        let Job { server, task, .. } = self.jobs[job as usize];
        let at = &mut self.servers[server as usize];
        at.in_service += 1;
        let station = at.first_station;
        if at.model.knee.is_some() {
            self.stations[station as usize].set_speed(now, self.servers[server as usize].processor_speed());
        }
        let work = task.work / self.rate(server, 0) * self.interference(server);
        self.stations[station as usize].start(now, job, work);
        self.plan(station, plans);
        if self.programs[usize::from(task.program)].steps.is_empty() {
            // What most requests do: the processors, and nothing else.
            self.jobs[job as usize].pending = 1;
            return;
        }
        // One more than there is, so that nothing ends while steps are being started.
        self.jobs[job as usize].pending = 2;
        self.start_overlapped(now, job, plans);
        self.step_done(now, job, plans);
    }

    /// Starts the next step and those that run together with it.
    fn start_step(&mut self, now: Timestamp, job: u32, plans: &mut Plans) {
        self.jobs[job as usize].pending = 1;
        self.start_one(now, job, plans);
        self.start_overlapped(now, job, plans);
        self.step_done(now, job, plans);
    }

    fn start_overlapped(&mut self, now: Timestamp, job: u32, plans: &mut Plans) {
        loop {
            let Job { task, step, .. } = self.jobs[job as usize];
            match self.programs[usize::from(task.program)].steps.get(usize::from(step)) {
                Some(step) if step.overlap => self.start_one(now, job, plans),
                _ => return,
            }
        }
    }

    fn start_one(&mut self, now: Timestamp, job: u32, plans: &mut Plans) {
        let Job { task, step, server, .. } = self.jobs[job as usize];
        self.jobs[job as usize].step += 1;
        self.jobs[job as usize].pending += 1;
        match self.action(task, step) {
            Action::Use { resource, amount } => {
                let seconds = draw(mix(task.seed, u64::from(step), 0), amount) / self.rate(server, *resource);
                let station = self.servers[server as usize].first_station + *resource as u32;
                self.stations[station as usize].start(now, job, seconds);
                self.plan(station, plans);
            }
            Action::Call { calls, pool, .. } => {
                let chain = Job { step, calls_left: *calls, ..Job::new(Owner::Job(job), server, task, Kind::Chain) };
                let chain = self.jobs.insert(chain) as u32;
                self.jobs[job as usize].children += 1;
                self.take_token(now, chain, *pool, plans);
            }
        }
    }

    /// What a resource does per second.
    fn rate(&self, server: u32, resource: usize) -> f64 {
        let resources = &self.servers[server as usize].model.resources;
        match resource.checked_sub(1).map(|at| &resources[at]) {
            Some(Resource::Station { rate, .. }) => *rate,
            Some(Resource::Pool { .. }) => 1.0,
            None => self.servers[server as usize].model.pace,
        }
    }

    fn take_token(&mut self, now: Timestamp, chain: u32, pool: Option<usize>, plans: &mut Plans) {
        let server = self.jobs[chain as usize].server as usize;
        if let Some(pool) = pool {
            let pool = &mut self.servers[server].pools[pool - 1];
            if pool.free == 0 {
                return pool.waiting.push_back(chain);
            }
            pool.free -= 1;
        }
        self.start_calls(now, chain, plans);
    }

    /// The first call of a chain, or all of them.
    fn start_calls(&mut self, now: Timestamp, chain: u32, plans: &mut Plans) {
        let Job { task, step, calls_left, .. } = self.jobs[chain as usize];
        let Action::Call { parallel, .. } = *self.action(task, step) else { unreachable!("a chain stands at a call") };
        self.jobs[chain as usize].pending = 1;
        for _ in 0..if parallel { calls_left } else { calls_left.min(1) } {
            self.call(now, chain, plans);
        }
        self.step_done(now, chain, plans);
    }

    pub(super) fn action(&self, task: Task, step: u16) -> &'w Action {
        let programs: &'w [crate::model::Program] = self.programs;
        &programs[usize::from(task.program)].steps[usize::from(step)].what
    }

    fn call(&mut self, now: Timestamp, chain: u32, plans: &mut Plans) {
        let entry = &mut self.jobs[chain as usize];
        let (number, task, step) = (entry.calls_left, entry.task, entry.step);
        entry.calls_left -= 1;
        entry.pending += 1;
        entry.children += 1;
        let Action::Call { tier, .. } = self.action(task, step) else { unreachable!("a chain stands at a call") };
        let latency = self.tiers[*tier].tier.latency;
        if latency.is_zero() {
            self.arrive_at_tier(now, chain, number, plans);
        } else {
            plans.once(now + latency, Happening::Call { chain, number });
        }
    }

    /// The server of a tier with the least to do, the first of equals in turn.
    pub(super) fn choose(&mut self, tier: usize) -> Option<u32> {
        let state = &self.tiers[tier];
        let (first, turn, count) = (state.first, state.turn, state.tier.servers.len() as u32);
        let mut best: Option<(f64, u32)> = None;
        for step in 0..count {
            let at = (turn + step) % count;
            let server = &self.servers[(first + at) as usize];
            let load = server.relative_load();
            if server.state == State::On && best.is_none_or(|(least, _)| load < least) {
                best = Some((load, at));
            }
        }
        let (_, at) = best?;
        self.tiers[tier].turn = at + 1;
        Some(first + at)
    }

    /// The job is over: its place and its tokens are free, its owner is told.
    fn end(&mut self, now: Timestamp, job: u32, plans: &mut Plans) {
        let entry = self.jobs.remove(job as usize);
        self.note_answer(entry.call, entry.ending);
        match entry.kind {
            Kind::Chain => self.give_back_token(now, &entry, plans),
            Kind::Served => self.leave(now, entry.server, plans),
        }
        self.tell(now, entry.owner, entry.ending, plans);
    }

    /// A call that a sentry let in is over.
    pub(super) fn note_answer(&mut self, call: u32, ending: Ending) {
        if call != NOBODY {
            self.answered.push_back(Answered { call, ending });
        }
    }

    pub(super) fn tell(&mut self, now: Timestamp, owner: Owner, ending: Ending, plans: &mut Plans) {
        match owner {
            Owner::Request(request) => self.ended.push_back(Ended { request, ending }),
            Owner::Job(above) => self.child_ended(now, above, ending, plans),
        }
    }

    pub(super) fn child_ended(&mut self, now: Timestamp, above: u32, ending: Ending, plans: &mut Plans) {
        let entry = &mut self.jobs[above as usize];
        entry.children -= 1;
        if entry.ending != Ending::Failed && ending != Ending::Served {
            entry.ending = ending;
        }
        if !entry.dead {
            return self.step_done(now, above, plans);
        }
        if entry.children == 0 {
            self.forget(above);
        }
    }

    /// A dead job that nothing refers to any more goes, and perhaps the dead ones above it.
    pub(super) fn forget(&mut self, job: u32) {
        let entry = self.jobs.remove(job as usize);
        let Owner::Job(above) = entry.owner else { return };
        // Only a chain's owner dies with it; a call's owner was told when the call died.
        if entry.kind == Kind::Chain {
            let above_entry = &mut self.jobs[above as usize];
            above_entry.children -= 1;
            if above_entry.children == 0 {
                self.forget(above);
            }
        }
    }

    fn give_back_token(&mut self, now: Timestamp, chain: &Job, plans: &mut Plans) {
        let Action::Call { pool: Some(pool), .. } = self.action(chain.task, chain.step) else { return };
        let pool = &mut self.servers[chain.server as usize].pools[pool - 1];
        match pool.waiting.pop_front() {
            Some(next) => self.start_calls(now, next, plans),
            None => pool.free += 1,
        }
    }

    fn leave(&mut self, now: Timestamp, server: u32, plans: &mut Plans) {
        let at = &mut self.servers[server as usize];
        at.in_service -= 1;
        let next = if at.has_place() { at.queue.pop_front() } else { None };
        if at.model.knee.is_some() {
            let (speed, station) = (at.processor_speed(), at.first_station);
            self.stations[station as usize].set_speed(now, speed);
            self.plan(station, plans);
        }
        if let Some(next) = next {
            self.enter(now, next, plans);
        }
    }
}

/// A number for one use of a request's seed.
fn mix(seed: u64, step: u64, number: u64) -> u64 {
    (seed ^ step.wrapping_mul(0x9E37_79B9_7F4A_7C15)).rotate_left(23) ^ number.wrapping_mul(0xD1B5_4A32_D192_ED03)
}

fn draw(seed: u64, amount: &ServiceTime) -> f64 {
    in_billionths(amount.sample(&mut rng(seed, 0)))
}

/// An amount in whole billionths (of seconds: nanoseconds). Logarithms and powers differ in their last digit from one
/// machine's library to another's; this takes the difference away before it can grow.
pub(crate) fn in_billionths(amount: f64) -> f64 {
    (amount * 1e9).round() * 1e-9
}
