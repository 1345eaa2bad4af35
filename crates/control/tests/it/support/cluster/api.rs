//! A server on loopback that answers as an API server does: objects with versions, conflicts, watches, and what goes
//! wrong with each.
//!
//! Knows what the tests and our programs use, no more: create, read, list by label and page, replace, merge, delete,
//! the scale subresource, watches with bookmarks. What is applied is merged: nothing that was there before goes.
#![allow(dead_code, reason = "each of the two crates whose tests take it uses a part of it")]

#[path = "faults.rs"]
mod faults;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Query, State};
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use serde_json::{Value, json};
use tokio::sync::watch;

/// The token of the tests' own controllers, which is always accepted.
pub const CONTROLLERS: &str = "controllers";

/// The server, and what it is to do wrong.
#[derive(Clone)]
pub struct Api {
    state: Arc<Mutex<Inner>>,
    changed: Arc<watch::Sender<u64>>,
    stands_still: Arc<watch::Sender<bool>>,
    pub address: SocketAddr,
    stop: Arc<Mutex<Option<tokio::sync::oneshot::Sender<()>>>>,
}

#[derive(Default)]
struct Inner {
    version: u64,
    /// By resource, namespace and name.
    objects: BTreeMap<(String, String, String), Value>,
    log: Vec<Event>,
    /// Versions up to this one are not kept for watches.
    compacted: u64,
    /// Watches that began before this number end.
    era: u64,
    faults: faults::Faults,
    token: Option<String>,
    requests: Vec<String>,
    /// What the provider asked for, as a role has it.
    verbs: BTreeSet<String>,
}

#[derive(Clone)]
struct Event {
    version: u64,
    kind: &'static str,
    key: (String, String, String),
    object: Value,
}

/// What a path names.
struct Target {
    group: String,
    resource: String,
    namespace: String,
    name: Option<String>,
    sub: Option<String>,
}

impl Api {
    pub fn start() -> Api {
        let (ready, wait) = std::sync::mpsc::sync_channel(1);
        let (stop, stopped) = tokio::sync::oneshot::channel();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async {
                let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
                let api = Api {
                    state: Arc::default(),
                    changed: Arc::new(watch::channel(0).0),
                    stands_still: Arc::new(watch::channel(false).0),
                    address: listener.local_addr().expect("an address"),
                    stop: Arc::new(Mutex::new(Some(stop))),
                };
                ready.send(api.clone()).expect("is waited for");
                let router = Router::new().fallback(answer).with_state(api);
                tokio::select! {
                    served = axum::serve(listener, router).into_future() => served.expect("serves"),
                    _ = stopped => {}
                }
            });
        });
        wait.recv_timeout(Duration::from_secs(60)).expect("it starts")
    }

    /// What a file says that leads to it.
    pub fn kubeconfig(&self) -> String {
        let value = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "test",
            "clusters": [{ "name": "test", "cluster": { "server": format!("http://{}", self.address) } }],
            "users": [{ "name": "test", "user": { "token": "test" } }],
            "contexts": [{ "name": "test", "context": { "cluster": "test", "user": "test", "namespace": "home" } }],
        });
        value.to_string()
    }

    /// Ends every watch; `forget`: and keeps none of the versions there were.
    pub fn end_watches(&self, forget: bool) {
        let mut inner = self.inner();
        inner.era += 1;
        if forget {
            inner.version += 100;
            inner.compacted = inner.version;
            inner.log.clear();
        }
        let version = inner.version;
        drop(inner);
        // With the same version, too: they look at the era.
        self.changed.send_replace(version);
    }

    /// From now on only this token is accepted, and the controllers'.
    pub fn accept(&self, token: &str) {
        self.inner().token = Some(token.to_owned());
    }

    /// How many requests there were whose method and path contain `what`.
    pub fn asked(&self, what: &str) -> usize {
        self.inner().requests.iter().filter(|request| request.contains(what)).count()
    }

    /// What who has the token `provider` asked for: verb, group and resource.
    pub fn verbs(&self) -> BTreeSet<String> {
        self.inner().verbs.clone()
    }

    /// From now on an object is so, where kubeconfigs lead to.
    pub fn put(&self, resource: &str, name: &str, object: Value) {
        let key = (resource.to_owned(), String::from("home"), name.to_owned());
        let mut inner = self.inner();
        let kind = if inner.objects.contains_key(&key) { "MODIFIED" } else { "ADDED" };
        drop(inner.keep(kind, key, object));
        let version = inner.version;
        drop(inner);
        self.changed.send_replace(version);
    }

    /// Is not there any more.
    pub fn stop(&self) {
        drop(self.stop.lock().unwrap_or_else(PoisonError::into_inner).take());
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn answer(
    State(api): State<Api>,
    method: Method,
    uri: Uri,
    Query(query): Query<HashMap<String, String>>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let is_watch = query.get("watch").is_some_and(|value| value == "true");
    let line = format!(
        "{} {}{}",
        if is_watch { "WATCH" } else { method.as_str() },
        uri.path(),
        if is_watch { "?" } else { "" }
    );
    // The sender lives as long as the server.
    let _ = api.stands_still.subscribe().wait_for(|still| !still).await;
    let hook = api.inner().faults.take_hook(&line);
    if let Some(hook) = hook {
        tokio::task::spawn_blocking(hook).await.expect("what is done before a request");
    }
    {
        let mut inner = api.inner();
        inner.requests.push(line.clone());
        let given = headers.get("authorization").and_then(|value| value.to_str().ok()).unwrap_or_default();
        if given == "Bearer provider" {
            inner.verbs.extend(target(uri.path()).map(|target| target.verb(&method, is_watch)));
        }
        let is_controllers = given.strip_prefix("Bearer ") == Some(CONTROLLERS);
        if inner.token.as_ref().is_some_and(|token| !is_controllers && given != format!("Bearer {token}")) {
            return status(401, "Unauthorized", "Unauthorized");
        }
        if let Some((code, retry_after)) = inner.faults.refuses(&line) {
            let mut response = status(code, "Injected", "on purpose");
            if let Some(seconds) = retry_after {
                response.headers_mut().insert("retry-after", seconds.into());
            }
            return response;
        }
    }
    let Some(target) = target(uri.path()) else { return status(404, "NotFound", "no such path") };
    if is_watch {
        return follow(&api, target, &query);
    }
    // What is applied is YAML by name, and JSON in truth.
    let given: Value = serde_json::from_slice(&body).unwrap_or_default();
    let (response, version) = {
        let mut inner = api.inner();
        inner.carry_out_due();
        if inner.faults.delays(&method, &uri, &given) {
            return status(500, "InternalError", "later on purpose");
        }
        let mut response = inner.answer(&method, &target, &query, given);
        if inner.faults.loses(&line) {
            response = status(500, "InternalError", "lost on purpose");
        }
        (response, inner.version)
    };
    api.changed.send_replace(version);
    response
}

/// `/apis/GROUP/VERSION/namespaces/NAMESPACE/RESOURCE/NAME/SUB`, or `/api/v1/...`.
fn target(path: &str) -> Option<Target> {
    let mut words: VecDeque<&str> = path.split('/').filter(|word| !word.is_empty()).collect();
    let group = if words.pop_front()? == "apis" { words.pop_front()?.to_owned() } else { String::new() };
    let _version = words.pop_front()?;
    if words.len() <= 2 && words.front() == Some(&"namespaces") {
        let name = words.get(1).map(|name| (*name).to_owned());
        return Some(Target { group, resource: String::from("namespaces"), namespace: String::new(), name, sub: None });
    }
    words.pop_front().filter(|word| *word == "namespaces")?;
    let (namespace, resource) = (words.pop_front()?.to_owned(), words.pop_front()?.to_owned());
    let mut next = || words.pop_front().map(str::to_owned);
    Some(Target { group, resource, namespace, name: next(), sub: next() })
}

impl Target {
    fn verb(&self, method: &Method, is_watch: bool) -> String {
        let verb = match (method.as_str(), &self.name) {
            _ if is_watch => "watch",
            ("GET", None) => "list",
            ("GET", Some(_)) => "get",
            ("PUT", _) => "update",
            ("PATCH", _) => "patch",
            ("POST", _) => "create",
            ("DELETE", _) => "delete",
            (other, _) => other,
        };
        let sub = self.sub.as_ref().map(|sub| format!("/{sub}")).unwrap_or_default();
        format!("{verb} {} {}{sub}", self.group, self.resource)
    }
}

impl Inner {
    /// Carries out what was answered long ago.
    fn carry_out_due(&mut self) {
        let Some((method, uri, given)) = self.faults.take_due() else { return };
        let target = target(uri.path()).expect("it was understood");
        // Nobody waits for the answer.
        drop(self.answer(&method, &target, &HashMap::new(), given));
    }

    fn answer(&mut self, method: &Method, target: &Target, query: &HashMap<String, String>, given: Value) -> Response {
        let generated = || Some(format!("{}{}", given["metadata"]["generateName"].as_str()?, self.version));
        let given_name = given["metadata"]["name"].as_str().map(str::to_owned).or_else(generated);
        let Some(name) = target.name.clone().or_else(|| given_name.filter(|_| *method == Method::POST)) else {
            return self.list(target, query);
        };
        let key = (target.resource.clone(), target.namespace.clone(), name.clone());
        let known = self.objects.get(&key).cloned();
        let missing = || status(404, "NotFound", &format!("{} \"{name}\" not found", target.resource));
        match (method.as_str(), known, target.sub.as_deref()) {
            ("POST", Some(_), _) => status(409, "AlreadyExists", &format!("\"{name}\" already exists")),
            ("POST", None, _) => self.keep("ADDED", key, given),
            ("PATCH", None, None) if query.contains_key("fieldManager") => self.keep("ADDED", key, given),
            (_, None, _) => missing(),
            ("GET", Some(object), None) => json_of(&object),
            ("GET", Some(object), Some("scale")) => {
                let response = json_of(&scale_of(&object));
                if self.faults.meddles() {
                    self.keep("MODIFIED", key, object);
                }
                response
            }
            ("PUT", Some(object), sub) => {
                let version = given["metadata"]["resourceVersion"].as_str().unwrap_or_default();
                if !version.is_empty() && object["metadata"]["resourceVersion"] != version {
                    return status(
                        409,
                        "Conflict",
                        "the object has been modified; please apply your changes to the latest version",
                    );
                }
                let mut new = given;
                if sub == Some("scale") {
                    let replicas = new["spec"]["replicas"].as_i64().unwrap_or(0);
                    new = object;
                    new["spec"]["replicas"] = json!(replicas);
                    drop(self.keep("MODIFIED", key, new.clone()));
                    return json_of(&scale_of(&new));
                }
                self.keep("MODIFIED", key, new)
            }
            ("PATCH", Some(mut object), None | Some("status")) => {
                merge(&mut object, &given);
                self.keep("MODIFIED", key, object)
            }
            ("DELETE", Some(object), None) => {
                self.objects.remove(&key);
                self.record("DELETED", key, object.clone());
                json_of(&object)
            }
            _ => status(405, "MethodNotAllowed", "not here"),
        }
    }

    fn keep(&mut self, kind: &'static str, key: (String, String, String), mut object: Value) -> Response {
        object["metadata"]["namespace"] = json!(key.1);
        if object["metadata"]["uid"].is_null() {
            object["metadata"]["uid"] = json!(format!("uid-{}-{}", key.2, self.version));
        }
        let object = self.record(kind, key.clone(), object);
        self.objects.insert(key, object.clone());
        json_of(&object)
    }

    fn record(&mut self, kind: &'static str, key: (String, String, String), mut object: Value) -> Value {
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        self.log.push(Event { version: self.version, kind, key, object: object.clone() });
        object
    }

    fn list(&self, target: &Target, query: &HashMap<String, String>) -> Response {
        let ours = |key: &(String, String, String)| key.0 == target.resource && key.1 == target.namespace;
        let all =
            self.objects.iter().filter(|(key, object)| ours(key) && selected(object, query)).map(|(_, object)| object);
        let from: usize = query.get("continue").and_then(|token| token.parse().ok()).unwrap_or(0);
        // Small pages, so that there are several.
        let page =
            query.get("limit").and_then(|limit| limit.parse().ok()).map_or(usize::MAX, |limit: usize| limit.min(2));
        let all: Vec<&Value> = all.collect();
        let items: Vec<&&Value> = all.iter().skip(from).take(page).collect();
        let next = if from + items.len() < all.len() { (from + items.len()).to_string() } else { String::new() };
        let metadata = json!({ "resourceVersion": self.version.to_string(), "continue": next });
        json_of(&json!({ "apiVersion": "v1", "kind": "List", "metadata": metadata, "items": items }))
    }

    /// Events of a watch after a version.
    fn since(&self, version: u64, target: &Target, query: &HashMap<String, String>) -> Vec<Event> {
        let ours = |event: &&Event| {
            event.version > version && event.key.0 == target.resource && event.key.1 == target.namespace
        };
        self.log.iter().filter(ours).filter(|event| selected(&event.object, query)).cloned().collect()
    }
}

fn follow(api: &Api, target: Target, query: &HashMap<String, String>) -> Response {
    let version: u64 = query.get("resourceVersion").and_then(|version| version.parse().ok()).unwrap_or(0);
    let (era, compacted) = {
        let inner = api.inner();
        (inner.era, inner.compacted)
    };
    if version < compacted {
        // As the API server does it: the watch opens, and has one event.
        let object = status_value(410, "Expired", "too old resource version");
        let line = json!({ "type": "ERROR", "object": object }).to_string() + "\n";
        return Body::from(line).into_response();
    }
    let target = Arc::new(target);
    let (api, query, changes) = (api.clone(), query.clone(), api.changed.subscribe());
    let lines = stream::unfold((version, changes), move |(version, mut changes)| {
        let (api, query, target) = (api.clone(), query.clone(), target.clone());
        async move {
            loop {
                let (events, now) = {
                    let inner = api.inner();
                    if inner.era != era {
                        return None;
                    }
                    (inner.since(version, &target, &query), inner.version)
                };
                if !events.is_empty() {
                    let line = |event: &Event| json!({ "type": event.kind, "object": event.object }).to_string() + "\n";
                    let mut text: String = events.iter().map(line).collect();
                    let bookmark = json!({ "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
                        "metadata": { "resourceVersion": now.to_string() } });
                    text.push_str(&(json!({ "type": "BOOKMARK", "object": bookmark }).to_string() + "\n"));
                    return Some((Ok::<_, std::io::Error>(text), (now, changes)));
                }
                changes.changed().await.ok()?;
            }
        }
    });
    Body::from_stream(lines).into_response()
}

fn selected(object: &Value, query: &HashMap<String, String>) -> bool {
    let all = query.get("labelSelector").map_or("", String::as_str).split(',');
    all.filter_map(|one| one.split_once('=')).all(|(key, value)| object["metadata"]["labels"][key] == value)
}

fn scale_of(object: &Value) -> Value {
    let replicas = object["spec"]["replicas"].as_i64().unwrap_or(1);
    // A zero is left out.
    let spec = if replicas == 0 { json!({}) } else { json!({ "replicas": replicas }) };
    let metadata = &object["metadata"];
    json!({
        "apiVersion": "autoscaling/v1",
        "kind": "Scale",
        "metadata": { "name": metadata["name"], "namespace": metadata["namespace"], "uid": metadata["uid"],
            "resourceVersion": metadata["resourceVersion"] },
        "spec": spec,
        "status": { "replicas": 0, "selector": "" },
    })
}

/// RFC 7396.
fn merge(object: &mut Value, patch: &Value) {
    let Some(patch) = patch.as_object() else {
        *object = patch.clone();
        return;
    };
    if !object.is_object() {
        *object = json!({});
    }
    for (key, value) in patch {
        match value {
            Value::Null => drop(object.as_object_mut().expect("an object").remove(key)),
            value => merge(&mut object[key], value),
        }
    }
}

fn json_of(value: &Value) -> Response {
    axum::Json(value).into_response()
}

fn status(code: u16, reason: &str, message: &str) -> Response {
    let code_ = StatusCode::from_u16(code).expect("a status");
    (code_, axum::Json(status_value(code, reason, message))).into_response()
}

fn status_value(code: u16, reason: &str, message: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": message,
        "metadata": {} })
}
