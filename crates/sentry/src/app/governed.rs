//! What a control plane decided lies over what the file says.

use tidegate_engine::{Role, ServerSetup, Sla};

use crate::config;

/// What a control plane decided for an application.
#[derive(Clone, Debug, PartialEq)]
pub struct Governed {
    /// Its application servers; `None`: those that it has.
    pub servers: Option<Vec<config::Server>>,
    /// Its target.
    pub sla: Sla,
}

impl Governed {
    /// Puts it over what the file says. A server that the file has, too, keeps its settings; data servers stay.
    pub(super) fn govern(&self, config: &mut config::Application) {
        // Which time it bounds is the file's to say: a control plane only decides how long that may be.
        config.setup.sla = self.sla.clone().bounding(config.setup.sla.bounds());
        let Some(servers) = &self.servers else { return };
        let known = std::mem::take(&mut config.setup.servers);
        let addresses = std::mem::take(&mut config.servers);
        let data = |setup: &ServerSetup| setup.role == Role::Data;
        for (setup, server) in known.iter().zip(&addresses).filter(|(setup, _)| data(setup)) {
            config.setup.servers.push(setup.clone());
            config.servers.push(server.clone());
        }
        for server in servers {
            let same = known.iter().find(|setup| setup.name == server.name && !data(setup));
            config.setup.servers.push(same.cloned().unwrap_or_else(|| ServerSetup::new(server.name.clone())));
            config.servers.push(server.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::Duration;

    use tidegate_engine::Statistic;

    use super::*;
    use crate::config::Config;

    #[test]
    fn no_servers_leave_those_that_are_there_and_the_target_counts() {
        let text = "servers = [\"127.0.0.1:9001\", \"127.0.0.1:9002\"]\ntarget = \"1s\"\n";
        let checked = Config::parse(&format!("[[application]]\n{text}"), Path::new("sentry.toml")).expect("valid");
        let mut config = checked.config.applications[0].clone();
        let before = config.servers.clone();
        let sla = Sla::constant(Statistic::P95, Duration::from_millis(300)).expect("a target");
        Governed { servers: None, sla: sla.clone() }.govern(&mut config);
        assert_eq!((config.servers.clone(), &config.setup.sla), (before, &sla));
        let one = config::Server { name: String::from("server-3"), address: String::from("127.0.0.1:9103") };
        Governed { servers: Some(vec![one.clone()]), sla }.govern(&mut config);
        assert_eq!(config.servers, [one]);
    }
}
