//! Whether pods come and go with the load, and sentries hear of it.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::json;

use super::api::awaited;
use super::home::{Cluster, Home, PORT, SOON};
use super::kubelet::LINGERS;
use super::member::{Load, Member, Sentry};
use crate::checks::Check;

/// Until so many pods are there that the load needs.
pub const SCALED: Duration = Duration::from_secs(60);

/// Two control planes, a sentry, and a deployment.
pub struct Site {
    /// Where all of it is.
    pub home: Home,
    /// The control planes.
    pub members: Vec<Member>,
    /// The sentry.
    pub sentry: Sentry,
}

impl Site {
    /// Starts all of it, and waits until the sentry has as many servers as there are to be at least.
    ///
    /// # Errors
    /// When it does not come to that.
    pub fn start(cluster: &Cluster, name: &str, least: usize) -> Result<(Self, Duration)> {
        let home = cluster.home(name, |_| Ok(()))?;
        let members = [0, 1].map(|number| Member::new(&home, number, u32::try_from(least).unwrap_or(1)));
        let mut members = members.into_iter().collect::<Result<Vec<_>>>()?;
        for member in &mut members {
            member.start()?;
        }
        let sentry = Sentry::start(&home, &members)?;
        let site = Self { home, members, sentry };
        let (_, took) = awaited("the sentry has its first servers", SOON, || {
            Ok((site.sentry.servers().len() == least && site.settled()?).then_some(()))
        })?;
        Ok((site, took))
    }

    /// Which of them leads.
    ///
    /// # Errors
    /// When none does.
    pub fn leader(&self) -> Result<usize> {
        let leader = || Ok(self.members.iter().position(Member::leads));
        Ok(awaited("one leads", SOON, leader)?.0)
    }

    /// Whether deployment, pods, places and the sentry's servers are the same by now.
    ///
    /// # Errors
    /// When the API server does not say.
    pub fn settled(&self) -> Result<bool> {
        let Some(leader) = self.members.iter().find(|member| member.leads()) else { return Ok(false) };
        let state = leader.ask("state");
        let used = |server: &&serde_json::Value| !server["address"].is_null();
        let places = state["servers"].as_array().map_or(0, |servers| servers.iter().filter(used).count());
        let is_idle = state["pending"].as_array().is_some_and(Vec::is_empty);
        let pods: BTreeSet<String> = self.home.pods()?.into_iter().map(|(_, ip)| format!("{ip}:{PORT}")).collect();
        let known: BTreeSet<String> = self.sentry.servers().into_iter().collect();
        let (replicas, _) = self.home.scale()?;
        Ok(is_idle && pods == known && replicas == pods.len() as u64 && places == pods.len())
    }

    /// Waits until it is.
    ///
    /// # Errors
    /// When it does not come to that.
    pub fn settle(&self, at: impl Fn(u64) -> bool) -> Result<(u64, Duration)> {
        let settled = awaited("deployment, pods, places and servers are the same", SCALED, || {
            let (replicas, _) = self.home.scale()?;
            Ok((at(replicas) && self.settled()?).then_some(replicas))
        });
        settled.with_context(|| self.describe())
    }

    /// What is not the same.
    pub fn describe(&self) -> String {
        let leader = self.members.iter().find(|member| member.leads());
        let servers = leader.map(|leader| leader.ask("state")["servers"].take());
        let places: Vec<_> =
            servers.iter().filter_map(|all| all.as_array()).flatten().map(|one| &one["place"]).collect();
        format!(
            "scale {:?}, pods {:?}, places {places:?}, servers of the sentry {:?}",
            self.home.scale().ok(),
            self.home.pods().unwrap_or_default(),
            self.sentry.describe()
        )
    }

    /// Nothing was asked for that the Role does not permit.
    pub fn rights(&self, part: &str) -> Check {
        let refused: Vec<String> = self.members.iter().flat_map(Member::refusals).collect();
        let found = refused.first().cloned().unwrap_or_else(|| "nothing".to_owned());
        (format!("{part}: nothing is refused for want of a right"), found, refused.is_empty())
    }
}

/// That of a load: nothing was lost.
pub fn complete(what: &str, load: Load) -> Result<Check> {
    let answers = load.finish()?;
    Ok((what.to_owned(), answers.to_string(), answers.lost == 0 && answers.offered > 0))
}

/// Checks it.
pub fn check(cluster: &mut Cluster) -> Result<Vec<Check>> {
    let (site, took) = Site::start(cluster, "scaling", 2)?;
    let mut checks = vec![(
        "scaling: the sentry has the two pods that there are to be at least".to_owned(),
        format!("{:.1} s after the start", took.as_secs_f64()),
        true,
    )];
    let load = site.sentry.load(60, 30)?;
    let (_, took) =
        awaited("four pods for 60 requests/s", SCALED, || Ok((site.sentry.servers().len() >= 4).then_some(())))?;
    let found = format!("{:.1} s after the load began", took.as_secs_f64());
    checks.push(("scaling: the sentry has four pods for the load of three".to_owned(), found, true));
    checks.push(complete("scaling: no request is lost while pods come", load)?);
    let load = site.sentry.load(10, 25)?;
    let (_, took) = site.settle(|replicas| replicas == 2)?;
    let found = format!("{:.1} s after the load ended", took.as_secs_f64());
    checks.push(("scaling: two are left, and the sentry has these".to_owned(), found, true));
    checks.push(complete("scaling: no request is lost while pods go", load)?);
    let leader = site.leader()?;
    let labels = [leader, 1 - leader].map(|at| site.home.has_label(&site.members[at].pod));
    let labels = labels.into_iter().collect::<Result<Vec<_>>>()?;
    let found = format!("leader {}, the other {}", labels[0], labels[1]);
    checks.push((
        "scaling: the leader's pod has the label, the other has not".to_owned(),
        found,
        labels == [true, false],
    ));
    checks.extend(slices(&site)?);
    checks.push(site.rights("scaling"));
    Ok(checks)
}

/// A pod that somebody deletes, and the one in its place.
fn slices(site: &Site) -> Result<Vec<Check>> {
    let load = site.sentry.load(10, 12)?;
    let pods = site.home.pods()?;
    let (name, ip) = pods.first().context("there are no pods")?;
    let address = format!("{ip}:{PORT}");
    site.home.api.delete(&format!("/api/v1/namespaces/{}/pods/{name}", site.home.name), &json!({}))?;
    let (_, gone) =
        awaited("the sentry gives it up", SOON, || Ok((!site.sentry.servers().contains(&address)).then_some(())))?;
    let is_new = |pod: &&(String, String)| !pods.contains(pod) && !pod.1.is_empty();
    let (fresh, _) = awaited("another pod is ready", SOON, || Ok(site.home.pods()?.iter().find(is_new).cloned()))?;
    let address = format!("{}:{PORT}", fresh.1);
    let (_, came) = awaited("the sentry has it", SOON, || Ok(site.sentry.servers().contains(&address).then_some(())))?;
    site.settle(|replicas| replicas == 2)?;
    Ok(vec![
        (
            format!("slices: a pod that terminates is given up while it still serves, for {} s", LINGERS.as_secs()),
            format!("after {:.2} s", gone.as_secs_f64()),
            gone < LINGERS,
        ),
        (
            "slices: the pod in its place is the sentry's, 2 s at most after it is ready".to_owned(),
            format!("after {:.2} s", came.as_secs_f64()),
            came < Duration::from_secs(2),
        ),
        complete("slices: no request is lost", load)?,
    ])
}
