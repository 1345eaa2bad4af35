//! Durable state of a provisioner: after a restart it decides as if it had never stopped.
//!
//! *Awkward cases.* Settings are not kept: they are the site's, and may have changed since. Applications are the same
//! by name and order; a pool may have grown, but not shrunk, for what would become of the servers that are gone?

use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::fleet::Place;
use super::posts::CrewState;
use super::provisioner::Provisioner;
use super::sentries::Watch;
use super::watch::WatchedState;
use super::{PolicyState, ProvisionAction, ProvisionError, Site, Wish};

/// Everything that later decisions depend on, but for the site's settings.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct ProvisionerState {
    names: Vec<String>,
    applications: Vec<WatchedState>,
    policy: PolicyState,
    places: Vec<Place>,
    wishes: Vec<Wish>,
    sentries: Vec<Vec<Watch>>,
    /// Versions before posts have not kept it.
    #[serde(default)]
    crew: CrewState,
    parts: Vec<Vec<Vec<usize>>>,
}

/// Why a kept state does not fit a site.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum RestoreError {
    /// The site makes no sense.
    #[error(transparent)]
    Site(#[from] ProvisionError),
    /// The applications are others.
    #[error("the kept state is of the applications {kept:?}, and the site's are {site:?}; begin with an empty store")]
    Applications {
        /// Those of the state.
        kept: Vec<String>,
        /// Those of the site.
        site: Vec<String>,
    },
    /// The pool has shrunk.
    #[error(
        "the kept state has {kept} servers, and the pool {site}; a pool can grow, to shrink it begin with an empty store"
    )]
    Servers {
        /// How many the state has.
        kept: usize,
        /// How many the pool has.
        site: u32,
    },
}

impl Provisioner {
    /// A provisioner for a site of which nothing runs yet: the applications' first servers are asked for, not there.
    ///
    /// # Errors
    /// When the site makes no sense.
    pub fn cold(site: Site) -> Result<Provisioner, ProvisionError> {
        let mut provisioner = Provisioner::new(site)?;
        provisioner.fleet.restore(Vec::new());
        provisioner.parts.iter_mut().for_each(Vec::clear);
        provisioner.actions.retain(|action| !matches!(action, ProvisionAction::Partition { .. }));
        Ok(provisioner)
    }

    /// Everything that later decisions depend on. Take it when there is nothing to poll: actions and events are the
    /// driver's.
    pub fn snapshot(&self) -> ProvisionerState {
        ProvisionerState {
            names: self.applications.iter().map(|watched| watched.setup.name.clone()).collect(),
            applications: self.applications.iter().map(|watched| watched.state()).collect(),
            policy: self.policy.state(),
            places: self.fleet.places().to_vec(),
            wishes: self.wishes.clone(),
            sentries: self.sentries.iter().map(|sentries| sentries.watches().to_vec()).collect(),
            crew: self.crew.state(),
            parts: self.parts.clone(),
        }
    }

    /// A provisioner that goes on from a state. It has nothing to say at first: what the state's had said was polled.
    ///
    /// # Errors
    /// When the site makes no sense, or the state is not of this site.
    pub fn restore(site: Site, state: ProvisionerState) -> Result<Provisioner, RestoreError> {
        let total = site.servers;
        let mut provisioner = Provisioner::new(site)?;
        let names: Vec<String> = provisioner.applications.iter().map(|watched| watched.setup.name.clone()).collect();
        if names != state.names {
            return Err(RestoreError::Applications { kept: state.names, site: names });
        }
        if state.places.len() > total as usize {
            return Err(RestoreError::Servers { kept: state.places.len(), site: total });
        }
        while provisioner.poll_action().is_some() {}
        provisioner.applications.iter_mut().zip(state.applications).for_each(|(watched, kept)| watched.restore(kept));
        provisioner.policy.restore(state.policy);
        provisioner.fleet.restore(state.places);
        let limits = provisioner.applications.iter().map(|w| (w.setup.min_servers, w.setup.max_servers));
        let within =
            |(wish, (least, most)): (Wish, (u32, u32))| Wish { servers: wish.servers.clamp(least, most), ..wish };
        provisioner.wishes = state.wishes.into_iter().zip(limits).map(within).collect();
        provisioner.sentries.iter_mut().zip(state.sentries).for_each(|(sentries, kept)| sentries.restore(kept));
        provisioner.crew.restore(state.crew);
        provisioner.parts = state.parts;
        Ok(provisioner)
    }
}

#[cfg(test)]
mod tests {
    use super::super::*;
    use alloc::string::ToString;
    use alloc::vec;
    use alloc::vec::Vec;
    use core::time::Duration;
    use proptest::prelude::*;
    use tidegate_engine::{Sla, Statistic, Timestamp};

    fn site(policy: usize, servers: u32) -> Site {
        let policies = [
            ProvisionConfig::Follow(FollowConfig::default()),
            ProvisionConfig::Cataclysm(CataclysmConfig::default()),
            ProvisionConfig::CpuTarget(CpuTargetConfig::default()),
        ];
        let application = |name: &str| ApplicationSetup {
            name: name.into(),
            sla: Sla::constant(Statistic::P95, Duration::from_secs(1)).unwrap(),
            revenues: vec![1.0, 0.5],
            min_servers: 1,
            max_servers: 9,
            servers: 2,
            max_sentries: 3,
            replica: None,
        };
        Site {
            servers,
            pool: Pool { setup_time: Duration::from_secs(20), ..Pool::default() },
            applications: vec![application("one"), application("two")],
            policy: policies[policy].clone(),
            sentries: SentryRule::default(),
            posts: Posts::default(),
        }
    }

    /// One step of a history: the load of both, the sentry's CPU, and which server has news.
    #[derive(Clone, Debug)]
    struct Turn {
        seconds: u64,
        rates: [u64; 2],
        cpu: f64,
        server: usize,
        news: ServerNews,
    }

    fn turn() -> impl Strategy<Value = Turn> {
        let news = prop_oneof![Just(ServerNews::Up), Just(ServerNews::Drained), Just(ServerNews::Failed)];
        (1u64..40, [0u64..400, 0u64..400], 0.0f64..1.0, 0usize..12, news)
            .prop_map(|(seconds, rates, cpu, server, news)| Turn { seconds, rates, cpu, server, news })
    }

    fn play(
        provisioner: &mut Provisioner,
        now: &mut Timestamp,
        turn: &Turn,
    ) -> (Vec<ProvisionAction>, Vec<ProvisionEvent>) {
        let since = *now;
        *now = since + Duration::from_secs(turn.seconds);
        for (at, rate) in turn.rates.iter().enumerate() {
            let report = ApplicationReport {
                offered: vec![rate * turn.seconds / 2, rate * turn.seconds / 2],
                refused: rate * turn.seconds / 3,
                busy: turn.cpu,
                mean_service: Some(0.02),
                service_variation: Some(0.5),
                arrival_variation: Some(1.5),
                processors: None,
            };
            provisioner.handle_report(*now, at, &report);
            provisioner.handle_sentry(*now, at, 0, since, turn.cpu);
        }
        provisioner.handle_server(*now, turn.server, turn.news);
        provisioner.handle_timeout(*now);
        let actions = core::iter::from_fn(|| provisioner.poll_action()).collect();
        (actions, core::iter::from_fn(|| provisioner.poll_event()).map(|(_, event)| event).collect())
    }

    /// Through the text form: what the store has.
    fn kept(provisioner: &Provisioner) -> ProvisionerState {
        serde_json::from_str(&serde_json::to_string(&provisioner.snapshot()).unwrap()).unwrap()
    }

    proptest! {
        #[test]
        fn one_that_was_restored_decides_as_if_it_had_never_stopped(
            policy in 0usize..3, before in prop::collection::vec(turn(), 0..80), after in prop::collection::vec(turn(), 1..80),
        ) {
            let mut provisioner = Provisioner::new(site(policy, 12)).unwrap();
            let mut now = Timestamp::ZERO;
            while provisioner.poll_action().is_some() {}
            before.iter().for_each(|turn| drop(play(&mut provisioner, &mut now, turn)));
            let mut restored = Provisioner::restore(site(policy, 12), kept(&provisioner)).unwrap();
            let mut same = now;
            for turn in &after {
                prop_assert_eq!(play(&mut provisioner, &mut now, turn), play(&mut restored, &mut same, turn));
            }
            prop_assert_eq!(provisioner.measured(now, 0), restored.measured(now, 0));
        }
    }

    #[test]
    fn a_pool_can_grow_and_nothing_else_can_change() {
        let provisioner = Provisioner::new(site(0, 12)).unwrap();
        let grown = Provisioner::restore(site(0, 14), kept(&provisioner)).unwrap();
        assert_eq!(grown.places().len(), 14);
        let error = Provisioner::restore(site(0, 5), kept(&provisioner)).unwrap_err().to_string();
        assert!(error.contains("12 servers, and the pool 5"), "{error}");
        let mut other = site(0, 12);
        other.applications[1].name = "three".into();
        let error = Provisioner::restore(other, kept(&provisioner)).unwrap_err();
        assert!(matches!(error, RestoreError::Applications { .. }), "{error}");
    }

    #[test]
    fn of_a_cold_site_the_first_servers_are_asked_for() {
        let mut provisioner = Provisioner::cold(site(0, 12)).unwrap();
        assert_eq!((provisioner.serving(0), provisioner.coming(0)), (0, 0));
        provisioner.handle_timeout(Timestamp::from_millis(1));
        let starts = core::iter::from_fn(|| provisioner.poll_action());
        assert_eq!(starts.filter(|action| matches!(action, ProvisionAction::Start { .. })).count(), 4);
        assert_eq!((provisioner.serving(0), provisioner.coming(0)), (0, 2));
    }

    #[test]
    fn a_gap_is_no_time_without_requests() {
        let mut provisioner = Provisioner::new(site(0, 12)).unwrap();
        let report = ApplicationReport { offered: vec![10, 0], ..ApplicationReport::default() };
        let second = |at: u64| Timestamp::from_millis(at * 1000);
        provisioner.handle_report(second(1), 0, &report);
        provisioner.handle_gap(second(50), 0);
        provisioner.handle_report(second(51), 0, &report);
        assert_eq!(provisioner.measured(second(51), 0).offered, Some(10.0));
    }
}
