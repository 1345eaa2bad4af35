//! What a control plane decided lies over what the file says.

use tidegate_engine::{Role, ServerSetup, Sla};

use crate::config;

/// What a control plane decided for an application.
#[derive(Clone, Debug, PartialEq)]
pub struct Governed {
    /// Its application servers.
    pub servers: Vec<config::Server>,
    /// Its target.
    pub sla: Sla,
}

impl Governed {
    /// Puts it over what the file says. A server that the file has, too, keeps its settings; data servers stay.
    pub(super) fn govern(&self, config: &mut config::Application) {
        let known = std::mem::take(&mut config.setup.servers);
        let addresses = std::mem::take(&mut config.servers);
        let data = |setup: &ServerSetup| setup.role == Role::Data;
        for (setup, server) in known.iter().zip(&addresses).filter(|(setup, _)| data(setup)) {
            config.setup.servers.push(setup.clone());
            config.servers.push(server.clone());
        }
        for server in &self.servers {
            let same = known.iter().find(|setup| setup.name == server.name && !data(setup));
            config.setup.servers.push(same.cloned().unwrap_or_else(|| ServerSetup::new(server.name.clone())));
            config.servers.push(server.clone());
        }
        config.setup.sla = self.sla.clone();
    }
}
