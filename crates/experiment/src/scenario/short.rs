//! The short form of a scenario.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Scenario, Span, is_one, one_share};

/// The short form of a scenario: the same rates, policies and servers, with the time axis shrunk.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Short {
    /// What every instant is multiplied by, more than 0 and at most 1.
    #[serde(default = "one_share", skip_serializing_if = "is_one")]
    pub time_scale: f64,
    /// Of a [`Space`](super::Space), every nth load before the jump, beginning with the first; every one by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub every: Option<usize>,
    /// The arms that are run; all when empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub arms: Vec<String>,
}

impl Scenario {
    /// The short form: instants of load, users, faults and expectations multiplied by `time_scale`; rates, service
    /// times, targets and policies as they are. Expectations that need more time than that are left out, and those of
    /// which no whole second remains. A space keeps every nth of its loads before a jump. Without a `[short]` table, it
    /// is the scenario itself.
    ///
    /// # Panics
    /// Never, for a scenario that was read: its `time_scale` was checked.
    pub fn shortened(&self) -> Scenario {
        let Some(Short { time_scale, every, arms }) = &self.short else { return self.clone() };
        let mut short = self.clone();
        short.expects.retain(|expect| expect.short);
        short.scale_time(*time_scale);
        short.keep_arms(arms);
        short.thin_out(every.unwrap_or(1));
        short.short = None;
        short
    }

    /// Its beginning: nothing arrives from `end` on. What would be measured later is left out, and spans that reach
    /// beyond it end there.
    #[must_use]
    pub fn until(&self, end: Duration) -> Scenario {
        let part = |span: Span| (span.from < end).then(|| Span { to: span.to.min(end), ..span });
        let mut cut = self.clone();
        cut.duration = cut.duration.min(end);
        cut.faults.retain(|fault| fault.at < end);
        if let Some(curves) = &mut cut.curves {
            curves.over = curves.over.iter().copied().filter_map(part).collect();
        }
        if let Some(space) = &mut cut.space {
            space.over = space.over.iter().copied().filter_map(part).collect();
        }
        cut.expects.retain_mut(|expect| {
            // What it is compared with must be there whole.
            let is_there = expect.relative_to.is_none_or(|before| before.to <= end);
            part(expect.over).map(|over| expect.over = over).is_some() && is_there
        });
        cut
    }

    /// Of a space's loads before the jump, keeps every nth, beginning with the first.
    fn thin_out(&mut self, every: usize) {
        let Some(space) = &self.space else { return };
        if let Some(toml::Value::Array(loads)) = self.sweep.get_mut(&space.before) {
            *loads = loads.iter().step_by(every.max(1)).cloned().collect();
        }
    }

    /// Multiplies the instants of load, users, faults and expectations, and leaves out expectations of which no whole
    /// second remains.
    pub(super) fn scale_time(&mut self, factor: f64) {
        self.duration = self.duration.mul_f64(factor);
        for load in &mut self.loads {
            load.rate = load.rate.scale_time(factor);
        }
        for sessions in &mut self.sessions {
            sessions.rate = sessions.rate.scale_time(factor);
        }
        for users in &mut self.users {
            users.from = users.from.mul_f64(factor);
            users.until = users.until.map(|until| until.mul_f64(factor));
        }
        self.faults.iter_mut().for_each(|fault| fault.at = fault.at.mul_f64(factor));
        if let Some(curves) = &mut self.curves {
            let scaled = curves.over.iter().filter_map(|span| span.scale(factor).whole_seconds());
            curves.over = scaled.collect();
        }
        self.expects.retain_mut(|expect| {
            // Results are kept by second: one that lies across the edge belongs to neither side.
            let over = expect.over.scale(factor).whole_seconds();
            expect.relative_to = expect.relative_to.and_then(|span| span.scale(factor).whole_seconds());
            over.map(|over| expect.over = over).is_some()
        });
    }

    /// Leaves out other arms, and what is expected of none but them; an empty list names all.
    pub(super) fn keep_arms(&mut self, arms: &[String]) {
        self.arms.retain(|arm| arms.is_empty() || arms.contains(&arm.name));
        let kept = |name: &String| self.arms.iter().any(|arm| arm.name == *name);
        self.expects.retain(|expect| expect.arms.is_empty() || expect.arms.iter().any(kept));
        self.expects.iter_mut().for_each(|expect| expect.arms.retain(kept));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::built_in;

    #[test]
    fn the_beginning_has_only_what_is_measured_in_it() {
        let whole = built_in::find("C1").unwrap();
        let first = whole.until(Duration::from_secs(200));
        let ends = |scenario: &Scenario| scenario.expects.iter().map(|expect| expect.over.to.as_secs()).max();
        assert_eq!((first.duration.as_secs(), ends(&first)), (200, Some(200)));
        assert!(first.expects.iter().all(|expect| expect.over.from.as_secs() < 200));
        assert_eq!((&first.loads, &first.arms), (&whole.loads, &whole.arms));
        assert_eq!(whole.until(whole.duration), whole);
        let space = built_in::find("S5").unwrap().until(Duration::from_secs(40)).space.unwrap();
        assert_eq!(space.over.iter().map(ToString::to_string).collect::<Vec<_>>(), ["20s..40s"; 2]);
    }
}
