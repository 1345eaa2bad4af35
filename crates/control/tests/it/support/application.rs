//! An application whose servers are known: 20 requests/s each, from one to six of them.

use std::time::Duration;

use tidegate_engine::{Sla, Statistic};
use tidegate_provision::{ApplicationSetup, Replica};

pub fn application(name: &str) -> ApplicationSetup {
    ApplicationSetup {
        name: name.into(),
        sla: Sla::constant(Statistic::P95, Duration::from_secs(1)).expect("a target"),
        revenues: vec![1.0],
        min_servers: 1,
        max_servers: 6,
        servers: 1,
        max_sentries: 2,
        replica: Some(Replica::new(0.05, 1.0, 1.0)),
    }
}
