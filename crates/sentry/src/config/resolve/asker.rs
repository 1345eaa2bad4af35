//! `servers = ["envoy"]`, `["nginx"]`, `["haproxy"]`: a proxy asks for its clients and sends their requests on itself.
//! What does not go with that, and where it tells of ends.

use std::net::{Ipv4Addr, SocketAddr};
use std::ops::Range;

use tidegate_config::At;

use super::super::{Application, Asker, Health, Pool, ProxyOut, Retry};
use super::address::udp_address;
use super::{Resolver, in_files};

/// Where ends are listened for when nothing else is said.
const PORT: u16 = 9902;

impl Resolver<'_, '_, '_> {
    /// Where ends of requests are told, if a proxy tells them.
    pub(super) fn ends(&mut self, given: Option<At<String>>, applications: &[Application]) -> Option<SocketAddr> {
        let address = match given {
            None => SocketAddr::from((Ipv4Addr::LOCALHOST, PORT)),
            Some(given) => udp_address(&given.value)
                .map_err(|problem| self.report.error(&given.span, format!("ends = \"{}\": {problem}", given.value)))
                .ok()?,
        };
        let servers = applications.iter().flat_map(|app| &app.servers);
        let mut askers = servers.filter_map(|server| Asker::of(&server.address));
        askers.any(Asker::tells_ends).then_some(address)
    }

    /// What cannot be, or has no use, where a proxy asks.
    pub(super) fn behind_asker(&mut self, app: &Application, span: &Range<usize>) {
        if let Some(asker) = in_files(&app.server_files).find_map(|server| Asker::of(&server.address)) {
            let name = asker.name();
            let problem = format!("\"{name}\" is no server for a file of servers; write servers = [\"{name}\"]");
            self.report.error(span, problem);
        }
        let Some(asker) = app.servers.iter().find_map(|server| Asker::of(&server.address)) else { return };
        let (name, title) = (asker.name(), asker.title());
        if app.servers.len() > 1 || !app.server_files.is_empty() {
            let problem = format!("\"{name}\" is every server behind {title}, which knows them; leave the others out");
            self.report.error(span, problem);
        }
        if asker == Asker::Envoy && app.limits.streams == 0 {
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
            self.report.error(span, format!("servers = [\"{name}\"] leaves this to {title}; leave {key} out"));
        }
        let unused = [
            ("health", app.health != Health::default()),
            ("retry", app.retry != Retry::default()),
            ("pool", app.pool != Pool::default()),
        ];
        for (key, _) in unused.into_iter().filter(|(_, is_given)| *is_given) {
            self.report.warn(span, format!("{key} has no use with servers = [\"{name}\"]: it is {title}'s affair"));
        }
    }
}
