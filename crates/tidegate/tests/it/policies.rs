//! An operator that looks after OverloadPolicies: what it makes of one, what it says of a mistake, and what of the
//! load.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::process::Stdio;

use serde_json::{Value, json};

use crate::support::api::Api;
use crate::support::{Folder, Process, free_port, get, loopback, tidegate, until};

const CONFIG: &str = "tidegate.toml";
const NAME: &str = "shop-sentry";

#[test]
fn a_policy_gets_sentries_and_says_who_comes_and_who_is_refused() {
    let site = Site::new();
    site.say_policy(1, &spec());
    let _operator = site.operate();
    until("it is on its way", || site.condition("Programmed")["reason"] == "Pending");
    assert_eq!(site.condition("Accepted")["status"], "True");
    for (resource, name) in
        [("configmaps", NAME), ("secrets", NAME), ("services", NAME), ("services", "shop-sentry-peers")]
    {
        let owner = &site.api.object(resource, name)["metadata"]["ownerReferences"][0];
        assert_eq!((&owner["kind"], &owner["name"]), (&json!("OverloadPolicy"), &json!("shop")), "{resource} {name}");
    }
    let deployment = site.api.object("deployments", NAME);
    let container = &deployment["spec"]["template"]["spec"]["containers"][0];
    assert_eq!((&container["image"], &deployment["spec"]["replicas"]), (&json!("the-image"), &json!(2)));
    assert_eq!(site.api.object("services", NAME)["spec"]["ports"][0]["port"], 80, "as the service has it");

    let _server = site.be_the_service();
    let (_pod, sentry) = site.be_the_pod();
    until("it is ready", || site.condition("Programmed")["status"] == "True");
    until("the sentry is asked", || site.status()["sentries"] == 1);
    until("who comes is said", || {
        for _ in 0..20 {
            let _answer = get(sentry, "/checkout");
        }
        site.status()["load"]["offeredPerSecond"].as_i64() > Some(0)
    });
    let classes = site.status()["classes"].clone();
    assert_eq!((&classes[0]["name"], &classes[1]["name"]), (&json!("checkout"), &json!("rest")));

    // It is the operator's, whoever writes to it.
    let mut changed = site.api.object("configmaps", NAME);
    changed["data"][CONFIG] = json!("");
    site.api.put("configmaps", NAME, changed);
    let mut shadow = spec();
    shadow["shadow"] = json!(true);
    site.say_policy(2, &shadow);
    until("the change is written", || site.configuration().contains("shadow = true"));
    assert_eq!(site.api.names("secrets"), [NAME], "made once");
}

#[test]
fn a_mistake_is_said_and_changes_nothing() {
    let site = Site::new();
    let _operator = site.operate();
    site.api.delete("services", "shop");
    site.say_policy(1, &spec());
    until("it says what is missing", || site.condition("Accepted")["reason"] == "TargetNotFound");
    site.say_service();
    until("it is there", || site.condition("Accepted")["status"] == "True");
    let before = site.configuration();
    let mut wrong = spec();
    wrong["settings"] = json!({ "dispach": "p2c", "timeouts": { "connect": "soon" } });
    site.say_policy(2, &wrong);
    until("it says what is wrong", || site.condition("Accepted")["reason"] == "Invalid");
    let message = site.condition("Accepted")["message"].to_string();
    assert!(message.contains("dispach") && message.contains("soon"), "{message}");
    assert_eq!((site.configuration(), site.status()["observedGeneration"].clone()), (before, json!(2)));
    let told = |reason: &str| {
        let names = site.api.names("events").into_iter();
        let events: Vec<Value> = names.map(|name| site.api.object("events", &name)).collect();
        events.iter().filter(|event| event["reason"] == reason && event["regarding"]["name"] == "shop").count()
    };
    until("it is told", || told("Invalid") == 1);

    site.api.put("overloadpolicies", "another", policy("another", 1, "02", &spec()));
    until("there is one already", || site.condition_of("another", "Accepted")["reason"] == "Conflicted");
    assert_eq!(site.api.object("deployments", "another-sentry"), Value::Null);
    // Somebody else's is left alone.
    let theirs = json!({ "metadata": { "name": "mine-sentry" }, "data": { "a": "b" } });
    site.api.put("configmaps", "mine-sentry", theirs);
    let service = json!({ "metadata": { "name": "mine" }, "spec": { "ports": [{ "name": "http", "port": 80 }] } });
    site.api.put("services", "mine", service);
    let mut of_mine = spec();
    of_mine["targetRef"]["name"] = json!("mine");
    site.api.put("overloadpolicies", "mine", policy("mine", 1, "03", &of_mine));
    until("whose it is, is said", || site.condition_of("mine", "Accepted")["reason"] == "NameTaken");
    assert_eq!(site.api.object("configmaps", "mine-sentry")["data"], json!({ "a": "b" }));
    assert_eq!(site.api.object("deployments", "mine-sentry"), Value::Null);
    site.say_policy(3, &spec());
    until("it makes sense again", || site.condition("Accepted")["status"] == "True");
    assert_eq!((told("TargetNotFound"), told("Invalid")), (1, 1), "once each");
}

#[test]
fn the_example_manifest_permits_what_an_operator_asks_for_and_no_more() {
    let site = Site::new();
    let kubeconfig = site.api.kubeconfig().replace("\"token\":\"test\"", "\"token\":\"provider\"");
    site.folder.write("kubeconfig", &kubeconfig);
    site.say_policy(1, &spec());
    let _operator = site.operate();
    until("it is on its way", || site.condition("Programmed")["reason"] == "Pending");
    let _pod = site.be_the_pod();
    until("the sentry is asked", || site.status()["sentries"] == 1);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/kubernetes/operator.yaml");
    let text = std::fs::read_to_string(path).expect("a file");
    let role = text.split("\n---\n").find(|one| one.contains("\nkind: Role\n")).expect("a role");
    let mut permitted = BTreeSet::new();
    for rule in role.split("- apiGroups: ").skip(1) {
        let lists: Vec<Vec<&str>> = rule.lines().filter(|line| line.contains('[')).map(words).collect();
        let [groups, resources, verbs] = lists.as_slice() else { panic!("{rule}") };
        permitted.extend(verbs.iter().map(|verb| format!("{verb} {} {}", groups[0], resources[0])));
    }
    let mut asked = site.api.verbs();
    // What is applied and not there is made, too.
    let made: Vec<String> = asked.iter().filter(|verb| !verb.contains('/')).cloned().collect();
    asked.extend(made.iter().filter_map(|verb| Some(format!("create {}", verb.strip_prefix("patch ")?))));
    assert_eq!(asked, permitted);
}

/// What base64 stands for.
fn decoded(text: &str) -> String {
    const LETTERS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let (mut bits, mut bytes) = (0u32, Vec::new());
    for (at, letter) in text.bytes().filter(|letter| *letter != b'=').enumerate() {
        let value = LETTERS.iter().position(|one| *one == letter).expect("base64");
        bits = bits << 6 | value as u32;
        if at % 4 > 0 {
            bytes.push((bits >> (6 - 2 * (at % 4))) as u8);
        }
    }
    String::from_utf8(bytes).expect("text")
}

/// The texts of a list such as `["a", "b"]`.
fn words(line: &str) -> Vec<&str> {
    let inside = line.split_once('[').map_or("", |(_, rest)| rest.trim_end_matches(']'));
    inside.split(", ").map(|word| word.trim_matches('"')).collect()
}

fn spec() -> Value {
    json!({
        "targetRef": { "kind": "Service", "name": "shop", "sectionName": "http" },
        "target": "500ms",
        "classes": [{ "name": "checkout", "minRate": "20/s", "match": [{ "pathPrefix": "/checkout" }] }, { "name": "rest" }],
        "sentries": { "replicas": 2 },
    })
}

fn policy(name: &str, generation: i64, second: &str, spec: &Value) -> Value {
    let created = format!("2026-01-01T00:00:{second}Z");
    json!({
        "apiVersion": "tidegate.io/v1alpha1", "kind": "OverloadPolicy", "spec": spec,
        "metadata": { "name": name, "uid": format!("uid-{name}"), "generation": generation, "creationTimestamp": created },
    })
}

struct Site {
    api: Api,
    folder: Folder,
    /// Of the pod that the test plays.
    ip: IpAddr,
}

impl Site {
    fn new() -> Site {
        let (api, folder) = (Api::start(), Folder::new());
        folder.write("kubeconfig", &api.kubeconfig());
        // Sentries of pods have fixed ports, and each test's pod an address of its own: no two tests get the same port.
        let [high, low] = free_port().to_be_bytes();
        let site = Site { api, folder, ip: IpAddr::from([127, 1, high, low]) };
        site.say_service();
        site
    }

    fn operate(&self) -> Process {
        let mut command = tidegate(&["operator", "--image", "the-image", "--every", "200ms"]);
        command.env("KUBECONFIG", self.folder.path("kubeconfig")).stdout(Stdio::null());
        Process(command.spawn().expect("it starts"))
    }

    fn say_service(&self) {
        let ports = json!([{ "name": "dns", "port": 53, "protocol": "UDP" }, { "name": "http", "port": 80 }]);
        self.api.put("services", "shop", json!({ "metadata": { "name": "shop" }, "spec": { "ports": ports } }));
    }

    /// Somebody writes the policy; its status stays.
    fn say_policy(&self, generation: i64, spec: &Value) {
        let mut object = policy("shop", generation, "01", spec);
        object["status"] = self.api.object("overloadpolicies", "shop")["status"].take();
        if object["status"].is_null() {
            drop(object.as_object_mut().expect("an object").remove("status"));
        }
        self.api.put("overloadpolicies", "shop", object);
    }

    fn status(&self) -> Value {
        self.api.object("overloadpolicies", "shop")["status"].clone()
    }

    fn condition(&self, kind: &str) -> Value {
        self.condition_of("shop", kind)
    }

    fn condition_of(&self, policy: &str, kind: &str) -> Value {
        let status = self.api.object("overloadpolicies", policy)["status"].take();
        let all = status["conditions"].as_array().cloned().unwrap_or_default();
        all.into_iter().find(|one| one["type"] == kind).unwrap_or_default()
    }

    fn configuration(&self) -> String {
        self.api.object("configmaps", NAME)["data"][CONFIG].as_str().unwrap_or_default().to_owned()
    }

    /// Starts a server as a pod of the service would.
    fn be_the_service(&self) -> Process {
        let port = free_port();
        let server = Process::start(&["emulate", "--service", "2ms", "--listen", &loopback(port).to_string()]);
        self.say_pods("shop", loopback(port));
        server
    }

    /// A service has one pod, which is ready.
    fn say_pods(&self, service: &str, at: SocketAddr) {
        let object = json!({
            "metadata": { "name": service, "labels": { "kubernetes.io/service-name": service } },
            "addressType": "IPv4",
            "endpoints": [{ "addresses": [at.ip()], "conditions": { "ready": true } }],
            "ports": [{ "name": "http", "port": at.port(), "protocol": "TCP" }],
        });
        self.api.put("endpointslices", service, object);
    }

    /// Starts a sentry as a pod of the deployment would, with the configuration and the secret that were written, and
    /// says that it is ready: where it serves.
    fn be_the_pod(&self) -> (Process, SocketAddr) {
        for (key, value) in self.api.object("secrets", NAME)["data"].as_object().expect("secrets") {
            self.folder.write(key, &decoded(value.as_str().expect("text")));
        }
        let text = self.configuration().replace("/etc/tidegate-secrets/", &self.folder.path(""));
        let ip = self.ip;
        let text = text
            .replace("\":8080\"", &format!("\"{ip}:8080\""))
            .replace("\":9900\"", &format!("\"{ip}:9900\""))
            .replace("\":9903\"", &format!("\"{}\"", loopback(free_port())));
        let file = self.folder.write("sentry.toml", &text);
        let mut command = tidegate(&["run", "-c", &file]);
        // Not as the operator.
        let kubeconfig = self.folder.write("kubeconfig-of-pods", &self.api.kubeconfig());
        command.env("KUBECONFIG", kubeconfig).stdout(Stdio::null());
        let process = Process(command.spawn().expect("it starts"));
        until("the sentry is ready", || get((ip, 9900).into(), "/readyz").is_some());
        self.say_pods(NAME, (ip, 8080).into());
        let mut deployment = self.api.object("deployments", NAME);
        deployment["status"] = json!({ "readyReplicas": 2 });
        self.api.put("deployments", NAME, deployment);
        (process, (ip, 8080).into())
    }
}
