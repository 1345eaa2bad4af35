//! Whether a client tries again, and after how long.

use std::time::Duration;

use tidegate_workload::{Retry, Rng, Wait, uniform};

use crate::record::Outcome;

/// How long to wait before the next try; `None`: it was answered, or never sent.
pub(crate) fn wait(retry: &Retry, outcome: Outcome, rng: &mut Rng) -> Option<Duration> {
    let told = match outcome {
        Outcome::Answered { status: 200..=399, .. } | Outcome::OutstandingLimit | Outcome::ConnectionLimit => {
            return None;
        }
        Outcome::Answered { retry_after, .. } => retry_after,
        Outcome::Failed(_) => Duration::ZERO,
    };
    let wait = match retry.wait {
        Wait::AtOnce => Duration::ZERO,
        Wait::RetryAfter => told,
        Wait::Own => Duration::from_secs_f64(retry.time.map_or(0.0, |time| time.sample(rng))),
    };
    Some(wait.mul_f64(1.0 + retry.jitter * uniform(rng)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::ErrorKind;
    use tidegate_workload::{ServiceTime, rng};

    fn answered(status: u16, after: u64) -> Outcome {
        let (waited, retry_after) = (Duration::ZERO, Duration::from_secs(after));
        Outcome::Answered { status, by_sentry: false, bytes: 0, waited, retry_after }
    }

    #[test]
    fn who_is_answered_is_content_and_others_wait_as_they_do() {
        let time = Some(ServiceTime::constant(2.0).expect("not negative"));
        let retry = |wait| Retry { tries: 3, wait, time, jitter: 0.0, says: false };
        let wait = |kind, outcome| wait(&retry(kind), outcome, &mut rng(1, 0)).map(|wait| wait.as_secs());
        for kind in [Wait::AtOnce, Wait::RetryAfter, Wait::Own] {
            assert_eq!((wait(kind, answered(200, 5)), wait(kind, Outcome::ConnectionLimit)), (None, None));
        }
        assert_eq!(wait(Wait::RetryAfter, answered(503, 5)), Some(5));
        assert_eq!(wait(Wait::RetryAfter, Outcome::Failed(ErrorKind::Timeout)), Some(0));
        assert_eq!(wait(Wait::AtOnce, answered(503, 5)), Some(0));
        assert_eq!(wait(Wait::Own, answered(503, 5)), Some(2));
    }
}
