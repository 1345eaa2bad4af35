//! What is looked at and done while the run goes on: servers, targets and sentries, second by second.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use serde_json::Value;
use tidegate_loadgen::{LoadError, LoadRun, Report};
use tidegate_sim::Provision;
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval_at};

use super::site::Site;
use crate::outcome::Provisioned;
use crate::service::processes::processor_time;

/// What was seen, and who is told of sentries.
#[derive(Debug)]
pub(super) struct Look {
    site: Site,
    /// What a busy sentry's processor does.
    full: f64,
    /// By application: where clients go.
    members: Vec<(SocketAddr, watch::Sender<Vec<SocketAddr>>)>,
    /// Processor time of the sentries, and when it was so.
    used: (Instant, Vec<Duration>),
    /// By application.
    seconds: Vec<Vec<Provision>>,
    names: Vec<String>,
    notes: Vec<(f64, String)>,
    warnings: Vec<String>,
}

impl Look {
    pub(super) fn new(mut site: Site, full: f64) -> Look {
        let first = site.sentries[0].listen.clone();
        let members = first.iter().map(|&address| (address, watch::channel(vec![address]).0)).collect();
        let state = site.state();
        let names = state["applications"].as_array().into_iter().flatten();
        let names: Vec<String> =
            names.map(|planned| planned["application"].as_str().unwrap_or_default().to_owned()).collect();
        let seconds = vec![Vec::new(); names.len()];
        let notes = vec![(0.0, format!("a sentry counts as busy at {:.1} % of a processor", full * 100.0))];
        let used = (Instant::now(), Vec::new());
        Look { site, full, members, used, seconds, names, notes, warnings: Vec::new() }
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
        let processors = self.processors();
        let (most, least) = processors
            .iter()
            .fold((0.0, f64::INFINITY), |(most, least): (f64, f64), &share| (most.max(share), least.min(share)));
        let mut wanted = 1;
        for (at, seconds) in self.seconds.iter_mut().enumerate() {
            let planned = &state["applications"][at];
            wanted = wanted.max(planned["sentries_wanted"].as_u64().unwrap_or(1) as usize);
            let now = Provision {
                servers: planned["serving"].as_f64().unwrap_or(0.0),
                sentries: self.site.sentries.len() as f64,
                ceiling: planned["ceiling"].as_f64().unwrap_or(0.0),
                sentry_cpu: processors.first().copied().unwrap_or(0.0),
                sentry_spread: (most - least).max(0.0),
            };
            note(&mut self.notes, seconds, &now, planned);
            seconds.push(now);
        }
        // One at a time, as each changes how busy the others are.
        if wanted > self.site.sentries.len() {
            self.start_sentry();
        }
    }

    fn start_sentry(&mut self) {
        if let Err(error) = self.site.add_sentry() {
            self.warnings.push(error.to_string());
            return;
        }
        for (at, (_, members)) in self.members.iter().enumerate() {
            members.send_replace(self.site.sentries.iter().map(|sentry| sentry.listen[at]).collect());
        }
        // What the new one did to start is not counted.
        self.used.1.extend(self.site.sentries.last().map(|sentry| processor_time(sentry.process.id())));
    }

    /// What each sentry's processor did since the last look, of a busy one's.
    fn processors(&mut self) -> Vec<f64> {
        let now = Instant::now();
        let used: Vec<Duration> = self.site.sentries.iter().map(|sentry| processor_time(sentry.process.id())).collect();
        let time = now.duration_since(self.used.0).as_secs_f64().max(f64::MIN_POSITIVE);
        let share =
            |(now, before): (&Duration, &Duration)| now.saturating_sub(*before).as_secs_f64() / time / self.full;
        let shares = used.iter().zip(&self.used.1).map(share).collect();
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
