//! The profile: what servers hold, measured beforehand, and what is wrong with one.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

use crate::fleet::Role;
use crate::setup::ServerSetup;
use crate::units::per_second;

/// What one application server holds, and what data servers can lend at which load. `tidegate profile` prints what
/// follows from it.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Profile {
    /// The most requests in flight with which an application server keeps the target (the paper's n*_app).
    pub n_app: u32,
    /// The highest load that the data tier holds while it lends nothing, requests per second.
    #[serde(with = "per_second")]
    pub peak: f64,
    /// What a data server lends, by rising load; beyond the last step nothing.
    pub steps: Vec<ProfileStep>,
    /// A step at which data servers lend more is taken only so far below its edge, as a share of the peak.
    pub hysteresis: f64,
}

/// One step of the staircase.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ProfileStep {
    /// It holds while the load is below this share of the peak.
    pub below: f64,
    /// The most requests in flight at a data server (the paper's n*_mem).
    pub n_data: u32,
    /// How many of its cores the application's software has. Absent: cores are not divided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cores: Option<u32>,
}

/// Where, and what: both for a person.
type Problem = (String, String);

impl Default for Profile {
    /// The paper's testbed without its staircase: nothing is stolen before somebody has measured how much may be.
    fn default() -> Self {
        Profile { n_app: 13, peak: 750.0, steps: Vec::new(), hysteresis: 0.02 }
    }
}

impl Profile {
    /// The load up to which `fraction of additional load = k_data n_data / (k_app x n_app)` (equation 1) lets one jump
    /// from `load`, as a share of the peak. `data_servers` and `application_servers` are those of the whole system, of
    /// which a share `load` is on.
    pub fn reach(&self, load: f64, application_servers: u32, data_servers: u32) -> f64 {
        let held = f64::from(application_servers) * load * f64::from(self.n_app);
        load * (1.0 + f64::from(data_servers * self.n_data(load)) / held.max(f64::MIN_POSITIVE))
    }

    /// What a data server may have in flight at `load`, a share of the peak.
    pub fn n_data(&self, load: f64) -> u32 {
        self.steps.iter().find(|step| load < step.below).map_or(0, |step| step.n_data)
    }

    /// Checks it by itself and against the cores of one data server, where they are known.
    ///
    /// # Errors
    /// The first thing that makes no sense: its place and what is wrong.
    pub fn check_for(&self, cores: Option<u32>) -> Result<(), (String, String)> {
        let too_many = || cores.and_then(|cores| self.too_many_cores(f64::from(cores), "a data server"));
        self.problem().or_else(too_many).map_or(Ok(()), Err)
    }

    /// The step in force at `load` when `before` was; the number of steps: none.
    pub(super) fn step_at(&self, load: f64, before: usize) -> usize {
        let at = |load: f64| self.steps.iter().position(|step| load < step.below).unwrap_or(self.steps.len());
        let now = at(load);
        if now >= before { now } else { at(load + self.hysteresis).min(before) }
    }

    pub(super) fn problem(&self) -> Option<Problem> {
        let bad = |place: String, problem: String| Some((place, problem));
        if self.n_app == 0 {
            return bad("n_app".into(), "must be at least 1".into());
        }
        if !(self.peak.is_finite() && self.peak > 0.0) {
            return bad("peak".into(), "must be more than 0 requests per second".into());
        }
        if !(0.0..=0.5).contains(&self.hysteresis) {
            return bad("hysteresis".into(), "must lie between 0 and 0.5".into());
        }
        let mut before: Option<&ProfileStep> = None;
        for (at, step) in self.steps.iter().enumerate() {
            if let Some((key, problem)) = step.problem().or_else(|| before.and_then(|before| step.after(before))) {
                return bad(format!("steps[{at}].{key}"), problem);
            }
            before = Some(step);
        }
        None
    }

    /// What does not fit the servers.
    pub(super) fn misfit(&self, servers: &[ServerSetup]) -> Option<Problem> {
        let data = || servers.iter().filter(|server| server.role == Role::Data);
        if self.steps.is_empty() && data().next().is_some() {
            let problem = "are missing: there are data servers, but nothing says how much they can lend; give the \
                           profile that was measured"
                .into();
            return Some(("steps".into(), problem));
        }
        if self.steps.iter().all(|step| step.cores.is_none()) {
            return None;
        }
        data().find_map(|server| match server.cores {
            Some(cores) => self.too_many_cores(cores, &format!("server \"{}\"", server.name)),
            None => {
                let problem = "is missing: its profile divides its cores, so say how many it has".into();
                Some((format!("server \"{}\": cores", server.name), problem))
            }
        })
    }

    /// The data service keeps one core at least.
    fn too_many_cores(&self, cores: f64, whose: &str) -> Option<Problem> {
        let (at, lent) = self.steps.iter().enumerate().find_map(|(at, step)| {
            let lent = step.cores?;
            (f64::from(lent) > cores - 1.0).then_some((at, lent))
        })?;
        let problem =
            format!("gives away {lent} cores, but {whose} has {cores}, and its data service needs one at least");
        Some((format!("steps[{at}].cores"), problem))
    }
}

impl ProfileStep {
    fn problem(&self) -> Option<(&'static str, String)> {
        if !(self.below.is_finite() && self.below > 0.0 && self.below <= 1.0) {
            return Some((
                "below",
                format!("= {} is no share of the peak: give more than 0 and at most 1", self.below),
            ));
        }
        let starves = self.cores == Some(0) && self.n_data > 0;
        starves.then(|| ("n_data", format!("= {}, but no core is given for them", self.n_data)))
    }

    /// What is wrong with it after the step before.
    fn after(&self, before: &ProfileStep) -> Option<(&'static str, String)> {
        if self.below <= before.below {
            return Some(("below", format!("= {} is not above the step before ({})", self.below, before.below)));
        }
        if self.n_data > before.n_data {
            let (now, then) = (self.n_data, before.n_data);
            return Some((
                "n_data",
                format!("rises with the load, from {then} to {now}: data servers can lend less then"),
            ));
        }
        match (before.cores, self.cores) {
            (Some(then), Some(now)) if now > then => {
                Some(("cores", format!("rise with the load, from {then} to {now}: the data service needs more then")))
            }
            (Some(then), Some(now)) if then - now > 1 => {
                let missing = then - 1;
                Some(("cores", format!("fall from {then} to {now}: the step with {missing} is missing")))
            }
            (None, Some(_)) | (Some(_), None) => {
                Some(("cores", "are given in one step and not in the other: give them in all or none".into()))
            }
            _ => None,
        }
    }
}
