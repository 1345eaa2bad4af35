//! History of the updates, and the rates that follow from them.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::state::{Application, State};

/// Looks kept: what the lines of the picture show.
const KEPT: usize = 300;
/// Rates are over so long.
const WINDOW: Duration = Duration::from_secs(5);

/// States, newest last.
#[derive(Debug, Default)]
pub(super) struct Trail {
    looks: VecDeque<(Instant, State)>,
}

/// Requests per second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Rates {
    pub offered: f64,
    pub admitted: f64,
    pub rejected: f64,
    pub goodput: f64,
}

/// Counters since the sentry's start.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    offered: u64,
    admitted: u64,
    rejected: u64,
    in_target: u64,
}

impl Trail {
    /// Adds a look. One at a sentry that was started anew forgets those before.
    pub(super) fn take(&mut self, state: State, now: Instant) {
        if self.looks.back().is_some_and(|(_, last)| last.uptime > state.uptime) {
            self.looks.clear();
        }
        self.looks.push_back((now, state));
        if self.looks.len() > KEPT {
            self.looks.pop_front();
        }
    }

    pub(super) fn last(&self) -> Option<&State> {
        self.looks.back().map(|(_, state)| state)
    }

    pub(super) fn names(&self) -> Vec<String> {
        let state = self.last().into_iter();
        state.flat_map(|state| &state.applications).map(|application| application.application.clone()).collect()
    }

    /// Rates of an application's class over the last seconds, or of all of them.
    pub(super) fn rates(&self, application: &str, class: Option<&str>) -> Rates {
        let (Some((to, _)), Some(from)) = (self.looks.back(), self.window_start()) else { return Rates::default() };
        self.between(from, self.looks.len() - 1, to.duration_since(self.looks[from].0), application, class)
    }

    /// The share of all refusals of the last seconds that each reason has, the most frequent first.
    pub(super) fn reasons(&self, application: &str) -> Vec<(String, f64)> {
        let Some(from) = self.window_start() else { return Vec::new() };
        let at = |look: usize| {
            let found = find(&self.looks[look].1, application);
            found.map(|application| application.classes.iter().flat_map(|class| class.rejected.iter().cloned()))
        };
        let (Some(now), Some(before)) = (at(self.looks.len() - 1), at(from)) else { return Vec::new() };
        let mut counts: Vec<(String, f64)> = Vec::new();
        let signed = now.map(|(reason, count)| (reason, count as f64));
        for (reason, count) in signed.chain(before.map(|(reason, count)| (reason, -(count as f64)))) {
            match counts.iter_mut().find(|(known, _)| *known == reason) {
                Some((_, total)) => *total += count,
                None => counts.push((reason, count)),
            }
        }
        counts.retain(|(_, count)| *count > 0.0);
        let total: f64 = counts.iter().map(|(_, count)| count).sum();
        counts.iter_mut().for_each(|(_, count)| *count /= total);
        counts.sort_by(|a, b| b.1.total_cmp(&a.1));
        counts
    }

    /// Rates from look to look, oldest first.
    pub(super) fn history(&self, application: &str) -> Vec<Rates> {
        let pairs = 1..self.looks.len();
        let span = |to: usize| self.looks[to].0.duration_since(self.looks[to - 1].0);
        pairs.map(|to| self.between(to - 1, to, span(to), application, None)).collect()
    }

    /// The look that the window starts with; `None` while there is but one.
    fn window_start(&self) -> Option<usize> {
        let (last, _) = self.looks.back()?;
        let recent = |(at, _): &(Instant, State)| last.duration_since(*at) <= WINDOW;
        let first = self.looks.iter().position(recent)?;
        // Looks may be further apart than the window.
        let first = first.min(self.looks.len().checked_sub(2)?);
        Some(first)
    }

    fn between(&self, from: usize, to: usize, span: Duration, application: &str, class: Option<&str>) -> Rates {
        let counts = |look: usize| counts(&self.looks[look].1, application, class);
        let (before, now) = (counts(from), counts(to));
        let rate = |before: u64, now: u64| now.saturating_sub(before) as f64 / span.as_secs_f64().max(1e-3);
        Rates {
            offered: rate(before.offered, now.offered),
            admitted: rate(before.admitted, now.admitted),
            rejected: rate(before.rejected, now.rejected),
            goodput: rate(before.in_target, now.in_target),
        }
    }
}

fn find<'a>(state: &'a State, name: &str) -> Option<&'a Application> {
    state.applications.iter().find(|application| application.application == name)
}

fn counts(state: &State, application: &str, class: Option<&str>) -> Counts {
    let classes = find(state, application).into_iter().flat_map(|application| &application.classes);
    let wanted = classes.filter(|known| class.is_none_or(|class| known.name == class));
    wanted.fold(Counts::default(), |sum, class| Counts {
        offered: sum.offered + class.offered,
        admitted: sum.admitted + class.admitted,
        rejected: sum.rejected + class.rejected.iter().map(|(_, count)| count).sum::<u64>(),
        in_target: sum.in_target + class.in_target,
    })
}

#[cfg(test)]
pub(super) mod tests {
    use serde_json::json;

    use super::*;

    /// A sentry with two classes after `uptime` seconds of 10 and 100 requests/s, of which the second is refused from
    /// the tenth second on.
    pub(in super::super) fn state(uptime: u64) -> State {
        let class = |name: &str, offered: u64, refused: u64| {
            json!({
                "name": name, "offered": offered, "admitted": offered - refused, "guaranteed": 0,
                "rejected": if refused == 0 { json!([]) } else { json!([["threshold", refused - 1], ["sla-target", 1]]) },
                "completed": offered - refused, "in_target": offered - refused, "failed": 0, "cancelled": 0,
                "in_flight": 3, "waiting": 1, "offered_rate": 1.0, "mean_cost": 0.02,
                "p50": 0.1, "p95": 0.4, "p99": null, "statistic": 0.4, "min_rate": 0.0,
            })
        };
        let server = |name: &str, status: &str| {
            json!({ "name": name, "status": status, "in_flight": 2, "processors": 1.5, "learned": true,
                    "confidence": 9.0, "measures_costs": false, "address": "127.0.0.1:1" })
        };
        let value = json!({
            "version": "0.1.0", "uptime": uptime as f64, "draining": false, "cpus_busy": 0.25, "reloads": 0,
            "applications": [{
                "application": "shop", "statistic": "p95", "target": 0.5, "shadow": false, "in_flight": 6, "waiting": 2,
                "processors": 3.0, "policy": { "policy": "sentry", "active": "batch", "limit": null, "threshold": null },
                "dispatch": "jsq",
                "classes": [class("gold", 10 * uptime, 0), class("rest", 100 * uptime, 100 * uptime.saturating_sub(10))],
                "servers": [server("s0", "up"), server("s1", "down")],
            }],
        });
        serde_json::from_value(value).expect("a state")
    }

    pub(in super::super) fn trail(seconds: std::ops::Range<u64>) -> Trail {
        let (mut trail, start) = (Trail::default(), Instant::now());
        seconds.for_each(|second| trail.take(state(second), start + Duration::from_secs(second)));
        trail
    }

    #[test]
    fn rates_are_of_the_last_five_seconds() {
        let trail = trail(1..31);
        let all = trail.rates("shop", None);
        assert_eq!(all, Rates { offered: 110.0, admitted: 10.0, rejected: 100.0, goodput: 10.0 });
        assert_eq!(trail.rates("shop", Some("gold")).rejected, 0.0);
        assert_eq!(trail.rates("nobody", None), Rates::default());
        assert_eq!(trail.history("shop").len(), 29);
        assert_eq!(trail.history("shop")[0].rejected, 0.0, "the first seconds");
        assert_eq!(trail.reasons("shop"), [("threshold".to_owned(), 1.0)], "what came before the window is not in it");
    }

    #[test]
    fn a_sentry_started_anew_begins_a_new_trail() {
        let mut trail = trail(20..25);
        trail.take(state(1), Instant::now() + Duration::from_secs(60));
        assert_eq!(trail.rates("shop", None), Rates::default());
        assert_eq!(trail.history("shop"), []);
    }
}
