//! An API server with nothing in it, and control planes that would lead there.

use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tidegate_control::election::{Candidate, Leader, Turn};
use tidegate_control::kubernetes::ApiServer;
use tidegate_control::plane::{Input, Plane};
use tidegate_control::store::Store;
use tidegate_engine::Timestamp;
use tidegate_engine::units::Seconds;
use tidegate_provision::{ApplicationReport, FollowConfig, Pool, ProvisionConfig, SentryRule, Site};

use super::application::application;
use super::cluster::api::Api;
use super::folder::folder;
use super::{PATIENCE, give, was_late};

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
    }
}

/// Leads at once: nobody else does.
#[track_caller]
pub fn lead(candidate: &Candidate) -> (Store, Plane) {
    loop {
        match stand(candidate) {
            Ok(Some(led)) => return led,
            Ok(None) => {}
            Err(leader) => panic!("{leader} leads"),
        }
    }
}

/// Looks as a control plane does that waits, until it is elected.
#[track_caller]
pub fn elected(candidate: &Candidate) -> (Store, Plane) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Ok(Some(led)) = stand(candidate) {
            return led;
        }
        assert!(Instant::now() < deadline, "another one leads for ever");
        thread::park_timeout(candidate.look_every());
    }
}

/// Stands for election once, and reads what there is; `None`: a call was late. Else the name of who leads.
fn stand(candidate: &Candidate) -> Result<Option<(Store, Plane)>, String> {
    let leadership = match candidate.stand(1) {
        Ok(Turn::Mine(leadership)) => leadership,
        Ok(Turn::Others(leader)) => return Err(leader.name),
        Err(error) if was_late(&error) => return Ok(None),
        Err(error) => panic!("{error}"),
    };
    let mut store = Store::lead(leadership, PREFIX, 1).expect("nothing is asked yet");
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
