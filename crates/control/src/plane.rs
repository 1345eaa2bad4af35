//! The deciding core of the control plane: pure, so that its journal of inputs determines everything.
//!
//! *Intuition.* An input goes into the journal before it takes effect; the same inputs give the same decisions. So what
//! is in the journal after a kill -9 brings back exactly the state there was, and every step it had decided on, with
//! the same numbers. Steps that were done are inputs, too; what is not marked as done is given to the provider again,
//! and providers know a step by its number.
//!
//! *Awkward cases.* What sentries are told is not steps but state: it is told anew whenever it is not what they were
//! told last. A sentry that is cut off keeps its servers until it is forgotten. With fewer servers than sentries some
//! servers have several. A provider that hangs finds few steps waiting when it is back, not all that were decided.

mod input;
mod posts;
mod records;
mod show;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidegate_engine::{Sla, Timestamp};
use tidegate_provision::{
    ApplicationReport, Place, ProvisionAction, ProvisionError, ProvisionEvent, Provisioner, ProvisionerState,
    RestoreError, ServerNews, Site,
};

use crate::names::Roll;
use posts::{SPEAK, application_of};
use records::START;

pub use input::{Input, Process, Record, Step, Unit, What};
pub use show::{Numbers, Planned};

/// A control plane's decisions.
#[derive(Debug)]
pub struct Plane {
    site: Site,
    provisioner: Provisioner,
    now: Timestamp,
    last_period: Timestamp,
    sentries: Vec<Vec<String>>,
    parts: Vec<Vec<Vec<usize>>>,
    names: Vec<Roll>,
    next_step: u64,
    pending: BTreeMap<u64, Step>,
    processes: BTreeMap<(Unit, usize), Process>,
    /// Who stands at posts, or stood there last; and who stood there before and is still registered.
    stands: BTreeMap<usize, String>,
    stood: BTreeSet<String>,
    /// Sentries that are cut off.
    silent: BTreeSet<String>,
    records: Vec<Record>,
}

/// Everything but the site's settings.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct PlaneState {
    provisioner: ProvisionerState,
    now: Timestamp,
    last_period: Timestamp,
    sentries: Vec<Vec<String>>,
    parts: Vec<Vec<Vec<usize>>>,
    #[serde(default)]
    names: Vec<Roll>,
    next_step: u64,
    pending: BTreeMap<u64, Step>,
    processes: BTreeMap<usize, Process>,
    #[serde(default)]
    sentry_processes: BTreeMap<usize, Process>,
    #[serde(default)]
    stands: BTreeMap<usize, String>,
    #[serde(default)]
    stood: BTreeSet<String>,
    #[serde(default)]
    silent: BTreeSet<String>,
}

impl Plane {
    /// A plane of which nothing runs yet.
    ///
    /// # Errors
    /// When the site makes no sense.
    pub fn new(site: Site) -> Result<Plane, ProvisionError> {
        let provisioner = Provisioner::cold(site.clone())?;
        let applications = site.applications.len();
        Ok(Plane {
            site,
            provisioner,
            now: Timestamp::ZERO,
            last_period: Timestamp::ZERO,
            sentries: vec![Vec::new(); applications],
            parts: vec![Vec::new(); applications],
            names: vec![Roll::new(); applications],
            next_step: 1,
            pending: BTreeMap::new(),
            processes: BTreeMap::new(),
            stands: BTreeMap::new(),
            stood: BTreeSet::new(),
            silent: BTreeSet::new(),
            records: Vec::new(),
        })
    }

    /// One that goes on from a state.
    ///
    /// # Errors
    /// When the site makes no sense, or the state is not of this site.
    pub fn restore(site: Site, state: PlaneState) -> Result<Plane, RestoreError> {
        let provisioner = Provisioner::restore(site.clone(), state.provisioner)?;
        let mut names = state.names;
        names.resize(site.applications.len(), Roll::new());
        // A post that is no more: who stands there is somebody else's from now on.
        let posts = site.posts.count as usize;
        let is_there = |post: usize| post < posts;
        let is_to_be_done = |step: &Step| step.unit == Unit::Server || is_there(step.place);
        let of = |unit: Unit, processes: BTreeMap<usize, Process>| {
            processes.into_iter().map(move |(place, process)| ((unit, place), process))
        };
        Ok(Plane {
            site,
            provisioner,
            now: state.now,
            last_period: state.last_period,
            sentries: state.sentries,
            parts: state.parts,
            names,
            next_step: state.next_step,
            pending: state.pending.into_iter().filter(|(_, step)| is_to_be_done(step)).collect(),
            processes: of(Unit::Server, state.processes).chain(of(Unit::Sentry, state.sentry_processes)).collect(),
            stands: state.stands.into_iter().filter(|(post, _)| is_there(*post)).collect(),
            stood: state.stood,
            silent: state.silent,
            records: Vec::new(),
        })
    }

    /// Everything but the site's settings, and records that were not taken yet.
    pub fn state(&self) -> PlaneState {
        PlaneState {
            provisioner: self.provisioner.snapshot(),
            now: self.now,
            last_period: self.last_period,
            sentries: self.sentries.clone(),
            parts: self.parts.clone(),
            names: self.names.clone(),
            next_step: self.next_step,
            pending: self.pending.clone(),
            processes: self.processes_of(Unit::Server),
            sentry_processes: self.processes_of(Unit::Sentry),
            stands: self.stands.clone(),
            stood: self.stood.clone(),
            silent: self.silent.clone(),
        }
    }

    /// Takes what came. Its time must not be before that of the one before; else it counts as at the same instant.
    pub fn handle(&mut self, input: &Input) {
        self.take(input);
        self.follow();
        if input.may_move() {
            self.split();
        }
    }

    fn take(&mut self, input: &Input) {
        self.now = self.now.max(input.now());
        let now = self.now;
        match input {
            Input::Began { .. } => {
                (0..self.site.applications.len()).for_each(|at| self.provisioner.handle_gap(now, at));
                self.last_period = now;
                let [first, again] = SPEAK;
                let any = self.sentries.iter().any(|sentries| !sentries.is_empty());
                self.provisioner.pause_posts(now + if any { again } else { first });
                self.count_others();
                self.provisioner.handle_timeout(now);
                self.note("began", String::from("a control plane takes over from what is in the store"));
            }
            Input::Period { reports, sentries, .. } => self.period(reports, sentries),
            Input::Server { server, news, reason, .. } => self.server(*server, *news, reason),
            Input::Post { post, news, name, reason, .. } => self.post(*post, *news, name.as_deref(), reason),
            Input::Done { step, process, .. } => self.done(*step, *process),
            Input::Sentries { application, names, .. } => {
                if let Some(sentries) = self.sentries.get_mut(*application) {
                    let (from, to) = (sentries.join(", "), names.join(", "));
                    sentries.clone_from(names);
                    let text = format!("from [{from}] to [{to}]");
                    self.record("sentries", Some(*application), None, text, false);
                }
                self.count_others();
            }
            Input::Silent { names, .. } => {
                self.silent = names.iter().cloned().collect();
                self.count_others();
            }
            Input::Names { application, roll, .. } => self.named(*application, roll),
            Input::Note { kind, reason, .. } => self.note(kind, reason.clone()),
            Input::Several { inputs, .. } => inputs.iter().for_each(|input| self.take(input)),
        }
    }

    /// What was decided and happened since this was last asked.
    pub fn take_records(&mut self) -> Vec<Record> {
        std::mem::take(&mut self.records)
    }

    /// Steps that are not done, by number.
    pub fn pending(&self) -> impl Iterator<Item = &Step> {
        self.pending.values()
    }

    /// The latest instant it was told of.
    pub fn now(&self) -> Timestamp {
        self.now
    }

    /// When the last period ended.
    pub fn last_period(&self) -> Timestamp {
        self.last_period
    }

    /// Where every server is.
    pub fn places(&self) -> &[Place] {
        self.provisioner.places()
    }

    /// The process that serves at a place, as the provider told.
    pub fn process(&self, unit: Unit, place: usize) -> Option<Process> {
        self.processes.get(&(unit, place)).copied()
    }

    /// The sentries of an application.
    pub fn sentries(&self, application: usize) -> &[String] {
        &self.sentries[application]
    }

    /// The servers that serve and that a sentry has.
    pub fn servers_of(&self, application: usize, sentry: &str) -> Vec<usize> {
        let at = self.sentries[application].iter().position(|name| name == sentry);
        let mine = at.and_then(|at| self.parts[application].get(at));
        let serves = |server: &&usize| matches!(self.places()[**server], Place::Serving { .. });
        mine.into_iter().flatten().filter(serves).copied().collect()
    }

    /// Capacity that is coming, from now, in full servers' worth: all of the application's.
    pub fn coming(&self, application: usize) -> Vec<(Duration, f64)> {
        let arriving = self.provisioner.arriving(self.now, application);
        arriving.into_iter().map(|(at, servers)| (at.since(self.now), servers)).collect()
    }

    /// An application's target, relaxed no further than it may be now.
    pub fn target(&self, application: usize) -> Sla {
        let sla = &self.site.applications[application].sla;
        let ceiling = self.provisioner.ceiling(application);
        let step = |step: &tidegate_engine::Step| tidegate_engine::Step { target: step.target.min(ceiling), ..*step };
        Sla::new(sla.statistic(), sla.steps().iter().map(step).collect())
            .map_or_else(|_| sla.clone(), |capped| capped.bounding(sla.bounds()))
    }

    fn period(&mut self, reports: &[Option<ApplicationReport>], sentries: &[(usize, usize, f64)]) {
        let (now, since) = (self.now, self.last_period);
        for (application, report) in reports.iter().enumerate() {
            match report {
                Some(report) => self.provisioner.handle_report(now, application, report),
                None => self.provisioner.handle_gap(now, application),
            }
        }
        for (application, sentry, cpu) in sentries {
            self.provisioner.handle_sentry(now, *application, *sentry, since, *cpu);
        }
        self.last_period = now;
        self.count_others();
        self.provisioner.handle_timeout(now);
    }

    fn server(&mut self, server: usize, news: ServerNews, reason: &str) {
        let Some(place) = self.places().get(server).copied() else { return };
        let application = application_of(&place);
        self.provisioner.handle_server(self.now, server, news);
        if self.places()[server] == place {
            return;
        }
        let kind = match news {
            ServerNews::Up => "server-up",
            ServerNews::Drained => "server-drained",
            ServerNews::Failed => "server-failed",
        };
        self.record(kind, application, Some(server), reason.to_owned(), false);
        if news == ServerNews::Failed {
            // Whatever is left of it must not stand in the way of the next one.
            self.step(Unit::Server, server, What::Stop);
        }
        // Who failed is replaced at once, not at the next look.
        self.provisioner.handle_timeout(self.now);
    }

    fn done(&mut self, number: u64, process: Option<Process>) {
        let Some(step) = self.pending.remove(&number) else { return };
        match (&step.what, process) {
            (What::Start { .. }, Some(process)) => drop(self.processes.insert((step.unit, step.place), process)),
            (What::Start { .. }, None) => {}
            (What::Stop, _) => drop(self.processes.remove(&(step.unit, step.place))),
        }
        let text = process.map_or(String::from("done"), |process| format!("done: process {}", process.pid));
        self.record_step("step-done", &step, text);
    }

    /// What the provisioner says: numbers become steps, and events records.
    fn follow(&mut self) {
        while let Some((_, event)) = self.provisioner.poll_event() {
            self.tell(&event);
        }
        while let Some(action) = self.provisioner.poll_action() {
            match action {
                ProvisionAction::Start { server, application } => {
                    self.step(Unit::Server, server, What::Start { application });
                }
                ProvisionAction::Stop { server } => self.step(Unit::Server, server, What::Stop),
                ProvisionAction::Drain { server, application } => {
                    let text = String::from("it finishes what it has and gets nothing new");
                    self.record("drain", Some(application), Some(server), text, false);
                }
                ProvisionAction::Resume { server, application } => {
                    self.record(
                        "resume",
                        Some(application),
                        Some(server),
                        String::from("it takes requests again"),
                        false,
                    );
                }
                // Told to sentries as state, and split among those that are there.
                ProvisionAction::SetCeiling { .. } | ProvisionAction::Partition { .. } => {}
            }
        }
        while let Some(action) = self.provisioner.poll_post_action() {
            self.follow_post(&action);
        }
    }

    /// Divides each application's servers among its sentries.
    fn split(&mut self) {
        let applications = self.sentries.len();
        let (mut members, mut serving) = (vec![Vec::new(); applications], vec![Vec::new(); applications]);
        for (server, place) in self.places().iter().enumerate() {
            match place {
                Place::Coming { application, .. } => members[*application].push(server),
                Place::Serving { application, .. } => {
                    members[*application].push(server);
                    serving[*application].push(server);
                }
                _ => {}
            }
        }
        for (application, (members, serving)) in members.iter().zip(&serving).enumerate() {
            self.parts[application] = self.parts_of(application, members, serving);
        }
    }

    fn parts_of(&self, application: usize, members: &[usize], serving: &[usize]) -> Vec<Vec<usize>> {
        if self.sentries[application].is_empty() {
            return Vec::new();
        }
        let mut parts = self.repartitioned(application, members, serving);
        // A sentry without a server would refuse everything.
        for (at, part) in parts.iter_mut().enumerate() {
            // In the order of their places.
            let serves = |server: &usize| serving.binary_search(server).is_ok();
            if !serving.is_empty() && !part.iter().any(serves) {
                part.push(serving[at % serving.len()]);
            }
        }
        parts
    }

    fn step(&mut self, unit: Unit, place: usize, what: What) {
        let step = Step { number: self.next_step, unit, place, what };
        self.next_step += 1;
        let kind = match step.what {
            What::Start { .. } => START,
            What::Stop => "stop",
        };
        self.record_step(kind, &step, format!("step {}", step.number));
        if step.what == What::Stop {
            self.give_up(&step);
        }
        self.pending.insert(step.number, step);
    }

    /// A stop ends whatever steps before it started, so that those which wait behind an earlier one are over: else a
    /// provider that comes back after hours would start and stop in turn all that was decided meanwhile. The earliest
    /// one may have been begun.
    fn give_up(&mut self, stop: &Step) {
        let same = |step: &&Step| (step.unit, step.place) == (stop.unit, stop.place);
        let over: Vec<u64> = self.pending.values().filter(same).skip(1).map(|step| step.number).collect();
        for step in over.iter().filter_map(|number| self.pending.remove(number)).collect::<Vec<_>>() {
            let text = format!("step {} waited behind another one; step {} is in its place", step.number, stop.number);
            self.record_step("step-over", &step, text);
        }
    }

    fn tell(&mut self, event: &ProvisionEvent) {
        let seconds = |time: &Duration| time.as_secs_f64();
        match event {
            ProvisionEvent::ServersWanted { application, from, to, short, reason } => {
                let short = if *short > 0 { format!("; {short} cannot be had now") } else { String::new() };
                self.record(
                    "servers-wanted",
                    Some(*application),
                    None,
                    format!("{from} to {to}: {reason}{short}"),
                    true,
                );
            }
            ProvisionEvent::CeilingSet { application, from, to, reason } => {
                let text = format!("{} s to {} s: {reason}", seconds(from), seconds(to));
                self.record("ceiling", Some(*application), None, text, true);
            }
            ProvisionEvent::SentriesWanted { application, from, to, cpu } => {
                let text = format!("{from} to {to}: a sentry's CPU is at {:.0} %", cpu * 100.0);
                self.record("sentries-wanted", Some(*application), None, text, true);
            }
            ProvisionEvent::ServerFailed { server } if matches!(self.places()[*server], Place::Failed { since } if since == self.now) =>
            {
                let text = String::from("it is left alone for a minute, and another one asked for if one is needed");
                self.record("server-out", None, Some(*server), text, false);
            }
            // On record with how it is known.
            _ => {}
        }
    }
}
