//! The provider `kubernetes` against an API server: the tests' own, or a real one (see `cluster`).

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

use kube::config::Kubeconfig;
use serde_json::{Value, json};
use tidegate_control::Config;
use tidegate_control::backend::{Backend, ClusterBackend, Contact, Turn};
use tidegate_control::config::{ClusterConfig, Place, Provider};
use tidegate_control::plane::What;
use tidegate_control::provider::Presence;

use crate::support::cluster::{Cluster, START, serves, start_all, step};
use crate::support::folder::folder;
use crate::support::site::{Sentry, Site};
use crate::support::{answer, home, until};

#[test]
fn as_many_pods_as_places_and_the_right_one_goes() {
    let cluster = Cluster::start("scale", 0);
    let provider = cluster.provider();
    provider.adopt(&[]);
    assert_eq!((provider.look(0, None), provider.address(0)), (Presence::Absent, None));
    start_all(&provider, 0..3);
    until("three serve", || (0..3).all(|server| serves(&provider, server)));
    assert_eq!(cluster.replicas(), 3);
    // A step that is carried out again changes nothing.
    start_all(&provider, 0..3);
    assert_eq!(cluster.replicas(), 3);
    let addresses = |servers: &[usize]| servers.iter().map(|at| provider.address(*at)).collect::<Vec<_>>();
    let before = addresses(&[0, 2]);
    provider.apply(&step(9, 1, What::Stop), None).expect("stops");
    until("two are left", || cluster.pods().len() == 2);
    provider.apply(&step(9, 1, What::Stop), None).expect("stops nothing");
    assert_eq!((cluster.replicas(), provider.look(1, None)), (2, Presence::Absent));
    until("the others go on", || serves(&provider, 0) && serves(&provider, 2));
    assert_eq!(addresses(&[0, 2]), before, "where they were");
    for (number, server) in [(10, 0), (11, 2)] {
        provider.apply(&step(number, server, What::Stop), None).expect("stops");
    }
    assert_eq!(cluster.replicas(), 0);
}

#[test]
fn pods_come_and_go_by_themselves() {
    let cluster = Cluster::start("pods", 0);
    let provider = cluster.provider();
    provider.adopt(&[]);
    start_all(&provider, 0..2);
    until("both serve", || serves(&provider, 0) && serves(&provider, 1));
    let (first, other) = (provider.address(0), provider.address(1));
    let gone = cluster.pods()[0].clone();
    cluster.kill(&gone);
    until("it is replaced", || {
        let now = [provider.address(0), provider.address(1)];
        now.iter().all(Option::is_some) && now != [first.clone(), other.clone()] && serves(&provider, 0)
    });
    assert!(provider.address(0) == first || provider.address(1) == other, "the other one stays");
    let pods = cluster.pods();
    cluster.ready(&pods[0], false);
    until("one is not ready", || serves(&provider, 0) != serves(&provider, 1));
    cluster.ready(&pods[0], true);
    until("it is again", || serves(&provider, 0) && serves(&provider, 1));
}

#[test]
fn a_deployment_that_runs_already_is_taken_over() {
    let cluster = Cluster::start("taken", 3);
    let provider = cluster.provider();
    provider.adopt(&[]);
    start_all(&provider, 0..1);
    until("one serves", || serves(&provider, 0));
    assert_eq!(cluster.replicas(), 3, "none is taken away by a start");
    start_all(&provider, 1..2);
    provider.apply(&step(9, 1, What::Stop), None).expect("stops");
    assert_eq!(cluster.replicas(), 1, "as many as places");
    until("one is left", || cluster.pods().len() == 1 && serves(&provider, 0));
}

#[test]
fn after_a_restart_places_have_the_pods_that_they_had() {
    let cluster = Cluster::start("again", 0);
    let first = cluster.provider();
    first.adopt(&[]);
    let mut adopted = start_all(&first, 0..4);
    until("all serve", || (0..4).all(|server| serves(&first, server)));
    let addresses: Vec<_> = (0..4).map(|server| first.address(server)).collect();
    drop(first);
    adopted.reverse();
    let second = cluster.provider();
    second.adopt(&adopted);
    until("all serve again", || (0..4).all(|server| serves(&second, server)));
    assert_eq!((0..4).map(|server| second.address(server)).collect::<Vec<_>>(), addresses);
    // A stop that was decided on before: it is not known any more whose place it was.
    let third = cluster.provider();
    third.adopt(&adopted[1..]);
    third.apply(&step(9, 3, What::Stop), adopted[0].process).expect("stops");
    assert_eq!(cluster.replicas(), 3);
}

#[test]
fn another_writer_is_read_again() {
    let cluster = Cluster::start("conflict", 0);
    let Some(api) = &cluster.api else { return };
    let provider = cluster.provider();
    provider.adopt(&[]);
    api.meddle(3);
    let (read, written) = (api.asked("GET /apis/apps/v1/namespaces"), api.asked("PUT /apis/apps"));
    start_all(&provider, 0..1);
    assert_eq!(api.asked("PUT /apis/apps") - written, 4, "three were too late");
    assert!(api.asked("GET /apis/apps/v1/namespaces") - read >= 4);
    assert_eq!(cluster.replicas(), 1);
}

#[test]
fn one_that_is_too_busy_or_fails_is_asked_again() {
    let cluster = Cluster::start("busy", 0);
    let Some(api) = &cluster.api else { return };
    let provider = cluster.provider();
    provider.adopt(&[]);
    let began = Instant::now();
    api.fail(1, "PUT /apis/apps", 429, Some(1));
    api.fail(2, "PUT /apis/apps", 500, None);
    api.fail(1, "PUT /apis/apps", 503, None);
    start_all(&provider, 0..1);
    // tidy-allow(measured-time): a lower bound, which holds on any machine
    assert!(began.elapsed().as_secs_f64() > 0.99, "it asked to be left alone for a second");
    assert_eq!(cluster.replicas(), 1);
    // As long as nothing can be read, what was known last holds.
    api.fail(3, "GET /apis/discovery", 500, None);
    api.end_watches(true);
    start_all(&provider, 1..2);
    until("both serve", || serves(&provider, 0) && serves(&provider, 1));
}

#[test]
fn watches_end_and_versions_are_forgotten() {
    let cluster = Cluster::start("watch", 0);
    let Some(api) = &cluster.api else { return };
    let provider = cluster.provider();
    provider.adopt(&[]);
    start_all(&provider, 0..1);
    until("one serves", || serves(&provider, 0));
    let lists = || api.asked("GET /apis/discovery.k8s.io/v1/namespaces");
    for (forget, server) in [(false, 1), (true, 2), (false, 3)] {
        let watches = api.asked("WATCH");
        api.end_watches(forget);
        until("it watches again", || api.asked("WATCH") > watches);
        start_all(&provider, server..server + 1);
        until("what changed is seen", || serves(&provider, server));
    }
    assert!(lists() > 0);
    assert!(provider.take_notes().is_empty(), "that is no news");
}

#[test]
fn tokens_are_replaced_while_in_use() {
    let cluster = Cluster::start("token", 1);
    let Some(api) = &cluster.api else { return };
    let provider = cluster.provider();
    provider.adopt(&[]);
    start_all(&provider, 0..1);
    until("one serves", || serves(&provider, 0));
    assert_eq!(cluster.replicas(), 1);
    cluster.write_token("second");
    api.accept("second");
    provider.apply(&step(7, 1, START), None).expect("with the new token");
    assert_eq!(cluster.replicas(), 2);
    api.end_watches(false);
    until("both serve", || serves(&provider, 0) && serves(&provider, 1));
}

#[test]
fn what_does_not_pass_by_itself_is_said_at_once() {
    let cluster = Cluster::start("wrong", 0);
    let missing = cluster.provider_for("shops");
    missing.adopt(&[]);
    let error = missing.apply(&step(1, 0, START), None).expect_err("fails").to_string();
    assert!(
        error.contains("shops") && error.contains("404") && error.contains("check its name and its namespace"),
        "{error}"
    );
    assert_eq!(missing.look(0, None), Presence::Absent);
    let Some(api) = &cluster.api else { return };
    assert_eq!(api.asked("/deployments/shops/scale"), 1, "it is asked once");
    let provider = cluster.provider();
    provider.adopt(&[]);
    api.fail(1, "PUT /apis/apps", 403, None);
    let error = provider.apply(&step(1, 0, START), None).expect_err("fails").to_string();
    assert!(error.contains("403") && error.contains("give its role this permission"), "{error}");
    assert_eq!(api.asked("PUT /apis/apps"), 1, "it is asked once");
    // Without the permission to name the pod to go, another one may go; the number is right all the same.
    start_all(&provider, 0..2);
    api.fail(1, "PATCH /api/v1", 403, None);
    provider.apply(&step(9, 0, What::Stop), None).expect("stops");
    assert_eq!(cluster.replicas(), 1);
    assert!(provider.take_notes().iter().any(|(_, text)| text.contains("another pod may go")));
}

#[test]
fn somebody_else_who_scales_is_noticed_and_not_fought() {
    let cluster = Cluster::start("others", 0);
    let Some(api) = &cluster.api else { return };
    let provider = cluster.provider();
    provider.adopt(&[]);
    start_all(&provider, 0..2);
    cluster.scale_by_hand(5);
    api.end_watches(false);
    let mut notes = Vec::new();
    until("it is said", || {
        notes.extend(provider.take_notes());
        notes.iter().any(|(kind, text)| kind == "scaled-by-others" && text.contains("5 replicas, and 2 were set"))
    });
    api.end_watches(false);
    start_all(&provider, 2..3);
    assert_eq!(cluster.replicas(), 5, "a start takes none away");
    assert_eq!(notes.iter().filter(|(kind, _)| kind == "scaled-by-others").count(), 1, "once");
}

#[test]
fn one_that_is_not_there_changes_nothing() {
    let cluster = Cluster::start("gone", 0);
    let Some(api) = &cluster.api else { return };
    let provider = cluster.provider();
    provider.adopt(&[]);
    start_all(&provider, 0..2);
    until("both serve", || serves(&provider, 0) && serves(&provider, 1));
    let before = [provider.address(0), provider.address(1)];
    api.stop();
    api.end_watches(false);
    let mut notes = Vec::new();
    until("it is said", || {
        notes.extend(provider.take_notes());
        notes.iter().any(|(_, text)| text.contains("what was known last holds"))
    });
    assert!(serves(&provider, 0) && serves(&provider, 1));
    assert_eq!([provider.address(0), provider.address(1)], before);
}

#[test]
fn sentries_are_told_where_pods_are() {
    let cluster = Cluster::start("daemon", 0);
    let provider = format!(
        "kind = \"kubernetes\"\nservers = 4\nkubeconfig = \"{}\"\nnamespace = \"{}\"\nsetup_time = \"1s\"\n\
         [provider.deployments.shop]\nport = \"http\"\n",
        cluster.kubeconfig.display(),
        cluster.namespace
    );
    let mut site = Site::with("", &provider);
    let mut sentry = Sentry::connect(&site, "one", "127.0.0.1");
    let first = sentry.servers(1);
    assert_eq!((cluster.replicas(), first[0].starts_with("10.1.0.")), (1, true), "{first:?}");
    let pod = cluster.pods()[0].clone();
    cluster.kill(&pod);
    // The same orders may come again before it is noticed.
    let second = std::iter::repeat_with(|| sentry.servers(1)).find(|servers| *servers != first).expect("never ends");
    site.restart();
    let mut sentry = Sentry::connect(&site, "one", "127.0.0.1");
    assert_eq!((sentry.servers(1), cluster.replicas()), (second, 1), "as before");
    assert_eq!(site.records("server-failed"), 0);
}

/// The documents of a file of `deploy/kubernetes`. The client library has the one YAML parser that is there: what it
/// does not know of a kubeconfig it keeps as it is.
fn documents(name: &str) -> Vec<Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/kubernetes").join(name);
    let text = std::fs::read_to_string(&path).expect("a file");
    let parse = |document: &str| {
        let inner: String = document.lines().map(|line| format!("  {line}\n")).collect();
        let parsed = Kubeconfig::from_yaml(&format!("document:\n{inner}")).expect("YAML");
        parsed.other["document"].clone()
    };
    text.split("\n---\n").map(parse).collect()
}

fn of_kind<'a>(documents: &'a [Value], kind: &str) -> &'a Value {
    documents.iter().find(|document| document["kind"] == kind).expect("it is there")
}

#[test]
fn the_example_manifest_permits_what_is_asked_and_no_more() {
    let documents = documents("control.yaml");
    let texts = |value: &Value| -> Vec<String> {
        value.as_array().into_iter().flatten().filter_map(|text| Some(text.as_str()?.to_owned())).collect()
    };
    let mut permitted = BTreeSet::new();
    for rule in of_kind(&documents, "Role")["rules"].as_array().expect("rules") {
        for (group, resource) in texts(&rule["apiGroups"]).iter().zip(texts(&rule["resources"])) {
            permitted.extend(texts(&rule["verbs"]).iter().map(|verb| format!("{verb} {group} {resource}")));
        }
    }
    let cluster = Cluster::start("rbac", 0);
    let Some(api) = &cluster.api else { return };
    cluster.write_token("provider");
    let provider = cluster.provider();
    provider.adopt(&[]);
    start_all(&provider, 0..2);
    api.end_watches(true);
    until("both serve", || serves(&provider, 0) && serves(&provider, 1));
    provider.apply(&step(9, 0, What::Stop), None).expect("stops");
    // One leads, its state grows old, and another one follows it.
    for name in ["one", "other"] {
        let config = ClusterConfig {
            kubeconfig: Some(cluster.kubeconfig.clone()),
            namespace: Some(cluster.namespace.clone()),
            prefix: String::from("tidegate-control"),
            lease: Duration::from_secs(60),
            name: name.to_owned(),
            pod: Some(format!("control-{name}")),
        };
        let candidate = ClusterBackend::find(&config).expect("a way");
        let stood = answer(|| candidate.stand(&Contact::default(), 1));
        let Turn::Mine(mut store) = stood else { panic!("another one leads") };
        let mut plane = answer(|| store.plane(home::site()));
        for second in 1..=3 {
            home::write(&mut store, &mut plane, [second]);
            answer(|| store.keep_state(&plane));
        }
        // What is old is deleted beside the work.
        until("it is deleted", || api.names("configmaps").len() <= 3);
        until("its pod is labelled", || api.asked(&format!("/pods/control-{name}")) >= 2);
        store.resign();
    }
    assert_eq!(api.verbs(), permitted);
}

#[test]
fn the_example_manifest_hangs_together() {
    let documents = documents("control.yaml");
    let name = "tidegate-control";
    for kind in ["ServiceAccount", "Role", "RoleBinding", "ConfigMap", "Deployment", "Service"] {
        assert_eq!(of_kind(&documents, kind)["metadata"]["name"], name, "{kind}");
    }
    assert_eq!(documents.len(), 6);
    let binding = of_kind(&documents, "RoleBinding");
    assert_eq!((&binding["roleRef"]["name"], &binding["subjects"][0]["name"]), (&json!(name), &json!(name)));
    let template = &of_kind(&documents, "Deployment")["spec"]["template"];
    assert_eq!(template["spec"]["serviceAccountName"], name);
    // The service leads to the one that leads, by the label that this one gives its pod.
    let mut selector = template["metadata"]["labels"].clone();
    selector["tidegate.io/role"] = json!("leader");
    assert_eq!(of_kind(&documents, "Service")["spec"]["selector"], selector);
    assert_eq!(of_kind(&documents, "Deployment")["spec"]["selector"]["matchLabels"], template["metadata"]["labels"]);
    let named = |list: &Value| -> BTreeSet<String> {
        list.as_array().into_iter().flatten().filter_map(|one| Some(one["name"].as_str()?.to_owned())).collect()
    };
    let container = &template["spec"]["containers"][0];
    assert_eq!(named(&container["volumeMounts"]), named(&template["spec"]["volumes"]));
    let text = of_kind(&documents, "ConfigMap")["data"]["control.toml"].as_str().expect("text");
    let folder = folder();
    std::fs::write(folder.path().join("key"), "the secret of the tests").expect("a file");
    let text = text.replace("/etc/tidegate-key/control.key", "key");
    let config = Config::parse(&text, &folder.path().join("control.toml")).expect("makes sense");
    let Provider::Kubernetes(kubernetes) = &config.provider else { panic!("another provider") };
    let rules = &of_kind(&documents, "Role")["rules"];
    let scaled: Vec<&str> = kubernetes.deployments.iter().map(|deployment| deployment.name.as_str()).collect();
    assert_eq!(rules[0]["resourceNames"], json!(scaled));
    let Place::Kubernetes(store) = config.store_of(false) else { panic!("another store") };
    let leases = rules.as_array().into_iter().flatten().filter(|rule| rule["resources"] == json!(["leases"]));
    let named_leases: Vec<&Value> =
        leases.map(|rule| &rule["resourceNames"]).filter(|names| !names.is_null()).collect();
    assert_eq!(named_leases, [&json!([store.prefix])]);
    let pod = json!({ "name": "POD_NAME", "valueFrom": { "fieldRef": { "fieldPath": "metadata.name" } } });
    assert_eq!(container["env"], json!([pod]));
    // Who waits listens there, too: only names are the leader's alone.
    assert_eq!(container["readinessProbe"]["tcpSocket"]["port"], "sentries");
    assert!(of_kind(&documents, "Deployment")["spec"]["replicas"].as_u64() > Some(1));
    let ports = |key: &str| {
        container["ports"]
            .as_array()
            .into_iter()
            .flatten()
            .any(|port| port["containerPort"] == json!(key.parse::<u16>().ok()))
    };
    assert!(ports(&config.listen.port().to_string()) && ports(&config.dns.expect("names").listen.port().to_string()));
    let service = &documents_of_service();
    assert_eq!(service["metadata"]["name"], kubernetes.deployments[0].service);
    assert_eq!(service["spec"]["ports"][0]["name"], *kubernetes.deployments[0].port.as_ref().expect("a port"));
    assert_eq!(service["spec"]["clusterIP"], "None");
}

fn documents_of_service() -> Value {
    documents("shop-pods.yaml").remove(0)
}
