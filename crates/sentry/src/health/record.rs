//! What the checks of a server said: counted, and the last one kept, for metrics, state and log.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};
use tidegate_engine::Timestamp;

/// What a check said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The server is well.
    Good,
    /// There is no connection to be had, or it broke.
    Unreachable(String),
    /// The check took too long.
    Timeout,
    /// It is not the server that it should be, or speaks no TLS that we do.
    Tls(String),
    /// It answered with this status.
    Status(u16),
    /// Over gRPC it says that it, or the service, does not serve.
    NotServing(&'static str),
    /// What it says is no answer.
    Garbage(String),
    /// This machine has no descriptor, port or memory left: nothing was learned of the server.
    Local(String),
}

impl Verdict {
    /// The names of all, in the order of their counts.
    pub(crate) const NAMES: [&str; 8] =
        ["good", "unreachable", "timeout", "tls", "status", "not-serving", "garbage", "local"];

    fn index(&self) -> usize {
        match self {
            Verdict::Good => 0,
            Verdict::Unreachable(_) => 1,
            Verdict::Timeout => 2,
            Verdict::Tls(_) => 3,
            Verdict::Status(_) => 4,
            Verdict::NotServing(_) => 5,
            Verdict::Garbage(_) => 6,
            Verdict::Local(_) => 7,
        }
    }

    /// Its name in metrics and state.
    pub(crate) fn name(&self) -> &'static str {
        Self::NAMES[self.index()]
    }

    /// Whether the server is well; `None`: nothing was learned of it.
    pub(crate) fn is_good(&self) -> Option<bool> {
        match self {
            Verdict::Good => Some(true),
            Verdict::Local(_) => None,
            _ => Some(false),
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Verdict::Good => f.write_str("good"),
            Verdict::Timeout => f.write_str("no answer in time"),
            Verdict::Status(status) => write!(f, "status {status}"),
            Verdict::NotServing(said) => write!(f, "it says {said}"),
            Verdict::Unreachable(why) | Verdict::Tls(why) | Verdict::Garbage(why) | Verdict::Local(why) => {
                f.write_str(why)
            }
        }
    }
}

/// Good and failed checks in a row, one of which is zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Streak {
    pub(crate) good: u32,
    pub(crate) failed: u32,
}

impl Streak {
    fn after(self, good: bool) -> Streak {
        if good {
            Streak { good: self.good.saturating_add(1), failed: 0 }
        } else {
            Streak { good: 0, failed: self.failed.saturating_add(1) }
        }
    }
}

/// What is known of a server by its checks.
#[derive(Debug, Default)]
pub(crate) struct Checks {
    counts: [AtomicU64; Verdict::NAMES.len()],
    last: Mutex<Last>,
}

#[derive(Debug, Default)]
struct Last {
    streak: Streak,
    /// What was asked, what came of it, and when.
    told: Option<(String, Verdict, Timestamp)>,
    /// The last check that failed.
    failed: Option<(Verdict, Timestamp)>,
}

impl Checks {
    /// A check ended at `now`.
    pub(crate) fn note(&self, asked: impl fmt::Display, verdict: Verdict, now: Timestamp) {
        self.counts[verdict.index()].fetch_add(1, Relaxed);
        let mut last = self.last();
        if let Some(good) = verdict.is_good() {
            last.streak = last.streak.after(good);
            if !good {
                last.failed = Some((verdict.clone(), now));
            }
        }
        last.told = Some((asked.to_string(), verdict, now));
    }

    /// How many in a row said the same.
    pub(crate) fn streak(&self) -> Streak {
        self.last().streak
    }

    /// How often each verdict came, by its name.
    pub(crate) fn counts(&self) -> impl Iterator<Item = (&'static str, u64)> {
        Verdict::NAMES.into_iter().zip(&self.counts).map(|(name, count)| (name, count.load(Relaxed)))
    }

    /// What the admin API shows at `now`; null before the first check.
    pub(crate) fn shown(&self, now: Timestamp) -> Value {
        let last = self.last();
        let Some((asked, verdict, at)) = &last.told else { return Value::Null };
        let failed = last
            .failed
            .as_ref()
            .map(|(verdict, at)| json!({ "result": verdict.name(), "why": verdict.to_string(), "age": age(now, *at) }));
        let counts: serde_json::Map<String, Value> =
            self.counts().map(|(name, count)| (name.to_owned(), count.into())).collect();
        json!({
            "asked": asked,
            "result": verdict.name(),
            "why": verdict.to_string(),
            "age": age(now, *at),
            "good_in_a_row": last.streak.good,
            "failed_in_a_row": last.streak.failed,
            "last_failed": failed,
            "counts": counts,
        })
    }

    fn last(&self) -> MutexGuard<'_, Last> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Seconds.
fn age(now: Timestamp, then: Timestamp) -> f64 {
    now.since(then).as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_streak_counts_one_kind_only() {
        let streak = Streak::default().after(true).after(true);
        assert_eq!((streak.good, streak.failed), (2, 0));
        let streak = streak.after(false);
        assert_eq!((streak.good, streak.failed), (0, 1));
    }

    #[test]
    fn what_says_nothing_of_the_server_ends_no_streak() {
        let checks = Checks::default();
        assert_eq!(checks.shown(Timestamp::ZERO), Value::Null);
        checks.note("tcp", Verdict::Status(503), Timestamp::from_nanos(1_000_000_000));
        checks.note("tcp", Verdict::Local("no descriptor".to_owned()), Timestamp::from_nanos(2_000_000_000));
        assert_eq!(checks.streak(), Streak { good: 0, failed: 1 });
        let shown = checks.shown(Timestamp::from_nanos(4_000_000_000));
        assert_eq!((&shown["result"], &shown["why"]), (&"local".into(), &"no descriptor".into()));
        assert_eq!((&shown["last_failed"]["why"], &shown["last_failed"]["age"]), (&"status 503".into(), &3.0.into()));
        assert_eq!((&shown["counts"]["status"], &shown["counts"]["good"]), (&1.into(), &0.into()));
    }
}
