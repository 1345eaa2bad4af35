//! What stands in the cluster: namespaces, each with the manifests of `deploy/kubernetes`, and a deployment to scale.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use super::api::{Api, awaited};
use super::kubelet::Kubelet;
use super::machinery::Machinery;
use crate::command;

/// Where pods of `shop` serve.
pub const PORT: u16 = 8080;
/// The account and the Role of the manifest.
pub const ACCOUNT: &str = "tidegate-control";
/// For what the cluster does by itself.
pub const SOON: Duration = Duration::from_secs(30);
/// A field that no kind has.
pub const MISSPELT: &str = "naem";
/// For what is late.
const LATE: Duration = Duration::from_secs(120);
const SERVICE: &str = "shop-pods.yaml";
const FOLDER: &str = "deploy/kubernetes";
/// The one kind of these objects that is of no namespace.
const CLUSTER_WIDE: &str = "CustomResourceDefinition";

/// Kubernetes, with a node.
#[derive(Debug)]
pub struct Cluster {
    /// Ends its processes before the API server ends.
    _kubelet: Kubelet,
    /// The API server and what is beside it.
    pub machinery: Machinery,
    /// Where files are.
    pub dir: PathBuf,
}

/// A namespace.
#[derive(Debug)]
pub struct Home {
    /// Who may do everything.
    pub api: Api,
    /// What it is called.
    pub name: String,
    /// Where files are.
    pub dir: PathBuf,
    /// Leads to the API server with the rights of the manifest, and no more.
    pub kubeconfig: PathBuf,
    /// Pods that the deployment of the manifest has made, for the control planes.
    pub control_pods: Vec<String>,
}

impl Cluster {
    /// Adds a node.
    ///
    /// # Errors
    /// When the API server refuses it.
    pub fn new(machinery: Machinery, dir: &Path) -> Result<Self> {
        Ok(Self { _kubelet: Kubelet::start(&machinery)?, machinery, dir: dir.to_owned() })
    }

    /// Waits until a deployment's pod serves, of a namespace of its own: after an API server was away, what the cluster
    /// does by itself may be late.
    ///
    /// # Errors
    /// When they are later.
    pub fn await_controllers(&self, namespace: &str) -> Result<Duration> {
        let api = &self.machinery.api;
        api.make("/api/v1/namespaces", &json!({ "metadata": { "name": namespace } }))?;
        for manifest in manifests()?.iter().filter(|manifest| manifest.file == SERVICE) {
            manifest.apply(api, namespace, false)?.object()?;
        }
        api.make(&format!("/apis/apps/v1/namespaces/{namespace}/deployments"), &shop(1))?;
        let slices = format!("/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices");
        let ((), took) = awaited("the controllers go on", LATE, || {
            let is_ready = |slice: &Value| slice["endpoints"][0]["conditions"]["ready"] == true;
            Ok(api.get(&slices)?["items"].as_array().is_some_and(|all| all.iter().any(is_ready)).then_some(()))
        })?;
        api.delete(&format!("/api/v1/namespaces/{namespace}"), &json!({}))?;
        Ok(took)
    }

    /// Makes a namespace with all that is in the manifests, and a deployment `shop` without pods. A rule of the Role
    /// may be another one than in the manifest.
    ///
    /// # Errors
    /// When something is refused.
    pub fn home(&self, name: &str, change: impl FnOnce(&mut Value) -> Result<()>) -> Result<Home> {
        let api = self.machinery.api.clone();
        api.make("/api/v1/namespaces", &json!({ "metadata": { "name": name } }))?;
        for manifest in manifests()?.iter().filter(|manifest| manifest.is_built_in()) {
            manifest.apply(&api, name, false)?.object().with_context(|| manifest.to_string())?;
        }
        let role = format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{name}/roles/{ACCOUNT}");
        let mut rules = api.get(&role)?["rules"].take();
        change(&mut rules)?;
        api.patch(&role, &json!({ "rules": rules }))?;
        await_rights(&api, name, ACCOUNT, &rules)?;
        api.make(&format!("/apis/apps/v1/namespaces/{name}/deployments"), &shop(0))?;
        let dir = self.dir.join(name);
        fs::create_dir_all(&dir)?;
        let kubeconfig = self.kubeconfig(name, ACCOUNT)?;
        let pods = format!("/api/v1/namespaces/{name}/pods?labelSelector=app.kubernetes.io%2Fname%3D{ACCOUNT}");
        let (control_pods, _) = awaited("two pods for control planes", SOON, || {
            let names = names(&api.get(&pods)?);
            Ok((names.len() == 2).then_some(names))
        })?;
        Ok(Home { api, name: name.to_owned(), dir, kubeconfig, control_pods })
    }

    /// A file that leads to the API server with the rights of an account of a namespace.
    ///
    /// # Errors
    /// When the API server gives it no token.
    pub fn kubeconfig(&self, namespace: &str, account: &str) -> Result<PathBuf> {
        let token = self.machinery.api.token_of(namespace, account)?;
        self.machinery.write_kubeconfig(&format!("{namespace}-{account}"), &token, namespace)
    }
}

impl Home {
    /// The deployment `shop`.
    ///
    /// # Errors
    /// When the API server does not say.
    pub fn shop(&self) -> Result<Value> {
        self.api.get(&format!("/apis/apps/v1/namespaces/{}/deployments/shop", self.name))
    }

    /// How many pods it is to have, and how often that was changed (each change of its specification is a generation).
    ///
    /// # Errors
    /// When the API server does not say.
    pub fn scale(&self) -> Result<(u64, u64)> {
        let shop = self.shop()?;
        let replicas = shop["spec"]["replicas"].as_u64().unwrap_or(0);
        Ok((replicas, shop["metadata"]["generation"].as_u64().context("the deployment has no generation")?))
    }

    /// The names and addresses of its pods that nobody has deleted.
    ///
    /// # Errors
    /// When the API server does not say.
    pub fn pods(&self) -> Result<Vec<(String, String)>> {
        let list = self.api.get(&format!("/api/v1/namespaces/{}/pods?labelSelector=app%3Dshop", self.name))?;
        let stays = |pod: &&Value| pod["metadata"]["deletionTimestamp"].is_null();
        let pod = |pod: &Value| {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            (text(&pod["metadata"]["name"]), text(&pod["status"]["podIP"]))
        };
        Ok(list["items"].as_array().context("no list")?.iter().filter(stays).map(pod).collect())
    }

    /// Whether a control plane's pod has the label of the leader.
    ///
    /// # Errors
    /// When the API server does not say.
    pub fn has_label(&self, pod: &str) -> Result<bool> {
        let pod = self.api.get(&format!("/api/v1/namespaces/{}/pods/{pod}", self.name))?;
        Ok(pod["metadata"]["labels"]["tidegate.io/role"] == "leader")
    }
}

/// One object of a file.
#[derive(Clone, Debug)]
pub struct Manifest {
    file: String,
    /// What it is.
    pub kind: String,
    group: String,
    name: String,
    text: String,
}

impl Manifest {
    fn parse(file: &str, text: &str) -> Result<Self> {
        let of =
            |start: &str| text.lines().find_map(|line| line.strip_prefix(start)).map(|value| value.trim().to_owned());
        let all = || Some((of("kind:")?, of("apiVersion:")?, of("  name:")?));
        let (kind, group, name) = all().with_context(|| format!("{file}: an object without kind, version or name"))?;
        Ok(Self { file: file.to_owned(), kind, group, name, text: text.to_owned() })
    }

    /// Whether every API server knows its kind.
    pub fn is_built_in(&self) -> bool {
        ["v1", "apps/v1"].contains(&self.group.as_str()) || self.group.contains(".k8s.io/")
    }

    /// The same with [`MISSPELT`].
    pub fn misspelt(&self) -> Self {
        let text = self.text.replacen("\nmetadata:\n", &format!("\nmetadata:\n  {MISSPELT}: x\n"), 1);
        Self { text, ..self.clone() }
    }

    /// Puts it into a namespace, or only asks whether it could be.
    ///
    /// # Errors
    /// When the API server does not answer.
    pub fn apply(&self, api: &Api, namespace: &str, is_dry: bool) -> Result<super::api::Answer> {
        let root = if self.group == "v1" { "/api/v1".to_owned() } else { format!("/apis/{}", self.group) };
        let plural = format!("{}s", self.kind.to_lowercase());
        // Unknown and doubled fields are errors, as they are for `kubectl`.
        let how = if is_dry { "&dryRun=All" } else { "" };
        let within = if self.kind == CLUSTER_WIDE { String::new() } else { format!("/namespaces/{namespace}") };
        let path = format!("{root}{within}/{plural}/{}?fieldManager=check&fieldValidation=Strict{how}", self.name);
        api.apply(&path, &self.text)
    }
}

impl std::fmt::Display for Manifest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {} {}", self.file, self.kind, self.name)
    }
}

/// All objects of `deploy/kubernetes`.
///
/// # Errors
/// When a file cannot be read.
pub fn manifests() -> Result<Vec<Manifest>> {
    let mut files: Vec<_> = fs::read_dir(command::root().join(FOLDER))?.collect::<Result<_, _>>()?;
    files.sort_by_key(fs::DirEntry::file_name);
    let mut all = Vec::new();
    for file in files {
        let name = file.file_name().to_string_lossy().into_owned();
        let text = fs::read_to_string(file.path())?;
        for part in text.split("\n---\n") {
            all.push(Manifest::parse(&name, part)?);
        }
    }
    ensure!(!all.is_empty(), "there are no manifests in {FOLDER}");
    Ok(all)
}

/// The names of the objects of a list.
pub fn names(list: &Value) -> Vec<String> {
    let name = |object: &Value| object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    list["items"].as_array().into_iter().flatten().map(name).collect()
}

fn shop(replicas: u32) -> Value {
    let container = json!({
        "name": "shop", "image": "shop", "ports": [{ "name": "http", "containerPort": PORT }],
    });
    json!({
        "metadata": { "name": "shop" },
        "spec": {
            "replicas": replicas, "selector": { "matchLabels": { "app": "shop" } },
            "template": { "metadata": { "labels": { "app": "shop" } }, "spec": { "containers": [container] } },
        },
    })
}

/// Waits until the API server knows of all rights of an account: it hears of changes as everybody does.
///
/// # Errors
/// When it does not hear of them.
pub fn await_rights(api: &Api, namespace: &str, account: &str, rules: &Value) -> Result<()> {
    let texts = |value: &Value| -> Vec<String> {
        value.as_array().into_iter().flatten().filter_map(|text| Some(text.as_str()?.to_owned())).collect()
    };
    for rule in rules.as_array().into_iter().flatten() {
        let names = if rule["resourceNames"].is_null() { vec![String::new()] } else { texts(&rule["resourceNames"]) };
        let Some(resource) = texts(&rule["resources"]).pop() else { bail!("a rule without resources: {rule}") };
        let (resource, subresource) = resource.split_once('/').unwrap_or((&resource, ""));
        for verb in texts(&rule["verbs"]) {
            let attributes = json!({
                "namespace": namespace, "verb": verb, "group": rule["apiGroups"][0], "resource": resource,
                "subresource": subresource, "name": names[0],
            });
            await_right(api, namespace, account, &attributes, true)?;
        }
    }
    Ok(())
}

/// Waits until the API server knows that an account may do this, or may not.
///
/// # Errors
/// When it does not hear of it.
pub fn await_right(api: &Api, namespace: &str, account: &str, attributes: &Value, may: bool) -> Result<()> {
    let user = format!("system:serviceaccount:{namespace}:{account}");
    let review = json!({ "spec": { "user": user, "resourceAttributes": attributes } });
    awaited("the API server knows the Role", SOON, || {
        let review = api.make("/apis/authorization.k8s.io/v1/subjectaccessreviews", &review)?;
        Ok((review["status"]["allowed"] == may).then_some(()))
    })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_says_what_it_is() {
        let text =
            "# A comment.\napiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: shop\nspec:\n  replicas: 2\n";
        let manifest = Manifest::parse("a.yaml", text).unwrap();
        assert_eq!(manifest.to_string(), "a.yaml: Deployment shop");
        assert!(manifest.is_built_in());
        let foreign = Manifest::parse("a.yaml", &text.replace("apps/v1", "keda.sh/v1alpha1")).unwrap();
        assert!(!foreign.is_built_in());
        assert!(Manifest::parse("a.yaml", "kind: x\n").is_err());
    }

    #[test]
    fn the_manifests_are_found() {
        let kinds: Vec<String> = manifests().unwrap().into_iter().map(|manifest| manifest.kind).collect();
        for kind in ["Role", "RoleBinding", "ServiceAccount", "Deployment", "Service", "ScaledObject"] {
            assert!(kinds.iter().any(|found| found == kind), "{kind}: {kinds:?}");
        }
    }
}
