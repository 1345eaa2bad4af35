//! `[application.mirror]`.

use std::time::Duration;

use tidegate_config::At;

use super::super::raw::{RawHealth, RawMirror};
use super::super::{Health, Mirror, Server, Spoken};
use super::Resolver;

impl Resolver<'_, '_, '_> {
    /// What the sentry asks and sends beside requests, and whether that goes over TLS whatever servers speak.
    pub(super) fn aside(
        &mut self,
        health: Option<At<RawHealth>>,
        mirror: Option<At<RawMirror>>,
        servers: &[Server],
    ) -> (Health, Option<Mirror>, bool) {
        let health = self.health(health.map(|health| health.value).unwrap_or_default());
        let mirror = mirror.and_then(|mirror| self.mirror(mirror, servers));
        let copies = mirror.as_ref().is_some_and(|mirror| Spoken::of(&mirror.to).0.tls);
        let also_secure = copies || health.with.is_some_and(|with| with.tls);
        (health, mirror, also_secure)
    }

    fn mirror(&mut self, given: At<RawMirror>, servers: &[Server]) -> Option<Mirror> {
        let At { value: raw, span } = given;
        let Some(to) = raw.to else {
            self.missing(&span, "where do the copies go? add to = \"host:port\"");
            return None;
        };
        let address = self.server_address(&to);
        if address.as_ref().is_some_and(|address| servers.iter().any(|server| server.address == *address)) {
            let message = format!("to = \"{}\" is one of the servers: it would get requests twice", to.value);
            self.report.error(&to.span, message);
        }
        let body = raw.body.map(|given| At { value: given.value.0, span: given.span });
        Some(Mirror {
            to: address?,
            share: raw.share.map_or(1.0, |share| share.value.0),
            body: self.count("body", body, 64 << 10, 0..=1 << 30),
            in_flight: self.count("in_flight", raw.in_flight, 64, 1..=10_000),
            timeout: self.time("timeout", raw.timeout, Duration::from_secs(10)),
        })
    }
}
