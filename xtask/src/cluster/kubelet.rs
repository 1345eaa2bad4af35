//! What a node does: it takes the pods of the deployments named `shop` and those of sentries, makes a process of each,
//! says when it is ready, ends it when its pod is deleted, and lets the pod go then.
//!
//! A pod has an address of [`NETWORK`], where its process listens: an API server takes no address of loopback. What a
//! sentry's container would find mounted is in a folder (`volumes.rs`).

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::api::Api;
use super::home::PORT;
use super::machinery::{Kubeconfigs, Machinery};
use super::member::tidegate;
use super::volumes::Volumes;
use crate::bench::service::tie;
use crate::bench::stop;

/// Where pods are: on the loopback of the run's own network.
pub const NETWORK: &str = "10.77.0.1/16";
/// The node's name.
const NODE: &str = "one";
/// A pod whose end was asked for serves so long before its process is told, as `preStop` does it: until then everybody
/// has heard of it.
pub const LINGERS: Duration = Duration::from_secs(1);
/// Between two looks at what is to be done.
const TICK: Duration = Duration::from_millis(20);
/// What a pod has mounted is looked at so often.
const RENEW: Duration = Duration::from_secs(1);
/// What was refused, or not answered, is tried again.
const AGAIN: Duration = Duration::from_millis(200);

/// The node. Dropped, its processes end.
#[derive(Debug)]
pub struct Kubelet {
    is_over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

/// A pod that was taken.
struct Pod {
    path: String,
    uid: String,
    address: SocketAddr,
    process: Child,
    /// What a sentry has mounted.
    volumes: Option<Volumes>,
    stage: Stage,
    next: Instant,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Taken,
    Bound,
    Ready,
    /// Since when somebody wants it to go.
    Leaves(Instant),
    Ended,
}

impl Kubelet {
    /// Makes the node and begins.
    ///
    /// # Errors
    /// When the API server refuses the node.
    pub fn start(machinery: &Machinery) -> Result<Self> {
        let api = &machinery.api;
        api.make("/api/v1/nodes", &json!({ "metadata": { "name": NODE } }))?;
        let ready = json!({ "type": "Ready", "status": "True", "reason": "check", "message": "check" });
        api.patch(&format!("/api/v1/nodes/{NODE}/status"), &json!({ "status": { "conditions": [ready] } }))?;
        let is_over = Arc::new(AtomicBool::new(false));
        let (events, inbox) = mpsc::sync_channel::<Value>(1024);
        let (over, reader) = (is_over.clone(), api.clone());
        let watch = thread::spawn(move || {
            while !over.load(Ordering::Relaxed) {
                // One that ended begins anew, with all pods there are.
                let _ended = follow(&reader, &over, &events);
                thread::sleep(AGAIN);
            }
        });
        let over = is_over.clone();
        let work = Work { api: api.clone(), kubeconfigs: machinery.kubeconfigs(), pods: BTreeMap::new(), next: 2 };
        let work = thread::spawn(move || work.run(&inbox, &over));
        Ok(Self { is_over, threads: vec![watch, work] })
    }
}

impl Drop for Kubelet {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // Its panic is printed.
            let _ended = thread.join();
        }
    }
}

/// Sends on what is told of pods, to the end of one watch.
fn follow(api: &Api, over: &AtomicBool, events: &mpsc::SyncSender<Value>) -> Result<()> {
    let mut curl = api.watch("/api/v1/pods?watch=1")?;
    let output = curl.stdout.take().context("curl says nothing")?;
    let (lines, told) = mpsc::sync_channel::<String>(64);
    let reader = thread::spawn(move || {
        BufReader::new(output).lines().map_while(Result::ok).all(|line| lines.send(line).is_ok());
    });
    while !over.load(Ordering::Relaxed) {
        match told.recv_timeout(AGAIN) {
            Ok(line) => {
                let event: Value = serde_json::from_str(&line)?;
                if events.send(event).is_err() {
                    break;
                }
            }
            Err(mpsc::RecvTimeoutError::Timeout) => {}
            Err(mpsc::RecvTimeoutError::Disconnected) => break,
        }
    }
    let _ended = curl.kill();
    let _ended = curl.wait();
    // Whatever it has to say, nobody listens.
    drop(told);
    let _ended = reader.join();
    Ok(())
}

struct Work {
    api: Api,
    kubeconfigs: Kubeconfigs,
    pods: BTreeMap<String, Pod>,
    /// The next address.
    next: u16,
}

impl Work {
    fn run(mut self, inbox: &Receiver<Value>, over: &AtomicBool) {
        while !over.load(Ordering::Relaxed) {
            let wait = if self.pods.values().all(|pod| pod.stage == Stage::Ready) { AGAIN } else { TICK };
            if let Ok(event) = inbox.recv_timeout(wait) {
                self.hear(&event);
            }
            let now = Instant::now();
            for pod in self.pods.values_mut().filter(|pod| pod.next <= now) {
                if pod.advance(&self.api).is_err() {
                    pod.next = now + AGAIN;
                }
            }
            self.pods.retain(|_, pod| pod.stage != Stage::Ended);
        }
        for pod in self.pods.values_mut() {
            pod.end();
        }
    }

    fn hear(&mut self, event: &Value) {
        let (metadata, text) = (&event["object"]["metadata"], |value: &Value| value.as_str().map(str::to_owned));
        let (Some(name), Some(namespace), Some(uid)) =
            (text(&metadata["name"]), text(&metadata["namespace"]), text(&metadata["uid"]))
        else {
            return;
        };
        let leaves = !metadata["deletionTimestamp"].is_null();
        if event["type"] == "DELETED" {
            if let Some(mut pod) = self.pods.remove(&uid) {
                pod.end();
            }
        } else if let Some(pod) = self.pods.get_mut(&uid) {
            if leaves && !matches!(pod.stage, Stage::Leaves(_) | Stage::Ended) {
                pod.stage = Stage::Leaves(Instant::now());
            }
        } else if !leaves && let Ok(Some((process, address, volumes))) = self.begin(&event["object"], &namespace) {
            let path = format!("/api/v1/namespaces/{namespace}/pods/{name}");
            let (stage, next) = (Stage::Taken, Instant::now());
            self.pods.insert(uid.clone(), Pod { path, uid, address, process, volumes, stage, next });
        }
    }

    /// The process of a pod at the next address: a server of 20 requests/s, or a sentry; `None`: neither.
    fn begin(&mut self, pod: &Value, namespace: &str) -> Result<Option<(Child, SocketAddr, Option<Volumes>)>> {
        let labels = &pod["metadata"]["labels"];
        let [high, low] = self.next.to_be_bytes();
        let address = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 77, high, low)), PORT);
        let mut program = Command::new(tidegate());
        let volumes = if labels["app"] == "shop" {
            program.args(["emulate", "--service", "50ms", "--listen", &address.to_string()]);
            program.stdout(Stdio::null()).stderr(Stdio::null());
            None
        } else if labels["app.kubernetes.io/name"] == "tidegate-sentry" {
            let volumes = Volumes::mount(&self.api, &self.kubeconfigs, pod, namespace, address.ip())?;
            let log = volumes.log()?;
            program.args(["run", "-c"]).arg(volumes.file()).env("KUBECONFIG", volumes.kubeconfig());
            program.stdout(log.try_clone()?).stderr(log);
            Some(volumes)
        } else {
            return Ok(None);
        };
        self.next += 1;
        program.stdin(Stdio::null());
        tie(&mut program);
        let process = program.spawn()?;
        stop::remember(process.id());
        Ok(Some((process, address, volumes)))
    }
}

impl Pod {
    /// Does what is next, if it is time for it.
    fn advance(&mut self, api: &Api) -> Result<()> {
        match self.stage {
            Stage::Taken => {
                let target = json!({ "kind": "Node", "name": NODE });
                let binding = json!({ "metadata": { "name": self.name() }, "target": target });
                api.make(&format!("{}/binding", self.path), &binding)?;
                self.stage = Stage::Bound;
            }
            Stage::Bound if TcpStream::connect(self.address).is_ok() => {
                let ip = self.address.ip();
                let status = json!({
                    "phase": "Running", "podIP": ip, "podIPs": [{ "ip": ip }],
                    "conditions": [{ "type": "Ready", "status": "True" }],
                });
                api.patch(&format!("{}/status", self.path), &json!({ "status": status }))?;
                self.stage = Stage::Ready;
            }
            Stage::Ready => {
                // As a node does it, only sooner.
                self.volumes.as_ref().map_or(Ok(()), |volumes| volumes.renew(api))?;
                self.next = Instant::now() + RENEW;
            }
            Stage::Leaves(since) if since.elapsed() >= LINGERS => {
                // It finishes what it has.
                let _gone = kill_process(Pid::from_child(&self.process), Signal::TERM);
                if !matches!(self.process.try_wait(), Ok(None)) {
                    let options = json!({ "gracePeriodSeconds": 0, "preconditions": { "uid": self.uid } });
                    api.delete(&self.path, &options)?;
                    self.end();
                    self.stage = Stage::Ended;
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or_default()
    }

    fn end(&mut self) {
        let _ended = self.process.kill();
        let _ended = self.process.wait();
        stop::forget(self.process.id());
    }
}
