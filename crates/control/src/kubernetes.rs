//! Objects of a cluster's API server: calls that block and end in bounded time, whatever the API server does.
//!
//! *Intuition.* A thread of its own moves the bytes (`worker.rs`). An object has a version; a write names
//! the one that it was made for, and is refused when there is another by now.
//!
//! *Awkward cases.* A call that was not answered may have been carried out all the same, or be so later: who writes
//! must be able to give the same thing again. A connection over which nothing comes any more looks like one that is
//! slow: it is given up with the first call that runs out of time. Credentials that are not accepted are read again.
//!
//! *Source.* The conventions of the Kubernetes API: `resourceVersion`, 409 with its two reasons, `Retry-After`.

use std::fmt::Debug;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::core::ObjectMeta;
use kube::{Client, Error, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;
use thiserror::Error as ThisError;
use tidegate_kubernetes::{causes, load};
use tokio::time::timeout;

use crate::worker::{PATIENCE, Worker};

/// Objects of one answer.
const PAGE: u32 = 500;

/// A way to an API server. Clones share its connections.
#[derive(Clone, Debug)]
pub struct ApiServer {
    calls: Arc<Calls>,
    worker: Arc<Worker>,
}

/// The calls themselves, for tasks of the thread.
pub(crate) struct Calls {
    kubeconfig: Option<PathBuf>,
    namespace: String,
    /// Where this one is at home; its pod, where it has one.
    home: String,
    client: Mutex<Client>,
}

/// Why a call came to nothing.
#[derive(Clone, Debug, PartialEq, Eq, ThisError)]
pub enum ApiError {
    /// Nobody answered, or not now; it may have been carried out all the same.
    #[error("the API server does not answer: {0}")]
    Away(String),
    /// The object has another version by now.
    #[error("another one was faster: {0}")]
    Conflict(String),
    /// There is no such object to write to.
    #[error("is not there: {0}")]
    Missing(String),
    /// It does not want to.
    #[error("the API server answers: {0}")]
    Answer(String),
}

/// An object of a namespace.
pub(crate) trait Object:
    kube::Resource<Scope = NamespaceResourceScope, DynamicType = ()>
    + Clone
    + Debug
    + DeserializeOwned
    + Serialize
    + Send
    + Sync
    + 'static
{
}

impl Object for ConfigMap {}
impl Object for Lease {}
impl Object for Pod {}

impl ApiServer {
    /// Reads where the API server is, and who this is there; without a file as `kubectl` does it, or as a pod does.
    /// Without a namespace it is the one where this one is at home. Nothing is asked yet.
    ///
    /// # Errors
    /// When that cannot be read, or the system gives no thread.
    pub fn find(kubeconfig: Option<PathBuf>, namespace: Option<String>) -> Result<ApiServer, String> {
        let worker = Worker::start("tidegate-kube").map_err(|error| error.to_string())?;
        let found = worker.ask(Calls::find(kubeconfig, namespace)).recv();
        let calls = found.unwrap_or_else(|_| Err(String::from("it broke off")))?;
        Ok(ApiServer { calls: Arc::new(calls), worker: Arc::new(worker) })
    }

    /// Where its objects are.
    pub fn namespace(&self) -> &str {
        &self.calls.namespace
    }

    pub(crate) fn get<K: Object>(&self, name: &str) -> Result<Option<K>, ApiError> {
        let (calls, name) = (self.calls.clone(), name.to_owned());
        self.wait(async move { calls.get(&name, PATIENCE).await })
    }

    /// Makes an object; a conflict when there is one of that name.
    pub(crate) fn create<K: Object>(&self, object: &K) -> Result<K, ApiError> {
        let (calls, object) = (self.calls.clone(), object.clone());
        self.wait(async move { calls.create(&object, PATIENCE).await })
    }

    /// Writes an object in the place of the version that it names.
    pub(crate) fn replace<K: Object>(&self, object: &K) -> Result<K, ApiError> {
        let (calls, object) = (self.calls.clone(), object.clone());
        self.wait(async move { calls.replace(&object, PATIENCE).await })
    }

    /// Runs on the thread beside the calls.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.worker.spawn(task);
    }

    /// What moves the bytes, for a task of the thread.
    pub(crate) fn calls(&self) -> Arc<Calls> {
        self.calls.clone()
    }

    fn wait<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, ApiError>> + Send + 'static,
    ) -> Result<T, ApiError> {
        let answer = self.worker.wait(work);
        answer.unwrap_or_else(|| Err(ApiError::Away(String::from("this program is too busy"))))
    }
}

impl Calls {
    async fn find(kubeconfig: Option<PathBuf>, namespace: Option<String>) -> Result<Calls, String> {
        let found = load(kubeconfig.clone()).await?;
        let home = found.default_namespace.clone();
        let namespace = namespace.unwrap_or_else(|| home.clone());
        let client = Mutex::new(Client::try_from(found).map_err(|error| causes(&error))?);
        Ok(Calls { kubeconfig, namespace, home, client })
    }

    pub(crate) async fn get<K: Object>(&self, name: &str, patience: Duration) -> Result<Option<K>, ApiError> {
        self.call::<K, _>("reading", name, patience, self.api::<K>().get_opt(name)).await
    }

    pub(crate) async fn create<K: Object>(&self, object: &K, patience: Duration) -> Result<K, ApiError> {
        let (api, params) = (self.api::<K>(), PostParams::default());
        let made = self.call::<K, _>("making", &object.name_any(), patience, api.create(&params, object)).await;
        made.map_err(|error| match error {
            // Not the object, then.
            ApiError::Missing(what) => ApiError::Answer(format!("{what}; is there a namespace {}?", self.namespace)),
            other => other,
        })
    }

    pub(crate) async fn replace<K: Object>(&self, object: &K, patience: Duration) -> Result<K, ApiError> {
        let (api, params, name) = (self.api::<K>(), PostParams::default(), object.name_any());
        self.call::<K, _>("writing", &name, patience, api.replace(&name, &params, object)).await
    }

    /// Deletes an object; no error when it is gone.
    pub(crate) async fn delete<K: Object>(&self, name: &str) -> Result<(), ApiError> {
        let (api, params) = (self.api::<K>(), DeleteParams::default());
        match self.call::<K, _>("deleting", name, PATIENCE, api.delete(name, &params)).await {
            Ok(_) | Err(ApiError::Missing(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Gives a pod where this one is at home a label; `None`: takes it away.
    pub(crate) async fn label_pod(&self, pod: &str, label: &str, value: Option<&str>) -> Result<(), ApiError> {
        let (api, params): (Api<Pod>, _) = (Api::namespaced(self.client(), &self.home), PatchParams::default());
        let patch = Patch::Merge(json!({ "metadata": { "labels": { label: value } } }));
        self.call::<Pod, _>("labelling", pod, PATIENCE, api.patch_metadata(pod, &params, &patch)).await.map(drop)
    }

    /// The objects with these labels, without what is in them.
    pub(crate) async fn list<K: Object>(&self, labels: &str) -> Result<Vec<ObjectMeta>, ApiError> {
        let (api, mut params) = (self.api::<K>(), ListParams::default().labels(labels).limit(PAGE));
        let mut all = Vec::new();
        loop {
            let page = self.call::<K, _>("listing", labels, PATIENCE, api.list_metadata(&params)).await?;
            all.extend(page.items.into_iter().map(|item| item.metadata));
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => params = params.continue_token(&token),
                None => return Ok(all),
            }
        }
    }

    async fn call<K: Object, T>(
        &self,
        what: &str,
        name: &str,
        patience: Duration,
        call: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, ApiError> {
        let about = || format!("{what} {} {name}", K::kind(&()));
        match timeout(patience, call).await {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(error)) => {
                if matches!(&error, Error::Api(status) if status.code == 401) {
                    self.begin_anew().await;
                }
                Err(ApiError::new(&about(), &error))
            }
            Err(_) => {
                self.begin_anew().await;
                Err(ApiError::Away(format!("{}: nothing within {patience:?}", about())))
            }
        }
    }

    /// With new connections, and credentials read again.
    async fn begin_anew(&self) {
        let Ok(found) = load(self.kubeconfig.clone()).await else { return };
        if let Ok(client) = Client::try_from(found) {
            *self.client.lock().unwrap_or_else(PoisonError::into_inner) = client;
        }
    }

    fn api<K: Object>(&self) -> Api<K> {
        Api::namespaced(self.client(), &self.namespace)
    }

    fn client(&self) -> Client {
        self.client.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Debug for Calls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Calls").field("namespace", &self.namespace).finish_non_exhaustive()
    }
}

impl ApiError {
    fn new(about: &str, error: &Error) -> ApiError {
        let Error::Api(status) = error else { return ApiError::Away(format!("{about}: {}", causes(error))) };
        let text = format!("{about}: {} {}: {}", status.code, status.reason, status.message.trim());
        match status.code {
            401 => ApiError::Away(format!("{text}; are its credentials right?")),
            403 => ApiError::Answer(format!("{text}; give its role this permission (deploy/kubernetes)")),
            404 => ApiError::Missing(text),
            409 => ApiError::Conflict(text),
            408 | 429 | 500.. => ApiError::Away(text),
            _ => ApiError::Answer(text),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use kube::core::Status;

    use super::*;

    #[test]
    fn one_that_takes_connections_and_never_answers_is_away() {
        let error = ask_one_that_never_answers();
        assert!(matches!(&error, ApiError::Away(why) if why.contains("reading ConfigMap a")), "{error}");
    }

    #[test]
    fn a_file_that_is_not_there_is_named() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("kubeconfig");
        let error = ApiServer::find(Some(file.clone()), None).expect_err("there is no file");
        assert!(error.contains(&file.display().to_string()), "{error}");
    }

    fn ask_one_that_never_answers() -> ApiError {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let server = format!("http://{}", listener.local_addr().expect("an address"));
        let text = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "test",
            "clusters": [{ "name": "test", "cluster": { "server": server } }],
            "users": [{ "name": "test", "user": {} }],
            "contexts": [{ "name": "test", "context": { "cluster": "test", "user": "test", "namespace": "home" } }],
        });
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("kubeconfig");
        std::fs::write(&file, text.to_string()).expect("a file");
        let way = ApiServer::find(Some(file), None).expect("a way");
        assert_eq!(way.namespace(), "home");
        way.get::<ConfigMap>("a").expect_err("nobody answers")
    }

    mod measurements {
        use std::time::Instant;

        use super::super::PATIENCE;

        #[test]
        #[ignore = "a measurement: cargo xtask test runs it alone and watches the machine"]
        fn one_that_never_answers_is_away_in_bounded_time() -> Result<(), String> {
            let began = Instant::now();
            super::ask_one_that_never_answers();
            let (took, most) = (began.elapsed(), 2 * PATIENCE);
            if took < most { Ok(()) } else { Err(format!("it took {took:.2?}, of {most:?} at most")) }
        }
    }

    #[test]
    fn what_it_says_is_passing_or_not() {
        let said = |code: u16| {
            let status = Status::failure("no", "Reason").with_code(code).boxed();
            ApiError::new("writing Lease a", &Error::Api(status))
        };
        for code in [401, 408, 429, 500, 503, 504] {
            assert!(matches!(said(code), ApiError::Away(_)), "{code}");
        }
        assert!(matches!(said(409), ApiError::Conflict(_)) && matches!(said(404), ApiError::Missing(_)));
        assert!(matches!(said(403), ApiError::Answer(why) if why.contains("give its role this permission")));
        assert!(matches!(said(413), ApiError::Answer(_)));
    }
}
