//! What is otherwise in an arm than in the file.
//!
//! An arm may switch things on and off (a load, what the sentry is told, what servers do), not change times and rates:
//! those are scaled in the short form and live, and values in an arm would have to be scaled with them.

use std::borrow::Cow;

use tidegate_config::Step::{Index, Key};
use tidegate_config::{ConfigErrors, Found};
use toml::Value;

use super::{Arm, Expect, Scenario};

impl Scenario {
    /// The scenario as it is in an arm.
    ///
    /// # Errors
    /// When the arm's `set` makes no sense with other values than the file's: it was tried with those.
    pub fn for_arm(&self, arm: &Arm) -> Result<Cow<'_, Scenario>, ConfigErrors> {
        if arm.set.is_empty() {
            return Ok(Cow::Borrowed(self));
        }
        // What speaks of other arms, which need not be there any more, is the same in all of them.
        let mut plain = self.clone();
        let (expects, short) = (std::mem::take(&mut plain.expects), plain.short.take());
        Ok(Cow::Owned(Scenario { expects, short, ..plain.with(&arm.set)? }))
    }
}

impl Arm {
    /// The expectations that are about this arm, without those that compare it with an arm that is not there.
    pub fn expectations<'s>(&'s self, scenario: &'s Scenario) -> impl Iterator<Item = &'s Expect> {
        let is_there = |name: &String| scenario.arms.iter().any(|arm| arm.name == *name);
        let about = scenario.expects.iter().filter(|expect| expect.is_about(&self.name));
        about.filter(move |expect| expect.other_arm().is_none_or(is_there))
    }
}

/// What is wrong with what arms set.
pub(super) fn problems(scenario: &Scenario) -> Vec<Found> {
    let mut found = Vec::new();
    for (at, arm) in scenario.arms.iter().enumerate() {
        let mut add = |problem: String| {
            found.push(Found { place: vec![Key("arm"), Index(at), Key("set")], problem });
        };
        if let Some((key, _)) = arm.set.iter().find(|(_, value)| !is_switch(value)) {
            add(format!("\"{key}\" must be true, false or a name: times and rates are the same in all arms"));
        } else if let Err(error) = scenario.for_arm(arm) {
            let problem = error.problems.first().map_or(String::new(), |p| format!("{} {}", p.key, p.message));
            add(problem.trim().to_owned());
        }
    }
    found
}

fn is_switch(value: &Value) -> bool {
    match value {
        Value::Boolean(_) => true,
        // "x2" is a factor, "20ms" a time, "5/s" a rate.
        Value::String(name) => name.chars().all(|c| c.is_ascii_alphabetic() || c == '-' || c == '_'),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tidegate_workload::Abandoned;

    use super::*;
    use crate::built_in;
    use crate::scenario::{LastsAs, Metric};
    use crate::service;

    /// N2 with another `set` of the arm that is called `without`.
    fn with(set: &str) -> Result<Scenario, ConfigErrors> {
        let text = include_str!("../../../../scenarios/n2.toml");
        let old = r#"set = { "load.polls.absent" = true, "load.streams.absent" = true }"#;
        assert!(text.contains(old));
        Scenario::parse(&text.replacen(old, set, 1), "n2.toml")
    }

    #[test]
    fn an_arm_sets_switches_and_leaves_the_others_alone() {
        let scenario = with(r#"set = { "load.polls.absent" = true, "servers.abandoned" = "hangs-up" }"#).unwrap();
        let other = scenario.for_arm(&scenario.arms[0]).unwrap();
        assert_eq!(*other, scenario);
        let changed = scenario.for_arm(&scenario.arms[1]).unwrap();
        let absent: Vec<bool> = changed.loads.iter().map(|load| load.absent).collect();
        assert_eq!((absent, changed.servers.abandoned), (vec![false, true, false], Abandoned::HangsUp));
        // 100/s, 60/s and 40/s.
        assert_eq!((scenario.offered_at(Duration::ZERO), changed.offered_at(Duration::ZERO)), (200.0, 140.0));
        assert_eq!((&changed.expects, &changed.arms), (&scenario.expects, &scenario.arms));
        assert_eq!(Scenario::parse(&scenario.to_toml(), "again.toml").unwrap(), scenario);
    }

    #[test]
    fn an_arm_is_played_when_those_it_is_compared_with_are_not() {
        let mut scenario = with(r#"set = { "load.polls.absent" = true }"#).unwrap();
        scenario.keep_arms(&["without".to_owned()]);
        assert!(scenario.for_arm(&scenario.arms[0]).unwrap().loads[1].absent);
        assert_eq!(scenario.arms[0].expectations(&scenario).count(), 0);
    }

    #[test]
    fn what_an_arm_cannot_set_is_said() {
        for (set, part) in [
            (r#"set = { "sla.target" = "2s" }"#, "true, false or a name"),
            (r#"set = { "load.polls.rate" = "x2" }"#, "true, false or a name"),
            (r#"set = { "servers.count" = 3 }"#, "true, false or a name"),
            (r#"set = { "load.pools.absent" = true }"#, "\"polls\""),
            (r#"set = { "servers.abandoned" = "stop" }"#, "stops"),
        ] {
            let error = with(set).unwrap_err().to_string();
            assert!(error.contains("arm[1].set") && error.contains(part), "{set}: {error}");
        }
    }

    #[test]
    fn live_all_is_as_much_slower_and_a_multiple_stays_what_it_is() {
        let live = built_in::find("N1").unwrap().for_live().unwrap();
        assert_eq!((live.loads[1].patience, live.expects.len()), (Some(Duration::from_millis(100)), 3));
        let ratio = live.expects.iter().find(|expect| expect.metric == Metric::GoodputRate).unwrap();
        assert_eq!(ratio.at_least, Some(0.95));
        let lasts = built_in::find("N2").unwrap().for_live().unwrap().requests[1].lasts.unwrap();
        assert_eq!((lasts.kind, lasts.time.mean()), (LastsAs::Poll, 20.0));
    }

    #[test]
    fn only_slow_clients_are_the_simulators() {
        let beyond = |id: &str| {
            let scenario = built_in::find(id).unwrap().for_live().unwrap();
            service::of(&scenario.on()).cannot_do(&scenario)
        };
        for id in ["N1", "N2", "N3", "N5", "N6", "D1", "D2"] {
            assert_eq!(beyond(id), [""; 0], "{id}");
        }
        assert_eq!(beyond("N4"), ["load.sends", "load.reads"]);
    }
}
