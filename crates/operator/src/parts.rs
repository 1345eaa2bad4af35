//! Which objects stand for a policy: a configuration, a deployment of sentries, the service that clients ask, and the
//! one by which sentries find each other. Pure.
//!
//! They are as in `deploy/kubernetes/sentry.yaml`, which has the reasons. The secret is made once and then left alone.

use k8s_openapi::ByteString;
use serde_json::{Value, json};

use crate::policy::{GROUP, KIND, OverloadPolicy, VERSION};

/// Where sentries listen.
pub(crate) const HTTP: u16 = 8080;
/// Where they are asked for figures.
pub(crate) const ADMIN: u16 = 9900;
/// Where they speak to each other.
pub(crate) const PEERS: u16 = 9903;
/// Where they find their secrets.
pub(crate) const SECRETS: &str = "/etc/tidegate-secrets";
/// The account of all sentries of a namespace.
const ACCOUNT: &str = "tidegate-sentry";
/// A label of everything that the operator makes, and its value.
pub(crate) const MANAGED_BY: (&str, &str) = ("app.kubernetes.io/managed-by", "tidegate-operator");
/// The label that says whose it is.
pub(crate) const INSTANCE: &str = "app.kubernetes.io/instance";

/// What clients ask instead of the service; the deployment and the secret are called so, too.
pub(crate) fn sentry_name(policy: &str) -> String {
    format!("{policy}-sentry")
}

/// Where sentries find each other.
pub(crate) fn peers_name(policy: &str) -> String {
    format!("{policy}-sentry-peers")
}

/// An object to be applied.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Part {
    pub(crate) kind: Kind,
    pub(crate) name: String,
    pub(crate) object: Value,
}

/// What it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    ConfigMap,
    Deployment,
    Service,
}

/// Everything that stands for `policy` with this configuration; sentries run `image`, and the service's clients ask
/// them at `port`.
pub(crate) fn parts(policy: &OverloadPolicy, configuration: &str, image: &str, port: i32) -> Vec<Part> {
    let (name, peers) = (sentry_name(policy.name()), peers_name(policy.name()));
    let data = json!({ "data": { "tidegate.toml": configuration } });
    let clients = json!({
        "selector": selector(policy), "ports": [{ "name": "http", "port": port, "targetPort": "http" }],
    });
    let among_them = json!({
        "clusterIP": "None", "publishNotReadyAddresses": true, "selector": selector(policy),
        "ports": [{ "name": "peers", "port": PEERS, "protocol": "UDP" }],
    });
    let parts = [
        (Kind::ConfigMap, "v1", "ConfigMap", name.clone(), data),
        (Kind::Service, "v1", "Service", peers, json!({ "spec": among_them })),
        (Kind::Deployment, "apps/v1", "Deployment", name.clone(), json!({ "spec": deployment(policy, image) })),
        (Kind::Service, "v1", "Service", name, json!({ "spec": clients })),
    ];
    let whole = |(kind, version, word, name, mut object): (Kind, &str, &str, String, Value)| {
        object["apiVersion"] = version.into();
        object["kind"] = word.into();
        object["metadata"] = json!({ "name": name, "labels": labels(policy), "ownerReferences": [owner(policy)] });
        Part { kind, name, object }
    };
    parts.into_iter().map(whole).collect()
}

/// The secret of a policy's sentries.
pub(crate) fn secret(policy: &OverloadPolicy, key: &str, token: &str) -> Value {
    json!({
        "metadata": {
            "name": sentry_name(policy.name()), "labels": labels(policy), "ownerReferences": [owner(policy)],
        },
        "data": { "peers.key": bytes(key), "admin.token": bytes(token) },
    })
}

fn bytes(text: &str) -> ByteString {
    ByteString(text.as_bytes().to_vec())
}

fn deployment(policy: &OverloadPolicy, image: &str) -> Value {
    let name = sentry_name(policy.name());
    let sentries = &policy.spec.sentries;
    let resources = sentries
        .resources
        .clone()
        .unwrap_or_else(|| json!({ "requests": { "cpu": "500m", "memory": "128Mi" }, "limits": { "memory": "1Gi" } }));
    let container = json!({
        "name": "sentry",
        "image": image,
        "command": ["tidegate", "run", "-c", "/etc/tidegate/tidegate.toml"],
        "ports": [
            { "name": "http", "containerPort": HTTP },
            { "name": "admin", "containerPort": ADMIN },
            { "name": "peers", "containerPort": PEERS, "protocol": "UDP" },
        ],
        "readinessProbe": { "httpGet": { "path": "/readyz", "port": "admin" }, "periodSeconds": 2 },
        "lifecycle": { "preStop": { "sleep": { "seconds": 5 } } },
        "resources": resources,
        "securityContext": {
            "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "capabilities": { "drop": ["ALL"] },
        },
        "volumeMounts": [
            { "name": "config", "mountPath": "/etc/tidegate" },
            { "name": "secrets", "mountPath": SECRETS, "readOnly": true },
        ],
    });
    let spread = json!({
        "maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": { "matchLabels": selector(policy) },
    });
    let pod = json!({
        "serviceAccountName": ACCOUNT,
        "topologySpreadConstraints": [spread],
        "terminationGracePeriodSeconds": 40,
        "securityContext": {
            "runAsNonRoot": true, "runAsUser": 65532, "fsGroup": 65532, "seccompProfile": { "type": "RuntimeDefault" },
        },
        "containers": [container],
        "volumes": [
            { "name": "config", "configMap": { "name": name } },
            { "name": "secrets", "secret": { "secretName": name, "defaultMode": 0o440 } },
        ],
    });
    let mut spec = json!({
        "strategy": { "type": "RollingUpdate", "rollingUpdate": { "maxSurge": 1, "maxUnavailable": 0 } },
        "selector": { "matchLabels": selector(policy) },
        "template": { "metadata": { "labels": labels(policy) }, "spec": pod },
    });
    if let Some(replicas) = sentries.replicas {
        spec["replicas"] = replicas.into();
    }
    spec
}

fn selector(policy: &OverloadPolicy) -> Value {
    json!({ "app.kubernetes.io/name": "tidegate-sentry", INSTANCE: policy.name() })
}

fn labels(policy: &OverloadPolicy) -> Value {
    let mut labels = selector(policy);
    labels[MANAGED_BY.0] = MANAGED_BY.1.into();
    labels
}

/// Deleted with the policy. It does not keep the policy from being deleted, which would take another permission.
fn owner(policy: &OverloadPolicy) -> Value {
    json!({
        "apiVersion": format!("{GROUP}/{VERSION}"), "kind": KIND, "name": policy.name(),
        "uid": policy.metadata.uid, "controller": true, "blockOwnerDeletion": false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(sentries: Value) -> OverloadPolicy {
        let spec = json!({ "targetRef": { "kind": "Service", "name": "shop" }, "sentries": sentries });
        serde_json::from_value(json!({ "metadata": { "name": "p", "uid": "u" }, "spec": spec })).expect("a policy")
    }

    #[test]
    fn what_belongs_together_is_called_and_labelled_so() {
        let all = parts(&policy(json!({})), "text", "image", 80);
        assert_eq!(
            all.iter().map(|part| part.name.as_str()).collect::<Vec<_>>(),
            ["p-sentry", "p-sentry-peers", "p-sentry", "p-sentry"]
        );
        for part in &all {
            assert_eq!(part.object["metadata"]["ownerReferences"][0]["uid"], "u", "{part:?}");
        }
        let (deployment, service) = (&all[2].object["spec"], &all[3].object["spec"]);
        let template = &deployment["template"];
        for (key, value) in service["selector"].as_object().expect("labels") {
            assert_eq!(template["metadata"]["labels"][key], *value);
        }
        assert_eq!(deployment["selector"]["matchLabels"], service["selector"]);
        assert_eq!(service["ports"][0]["port"], 80);
        assert_eq!(all[0].object["data"]["tidegate.toml"], "text");
    }

    #[test]
    fn how_many_there_are_is_said_only_if_the_policy_does() {
        let of = |sentries: Value| parts(&policy(sentries), "", "image", 80)[2].object["spec"].clone();
        assert!(of(json!({})).get("replicas").is_none());
        let given = of(json!({ "replicas": 3, "resources": { "limits": { "cpu": "2" } } }));
        assert_eq!(given["replicas"], 3);
        assert_eq!(given["template"]["spec"]["containers"][0]["resources"], json!({ "limits": { "cpu": "2" } }));
    }

    /// A person who writes manifests by hand and one who writes a policy get the same sentries.
    #[test]
    fn sentries_are_as_the_manifest_has_them() {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/kubernetes/sentry.yaml");
        let text = std::fs::read_to_string(path).expect("a file");
        let document = text.split("\n---\n").find(|one| one.contains("\nkind: Deployment\n")).expect("a deployment");
        let inner: String = document.lines().map(|line| format!("  {line}\n")).collect();
        let parsed = kube::config::Kubeconfig::from_yaml(&format!("document:\n{inner}")).expect("YAML");
        let mut manifest = parsed.other["document"]["spec"].clone();
        let mut ours = parts(&policy(json!({ "replicas": 2 })), "", "tidegate:latest", 80)[2].object["spec"].clone();
        // Names are their own.
        for spec in [&mut manifest, &mut ours] {
            for path in ["/selector", "/template/metadata", "/template/spec/serviceAccountName"] {
                *spec.pointer_mut(path).expect(path) = Value::Null;
            }
            spec["template"]["spec"]["topologySpreadConstraints"][0]["labelSelector"] = Value::Null;
            spec["template"]["spec"]["volumes"][0]["configMap"] = Value::Null;
            spec["template"]["spec"]["volumes"][1]["secret"]["secretName"] = Value::Null;
        }
        assert_eq!(ours, manifest);
    }
}
