//! Servers as pods of Kubernetes deployments.
//!
//! | file | question |
//! |---|---|
//! | `fleet.rs` | which pod stands at which place: pure |
//! | `cluster.rs` | what is asked of the API server beside which pods there are, which `tidegate-kubernetes` knows |
//!
//! *Intuition.* A deployment gets as many pods as places are in use. That number is said as it is and not as a
//! difference, so every step can be done again. Endpoint slices are watched and say which pods there are.
//!
//! *Awkward cases.* Starting a place never takes pods away, and giving one up never adds some: a deployment that has
//! more pods than places, because it ran before or somebody else scaled it, keeps them until a place is given up. An
//! API server that is not reached changes nothing: what was known last holds.

mod cluster;
mod fleet;

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;

use super::check::answers;
use super::{Adopted, Presence, Provider, ProviderError};
use crate::config;
use crate::plane::{Process, Step, What};
use cluster::{Cluster, Way};
use fleet::Fleet;

/// A step gives up after so long.
const STEP: Duration = Duration::from_secs(30);
/// A step waits so long for its pod to have an address, so that the pod is on record.
const APPEARS: Duration = Duration::from_secs(8);
/// What is to be said waits; more than so much is dropped, oldest first.
const NOTES: usize = 64;

/// The provider.
pub(super) struct Pods {
    check: config::Check,
    deployments: usize,
    shared: Arc<Shared>,
    runtime: Option<Runtime>,
}

struct Shared {
    cluster: Cluster,
    fleet: Mutex<Fleet>,
    changed: Condvar,
    notes: Mutex<VecDeque<(String, String)>>,
}

impl fmt::Debug for Pods {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pods").field("deployments", &self.deployments).finish_non_exhaustive()
    }
}

impl Pods {
    pub(super) fn new(config: &config::Kubernetes) -> Result<Pods, ProviderError> {
        let failed = |source| ProviderError::System { what: String::from("a thread's place"), source };
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("tidegate-pods")
            .enable_all()
            .build();
        let runtime = runtime.map_err(failed)?;
        // The caller may itself run within a runtime, where nothing may be waited for.
        let find = || runtime.block_on(Cluster::find(config));
        let found = std::thread::scope(|scope| scope.spawn(find).join());
        let cluster = found.unwrap_or_else(|_| Err(String::from("it broke off"))).map_err(ProviderError::Kubernetes)?;
        let deployments = config.deployments.len();
        let shared = Arc::new(Shared {
            cluster,
            fleet: Mutex::new(Fleet::new(deployments)),
            changed: Condvar::new(),
            notes: Mutex::default(),
        });
        Ok(Pods { check: config.check.clone(), deployments, shared, runtime: Some(runtime) })
    }

    fn start(&self, step: &Step, application: usize) -> Result<Process, ProviderError> {
        self.shared.fleet().start(Instant::now(), application, step.place);
        if let Err(error) = self.scale(application, Way::Up) {
            let _ = self.shared.fleet().stop(Instant::now(), step.place);
            return Err(error);
        }
        let fleet = self.shared.fleet();
        let nameless = |fleet: &mut Fleet| fleet.mark(step.place) == 0;
        let waited = self.shared.changed.wait_timeout_while(fleet, APPEARS, nameless);
        let mark = waited.unwrap_or_else(PoisonError::into_inner).0.mark(step.place);
        Ok(Process { pid: mark as u32, started: mark, step: step.number })
    }

    fn stop(&self, step: &Step) -> Result<(), ProviderError> {
        let whose = self.shared.fleet().stop(Instant::now(), step.place);
        // Of a step that failed before, or of a daemon before this one, it is not known any more whose it was.
        let deployments = whose.map_or(0..self.deployments, |at| at..at + 1);
        for at in deployments {
            let spare = self.shared.fleet().spare(at);
            for pod in spare {
                if let Err(trouble) = self.wait(self.shared.cluster.name_to_go(&pod, step.number)) {
                    self.shared.note("kubernetes", format!("{}; another pod may go in its place", trouble.text));
                }
            }
            self.scale(at, Way::Down)?;
        }
        Ok(())
    }

    fn scale(&self, at: usize, way: Way) -> Result<(), ProviderError> {
        let wanted = || i32::try_from(self.shared.fleet().wanted(at)).unwrap_or(i32::MAX);
        let done = self.wait(self.shared.cluster.scale(at, way, STEP, wanted));
        done.map_err(|trouble| ProviderError::Kubernetes(trouble.text))
    }

    fn wait<T>(&self, work: impl Future<Output = T>) -> T {
        self.runtime.as_ref().expect("it is there until the end").block_on(work)
    }
}

impl Drop for Pods {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Provider for Pods {
    fn apply(&self, step: &Step, _known: Option<Process>) -> Result<Option<Process>, ProviderError> {
        match step.what {
            What::Start { application } => self.start(step, application).map(Some),
            What::Stop => self.stop(step).map(|()| None),
        }
    }

    fn look(&self, server: usize, _known: Option<Process>) -> Presence {
        let (presence, address) = {
            let fleet = self.shared.fleet();
            (fleet.look(server), fleet.address(server))
        };
        match (presence, &self.check.path, address) {
            (Presence::Serving, Some(path), Some(address)) if !answers(&address, Some(path)) => Presence::Silent,
            _ => presence,
        }
    }

    fn adopt(&self, servers: &[Adopted]) {
        for adopted in servers {
            self.shared.fleet().adopt(adopted.application, adopted.server, adopted.process);
        }
        for at in 0..self.deployments {
            let shared = self.shared.clone();
            self.runtime.as_ref().expect("it is there until the end").spawn(async move {
                let tell = |pods| {
                    shared.fleet().see(Instant::now(), at, pods);
                    shared.changed.notify_all();
                };
                shared.cluster.follow(at, tell, |kind, text| shared.note(kind, text)).await;
            });
        }
    }

    fn address(&self, server: usize) -> Option<String> {
        self.shared.fleet().address(server)
    }

    fn name(&self, post: usize) -> Option<String> {
        self.shared.fleet().name(post)
    }

    fn take_notes(&self) -> Vec<(String, String)> {
        self.shared.notes.lock().unwrap_or_else(PoisonError::into_inner).drain(..).collect()
    }
}

impl Shared {
    fn fleet(&self) -> MutexGuard<'_, Fleet> {
        self.fleet.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, kind: &str, text: String) {
        let mut notes = self.notes.lock().unwrap_or_else(PoisonError::into_inner);
        if notes.len() >= NOTES {
            notes.pop_front();
        }
        notes.push_back((kind.to_owned(), text));
    }
}
