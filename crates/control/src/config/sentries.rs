//! When the number of sentries changes, and who starts and stops them.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use tidegate_engine::units::Seconds;
use tidegate_provision::{Posts, SentryRule};

use super::kubernetes::{self, RawDeployment};
use super::{Check, Kubernetes, Local, Provider};
use crate::plane::Unit;

/// What a sentry may need to finish what it has, and a little more: see `drain` in its configuration.
const STOP_GRACE: Duration = Duration::from_secs(40);

/// A rule, and who starts them: `flatten` would take unknown keys.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawSentries {
    high: f64,
    low: f64,
    hold: Seconds,
    provider: Option<RawSentryProvider>,
}

impl Default for RawSentries {
    fn default() -> RawSentries {
        let SentryRule { high, low, hold } = SentryRule::default();
        RawSentries { high, low, hold, provider: None }
    }
}

impl RawSentries {
    /// The rule, and who starts them.
    pub(super) fn into_parts(self) -> (SentryRule, Option<RawSentryProvider>) {
        (SentryRule { high: self.high, low: self.low, hold: self.hold }, self.provider)
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    Local,
    Kubernetes,
}

/// Both kinds in one, so that a wrong key is told with its line.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawSentryProvider {
    kind: Kind,
    #[serde(default)]
    command: Vec<String>,
    #[serde(default)]
    addresses: Vec<IpAddr>,
    port: Option<u16>,
    stop_grace: Option<Seconds>,
    log: Option<PathBuf>,
    kubeconfig: Option<PathBuf>,
    namespace: Option<String>,
    most: Option<u16>,
    #[serde(default)]
    deployments: BTreeMap<String, RawDeployment>,
    hung_after: Option<Seconds>,
    setup_time: Option<Seconds>,
    leave_after: Option<Seconds>,
}

impl RawSentryProvider {
    pub(super) fn resolve(self, folder: &Path, applications: &[String]) -> Result<(Provider, Posts), String> {
        let or = |given: Option<Seconds>, normal: Duration| given.map_or(normal, Seconds::duration);
        let normal = Posts::default();
        let setup_time = or(self.setup_time, normal.setup_time);
        let leave_after = or(self.leave_after, normal.leave_after);
        // A request may well be refused: only whether a connection opens says anything.
        let check = Check { path: None, hung_after: or(self.hung_after, Duration::from_secs(30)) };
        let provider = match self.kind {
            Kind::Local => {
                if self.command.is_empty() {
                    return Err(String::from(
                        "kind = \"local\" needs command = [\"tidegate\", \"run\", \"-c\", \"sentry.toml\"]",
                    ));
                }
                Provider::Local(Local {
                    unit: Unit::Sentry,
                    command: self.command,
                    addresses: addresses(&self.addresses, self.port)?,
                    applications: applications.to_vec(),
                    check,
                    stop_grace: or(self.stop_grace, STOP_GRACE),
                    log: self.log.map(|log| folder.join(log)),
                })
            }
            Kind::Kubernetes => {
                let deployments = kubernetes::resolve(self.deployments, applications, "-sentry")?;
                let servers = self.most.filter(|most| *most > 0);
                let servers = servers.ok_or("kind = \"kubernetes\" needs most, the most pods that may be in use")?;
                kubernetes::is_there()?;
                let kubeconfig = self.kubeconfig.map(|path| folder.join(path));
                Provider::Kubernetes(Kubernetes { kubeconfig, namespace: self.namespace, servers, deployments, check })
            }
        };
        let count = provider.servers();
        Ok((provider, Posts { count, setup_time, leave_after }))
    }
}

/// Where sentries listen: one at each address, all on the same port, as DNS tells clients no other.
fn addresses(ips: &[IpAddr], port: Option<u16>) -> Result<Vec<SocketAddr>, String> {
    let port = port.filter(|port| *port > 0).ok_or("needs port, on which each sentry serves clients")?;
    if ips.is_empty() {
        return Err(String::from("needs addresses = [\"192.0.2.10\", ...], one for each sentry that may be started"));
    }
    if let Some((_, twice)) = ips.iter().enumerate().find(|(at, ip)| ips[..*at].contains(ip)) {
        return Err(format!("addresses: {twice} is there twice; each sentry has an address of its own"));
    }
    Ok(ips.iter().map(|ip| SocketAddr::new(*ip, port)).collect())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use crate::config::Provider;
    use crate::config::tests::parse;
    use crate::plane::Unit;

    const TEXT: &str = "key_file = \"key\"\n[provider]\nkind = \"static\"\naddresses = [\"a:1\"]\n[[application]]\n\
                        name = \"shop\"\ntarget = \"1s\"\n";
    const LOCAL: &str = "[sentries.provider]\nkind = \"local\"\ncommand = [\"tidegate\", \"run\"]\nport = 80\n\
                         addresses = [\"127.0.0.2\", \"127.0.0.3\"]\n";

    #[test]
    fn where_sentries_are_started_an_application_may_have_all_of_them() {
        let config = parse(&format!("{TEXT}{LOCAL}")).expect("valid");
        let Some(Provider::Local(local)) = &config.sentries else { panic!("another one") };
        assert_eq!((local.unit, local.addresses[1].to_string().as_str()), (Unit::Sentry, "127.0.0.3:80"));
        assert_eq!((config.site.posts.count, config.site.posts.leave_after), (2, Duration::from_secs(10)));
        assert_eq!(config.site.applications[0].max_sentries, 2);
        let config = parse(&format!("{TEXT}max_sentries = 5\n[sentries]\nhigh = 0.7\n")).expect("valid");
        assert_eq!((config.sentries.is_none(), config.site.posts.count, config.site.sentries.high), (true, 0, 0.7));
        assert_eq!(config.site.applications[0].max_sentries, 5);
        assert_eq!(parse(TEXT).expect("valid").site.applications[0].max_sentries, 1);
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line() {
        let message = |text: String| parse(&format!("{TEXT}{text}")).expect_err("wrong").to_string();
        let without = |line: &str| message(LOCAL.replace(line, ""));
        let port = without("port = 80\n");
        assert!(port.contains("control.toml:8") && port.contains("needs port"), "{port}");
        assert!(without("addresses = [\"127.0.0.2\", \"127.0.0.3\"]\n").contains("needs addresses"));
        assert!(without("command = [\"tidegate\", \"run\"]\n").contains("needs command"));
        assert!(message(LOCAL.replace("0.3", "0.2")).contains("127.0.0.2 is there twice"));
        assert!(message(format!("{LOCAL}addreses = 1\n")).contains("\"addresses\""));
        assert!(message(String::from("[sentries]\nhihg = 1\n")).contains("\"high\""));
    }
}
