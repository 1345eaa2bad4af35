//! Specification of an emulated server.

use std::net::{Ipv4Addr, SocketAddr};

use serde::{Deserialize, Serialize};
use tidegate_workload::{Abandoned, Discipline, ServiceTime};

/// The description of an emulated server. Every key has a default but `routes`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ServerSpec {
    /// Its name, sent as `X-Server`.
    pub name: String,
    /// Where it listens; port 0 takes a free one.
    pub listen: SocketAddr,
    /// Number of processor cores.
    pub cores: u32,
    /// How they are shared.
    pub discipline: Discipline,
    /// Requests in service at most, like a limit of worker processes. None: no limit.
    pub concurrency: Option<usize>,
    /// Requests that may wait for service, when there is a limit. None: no limit.
    pub accept_queue: Option<usize>,
    /// What happens to a request that finds the queue full.
    pub overflow: Overflow,
    /// What it does when the connection of a request that it works on is closed from the other side, or half of it; by
    /// HTTP/2, when its stream is reset.
    pub abandoned: Abandoned,
    /// Requests at once on a connection of HTTP/2 that it allows its clients.
    pub streams: u32,
    /// Speed of the cores; 1 is normal.
    pub speed: f64,
    /// What it has besides cores. Steps that use it do not go together with `concurrency`.
    pub resources: Vec<Resource>,
    /// What is served; the longest matching prefix counts. A path that matches none gets 404.
    pub routes: Vec<Route>,
    /// Whether a request may state its own cost, in seconds of one core: `X-Cost: 0.02` in place of the route's, or
    /// `X-More-Cost: 0.02` besides it.
    pub cost_header: bool,
    /// Where it tells how it is doing, as JSON for a nucleus; asking there counts as no request.
    pub status_path: Option<String>,
    /// Seed of the service times.
    pub seed: u64,
    /// What every request asks a memcached before its time on a core; really, not in the model. None: nothing.
    pub look_ups: Option<LookUps>,
    /// Requests really compute, for as much processor time as their service time says, on the cores that the process is
    /// allowed: `cores`, `discipline`, `concurrency`, `accept_queue` and `speed` are the system's then.
    pub computes: bool,
}

/// Look-ups at a memcached, one after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LookUps {
    /// Address of the memcached server.
    pub memcached: SocketAddr,
    /// How many for each request.
    pub count: u32,
    /// Keys to choose from, each as likely.
    pub keys: u32,
}

/// What a path costs and gives.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Route {
    /// The beginning of the paths meant.
    pub prefix: String,
    /// Service time, seconds of one core.
    pub service: ServiceTime,
    /// Size of the response body, bytes.
    #[serde(default)]
    pub response_bytes: u64,
    /// The share of the service time that remains when `Tidegate-Quality` is 0; in between in proportion.
    #[serde(default = "all_of_it")]
    pub degrades_to: f64,
    /// What is done after the time on a core.
    #[serde(default)]
    pub steps: Vec<Step>,
    /// How it is open without being work; it is work and nothing else when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lasts: Option<Lasts>,
    /// The request type by which the status page counts it; it is not counted by type when empty.
    #[serde(default)]
    pub request_type: String,
}

/// How a request is open, after its time on a core.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lasts {
    /// Before its answer, or after its first byte.
    pub kind: LastsAs,
    /// For how long.
    pub time: ServiceTime,
    /// Whether the content type of a stream says that it is one.
    pub told: bool,
}

/// What it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LastsAs {
    /// Its answer begins, and goes on. `X-Lasts: stream` says so to whoever measures.
    Stream,
    /// Its answer comes when there is news. `X-Waited: 9.5` says for how many seconds it waited for that.
    Poll,
}

/// Something that a server has besides cores: a disk, a back end, a way to its clients.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Resource {
    /// Its name, for steps.
    pub name: String,
    /// Units that work side by side.
    pub units: u32,
    /// How they are shared.
    pub discipline: Discipline,
    /// What a unit does per second; 1: amounts are seconds.
    pub rate: f64,
}

/// One use of a resource.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// The resource's name; `None`: the cores.
    pub resource: Option<String>,
    /// How much, in what the resource's `rate` counts; of the cores seconds.
    pub amount: ServiceTime,
    /// Together with the step before (the first: with the time on a core) instead of after it.
    #[serde(default)]
    pub overlap: bool,
}

/// What happens to a request for which there is no room.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Overflow {
    /// It is answered with 503.
    #[default]
    Answer,
    /// Its connection is closed without an answer; by HTTP/2, its stream is reset.
    Close,
}

/// How a server treats new requests; changed while it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// Requests are served as usual.
    #[default]
    Serve,
    /// It answers at once with this error status, without work. Must be a status from 400 to 599.
    Fail(u16),
    /// It takes them and does nothing until the mode changes, then does as the new mode says.
    Hang,
}

/// Why a spec makes no sense.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("emulated server {name:?}: `{key}` must be {must}")]
pub struct SpecError {
    /// Name of the server.
    pub name: String,
    /// The key at fault.
    pub key: &'static str,
    /// What it must be.
    pub must: &'static str,
}

impl Default for ServerSpec {
    fn default() -> ServerSpec {
        ServerSpec {
            name: "server".to_owned(),
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            cores: 1,
            discipline: Discipline::ProcessorSharing,
            concurrency: None,
            accept_queue: None,
            overflow: Overflow::Answer,
            abandoned: Abandoned::Stops,
            streams: 100,
            speed: 1.0,
            resources: Vec::new(),
            routes: Vec::new(),
            cost_header: false,
            status_path: None,
            seed: 1,
            look_ups: None,
            computes: false,
        }
    }
}

impl ServerSpec {
    /// One core under processor sharing that serves every path alike.
    pub fn new(service: ServiceTime, response_bytes: u64) -> ServerSpec {
        ServerSpec::default().route("/", service, response_bytes)
    }

    /// Adds a route.
    #[must_use]
    pub fn route(mut self, prefix: &str, service: ServiceTime, response_bytes: u64) -> ServerSpec {
        self.routes.push(Route {
            prefix: prefix.to_owned(),
            service,
            response_bytes,
            degrades_to: all_of_it(),
            steps: Vec::new(),
            lasts: None,
            request_type: String::new(),
        });
        self
    }

    /// Checks what the types do not.
    ///
    /// # Errors
    /// The first key that makes no sense.
    pub fn validate(&self) -> Result<(), SpecError> {
        let error = |key, must| Err(SpecError { name: self.name.clone(), key, must });
        if self.cores == 0 {
            return error("cores", "at least 1");
        }
        if !(self.speed.is_finite() && self.speed >= 0.0) {
            return error("speed", "a finite number, 0 or more");
        }
        if self.look_ups.is_some_and(|look_ups| look_ups.keys == 0) {
            return error("look_ups", "from at least 1 key");
        }
        if self.concurrency == Some(0) {
            return error("concurrency", "at least 1, or absent");
        }
        if self.streams == 0 {
            return error("streams", "at least 1");
        }
        if self.routes.is_empty() {
            return error("routes", "at least one route: nothing would be served");
        }
        if self.routes.iter().any(|r| !r.prefix.starts_with('/')) {
            return error("routes", "routes whose prefix begins with \"/\"");
        }
        if self.routes.iter().any(|r| !(0.0..=1.0).contains(&r.degrades_to)) {
            return error("routes", "routes whose `degrades_to` is 0 to 1");
        }
        if http::HeaderValue::from_str(&self.name).is_err() {
            return error("name", "printable ASCII: it is sent in a header");
        }
        if self.status_path.as_ref().is_some_and(|path| !path.starts_with('/')) {
            return error("status_path", "a path that begins with \"/\"");
        }
        self.check_resources()
    }

    fn check_resources(&self) -> Result<(), SpecError> {
        let error = |key, must| Err(SpecError { name: self.name.clone(), key, must });
        if self.resources.iter().any(|r| r.units == 0 || !(r.rate.is_finite() && r.rate > 0.0)) {
            return error("resources", "resources with at least 1 unit and a rate above 0");
        }
        let is_known = |step: &Step| step.resource.as_ref().is_none_or(|name| self.station(name).is_some());
        let mut steps = self.routes.iter().flat_map(|route| &route.steps);
        if !steps.all(is_known) {
            return error("routes", "routes whose steps name resources of the server");
        }
        // A place is held for the time on a core only, which is not what a limit of processes means.
        let is_bounded = self.concurrency.is_some() || self.accept_queue.is_some();
        if is_bounded && self.routes.iter().any(|route| !route.steps.is_empty()) {
            return error("concurrency", "absent, and `accept_queue` too, where routes have steps");
        }
        Ok(())
    }

    /// The number of a resource's station; 0 are the cores.
    pub(crate) fn station(&self, resource: &str) -> Option<usize> {
        self.resources.iter().position(|other| other.name == resource).map(|at| at + 1)
    }
}

fn all_of_it() -> f64 {
    1.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn from_text_with_defaults() {
        let text = r#"{"cores":2,"routes":[{"prefix":"/","service":{"distribution":"constant","value":"5ms"}}]}"#;
        let spec: ServerSpec = serde_json::from_str(text).unwrap();
        assert_eq!(
            (spec.cores, spec.discipline, spec.routes[0].service.mean()),
            (2, Discipline::ProcessorSharing, 0.005)
        );
        assert!(spec.validate().is_ok());
        assert!(serde_json::from_str::<ServerSpec>(r#"{"core":2}"#).is_err());
    }

    #[test]
    fn errors_name_the_key() {
        let good = ServerSpec::new(ServiceTime::constant(0.01).unwrap(), 10);
        assert!(good.validate().is_ok());
        let key = |spec: ServerSpec| spec.validate().unwrap_err().key;
        assert_eq!(key(ServerSpec::default()), "routes");
        assert_eq!(key(ServerSpec { cores: 0, ..good.clone() }), "cores");
        assert_eq!(key(ServerSpec { speed: -1.0, ..good.clone() }), "speed");
        assert_eq!(key(ServerSpec { concurrency: Some(0), ..good.clone() }), "concurrency");
        assert_eq!(key(ServerSpec { streams: 0, ..good.clone() }), "streams");
        assert_eq!(key(ServerSpec { name: "a\n".into(), ..good.clone() }), "name");
        assert_eq!(key(ServerSpec { status_path: Some("status".into()), ..good.clone() }), "status_path");
        let disk = Resource { name: "disk".into(), units: 1, discipline: Discipline::Fifo, rate: 1.0 };
        let with = |resource: &str| {
            let step = Step {
                resource: Some(resource.to_owned()),
                amount: ServiceTime::constant(0.1).unwrap(),
                overlap: false,
            };
            let mut spec = ServerSpec { resources: vec![disk.clone()], ..good.clone() };
            spec.routes[0].steps.push(step);
            spec
        };
        assert!(with("disk").validate().is_ok());
        assert_eq!(key(with("tape")), "routes");
        assert_eq!(key(ServerSpec { concurrency: Some(5), ..with("disk") }), "concurrency");
        assert_eq!(key(ServerSpec { resources: vec![Resource { units: 0, ..disk }], ..good }), "resources");
    }
}
