//! What a check is evidence of, and whether a scenario says so of all of them.
//!
//! A check that passes says little while nobody knows what it stands for: the paper's statement about the paper's own
//! policy, something that our policy does beyond it, or a miss that is known and asserted so that its end is noticed.

use std::fmt;

use serde::{Deserialize, Serialize};
use tidegate_config::{
    Found,
    Step::{Index, Key},
};

use super::Scenario;

/// What a check is evidence of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mark {
    /// The paper's claim, of the paper's own policy.
    Paper,
    /// Ours: of a policy of ours, or of something that the paper says nothing about.
    Ours,
    /// The paper's policy misses the paper's claim here: the bounds assert the miss.
    Finding,
}

impl Mark {
    /// Its words in reports.
    pub fn words(self) -> &'static str {
        match self {
            Mark::Paper => "as the paper",
            Mark::Ours => "ours",
            Mark::Finding => "a miss",
        }
    }
}

impl fmt::Display for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.words())
    }
}

/// What is wrong with what checks say of themselves.
pub(super) fn problems(scenario: &Scenario) -> Vec<Found> {
    let mut found = Vec::new();
    for (at, expect) in scenario.expects.iter().enumerate() {
        let (no_claim, no_reason) = (expect.claim.is_empty(), expect.because.is_empty());
        let (key, problem) = match expect.mark {
            Some(Mark::Paper | Mark::Finding) if no_claim => {
                ("claim", "is missing: give the paper's sentence or figure, such as \"figure 7: p90 near 1 s\"")
            }
            Some(Mark::Finding) if no_reason => {
                ("because", "is missing: say why the paper's policy misses the paper's claim here")
            }
            None if !no_claim => (
                "mark",
                "is missing beside `claim`: \"paper\", \"ours\" or \"finding\" says whose policy this is about",
            ),
            _ => continue,
        };
        found.push(Found { place: vec![Key("expect"), Index(at), Key(key)], problem: problem.to_owned() });
    }
    for (at, arm) in scenario.arms.iter().enumerate() {
        if !arm.unchecked.is_empty() && scenario.expects.iter().any(|expect| expect.is_about(&arm.name)) {
            let problem = "stands at an arm that has checks: leave it out".to_owned();
            found.push(Found { place: vec![Key("arm"), Index(at), Key("unchecked")], problem });
        }
    }
    found
}

/// What a scenario leaves unsaid: checks without a mark, and arms with neither a check nor a reason for having none.
pub fn unsaid(scenario: &Scenario) -> Vec<String> {
    let unmarked = scenario.expects.iter().enumerate().filter(|(_, expect)| expect.mark.is_none());
    let unmarked = unmarked.map(|(at, expect)| format!("expect[{at}] \"{}\" has no mark", expect.what));
    let in_space = |name: &String| scenario.space.as_ref().is_some_and(|s| s.inner == *name || s.outer == *name);
    let bare = scenario.arms.iter().filter(|arm| {
        let is_checked = scenario.expects.iter().any(|expect| expect.is_about(&arm.name));
        arm.unchecked.is_empty() && !is_checked && !in_space(&arm.name)
    });
    unmarked.chain(bare.map(|arm| format!("arm \"{}\" has no check and no `unchecked`", arm.name))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::built_in;

    /// Scenarios whose checks do not say yet what they are evidence of. It may only shrink.
    const UNCONVERTED: &[&str] = &[];

    #[test]
    fn every_check_says_what_it_is_evidence_of_and_every_arm_has_one() {
        for scenario in built_in::all().unwrap() {
            let (unsaid, id) = (unsaid(&scenario), scenario.id.to_uppercase());
            match UNCONVERTED.contains(&id.as_str()) {
                true => assert!(!unsaid.is_empty(), "{id} says everything: take it off the list"),
                false => assert_eq!(unsaid, [""; 0], "{id}"),
            }
        }
    }

    #[test]
    fn what_a_mark_needs_is_asked_for() {
        let text = include_str!("../../../../scenarios/s1.toml");
        let with = |more: &str| {
            let end = format!("\n[[expect]]\nmetric = \"p95\"\nover = \"20s..140s\"\nat_most = 900\n{more}");
            Scenario::parse(&(text.to_owned() + &end), "s1.toml").map(drop).map_err(|error| error.to_string())
        };
        for (more, part) in [
            ("mark = \"paper\"", "claim"),
            ("mark = \"finding\"\nclaim = \"figure 1\"", "because"),
            ("claim = \"figure 1\"", "mark"),
        ] {
            let error = with(more).unwrap_err();
            assert!(error.contains(part) && error.contains("is missing"), "{more}: {error}");
        }
        assert_eq!(with("mark = \"ours\""), Ok(()));
        assert_eq!(with("mark = \"finding\"\nclaim = \"figure 1\"\nbecause = \"it is slower\""), Ok(()));
    }

    #[test]
    fn an_arm_with_checks_needs_no_reason_for_having_none() {
        let text = include_str!("../../../../scenarios/s1.toml");
        let text = text.replacen("name = \"baseline\"\n", "name = \"baseline\"\nunchecked = \"why not\"\n", 1);
        let error = Scenario::parse(&text, "s1.toml").unwrap_err().to_string();
        assert!(error.contains("unchecked") && error.contains("has checks"), "{error}");
    }
}
