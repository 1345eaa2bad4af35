//! What gRPC says of a call's end, in a head without messages or in trailers.
//!
//! *Intuition.* By HTTP every call of gRPC succeeds: the status is 200, whatever came of it. What came of it is
//! `grpc-status`. A server that is overloaded says `UNAVAILABLE` after a millisecond; that is no answer, and a
//! millisecond is not what an answer costs. *Awkward cases.* `NOT_FOUND`, `PERMISSION_DENIED` and their like are
//! answers: somebody was told what is the case. `UNKNOWN` is what most libraries make of an exception, like 500 in
//! HTTP.

use http::{HeaderMap, HeaderName};

const STATUS: HeaderName = HeaderName::from_static("grpc-status");

/// The status, where there is one.
pub(crate) fn status(fields: &HeaderMap) -> Option<u8> {
    fields.get(STATUS)?.to_str().ok()?.parse().ok()
}

/// Whether a call that ended so was not answered: `CANCELLED`, `UNKNOWN`, `DEADLINE_EXCEEDED`, `RESOURCE_EXHAUSTED`,
/// `INTERNAL`, `UNAVAILABLE`, `DATA_LOSS`.
pub(crate) const fn is_failure(status: u8) -> bool {
    matches!(status, 1 | 2 | 4 | 8 | 13..=15)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_numbers_are_statuses_and_only_some_are_failures() {
        let of = |value: &'static str| {
            status(&HeaderMap::from_iter([("grpc-status".parse().unwrap(), value.parse().unwrap())]))
        };
        assert_eq!(
            [of("0"), of("14"), of("x"), of("999"), status(&HeaderMap::new())],
            [Some(0), Some(14), None, None, None]
        );
        let failures: Vec<u8> = (0..20).filter(|status| is_failure(*status)).collect();
        assert_eq!(failures, [1, 2, 4, 8, 13, 14, 15]);
    }
}
