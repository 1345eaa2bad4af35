//! Which deployment and service each application has, and where in a cluster several control planes have their state.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use tidegate_engine::units::Seconds;

use super::Deployment;

/// Several control planes on a cluster's API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterConfig {
    /// How the API server is reached; `None`: as `kubectl` does it, or as a pod does.
    pub kubeconfig: Option<PathBuf>,
    /// Where the Lease and the ConfigMaps are; `None`: where this one is at home.
    pub namespace: Option<String>,
    /// The name of the Lease, and what those of all ConfigMaps begin with.
    pub prefix: String,
    /// When nothing was heard of the one that leads for so long, another one is elected.
    pub lease: Duration,
    /// What this control plane is called among the others.
    pub name: String,
    /// The pod that it runs in, which has a label while it leads; `None`: in none, or it is to have no label.
    pub pod: Option<String>,
}

/// Why a build without the feature cannot do it, and what to do.
pub(crate) const NOT_BUILT: &str = "this tidegate was built without Kubernetes; build it with --features kubernetes";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawCluster {
    kubeconfig: Option<PathBuf>,
    namespace: Option<String>,
    #[serde(default = "prefix")]
    prefix: String,
    #[serde(default = "lease")]
    lease: Seconds,
    name: Option<String>,
    pod: Option<String>,
}

/// The variable that says the pod's name where the configuration does not: that one is the same for all of them.
const POD_NAME: &str = "POD_NAME";

fn prefix() -> String {
    String::from("tidegate-control")
}

fn lease() -> Seconds {
    Seconds(3.0)
}

/// A lease's length: a Lease of Kubernetes counts whole seconds.
fn checked(lease: Seconds) -> Result<Duration, String> {
    if !(2.0..=60.0).contains(&lease.0) || lease.0.fract() != 0.0 {
        return Err(String::from("[kubernetes] lease must be whole seconds, from 2s to 60s"));
    }
    Ok(lease.duration())
}

impl RawCluster {
    pub(super) fn resolve(self, folder: &Path, listen: SocketAddr) -> Result<ClusterConfig, String> {
        // It is a label's value, too.
        if !is_object_name(&self.prefix) || self.prefix.len() > 63 {
            return Err(format!(
                "[kubernetes] prefix: \"{}\" is no name of an object: up to 63 lower-case letters, digits, hyphens and \
                 dots, such as \"tidegate-control\"",
                self.prefix
            ));
        }
        if let Some(bad) = self.namespace.as_ref().filter(|name| !is_object_name(name)) {
            return Err(format!("[kubernetes] namespace: \"{bad}\" is no name of a namespace"));
        }
        let pod = pod(self.pod, std::env::var(POD_NAME).ok())?;
        let lease = checked(self.lease)?;
        is_there()?;
        Ok(ClusterConfig {
            kubeconfig: self.kubeconfig.map(|path| folder.join(path)),
            namespace: self.namespace,
            prefix: self.prefix,
            lease,
            name: self.name.unwrap_or_else(|| name_at(listen)),
            pod,
        })
    }
}

fn pod(given: Option<String>, environment: Option<String>) -> Result<Option<String>, String> {
    let (pod, of) = match given {
        Some(given) => (Some(given), "[kubernetes] pod"),
        None => (environment.filter(|name| !name.is_empty()), POD_NAME),
    };
    match pod {
        Some(bad) if !is_object_name(&bad) => Err(format!("{of}: \"{bad}\" is no name of a pod")),
        pod => Ok(pod),
    }
}

/// In a pod every control plane listens on the same address: the machine's name is the pod's.
fn name_at(listen: SocketAddr) -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    match host.trim() {
        "" => listen.to_string(),
        host => format!("{host}:{}", listen.port()),
    }
}

pub(super) const NO_SERVERS: &str = "[provider] kind = \"kubernetes\" needs servers, the most pods that may be in use";

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawDeployment {
    deployment: Option<String>,
    service: Option<String>,
    port: Option<RawPort>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum RawPort {
    Number(u16),
    Name(String),
}

/// Each application's; where nothing is said, both are called as the application is, and then `suffix`.
pub(super) fn resolve(
    mut raw: BTreeMap<String, RawDeployment>,
    applications: &[String],
    suffix: &str,
) -> Result<Vec<Deployment>, String> {
    let resolved = applications.iter().map(|application| {
        let raw = raw.remove(application).unwrap_or_default();
        let name = raw.deployment.unwrap_or_else(|| format!("{application}{suffix}"));
        let port = raw.port.map(|port| match port {
            RawPort::Number(port) => port.to_string(),
            RawPort::Name(name) => name,
        });
        Deployment { service: raw.service.unwrap_or_else(|| name.clone()), name, port }
    });
    let resolved: Vec<Deployment> = resolved.collect();
    if let Some(unknown) = raw.keys().next() {
        return Err(format!("deployments: there is no application \"{unknown}\""));
    }
    for (key, of) in [("deployment", (|d| &d.name) as fn(&Deployment) -> &String), ("service", |d| &d.service)] {
        if let Some(bad) = resolved.iter().map(of).find(|name| !is_object_name(name)) {
            return Err(format!(
                "deployments: \"{bad}\" is no name of a {key}: lower-case letters, digits, hyphens and dots"
            ));
        }
    }
    let mut names: Vec<&str> = resolved.iter().map(|deployment| deployment.name.as_str()).collect();
    names.sort_unstable();
    match names.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(twice) => Err(format!("deployments: \"{}\" is two applications'; give each its own", twice[0])),
        None => Ok(resolved),
    }
}

/// As RFC 1123 has it.
fn is_object_name(name: &str) -> bool {
    let inner = name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte));
    let edge = |byte: Option<u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric());
    inner && name.len() <= 253 && edge(name.bytes().next()) && edge(name.bytes().next_back())
}

/// Whether this program can do it.
pub(super) fn is_there() -> Result<(), String> {
    match cfg!(feature = "kubernetes") {
        true => Ok(()),
        false => Err(String::from(NOT_BUILT)),
    }
}

#[cfg(test)]
mod tests {
    use crate::config::tests::parse;

    const TEXT: &str = "key_file = \"key\"\n[provider]\nkind = \"kubernetes\"\nservers = 8\n[[application]]\nname = \"shop\"\n\
                        target = \"1s\"\n";

    #[test]
    #[cfg(not(feature = "kubernetes"))]
    fn a_build_without_it_says_so() {
        let several = "key_file = \"key\"\n[provider]\nkind = \"static\"\naddresses = [\"a:1\"]\n[kubernetes]\n\
                       [[application]]\nname = \"shop\"\ntarget = \"1s\"\n";
        for text in [TEXT, several] {
            assert!(parse(text).expect_err("is not there").to_string().contains("--features kubernetes"));
        }
    }

    #[test]
    fn what_makes_no_sense_is_said() {
        let message = |more: &str| parse(&format!("{TEXT}{more}")).expect_err("wrong").to_string();
        let unknown = message("[provider.deployments.other]\nservice = \"a\"\n");
        assert!(unknown.contains("no application \"other\""), "{unknown}");
        let name = message("[provider.deployments.shop]\nservice = \"My_Service\"\n");
        assert!(name.contains("\"My_Service\" is no name of a service"), "{name}");
        let key = message("[provider.deployments.shop]\nservise = \"a\"\n");
        assert!(key.contains("\"service\""), "{key}");
        let twice = message(
            "[provider.deployments.shop]\ndeployment = \"a\"\n[provider.deployments.mail]\ndeployment = \"a\"\n\
             [[application]]\nname = \"mail\"\ntarget = \"1s\"\n",
        );
        assert!(twice.contains("two applications'"), "{twice}");
        let none = parse(&TEXT.replace("servers = 8\n", "")).expect_err("wrong").to_string();
        assert!(none.contains("needs servers"), "{none}");
    }

    #[cfg(feature = "kubernetes")]
    mod with_the_feature {
        use super::super::*;
        use super::{TEXT, parse};
        use crate::config::{Place, Provider};

        #[test]
        fn the_state_can_be_in_a_cluster_whoever_provides_servers() {
            let text = "key_file = \"key\"\n[provider]\nkind = \"static\"\naddresses = [\"a:1\"]\n\
                        [[application]]\nname = \"shop\"\ntarget = \"1s\"\n[kubernetes]\n";
            let config = parse(text).expect("valid");
            let Place::Kubernetes(cluster) = config.store_of(false) else { panic!("elsewhere") };
            assert_eq!((cluster.prefix.as_str(), cluster.lease), ("tidegate-control", Duration::from_secs(3)));
            assert!(cluster.name.ends_with(":9910") && cluster.namespace.is_none(), "{}", cluster.name);
            assert!(matches!(config.store_of(true), Place::File(_)));
            let given =
                "kubeconfig = \"here\"\nnamespace = \"shop\"\nprefix = \"a\"\nlease = \"15s\"\nname = \"one\"\n";
            let Place::Kubernetes(cluster) = parse(&format!("{text}{given}")).expect("valid").store_of(false) else {
                panic!("elsewhere")
            };
            assert!(cluster.kubeconfig.is_some_and(|path| path.is_absolute() && path.ends_with("here")));
            assert_eq!((cluster.prefix.as_str(), cluster.name.as_str()), ("a", "one"));
            assert_eq!((cluster.namespace.as_deref(), cluster.lease), (Some("shop"), Duration::from_secs(15)));
            let message = |more: &str| parse(&format!("{text}{more}")).expect_err("wrong").to_string();
            assert!(message("prefix = \"A_b\"").contains("is no name of an object"));
            assert!(message(&format!("prefix = \"{}\"", "a".repeat(64))).contains("up to 63"));
            assert!(message("namespace = \"/\"").contains("is no name of a namespace"));
            assert!(message("pod = \"One\"").contains("[kubernetes] pod: \"One\" is no name of a pod"));
            assert!(message("lease = \"1s\"").contains("from 2s to 60s"));
        }

        #[test]
        fn the_pod_is_said_by_the_file_or_else_by_the_environment() {
            let text = |text: &str| Some(text.to_owned());
            assert_eq!(pod(text("one"), text("two")), Ok(text("one")));
            assert_eq!(
                (pod(None, text("two")), pod(None, text("")), pod(None, None)),
                (Ok(text("two")), Ok(None), Ok(None))
            );
            assert_eq!(pod(None, text("a/b")), Err(String::from("POD_NAME: \"a/b\" is no name of a pod")));
        }

        #[test]
        fn a_short_table_is_complete() {
            let config = parse(TEXT).expect("valid");
            let Provider::Kubernetes(kubernetes) = &config.provider else { panic!("another one") };
            assert_eq!(
                (config.provider.servers(), config.provider.address(0), &kubernetes.namespace),
                (8, None, &None)
            );
            let shop = Deployment { name: String::from("shop"), service: String::from("shop"), port: None };
            assert_eq!(kubernetes.deployments, [shop]);
        }
    }
}
