//! What is typed of health checks.

use tidegate_config::{Kind, List, Read, Report, Share, Time, Value, section, wrong};

section! {
    pub(in crate::config) struct RawHealth ("in [application.health]") {
        /// [How a server is asked](health.md#what-a-check-asks): `"tcp"`, `"tls"`, `"http"`, `"https"`, `"h2c"`,
        /// `"h2"`, `"grpc"` or `"grpcs"`. Default: as its address says; without `path` and `service`, a connection is
        /// enough.
        with: String,
        /// Path to request. Default: none; `"/"` where `with` says HTTP.
        path: String,
        /// Method of the request. Default: `"GET"`.
        method: String,
        /// gRPC service whose health is asked for (`grpc.health.v1`); `""` is the server as a whole. Default: none;
        /// `""` where `with` says gRPC.
        service: String,
        /// Port to ask at. Default: that of the server's address.
        port: u64,
        /// Host that is asked for. Default: the server's address.
        host: String,
        /// Further header fields of the request. Default: none.
        header: List<RawField>,
        /// Statuses that are good: `200`, `"200-299"`, or several. Default: `"200-399"`.
        status: List<RawStatus>,
        /// From the end of one check of a server to the next. Default: `"2s"`.
        interval: Time,
        /// How much earlier or later a check may come, as a share of `interval`: several sentries do not ask at once.
        /// Default: `"10%"`.
        jitter: Share,
        /// Of a check. Default: `"1s"`.
        timeout: Time,
        /// Good checks in a row that bring a server up. Default: `2`.
        rise: u64,
        /// Bad checks in a row that take it down. Default: `3`.
        fall: u64,
        /// Requests in a row without an answer that take it down at once, if they are of several clients and for
        /// several paths; 0: never. Default: `5`.
        passive_failures: u64,
        /// Answers in a row with status 500, 502, 503 or 504, or `UNKNOWN`, `INTERNAL`, `UNAVAILABLE` or `DATA_LOSS`
        /// of gRPC, that take it down at once, likewise, while its siblings answer well; 0: never. Default: `10`.
        passive_errors: u64,
        /// Of the servers, how many may be down for another to be taken down so. Default: `"50%"`.
        max_ejected: Share,
    }
}

section! {
    pub(in crate::config) struct RawField ("in header of [application.health]") {
        /// Name of the field. Required.
        name: String,
        /// Its value. Required.
        value: String,
    }
}

/// A status, or a range of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::config) struct RawStatus(pub(in crate::config) u16, pub(in crate::config) u16);

impl Read for RawStatus {
    const KIND: Kind = Kind::Value("status or range");

    fn read(value: &Value<'_>, key: &str, report: &mut Report<'_>) -> Option<Self> {
        let number = value.get_ref().as_integer().map(|number| number.as_str().to_owned());
        let Some(text) = number.or_else(|| value.get_ref().as_str().map(str::to_owned)) else {
            return wrong(value, key, "a status such as 200, or a range such as \"200-299\"", report);
        };
        let read = status_range(&text);
        if read.is_none() {
            let message = format!("{key} = \"{text}\": write a status such as 200, or a range such as \"200-299\"");
            report.error(&value.span(), message);
        }
        read
    }
}

fn status_range(text: &str) -> Option<RawStatus> {
    let status = |text: &str| text.trim().parse::<u16>().ok().filter(|status| (200..=599).contains(status));
    let (from, to) = text.split_once('-').unwrap_or((text, text));
    let (from, to) = (status(from)?, status(to)?);
    (from <= to).then_some(RawStatus(from, to))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_a_number_or_a_range() {
        assert_eq!(status_range("200"), Some(RawStatus(200, 200)));
        assert_eq!(status_range("200-399"), Some(RawStatus(200, 399)));
        assert_eq!(status_range("401 - 404"), Some(RawStatus(401, 404)));
        for bad in ["", "2xx", "100", "199-300", "400-200", "600", "200-299-300", "-200"] {
            assert_eq!(status_range(bad), None, "{bad}");
        }
    }
}
