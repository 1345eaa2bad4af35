//! A policy that looks at each request, and is relieved by threshold policing when the sentry itself runs short
//! (Cataclysm, section 3.3, end).
//!
//! The careful part decides until the sentry's own processors are busier than `high`; then the threshold does, until
//! they have stayed below `low` for `hold`. Each switch is an event with the measurement that decided it. A careful
//! part whose rounds start late by more than a whole period, several times in a row, is the same shortage seen from
//! inside. Who waits at the switch is tested once more and then admitted or refused, so none is left in a queue that
//! is no longer served.

use alloc::format;
use alloc::string::String;
use core::time::Duration;
use serde::{Deserialize, Serialize};

use crate::admission::threshold::{self, Threshold};
use crate::admission::{Admission, AdmissionPolicy, Arrival, Context, Ended, PolicyState, require};
use crate::decision::Reason;
use crate::facts::Facts;
use crate::learned::Kept;
use crate::peers::Summary;
use crate::policer::Share;
use crate::report::LoadReport;
use crate::request::Request;
use crate::setup::{Setup, SetupError};
use crate::time::Timestamp;
use crate::units::Seconds;

/// When the threshold relieves, and with which settings.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Relief {
    /// Settings of threshold policing.
    pub threshold: threshold::Config,
    /// Above this share of the sentry's processors: threshold.
    pub high: f64,
    /// Below this share, for `hold`: each request is looked at again.
    pub low: f64,
    /// How long the sentry must have stayed below `low`.
    pub hold: Seconds,
}

impl Default for Relief {
    fn default() -> Self {
        Relief { threshold: threshold::Config::default(), high: 0.8, low: 0.5, hold: Seconds(30.0) }
    }
}

impl Relief {
    pub(in crate::admission) fn check(&self, policy: &'static str) -> Result<(), SetupError> {
        self.threshold.check()?;
        require(self.low >= 0.0 && self.low < self.high, policy, "low", "must be less than `high`")?;
        require(self.high <= 1.0, policy, "high", "must be at most 1")
    }

    /// `careful`, relieved as the settings say.
    pub(in crate::admission) fn of<P: Careful>(&self, careful: P, setup: &Setup) -> Relieved<P> {
        Relieved {
            careful,
            threshold: self.threshold.build(setup),
            relief: self.clone(),
            in_threshold: false,
            calm_since: None,
            late_rounds: 0,
        }
    }
}

/// A policy that can be relieved.
pub(in crate::admission) trait Careful: AdmissionPolicy {
    /// Its name, as events tell it.
    const NAME: &'static str;

    /// Whether a timer that is due now is late by more than it may be.
    fn is_late(&self, now: Timestamp) -> bool {
        let _ = now;
        false
    }

    /// A last look at whoever waits; who waits on is refused.
    fn finish(&mut self, cx: &mut Context<'_>) {
        let _ = cx;
    }

    /// It decides again; nobody waits.
    fn resume(&mut self, cx: &mut Context<'_>) {
        let _ = cx;
    }
}

/// Rounds in a row that start a whole period late before the careful part counts as overloaded.
const LATE_ROUNDS: u32 = 5;

/// Timers are about this coarse: less is not late.
pub(in crate::admission) const LATE_LEAST: Duration = Duration::from_millis(10);

/// State of a policy that can be relieved.
#[derive(Debug)]
pub struct Relieved<P> {
    careful: P,
    threshold: Threshold,
    relief: Relief,
    in_threshold: bool,
    /// Since when the sentry's load has been below `low`.
    calm_since: Option<Timestamp>,
    late_rounds: u32,
}

impl<P: Careful> AdmissionPolicy for Relieved<P> {
    fn on_arrival(&mut self, cx: &mut Context<'_>, arrival: &Arrival) -> Admission {
        match self.in_threshold {
            // Classified by a table that was published a moment later.
            true => Admission::Admit,
            false => self.careful.on_arrival(cx, arrival),
        }
    }

    fn is_by_processors(&self) -> bool {
        self.in_threshold || self.careful.is_by_processors()
    }

    fn keep_busy(&self) -> Option<u32> {
        if self.in_threshold { None } else { self.careful.keep_busy() }
    }

    fn on_outcome(&mut self, cx: &mut Context<'_>, ended: &Ended) {
        self.careful.on_outcome(cx, ended);
    }

    fn on_poll(&mut self, request: &Request) {
        self.careful.on_poll(request);
    }

    fn on_completion(&mut self, cx: &mut Context<'_>) {
        self.careful.on_completion(cx);
    }

    fn on_takeover(&mut self, cx: &mut Context<'_>) {
        self.careful.on_takeover(cx);
    }

    fn on_tick(&mut self, cx: &mut Context<'_>) {
        if self.in_threshold {
            self.threshold.on_tick(cx);
        } else {
            self.careful.on_tick(cx);
        }
    }

    fn on_timeout(&mut self, cx: &mut Context<'_>) {
        let late = self.careful.is_late(cx.now);
        self.careful.on_timeout(cx);
        self.late_rounds = if late { self.late_rounds + 1 } else { 0 };
        if self.late_rounds >= LATE_ROUNDS {
            self.switch_to_threshold(cx, format!("{LATE_ROUNDS} policing rounds in a row began a whole period late"));
        }
    }

    fn next_timeout(&self) -> Option<Timestamp> {
        self.careful.next_timeout()
    }

    fn on_report(&mut self, cx: &mut Context<'_>, report: &LoadReport) {
        let LoadReport::SentryCpu(cpu) = *report else { return };
        if cpu >= self.relief.low {
            self.calm_since = None;
        } else if self.calm_since.is_none() {
            self.calm_since = Some(cx.now);
        }
        if cpu > self.relief.high {
            self.switch_to_threshold(cx, format!("the sentry's processors are {:.0} % busy", cpu * 100.0));
        }
        let calm = self.calm_since.is_some_and(|since| cx.now.since(since) >= self.relief.hold.duration());
        if self.in_threshold && calm {
            self.switch_back(cx, format!("the sentry's processors are {:.0} % busy", cpu * 100.0));
        }
    }

    fn tell(&mut self, cx: &Context<'_>, summary: &mut Summary) {
        self.careful.tell(cx, summary);
    }

    fn on_peers(&mut self, cx: &mut Context<'_>) {
        if !self.in_threshold {
            self.careful.on_peers(cx);
        }
    }

    fn buckets(&self) -> usize {
        self.careful.buckets()
    }

    fn describe(&self, state: &mut PolicyState) {
        match self.in_threshold {
            true => self.threshold.describe(state),
            false => self.careful.describe(state),
        }
    }

    fn keep(&self, now: Timestamp, kept: &mut Kept) {
        self.careful.keep(now, kept);
        self.threshold.keep(now, kept);
        kept.put("in_threshold", f64::from(u8::from(self.in_threshold)));
    }

    fn recall(&mut self, now: Timestamp, kept: &Kept) {
        self.careful.recall(now, kept);
        self.threshold.recall(now, kept);
        self.in_threshold = kept.get("in_threshold") == Some(1.0);
    }
}

impl<P: Careful> Relieved<P> {
    fn switch_to_threshold(&mut self, cx: &mut Context<'_>, reason: String) {
        if core::mem::replace(&mut self.in_threshold, true) {
            return;
        }
        self.careful.finish(cx);
        for class in cx.class_ids() {
            cx.refuse_class(class, Reason::Threshold);
        }
        self.threshold.expire();
        self.threshold.on_tick(cx);
        self.late_rounds = 0;
        cx.say(switched(P::NAME, "threshold", reason));
    }

    fn switch_back(&mut self, cx: &mut Context<'_>, reason: String) {
        self.in_threshold = false;
        for class in cx.class_ids() {
            cx.publish(class, Share::Ask);
        }
        self.careful.resume(cx);
        cx.say(switched("threshold", P::NAME, reason));
    }
}

/// The event of a change between the parts; `reason`: the measurement that decided it.
fn switched(from: &'static str, to: &'static str, reason: String) -> Facts {
    Facts::new("policy-switched").with("from", from).with("to", to).with("reason", reason)
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;
    use crate::Decision;
    use crate::admission::testing::Bench;

    #[test]
    fn the_threshold_relieves_while_the_sentry_is_busy_and_nobody_waits_on() {
        for (policy, careful) in [("sentry", "batch"), ("waiting", "waiting")] {
            let mut bench = Bench::new(&format!(r#"{{"policy": "{policy}"}}"#));
            let mut waiting = Vec::new();
            for _ in 0..20 {
                if let Decision::Enqueue { ticket } = bench.decide(2) {
                    waiting.push(ticket);
                }
            }
            // A batch of which nothing is known is tested at once.
            assert!(policy == "sentry" || !waiting.is_empty(), "nobody waits");
            assert_eq!(bench.state().active, careful);
            bench.report(LoadReport::SentryCpu(0.9));
            assert_eq!(bench.state().active, "threshold");
            bench.refused.iter().for_each(|(ticket, _)| waiting.retain(|waits| waits != ticket));
            bench.started.iter().for_each(|ticket| waiting.retain(|waits| waits != ticket));
            assert!(waiting.is_empty(), "{policy}: {waiting:?} wait on");
            bench.report(LoadReport::SentryCpu(0.2));
            bench.advance(29_000);
            bench.report(LoadReport::SentryCpu(0.2));
            assert_eq!(bench.state().active, "threshold", "{policy}: not calm for long enough");
            bench.advance(2000);
            bench.report(LoadReport::SentryCpu(0.2));
            assert_eq!(bench.state().active, careful);
        }
    }
}
