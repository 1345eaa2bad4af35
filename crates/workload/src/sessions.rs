//! Web users: sessions of pages with what is embedded in them.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::profile::Profile;
use crate::surge::{Asked, Surge, SurgePages};
use crate::time;

/// Web users of one class who come at a rate of their own, ask for some pages, and leave. A page and what is embedded
/// in it are one request, over one connection to one server; its time on a core is that of its request type and of its
/// objects and bytes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sessions {
    /// Their name, the class's when absent. Results and expectations have two loads of them: `<name>-static` and
    /// `<name>-dynamic`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The class of their requests.
    pub class: String,
    /// Sessions that begin, over time. Each has about four pages, so that pages come at about four times this rate.
    pub rate: Profile,
    /// The request type of pages from files.
    #[serde(rename = "static")]
    pub of_static: String,
    /// The request type of pages made on demand that cost little.
    pub dynamic_light: String,
    /// The request type of pages made on demand that cost processor time.
    pub dynamic_cpu: String,
    /// The request type of pages made on demand that cost processor and disk time.
    pub dynamic_cpu_and_disk: String,
    /// Time on a core for each embedded object.
    #[serde(default, skip_serializing_if = "Duration::is_zero", with = "time::text")]
    pub per_object: Duration,
    /// Time on a core for each kibibyte of page and objects.
    #[serde(default, skip_serializing_if = "Duration::is_zero", with = "time::text")]
    pub per_kib: Duration,
    /// Bytes of a page and its objects at most: the distribution of sizes has no finite mean.
    #[serde(default = "ten_mebibytes")]
    pub most_bytes: u64,
    /// The distributions of sessions, pages, objects and think times, and the shares of page kinds; `top_users` plays
    /// no part here.
    #[serde(default)]
    pub surge: Surge,
}

impl Sessions {
    /// Its names in results: of pages from files, and of pages made on demand.
    pub fn labels(&self) -> [String; 2] {
        let label = self.name.as_deref().unwrap_or(&self.class);
        [format!("{label}-static"), format!("{label}-dynamic")]
    }

    /// The request types by kind of page: from a file, light, processor, processor and disk.
    pub fn types(&self) -> [&str; 4] {
        [&self.of_static, &self.dynamic_light, &self.dynamic_cpu, &self.dynamic_cpu_and_disk]
    }

    /// The position of a kind of page in [`Sessions::types`].
    pub fn position(kind: Asked) -> usize {
        match kind {
            Asked::Static | Asked::Object => 0,
            Asked::DynamicLight => 1,
            Asked::DynamicCpu => 2,
            Asked::DynamicCpuAndDisk => 3,
        }
    }

    /// The pages that they ask for until `end`, as the scenario's group number `at` with `seed`: the same in the
    /// simulator and with real HTTP.
    ///
    /// # Panics
    /// Never, for a scenario that was read: its shares were checked.
    pub fn pages(&self, at: usize, end: Duration, seed: u64) -> SurgePages {
        let pages = self.surge.page_views(&self.rate.until(end), seed.wrapping_add(STREAMS + 2 * at as u64));
        pages.expect("its shares were checked when it was read")
    }

    /// Time on a core of so many objects and bytes, seconds.
    pub fn work(&self, objects: u32, bytes: u64) -> f64 {
        let kib = bytes.min(self.most_bytes) as f64 / 1024.0;
        self.per_object.as_secs_f64() * f64::from(objects) + self.per_kib.as_secs_f64() * kib
    }
}

/// Streams of random numbers for sessions begin here, far from those of other clients.
const STREAMS: u64 = 1 << 33;

fn ten_mebibytes() -> u64 {
    10 << 20
}
