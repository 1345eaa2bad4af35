//! What is looked at while the run goes on: servers, targets and sentries, second by second; and where names lead.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use serde_json::Value;
use tidegate_loadgen::{LoadError, LoadRun, Report};
use tidegate_sim::Provision;
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval_at};

use super::names::Names;
use super::site::{Site, Standing, sentries};
use crate::outcome::Provisioned;
use crate::service::ServiceError;
use crate::service::processes::processor_time;

/// Why a run does not begin.
const NOBODY: &str = "no sentry speaks with the control plane";

/// What was seen, and where clients go.
#[derive(Debug)]
pub(super) struct Look {
    site: Site,
    /// What a busy sentry's processor does.
    full: f64,
    client: Names,
    /// By application: what stands for it in the plan of the load, and where clients go.
    members: Vec<(SocketAddr, watch::Sender<Vec<SocketAddr>>)>,
    /// Processor time of the sentries, by process, and when it was so.
    used: (Instant, BTreeMap<u32, Duration>),
    /// By application.
    seconds: Vec<Vec<Provision>>,
    names: Vec<String>,
    notes: Vec<(f64, String)>,
    warnings: Vec<String>,
}

impl Look {
    /// # Errors
    /// When names cannot be asked for.
    pub(super) fn new(mut site: Site, full: f64) -> Result<Look, ServiceError> {
        let client = Names::ask(site.dns()).map_err(ServiceError::Names)?;
        let state = site.state();
        let first = sentries(&state).first().map(|first| first.ip).ok_or_else(|| ServiceError::Names(NOBODY.into()))?;
        let first = site.names().into_iter().map(|(_, port)| SocketAddr::from((first, port)));
        let members = first.map(|address| (address, watch::channel(vec![address]).0)).collect();
        let names = state["applications"].as_array().into_iter().flatten();
        let names: Vec<String> =
            names.map(|planned| planned["application"].as_str().unwrap_or_default().to_owned()).collect();
        let seconds = vec![Vec::new(); names.len()];
        let notes = vec![(0.0, format!("a sentry counts as busy at {:.1} % of a processor", full * 100.0))];
        let used = (Instant::now(), BTreeMap::new());
        Ok(Look { site, full, client, members, used, seconds, names, notes, warnings: Vec::new() })
    }

    /// Where clients of an application go while there is one sentry.
    pub(super) fn first_sentry(&self, application: usize) -> SocketAddr {
        self.members[application].0
    }

    /// Who stands for the first sentry of each application.
    pub(super) fn members(&self) -> Vec<(String, watch::Receiver<Vec<SocketAddr>>)> {
        self.members.iter().map(|(first, members)| (first.to_string(), members.subscribe())).collect()
    }

    /// Looks once a second until the load is over.
    pub(super) async fn until_done(&mut self, load: LoadRun, length: Duration) -> Result<Report, LoadError> {
        let begun = self.site.began();
        let second = Duration::from_secs(1);
        // In the middle of each second of the scenario, so that none is missed or seen twice.
        let mut ticks = interval_at((begun + second / 2).into(), second);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
        let mut done = std::pin::pin!(load.wait());
        loop {
            tokio::select! {
                report = &mut done => return report,
                _ = ticks.tick() => if begun.elapsed() < length {
                    self.look();
                    self.follow_names().await;
                }
            }
        }
    }

    /// Ends everything; what was seen, notes and warnings.
    pub(super) fn finish(mut self) -> (Vec<Provisioned>, Vec<(f64, String)>, Vec<String>) {
        self.warnings.extend(self.site.stop());
        let seen = self.names.into_iter().zip(self.seconds);
        (seen.map(|(name, seconds)| Provisioned { name, seconds }).collect(), self.notes, self.warnings)
    }

    fn look(&mut self) {
        let state = self.site.state();
        let standing = sentries(&state);
        let processors = self.processors(&standing);
        let (most, least) = processors
            .iter()
            .fold((0.0, f64::INFINITY), |(most, least): (f64, f64), &share| (most.max(share), least.min(share)));
        for (at, seconds) in self.seconds.iter_mut().enumerate() {
            let planned = &state["applications"][at];
            let now = Provision {
                servers: planned["serving"].as_f64().unwrap_or(0.0),
                sentries: standing.len() as f64,
                ceiling: planned["ceiling"].as_f64().unwrap_or(0.0),
                sentry_cpu: processors.first().copied().unwrap_or(0.0),
                sentry_spread: (most - least).max(0.0),
            };
            note(&mut self.notes, seconds, &now, planned);
            seconds.push(now);
        }
    }

    /// Clients go where the name server says.
    async fn follow_names(&mut self) {
        for ((name, port), (_, members)) in self.site.names().iter().zip(&self.members) {
            match self.client.look_up(name, *port).await {
                Ok(found) if *members.borrow() == found => {}
                Ok(found) => _ = members.send_replace(found),
                Err(error) => self.warnings.push(error),
            }
        }
    }

    /// What each sentry's processor did since the last look, of a busy one's. What one did to start is not counted.
    fn processors(&mut self, sentries: &[Standing]) -> Vec<f64> {
        let now = Instant::now();
        let used: BTreeMap<u32, Duration> = sentries.iter().map(|one| (one.pid, processor_time(one.pid))).collect();
        let time = now.duration_since(self.used.0).as_secs_f64().max(f64::MIN_POSITIVE);
        let share = |one: &Standing| {
            let (now, before) = (used.get(&one.pid)?, self.used.1.get(&one.pid)?);
            Some(now.saturating_sub(*before).as_secs_f64() / time / self.full)
        };
        let shares = sentries.iter().filter_map(share).collect();
        self.used = (now, used);
        shares
    }
}

/// Says what has changed.
fn note(notes: &mut Vec<(f64, String)>, seconds: &[Provision], now: &Provision, planned: &Value) {
    let is_same = |before: &Provision| {
        (before.servers, before.sentries, before.ceiling) == (now.servers, now.sentries, now.ceiling)
    };
    if seconds.last().is_none_or(|before| !is_same(before)) {
        let name = planned["application"].as_str().unwrap_or_default();
        notes.push((
            seconds.len() as f64,
            format!(
                "{name}: {} servers, {} sentries, target up to {} s; {}",
                now.servers,
                now.sentries,
                now.ceiling,
                planned["reason"].as_str().unwrap_or_default()
            ),
        ));
    }
}
