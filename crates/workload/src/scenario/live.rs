//! What only the simulator can do.

use super::{Resource, Scenario};

impl Scenario {
    /// The keys that the live arm cannot follow: empty where a scenario can be run with real HTTP. The live arm must
    /// refuse a scenario that has any, rather than run another experiment than the file describes.
    pub fn simulator_only(&self) -> Vec<String> {
        let servers = &self.servers;
        let mut keys = Vec::new();
        let mut add = |used: bool, key: &str| {
            if used {
                keys.push(key.to_owned());
            }
        };
        add(servers.limit.is_some(), "servers.limit");
        add(servers.backlog.is_some(), "servers.backlog");
        add(servers.knee.is_some(), "servers.knee");
        add(!servers.resources.is_empty(), "servers.resource");
        add(servers.power.is_some(), "servers.power");
        add(servers.off > 0, "servers.off");
        add(servers.warm_up.is_some(), "servers.warm_up");
        add(!self.tiers.is_empty(), "tier");
        add(self.requests.iter().any(|request| !request.steps.is_empty()), "request.step");
        add(self.loads.iter().any(|load| load.retry.is_some()), "load.retry");
        add(!self.users.is_empty(), "users");
        add(self.expects.iter().any(|expect| expect.request.is_some()), "expect.request");
        add(self.link.is_some(), "link");
        add(self.sentry.is_some(), "sentry");
        add(self.reports.is_some(), "reports");
        add(!self.faults.is_empty(), "fault");
        add(self.provision.is_some(), "provision");
        keys
    }
}

impl Resource {
    /// Whether it is held rather than used up: a pool of tokens.
    pub fn is_pool(&self) -> bool {
        self.tokens.is_some()
    }
}
