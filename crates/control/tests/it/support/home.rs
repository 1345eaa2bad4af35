//! An API server with nothing in it, and control planes that would lead there.

use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tidegate_control::backend::{Backend, ClusterBackend, Contact, StoreError, Turn};
use tidegate_control::config::ClusterConfig;
use tidegate_control::plane::{Input, Plane};
use tidegate_engine::Timestamp;
use tidegate_engine::units::Seconds;
use tidegate_provision::{ApplicationReport, FollowConfig, Pool, Posts, ProvisionConfig, SentryRule, Site};

use super::application::application;
use super::cluster::api::Api;
use super::folder::folder;
use super::{PATIENCE, Store, give, was_late};

pub const PREFIX: &str = "test";
/// The shortest lease that a Lease can say.
pub const SHORT: Duration = Duration::from_secs(1);
/// Nothing is renewed while a test runs.
pub const LONG: Duration = Duration::from_secs(60);

pub struct Home {
    pub api: Api,
    pub kubeconfig: PathBuf,
    /// For files of a test.
    pub folder: TempDir,
}

impl Home {
    pub fn start() -> Home {
        let (api, folder) = (Api::start(), folder());
        let kubeconfig = folder.path().join("kubeconfig");
        std::fs::write(&kubeconfig, api.kubeconfig()).expect("a file");
        Home { api, kubeconfig, folder }
    }

    /// One that would lead, with a way of its own to the API server.
    pub fn candidate(&self, name: &str, lease: Duration) -> ClusterBackend {
        let config = ClusterConfig {
            kubeconfig: Some(self.kubeconfig.clone()),
            namespace: None,
            prefix: PREFIX.to_owned(),
            lease,
            name: name.to_owned(),
            pod: None,
        };
        ClusterBackend::find(&config).expect("a way")
    }

    /// The store, only to look.
    pub fn look(&self) -> Result<Store, StoreError> {
        self.candidate("nobody", LONG).look()
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        self.api.stop();
    }
}

/// Stands for election once.
pub fn stand(candidate: &ClusterBackend) -> Result<Turn, StoreError> {
    candidate.stand(&Contact::default(), 1)
}

/// Leads at once: nobody else does.
#[track_caller]
pub fn lead(candidate: &ClusterBackend) -> (Store, Plane) {
    loop {
        match try_to_lead(candidate) {
            Ok(Some(led)) => return led,
            Ok(None) => {}
            Err(leader) => panic!("{leader} leads"),
        }
    }
}

/// Looks as a control plane does that waits, until it is elected.
#[track_caller]
pub fn elected(candidate: &ClusterBackend) -> (Store, Plane) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Ok(Some(led)) = try_to_lead(candidate) {
            return led;
        }
        assert!(Instant::now() < deadline, "another one leads for ever");
        thread::park_timeout(candidate.look_every());
    }
}

/// Stands for election once, and reads what there is; `None`: a call was late. Else the name of who leads.
fn try_to_lead(candidate: &ClusterBackend) -> Result<Option<(Store, Plane)>, String> {
    let mut store = match stand(candidate) {
        Ok(Turn::Mine(store)) => store,
        Ok(Turn::Others(leader)) => return Err(leader.name),
        Err(error) if was_late(&error) => return Ok(None),
        Err(error) => panic!("{error}"),
    };
    match store.plane(site()) {
        Ok(plane) => Ok(Some((store, plane))),
        Err(error) if was_late(&error) => Ok(None),
        Err(error) => panic!("{error}"),
    }
}

/// Writes inputs, one after the other.
#[track_caller]
pub fn write(store: &mut Store, plane: &mut Plane, seconds: impl IntoIterator<Item = u64>) {
    for second in seconds {
        give(store, plane, &period(second), |why| was_late(&why)).expect("is written");
    }
}

/// Gives an input until it is written, whatever goes wrong on purpose: how often the API server was away.
#[track_caller]
pub fn until_written(store: &mut Store, plane: &mut Plane, input: &Input) -> u32 {
    give(store, plane, input, |_| true).expect("is written")
}

pub fn site() -> Site {
    let follow = FollowConfig { every: Seconds(1.0), smooth: Seconds(3.0), ..FollowConfig::default() };
    Site {
        servers: 8,
        pool: Pool::default(),
        applications: vec![application("shop"), application("mail")],
        policy: ProvisionConfig::Follow(follow),
        sentries: SentryRule::default(),
        posts: Posts::default(),
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
