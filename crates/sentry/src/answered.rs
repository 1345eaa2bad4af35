//! What an answer says: that it is one, that its server failed, or that a service further down refused the request.
//!
//! *Intuition.* A server that calls another service, and is refused there, has done its work for nothing. It is not
//! broken: its siblings would have failed likewise. *Applied.* A sentry's refusals carry `Tidegate-Decision: rejected`.
//! A server that passes the field on with an error of its own says by it what became of its call; one that is a sentry,
//! or behind one, says so anyway. Such an answer is held against no server and teaches no cost, and fewer of its kind
//! are let in; how many is the engine's business (`engine/src/below.rs`).
//!
//! *Awkward cases.* The field with an answer that is no failure means nothing: somebody coped without the other
//! service. A service that has no server is down, not busy: a sentry that said so of each request, and were not blamed,
//! would draw them all. Some refusals are about one request, its deadline for example, or about who sent it: others of
//! its kind are not refused for them, or anybody could have others' requests refused. Of gRPC the field may come in the
//! head, and the status behind it in the trailers.

use http::{HeaderMap, HeaderValue};
use tidegate_engine::{Outcome, Reason};

use crate::grpc;
use crate::record::RecordEnd;
use crate::reject::DECISION;

/// What became of a request, by its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answered {
    /// It was answered, if only with what it cannot have.
    Well,
    /// Its server failed.
    Badly,
    /// A service further down refused it.
    RefusedBelow(Refusal),
}

/// A refusal further down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// Others of its kind would be refused, too.
    OfItsKind,
    /// It was refused for a reason of its own.
    OfItsOwn(Reason),
}

/// Reasons that say nothing of other requests.
const OWN: [Reason; 4] = [Reason::Deadline, Reason::FirstTriesFirst, Reason::TenantShare, Reason::TenantLimit];

impl Answered {
    /// What an answer says by its status. `told`: by the field of a sentry, where it has it; `refused_below`: statuses
    /// that say so without the field.
    pub(crate) fn of(status: u16, told: Option<Refusal>, refused_below: &[u16]) -> Self {
        match told {
            Some(refusal) if status >= 500 || status == 429 => Answered::RefusedBelow(refusal),
            _ if refused_below.contains(&status) => Answered::RefusedBelow(told.unwrap_or(Refusal::OfItsKind)),
            _ if status >= 500 => Answered::Badly,
            _ => Answered::Well,
        }
    }

    /// The same once it is known what gRPC says of its end, if anything.
    pub(crate) fn with_grpc(self, status: Option<u8>, told: Option<Refusal>) -> Self {
        match self {
            Answered::Well if status.is_some_and(grpc::is_failure) => {
                told.map_or(Answered::Badly, Answered::RefusedBelow)
            }
            _ => self,
        }
    }

    /// What refused it, if that was a service further down.
    pub(crate) fn refusal(self) -> Option<Refusal> {
        if let Answered::RefusedBelow(refusal) = self { Some(refusal) } else { None }
    }

    /// What the engine is told, but for times and sizes.
    pub(crate) fn outcome(self) -> Outcome {
        match self {
            Answered::Well => Outcome::answered(),
            Answered::RefusedBelow(Refusal::OfItsKind) => Outcome::refused_below(),
            Answered::Badly | Answered::RefusedBelow(Refusal::OfItsOwn(_)) => Outcome::failed(),
        }
    }

    /// What the log is told, once all of it is here.
    pub(crate) fn end(self) -> RecordEnd {
        match self {
            Answered::Well | Answered::Badly => RecordEnd::Complete,
            Answered::RefusedBelow(_) => RecordEnd::RefusedBelow,
        }
    }
}

impl Refusal {
    /// What the field of a sentry says among others, if it is there and says that a request was refused.
    pub(crate) fn among(headers: &HeaderMap) -> Option<Self> {
        headers.get(DECISION).and_then(Self::read)
    }

    /// What the field says: `rejected; reason=...; ...`. A reason that is not known is the service's own. Who has no
    /// server has failed, and refuses nothing.
    pub(crate) fn read(field: &HeaderValue) -> Option<Self> {
        let mut parts = field.as_bytes().split(|byte| *byte == b';').map(<[u8]>::trim_ascii);
        if parts.next() != Some(b"rejected") {
            return None;
        }
        let named = parts.find_map(|part| part.strip_prefix(b"reason="));
        let is = |reason: &Reason| named == Some(reason.name().as_bytes());
        let own = OWN.into_iter().find(is);
        (!is(&Reason::NoServer)).then(|| own.map_or(Refusal::OfItsKind, Refusal::OfItsOwn))
    }

    /// The reason that whoever asked is told, so that it understands the same.
    pub(crate) fn reason(self) -> Reason {
        match self {
            Refusal::OfItsKind => Reason::RefusedBelow,
            Refusal::OfItsOwn(reason) => reason,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIND: Refusal = Refusal::OfItsKind;
    const LATE: Refusal = Refusal::OfItsOwn(Reason::Deadline);

    fn read(field: &'static str) -> Option<Refusal> {
        Refusal::read(&HeaderValue::from_static(field))
    }

    #[test]
    fn the_field_says_whether_others_would_be_refused_too() {
        for kind in ["rejected", "rejected; reason=sla-target; policy=waiting; class=rest", "rejected;reason=busy"] {
            assert_eq!(read(kind), Some(KIND), "{kind}");
        }
        assert_eq!(read("rejected; reason=refused-below; class=\"a; reason=deadline\""), Some(KIND));
        assert_eq!(read("rejected; reason=deadline; policy=none; class=rest"), Some(LATE));
        for own in OWN {
            let field = HeaderValue::from_str(&format!("rejected; reason={}", own.name())).expect("a value");
            assert_eq!(Refusal::read(&field).map(Refusal::reason), Some(own));
        }
        let down = "rejected; reason=no-server; policy=waiting; class=rest";
        for other in ["admitted; class=rest", "cancelled; reason=runaway", "rejectedly; reason=deadline", down, ""] {
            assert_eq!(read(other), None, "{other}");
        }
    }

    #[test]
    fn only_failures_are_refusals_further_down() {
        for status in [500, 502, 503, 504, 429] {
            assert_eq!(Answered::of(status, Some(LATE), &[]), Answered::RefusedBelow(LATE), "{status}");
        }
        for status in [200, 301, 400, 403, 404] {
            assert_eq!(Answered::of(status, Some(KIND), &[]), Answered::Well, "{status}");
        }
        assert_eq!((Answered::of(503, None, &[]), Answered::of(429, None, &[])), (Answered::Badly, Answered::Well));
        for status in [503, 429, 420] {
            let listed = [503, 429, 420];
            assert_eq!(Answered::of(status, None, &listed), Answered::RefusedBelow(KIND), "{status}");
            assert_eq!(Answered::of(status, Some(LATE), &listed), Answered::RefusedBelow(LATE), "{status}");
        }
    }

    #[test]
    fn of_grpc_the_status_in_the_trailers_counts() {
        let well = Answered::of(200, Some(KIND), &[]);
        assert_eq!(well.with_grpc(None, Some(KIND)), Answered::Well);
        assert_eq!([0, 5].map(|status| well.with_grpc(Some(status), Some(KIND))), [Answered::Well; 2]);
        assert_eq!(well.with_grpc(Some(14), None), Answered::Badly);
        for status in [4, 8, 14] {
            assert_eq!(well.with_grpc(Some(status), Some(KIND)), Answered::RefusedBelow(KIND), "{status}");
        }
    }

    #[test]
    fn only_what_is_of_its_kind_is_taken_for_one() {
        let outcome = |refusal| Answered::RefusedBelow(refusal).outcome();
        assert_eq!((outcome(KIND), outcome(LATE)), (Outcome::refused_below(), Outcome::failed()));
        assert_eq!(Answered::RefusedBelow(LATE).end().name(), "refused-below");
    }
}
