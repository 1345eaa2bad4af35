//! `servers = ["envoy"]`: Envoy asks for its clients and sends their requests on itself. What does not go with that.

use std::ops::Range;

use super::super::{Application, ENVOY, Health, Pool, ProxyOut, Retry};
use super::{Resolver, in_files};

impl Resolver<'_, '_, '_> {
    /// What cannot be, or has no use, where Envoy asks.
    pub(super) fn beside_envoy(&mut self, app: &Application, span: &Range<usize>) {
        if in_files(&app.server_files).any(|server| server.address == ENVOY) {
            self.report.error(span, "\"envoy\" is no server for a file of servers; write servers = [\"envoy\"]");
        }
        if !app.servers.iter().any(|server| server.address == ENVOY) {
            return;
        }
        if app.servers.len() > 1 || !app.server_files.is_empty() {
            self.report.error(span, "\"envoy\" is every server behind Envoy, which knows them; leave the others out");
        }
        if app.limits.streams == 0 {
            self.report.error(span, "Envoy asks over HTTP/2, and limits.streams = 0 turns it off; leave streams out");
        }
        let changed = [
            ("rewrite", app.routing.rewrite != Default::default()),
            ("request_header", !app.routing.request_headers.is_empty()),
            ("response_header", !app.routing.response_headers.is_empty()),
            ("server_proxy", app.server_proxy != ProxyOut::Off),
            ("affinity", app.setup.affinity.is_some()),
            ("mirror", app.mirror.is_some()),
        ];
        for (key, _) in changed.into_iter().filter(|(_, is_given)| *is_given) {
            self.report.error(span, format!("servers = [\"envoy\"] leaves this to Envoy; leave {key} out"));
        }
        let unused = [
            ("health", app.health != Health::default()),
            ("retry", app.retry != Retry::default()),
            ("pool", app.pool != Pool::default()),
        ];
        for (key, _) in unused.into_iter().filter(|(_, is_given)| *is_given) {
            self.report.warn(span, format!("{key} has no use with servers = [\"envoy\"]: it is Envoy's affair"));
        }
    }
}
