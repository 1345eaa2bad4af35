//! An API server with nothing in it, and control planes that would lead there.

#![allow(dead_code, reason = "each file of tests uses a part")]

use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use tidegate_control::election::{Candidate, Leader, Turn};
use tidegate_control::kubernetes::ApiServer;
use tidegate_control::plane::{Input, Plane};
use tidegate_control::store::{Store, StoreError};
use tidegate_engine::Timestamp;
use tidegate_engine::provision::{ApplicationReport, FollowConfig, Pool, ProvisionConfig, SentryRule, Site};
use tidegate_engine::units::Seconds;

use crate::api::Api;
use crate::application::application;

pub const PREFIX: &str = "test";
pub const LEASE: Duration = Duration::from_secs(3);
/// Nothing is renewed while a test runs.
pub const LONG: Duration = Duration::from_secs(60);
pub const PATIENCE: Duration = Duration::from_secs(60);

pub struct Home {
    pub api: Api,
    pub kubeconfig: PathBuf,
}

impl Home {
    pub fn start(name: &str) -> Home {
        let api = Api::start();
        let file = format!("tidegate-home-{name}-{}-{}", std::process::id(), api.address.port());
        let kubeconfig = std::env::temp_dir().join(file);
        std::fs::write(&kubeconfig, api.kubeconfig()).expect("a file");
        Home { api, kubeconfig }
    }

    /// A way of its own to the API server.
    pub fn way(&self) -> ApiServer {
        ApiServer::find(Some(self.kubeconfig.clone()), None).expect("a way")
    }

    pub fn candidate(&self, name: &str, lease: Duration) -> Candidate {
        Candidate::in_cluster(self.way(), PREFIX, lease, Leader { name: name.to_owned(), ..Leader::default() })
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        self.api.stop();
        // The file is temporary: leaving it harms nobody.
        let _ = std::fs::remove_file(&self.kubeconfig);
    }
}

/// Leads at once: nobody else does.
#[track_caller]
pub fn lead(candidate: &Candidate) -> (Store, Plane) {
    let Turn::Mine(leadership) = candidate.stand(1).expect("the API server answers") else { panic!("another leads") };
    let mut store = Store::lead(leadership, PREFIX, 1).expect("reads");
    let plane = store.plane(site()).expect("reads");
    (store, plane)
}

/// Gives an input until it is written: how often the API server was away.
#[track_caller]
pub fn until_written(store: &mut Store, plane: &mut Plane, input: &Input) -> u32 {
    let (deadline, mut away) = (Instant::now() + PATIENCE, 0);
    loop {
        match store.handle(plane, input) {
            Ok(_) => return away,
            Err(StoreError::Away(_)) => away += 1,
            Err(error) => panic!("{error}"),
        }
        assert!(Instant::now() < deadline, "the API server does not come back");
        thread::park_timeout(Duration::from_millis(20));
    }
}

/// Waits for a condition.
#[track_caller]
pub fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < deadline, "waited in vain: {what}");
        thread::park_timeout(Duration::from_millis(20));
    }
}

pub fn site() -> Site {
    let follow = FollowConfig { every: Seconds(1.0), smooth: Seconds(3.0), ..FollowConfig::default() };
    Site {
        servers: 8,
        pool: Pool::default(),
        applications: vec![application("shop"), application("mail")],
        policy: ProvisionConfig::Follow(follow),
        sentries: SentryRule::default(),
    }
}

pub fn period(second: u64) -> Input {
    let rate = if second % 60 < 30 { 20 } else { 90 };
    let report = ApplicationReport { offered: vec![rate], ..ApplicationReport::default() };
    let reports = vec![Some(report.clone()), Some(report)];
    Input::Period { now: Timestamp::from_millis(second * 1000), reports, sentries: Vec::new() }
}

pub fn text(plane: &Plane) -> String {
    serde_json::to_string(&plane.state()).expect("text")
}

/// The numbers of all records, in their order.
pub fn numbers(store: &Store) -> Vec<u64> {
    let records = store.audit(0, 100_000).expect("reads");
    records.iter().map(|record| record["number"].as_u64().expect("a number")).collect()
}
