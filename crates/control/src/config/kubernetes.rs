//! Which deployment and service each application has.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::Deployment;

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

/// Each application's; where nothing is said, both are called as the application is.
pub(super) fn resolve(
    mut raw: BTreeMap<String, RawDeployment>,
    applications: &[String],
) -> Result<Vec<Deployment>, String> {
    let resolved = applications.iter().map(|application| {
        let raw = raw.remove(application).unwrap_or_default();
        let name = raw.deployment.unwrap_or_else(|| application.clone());
        let port = raw.port.map(|port| match port {
            RawPort::Number(port) => port.to_string(),
            RawPort::Name(name) => name,
        });
        Deployment { service: raw.service.unwrap_or_else(|| name.clone()), name, port }
    });
    let resolved: Vec<Deployment> = resolved.collect();
    if let Some(unknown) = raw.keys().next() {
        return Err(format!("[provider] deployments: there is no application \"{unknown}\""));
    }
    for (key, of) in [("deployment", (|d| &d.name) as fn(&Deployment) -> &String), ("service", |d| &d.service)] {
        if let Some(bad) = resolved.iter().map(of).find(|name| !is_object_name(name)) {
            return Err(format!(
                "[provider] deployments: \"{bad}\" is no name of a {key}: lower-case letters, digits, hyphens and dots"
            ));
        }
    }
    let mut names: Vec<&str> = resolved.iter().map(|deployment| deployment.name.as_str()).collect();
    names.sort_unstable();
    match names.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(twice) => Err(format!("[provider] deployments: \"{}\" is two applications'; give each its own", twice[0])),
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
        false => Err(String::from("this tidegate was built without Kubernetes; build it with --features kubernetes")),
    }
}

#[cfg(test)]
mod tests {
    #[cfg(feature = "kubernetes")]
    use super::*;
    #[cfg(feature = "kubernetes")]
    use crate::config::Provider;
    use crate::config::tests::parse;

    const TEXT: &str = "key_file = \"key\"\n[provider]\nkind = \"kubernetes\"\nservers = 8\n[[application]]\nname = \"shop\"\n\
                        target = \"1s\"\n";

    #[test]
    #[cfg(not(feature = "kubernetes"))]
    fn a_build_without_it_says_so() {
        assert!(parse(TEXT).expect_err("is not there").to_string().contains("--features kubernetes"));
    }

    #[test]
    #[cfg(feature = "kubernetes")]
    fn a_short_table_is_complete() {
        let config = parse(TEXT).expect("valid");
        let Provider::Kubernetes(kubernetes) = &config.provider else { panic!("another one") };
        assert_eq!((config.provider.servers(), config.provider.address(0), &kubernetes.namespace), (8, None, &None));
        let shop = Deployment { name: String::from("shop"), service: String::from("shop"), port: None };
        assert_eq!(kubernetes.deployments, [shop]);
    }

    #[test]
    fn what_makes_no_sense_is_said() {
        let message = |more: &str| parse(&format!("{TEXT}{more}")).expect_err("wrong").to_string();
        let unknown = message("[provider.deployments.other]\nservice = \"a\"\n");
        assert!(unknown.contains("no application \"other\""), "{unknown}");
        let name = message("[provider.deployments.shop]\nservice = \"My_Service\"\n");
        assert!(name.contains("\"My_Service\" is no name of a service"), "{name}");
        let key = message("[provider.deployments.shop]\nservise = \"a\"\n");
        assert!(key.contains("`service`"), "{key}");
        let twice = message(
            "[provider.deployments.shop]\ndeployment = \"a\"\n[provider.deployments.mail]\ndeployment = \"a\"\n\
             [[application]]\nname = \"mail\"\ntarget = \"1s\"\n",
        );
        assert!(twice.contains("two applications'"), "{twice}");
        let none = parse(&TEXT.replace("servers = 8\n", "")).expect_err("wrong").to_string();
        assert!(none.contains("needs servers"), "{none}");
    }
}
