//! Whether a scenario's checks can fail: it is run with its policies spoilt, and something must be missed.
//!
//! A check that still passes when nothing is refused, or when the arms have changed places, is no evidence of what the
//! arms' policies do. Three mutations: admission control off; every policy replaced by the plainest, so that all arms
//! do the same; each arm's outcome judged by the checks of the one before it. A check notices one when it holds without
//! it and fails with it. Of a sweep its combinations are tried until each mutation was noticed; a space of jumps is
//! judged as a whole.
//!
//! Where nothing can be noticed, the scenario itself says so: it has a single arm, or the mutation leaves every arm as
//! it is, or all that comes of it. That is found out by playing, and there is no list of names.

use std::collections::BTreeMap;

use crate::outcome::Outcome;
use crate::plan::{SimulateError, in_parallel, reports};
use crate::report::{ExperimentReport, Mode, SpaceError, SpaceReport};
use crate::scenario::{Arm, Point, Scenario, Space};
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

/// What came of a mutation. Of several combinations the last of these counts that came of any.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fate {
    /// There is nothing that could be noticed.
    DoesNotApply(Why),
    /// Every check that held before holds with it: they say nothing about what was spoilt.
    Survived,
    /// So many checks fail that held before.
    Noticed(usize),
}

/// Why a mutation does not apply to a scenario.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Why {
    /// Nothing is expected of it in the simulator.
    NoChecks,
    /// There is a single arm, which cannot change places.
    OneArm,
    /// Every arm is the same with it.
    AsItIs,
    /// Every arm comes to the same with it, to the request.
    SameOutcome,
}

/// Why a scenario cannot be spoilt.
#[derive(Debug, thiserror::Error)]
pub enum MutateError {
    /// The engine or the simulator does not take an arm.
    #[error(transparent)]
    Simulate(#[from] SimulateError),
    /// Its space cannot be judged.
    #[error(transparent)]
    Space(#[from] SpaceError),
}

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

    /// Why it does not apply, in words.
    pub fn reason(self, why: Why) -> &'static str {
        match (why, self) {
            (Why::NoChecks, _) => "no check is of the simulator",
            (Why::OneArm, _) => "there is a single arm",
            (Why::AsItIs, Mutation::AdmissionOff) => "no arm has admission control",
            (Why::AsItIs, _) => "no arm has another policy than the plainest",
            (Why::SameOutcome, Mutation::Swapped) => "all arms come to the same, to the request",
            (Why::SameOutcome, _) => "every arm comes to the same without, to the request",
        }
    }

    /// The scenario as the mutation has it; of `Swapped` as it is, since only the outcomes change places.
    fn spoil(self, scenario: &Scenario) -> Scenario {
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
        let mut spoilt = Scenario { arms: scenario.arms.iter().map(mutated).collect(), ..scenario.clone() };
        if let Some(provision) = spoilt.provision.as_mut().filter(|_| self == Mutation::Plain) {
            provision.max_sentries = 1;
        }
        spoilt
    }
}

/// Runs a scenario, given as the combinations of its sweep, with every mutation, `jobs` runs at a time, with one seed.
///
/// # Errors
/// When the engine or the simulator does not take an arm, or a space cannot be judged.
pub fn mutate(
    space: Option<&Space>,
    points: &[Point],
    seed: u64,
    jobs: usize,
) -> Result<BTreeMap<Mutation, Fate>, MutateError> {
    let mut fates = BTreeMap::new();
    // A space is one figure of all its points; else each point has checks of its own.
    for group in points.chunks(if space.is_some() { points.len() } else { 1 }) {
        if Mutation::ALL.iter().all(|mutation| matches!(fates.get(mutation), Some(Fate::Noticed(_)))) {
            break;
        }
        let group = Group { space, points: group, seed, jobs };
        // What is plain from the scenarios needs no run.
        let mut before = None;
        for mutation in Mutation::ALL {
            if matches!(fates.get(&mutation), Some(Fate::Noticed(_))) {
                continue;
            }
            let fate = match group.told(mutation) {
                Some(why) => Fate::DoesNotApply(why),
                None => {
                    let before = match &mut before {
                        Some(before) => before,
                        none => none.insert(group.unspoilt()?),
                    };
                    group.fate(mutation, before)?
                }
            };
            fates.entry(mutation).and_modify(|known: &mut Fate| *known = fate.max(*known)).or_insert(fate);
        }
    }
    Ok(fates)
}

/// Combinations that are judged together.
struct Group<'a> {
    space: Option<&'a Space>,
    points: &'a [Point],
    seed: u64,
    jobs: usize,
}

/// What came of each arm of each combination.
type Outcomes = Vec<Vec<Outcome>>;

/// How it is without a mutation.
struct Unspoilt {
    outcomes: Outcomes,
    /// Which checks hold.
    held: Vec<bool>,
}

impl Group<'_> {
    fn scenarios(&self) -> impl Iterator<Item = &Scenario> {
        self.points.iter().map(|point| &point.scenario)
    }

    fn unspoilt(&self) -> Result<Unspoilt, MutateError> {
        let scenarios: Vec<Scenario> = self.scenarios().cloned().collect();
        let outcomes = self.play(&scenarios)?;
        Ok(Unspoilt { held: self.judge(outcomes.clone())?, outcomes })
    }

    /// Why the mutation does not apply, where that can be told without a run.
    fn told(&self, mutation: Mutation) -> Option<Why> {
        let is_swap = mutation == Mutation::Swapped;
        match () {
            () if self.space.is_none() && self.scenarios().all(|scenario| scenario.expects.is_empty()) => {
                Some(Why::NoChecks)
            }
            () if is_swap && self.scenarios().all(|scenario| scenario.arms.len() < 2) => Some(Why::OneArm),
            () if !is_swap && self.scenarios().all(|scenario| mutation.spoil(scenario) == *scenario) => {
                Some(Why::AsItIs)
            }
            () => None,
        }
    }

    fn fate(&self, mutation: Mutation, Unspoilt { outcomes: before, held }: &Unspoilt) -> Result<Fate, MutateError> {
        let after = if mutation == Mutation::Swapped {
            let mut after = before.clone();
            after.iter_mut().for_each(|arms| arms.rotate_left(1));
            after
        } else {
            self.play(&self.scenarios().map(|scenario| mutation.spoil(scenario)).collect::<Vec<_>>())?
        };
        let is_same = after.iter().flatten().map(figures).eq(before.iter().flatten().map(figures));
        let holds = self.judge(after)?;
        let failed = held.iter().zip(holds).filter(|(held, holds)| **held && !holds).count();
        Ok(match failed {
            0 if is_same => Fate::DoesNotApply(Why::SameOutcome),
            0 => Fate::Survived,
            failed => Fate::Noticed(failed),
        })
    }

    /// Plays every arm of every combination. Arms that are the same but for their names are run once: with plain
    /// policies most are.
    fn play(&self, scenarios: &[Scenario]) -> Result<Outcomes, SimulateError> {
        let bare =
            |arm: &Arm| Arm { name: String::new(), about: String::new(), unchecked: String::new(), ..arm.clone() };
        let mut distinct: Vec<(usize, Arm)> = Vec::new();
        let mut place = |at: usize, arm: &Arm| {
            let run = (at, bare(arm));
            distinct.iter().position(|other| *other == run).unwrap_or_else(|| {
                distinct.push(run);
                distinct.len() - 1
            })
        };
        let places: Vec<Vec<usize>> = scenarios
            .iter()
            .enumerate()
            .map(|(at, scenario)| scenario.arms.iter().map(|arm| place(at, arm)).collect())
            .collect();
        let played = in_parallel(&distinct, self.jobs, |(at, arm)| {
            Ok::<_, SimulateError>(Played::new(&scenarios[*at], arm)?.play(self.seed)?)
        })?;
        Ok(places.iter().map(|arms| arms.iter().map(|&at| played[at].clone()).collect()).collect())
    }

    /// Which checks hold.
    fn judge(&self, outcomes: Outcomes) -> Result<Vec<bool>, MutateError> {
        let judged = |point: &Point, outcomes| reports(&point.scenario, &[self.seed], outcomes, true);
        let Some(space) = self.space else {
            let arms = self.points.iter().zip(outcomes).flat_map(|(point, outcomes)| judged(point, outcomes));
            return Ok(arms.flat_map(|arm| arm.runs).flat_map(|run| run.checks).map(|check| check.pass).collect());
        };
        let mut figure = SpaceReport::new(space, self.points)?;
        for (point, outcomes) in self.points.iter().zip(outcomes) {
            let (scenario, arms) = (point.scenario.clone(), judged(point, outcomes));
            let report = ExperimentReport { scenario, mode: Mode::Simulated, short: false, arms };
            figure.add(&point.settings, &report)?;
        }
        Ok(figure.holds())
    }
}

/// An outcome without what policies say of themselves.
fn figures(outcome: &Outcome) -> Outcome {
    Outcome { notes: Vec::new(), controls: Vec::new(), warnings: Vec::new(), ..outcome.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ARMS: &str = r#"[{ name = "sentry" }, { name = "none", admission = { policy = "none" } }]"#;

    /// Two servers of 50/s in all, and 180/s in the middle.
    fn fates(arms: &str, expect: &str) -> Vec<Fate> {
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
            arm = {arms}
            expect = [{expect}]
            "#
        );
        let scenario = Scenario::parse(&text, "tiny.toml").unwrap_or_else(|error| panic!("{error}"));
        mutate(None, &scenario.points().unwrap(), 1, 2).unwrap().into_values().collect()
    }

    #[test]
    fn a_check_of_the_policy_notices_that_it_is_gone() {
        let check = r#"{ arms = ["sentry"], over = "10s..20s", metric = "refused_share", at_least = 0.3 }"#;
        assert_eq!(fates(ARMS, check), [Fate::Noticed(1); 3]);
    }

    #[test]
    fn a_check_that_says_nothing_survives() {
        let check = r#"{ arms = ["sentry"], over = "10s..20s", metric = "offered_rate", at_least = 100 }"#;
        assert_eq!(fates(ARMS, check), [Fate::Survived; 3]);
    }

    #[test]
    fn a_check_that_fails_without_a_mutation_notices_none() {
        let check = r#"{ arms = ["none"], over = "10s..20s", metric = "refused_share", at_least = 0.3 }"#;
        assert_eq!(fates(ARMS, check)[..2], [Fate::Survived; 2]);
    }

    #[test]
    fn what_cannot_be_noticed_is_told_from_the_scenario() {
        let not = Fate::DoesNotApply;
        let check = r#"{ over = "10s..20s", metric = "offered_rate", at_least = 100 }"#;
        let one = r#"[{ name = "none", admission = { policy = "none" }, dispatch = { policy = "jsq" } }]"#;
        assert_eq!(fates(one, check), [not(Why::AsItIs), not(Why::AsItIs), not(Why::OneArm)]);
        // With one server it does not matter how it is chosen.
        let two = r#"[{ name = "a", admission = { policy = "none" } },
            { name = "b", admission = { policy = "none" }, dispatch = { policy = "wrr" } }]"#;
        assert_eq!(fates(two, check), [not(Why::AsItIs), not(Why::SameOutcome), not(Why::SameOutcome)]);
        assert_eq!(fates(ARMS, ""), [not(Why::NoChecks); 3]);
    }
}
