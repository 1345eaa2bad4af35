//! Everything there is to see of a controller at one instant: what metrics, `/api/state` and the dashboard show.

use alloc::string::String;
use alloc::vec::Vec;

use crate::admission::PolicyState;
use crate::facts::Facts;
use crate::fleet::{Role, Status};
use crate::request::TenantKey;

/// Snapshot of an application.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Snapshot {
    /// Name of the application.
    pub application: String,
    /// The SLA's statistic.
    pub statistic: &'static str,
    /// Which time of a request the SLA bounds.
    pub bounds: &'static str,
    /// The target at the current arrival rate, seconds.
    pub target: f64,
    /// Whether refusals are only counted.
    pub shadow: bool,
    /// Requests that servers work on.
    pub in_flight: usize,
    /// Of these, ghosts: nobody waits for them any more.
    pub ghosts: u64,
    /// Of those in flight, those that hang: they should long have been answered, and later ones were. They are not
    /// taken for work.
    pub hanging: usize,
    /// Streams and polls that are open; they are not in flight.
    pub streams: u64,
    /// Tunnels that are open.
    pub tunnels: u64,
    /// Requests waiting in class queues.
    pub waiting: usize,
    /// Requests that arrive, per second: the mean over the last half minute or so, once that is known.
    pub offered_rate: Option<f64>,
    /// Sum of effective processors of the servers that are up.
    pub processors: f64,
    /// Mean inherent service time, seconds, once known.
    pub mean_cost: Option<f64>,
    /// Coefficient of variation of inherent service times, once known: 1 as of exponential ones.
    pub cost_variation: Option<f64>,
    /// Coefficient of variation of the time between arrivals, once known: 1 as of Poisson ones, above it bursty.
    pub arrival_variation: Option<f64>,
    /// Ratio of the SLA's statistic to a prediction from means.
    pub calibration: f64,
    /// URLs in the cost table.
    pub urls: usize,
    /// Alpha: seconds of a request's time per second of its I/O, where servers measure that.
    pub alpha: f64,
    /// What the admission policy shows of itself.
    pub policy: PolicyState,
    /// The dispatch policy's name.
    pub dispatch: &'static str,
    /// What only that policy shows.
    #[serde(flatten)]
    pub dispatching: Facts,
    /// The partition policy's name.
    pub partition: &'static str,
    /// The partitions, that of the most important class first; one of all servers when they are not divided.
    pub partitions: Vec<PartitionSnapshot>,
    /// Per class, most important first.
    pub classes: Vec<ClassSnapshot>,
    /// The tenants that offer most of late, the heaviest first: at most 20.
    pub tenants: Vec<TenantSnapshot>,
    /// The tenants of which the setup says something, by name.
    pub named_tenants: Vec<NamedTenantSnapshot>,
    /// Snapshots of the servers.
    pub servers: Vec<ServerSnapshot>,
    /// Tickets used after their end: a driver's mistake if it is not 0.
    pub stale_tickets: u64,
}

/// One class. Counts are since the start.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct ClassSnapshot {
    /// Name, as in the setup.
    pub name: String,
    /// Requests that arrived.
    pub offered: u64,
    /// Of these, tried before.
    pub retries: u64,
    /// Requests sent to a server.
    pub admitted: u64,
    /// Of these, admitted by the guarantee.
    pub guaranteed: u64,
    /// Requests refused, by reason (only reasons that occurred). In shadow mode: that would have been.
    pub rejected: Vec<(&'static str, u64)>,
    /// Requests answered.
    pub completed: u64,
    /// Of these, within the target.
    pub in_target: u64,
    /// Requests that the server failed or a time-out ended.
    pub failed: u64,
    /// Of these, ended by the controller: they had used several times their predicted cost.
    pub runaways: u64,
    /// Of these, refused by a service that the server called.
    pub refused_below: u64,
    /// Requests whose client left.
    pub cancelled: u64,
    /// Requests that servers work on.
    pub in_flight: u64,
    /// Of these, ghosts: nobody waits for them any more.
    pub ghosts: u64,
    /// Streams and polls that are open; they are not in flight.
    pub streams: u64,
    /// Tunnels that are open.
    pub tunnels: u64,
    /// Requests waiting.
    pub waiting: u64,
    /// Offered rate, requests per second.
    pub offered_rate: f64,
    /// Mean inherent service time, seconds.
    pub mean_cost: f64,
    /// The fair share of a tenant, requests of mean cost per second, while some tenant is above it.
    pub tenant_share: Option<f64>,
    /// Response times over the last half minute or so, seconds: median, 95th and 99th percentile.
    pub p50: Option<f64>,
    /// 95th percentile of the response time, seconds.
    pub p95: Option<f64>,
    /// 99th percentile of the response time, seconds.
    pub p99: Option<f64>,
    /// 95th percentile of the time to the answer's first byte, seconds.
    pub first_byte_p95: Option<f64>,
    /// After how long waiting hardly a client is there any more, seconds, where clients leave without saying when and
    /// that was learned.
    pub patience: Option<f64>,
    /// The SLA's own statistic of what its target bounds, response times or times to the first byte.
    pub statistic: Option<f64>,
}

/// One of the heaviest tenants. Shares are of the work that arrived in the last half minute or so.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct TenantSnapshot {
    /// Which.
    #[serde(serialize_with = "hexadecimal")]
    pub tenant: TenantKey,
    /// Name, where the setup gives it one.
    pub name: Option<String>,
    /// Its share of what arrives, 0 to 1.
    pub share: f64,
    /// By how much that may be too much.
    pub error: f64,
    /// Requests that arrived since it is among the heaviest.
    pub offered: u64,
    /// Of these, refused, for whatever reason.
    pub refused: u64,
}

/// One of the tenants of which the setup says something. Counts are since the start.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct NamedTenantSnapshot {
    /// Name, as in the setup.
    pub name: String,
    /// Requests that arrived.
    pub offered: u64,
    /// Of these, sent to a server.
    pub admitted: u64,
    /// Requests refused, for whatever reason. In shadow mode: that would have been.
    pub refused: u64,
    /// Of these, beyond the tenant's own limit.
    pub limited: u64,
}

fn hexadecimal<S: serde::Serializer>(tenant: &TenantKey, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&format_args!("{:016x}", tenant.0))
}

impl ClassSnapshot {
    /// Requests refused, for all reasons.
    pub fn rejected_total(&self) -> u64 {
        self.rejected.iter().map(|(_, count)| count).sum()
    }
}

/// Snapshot of a partition.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct PartitionSnapshot {
    /// The classes whose requests go there.
    pub classes: Vec<String>,
    /// Servers in it that take requests: the paper's K.
    pub servers: usize,
    /// The sum of their weights.
    pub weight: f64,
    /// What is in flight there, by kind.
    pub held: Vec<HeldSnapshot>,
}

/// What is in flight of a kind of requests at the servers of a partition.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct HeldSnapshot {
    /// Name of the kind of requests.
    pub kind: String,
    /// Requests of the kind in flight.
    pub in_flight: u32,
    /// In service there that others sent, as nuclei tell.
    pub elsewhere: f64,
    /// How many of them these servers hold within the target.
    pub within_target: f64,
    /// How many at their breaking point.
    pub most: f64,
    /// From how many on a policy that counts by kind refuses, per class of the partition.
    pub thresholds: Vec<f64>,
}

/// Snapshot of a server.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct ServerSnapshot {
    /// Name, as in the setup.
    pub name: String,
    /// What it is there for.
    pub role: Role,
    /// Whether it takes requests.
    pub status: Status,
    /// Requests that it works on, ghosts among them.
    pub in_flight: u32,
    /// Streams and polls that are open there.
    pub streams: u32,
    /// Tunnels that are open there.
    pub tunnels: u32,
    /// What it does with requests that nobody waits for any more, as far as is known: `"stops"`, `"works-on"`,
    /// `"unknown"`.
    pub when_abandoned: &'static str,
    /// Of a server that stops: after how long on average, seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stops_after: Option<f64>,
    /// Its share, 1 for an ordinary server.
    pub weight: f64,
    /// The partition it is in, from 1; nothing where servers are not divided.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub partition: Option<u8>,
    /// Number of effective processors, given or learned.
    pub processors: f64,
    /// Whether that is learned (or given).
    pub learned: bool,
    /// Completions that the learned value stands on.
    pub confidence: f64,
    /// Q as its nucleus reports it, seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queueing_delay: Option<f64>,
    /// Requests in service there beyond those in flight here (below 0: some of those wait), as its nucleus reports.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub elsewhere: Option<f64>,
    /// Whether costs of its requests are measured on it.
    pub measures_costs: bool,
    /// Of a data server: whether it can lend; `false` when its nucleus cannot divide its cores.
    pub can_lend: bool,
}
