//! What a piece of an endurance run left to see.

use std::fmt;
use std::fs;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::site::Site;
use crate::bench::proc_fs;

/// What was seen of a piece.
pub struct Look {
    offered: u64,
    admitted: u64,
    refused: u64,
    /// Neither answered well nor refused.
    failed: u64,
    p50: f64,
    p95: f64,
    /// Bytes of the sentry's own memory, and its descriptors.
    memory: u64,
    descriptors: u64,
    /// The learned cost of a request, seconds: the level that must not wander.
    cost: f64,
}

impl Look {
    /// After a load, whose report this is.
    ///
    /// # Errors
    /// When the sentry or the report does not say.
    pub fn at(site: &Site, load: &Value) -> Result<Look> {
        let total = &load["total"];
        let count = |name: &str| total[name].as_u64().with_context(|| format!("the load does not say `{name}`"));
        let latency = |name: &str| total["latency"][name].as_f64().unwrap_or(f64::NAN);
        let state = site.state()?;
        let app = &state["applications"][0];
        let (offered, admitted, refused) = (count("offered")?, count("admitted")?, count("refused")?);
        let pid = site.pid();
        Ok(Look {
            offered,
            admitted,
            refused,
            failed: offered.saturating_sub(admitted + refused),
            p50: latency("p50"),
            p95: latency("p95"),
            memory: proc_fs::memory(pid)?.rss,
            descriptors: fs::read_dir(format!("/proc/{pid}/fd"))?.count() as u64,
            // Of the class that has most requests.
            cost: app["classes"][1]["mean_cost"].as_f64().context("/api/state has no `mean_cost`")?,
        })
    }

    /// Whether at least such a share of what was offered was served.
    pub fn serves(&self, share: f64) -> bool {
        self.offered > 0 && self.admitted as f64 >= share * self.offered as f64
    }

    /// A line of the record.
    pub fn to_json(&self, pid: u32, piece: usize) -> Value {
        json!({
            "piece": piece, "process": pid, "offered": self.offered, "admitted": self.admitted,
            "refused": self.refused, "failed": self.failed, "p50_s": self.p50, "p95_s": self.p95,
            "memory_bytes": self.memory, "descriptors": self.descriptors, "mean_cost_s": self.cost,
        })
    }
}

impl fmt::Display for Look {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Look { offered, admitted, refused, failed, .. } = self;
        write!(f, "{admitted} of {offered} admitted, {refused} refused, {failed} failed, ")?;
        write!(f, "p50 {:.0} ms, p95 {:.0} ms, ", self.p50 * 1e3, self.p95 * 1e3)?;
        write!(f, "{:.1} MB, {} descriptors, ", self.memory as f64 / 1e6, self.descriptors)?;
        write!(f, "cost {:.2} ms", self.cost * 1e3)
    }
}
