//! Divides the cores of a data server between its data service and the application's software, as a sentry wants it.
//!
//! *Intuition.* Two families share a flat; the wall between them can be moved, and the landlord says where it stands.
//! If the sentry falls silent, the wall comes down and the cores are shared again.
//!
//! *Applied.* A command names how many cores the application's software is to have; it gets the last ones of the list,
//! the data service the others. With none it is confined to the last core, which the data service then uses too: there
//! it can answer health checks and finish what it has. Which processes belong to whom is looked up every two seconds;
//! moving the boundary uses what is known, so it takes one system call a thread.
//!
//! *Awkward cases.* What a process was allowed before is written to a file before anything is changed, so that it can
//! be put back, also by the next nucleus after this one was killed. A thread that is created while its process is moved
//! may keep the old mask: processes are gone through again until nobody new is found. A child of a process that was
//! moved already has its parent's new mask; what it gets back is what its parent had before. Several sentries may
//! command: the one that asks least of the data service has its way, as each sees its own part of the load only. A step
//! that fails half-way is taken back, so that nobody is left on cores that the others have too.

mod cpuset;
mod list;
mod masks;
mod saved;
mod select;
mod settings;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use tidegate_wire::{Gauge, Gauges, IsolationProblem};
use tracing::warn;

use cpuset::Cpusets;
use list::CoreList;
use masks::{Moved, Process};
use saved::Saved;
use select::Found;

pub(crate) use settings::RawIsolation;
#[cfg(test)]
pub(crate) use settings::RawSide;
pub use settings::{GivenIsolation, IsolationConfig, Method, Side};

/// Processes are looked for this often while cores are divided, and a step that failed is tried again.
const SEARCH: Duration = Duration::from_secs(2);

/// The wall between a data service and the application's software.
#[derive(Debug)]
pub(crate) struct Isolation {
    config: IsolationConfig,
    /// What each sentry said last, and when.
    orders: BTreeMap<usize, (u16, Instant)>,
    tried: Option<(u16, Instant)>,
    found: Found,
    saved: Saved,
    cpusets: Option<Cpusets>,
    in_force: Option<u16>,
    problem: Option<IsolationProblem>,
    failures: u64,
    last_move: Option<Duration>,
}

impl Isolation {
    /// Cores that are not divided. What a nucleus before this one left behind is put back.
    pub(crate) fn new(config: IsolationConfig) -> Isolation {
        let saved = Saved::open(&config.state_file);
        let mut isolation = Isolation {
            config,
            orders: BTreeMap::new(),
            tried: None,
            found: Found::default(),
            saved,
            cpusets: None,
            in_force: None,
            problem: None,
            failures: 0,
            last_move: None,
        };
        isolation.saved.put_back();
        isolation
    }

    /// A sentry wants the application's software to have so many cores.
    pub(crate) fn order(&mut self, sentry: usize, cores: u16, now: Instant) {
        self.orders.insert(sentry, (cores, now));
        self.follow(now);
    }

    /// Time passes: orders age, and processes come and go.
    pub(crate) fn tick(&mut self, now: Instant) {
        let hold = self.config.hold;
        self.orders.retain(|_, (_, at)| now.duration_since(*at) < hold);
        self.follow(now);
    }

    /// Puts everything back as it was.
    pub(crate) fn leave(&mut self) {
        self.orders.clear();
        self.release();
        (self.tried, self.problem) = (None, None);
    }

    /// Tells how it is.
    pub(crate) fn show(&self, gauges: &mut Gauges) {
        gauges.set(Gauge::IsolatedCores, self.in_force.map(f64::from));
        gauges.set(Gauge::IsolationProblem, f64::from(self.problem.map_or(0, IsolationProblem::code)));
        gauges.set(Gauge::IsolationFailures, self.failures as f64);
        gauges.set(Gauge::IsolationMove, self.last_move.map(|time| time.as_secs_f64()));
    }

    fn follow(&mut self, now: Instant) {
        let Some(cores) = self.orders.values().map(|(cores, _)| *cores).min() else {
            if self.tried.is_some() {
                self.leave();
            }
            return;
        };
        let is_due = |at: Instant| now.duration_since(at) >= SEARCH;
        let search = match self.tried {
            Some((tried, at)) if tried == cores && !is_due(at) => return,
            Some((_, at)) => is_due(at) || self.problem.is_some(),
            None => true,
        };
        let looked = if search { now } else { self.tried.map_or(now, |(_, at)| at) };
        self.tried = Some((cores, looked));
        let before = self.problem;
        match self.divide(cores, search) {
            Ok(()) => (self.in_force, self.problem) = (Some(cores), None),
            Err(problem) => {
                self.failures += 1;
                self.problem = Some(problem);
                // What makes no sense is not done; what was before stays.
                if problem != IsolationProblem::NoCoreLeft {
                    self.release();
                }
            }
        }
        if let Some(problem) = self.problem.filter(|_| self.problem != before) {
            warn!(%problem, "cores are not divided");
        }
    }

    fn divide(&mut self, cores: u16, search: bool) -> Result<(), IsolationProblem> {
        let (data, application) = split(&self.config.cores, cores).ok_or(IsolationProblem::NoCoreLeft)?;
        if search || self.found.is_empty() {
            self.found = Found::search(&self.config);
            let all = self.found.data.iter().chain(&self.found.application);
            self.saved.remember(all).map_err(|_| IsolationProblem::NoStateFile)?;
        }
        if self.found.data.is_empty() {
            return Err(IsolationProblem::NoDataService);
        }
        if self.found.application.is_empty() {
            return Err(IsolationProblem::NoApplication);
        }
        let began = Instant::now();
        match self.config.method {
            Method::Affinity => {
                confine(&mut self.found.data, &data)?;
                confine(&mut self.found.application, &application)?;
            }
            Method::Cpuset => {
                let cpusets = match &mut self.cpusets {
                    Some(cpusets) => cpusets,
                    none => none.insert(Cpusets::prepare(&self.config, &mut self.saved)?),
                };
                cpusets.divide(&self.found, search, &data, &application)?;
            }
        }
        if self.in_force != Some(cores) {
            self.last_move = Some(began.elapsed());
        }
        Ok(())
    }

    fn release(&mut self) {
        self.cpusets = None;
        self.saved.put_back();
        self.in_force = None;
        self.found = Found::default();
    }
}

impl Drop for Isolation {
    fn drop(&mut self) {
        self.release();
    }
}

/// Moves processes onto cores; those that have ended are forgotten.
fn confine(processes: &mut Vec<Process>, cores: &CoreList) -> Result<(), IsolationProblem> {
    let mut result = Ok(());
    processes.retain(|process| match process.confine(cores) {
        Ok(Moved::All) => true,
        Ok(Moved::Gone) => false,
        Err(problem) => {
            result = Err(problem);
            true
        }
    });
    result
}

/// The data service's and the application's cores; `None`: one of them would have none.
fn split(cores: &CoreList, application: u16) -> Option<(CoreList, CoreList)> {
    let (all, application) = (cores.len(), usize::from(application));
    match application {
        0 => Some((cores.clone(), cores.range(all.saturating_sub(1), all))),
        _ if application < all => Some((cores.range(0, all - application), cores.range(all - application, all))),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
