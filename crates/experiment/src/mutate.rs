//! Whether a scenario's checks can fail: it is run with its policies spoilt, and something must be missed.
//!
//! A check that still passes when nothing is refused, or when the arms have changed places, is no evidence of what the
//! arms' policies do. Three mutations: admission control off; every policy replaced by the plainest, so that all arms
//! do the same; each arm's outcome judged by the checks of the one before it. Of a sweep its combinations are tried
//! until each mutation was noticed.

use std::collections::BTreeMap;

use crate::outcome::Outcome;
use crate::plan::{SimulateError, in_parallel, reports};
use crate::scenario::{Arm, Scenario};
use crate::service::Played;

/// A way to spoil the policies of a scenario.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mutation {
    /// Every arm admits all.
    AdmissionOff,
    /// Every arm admits all, to the shortest queue, over all servers; no sentry comes.
    Plain,
    /// Each arm does what the next one should, the last what the first should.
    Swapped,
}

/// What came of a mutation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// So many checks failed.
    Noticed(usize),
    /// Every check passed: they say nothing about what was spoilt.
    Survived,
    /// There is nothing to spoil: the scenario is the same with it.
    NothingToDo,
}

/// Mutations that may survive, with the reason. It may only shrink: one that is noticed must leave.
const EXCEPTIONS: &[(&str, Mutation, &str)] = &[
    ("A1", Mutation::Plain, "a single server without any policy is profiled: there is nothing to spoil but its model"),
    ("C4", Mutation::AdmissionOff, "nobody is refused there: sentries come by the CPU of those that are there"),
    ("C4", Mutation::Swapped, "both arms have the same rule for sentries, and differ in what plays no part there"),
    ("V1-flood", Mutation::AdmissionOff, "the simulator has no flood: its checks are of the live form"),
    ("V1-flood", Mutation::Plain, "the simulator has no flood: its checks are of the live form"),
];

impl Mutation {
    /// All of them.
    pub const ALL: [Mutation; 3] = [Mutation::AdmissionOff, Mutation::Plain, Mutation::Swapped];

    /// Its name in what is printed.
    pub fn name(self) -> &'static str {
        match self {
            Mutation::AdmissionOff => "admission off",
            Mutation::Plain => "plain policies",
            Mutation::Swapped => "arms swapped",
        }
    }

    /// Why it may survive in this scenario, where it may.
    pub fn exception(self, id: &str) -> Option<&'static str> {
        EXCEPTIONS.iter().find(|(of, mutation, _)| *of == id && *mutation == self).map(|(_, _, reason)| *reason)
    }

    /// The arms as the mutation has them; `None` when they are the same as before.
    fn arms(self, arms: &[Arm]) -> Option<Vec<Arm>> {
        let nothing: toml::Table = [("policy".to_owned(), "none".into())].into_iter().collect();
        let shortest: toml::Table = [("policy".to_owned(), "jsq".into())].into_iter().collect();
        let mutated = |arm: &Arm| match self {
            Mutation::AdmissionOff => Arm { admission: nothing.clone(), ..arm.clone() },
            Mutation::Plain => Arm {
                admission: nothing.clone(),
                dispatch: shortest.clone(),
                partition: toml::Table::new(),
                provision: toml::Table::new(),
                cancel: tidegate_engine::Cancel::Off,
                ..arm.clone()
            },
            Mutation::Swapped => arm.clone(),
        };
        let after: Vec<Arm> = arms.iter().map(mutated).collect();
        let changed = if self == Mutation::Swapped { arms.len() > 1 } else { after != arms };
        changed.then_some(after)
    }
}

/// Runs a scenario with every mutation, `jobs` runs at a time, with one seed.
///
/// # Errors
/// When the engine or the simulator does not take an arm.
pub fn mutate(points: &[Scenario], seed: u64, jobs: usize) -> Result<BTreeMap<Mutation, Fate>, SimulateError> {
    let mut fates: BTreeMap<Mutation, Fate> =
        Mutation::ALL.into_iter().map(|mutation| (mutation, Fate::NothingToDo)).collect();
    for scenario in points {
        let alone = without_more_sentries(scenario);
        for (mutation, fate) in &mut fates {
            if matches!(fate, Fate::Noticed(_)) {
                continue;
            }
            let Some(arms) = mutation.arms(&scenario.arms) else { continue };
            let scenario = if *mutation == Mutation::Plain { &alone } else { scenario };
            *fate = match missed(scenario, *mutation, &arms, seed, jobs)? {
                0 => Fate::Survived,
                missed => Fate::Noticed(missed),
            };
        }
    }
    Ok(fates)
}

/// The scenario with one sentry for each application, whatever its CPU.
fn without_more_sentries(scenario: &Scenario) -> Scenario {
    let mut scenario = scenario.clone();
    if let Some(provision) = &mut scenario.provision {
        provision.max_sentries = 1;
    }
    scenario
}

/// How many checks fail.
fn missed(
    scenario: &Scenario,
    mutation: Mutation,
    arms: &[Arm],
    seed: u64,
    jobs: usize,
) -> Result<usize, SimulateError> {
    // Arms that are the same but for their names need not be run twice: after `Plain` most are.
    let bare = |arm: &Arm| Arm { name: String::new(), about: String::new(), unchecked: String::new(), ..arm.clone() };
    let mut distinct: Vec<Arm> = Vec::new();
    let places: Vec<usize> = arms
        .iter()
        .map(|arm| {
            let arm = bare(arm);
            distinct.iter().position(|other| *other == arm).unwrap_or_else(|| {
                distinct.push(arm);
                distinct.len() - 1
            })
        })
        .collect();
    let played = in_parallel(&distinct, jobs, |arm| Ok::<_, SimulateError>(Played::new(scenario, arm)?.play(seed)?))?;
    let mut outcomes: Vec<Outcome> = places.iter().map(|&at| played[at].clone()).collect();
    if mutation == Mutation::Swapped {
        outcomes.rotate_left(1);
    }
    let judged = reports(scenario, &[seed], outcomes, true);
    let checks = judged.iter().flat_map(|arm| &arm.runs).flat_map(|run| &run.checks);
    Ok(checks.filter(|check| !check.pass).count())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two servers of 50/s in all, and 180/s in the middle.
    fn scenario(expect: &str) -> Scenario {
        let text = format!(
            r#"
            id = "tiny"
            title = "a short rush"
            duration = "30s"
            sla = {{ target = "500ms" }}
            servers = {{ count = 1 }}
            class = [{{ name = "all" }}]
            request = [{{ name = "page", service = {{ distribution = "exponential", mean = "20ms" }} }}]
            load = [{{ class = "all", requests = {{ page = 1 }}, rate = "0s:20/s, 10s:180/s, 20s:20/s" }}]
            arm = [{{ name = "sentry" }}, {{ name = "none", admission = {{ policy = "none" }} }}]
            expect = [{{ arms = ["sentry"], over = "10s..20s", {expect} }}]
            "#
        );
        Scenario::parse(&text, "tiny.toml").unwrap_or_else(|error| panic!("{error}"))
    }

    #[test]
    fn a_check_of_the_policy_notices_that_it_is_gone() {
        let fates = mutate(&[scenario("metric = \"refused_share\", at_least = 0.3")], 1, 2).unwrap();
        let noticed = |fate: &Fate| matches!(fate, Fate::Noticed(1));
        assert!(fates.len() == 3 && fates.values().all(noticed), "{fates:?}");
    }

    #[test]
    fn a_check_that_says_nothing_survives() {
        let fates = mutate(&[scenario("metric = \"offered_rate\", at_least = 100")], 1, 2).unwrap();
        assert!(fates.values().all(|fate| *fate == Fate::Survived), "{fates:?}");
    }

    #[test]
    fn what_cannot_be_spoilt_is_said() {
        let mut only = scenario("metric = \"offered_rate\", at_least = 100");
        only.arms.remove(0);
        only.expects.clear();
        let fates = mutate(&[only], 1, 1).unwrap();
        assert_eq!((fates[&Mutation::AdmissionOff], fates[&Mutation::Swapped]), (Fate::NothingToDo, Fate::NothingToDo));
    }

    #[test]
    fn exceptions_are_of_scenarios_that_there_are_and_give_a_reason() {
        for (id, _, reason) in EXCEPTIONS {
            assert!(crate::built_in::find(id).is_ok() && reason.len() > 20, "{id}");
        }
    }
}
