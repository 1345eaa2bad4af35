//! Who takes part: policies with nothing to set, and others with the knobs that are tried out in every arena.

use serde_json::json;
use tidegate_engine::AdmissionConfig;

use super::arena::Arena;

/// A policy, and the settings among which it may choose.
#[derive(Clone, Debug)]
pub struct Contestant {
    /// The policy's name.
    pub name: String,
    /// The settings; the best in an arena's training runs is the one that is judged there.
    pub knobs: Vec<Knob>,
}

/// One setting of a policy.
#[derive(Clone, Debug)]
pub struct Knob {
    /// What is set, for the tables; empty: nothing.
    pub text: String,
    /// The policy with it.
    pub policy: AdmissionConfig,
}

/// Limits that are tried, as multiples of the processors that there really are.
const LIMITS: [f64; 5] = [1.0, 1.25, 2.0, 3.0, 5.0];
/// Longest waits that are tried, as parts of the target.
const WAITS: [f64; 3] = [0.2, 0.4, 0.7];
/// Targets that are tried, as parts of the real one, where a policy promises more than it holds.
const TARGETS: [f64; 3] = [0.7, 0.85, 1.0];
/// By how much more than they hold servers are tried with, in `brpc`.
const EXPLORES: [f64; 3] = [0.1, 0.3, 1.0];
/// Uses of the processors that `bbr` is to stay below.
const THRESHOLDS: [f64; 3] = [0.8, 0.9, 0.95];
/// Queues from which on `failsafe` refuses, in limits.
const QUEUES: [f64; 3] = [1.0, 2.0, 4.0];
/// By how much answers may be slower than usual, in `netflix-partition`.
const TOLERANCES: [f64; 3] = [1.0, 1.5, 2.0];
/// A queue that only its time-out bounds.
const LONG_QUEUE: u32 = 100_000;

/// Policies that take part unless others are named.
pub const DEFAULT: [&str; 7] = ["sentry", "waiting", "concurrency", "codel", "aimd-limit", "gradient", "gradient2"];

/// A policy with what it may be set to in an arena; `None`: there is no such policy.
pub fn contestant(name: &str, arena: &Arena) -> Option<Contestant> {
    let plain = AdmissionConfig::from_name(name)?;
    let target = arena.target.as_secs_f64();
    let limits = LIMITS.map(|times| (times * arena.all_processors()).ceil().max(1.0) as u32);
    let knobs = match name {
        "concurrency" => grid(&limits, &WAITS, |limit, wait| {
            let wait = format!("{:.3}ms", wait * target * 1e3);
            json!({ "policy": name, "limit": limit, "queue": LONG_QUEUE, "queue_timeout": wait })
        }),
        "codel" => grid(&limits, &WAITS, |limit, wait| {
            let (target, interval) = (format!("{:.3}ms", wait * target * 1e3), format!("{:.3}ms", target * 1e3));
            json!({ "policy": name, "limit": limit, "target": target, "interval": interval })
        }),
        "aimd-limit" => grid(&limits, &[0.5, 1.0], |limit, wait| {
            let timeout = format!("{:.3}ms", wait * target * 1e3);
            json!({ "policy": name, "initial_limit": limit, "min_limit": 1, "max_limit": 4 * limit, "timeout": timeout })
        }),
        "bouncer" => grid(&limits[..3], &TARGETS, |limit, share| {
            let target = format!("{:.3}ms", share * target * 1e3);
            json!({ "policy": name, "parallelism": limit, "target": target })
        }),
        "brpc" => {
            let all = limits.iter().flat_map(|limit| EXPLORES.map(|explore| (limit, explore)));
            let known = |(limit, explore)| {
                let policy = json!({ "policy": name, "min_limit": limit, "initial_limit": 4 * limit,
                    "min_samples": 20, "max_explore": explore });
                knob(format!("{limit}, explores {explore}"), policy)
            };
            all.map(known).collect()
        }
        "bbr" => {
            let all = THRESHOLDS.iter().flat_map(|threshold| [(threshold, 0.1), (threshold, 1.0)]);
            let all = all.flat_map(|(threshold, least)| [(threshold, least, 0.95), (threshold, least, 0.5)]);
            let known = |(threshold, least, smoothing)| {
                let policy = json!({ "policy": name, "cpu_threshold": threshold, "least_share": least,
                    "cpu_smoothing": smoothing });
                knob(format!("{threshold}, least {least}, keeps {smoothing}"), policy)
            };
            all.map(known).collect()
        }
        "failsafe" => {
            let all = limits.iter().flat_map(|limit| QUEUES.map(|queue| (limit, queue)));
            let known = |(limit, queue): (&u32, f64)| {
                let policy = json!({ "policy": name, "initial_limit": limit, "max_limit": limit * 2,
                    "min_samples": 20, "initial_rejection_factor": queue, "max_rejection_factor": queue + 1.0 });
                knob(format!("{limit}, queue {queue}"), policy)
            };
            all.map(known).collect()
        }
        "netflix-partition" => {
            let all = limits.iter().flat_map(|limit| TOLERANCES.map(|tolerance| (limit, tolerance)));
            let known = |(limit, tolerance)| {
                let limits = json!({ "initial_limit": limit, "min_limit": 1, "max_limit": limit * 4,
                    "rtt_tolerance": tolerance });
                knob(format!("{limit}, tolerates {tolerance}"), json!({ "policy": name, "limit": limits }))
            };
            all.map(known).collect()
        }
        _ => Vec::new(),
    };
    let plain = Knob { text: String::new(), policy: plain };
    Some(Contestant { name: name.into(), knobs: if knobs.is_empty() { vec![plain] } else { knobs } })
}

fn grid(limits: &[u32], waits: &[f64], policy: impl Fn(u32, f64) -> serde_json::Value) -> Vec<Knob> {
    let all = limits.iter().flat_map(|limit| waits.iter().map(move |wait| (*limit, *wait)));
    all.map(|(limit, wait)| knob(format!("{limit}, {wait} R"), policy(limit, wait))).collect()
}

fn knob(text: String, policy: serde_json::Value) -> Knob {
    let policy = serde_json::from_value(policy.clone()).unwrap_or_else(|error| unreachable!("{policy}: {error}"));
    Knob { text, policy }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Other systems' controllers, which take part when they are named.
    const RIVALS: [&str; 5] = ["bouncer", "brpc", "bbr", "failsafe", "netflix-partition"];

    #[test]
    fn all_that_take_part_can_be_built_in_every_arena() {
        for arena in super::super::arenas::known() {
            for name in DEFAULT.into_iter().chain(RIVALS) {
                let contestant = contestant(name, &arena).expect(name);
                for knob in contestant.knobs {
                    arena
                        .world(knob.policy)
                        .setup
                        .check()
                        .unwrap_or_else(|error| panic!("{name} {}: {error}", knob.text));
                }
            }
        }
        assert!(contestant("nobody", &super::super::arenas::known()[0]).is_none());
    }
}
