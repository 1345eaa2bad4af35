//! What an `OverloadPolicy` is: `deploy/kubernetes/overloadpolicy.yaml` has its schema, which the API server enforces.

use std::borrow::Cow;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta};
use kube::core::NamespaceResourceScope;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

pub(crate) const GROUP: &str = "tidegate.io";
pub(crate) const VERSION: &str = "v1alpha1";
pub(crate) const KIND: &str = "OverloadPolicy";
const PLURAL: &str = "overloadpolicies";

/// A service that is to be protected, and how.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct OverloadPolicy {
    /// Its name, and the like.
    pub metadata: ObjectMeta,
    /// What is wanted.
    pub spec: Spec,
    /// What is said of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<Status>,
}

/// What is wanted.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Spec {
    /// The service.
    pub target_ref: TargetRef,
    /// Bound of the response time, such as `500ms`; `None`: the sentry's default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// Of which statistic: `mean`, `p90`, `p95`, `p99`; `None`: the sentry's default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub statistic: Option<String>,
    /// Decide and count, but refuse nothing.
    #[serde(default)]
    pub shadow: bool,
    /// Most important first; none: one of all requests.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub classes: Vec<Class>,
    /// Further keys of `[[application]]` of a sentry's configuration.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub settings: Map<String, Value>,
    /// The sentries themselves.
    #[serde(default)]
    pub sentries: Sentries,
}

/// A service in the policy's namespace.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TargetRef {
    /// The core group.
    #[serde(default)]
    pub group: String,
    /// `Service`.
    pub kind: String,
    /// Its name.
    pub name: String,
    /// The name of its port; `None`: its first TCP port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub section_name: Option<String>,
}

/// A class of requests.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Class {
    /// What it is called.
    pub name: String,
    /// Guaranteed rate, such as `20/s`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_rate: Option<String>,
    /// Value of an answer within the target, in any unit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revenue: Option<f64>,
    /// Rules, any of which makes a request belong; none: every request.
    #[serde(default, rename = "match", skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<Rule>,
}

/// A rule: everything that it says must hold.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Rule {
    /// One of several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub method: Vec<String>,
    /// One of several: `example.org`, or `*.example.org`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub host: Vec<String>,
    /// Exactly this path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// This path and all below it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path_prefix: Option<String>,
    /// `*` within a segment, `**` across segments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path_glob: Option<String>,
    /// Header fields that must all be there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub header: Vec<Pair>,
    /// Cookies that must all be there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cookie: Vec<Pair>,
    /// Networks of clients, one of several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub network: Vec<String>,
}

/// A header field or a cookie.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Pair {
    /// What it is called.
    pub name: String,
    /// Its value; `None`: any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
}

/// The sentries of a policy.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Sentries {
    /// How many; `None`: whoever scales the deployment decides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
    /// `resources` of their containers; `None`: half a processor, and 1 GiB at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<Value>,
}

/// What is said of a policy.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    /// `Accepted`: it makes sense; `Programmed`: sentries stand before the service.
    #[serde(default)]
    pub conditions: Vec<Condition>,
    /// Of which generation of the policy that is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Sentries that answered last.
    #[serde(default)]
    pub sentries: i32,
    /// What they see together; none before it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load: Option<Load>,
    /// The same of each class.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub classes: Vec<ClassLoad>,
    /// Servers that the load needs, as the sentries reckon; none where none of them knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub servers_needed: Option<i32>,
}

/// Requests a second, over the last quarter of a minute or so.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Load {
    /// That came.
    pub offered_per_second: i64,
    /// That were refused; in shadow mode: that would have been.
    pub refused_per_second: i64,
}

/// That of a class.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct ClassLoad {
    /// Which.
    pub name: String,
    /// How much.
    #[serde(flatten)]
    pub load: Load,
}

impl OverloadPolicy {
    /// What it is called.
    pub fn name(&self) -> &str {
        self.metadata.name.as_deref().unwrap_or_default()
    }
}

impl kube::Resource for OverloadPolicy {
    type DynamicType = ();
    type Scope = NamespaceResourceScope;

    fn kind(_: &()) -> Cow<'_, str> {
        KIND.into()
    }

    fn group(_: &()) -> Cow<'_, str> {
        GROUP.into()
    }

    fn version(_: &()) -> Cow<'_, str> {
        VERSION.into()
    }

    fn plural(_: &()) -> Cow<'_, str> {
        PLURAL.into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use serde_json::json;

    use super::*;

    /// Every field of the schema is one of the types, and the other way round.
    fn compare(schema: &Value, value: &Value, path: &str) {
        match (&schema["properties"], &schema["items"]) {
            (Value::Object(properties), _) => {
                let known: BTreeSet<&String> = properties.keys().collect();
                let ours: BTreeSet<&String> = value.as_object().expect(path).keys().collect();
                assert_eq!(known, ours, "{path}");
                for (key, schema) in properties {
                    compare(schema, &value[key], &format!("{path}.{key}"));
                }
            }
            (_, Value::Object(items)) => compare(&json!(items), &value[0], &format!("{path}[0]")),
            _ => {}
        }
    }

    #[test]
    fn the_schema_has_the_fields_that_are_read_and_written() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/kubernetes/overloadpolicy.yaml");
        let text = std::fs::read_to_string(path).expect("a file");
        let inner: String = text.lines().map(|line| format!("  {line}\n")).collect();
        let parsed = kube::config::Kubeconfig::from_yaml(&format!("document:\n{inner}")).expect("YAML");
        let spec = &parsed.other["document"]["spec"];
        assert_eq!((&spec["group"], &spec["names"]["plural"]), (&json!(GROUP), &json!(PLURAL)));
        let schema = &spec["versions"][0]["schema"]["openAPIV3Schema"];
        let pair = json!({ "name": "n", "value": "v" });
        let rule = json!({
            "method": ["GET"], "host": ["a"], "path": "/", "pathPrefix": "/", "pathGlob": "/*", "header": [pair],
            "cookie": [pair], "network": ["10.0.0.0/8"],
        });
        let spec = json!({
            "targetRef": { "group": "", "kind": "Service", "name": "shop", "sectionName": "http" },
            "target": "1s", "statistic": "p95", "shadow": true,
            "classes": [{ "name": "gold", "minRate": "1/s", "revenue": 1.5, "match": [rule] }],
            "settings": { "dispatch": "p2c" },
            "sentries": { "replicas": 2, "resources": { "limits": {} } },
        });
        let condition = json!({
            "type": "Accepted", "status": "True", "reason": "Accepted", "message": "", "observedGeneration": 1,
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        });
        let status = json!({
            "conditions": [condition], "observedGeneration": 1, "sentries": 2,
            "load": { "offeredPerSecond": 1, "refusedPerSecond": 0 },
            "classes": [{ "name": "gold", "offeredPerSecond": 1, "refusedPerSecond": 0 }],
            "serversNeeded": 3,
        });
        let object = json!({ "metadata": { "name": "shop" }, "spec": spec, "status": status });
        let read: OverloadPolicy = serde_json::from_value(object.clone()).expect("a policy");
        let written = serde_json::to_value(&read).expect("JSON");
        assert_eq!((&written["spec"], &written["status"]), (&object["spec"], &object["status"]), "nothing is lost");
        compare(&schema["properties"]["spec"], &written["spec"], "spec");
        compare(&schema["properties"]["status"], &written["status"], "status");
    }
}
