//! A sentry whose servers are the pods of a service of Kubernetes: they become ready and go, and the API server is
//! away.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::Stdio;
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

use serde_json::{Value, json};

use crate::support::api::Api;
use crate::support::{Folder, Process, free_port, get, loopback, tidegate, until};

#[test]
fn requests_go_to_pods_that_are_ready_and_a_pod_that_is_to_go_ends_those_that_it_has() {
    let site = Site::new();
    site.say(&[(1, READY), (2, UNREADY)]);
    let _sentry = site.start();
    site.until_served_by(&[1]);
    site.say(&[(1, READY), (2, READY), (3, READY)]);
    site.until_served_by(&[1, 2, 3]);
    site.say(&[(1, READY)]);
    site.until_served_by(&[1]);
    let slow = site.ask_slowly();
    site.say(&[(1, GOES), (3, READY)]);
    site.until_served_by(&[3]);
    site.pods.release();
    let answer = slow.join().expect("a client").expect("an answer");
    assert_eq!(answer, address(1).to_string(), "what was there when it was to go");
    // The watch begins anew from a version that is not kept any more.
    site.api.end_watches(true);
    site.say(&[(2, READY)]);
    site.until_served_by(&[2]);
}

#[test]
fn without_the_api_server_the_last_pods_serve() {
    let site = Site::new();
    site.say(&[(1, READY), (2, READY)]);
    let sentry = site.start();
    site.until_served_by(&[1, 2]);
    assert_eq!((site.source()["state"].as_str(), site.source()["servers"].as_u64()), (Some("fresh"), Some(2)));
    // That none is ready is not believed at once, either.
    site.say(&[(1, UNREADY), (2, UNREADY)]);
    until("it doubts", || site.source()["state"] == "stale");
    let problem = site.source()["problem"].to_string();
    assert!(problem.contains("none of 2 pods of service \\\"shop\\\" of namespace \\\"home\\\" is ready"), "{problem}");
    site.until_served_by(&[1, 2]);
    site.say(&[(2, READY)]);
    site.until_served_by(&[2]);
    site.api.stop();
    until("it misses the API server", || site.source()["state"] == "stale");
    site.until_served_by(&[2]);
    drop(sentry);
    let _another = site.start();
    until("one that never heard of any says so", || site.source()["state"] == "unknown");
    assert_eq!(get(site.listen, "/"), None);
}

#[test]
fn what_is_missing_is_said_before_the_start_and_after_it() {
    let site = Site::new();
    site.say(&[(1, READY)]);
    assert!(site.check().contains(&format!("kubernetes:shop:http is {}", site.pods.at(1))), "{}", site.check());
    site.say(&[]);
    assert!(site.check().contains("service \"shop\" of namespace \"home\" has no pods"), "{}", site.check());
    site.api.fail(1000, "GET /apis/discovery.k8s.io/v1/namespaces/home/endpointslices", 403, None);
    let refused = "give its role this permission";
    assert!(site.check().contains(refused), "{}", site.check());
    let _sentry = site.start();
    until("it says which", || site.source()["problem"].as_str().is_some_and(|problem| problem.contains(refused)));
    site.say(&[(1, READY)]);
    site.api.fail_none();
    site.until_served_by(&[1]);
}

#[test]
fn the_example_manifest_permits_what_a_sentry_asks_for_and_holds_a_valid_configuration() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/kubernetes/sentry.yaml");
    let text = std::fs::read_to_string(path).expect("a file");
    let inside = text.split_once("  tidegate.toml: |\n").expect("a configuration").1;
    let lines = inside.lines().map_while(|line| if line.is_empty() { Some("") } else { line.strip_prefix("    ") });
    let config = lines.collect::<Vec<_>>().join("\n");
    let site = Site::new();
    let address = config.lines().find_map(|line| line.strip_prefix("servers = ")).expect("servers");
    assert_eq!(address, "\"kubernetes:shop:http\"", "what the other tests of this file ask for");
    site.folder.write("admin.token", "a-token-of-the-tests");
    site.folder.write("peers.key", "the secret of the tests");
    let secrets = site.folder.path("");
    site.folder.write("sentry.toml", &config.replace("/etc/tidegate-secrets/", &secrets));
    site.say(&[(1, READY)]);
    let said = site.check();
    assert!(said.contains("kubernetes:shop:http is ") && !said.contains("error"), "{said}");

    let kubeconfig = site.api.kubeconfig().replace("\"token\":\"test\"", "\"token\":\"provider\"");
    site.folder.write("kubeconfig", &kubeconfig);
    site.configure();
    let _sentry = site.start();
    site.until_served_by(&[1]);
    let asked = ["list", "watch"].map(|verb| format!("{verb} discovery.k8s.io endpointslices"));
    until("it watches", || site.api.verbs() == BTreeSet::from(asked.clone()));
    let rules = text.split_once("\nrules:\n").expect("a role").1.split("\n---\n").next().unwrap_or_default();
    let rules: Vec<&str> = rules.lines().filter(|line| !line.trim_start().starts_with('#')).map(str::trim).collect();
    let wanted =
        ["- apiGroups: [\"discovery.k8s.io\"]", "resources: [\"endpointslices\"]", "verbs: [\"list\", \"watch\"]"];
    assert_eq!(rules, wanted);
}

/// What an endpoint slice says of a pod.
const READY: (bool, bool) = (true, false);
const UNREADY: (bool, bool) = (false, false);
const GOES: (bool, bool) = (false, true);

struct Site {
    api: Api,
    folder: Folder,
    pods: Pods,
    listen: SocketAddr,
    admin: SocketAddr,
}

impl Site {
    fn new() -> Site {
        let (api, folder, pods) = (Api::start(), Folder::new(), Pods::start());
        let (listen, admin) = (loopback(free_port()), loopback(free_port()));
        folder.write("kubeconfig", &api.kubeconfig());
        let site = Site { api, folder, pods, listen, admin };
        site.configure();
        site
    }

    fn configure(&self) {
        let Site { listen, admin, .. } = self;
        let text = format!(
            "[sentry]\nworkers = 1\n[admin]\nlisten = \"{admin}\"\n\
             [[application]]\nlisten = \"{listen}\"\nservers = \"kubernetes:shop:http\"\n"
        );
        self.folder.write("sentry.toml", &text);
    }

    fn start(&self) -> Process {
        let mut command = tidegate(&["run", "-c", &self.folder.path("sentry.toml")]);
        command.env("KUBECONFIG", self.folder.path("kubeconfig")).stdout(Stdio::null());
        let sentry = Process(command.spawn().expect("it starts"));
        until("the sentry listens", || TcpStream::connect(self.listen).is_ok());
        sentry
    }

    /// What `tidegate check` says of servers.
    fn check(&self) -> String {
        let mut command = tidegate(&["check", &self.folder.path("sentry.toml")]);
        let output = command.env("KUBECONFIG", self.folder.path("kubeconfig")).output().expect("it runs");
        let said = String::from_utf8(output.stderr).expect("UTF-8");
        assert!(output.status.success(), "a name that leads nowhere is no mistake: {said}");
        said
    }

    /// The service has these pods, by number.
    fn say(&self, pods: &[(u8, (bool, bool))]) {
        let endpoint = |(number, (is_ready, is_terminating)): &(u8, (bool, bool))| {
            json!({
                "addresses": [address(*number)],
                "conditions": { "ready": is_ready, "serving": true, "terminating": is_terminating },
                "targetRef": { "kind": "Pod", "name": format!("shop-{number}"), "uid": format!("uid-{number}") },
            })
        };
        let slice = json!({
            "metadata": { "name": "shop-1", "labels": { "kubernetes.io/service-name": "shop" } },
            "addressType": "IPv4",
            "endpoints": pods.iter().map(endpoint).collect::<Vec<_>>(),
            "ports": [{ "name": "http", "port": self.pods.port, "protocol": "TCP" }],
        });
        self.api.put("endpointslices", "shop-1", slice);
    }

    /// Waits until all of these pods have served, since the last time that another one did or a request failed.
    fn until_served_by(&self, numbers: &[u8]) {
        let wanted: BTreeSet<_> = numbers.iter().map(|number| Some(address(*number).to_string())).collect();
        let mut seen = BTreeSet::new();
        until(&format!("{numbers:?} serve"), || {
            // Side by side, or one might take them all.
            thread::scope(|scope| {
                let asked: Vec<_> = (0..8).map(|_| scope.spawn(|| get(self.listen, "/"))).collect();
                seen.extend(asked.into_iter().map(|one| one.join().expect("a client")));
            });
            let is_it = seen == wanted;
            if !seen.is_subset(&wanted) {
                seen.clear();
            }
            is_it
        });
    }

    /// Asks for something that takes until it is released, and has been begun.
    fn ask_slowly(&self) -> thread::JoinHandle<Option<String>> {
        let listen = self.listen;
        let client = thread::spawn(move || get(listen, SLOW));
        until("a pod has begun", || self.pods.has_begun());
        client
    }

    /// What the sentry says of where its servers are from.
    fn source(&self) -> Value {
        let state = get(self.admin, "/api/state").unwrap_or_default();
        let state: Value = serde_json::from_str(&state).unwrap_or_default();
        state["sources"][0].clone()
    }
}

/// What takes until it is released.
const SLOW: &str = "/slow";

/// Three servers on one port, each of which answers with its address.
struct Pods {
    port: u16,
    gate: Arc<Gate>,
}

#[derive(Default)]
struct Gate {
    /// Whether a slow request has begun, and may end.
    state: Mutex<(bool, bool)>,
    changed: Condvar,
}

impl Pods {
    fn start() -> Pods {
        let gate = Arc::new(Gate::default());
        loop {
            let port = free_port();
            // Somebody may have it elsewhere.
            let all: Result<Vec<_>, _> = (1..=3).map(|number| TcpListener::bind((address(number), port))).collect();
            let Ok(all) = all else { continue };
            for listener in all {
                let gate = gate.clone();
                thread::spawn(move || {
                    for stream in listener.incoming().map_while(Result::ok) {
                        let gate = gate.clone();
                        // A client that leaves is none of its business.
                        thread::spawn(move || drop(serve(stream, &gate)));
                    }
                });
            }
            return Pods { port, gate };
        }
    }

    fn at(&self, number: u8) -> SocketAddr {
        (address(number), self.port).into()
    }

    fn has_begun(&self) -> bool {
        self.gate.state.lock().expect("no panic").0
    }

    fn release(&self) {
        self.gate.state.lock().expect("no panic").1 = true;
        self.gate.changed.notify_all();
    }
}

fn serve(mut stream: TcpStream, gate: &Gate) -> std::io::Result<()> {
    let (mut head, mut part) = (Vec::new(), [0; 1024]);
    while !head.ends_with(b"\r\n\r\n") {
        let read = stream.read(&mut part)?;
        if read == 0 {
            return Ok(());
        }
        head.extend_from_slice(&part[..read]);
    }
    if head.starts_with(format!("GET {SLOW} ").as_bytes()) {
        let mut state = gate.state.lock().expect("no panic");
        state.0 = true;
        drop(gate.changed.wait_while(state, |state| !state.1).expect("no panic"));
    }
    let body = stream.local_addr()?.ip().to_string();
    write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}", body.len())
}

fn address(number: u8) -> IpAddr {
    Ipv4Addr::new(127, 0, 0, number).into()
}
