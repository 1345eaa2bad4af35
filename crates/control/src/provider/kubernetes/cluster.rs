//! What is asked of the API server, beside which pods there are.
//!
//! *Awkward cases.* A write says which version it was made for; when another writer was faster (409), it is read again
//! and written again. What another call would not change is an error at once, and says what to do: no such deployment,
//! no permission. Everything else is tried again, ever less often.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod as ApiPod;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::json;
use tidegate_kubernetes::{Access, Endpoints, Kind, Pause, Pod, Trouble};
use tokio::time::{Instant, sleep};

use crate::config;

/// Which pod a deployment lets go first.
const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";

/// An API server.
pub(super) struct Cluster {
    access: Arc<Access>,
    deployments: Vec<config::Deployment>,
    /// The number of pods that each deployment had when it was last set or found right here.
    set: Mutex<BTreeMap<usize, i32>>,
}

/// Which way a number of pods may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    Up,
    Down,
}

impl Cluster {
    /// Reads where the API server is, and who this is there. Nothing is asked yet.
    pub(super) async fn find(config: &config::Kubernetes) -> Result<Cluster, String> {
        let access = Arc::new(Access::find(config.kubeconfig.clone(), config.namespace.clone()).await?);
        Ok(Cluster { access, deployments: config.deployments.clone(), set: Mutex::default() })
    }

    /// Moves a deployment's number of pods towards `wanted`, which may change meanwhile; never the other way.
    pub(super) async fn scale(
        &self,
        at: usize,
        way: Way,
        limit: Duration,
        wanted: impl Fn() -> i32,
    ) -> Result<(), Trouble> {
        let deadline = Instant::now() + limit;
        let mut pause = Pause::default();
        loop {
            let Err(trouble) = self.try_scale(at, way, wanted()).await else { return Ok(()) };
            let next = if trouble.kind == Kind::Conflict { pause.short() } else { pause.longer() };
            if trouble.kind == Kind::Lasting || Instant::now() + next >= deadline {
                return Err(trouble);
            }
            self.access.mend(&trouble).await;
            sleep(next).await;
        }
    }

    async fn try_scale(&self, at: usize, way: Way, wanted: i32) -> Result<(), Trouble> {
        let (api, name) = (self.access.api::<Deployment>(), &self.deployments[at].name);
        let mut scale = self.access.call("reading the scale of", name, api.get_scale(name)).await?;
        // The API leaves out a zero.
        let now = scale.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(0);
        let to = if way == Way::Up { now.max(wanted) } else { now.min(wanted) };
        if to != now {
            scale.spec.get_or_insert_default().replicas = Some(to);
            let params = PostParams::default();
            self.access.call("setting the scale of", name, api.replace_scale(name, &params, &scale)).await?;
        }
        self.set.lock().unwrap_or_else(PoisonError::into_inner).insert(at, to);
        Ok(())
    }

    /// Whether somebody else has set a deployment's number of pods since it was last set here; told once.
    pub(super) async fn foreign(&self, at: usize) -> Result<Option<String>, Trouble> {
        let (api, name) = (self.access.api::<Deployment>(), &self.deployments[at].name);
        let mine = || self.set.lock().unwrap_or_else(PoisonError::into_inner).get(&at).copied();
        let before = mine();
        if before.is_none() {
            return Ok(None);
        }
        let scale = self.access.call("reading the scale of", name, api.get_scale(name)).await?;
        let now = scale.spec.and_then(|spec| spec.replicas).unwrap_or(0);
        let Some(set) = before.filter(|set| *set != now && mine() == before) else { return Ok(None) };
        self.set.lock().unwrap_or_else(PoisonError::into_inner).insert(at, now);
        Ok(Some(format!(
            "deployment {name} has {now} replicas, and {set} were set here: something else scales it, too; let only one \
             of a HorizontalPodAutoscaler and tidegate do it"
        )))
    }

    /// Makes a pod the first that its deployment lets go; the later the step, the sooner.
    pub(super) async fn name_to_go(&self, pod: &str, step: u64) -> Result<(), Trouble> {
        let cost = -i32::try_from(step).unwrap_or(i32::MAX);
        let patch = Patch::Merge(json!({ "metadata": { "annotations": { DELETION_COST: cost.to_string() } } }));
        let (api, params) = (self.access.api::<ApiPod>(), PatchParams::default());
        let done = self.access.call("naming as the first to go: pod", pod, api.patch_metadata(pod, &params, &patch));
        match done.await {
            Ok(_) => Ok(()),
            // It has gone.
            Err(trouble) if trouble.text.contains("NotFound") => Ok(()),
            Err(trouble) => Err(trouble),
        }
    }

    /// Tells of a service's pods, as long as it is asked to; and what else is to be said.
    pub(super) async fn follow(&self, at: usize, tell: impl Fn(Vec<Pod>), note: impl Fn(&str, String)) {
        let deployment = &self.deployments[at];
        let mut endpoints = Endpoints::new(self.access.clone(), &deployment.service, deployment.port.as_deref());
        let mut last = None;
        loop {
            let pods = match endpoints.next().await {
                Ok(pods) => pods,
                Err(trouble) => {
                    note("kubernetes", format!("{}; what was known last holds", trouble.text));
                    continue;
                }
            };
            tell(pods.clone());
            // Once a minute nothing else is new.
            if last.as_ref() == Some(&pods)
                && let Ok(Some(text)) = self.foreign(at).await
            {
                note("scaled-by-others", text);
            }
            last = Some(pods);
        }
    }
}
