//! Whether sentries go on while the API server is away, and the control plane when it is back.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::api::awaited;
use super::home::{Cluster, SOON};
use super::member::Member;
use super::scaling::{SCALED, Site, complete};
use crate::checks::Check;

/// For so long: more than ten leases, and longer than sentries are kept before they look for another leader.
const AWAY: u64 = 45;
/// Of what is offered meanwhile, half of what the pods can do, so much is served.
const SERVED: f64 = 0.95;
/// What is logged meanwhile.
const LINES: usize = 20;

/// Checks it.
pub fn check(cluster: &mut Cluster) -> Result<Vec<Check>> {
    let (mut site, _) = Site::start(cluster, "away", 2)?;
    let mut checks = Vec::new();
    for (name, is_killed) in [("killed", true), ("frozen", false)] {
        let name = format!("away, {name}");
        let before = site.home.scale()?;
        let lines = site.members.iter().map(Member::lines).max().unwrap_or(0);
        let load = site.sentry.load(20, AWAY)?;
        let began = Instant::now();
        if is_killed {
            cluster.machinery.kill_server()?
        } else {
            cluster.machinery.freeze_server(true)?
        }
        let noticed = awaited("the leader says so", SOON, || {
            let is_away = |member: &Member| !member.ask("status")["store_away"].is_null();
            Ok(site.members.iter().all(is_away).then_some(()))
        });
        // Until the load is over.
        let answers = load.finish();
        let away = began.elapsed();
        if is_killed {
            cluster.machinery.bring_server()?
        } else {
            cluster.machinery.freeze_server(false)?
        }
        let (noticed, answers) = (noticed?.1, answers?);
        let share = answers.served as f64 / answers.offered as f64;
        checks.push((
            format!("{name}: both say so within 10 s"),
            format!("after {:.1} s", noticed.as_secs_f64()),
            noticed < Duration::from_secs(10),
        ));
        let lines = site.members.iter().map(Member::lines).max().unwrap_or(0) - lines;
        checks.push((
            format!("{name}: it is no flood of the log: {LINES} lines of each at most"),
            format!("{lines} lines"),
            lines <= LINES,
        ));
        checks.push((
            format!("{name}: the sentry serves {:.0} % meanwhile and loses nothing", SERVED * 1e2),
            format!("{answers}, in {:.0} s", away.as_secs_f64()),
            share >= SERVED && answers.lost == 0,
        ));
        checks.extend(back(cluster, &mut site, &name, before)?);
    }
    checks.push(site.rights("away"));
    Ok(checks)
}

/// It is back: nothing was changed, and pods come again.
fn back(cluster: &Cluster, site: &mut Site, name: &str, before: (u64, u64)) -> Result<Vec<Check>> {
    let (_, took) = awaited("one leads with its store", SOON, || {
        let goes_on = |member: &Member| {
            let status = member.ask("status");
            status["role"] == "leads" && status["store_away"].is_null()
        };
        Ok(site.members.iter().any(goes_on).then_some(()))
    })?;
    let late = cluster.await_controllers(&format!("probe-{}", name.rsplit(' ').next().unwrap_or_default()))?;
    let (now, running) = (site.home.scale()?, site.members.iter_mut().all(Member::is_running));
    let load = site.sentry.load(60, 25)?;
    let (_, scaled) =
        awaited("four pods for 60 requests/s", SCALED, || Ok((site.sentry.servers().len() >= 4).then_some(())))
            .with_context(|| site.describe())?;
    let lost = complete(&format!("{name}: afterwards no request is lost while pods come"), load)?;
    site.settle(|replicas| replicas == 2)?;
    Ok(vec![
        (
            format!("{name}: nothing was scaled meanwhile, and nobody ended"),
            format!("{before:?} and {now:?}; {}", if running { "both run" } else { "one ended" }),
            now == before && running,
        ),
        (
            format!("{name}: it goes on by itself"),
            format!(
                "{:.1} s after it is back (Kubernetes' own controllers after {:.1} s more); four pods {:.1} s after the load",
                took.as_secs_f64(),
                late.as_secs_f64(),
                scaled.as_secs_f64()
            ),
            true,
        ),
        lost,
    ])
}
