//! How long requests take whose database has gone away.

use std::time::Duration;

use crate::outage::{hanging, killed_under_load};

/// A request's own time is ten seconds, and a failure takes no longer than that and what the service adds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement: cargo xtask test runs it alone and watches the machine"]
async fn under_load_a_killed_mariadb_fails_each_request_in_its_time() -> Result<(), String> {
    killed_under_load(Duration::from_secs(15)).await
}

/// Each of eight requests that wait for two connections has one second.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement: cargo xtask test runs it alone and watches the machine"]
async fn a_mariadb_that_hangs_costs_requests_no_more_than_their_time() -> Result<(), String> {
    hanging(Duration::from_secs(1), Duration::from_secs(20)).await
}
