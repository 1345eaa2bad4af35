//! Requests to the API server, and the interpretation of its answers.
//!
//! *Awkward cases.* A write says which version it was made for; when another writer was faster (409), it is read again
//! and written again. An API server that has too much to do (429), fails (5xx), or is not reached is asked again, ever
//! less often; how long it asks to be left alone (`Retry-After`) is kept to by the client library, within a call's
//! time. Credentials that are not accepted (401) are read again: token files are replaced while in use. A watch ends
//! all the time, and goes on from where it was; from a version that is not kept any more (410), everything is read
//! anew. What another call would not change is an error at once, and says what to do: no such deployment, no
//! permission.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::future::Future;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use futures_util::StreamExt;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod as ApiPod;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use kube::{Client, Error};
use serde_json::json;
use tokio::time::{Instant, sleep, timeout};

use super::fleet::Pod;
use super::slices::pods;
use crate::config;
use crate::kubernetes::{causes, load};

/// One call, with what the client library tries again by itself.
const CALL: Duration = Duration::from_secs(10);
/// A watch is asked to end after so long, seconds; one that says nothing for longer is dead.
const WATCH_SECONDS: u32 = 60;
const WATCH_DEAD: Duration = Duration::from_secs(75);
/// Objects of one answer.
const PAGE: u32 = 500;
/// Between two tries: at first, and at most.
const AGAIN: Duration = Duration::from_millis(100);
const AGAIN_MOST: Duration = Duration::from_secs(10);
/// Which pod a deployment lets go first.
const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";
const SERVICE_LABEL: &str = "kubernetes.io/service-name";

/// An API server.
pub(super) struct Cluster {
    kubeconfig: Option<PathBuf>,
    namespace: String,
    deployments: Vec<config::Deployment>,
    client: Mutex<Client>,
    /// The number of pods that each deployment had when it was last set or found right here.
    set: Mutex<BTreeMap<usize, i32>>,
}

/// Which way a number of pods may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    Up,
    Down,
}

/// What became of a call that failed.
#[derive(Clone, Debug)]
pub(super) struct Trouble {
    pub(super) text: String,
    pub(super) kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// It may go well another time.
    Passing,
    /// Another writer was faster.
    Conflict,
    /// The version is not kept any more.
    Gone,
    /// The credentials are not accepted.
    Stranger,
    /// It will not go well until somebody changes something.
    Lasting,
}

impl Cluster {
    /// Reads where the API server is, and who this is there. Nothing is asked yet.
    pub(super) async fn find(config: &config::Kubernetes) -> Result<Cluster, String> {
        let found = load(config.kubeconfig.clone()).await?;
        let namespace = config.namespace.clone().unwrap_or_else(|| found.default_namespace.clone());
        Ok(Cluster {
            kubeconfig: config.kubeconfig.clone(),
            namespace,
            deployments: config.deployments.clone(),
            client: Mutex::new(Client::try_from(found).map_err(|error| error.to_string())?),
            set: Mutex::default(),
        })
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
            self.mend(&trouble).await;
            sleep(next).await;
        }
    }

    async fn try_scale(&self, at: usize, way: Way, wanted: i32) -> Result<(), Trouble> {
        let (api, name) = (self.api::<Deployment>(), &self.deployments[at].name);
        let mut scale = self.call("reading the scale of", name, api.get_scale(name)).await?;
        // The API leaves out a zero.
        let now = scale.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(0);
        let to = if way == Way::Up { now.max(wanted) } else { now.min(wanted) };
        if to != now {
            scale.spec.get_or_insert_default().replicas = Some(to);
            let params = PostParams::default();
            self.call("setting the scale of", name, api.replace_scale(name, &params, &scale)).await?;
        }
        self.set.lock().unwrap_or_else(PoisonError::into_inner).insert(at, to);
        Ok(())
    }

    /// Whether somebody else has set a deployment's number of pods since it was last set here; told once.
    pub(super) async fn foreign(&self, at: usize) -> Result<Option<String>, Trouble> {
        let (api, name) = (self.api::<Deployment>(), &self.deployments[at].name);
        let mine = || self.set.lock().unwrap_or_else(PoisonError::into_inner).get(&at).copied();
        let before = mine();
        if before.is_none() {
            return Ok(None);
        }
        let scale = self.call("reading the scale of", name, api.get_scale(name)).await?;
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
        let (api, params) = (self.api::<ApiPod>(), PatchParams::default());
        let done = self.call("naming as the first to go: pod", pod, api.patch_metadata(pod, &params, &patch));
        match done.await {
            Ok(_) => Ok(()),
            // It has gone.
            Err(trouble) if trouble.text.contains("NotFound") => Ok(()),
            Err(trouble) => Err(trouble),
        }
    }

    /// Tells of a service's pods, as long as it is asked to; and what else is to be said.
    pub(super) async fn follow(&self, at: usize, tell: impl Fn(Vec<Pod>), note: impl Fn(&str, String)) {
        let mut pause = Pause::default();
        let mut said = false;
        loop {
            let Err(trouble) = self.follow_once(at, &tell, &note, &mut pause).await;
            self.mend(&trouble).await;
            if trouble.kind == Kind::Gone {
                sleep(AGAIN).await;
                continue;
            }
            if !std::mem::replace(&mut said, true) || pause.is_fresh() {
                note("kubernetes", format!("{}; what was known last holds", trouble.text));
            }
            sleep(pause.longer()).await;
        }
    }

    /// Reads everything once, and then what changes, until that cannot go on.
    async fn follow_once(
        &self,
        at: usize,
        tell: &impl Fn(Vec<Pod>),
        note: &impl Fn(&str, String),
        pause: &mut Pause,
    ) -> Result<Infallible, Trouble> {
        let deployment = &self.deployments[at];
        let (mut slices, mut version) = self.list(deployment).await?;
        loop {
            tell(pods(slices.values(), deployment.port.as_deref()));
            if let Ok(Some(text)) = self.foreign(at).await {
                note("scaled-by-others", text);
            }
            let began = Instant::now();
            self.watch(deployment, &mut slices, &mut version, tell).await?;
            *pause = Pause::default();
            // One that is ended at once, again and again, is no reason to ask without end.
            sleep((AGAIN * 5).saturating_sub(began.elapsed())).await;
        }
    }

    async fn list(&self, of: &config::Deployment) -> Result<(BTreeMap<String, EndpointSlice>, String), Trouble> {
        let api = self.api::<EndpointSlice>();
        let mut params = ListParams::default().labels(&selector(of)).limit(PAGE);
        let mut slices = BTreeMap::new();
        loop {
            let page = self.call("listing the endpoints of", &of.service, api.list(&params)).await?;
            slices.extend(page.items.into_iter().filter_map(|slice| Some((slice.metadata.name.clone()?, slice))));
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => params = params.continue_token(&token),
                None => return Ok((slices, page.metadata.resource_version.unwrap_or_default())),
            }
        }
    }

    /// Follows changes to the end of one watch.
    async fn watch(
        &self,
        of: &config::Deployment,
        slices: &mut BTreeMap<String, EndpointSlice>,
        version: &mut String,
        tell: &impl Fn(Vec<Pod>),
    ) -> Result<(), Trouble> {
        let api = self.api::<EndpointSlice>();
        let params =
            WatchParams { bookmarks: true, ..WatchParams::default() }.labels(&selector(of)).timeout(WATCH_SECONDS);
        let stream = self.call("watching the endpoints of", &of.service, api.watch(&params, version)).await?;
        let mut stream = pin!(stream);
        loop {
            let silent = |_| Trouble::passing(format!("the watch of {} says nothing any more", of.service));
            let Some(event) = timeout(WATCH_DEAD, stream.next()).await.map_err(silent)? else { return Ok(()) };
            match event.map_err(|error| Trouble::from_error("watching the endpoints of", &of.service, &error))? {
                WatchEvent::Added(slice) | WatchEvent::Modified(slice) => {
                    advance(version, &slice);
                    slices.insert(slice.metadata.name.clone().unwrap_or_default(), slice);
                }
                WatchEvent::Deleted(slice) => {
                    advance(version, &slice);
                    slices.remove(&slice.metadata.name.unwrap_or_default());
                }
                WatchEvent::Bookmark(bookmark) => *version = bookmark.metadata.resource_version,
                WatchEvent::Error(status) => {
                    let error = Error::Api(status);
                    return Err(Trouble::from_error("watching the endpoints of", &of.service, &error));
                }
            }
            tell(pods(slices.values(), of.port.as_deref()));
        }
    }

    /// Does what can be done before the next try.
    async fn mend(&self, trouble: &Trouble) {
        if trouble.kind != Kind::Stranger {
            return;
        }
        let Ok(found) = load(self.kubeconfig.clone()).await else { return };
        if let Ok(client) = Client::try_from(found) {
            *self.client.lock().unwrap_or_else(PoisonError::into_inner) = client;
        }
    }

    async fn call<T>(
        &self,
        what: &str,
        whom: &str,
        call: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Trouble> {
        match timeout(CALL, call).await {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(error)) => Err(Trouble::from_error(what, whom, &error)),
            Err(_) => Err(Trouble::passing(format!("{what} {whom}: the API server does not answer within {CALL:?}"))),
        }
    }

    fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<Scope = kube::core::NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        let client = self.client.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Api::namespaced(client, &self.namespace)
    }
}

impl Trouble {
    fn passing(text: String) -> Trouble {
        Trouble { text, kind: Kind::Passing }
    }

    fn from_error(what: &str, whom: &str, error: &Error) -> Trouble {
        let Error::Api(status) = error else { return Trouble::passing(format!("{what} {whom}: {}", causes(error))) };
        let (kind, hint) = match status.code {
            401 => (Kind::Stranger, "; are its credentials right?"),
            403 => (Kind::Lasting, "; give its role this permission (deploy/kubernetes)"),
            404 => (Kind::Lasting, "; check deployments and namespace in [provider]"),
            409 => (Kind::Conflict, ""),
            410 => (Kind::Gone, ""),
            408 | 429 | 500.. => (Kind::Passing, ""),
            _ => (Kind::Lasting, ""),
        };
        let text = format!("{what} {whom}: {} {}: {}{hint}", status.code, status.reason, status.message.trim());
        Trouble { text, kind }
    }
}

fn advance(version: &mut String, slice: &EndpointSlice) {
    if let Some(new) = &slice.metadata.resource_version {
        version.clone_from(new);
    }
}

fn selector(of: &config::Deployment) -> String {
    format!("{SERVICE_LABEL}={}", of.service)
}

/// Ever longer pauses, each a little off, so that many askers do not come at once.
#[derive(Debug, Default)]
struct Pause(u32);

impl Pause {
    fn is_fresh(&self) -> bool {
        self.0 == 0
    }

    fn longer(&mut self) -> Duration {
        self.0 += 1;
        let whole = AGAIN.saturating_mul(1 << self.0.min(10)).min(AGAIN_MOST);
        whole / 2 + whole.mul_f64(chance() / 2.0)
    }

    fn short(&mut self) -> Duration {
        AGAIN.mul_f64(chance())
    }
}

/// From 0 to 1.
fn chance() -> f64 {
    tidegate_wire::random_u64() as f64 / u64::MAX as f64
}
