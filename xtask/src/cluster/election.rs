//! Whether another control plane leads when the leader is killed or stopped, and whether nothing is done twice.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::Result;
use serde_json::Value;

use super::api::awaited;
use super::home::{Cluster, SOON};
use super::member::Member;
use super::scaling::{SCALED, Site, complete};
use crate::checks::Check;

/// After a kill: the lease of 3 s, and a second (`docs/control.md`).
const KILLED: Duration = Duration::from_secs(4);
/// After a stop in good order.
const STOPPED: Duration = Duration::from_secs(1);

/// Checks it.
pub fn check(cluster: &mut Cluster) -> Result<Vec<Check>> {
    let (mut site, _) = Site::start(cluster, "election", 2)?;
    let (before, generation) = site.home.scale()?;
    let first = site.leader()?;
    let load = site.sentry.load(60, 30)?;
    // In the midst of it: more were asked for, and are not all there.
    awaited("more pods are asked for", SCALED, || Ok((site.home.scale()?.0 > before).then_some(())))?;
    let (term, _) = site.sentry.term();
    site.members[first].kill();
    let killed = Instant::now();
    let next = 1 - first;
    let (_, took) = awaited("the other one leads", SOON, || Ok(site.members[next].leads().then_some(())))?;
    let mut checks = vec![(
        format!("election: after a kill the other one leads within {} s", KILLED.as_secs()),
        format!("{:.2} s", took.as_secs_f64()),
        took <= KILLED,
    )];
    awaited("the sentry follows it", SOON, || {
        let (now, hears) = site.sentry.term();
        Ok((now > term && hears).then_some(()))
    })?;
    let found = format!("{:.2} s after the kill", killed.elapsed().as_secs_f64());
    checks.push(("election: the sentry follows it".to_owned(), found, true));
    site.members[first].start()?;
    let (after, _) = site.settle(|replicas| replicas >= 4)?;
    let (replicas, now) = site.home.scale()?;
    let steps = steps(&site.members[next].audit()?);
    let wrote = now - generation;
    checks.push((
        "election: nothing is scaled twice: as many pods as steps, and no more writes than pods".to_owned(),
        format!("{before} to {after} pods by {wrote} writes; {} places started, {} twice", steps.0, steps.1),
        replicas == after && steps.1 == 0 && steps.0 as u64 == after && wrote <= after - before,
    ));
    checks.push(complete("election: no request is lost", load)?);
    checks.push(stopped(&mut site, next)?);
    checks.push(labels(&site)?);
    checks.push(site.rights("election"));
    Ok(checks)
}

/// The leader is stopped in good order.
fn stopped(site: &mut Site, leader: usize) -> Result<Check> {
    let other = 1 - leader;
    awaited("the one that was killed waits", SOON, || {
        Ok((site.members[other].ask("status")["role"] == "waits").then_some(()))
    })?;
    site.members[leader].terminate()?;
    let (_, took) = awaited("the other one leads", SOON, || Ok(site.members[other].leads().then_some(())))?;
    site.members[leader].ended()?;
    site.members[leader].start()?;
    Ok((
        format!("election: after a stop the other one leads within {} s", STOPPED.as_secs()),
        format!("{:.2} s", took.as_secs_f64()),
        took <= STOPPED,
    ))
}

/// After all that, one pod has the label: the leader's.
fn labels(site: &Site) -> Result<Check> {
    let leader = site.leader()?;
    let (_, took) = awaited("the leader's pod alone has the label", SOON, || {
        let has = |member: &Member| site.home.has_label(&member.pod);
        Ok((has(&site.members[leader])? && !has(&site.members[1 - leader])?).then_some(()))
    })?;
    let found = format!("after {:.2} s more", took.as_secs_f64());
    Ok(("election: the leader's pod alone has the label".to_owned(), found, true))
}

/// How many places are in use by the records of steps, and how many of them were started when they were already.
fn steps(records: &[Value]) -> (usize, usize) {
    let (mut used, mut twice) = (BTreeSet::new(), 0);
    for record in records {
        let Some(server) = record["server"].as_u64() else { continue };
        if record["kind"] == "start" {
            twice += usize::from(!used.insert(server));
        } else if record["kind"] == "stop" {
            used.remove(&server);
        }
    }
    (used.len(), twice)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_place_that_is_started_while_in_use_is_found() {
        let record = |kind: &str, server: u64| json!({ "kind": kind, "server": server });
        let once = [record("start", 0), record("start", 1), record("stop", 0), record("start", 0)];
        assert_eq!(steps(&once), (2, 0));
        assert_eq!(steps(&[record("start", 0), record("start", 0), json!({ "kind": "began" })]), (1, 1));
    }
}
