//! What is otherwise in an arm than in the file.
//!
//! An arm may switch things on and off (a load, what the sentry is told, what servers do), not change times and rates:
//! those are scaled in the short form and live, and values in an arm would have to be scaled with them.

use std::borrow::Cow;

use tidegate_config::Step::{Index, Key};
use tidegate_config::{ConfigErrors, Found};
use toml::Value;

use super::{Arm, Scenario};

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
