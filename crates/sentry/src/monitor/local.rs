//! Servers that share this machine with the sentry, measured from here, as a nucleus beside them would.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Arc;

use tidegate_engine::LoadReport;
use tidegate_nucleus::{Given, Sampler};

use crate::app::App;
use crate::config;
use crate::in_force::InForce;
use crate::reports::signals;

/// Samplers of the servers on this machine.
#[derive(Debug)]
pub(super) struct Local {
    /// Those that are here, by name.
    samplers: Vec<(String, Sampler)>,
    /// For which configuration they were made.
    made_for: Option<Arc<InForce>>,
}

impl Local {
    pub(super) fn new(application: &config::Application) -> Local {
        Local { samplers: samplers(application), made_for: None }
    }

    /// Adds what is measured now.
    pub(super) fn sample(&mut self, app: &App, reports: &mut Vec<LoadReport>) {
        let live = app.live();
        if self.made_for.as_ref().is_none_or(|made_for| !Arc::ptr_eq(made_for, &live)) {
            let is_same = self.made_for.as_ref().is_none_or(|made_for| made_for.config.servers == live.config.servers);
            if !is_same {
                self.samplers = samplers(&live.config);
            }
            self.made_for = Some(live.clone());
        }
        for (name, sampler) in &mut self.samplers {
            let named = live.servers().find(|server| server.name == *name).map(|server| server.id);
            let Some(server) = named else { continue };
            let gauges = sampler.sample().gauges;
            signals(&gauges, |signal, value| {
                reports.push(LoadReport::Signal { server: Some(server), signal, value });
            });
        }
    }
}

fn samplers(application: &config::Application) -> Vec<(String, Sampler)> {
    let here = application.servers.iter().filter(|server| is_here(&server.address));
    let sampler = |server: &config::Server| {
        let given = Given { server: Some(server.address.clone()), ..Given::default() };
        Some((server.name.clone(), Sampler::new(&given.resolve(false).ok()?)))
    };
    here.filter_map(sampler).collect()
}

/// Whether an address is one of this machine's: then something can be bound to it.
fn is_here(address: &str) -> bool {
    let ip = match address.parse::<SocketAddr>() {
        Ok(address) => address.ip(),
        Err(_) => return address.starts_with("localhost:"),
    };
    ip.is_loopback() || (!ip.is_unspecified() && can_bind(ip))
}

fn can_bind(ip: IpAddr) -> bool {
    UdpSocket::bind(SocketAddr::new(ip, 0)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_here_and_documentation_is_not() {
        assert!(is_here("127.0.0.1:80") && is_here("[::1]:80") && is_here("localhost:80"));
        assert!(!is_here("192.0.2.1:80") && !is_here("example.org:80"));
    }
}
