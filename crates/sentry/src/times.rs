//! Response times of a class as a histogram, with an example of a request for each bucket (an OpenMetrics exemplar).
//!
//! The library keeps an exemplar a bucket behind a lock; making one costs two strings. So a request offers itself as
//! an example only if none was kept for a second: examples are looked at by people.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, SystemTime};

use http::HeaderMap;
use prometheus_client::metrics::exemplar::HistogramWithExemplars;
use tidegate_engine::Timestamp;

/// Upper bounds of the buckets, seconds.
const BUCKETS: [f64; 12] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0];
/// Between two examples of a class, at least.
const PAUSE: Duration = Duration::from_secs(1);
/// OpenMetrics allows 128 characters, names and values together.
const LONGEST: usize = 100;

/// Which request it was: `trace_id` or `request_id`, and its value.
pub(crate) type Example = [(&'static str, String); 1];

/// The response times of one class.
#[derive(Debug)]
pub(crate) struct Times {
    histogram: HistogramWithExemplars<Example>,
    first_byte: HistogramWithExemplars<Example>,
    /// When the next example is wanted.
    next: AtomicU64,
}

impl Default for Times {
    fn default() -> Self {
        let histogram = || HistogramWithExemplars::new(BUCKETS.into_iter());
        Times { histogram: histogram(), first_byte: histogram(), next: AtomicU64::new(0) }
    }
}

impl Times {
    /// Takes in an answered request.
    pub(crate) fn observe(&self, took: Duration, example: Option<Example>) {
        let at = example.is_some().then(SystemTime::now);
        self.histogram.observe(took.as_secs_f64(), example, at);
    }

    /// Takes in when an answer began.
    pub(crate) fn observe_first_byte(&self, after: Duration) {
        self.first_byte.observe(after.as_secs_f64(), None, None);
    }

    /// What tells this request from others, if an example is wanted now.
    pub(crate) fn example(&self, now: Timestamp, headers: &HeaderMap) -> Option<Example> {
        let (now, due) = (now.as_nanos(), self.next.load(Relaxed));
        let next = now + PAUSE.as_nanos() as u64;
        // Of several at once, one is kept.
        if now < due || self.next.compare_exchange(due, next, Relaxed, Relaxed).is_err() {
            return None;
        }
        example_of(headers)
    }

    pub(crate) fn histogram(&self) -> &HistogramWithExemplars<Example> {
        &self.histogram
    }

    pub(crate) fn first_bytes(&self) -> &HistogramWithExemplars<Example> {
        &self.first_byte
    }
}

/// The trace, where the request has one; else the request's own number.
fn example_of(headers: &HeaderMap) -> Option<Example> {
    let field = |name| headers.get(name).and_then(|value| value.to_str().ok());
    let trace = field("traceparent").and_then(|parent| parent.get(3..35));
    if let Some(trace) = trace.filter(|trace| trace.bytes().all(|byte| byte.is_ascii_hexdigit())) {
        return Some([("trace_id", trace.to_owned())]);
    }
    let id = field("x-request-id").filter(|id| !id.is_empty() && id.len() <= LONGEST)?;
    Some([("request_id", id.to_owned())])
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    fn headers(fields: &[(&'static str, &'static str)]) -> HeaderMap {
        fields.iter().map(|(name, value)| (name.parse().expect("a name"), HeaderValue::from_static(value))).collect()
    }

    #[test]
    fn an_example_is_named_by_its_trace_or_its_number() {
        let parent = ("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
        let id = ("x-request-id", "abc");
        let of = |fields: &[_]| example_of(&headers(fields)).map(|[example]| example);
        assert_eq!(of(&[parent, id]), Some(("trace_id", "0af7651916cd43dd8448eb211c80319c".to_owned())));
        assert_eq!(of(&[("traceparent", "00-\"}evil"), id]), Some(("request_id", "abc".to_owned())));
        assert_eq!(of(&[]), None);
    }

    #[test]
    fn one_example_a_second_is_wanted() {
        let (times, fields) = (Times::default(), headers(&[("x-request-id", "abc")]));
        let at = |millis| times.example(Timestamp::ZERO + Duration::from_millis(millis), &fields).is_some();
        assert_eq!([0, 1, 999, 1000, 1001, 5000].map(at), [true, false, false, true, false, true]);
    }
}
