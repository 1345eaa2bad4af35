//! What a request says of its time and of its tries: how long its client waits for the answer, and whether it was tried
//! before.
//!
//! Anybody may say so. A deadline makes a refusal earlier and nothing else, and who says that it comes again stands
//! back: neither is worth a lie. Leaving it out is the ordinary case: no deadline, a first try. So repetitions are also
//! known by the ids that clients give their requests ([`Classifier::repeat_key`]).

use alloc::format;
use alloc::string::String;
use core::hash::Hasher;
use core::time::Duration;

use tidegate_engine::{Request, units};

use super::{Classifier, RequestView};

/// gRPC's: at most eight digits and a unit (gRPC over HTTP/2, "Timeout").
pub const GRPC_TIMEOUT: &str = "grpc-timeout";
/// Envoy's: whole milliseconds, said by an Envoy to what is behind it.
pub const ENVOY_TIMEOUT: &str = "x-envoy-expected-rq-timeout-ms";

/// Where a request says how long its client waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadlineBy {
    /// Whether [`GRPC_TIMEOUT`] and [`ENVOY_TIMEOUT`] are read.
    pub well_known: bool,
    /// A header of the service's own.
    pub own: Option<OwnDeadline>,
}

/// A header of the service's own that says how long the client waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnDeadline {
    /// Its name, in lower case.
    pub header: String,
    /// What a number without a unit counts: a second, a millisecond.
    pub unit: Duration,
}

impl Default for DeadlineBy {
    fn default() -> Self {
        DeadlineBy { well_known: true, own: None }
    }
}

impl DeadlineBy {
    /// The headers that are read.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let well_known = [GRPC_TIMEOUT, ENVOY_TIMEOUT].into_iter().filter(|_| self.well_known);
        well_known.chain(self.own.iter().map(|own| own.header.as_str()))
    }

    /// How long the client waits: the least of what is said. What cannot be read is not said.
    pub fn time_left(&self, view: &impl RequestView) -> Option<Duration> {
        let said = |name: &str, read: &dyn Fn(&[u8]) -> Option<Duration>| read(view.header(name)?.trim_ascii());
        let well_known = |name, read| if self.well_known { said(name, read) } else { None };
        let own = self.own.as_ref().and_then(|own| said(&own.header, &|value| own.read(value)));
        let all = [well_known(GRPC_TIMEOUT, &read_grpc), well_known(ENVOY_TIMEOUT, &read_envoy), own];
        all.into_iter().flatten().min()
    }
}

impl OwnDeadline {
    /// A number of [`OwnDeadline::unit`], or a time with its unit (`250ms`). 0 is no deadline: so some clients say it.
    pub fn read(&self, value: &[u8]) -> Option<Duration> {
        let text = core::str::from_utf8(value).ok()?;
        let plain = || text.parse::<f64>().ok().filter(|number| number.is_finite() && *number >= 0.0);
        let time = match units::parse_duration(text) {
            Ok(time) => time,
            Err(_) => Duration::try_from_secs_f64(plain()? * self.unit.as_secs_f64()).ok()?,
        };
        (!time.is_zero()).then_some(time)
    }

    /// `left` in the words of `value`.
    pub fn write(&self, value: &[u8], left: Duration) -> String {
        let is_plain = core::str::from_utf8(value).is_ok_and(|text| text.parse::<f64>().is_ok());
        match is_plain {
            true => format!("{}", left.as_nanos() / self.unit.as_nanos().max(1)),
            false => format!("{}ms", left.as_millis()),
        }
    }
}

/// A value of [`GRPC_TIMEOUT`]. 0 is a deadline that has passed.
pub fn read_grpc(value: &[u8]) -> Option<Duration> {
    let (unit, digits) = value.split_last()?;
    let nanos = match unit {
        b'H' => 3_600_000_000_000,
        b'M' => 60_000_000_000,
        b'S' => 1_000_000_000,
        b'm' => 1_000_000,
        b'u' => 1_000,
        b'n' => 1,
        _ => return None,
    };
    let number = read_digits(digits, 8)?;
    Some(Duration::from_nanos(number.saturating_mul(nanos)))
}

/// `left` as a value of [`GRPC_TIMEOUT`], in the finest unit that holds it.
pub fn write_grpc(left: Duration) -> String {
    const MOST: u128 = 99_999_999;
    let nanos = left.as_nanos();
    let units = [(1_000, 'u'), (1_000_000, 'm'), (1_000_000_000, 'S'), (60_000_000_000, 'M')];
    let fitting = units.into_iter().find(|(size, _)| nanos / size <= MOST);
    let (size, unit) = fitting.unwrap_or((3_600_000_000_000, 'H'));
    format!("{}{unit}", (nanos / size).min(MOST))
}

/// A value of [`ENVOY_TIMEOUT`]. 0 is no deadline, as Envoy has it for time-outs.
pub fn read_envoy(value: &[u8]) -> Option<Duration> {
    read_digits(value, 18).filter(|&millis| millis > 0).map(Duration::from_millis)
}

fn read_digits(digits: &[u8], most: usize) -> Option<u64> {
    let is_number = !digits.is_empty() && digits.len() <= most && digits.iter().all(u8::is_ascii_digit);
    is_number.then(|| digits.iter().fold(0, |number, digit| number * 10 + u64::from(digit - b'0')))
}

impl Classifier {
    /// How long a request's client waits for the answer; `None`: it does not say.
    pub fn time_left(&self, view: &impl RequestView) -> Option<Duration> {
        self.deadline.time_left(view)
    }

    /// Whether a request says that it was tried before: the second attempt of an Envoy, or a gRPC call with attempts
    /// before it.
    pub fn says_retry(&self, view: &impl RequestView) -> bool {
        let number = |name| view.header(name).and_then(|value| read_digits(value.trim_ascii(), 18)).unwrap_or(0);
        number("x-envoy-attempt-count") > 1 || number("grpc-previous-rpc-attempts") > 0
    }

    /// A name under which the same request would come again: of its id, its method and target, and its class, so that
    /// nobody makes others' requests look repeated from a less important one. `None`: it has no id.
    ///
    /// An id alone names no request: meshes give all requests of one trace the same.
    pub fn repeat_key(&self, view: &impl RequestView, request: &Request) -> Option<u64> {
        let id = view.header("idempotency-key").or_else(|| view.header("x-request-id"))?.trim_ascii();
        if id.is_empty() {
            return None;
        }
        let mut hasher = self.hasher;
        for part in [id, view.method().as_bytes(), view.host().unwrap_or_default().as_bytes(), view.path().as_bytes()] {
            hasher.write(part);
            // No part has a zero byte.
            hasher.write_u8(0);
        }
        hasher.write_u8(request.class.0);
        Some(hasher.finish())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::PlainRequest;
    use crate::{ClassId, ClassifierSetup};
    use alloc::string::ToString;
    use alloc::vec;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    fn request(headers: &[(&str, &str)]) -> PlainRequest {
        let headers: Vec<_> =
            headers.iter().map(|(name, value)| (name.to_string(), value.as_bytes().to_vec())).collect();
        PlainRequest { method: "GET".into(), path: "/a?b".into(), headers, ..PlainRequest::default() }
    }

    fn left(by: &DeadlineBy, headers: &[(&str, &str)]) -> Option<u64> {
        by.time_left(&request(headers)).map(|left| left.as_micros() as u64)
    }

    #[test]
    fn well_known_deadlines_are_read_and_nonsense_is_not() {
        let by = DeadlineBy::default();
        for (value, micros) in
            [("250m", 250_000), ("2S", 2_000_000), ("1M", 60_000_000), ("10000u", 10_000), ("0m", 0), (" 7m ", 7_000)]
        {
            assert_eq!(left(&by, &[("grpc-timeout", value)]), Some(micros), "{value}");
        }
        for value in ["", "m", "5", "-1m", "1.5S", "123456789m", "5x", "5 m"] {
            assert_eq!(left(&by, &[("grpc-timeout", value)]), None, "{value}");
        }
        assert_eq!(left(&by, &[("x-envoy-expected-rq-timeout-ms", "1500")]), Some(1_500_000));
        assert_eq!(left(&by, &[("x-envoy-expected-rq-timeout-ms", "0")]), None, "none, with Envoy");
        let both = [("grpc-timeout", "2S"), ("x-envoy-expected-rq-timeout-ms", "150")];
        assert_eq!(left(&by, &both), Some(150_000), "the least holds");
        assert_eq!(left(&DeadlineBy { well_known: false, own: None }, &both), None);
        assert!(left(&by, &[("grpc-timeout", "99999999H")]) > Some(1 << 50), "as good as none");
    }

    #[test]
    fn a_services_own_header_is_a_number_or_a_time() {
        let own = OwnDeadline { header: "x-patience".into(), unit: Duration::from_secs(1) };
        let by = DeadlineBy { well_known: true, own: Some(own) };
        let cases =
            [("2", Some(2_000_000)), ("0.25", Some(250_000)), ("250ms", Some(250_000)), ("1min", Some(60_000_000))];
        for (value, micros) in cases.into_iter().chain([("0", None), ("-1", None), ("NaN", None), ("soon", None)]) {
            assert_eq!(left(&by, &[("x-patience", value)]), micros, "{value}");
        }
    }

    #[test]
    fn retries_say_so_or_are_known_by_their_id() {
        let classifier = Classifier::compile(&ClassifierSetup { classes: vec![vec![]], ..ClassifierSetup::default() })
            .expect("rules");
        let says = |headers: &[(&str, &str)]| classifier.says_retry(&request(headers));
        assert!(says(&[("x-envoy-attempt-count", "2")]) && says(&[("grpc-previous-rpc-attempts", "1")]));
        assert!(
            !says(&[]) && !says(&[("x-envoy-attempt-count", "1")]) && !says(&[("grpc-previous-rpc-attempts", "x")])
        );
        let key = |view: &PlainRequest, class: u8| {
            classifier.repeat_key(view, &Request { class: ClassId(class), ..Request::default() })
        };
        let one = request(&[("x-request-id", "7")]);
        assert!(key(&one, 0).is_some() && key(&one, 0) == key(&one.clone(), 0));
        assert_ne!(key(&one, 0), key(&one, 1), "of another class");
        assert_ne!(key(&one, 0), key(&PlainRequest { path: "/a?c".into(), ..one.clone() }, 0), "of the same trace");
        assert_ne!(key(&one, 0), key(&request(&[("x-request-id", "7"), ("idempotency-key", "8")]), 0));
        assert_eq!((key(&request(&[]), 0), key(&request(&[("x-request-id", " ")]), 0)), (None, None));
    }

    proptest! {
        /// What is written is read as no more than what is left, and hardly less.
        #[test]
        fn what_is_passed_on_is_what_is_left(nanos in 1_000u64..10_000_000_000_000) {
            let left = Duration::from_nanos(nanos);
            let text = write_grpc(left);
            prop_assert!(text.len() <= 9);
            let read = read_grpc(text.as_bytes()).expect("it reads its own writing");
            prop_assert!(read <= left && left - read <= left / 1_000 + Duration::from_micros(1), "{text}");
        }
    }
}
