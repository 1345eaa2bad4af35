//! What `tidegate_loadgen::capacity` is asked to find.

use std::time::Duration;

use tidegate_loadgen::capacity::{Bounds, Loops, Target};
use tidegate_testbed::{ServerSpec, ThreadedCluster};

use super::load::{constant, start};

/// A server of a constant service time; with `concurrency`, so many in service and as many that wait.
pub fn server(cores: u32, milliseconds: f64, concurrency: Option<usize>) -> ThreadedCluster {
    let service = constant(milliseconds / 1000.0);
    start(ServerSpec { cores, concurrency, accept_queue: concurrency, ..ServerSpec::new(service, 100) })
}

pub fn target(server: &ThreadedCluster) -> Target {
    Target { name: "page".into(), url: server.servers()[0].url("/page"), headers: Vec::new() }
}

pub fn bounds(target_ms: u64, loops: Loops) -> Bounds {
    Bounds {
        target: Duration::from_millis(target_ms),
        step: Duration::from_millis(1500),
        most_in_flight: 64,
        most_rate: 1000.0,
        seed: 1,
        loops,
    }
}
