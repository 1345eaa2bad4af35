//! Whether a client tries again, and after how long.

use std::time::Duration;

use http::{HeaderName, HeaderValue};
use tidegate_workload::{Retry, Rng, Wait, uniform};

use crate::answer::Verdict;
use crate::grpc::PREVIOUS_ATTEMPTS;
use crate::plan::ATTEMPT;
use crate::protocol::Protocol;
use crate::record::Outcome;

/// How long to wait before the next try; `None`: it was answered, or never sent, or the service wants no other try.
pub(crate) fn wait(retry: &Retry, outcome: Outcome, rng: &mut Rng) -> Option<Duration> {
    let told = match outcome {
        Outcome::Answered { status, by_sentry, .. } if status.verdict(by_sentry) == Verdict::Admitted => return None,
        Outcome::OutstandingLimit | Outcome::ConnectionLimit => return None,
        Outcome::Answered { retry_after, .. } => match (retry_after, retry.wait) {
            (None, Wait::RetryAfter) => return None,
            (told, _) => told.unwrap_or_default(),
        },
        Outcome::Failed(_) => Duration::ZERO,
    };
    let wait = match retry.wait {
        Wait::AtOnce => Duration::ZERO,
        Wait::RetryAfter => told,
        Wait::Own => Duration::from_secs_f64(retry.time.map_or(0.0, |time| time.sample(rng))),
    };
    Some(wait.mul_f64(1.0 + retry.jitter * uniform(rng)))
}

/// The field in which a client says which try comes next, where it says so. Clients of gRPC always do.
pub(crate) fn said(protocol: Protocol, retry: &Retry, tries: u32) -> Option<(HeaderName, HeaderValue)> {
    match protocol {
        Protocol::Grpc => Some((PREVIOUS_ATTEMPTS, tries.saturating_sub(1).into())),
        _ => retry.says.then(|| (ATTEMPT, tries.into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answer::Status;
    use crate::report::ErrorKind;
    use tidegate_workload::{ServiceTime, rng};

    fn answered(status: u16, after: impl Into<Option<u64>>) -> Outcome {
        let (status, retry_after) = (Status::Http(status), after.into().map(Duration::from_secs));
        Outcome::Answered { status, by_sentry: false, bytes: 0, waited: Duration::ZERO, retry_after }
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
        assert_eq!(wait(Wait::RetryAfter, answered(503, None)), None, "it was told not to");
        assert_eq!(wait(Wait::AtOnce, answered(503, 5)), Some(0));
        assert_eq!(wait(Wait::Own, answered(503, 5)), Some(2));
    }
}
