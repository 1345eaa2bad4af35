//! What a piece of an endurance run left to see.

use std::fmt;
use std::fs;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::site::Site;
use crate::bench::proc_fs;

/// What was seen of a piece.
pub struct Look {
    /// By sentry.
    seen: Vec<Seen>,
    p50: f64,
    p95: f64,
    /// Bytes of the sentry's own memory, and its descriptors.
    memory: u64,
    descriptors: u64,
    /// The learned cost of a request, seconds: the level that must not wander.
    cost: f64,
}

/// What became of requests.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    offered: u64,
    admitted: u64,
    refused: u64,
    /// Neither answered well nor refused.
    failed: u64,
}

impl Seen {
    fn of(load: &Value) -> Result<Seen> {
        let count =
            |name: &str| load["total"][name].as_u64().with_context(|| format!("the load does not say `{name}`"));
        let (offered, admitted, refused) = (count("offered")?, count("admitted")?, count("refused")?);
        Ok(Seen { offered, admitted, refused, failed: offered.saturating_sub(admitted + refused) })
    }

    fn and(self, other: &Seen) -> Seen {
        Seen {
            offered: self.offered + other.offered,
            admitted: self.admitted + other.admitted,
            refused: self.refused + other.refused,
            failed: self.failed + other.failed,
        }
    }

    fn serves(&self, share: f64) -> bool {
        self.offered > 0 && self.admitted as f64 >= share * self.offered as f64
    }
}

impl Look {
    /// After a load, whose reports these are: the sentry's, then its peer's.
    ///
    /// # Errors
    /// When the sentry or the report does not say.
    pub fn at(site: &Site, loads: &[Value]) -> Result<Look> {
        let seen = loads.iter().map(Seen::of).collect::<Result<Vec<_>>>()?;
        let latency = |name: &str| loads[0]["total"]["latency"][name].as_f64().unwrap_or(f64::NAN);
        let state = site.state()?;
        let app = &state["applications"][0];
        let pid = site.pid();
        Ok(Look {
            seen,
            p50: latency("p50"),
            p95: latency("p95"),
            memory: proc_fs::memory(pid)?.rss,
            descriptors: fs::read_dir(format!("/proc/{pid}/fd"))?.count() as u64,
            // Of the class that has most requests.
            cost: app["classes"][1]["mean_cost"].as_f64().context("/api/state has no `mean_cost`")?,
        })
    }

    /// Whether at least such a share of what was offered to all together was served.
    pub fn serves(&self, share: f64) -> bool {
        self.all().serves(share)
    }

    /// The same of each sentry.
    pub fn each_serves(&self, share: f64) -> bool {
        self.seen.iter().all(|seen| seen.serves(share))
    }

    fn all(&self) -> Seen {
        self.seen.iter().fold(Seen::default(), Seen::and)
    }

    /// A line of the record.
    pub fn to_json(&self, pid: u32, piece: usize) -> Value {
        let Seen { offered, admitted, refused, failed } = self.all();
        let peer = self.seen.get(1).map(|seen| json!({ "offered": seen.offered, "admitted": seen.admitted }));
        json!({
            "piece": piece, "process": pid, "offered": offered, "admitted": admitted, "refused": refused,
            "failed": failed, "peer": peer, "p50_s": self.p50, "p95_s": self.p95,
            "memory_bytes": self.memory, "descriptors": self.descriptors, "mean_cost_s": self.cost,
        })
    }
}

impl fmt::Display for Look {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (seen, place) in self.seen.iter().zip(["", "at the peer "]) {
            let Seen { offered, admitted, refused, failed } = seen;
            write!(f, "{place}{admitted} of {offered} admitted, {refused} refused, {failed} failed, ")?;
        }
        write!(f, "p50 {:.0} ms, p95 {:.0} ms, ", self.p50 * 1e3, self.p95 * 1e3)?;
        write!(f, "{:.1} MB, {} descriptors, ", self.memory as f64 / 1e6, self.descriptors)?;
        write!(f, "cost {:.2} ms", self.cost * 1e3)
    }
}
