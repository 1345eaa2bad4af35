//! One line of the access log.

use std::net::IpAddr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::Serialize;
use tidegate_engine::{RequestTypeId, ServerId};

use crate::in_force::InForce;
use crate::record::{Decided, RequestRecord, Work};

/// The keys, in this order. Times are milliseconds. What does not apply is left out.
#[derive(Serialize)]
struct Line<'a> {
    time: String,
    app: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a str>,
    client: IpAddr,
    method: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    host: Option<&'a str>,
    path: &'a str,
    class: &'a str,
    #[serde(rename = "type")]
    request_type: Name<'a>,
    decision: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    policy: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    predicted_ms: Option<f64>,
    protocol: &'static str,
    status: u16,
    #[serde(skip_serializing_if = "Option::is_none")]
    grpc_status: Option<u8>,
    end: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    work: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    server: Option<Name<'a>>,
    retries: u32,
    bytes_in: u64,
    bytes_out: u64,
    waited_ms: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    first_byte_ms: Option<f64>,
    total_ms: f64,
}

/// The name of a thing, or its number when the configuration no longer knows it.
#[derive(Serialize)]
#[serde(untagged)]
enum Name<'a> {
    Known(&'a str),
    Number(u16),
}

/// Where names are found.
#[derive(Clone, Copy)]
pub(super) struct Names<'a>(pub(super) Option<&'a InForce>);

impl<'a> Names<'a> {
    fn server(self, id: ServerId) -> Name<'a> {
        let server = self.0.and_then(|live| live.server(id));
        server.map_or(Name::Number(id.0), |server| Name::Known(&server.name))
    }

    fn request_type(self, id: RequestTypeId) -> Name<'a> {
        let name = self.0.and_then(|live| live.config.setup.request_types.get(id.index()));
        match name {
            Some(name) => Name::Known(name),
            None if id.0 == 0 => Name::Known("default"),
            None => Name::Number(id.0),
        }
    }
}

/// A record as a line with its line feed. Control characters and quotes in what clients sent are escaped by the JSON
/// writer.
pub(super) fn format(app: &str, class: &str, record: &RequestRecord<'_>, names: Names<'_>) -> Vec<u8> {
    let (decision, reason, policy, predicted) = decided(&record.decision);
    let line = Line {
        time: timestamp(SystemTime::now()),
        app,
        id: record.request_id,
        client: record.client.ip().to_canonical(),
        method: record.method,
        host: record.host,
        path: record.path,
        class,
        request_type: names.request_type(record.request_type),
        decision,
        reason,
        policy,
        predicted_ms: predicted.map(millis),
        protocol: record.protocol.name(),
        status: record.status,
        grpc_status: record.grpc_status,
        end: record.end.name(),
        work: record.work.map(Work::name),
        server: record.server.map(|id| names.server(id)),
        retries: record.retries,
        bytes_in: record.bytes_in,
        bytes_out: record.bytes_out,
        waited_ms: millis(record.waited),
        first_byte_ms: record.first_byte.map(millis),
        total_ms: millis(record.total),
    };
    // Strings and numbers always have a JSON form.
    let mut bytes = serde_json::to_vec(&line).unwrap_or_default();
    bytes.push(b'\n');
    bytes
}

/// Says that lines are missing.
pub(super) fn dropped(count: u64) -> Vec<u8> {
    let mut bytes =
        serde_json::json!({ "time": timestamp(SystemTime::now()), "dropped": count }).to_string().into_bytes();
    bytes.push(b'\n');
    bytes
}

type Decision = (&'static str, Option<&'static str>, Option<&'static str>, Option<Duration>);

fn decided(decision: &Decided) -> Decision {
    match decision {
        Decided::Admitted => ("admitted", None, None, None),
        Decided::Shadow(reason) => ("shadow", Some(reason.name()), None, None),
        Decided::Exempt => ("exempt", None, None, None),
        Decided::Rejected(r) => ("rejected", Some(r.reason.name()), Some(r.policy), r.predicted),
        Decided::Error(name) => ("error", Some(name), None, None),
    }
}

/// To the microsecond: finer is noise.
fn millis(duration: Duration) -> f64 {
    duration.as_micros() as f64 / 1000.0
}

/// RFC 3339 in UTC, to the millisecond.
pub(crate) fn timestamp(at: SystemTime) -> String {
    let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    let seconds = since.as_secs();
    let (year, month, day) = civil(seconds / 86_400);
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    let millis = since.subsec_millis();
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z")
}

/// Year, month and day of a day since 1970 (Howard Hinnant's `civil_from_days`: years begin in March, so that the leap
/// day is the last of its year).
fn civil(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    (year, month, day_of_year - (153 * shifted_month + 2) / 5 + 1)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::record::{Protocol, RecordEnd};
    use tidegate_engine::{ClassId, Reason, Rejection};

    pub(crate) fn record(path: &str) -> RequestRecord<'_> {
        RequestRecord {
            client: "[::ffff:192.0.2.7]:40000".parse().expect("an address"),
            method: "GET",
            host: Some("shop.example"),
            path,
            class: ClassId(0),
            request_type: RequestTypeId(0),
            decision: Decided::Admitted,
            server: Some(ServerId(1)),
            protocol: Protocol::Http2,
            status: 200,
            grpc_status: None,
            bytes_in: 0,
            bytes_out: 1024,
            waited: Duration::ZERO,
            first_byte: Some(Duration::from_micros(1_234)),
            total: Duration::from_millis(20),
            end: RecordEnd::Complete,
            work: None,
            retries: 0,
            request_id: None,
        }
    }

    fn parsed(line: &[u8]) -> serde_json::Value {
        serde_json::from_slice(line).expect("JSON")
    }

    #[test]
    fn hostile_paths_stay_inside_their_string() {
        let hostile = "/\"},{\"status\":200}\n\u{0}\u{1b}[31m\\\u{2028}é";
        let line = format("shop", "gold", &record(hostile), Names(None));
        assert_eq!(line.iter().filter(|&&b| b == b'\n').count(), 1, "one line is one line feed");
        assert!(!line.contains(&0) && !line.contains(&0x1b), "no control characters reach a terminal");
        let parsed = parsed(&line);
        assert_eq!(parsed["path"], hostile);
        assert_eq!((&parsed["status"], &parsed["protocol"]), (&200.into(), &"h2".into()));
        assert!(parsed.get("grpc_status").is_none());
        assert_eq!(parsed["client"], "192.0.2.7");
        assert_eq!(parsed["first_byte_ms"], 1.234);
        assert_eq!((&parsed["server"], &parsed["type"]), (&1.into(), &"default".into()));
    }

    #[test]
    fn a_refusal_says_why() {
        let rejection = Rejection {
            reason: Reason::SlaTarget,
            policy: "batch",
            class: ClassId(0),
            retry_after: Duration::from_secs(1),
            predicted: Some(Duration::from_millis(1500)),
        };
        let refused =
            RequestRecord { decision: Decided::Rejected(rejection), status: 503, server: None, ..record("/") };
        let parsed = parsed(&format("shop", "gold", &refused, Names(None)));
        assert_eq!((&parsed["decision"], &parsed["reason"]), (&"rejected".into(), &"sla-target".into()));
        assert_eq!((&parsed["policy"], &parsed["predicted_ms"]), (&"batch".into(), &1500.0.into()));
        assert!(parsed.get("server").is_none());
    }

    #[test]
    fn dates_are_the_calendars() {
        let at = |seconds| timestamp(UNIX_EPOCH + Duration::from_secs(seconds));
        assert_eq!(at(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(at(951_827_696), "2000-02-29T12:34:56.000Z");
        assert_eq!(at(1_709_164_800), "2024-02-29T00:00:00.000Z");
        assert_eq!(at(4_107_542_399), "2100-02-28T23:59:59.000Z");
        assert_eq!(at(4_107_542_400), "2100-03-01T00:00:00.000Z");
    }
}
