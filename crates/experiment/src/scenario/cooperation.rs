//! What services tell those that call them.

use serde::{Deserialize, Serialize};
use tidegate_sim::Protocol;

use super::check::Checker;
use tidegate_config::Step::{Index, Key};

/// What the services of a scenario tell those that call them, in an arm.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cooperation {
    /// That a request was refused: callers let in what passes.
    #[default]
    Refusals,
    /// Nothing: each sentry decides by its own servers.
    None,
    /// Only the first service has a sentry.
    Edge,
    /// What another system has them tell, which decides in place of sentries.
    #[serde(untagged)]
    Protocol(Protocol),
}

impl Cooperation {
    /// The system that decides in place of sentries.
    pub fn protocol(self) -> Option<Protocol> {
        match self {
            Cooperation::Protocol(protocol) => Some(protocol),
            _ => None,
        }
    }

    /// Whether tiers have their sentries.
    pub fn has_sentries(self) -> bool {
        matches!(self, Cooperation::Refusals | Cooperation::None)
    }
}

impl Checker<'_> {
    pub(super) fn cooperation(&mut self) {
        let s = self.scenario;
        for (at, arm) in s.arms.iter().enumerate() {
            let place = |key| vec![Key("arm"), Index(at), Key(key)];
            let is_said = arm.cooperation != Cooperation::default();
            let has_sentry = s.tiers.iter().any(|tier| tier.sentry.is_some());
            self.demand(!is_said || has_sentry, &place("cooperation"), "needs a `tier` with a `sentry`");
            let open = arm.admission.get("policy").and_then(toml::Value::as_str) == Some("none");
            let alone = arm.cooperation.protocol().is_none() || open;
            let what = "decides in place of the admission policy: that must be `{ policy = \"none\" }`";
            self.demand(alone, &place("cooperation"), what);
        }
    }
}
