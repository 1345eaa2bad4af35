//! The settings of an application that stand for themselves: time-outs, limits, health, retries, forwarding, pages.

use std::ops::RangeInclusive;
use std::time::Duration;

use http::HeaderName;
use tidegate_classify::Paths;
use tidegate_config::{At, Bytes, List, Time};

use super::super::raw::{RawForwarded, RawLimits, RawPool, RawRejection, RawRetry, RawTimeouts, RawTraces};
use super::super::{Forwarded, Limits, Pool, RejectionPages, Retry, Timeouts, Traces};
use super::Resolver;
use super::rules::PageFile;
use crate::gate::head::MAX_HEADERS;

impl Resolver<'_, '_, '_> {
    pub(super) fn timeouts(&mut self, raw: RawTimeouts) -> Timeouts {
        let default = Timeouts::default();
        Timeouts {
            header: self.time("header", raw.header, default.header),
            handshake: self.time("handshake", raw.handshake, default.handshake),
            body_idle: self.time("body_idle", raw.body_idle, default.body_idle),
            connect: self.time("connect", raw.connect, default.connect),
            first_byte: self.time("first_byte", raw.first_byte, default.first_byte),
            request: raw.request.and_then(|request| self.positive("request", request)).or(default.request),
            client_idle: self.time("client_idle", raw.client_idle, default.client_idle),
            server_idle: self.time("server_idle", raw.server_idle, default.server_idle),
        }
    }

    pub(super) fn limits(&mut self, raw: RawLimits) -> Limits {
        let default = Limits::default();
        let bytes = |given: At<Bytes>| At { value: given.value.0, span: given.span };
        let (header_bytes, ahead) = (raw.header_bytes.map(bytes), raw.ahead.map(bytes));
        Limits {
            header_bytes: self.count("header_bytes", header_bytes, default.header_bytes, 1024..=1 << 20),
            headers: self.count("headers", raw.headers, default.headers, 1..=MAX_HEADERS),
            body_bytes: raw.body_bytes.map(|bytes| bytes.value.0),
            connections: self.count("connections", raw.connections, default.connections, 1..=10_000_000),
            handshakes: self.count("handshakes", raw.handshakes, default.handshakes, 1..=1_000_000),
            waiting: self.count("waiting", raw.waiting, default.waiting, 1..=10_000_000),
            held_bytes: raw.held_bytes.map(|bytes| bytes.value.0),
            ahead: self.count("ahead", ahead, default.ahead, 0..=1 << 30),
            body_rate: raw.body_rate.map_or(default.body_rate, |bytes| bytes.value.0),
            open: self.count("open", raw.open, default.open, 0..=10_000_000),
            open_bytes: raw.open_bytes.map_or(default.open_bytes, |bytes| bytes.value.0),
            streams: self.count("streams", raw.streams, default.streams, 0..=10_000),
        }
    }

    pub(super) fn retry(&mut self, raw: RawRetry) -> Retry {
        let default = Retry::default();
        Retry {
            attempts: self.count("attempts", raw.attempts, default.attempts as usize, 0..=10) as u32,
            budget: raw.budget.map_or(default.budget, |budget| budget.value.0),
        }
    }

    pub(super) fn traces(&mut self, raw: At<RawTraces>) -> Option<Traces> {
        let At { value: raw, span } = raw;
        if !cfg!(feature = "otel") {
            let message = "this program was built without tracing; leave [traces] out, or build with --features otel";
            self.report.error(&span, message);
        }
        let default = Traces::default();
        let endpoint = raw.endpoint.map_or(default.endpoint, |given| {
            let address = given.value.parse::<http::Uri>().ok().filter(|uri| uri.host().is_some());
            if address.is_none_or(|uri| uri.scheme_str() != Some("http")) {
                let message =
                    format!("endpoint = \"{}\": write it like \"http://127.0.0.1:4318/v1/traces\"", given.value);
                self.report.error(&given.span, message);
            }
            given.value
        });
        Some(Traces {
            endpoint,
            share: raw.share.map_or(default.share, |share| share.value.0),
            service: raw.service.map_or(default.service, |service| service.value),
        })
    }

    pub(super) fn pool(&mut self, raw: RawPool) -> Pool {
        let default = Pool::default();
        Pool {
            idle_per_server: self.count("idle_per_server", raw.idle_per_server, default.idle_per_server, 0..=100_000),
        }
    }

    pub(super) fn forwarded(&mut self, raw: RawForwarded) -> Forwarded {
        let default = Forwarded::default();
        Forwarded {
            x_forwarded: raw.x_forwarded.map_or(default.x_forwarded, |given| given.value),
            forwarded: raw.forwarded.map_or(default.forwarded, |given| given.value),
            request_id: raw.request_id.map_or(default.request_id, |given| given.value),
            trust: self.networks(raw.trust),
            identity: raw.identity.map_or(default.identity, |list| self.field_names(list.value)),
            upgrade: raw.upgrade.map_or(default.upgrade, |list| {
                list.value.0.into_iter().map(|protocol| protocol.value.to_ascii_lowercase()).collect()
            }),
        }
    }

    fn field_names(&mut self, list: List<String>) -> Vec<HeaderName> {
        list.0.iter().filter_map(|name| self.header_name(name)).collect()
    }

    /// The name of a header field.
    pub(super) fn header_name(&mut self, given: &At<String>) -> Option<HeaderName> {
        let name = HeaderName::from_bytes(given.value.as_bytes()).ok();
        if name.is_none() {
            self.report.error(&given.span, format!("\"{}\" is not a header name", given.value));
        }
        name
    }

    pub(super) fn paths(&mut self, given: Option<At<String>>) -> Paths {
        let Some(At { value, span }) = given else { return Paths::default() };
        Paths::ALL.into_iter().find(|paths| paths.name() == value).unwrap_or_else(|| {
            let message = format!("paths = \"{value}\" is unknown; give \"strict\", \"merge\" or \"as-is\"");
            self.report.error(&span, message);
            Paths::default()
        })
    }

    /// Statuses that say that a service further down refused a request.
    pub(super) fn refused_below(&mut self, given: Option<At<List<u64>>>) -> Vec<u16> {
        let statuses = given.map_or_else(Vec::new, |list| list.value.0);
        let status = |status| self.count("refused_below", Some(status), 0, 400..=599) as u16;
        statuses.into_iter().map(status).collect()
    }

    /// Pages per class: the class's own, else the application's.
    pub(super) fn rejection(&mut self, raw: RawRejection, of_classes: Vec<PageFile>) -> RejectionPages {
        let common = raw.page.and_then(|page| self.page(page));
        let pages = of_classes.into_iter().map(|own| match own {
            Some(own) => self.page(own),
            None => common.clone(),
        });
        let pages = pages.collect();
        RejectionPages {
            status: self.count("status", raw.status, 503, 400..=599) as u16,
            pages,
            details: raw.details.is_none_or(|given| given.value),
            decision_on_admitted: raw.decision_on_admitted.is_some_and(|given| given.value),
        }
    }

    /// A whole number in a range.
    pub(super) fn count(
        &mut self,
        key: &str,
        given: Option<At<u64>>,
        default: usize,
        range: RangeInclusive<usize>,
    ) -> usize {
        let Some(At { value, span }) = given else { return default };
        let number = usize::try_from(value).unwrap_or(usize::MAX);
        if !range.contains(&number) {
            let (least, most) = range.into_inner();
            self.report.error(&span, format!("{key} = {value} is out of range; give {least} to {most}"));
        }
        number
    }

    /// A time that may not be zero; `None` when it is.
    pub(super) fn positive(&mut self, key: &str, given: At<Time>) -> Option<Duration> {
        if given.value.0.is_zero() {
            self.report.error(&given.span, format!("{key} is zero; give a time such as \"2s\""));
            return None;
        }
        Some(given.value.0)
    }

    pub(super) fn more_than_zero(&mut self, key: &str, given: At<f64>) -> f64 {
        self.number(key, given, "more than 0", |number| number > 0.0)
    }

    pub(super) fn zero_or_more(&mut self, key: &str, given: At<f64>) -> f64 {
        self.number(key, given, "0 or more", |number| number >= 0.0)
    }

    pub(super) fn at_least_one(&mut self, key: &str, given: At<f64>) -> f64 {
        self.number(key, given, "1 or more", |number| number >= 1.0)
    }

    fn number(&mut self, key: &str, given: At<f64>, wanted: &str, fits: impl Fn(f64) -> bool) -> f64 {
        let At { value, span } = given;
        if !(value.is_finite() && fits(value)) {
            self.report.error(&span, format!("{key} = {value} is out of range; it must be {wanted}"));
        }
        value
    }

    pub(super) fn time(&mut self, key: &str, given: Option<At<Time>>, default: Duration) -> Duration {
        given.and_then(|given| self.positive(key, given)).unwrap_or(default)
    }
}
