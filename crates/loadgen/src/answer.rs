//! What an answer says: how it went, by whom, and when to come back.

use std::time::Duration;

use http::{HeaderMap, HeaderName, StatusCode, header};

use crate::grpc;
use crate::record::Outcome;

/// How a complete answer went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Status {
    /// Status of HTTP.
    Http(u16),
    /// Status of gRPC, from the trailers; or what gRPC takes the status of HTTP for where there is none.
    Grpc(u8),
}

/// What that means to whoever asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    Admitted,
    Refused,
    Other,
}

impl Status {
    /// As HTTP would say it.
    pub(crate) fn as_http(self) -> u16 {
        match self {
            Status::Http(status) => status,
            Status::Grpc(status) => grpc::as_http(status),
        }
    }

    /// Refused is 503 of HTTP and `UNAVAILABLE` of gRPC, whoever says it; and whatever a sentry calls a refusal.
    pub(crate) fn verdict(self, by_sentry: bool) -> Verdict {
        match self.as_http() {
            503 => Verdict::Refused,
            _ if by_sentry => Verdict::Refused,
            200..=399 => Verdict::Admitted,
            _ => Verdict::Other,
        }
    }
}

/// The beginning of an answer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Head {
    status: Status,
    by_sentry: bool,
    waited: Duration,
    retry_after: Option<Duration>,
    /// It goes on as things happen: by its content type, or because an emulated server says so.
    pub(crate) stays_open: bool,
}

impl Head {
    pub(crate) fn http(status: StatusCode, headers: &HeaderMap) -> Head {
        let is_events = |value: &http::HeaderValue| value.as_bytes().starts_with(b"text/event-stream");
        let lasts = headers.contains_key(LASTS) || headers.get(header::CONTENT_TYPE).is_some_and(is_events);
        Head {
            status: Status::Http(status.as_u16()),
            by_sentry: is_by_sentry(headers),
            waited: seconds(headers, WAITED),
            retry_after: Some(seconds(headers, header::RETRY_AFTER)),
            stays_open: status.is_success() && lasts,
        }
    }

    /// The status may be here already, where nothing follows.
    pub(crate) fn grpc(status: StatusCode, headers: &HeaderMap) -> Head {
        let said = grpc::status(headers).unwrap_or_else(|| grpc::of_http(status.as_u16()));
        Head { status: Status::Grpc(said), retry_after: grpc::pushback(headers), ..Head::http(status, headers) }
    }

    /// What the end of a gRPC answer adds; without a status it was cut off.
    pub(crate) fn end(&mut self, trailers: Option<&HeaderMap>) {
        let said = trailers.and_then(grpc::status);
        self.status = Status::Grpc(said.unwrap_or(grpc::UNKNOWN));
        if let Some(trailers) = trailers {
            self.retry_after = grpc::pushback(trailers);
            self.by_sentry |= is_by_sentry(trailers);
        }
    }

    pub(crate) fn outcome(self, bytes: u64) -> Outcome {
        let Head { status, by_sentry, waited, retry_after, .. } = self;
        Outcome::Answered { status, by_sentry, bytes, waited, retry_after }
    }
}

fn is_by_sentry(headers: &HeaderMap) -> bool {
    headers.get("tidegate-decision").is_some_and(|value| value.as_bytes().starts_with(b"rejected"))
}

/// A field that holds seconds; zero when it does not.
fn seconds(headers: &HeaderMap, name: HeaderName) -> Duration {
    let value = headers.get(name).and_then(|value| value.to_str().ok()?.trim().parse().ok());
    value.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()).unwrap_or_default()
}

const WAITED: HeaderName = HeaderName::from_static("x-waited");
const LASTS: HeaderName = HeaderName::from_static("x-lasts");

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(fields: &[(&'static str, &'static str)]) -> HeaderMap {
        let field = |(name, value): &(&'static str, &'static str)| {
            (HeaderName::from_static(name), http::HeaderValue::from_static(value))
        };
        fields.iter().map(field).collect()
    }

    fn read(head: Head) -> (u16, Verdict, Option<u64>) {
        let Outcome::Answered { status, by_sentry, retry_after, .. } = head.outcome(0) else { unreachable!() };
        (status.as_http(), status.verdict(by_sentry), retry_after.map(|after| after.as_millis() as u64))
    }

    #[test]
    fn refusals_of_both_kinds_are_told_from_answers_and_mistakes() {
        let rejected = ("tidegate-decision", "rejected; reason=sla-target");
        let http = |status, fields: &[_]| read(Head::http(StatusCode::from_u16(status).unwrap(), &headers(fields)));
        assert_eq!(http(200, &[]), (200, Verdict::Admitted, Some(0)));
        assert_eq!(http(503, &[("retry-after", "2"), rejected]), (503, Verdict::Refused, Some(2000)));
        assert_eq!(http(429, &[rejected]).1, Verdict::Refused, "a sentry may be told to say so");
        assert_eq!(http(429, &[]).1, Verdict::Other);
        let grpc = |status, fields: &[_]| read(Head::grpc(StatusCode::from_u16(status).unwrap(), &headers(fields)));
        let pushed = [("grpc-status", "14"), ("grpc-retry-pushback-ms", "1500"), rejected];
        assert_eq!(grpc(200, &pushed), (503, Verdict::Refused, Some(1500)));
        let late = [("grpc-status", "4"), ("grpc-retry-pushback-ms", "-1"), rejected];
        assert_eq!(grpc(200, &late), (504, Verdict::Refused, None), "and not to come again");
        assert_eq!(grpc(200, &[("grpc-status", "13")]).1, Verdict::Other);
        assert_eq!(grpc(503, &[]), (503, Verdict::Refused, Some(0)), "a proxy that speaks no gRPC");
        assert_eq!(grpc(404, &[]), (501, Verdict::Other, Some(0)));
    }

    #[test]
    fn a_call_is_what_its_trailers_say_and_nothing_without() {
        let head = Head::grpc(StatusCode::OK, &headers(&[("content-type", "application/grpc")]));
        let ended = |trailers: Option<&HeaderMap>| {
            let mut head = head;
            head.end(trailers);
            read(head)
        };
        assert_eq!(ended(Some(&headers(&[("grpc-status", "0")]))), (200, Verdict::Admitted, Some(0)));
        assert_eq!(ended(Some(&headers(&[("grpc-status", "14")]))).1, Verdict::Refused);
        assert_eq!(ended(None), (500, Verdict::Other, Some(0)));
    }
}
