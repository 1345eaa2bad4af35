//! Whether a sentry without a control plane follows the pods of a service, with the rights of its manifest and no more.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::api::awaited;
use super::home::{Cluster, Home, PORT, SOON, await_right, await_rights};
use super::kubelet::LINGERS;
use super::member::Sentry;
use super::scaling::{SCALED, complete};
use crate::checks::Check;

/// The account and the Role of the manifest.
const ACCOUNT: &str = "shop-sentry";
/// A pod that is ready serves within this time.
const HEARD: Duration = Duration::from_secs(2);
/// For so long the API server is away, seconds.
const AWAY: u64 = 20;

/// A sentry before a deployment.
struct Site {
    home: Home,
    sentry: Sentry,
}

/// Checks it.
pub fn check(cluster: &mut Cluster) -> Result<Vec<Check>> {
    let (home, kubeconfig) = home(cluster, "pods")?;
    let sentry = Sentry::following(&home, &kubeconfig)?;
    let site = Site { home, sentry };
    let mut checks = vec![site.come()?];
    checks.extend(site.roll()?);
    checks.extend(site.go()?);
    checks.extend(site.without_api_server(cluster)?);
    let refused = site.sentry.refusals();
    let found = refused.first().cloned().unwrap_or_else(|| "nothing".to_owned());
    checks.push(("pods: nothing is refused for want of a right".to_owned(), found, refused.is_empty()));
    for verb in ["list", "watch"] {
        checks.push(without(cluster, verb)?);
    }
    Ok(checks)
}

impl Site {
    fn come(&self) -> Result<Check> {
        self.scale(3)?;
        awaited("three pods are ready", SOON, || Ok((self.pods()?.len() == 3).then_some(())))?;
        let (_, took) = self.settle(3)?;
        let found = format!("after {:.2} s", took.as_secs_f64());
        Ok((
            format!("pods: the sentry has all three, {} s at most after they are ready", HEARD.as_secs()),
            found,
            took < HEARD,
        ))
    }

    /// Every pod is replaced.
    fn roll(&self) -> Result<[Check; 2]> {
        let load = self.sentry.load(20, 25)?;
        let before = self.pods()?;
        let template = json!({ "metadata": { "annotations": { "round": "2" } } });
        self.home.api.patch(&self.path(), &json!({ "spec": { "template": template } }))?;
        let rolled = awaited("every pod is another one", SCALED, || {
            let now = self.pods()?;
            Ok((now.len() == 3 && now.is_disjoint(&before) && self.has(&now)).then_some(()))
        });
        let (_, took) = rolled.with_context(|| self.sentry.describe())?;
        let replaced =
            ("pods: a rolling update replaces every pod".to_owned(), format!("in {:.1} s", took.as_secs_f64()), true);
        Ok([replaced, complete("pods: no request is lost meanwhile", load)?])
    }

    fn go(&self) -> Result<[Check; 2]> {
        let load = self.sentry.load(10, 10)?;
        self.scale(1)?;
        let (_, gone) =
            awaited("the sentry gives two up", SOON, || Ok((self.sentry.servers().len() == 1).then_some(())))?;
        self.settle(1)?;
        Ok([
            (
                format!("pods: those that terminate are given up while they still serve, for {} s", LINGERS.as_secs()),
                format!("after {:.2} s", gone.as_secs_f64()),
                gone < LINGERS,
            ),
            complete("pods: no request is lost while they go", load)?,
        ])
    }

    fn without_api_server(&self, cluster: &mut Cluster) -> Result<[Check; 2]> {
        let load = self.sentry.load(10, AWAY)?;
        cluster.machinery.kill_server()?;
        let lost = complete(&format!("pods: no request is lost while the API server is away for {AWAY} s"), load);
        cluster.machinery.bring_server()?;
        let late = cluster.await_controllers("probe-pods")?;
        self.scale(2)?;
        let (_, took) = self.settle(2)?;
        let found = format!(
            "two pods {:.1} s after they were asked for (Kubernetes' own controllers {:.1} s after it is back)",
            took.as_secs_f64(),
            late.as_secs_f64()
        );
        Ok([lost?, ("pods: when it is back the sentry hears of pods again".to_owned(), found, true)])
    }

    fn path(&self) -> String {
        format!("/apis/apps/v1/namespaces/{}/deployments/shop", self.home.name)
    }

    fn scale(&self, replicas: u32) -> Result<()> {
        self.home.api.patch(&self.path(), &json!({ "spec": { "replicas": replicas } }))?;
        Ok(())
    }

    /// Where the pods are that are ready and that nobody has deleted.
    fn pods(&self) -> Result<BTreeSet<String>> {
        let pods = self.home.pods()?.into_iter().filter(|(_, ip)| !ip.is_empty());
        Ok(pods.map(|(_, ip)| format!("{ip}:{PORT}")).collect())
    }

    fn has(&self, pods: &BTreeSet<String>) -> bool {
        self.sentry.servers().into_iter().collect::<BTreeSet<_>>() == *pods
    }

    /// Waits until there are so many pods, and the sentry has these.
    fn settle(&self, count: usize) -> Result<((), Duration)> {
        let settled = awaited("pods and servers are the same", SCALED, || {
            let pods = self.pods()?;
            Ok((pods.len() == count && self.has(&pods)).then_some(()))
        });
        settled.with_context(|| self.sentry.describe())
    }
}

/// A namespace in which the sentry's Role is known.
fn home(cluster: &Cluster, name: &str) -> Result<(Home, PathBuf)> {
    let home = cluster.home(name, |_| Ok(()))?;
    await_rights(&home.api, name, ACCOUNT, &rules(&home)?)?;
    let kubeconfig = cluster.kubeconfig(name, ACCOUNT)?;
    Ok((home, kubeconfig))
}

/// Without one of its rights the sentry says which.
fn without(cluster: &Cluster, verb: &str) -> Result<Check> {
    let name = format!("pods-no-{verb}");
    let (home, kubeconfig) = home(cluster, &name)?;
    let mut rules = rules(&home)?;
    rules[0]["verbs"].as_array_mut().context("the rule has no verbs")?.retain(|one| one != verb);
    home.api.patch(&role(&name), &json!({ "rules": rules }))?;
    let attributes = json!({
        "namespace": name, "verb": verb, "group": rules[0]["apiGroups"][0], "resource": rules[0]["resources"][0],
    });
    await_right(&home.api, &name, ACCOUNT, &attributes, false)?;
    let sentry = Sentry::following(&home, &kubeconfig)?;
    let said = format!("cannot {verb} resource \"endpointslices\"");
    let told = awaited("it says so", SOON, || Ok(sentry.refusals().into_iter().find(|line| line.contains(&said))));
    let what = format!("pods: without {verb} of endpointslices it says so");
    Ok(match told {
        Ok((line, took)) => (what, format!("{:.1} s after the start: {} bytes", took.as_secs_f64(), line.len()), true),
        Err(error) => (what, format!("{error:#}: {}", sentry.refusals().join(" ")), false),
    })
}

fn role(namespace: &str) -> String {
    format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/roles/{ACCOUNT}")
}

fn rules(home: &Home) -> Result<Value> {
    Ok(home.api.get(&role(&home.name))?["rules"].take())
}
