//! A cluster for tests: an API server, and what the controllers of a cluster do, as far as it matters here.
//!
//! The API server is the one of `api.rs`, or a real one: `TIDEGATE_TEST_KUBECONFIG` names a file that leads to it. It
//! needs no controllers and no nodes: the tests are the controllers, through the API in both cases.

pub mod api;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{Api as KubeApi, DeleteParams, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Error};
use serde_json::{Value, json};
use tempfile::TempDir;
use tidegate_control::config::{Check, Deployment as Named, Kubernetes, Provider as ProviderConfig};
use tidegate_control::plane::{Process, Step, Unit, What};
use tidegate_control::provider::{Adopted, Presence, Provider, build};
use tokio::runtime::Runtime;

use super::folder::folder;
use api::{Api, CONTROLLERS};

/// A namespace of its own with a deployment `shop` and its controllers.
pub struct Cluster {
    /// `None` with a real API server.
    pub api: Option<Api>,
    pub kubeconfig: PathBuf,
    pub namespace: String,
    folder: TempDir,
    runtime: Arc<Runtime>,
    client: Client,
    controllers: Controllers,
}

/// What becomes of pods.
#[derive(Clone, Default)]
pub struct Controllers {
    stop: Arc<AtomicBool>,
    thread: Arc<Mutex<Option<JoinHandle<()>>>>,
    next: Arc<AtomicU32>,
    /// Pods by name, and whether they are ready.
    pods: Arc<Mutex<BTreeMap<String, bool>>>,
}

impl Cluster {
    /// With a deployment of so many pods.
    pub fn start(name: &str, replicas: u32) -> Cluster {
        let folder = folder();
        let (api, kubeconfig) = match std::env::var_os("TIDEGATE_TEST_KUBECONFIG") {
            Some(real) => (None, PathBuf::from(real)),
            None => {
                let api = Api::start();
                let path = folder.path().join("kubeconfig");
                let token = folder.path().join("token");
                std::fs::write(&path, kubeconfig(&format!("http://{}", api.address), &token)).expect("a file");
                std::fs::write(&token, "first").expect("a file");
                (Some(api), path)
            }
        };
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = Arc::new(runtime.expect("a runtime"));
        let client = runtime.block_on(async {
            let mut read = Kubeconfig::read_from(&kubeconfig).expect("a kubeconfig");
            if api.is_some() {
                // The tests' own controllers are somebody else, whose token stays.
                let user = read.auth_infos[0].auth_info.as_mut().expect("a user");
                (user.token_file, user.token) = (None, Some(CONTROLLERS.to_owned().into()));
            }
            let config = kube::Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await;
            Client::try_from(config.expect("a configuration")).expect("a client")
        });
        let namespace = format!("tidegate-{name}-{}", std::process::id());
        let controllers = Controllers::default();
        let cluster = Cluster { api, kubeconfig, namespace, folder, runtime, client, controllers };
        cluster.make(replicas);
        cluster.control();
        cluster
    }

    /// A provider for this deployment.
    pub fn provider(&self) -> Arc<dyn Provider> {
        self.provider_for("shop")
    }

    pub fn provider_for(&self, deployment: &str) -> Arc<dyn Provider> {
        build(&ProviderConfig::Kubernetes(self.config(deployment)), 1).expect("a provider")
    }

    pub fn config(&self, deployment: &str) -> Kubernetes {
        Kubernetes {
            kubeconfig: Some(self.kubeconfig.clone()),
            namespace: Some(self.namespace.clone()),
            servers: 8,
            deployments: vec![Named {
                name: deployment.into(),
                service: String::from("shop"),
                port: Some("http".into()),
            }],
            check: Check { path: None, hung_after: Duration::from_secs(30) },
        }
    }

    /// The number of pods that the deployment is to have.
    pub fn replicas(&self) -> i32 {
        self.run(self.of::<Deployment>().get("shop")).spec.and_then(|spec| spec.replicas).unwrap_or(0)
    }

    /// Somebody scales it by hand.
    pub fn scale_by_hand(&self, replicas: i32) {
        let patch = json!({ "spec": { "replicas": replicas } });
        self.run(self.of::<Deployment>().patch("shop", &PatchParams::default(), &Patch::Merge(&patch)));
    }

    /// The pods there are, by name.
    pub fn pods(&self) -> Vec<String> {
        self.controllers.lock().keys().cloned().collect()
    }

    /// A pod ends by itself; its deployment replaces it.
    pub fn kill(&self, pod: &str) {
        self.controllers.lock().remove(pod);
        self.run(self.of::<Pod>().delete(pod, &DeleteParams::default().grace_period(0)));
    }

    /// From now on a pod is ready, or not.
    pub fn ready(&self, pod: &str, is_ready: bool) {
        self.controllers.lock().insert(pod.to_owned(), is_ready);
    }

    pub fn write_token(&self, token: &str) {
        std::fs::write(self.folder.path().join("token"), token).expect("a file");
    }

    fn make(&self, replicas: u32) {
        let namespace: Namespace = parse(json!({ "metadata": { "name": self.namespace } }));
        let all: KubeApi<Namespace> = KubeApi::all(self.client.clone());
        self.run(all.create(&PostParams::default(), &namespace));
        let template = json!({ "metadata": { "labels": { "app": "shop" } }, "spec": container() });
        let deployment: Deployment = parse(json!({
            "metadata": { "name": "shop" },
            // Nobody but the test makes pods, where there are real controllers.
            "spec": { "replicas": replicas, "paused": true, "selector": { "matchLabels": { "app": "shop" } },
                "template": template },
        }));
        self.run(self.of::<Deployment>().create(&PostParams::default(), &deployment));
        self.run(self.of::<EndpointSlice>().create(&PostParams::default(), &slice(&BTreeMap::new())));
    }

    /// Starts what a cluster's controllers do.
    fn control(&self) {
        let (controllers, runtime) = (self.controllers.clone(), self.runtime.clone());
        let (deployments, pods) = (self.of::<Deployment>(), self.of::<Pod>());
        let slices = self.of::<EndpointSlice>();
        let thread = std::thread::spawn(move || {
            let mut shown = BTreeMap::new();
            while !controllers.stop.load(Ordering::Relaxed) {
                // What fails is tried again, as controllers do.
                let _ = runtime.block_on(controllers.reconcile(&deployments, &pods, &slices, &mut shown));
                std::thread::park_timeout(Duration::from_millis(20));
            }
        });
        *self.controllers.thread.lock().unwrap_or_else(PoisonError::into_inner) = Some(thread);
    }

    fn of<K>(&self) -> KubeApi<K>
    where
        K: kube::Resource<Scope = kube::core::NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        KubeApi::namespaced(self.client.clone(), &self.namespace)
    }

    #[track_caller]
    fn run<T>(&self, work: impl Future<Output = Result<T, Error>>) -> T {
        self.runtime.block_on(work).expect("the API server does it")
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.controllers.stop.store(true, Ordering::Relaxed);
        let thread = self.controllers.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            thread.thread().unpark();
            // Its panic is printed.
            let _ = thread.join();
        }
        if self.api.is_none() {
            let all: KubeApi<Namespace> = KubeApi::all(self.client.clone());
            // It is only left behind.
            let _ = self.runtime.block_on(all.delete(&self.namespace, &DeleteParams::default()));
        }
    }
}

impl Controllers {
    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, bool>> {
        self.pods.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// As many pods as the deployment says: those that are to go first go first, else the newest.
    async fn reconcile(
        &self,
        deployments: &KubeApi<Deployment>,
        pods: &KubeApi<Pod>,
        slices: &KubeApi<EndpointSlice>,
        shown: &mut BTreeMap<String, bool>,
    ) -> Result<(), Error> {
        let wanted = deployments.get("shop").await?.spec.and_then(|spec| spec.replicas).unwrap_or(0);
        while self.lock().len() < wanted as usize {
            let name = format!("shop-{}", self.next.fetch_add(1, Ordering::Relaxed));
            let pod: Pod =
                parse(json!({ "metadata": { "name": name, "labels": { "app": "shop" } }, "spec": container() }));
            pods.create(&PostParams::default(), &pod).await?;
            self.lock().insert(name, true);
        }
        while self.lock().len() > wanted as usize {
            let names: Vec<String> = self.lock().keys().cloned().collect();
            let mut ranks = Vec::new();
            for (age, name) in names.iter().enumerate() {
                let annotations = pods.get(name).await?.metadata.annotations.unwrap_or_default();
                let cost = annotations.get("controller.kubernetes.io/pod-deletion-cost");
                let cost: i64 = cost.and_then(|cost| cost.parse().ok()).unwrap_or(0);
                ranks.push((cost, std::cmp::Reverse(age), name.clone()));
            }
            let (.., first) = ranks.into_iter().min().expect("there are pods");
            pods.delete(&first, &DeleteParams::default().grace_period(0)).await?;
            self.lock().remove(&first);
        }
        let now = self.lock().clone();
        if now != *shown {
            let mut new = slice(&now);
            new.metadata.resource_version = slices.get("shop-1").await?.metadata.resource_version;
            slices.replace("shop-1", &PostParams::default(), &new).await?;
            *shown = now;
        }
        Ok(())
    }
}

/// A step as the plane makes it.
pub fn step(number: u64, server: usize, what: What) -> Step {
    Step { number, unit: Unit::Server, place: server, what }
}

pub const START: What = What::Start { application: 0 };

/// Starts these places, one after the other.
pub fn start_all(provider: &Arc<dyn Provider>, servers: std::ops::Range<usize>) -> Vec<Adopted> {
    let start = |server: usize| {
        let process =
            provider.apply(&step(server as u64 + 1, server, START), None).expect("starts").expect("a process");
        Adopted { server, application: 0, process: Some(process) }
    };
    servers.map(start).collect()
}

/// How a place is.
pub fn serves(provider: &Arc<dyn Provider>, server: usize) -> bool {
    let known = Process { pid: 0, started: 0, step: 0 };
    provider.look(server, Some(known)) == Presence::Serving
}

fn slice(pods: &BTreeMap<String, bool>) -> EndpointSlice {
    let endpoint = |(name, is_ready): (&String, &bool)| {
        let number: u32 = name.trim_start_matches("shop-").parse().expect("a number");
        json!({
            "addresses": [format!("10.1.{}.{}", number / 250, number % 250 + 1)],
            "conditions": { "ready": is_ready, "serving": is_ready, "terminating": false },
            "targetRef": { "kind": "Pod", "name": name, "uid": format!("6b1f{number:04x}-0000-4000-8000-000000000000") },
        })
    };
    parse(json!({
        "metadata": { "name": "shop-1", "labels": { "kubernetes.io/service-name": "shop" } },
        "addressType": "IPv4",
        "endpoints": pods.iter().map(endpoint).collect::<Vec<_>>(),
        "ports": [{ "name": "http", "port": 8080, "protocol": "TCP" }],
    }))
}

fn container() -> Value {
    json!({ "containers": [{ "name": "shop", "image": "shop" }], "automountServiceAccountToken": false })
}

fn parse<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).expect("an object")
}

fn kubeconfig(server: &str, token: &Path) -> String {
    json!({
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "test",
        "clusters": [{ "name": "test", "cluster": { "server": server } }],
        "users": [{ "name": "test", "user": { "tokenFile": token } }],
        "contexts": [{ "name": "test", "context": { "cluster": "test", "user": "test" } }],
    })
    .to_string()
}
