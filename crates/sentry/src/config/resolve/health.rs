//! `[application.health]`: what is asked of servers, and what does not go together.

use std::num::NonZeroU16;

use http::uri::Authority;
use http::{HeaderName, HeaderValue, Method, header};
use tidegate_config::{At, List};

use super::super::raw::{RawField, RawHealth, RawStatus};
use super::super::{Asks, CheckWith, Health};
use super::{Resolver, span_of};

/// Fields that a check sets itself, or that would change how its request ends.
const OWN: [HeaderName; 8] = [
    header::HOST,
    header::CONNECTION,
    header::CONTENT_LENGTH,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    header::TE,
    header::TRAILER,
    header::EXPECT,
];

impl Resolver<'_, '_, '_> {
    pub(super) fn health(&mut self, raw: RawHealth) -> Health {
        let default = Health::default();
        let with = raw.with.as_ref().and_then(|given| self.check_with(given));
        self.beside(&raw, with);
        if let Some(path) = raw.path.as_ref().filter(|path| !is_target(&path.value)) {
            self.report
                .error(&path.span, format!("health path \"{}\" must begin with \"/\" and have no spaces", path.value));
        }
        let port = raw.port.map(|port| self.count("port", Some(port), 1, 1..=65535) as u16);
        let asks = with.map(|with| with.asks);
        let http = matches!(asks, Some(Asks::Http1 | Asks::Http2));
        Health {
            with,
            path: raw.path.map(|path| path.value).or_else(|| http.then(|| "/".to_owned())),
            method: raw.method.map_or(default.method, |method| self.method(&method)),
            service: raw.service.map(|s| s.value).or_else(|| (asks == Some(Asks::Grpc)).then(String::new)),
            port: port.and_then(NonZeroU16::new),
            host: raw.host.and_then(|host| self.check_host(host)),
            headers: raw.header.map_or_else(Vec::new, |list| self.check_fields(list)),
            status: raw.status.map_or(default.status, |list| self.statuses(&list)),
            interval: self.time("interval", raw.interval, default.interval),
            jitter: raw.jitter.map_or(default.jitter, |share| share.value.0),
            timeout: self.time("timeout", raw.timeout, default.timeout),
            rise: self.count("rise", raw.rise, default.rise as usize, 1..=1000) as u32,
            fall: self.count("fall", raw.fall, default.fall as usize, 1..=1000) as u32,
            passive_failures: self.count(
                "passive_failures",
                raw.passive_failures,
                default.passive_failures as usize,
                0..=1_000_000,
            ) as u32,
            passive_errors: self.count(
                "passive_errors",
                raw.passive_errors,
                default.passive_errors as usize,
                0..=1_000_000,
            ) as u32,
            max_ejected: raw.max_ejected.map_or(default.max_ejected, |share| share.value.0),
        }
    }

    fn check_with(&mut self, given: &At<String>) -> Option<CheckWith> {
        let found = CheckWith::ALL.into_iter().find(|with| with.name() == given.value);
        if found.is_none() {
            let names: Vec<String> = CheckWith::ALL.iter().map(|with| format!("\"{with}\"")).collect();
            self.report.error(&given.span, format!("with = \"{}\": write {}", given.value, names.join(" or ")));
        }
        found
    }

    /// Keys that ask for nothing beside the others.
    fn beside(&mut self, raw: &RawHealth, with: Option<CheckWith>) {
        let asks = match (with, &raw.service, &raw.path) {
            (Some(with), ..) => with.asks,
            (None, Some(_), _) => Asks::Grpc,
            (None, None, Some(_)) => Asks::Http1,
            (None, None, None) => Asks::Connection,
        };
        let (http, grpc) = (matches!(asks, Asks::Http1 | Asks::Http2), asks == Asks::Grpc);
        let given = [
            ("path", span_of(&raw.path), http),
            ("method", span_of(&raw.method), http),
            ("status", span_of(&raw.status), http),
            ("service", span_of(&raw.service), grpc),
            ("host", span_of(&raw.host), http || grpc),
            ("header", span_of(&raw.header), http || grpc),
        ];
        let of = match asks {
            Asks::Connection => "a check that only connects; give path = \"/...\", or with = \"http\"",
            Asks::Grpc => "a check of gRPC; leave it out, or leave out service",
            Asks::Http1 | Asks::Http2 => "a check over HTTP; leave it out, or give with = \"grpc\"",
        };
        for (key, span, _) in given.into_iter().filter(|(.., is_used)| !is_used) {
            let Some(span) = span else { continue };
            let message = format!("{key} has no use in {of}");
            // What has a default may stand there as well.
            if matches!(key, "method" | "status") {
                self.report.warn(&span, message);
            } else {
                self.report.error(&span, message);
            }
        }
    }

    fn method(&mut self, given: &At<String>) -> Method {
        let known = [Method::GET, Method::HEAD, Method::OPTIONS];
        known.into_iter().find(|method| method.as_str() == given.value).unwrap_or_else(|| {
            let message = format!(
                "method = \"{}\": write \"GET\", \"HEAD\" or \"OPTIONS\"; a check must change nothing",
                given.value
            );
            self.report.error(&given.span, message);
            Method::GET
        })
    }

    fn check_host(&mut self, given: At<String>) -> Option<String> {
        if given.value.parse::<Authority>().is_err() || given.value.contains('@') {
            self.report.error(&given.span, format!("host = \"{}\" is not a host; write \"shop.example\"", given.value));
            return None;
        }
        Some(given.value)
    }

    fn check_fields(&mut self, list: At<List<RawField>>) -> Vec<(HeaderName, HeaderValue)> {
        list.value.0.into_iter().filter_map(|field| self.check_field(field)).collect()
    }

    fn check_field(&mut self, At { value: raw, span }: At<RawField>) -> Option<(HeaderName, HeaderValue)> {
        let (Some(name), Some(value)) = (raw.name, raw.value) else {
            self.missing(&span, "a header field needs both; give name = \"X-Check\" and value = \"...\"");
            return None;
        };
        let field = self.header_name(&name)?;
        if OWN.contains(&field) {
            let hint = if field == header::HOST { "; give host = \"...\"" } else { "" };
            self.report.error(&name.span, format!("\"{}\" is set by the check itself{hint}", name.value));
            return None;
        }
        match HeaderValue::from_str(&value.value) {
            Ok(value) => Some((field, value)),
            Err(_) => {
                self.report.error(&value.span, format!("value = \"{}\" is not a header's value", value.value));
                None
            }
        }
    }

    fn statuses(&mut self, list: &At<List<RawStatus>>) -> Vec<(u16, u16)> {
        let ranges: Vec<(u16, u16)> = list.value.0.iter().map(|at| (at.value.0, at.value.1)).collect();
        if ranges.is_empty() && self.complete {
            self.report.error(&list.span, "status is empty: no answer would be good; give \"200-399\", say");
        }
        ranges
    }
}

fn is_target(path: &str) -> bool {
    path.starts_with('/') && path.bytes().all(|b| b.is_ascii_graphic())
}
