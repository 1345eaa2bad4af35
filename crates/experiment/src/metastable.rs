//! Metastable failures: a system that does not come back when what brought it down is over.
//!
//! *Intuition.* A car breaks down on a road that is nearly full. It is towed away after ten minutes, and the jam stays
//! until night: as many join it as leave, and everybody in it takes longer.
//!
//! *Applied.* The scenario's load, as it is at its beginning, arrives for as long as it takes. After half a minute
//! something happens to it for a while, a [`Trigger`]: more arrives, servers are slower, or none answers. When it has
//! been over for `recovers`, what is answered in time is held against what is answered without any trigger. Where that
//! is less than [`BACK`], something keeps the system down that is not the trigger: retries of those that gave up, work
//! that nobody waits for any more, a limit that has closed and does not open.
//!
//! *Source.* N. Bronson et al., *Metastable failures in distributed systems* (HotOS 2021); L. Huang et al., *Metastable
//! failures in the wild* (OSDI 2022).

use std::fmt::Write;
use std::time::Duration;

use tidegate_sim::{Fault, FaultKind, SiteError};
use tidegate_workload::{Profile, Rate};

use crate::configure::ArmError;
use crate::outcome::Outcome;
use crate::plan::in_parallel;
use crate::scenario::{Arm, Scenario};
use crate::service::Played;

/// Before anything happens.
const WARM: Duration = Duration::from_secs(30);
/// What is answered in time is looked at for so long.
const LOOK: Duration = Duration::from_secs(20);
/// Of what is answered in time without a trigger, so much must be again.
pub const BACK: f64 = 0.9;
/// How long triggers last.
const LASTS: [Duration; 4] =
    [Duration::from_secs(1), Duration::from_secs(3), Duration::from_secs(10), Duration::from_secs(30)];
/// Health checks notice that a server is gone or back after so long.
const NOTICED: Duration = Duration::from_secs(1);

/// What happens for a while.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Trigger {
    /// So many times as much arrives.
    Rush(f64),
    /// All servers work at this speed; 1 is as ever.
    Slow(f64),
    /// No server answers.
    Outage,
}

impl Trigger {
    /// All that are tried, of each kind the weakest first.
    pub const ALL: [Trigger; 9] = [
        Trigger::Rush(1.5),
        Trigger::Rush(2.0),
        Trigger::Rush(3.0),
        Trigger::Rush(5.0),
        Trigger::Rush(10.0),
        Trigger::Slow(0.5),
        Trigger::Slow(0.25),
        Trigger::Slow(0.1),
        Trigger::Outage,
    ];

    fn text(self) -> String {
        match self {
            Trigger::Rush(times) => format!("{times} times as much arrives"),
            Trigger::Slow(speed) => format!("servers at {speed} of their speed"),
            Trigger::Outage => "no server answers".to_owned(),
        }
    }
}

/// A search through all triggers.
#[derive(Clone, Debug)]
pub struct Search {
    /// What is searched: its arms, with its load as it is at the beginning.
    pub scenario: Scenario,
    /// Each trigger is tried with every one.
    pub seeds: Vec<u64>,
    /// How long after a trigger the system must have come back.
    pub recovers: Duration,
}

/// Why nothing was searched.
#[derive(Debug, thiserror::Error)]
pub enum SearchError {
    /// What the scenario says cannot be held at its beginning.
    #[error("{0} cannot be searched: it has no beginning that could last")]
    Changes(&'static str),
    /// The engine does not take a policy.
    #[error(transparent)]
    Arm(#[from] ArmError),
    /// The world makes no sense.
    #[error(transparent)]
    World(#[from] SiteError),
}

/// What came of an arm.
#[derive(Clone, Debug)]
pub struct Found {
    /// The arm.
    pub arm: String,
    /// Answers in time per second without any trigger, on average over the seeds.
    pub undisturbed: f64,
    /// By trigger, in the order of [`Trigger::ALL`], and by how long it lasts: of that, the least that there was with
    /// any of the seeds when the system should have come back.
    pub after: Vec<[f64; LASTS.len()]>,
}

impl Found {
    /// The triggers after which it does not come back, and how long they last.
    pub fn down(&self) -> impl Iterator<Item = (Trigger, Duration)> {
        let by_time = |(trigger, after): (Trigger, &[f64; LASTS.len()])| {
            let lasting = LASTS.into_iter().zip(*after).filter(|(_, share)| *share < BACK);
            lasting.map(move |(lasts, _)| (trigger, lasts)).collect::<Vec<_>>()
        };
        Trigger::ALL.into_iter().zip(&self.after).flat_map(by_time)
    }
}

impl Search {
    /// Tries everything, `jobs` runs at a time.
    ///
    /// # Errors
    /// When the scenario cannot be searched, or an arm cannot be built.
    pub fn run(&self, jobs: usize) -> Result<Vec<Found>, SearchError> {
        let s = &self.scenario;
        let changing = [
            (s.provision.is_some(), "a scenario whose servers come and go"),
            (!s.sessions.is_empty(), "a scenario with sessions"),
        ];
        if let Some((_, what)) = changing.into_iter().find(|(is_there, _)| *is_there) {
            return Err(SearchError::Changes(what));
        }
        let tries = Trigger::ALL.into_iter().flat_map(|trigger| LASTS.map(|lasts| Some((trigger, lasts))));
        let tries: Vec<_> = std::iter::once(None).chain(tries).collect();
        let arms = s.arms.iter().flat_map(|arm| tries.iter().map(move |what| (arm, *what)));
        let runs: Vec<_> = arms.flat_map(|(arm, what)| self.seeds.iter().map(move |seed| (arm, what, *seed))).collect();
        let good = in_parallel(&runs, jobs, |(arm, what, seed)| self.good(arm, *what, *seed))?;
        let seeds = self.seeds.len();
        let found = s.arms.iter().zip(good.chunks(tries.len() * seeds)).map(|(arm, good)| {
            let (without, with) = good.split_at(seeds);
            let least = |with: &[f64]| {
                with.iter().zip(without).map(|(with, without)| with / without.max(1e-9)).fold(f64::INFINITY, f64::min)
            };
            let shares: Vec<f64> = with.chunks(seeds).map(least).collect();
            let by_trigger = shares.chunks(LASTS.len()).map(|shares| std::array::from_fn(|at| shares[at]));
            let undisturbed = without.iter().sum::<f64>() / seeds as f64;
            Found { arm: arm.name.clone(), undisturbed, after: by_trigger.collect() }
        });
        Ok(found.collect())
    }

    /// Answers in time per second when the system should have come back; without a trigger, from when it is warm on.
    fn good(&self, arm: &Arm, what: Option<(Trigger, Duration)>, seed: u64) -> Result<f64, SearchError> {
        let over = WARM + what.map_or(LASTS[LASTS.len() - 1], |(_, lasts)| lasts);
        let end = over + self.recovers.max(LOOK);
        let mut played = Played::new(&self.scenario, arm)?;
        let world = played.world_mut();
        world.duration = end;
        world.faults.clear();
        for stream in &mut world.streams {
            let rate = stream.profile.rate_at(Duration::ZERO);
            stream.profile = match what {
                Some((Trigger::Rush(times), _)) => rush(rate, times, over),
                _ => Profile::constant(rate),
            };
        }
        world.users.iter_mut().for_each(|users| users.until = end);
        let (begins, ends) = match what {
            Some((Trigger::Slow(speed), _)) => (Some(FaultKind::Speed(speed)), FaultKind::Speed(1.0)),
            Some((Trigger::Outage, _)) => (Some(FaultKind::Fail), FaultKind::Recover),
            _ => (None, FaultKind::Recover),
        };
        if let Some(begins) = begins {
            for server in 0..world.servers.len() {
                let fault = |at, what| Fault { at, tier: None, server, what, noticed_after: NOTICED };
                world.faults.extend([fault(WARM, begins), fault(over, ends)]);
            }
        }
        let from = if what.is_some() { end - LOOK } else { WARM };
        Ok(answered(&played.play(seed)?, from, end))
    }
}

/// The search's results as a table in Markdown for each arm.
pub fn text(found: &[Found]) -> String {
    let mut text = String::new();
    let seconds: Vec<String> = LASTS.iter().map(|lasts| format!("{} s", lasts.as_secs())).collect();
    for of in found {
        let _ = writeln!(text, "{}: {:.1}/s in time without any trigger\n", of.arm, of.undisturbed);
        let _ = writeln!(text, "| of that, after | {} |\n|---|{}", seconds.join(" | "), "--:|".repeat(LASTS.len()));
        for (trigger, after) in Trigger::ALL.into_iter().zip(&of.after) {
            let cell = |share: &f64| if *share < BACK { format!("**{share:.2}**") } else { format!("{share:.2}") };
            let cells: Vec<String> = after.iter().map(cell).collect();
            let _ = writeln!(text, "| {} | {} |", trigger.text(), cells.join(" | "));
        }
        let down = of.down().count();
        let verdict = match down {
            0 => "comes back from everything that was tried".to_owned(),
            _ => format!("does not come back from {down} of {}", Trigger::ALL.len() * LASTS.len()),
        };
        let _ = writeln!(text, "\n{} {verdict}\n", of.arm);
    }
    text
}

/// So many times the rate from [`WARM`] until `over`.
fn rush(rate: Rate, times: f64, over: Duration) -> Profile {
    let more = Rate::new(rate.per_second() * times).unwrap_or(rate);
    let profile = Profile::builder().step(Duration::ZERO, rate).step(WARM, more).step(over, rate).build();
    profile.unwrap_or_else(|_| Profile::constant(rate))
}

/// Answers in time per second, of all loads.
fn answered(outcome: &Outcome, from: Duration, to: Duration) -> f64 {
    let good: u64 = outcome.streams.iter().map(|stream| stream.course.span(from, to).good).sum();
    good as f64 / (to - from).as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::built_in;

    #[test]
    fn a_jam_of_retries_stays_where_everything_is_let_in_and_goes_where_it_is_not() {
        let scenario = built_in::find("M1").expect("built in");
        let search = Search { scenario, seeds: vec![1], recovers: Duration::from_secs(60) };
        let found = search.run(4).expect("it can be searched");
        let of = |name: &str| found.iter().find(|found| found.arm == name).expect(name);
        let worst = (Trigger::Outage, Duration::from_secs(30));
        assert!(of("none").down().any(|down| down == worst), "{}", text(&found));
        assert_eq!(of("waiting").down().count(), 0, "{}", text(&found));
    }

    #[test]
    fn what_has_no_lasting_beginning_is_refused() {
        let scenario = built_in::all().expect("they make sense").into_iter().find(|s| s.provision.is_some());
        let search = Search { scenario: scenario.expect("one"), seeds: vec![1], recovers: LOOK };
        assert!(matches!(search.run(1), Err(SearchError::Changes(_))));
    }
}
