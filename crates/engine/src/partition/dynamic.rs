//! Servers follow the load of the classes, one at a time.
//!
//! *Intuition.* The tables kept for members are moved to the other room when members stay away, and back when they
//! queue; never all of them.
//!
//! *Applied.* It starts as `static` does. Each period, from the most important class down: a class whose servers held
//! more than they can within the target (`load > K max_conn(T)`) gets the least loaded server of the least important
//! class that has one to spare; one that would be content with a server less (`load < (K - 1) max_conn(T)`) gives its
//! least loaded to the most loaded class below. A moved server finishes what it has, which counts for its new partition
//! as long as it is there, and gets new requests of the new one only.
//!
//! *Awkward cases.* The paper compares the load at one instant, as a monitor sent it. Here it is the mean over the
//! period, looked at ten times a second, so that one burst moves nothing. `dead_band` widens the space between the two
//! marks on both sides; with the paper's marks alone (0) a load near one of them moves a server there and back. Of
//! several kinds in `max_conn`, the fullest counts. No class has fewer servers than its `least` (one, unless told),
//! whatever the load: without that the last class would be refused altogether. A server that comes back from the dead
//! finds its partition as it left it.
//!
//! *Source.* M. Andreolini et al. (2004), section 5.4, DynamicPart; the general form for more than two classes is ours.

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::division::{are_shares, least, shares};
use super::{Division, PartitionPolicy, require};
use crate::demands::Demands;
use crate::max_conn::MOST_KINDS;
use crate::setup::{Setup, SetupError};
use crate::time::Timestamp;
use crate::units::Seconds;

/// Settings of the policy `dynamic`.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Expected share of the requests, per class, most important first, to start with.
    pub shares: Vec<f64>,
    /// The fewest servers, per class; 1 where nothing is said.
    pub least: Vec<u32>,
    /// How often a server may move to or from a class.
    pub period: Seconds,
    /// How far beyond the marks a load must be, as a share of them.
    pub dead_band: f64,
    /// Exactly the paper's marks, to be compared with: the load at the instant at which a period ends, of the kind of
    /// which a server holds the fewest (the paper's dynamic requests), and no dead band.
    pub paper: bool,
}

impl Default for Config {
    fn default() -> Self {
        Config { shares: Vec::new(), least: Vec::new(), period: Seconds(5.0), dead_band: 0.1, paper: false }
    }
}

impl Config {
    pub(super) fn check(&self) -> Result<(), SetupError> {
        let key = "shares";
        require(are_shares(&self.shares), "dynamic", key, "must each be 0 to 1, and at most 1 together")?;
        let period = self.period.0;
        require(period.is_finite() && period >= 0.1, "dynamic", "period", "must be at least 100ms")?;
        require((0.0..1.0).contains(&self.dead_band), "dynamic", "dead_band", "must be at least 0 and below 1")
    }

    pub(super) fn demands(&self) -> Demands {
        Demands { kinds: true, weights: true, ..Demands::default() }
    }

    pub(super) fn build(&self, _setup: &Setup) -> Dynamic {
        let dead_band = if self.paper { 0.0 } else { self.dead_band };
        let config = Config { dead_band, ..self.clone() };
        Dynamic { config, started: false, groups: 0, sums: Vec::new(), looks: 0, next: None }
    }
}

/// State of the policy `dynamic`.
#[derive(Debug)]
pub struct Dynamic {
    config: Config,
    /// The formula was applied: from then on servers move.
    started: bool,
    groups: usize,
    /// Per partition and kind: what was in flight, summed over the looks of this period.
    sums: Vec<[f64; MOST_KINDS]>,
    looks: u32,
    /// When the period ends.
    next: Option<Timestamp>,
}

impl PartitionPolicy for Dynamic {
    fn on_servers_changed(&mut self, division: &mut Division<'_>) {
        let groups = division.groups();
        let least = self.least(division);
        if self.started {
            division.repair(&least);
        } else {
            division.by_formula(&shares(&self.config.shares, groups), &least);
            self.started = true;
        }
        if groups != self.groups {
            self.groups = groups;
            self.forget();
        }
    }

    fn on_tick(&mut self, now: Timestamp, division: &mut Division<'_>) -> bool {
        if division.groups() != self.groups {
            // No server takes requests, of which it is not told: a new period begins with the first that does.
            self.forget();
            self.next = None;
            return false;
        }
        let next = *self.next.get_or_insert(now + self.config.period.duration());
        if self.config.paper {
            self.forget();
        }
        for (group, sum) in self.sums.iter_mut().enumerate() {
            sum.iter_mut().zip(division.load(group)).for_each(|(sum, load)| *sum += load);
        }
        self.looks += 1;
        if now < next {
            return false;
        }
        self.next = Some(now + self.config.period.duration());
        let loads: Vec<f64> = (0..self.groups).map(|group| self.mean_load(division, group)).collect();
        let least = self.least(division);
        // The last has nobody below to take from or give to.
        let moved = (0..self.groups.saturating_sub(1)).filter(|&group| self.balance(division, group, &loads, &least));
        let moved = moved.count() > 0;
        self.forget();
        moved
    }
}

impl Dynamic {
    fn least(&self, division: &Division<'_>) -> Vec<usize> {
        least(&self.config.least, division.groups(), division.live().count())
    }

    fn forget(&mut self) {
        self.sums = alloc::vec![[0.0; MOST_KINDS]; self.groups];
        self.looks = 0;
    }

    /// The weight of servers that what a partition held would fill up to the target.
    fn mean_load(&self, division: &Division<'_>, group: usize) -> f64 {
        let filled = |(sum, limit): (&f64, &crate::max_conn::MaxConn)| sum / limit.within_target;
        let kinds = || self.sums[group].iter().zip(division.limits());
        let scarcest = kinds().min_by(|one, other| one.1.within_target.total_cmp(&other.1.within_target));
        let most = match self.config.paper {
            true => scarcest.map_or(0.0, filled),
            false => kinds().map(filled).fold(0.0, f64::max),
        };
        most / f64::from(self.looks.max(1))
    }

    /// Takes a server from below, or gives one, or neither.
    fn balance(&self, division: &mut Division<'_>, group: usize, loads: &[f64], least: &[usize]) -> bool {
        let weight = division.weight_of(group);
        if loads[group] > weight * (1.0 + self.config.dead_band) {
            let spares = |below: &usize| division.count(*below) > least[*below];
            let giver = (group + 1..self.groups).rev().find(spares);
            let server = giver.and_then(|giver| division.least_loaded(giver));
            return server.map(|server| division.put(server, group)).is_some();
        }
        let Some(server) = division.least_loaded(group).filter(|_| division.count(group) > least[group]) else {
            return false;
        };
        if loads[group] < (weight - division.weight(server)) * (1.0 - self.config.dead_band) {
            let pressure = |below: usize| loads[below] / division.weight_of(below).max(f64::MIN_POSITIVE);
            let fuller = |best: usize, other: usize| if pressure(other) >= pressure(best) { other } else { best };
            let taker = (group + 1..self.groups).reduce(fuller);
            return taker.map(|taker| division.put(server, taker)).is_some();
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use proptest::prelude::*;

    use super::super::testing::{Cluster, sizes};
    use crate::WhenAllDown;

    const POLICY: &str = r#"{ "policy": "dynamic", "shares": [0.2], "period": "1s", "dead_band": 0.0 }"#;

    #[test]
    fn it_starts_by_the_formula_and_moves_a_server_a_period() {
        let mut cluster = Cluster::new(10, 2, POLICY);
        assert_eq!(sizes(&cluster), [5, 5]);
        // 18 a server: a hundred are more than five hold, and less than six.
        cluster.hold(0, 100);
        cluster.seconds(2);
        assert_eq!(sizes(&cluster), [6, 4]);
        cluster.seconds(10);
        assert_eq!(sizes(&cluster), [6, 4], "5 * 18 = 90 < 100 < 108: it stays");
        cluster.hold(0, 400);
        cluster.seconds(20);
        assert_eq!(sizes(&cluster), [9, 1], "one server stays with the others");
    }

    #[test]
    fn without_load_it_gives_all_but_one_and_takes_back_within_two_periods() {
        let mut cluster = Cluster::new(10, 2, POLICY);
        cluster.seconds(20);
        assert_eq!(sizes(&cluster), [1, 9]);
        cluster.hold(0, 30);
        cluster.seconds(2);
        assert_eq!(sizes(&cluster), [2, 8]);
    }

    #[test]
    fn a_moved_server_finishes_what_it_has_and_gets_nothing_more_of_its_old_class() {
        let mut cluster = Cluster::new(4, 2, r#"{ "policy": "dynamic", "shares": [0.2], "period": "1s" }"#);
        assert_eq!(sizes(&cluster), [2, 2]);
        cluster.hold(0, 200);
        let old = cluster.hold(1, 10);
        cluster.seconds(2);
        assert_eq!(sizes(&cluster), [3, 1]);
        let moved = (2..4).find(|&server| cluster.owner(server) == Some(0)).expect("one of the two was moved");
        assert!(old.contains(&moved), "it held requests of the second class, and still does");
        assert!(cluster.in_flight(moved) >= 5);
        assert!(cluster.hold(1, 20).iter().all(|&server| server != moved));
        assert!(cluster.hold(0, 20).contains(&moved));
    }

    #[test]
    fn a_dead_band_keeps_a_load_near_the_mark_from_moving_servers() {
        let moves = |dead_band: f64| {
            let policy = alloc::format!(
                r#"{{ "policy": "dynamic", "shares": [0.2], "period": "1s", "dead_band": {dead_band} }}"#
            );
            let mut cluster = Cluster::new(10, 2, &policy);
            let mut moves = 0;
            let mut before = sizes(&cluster);
            for round in 0..20 {
                // Five hold 90, four hold 72.
                cluster.only(0, if round % 2 == 0 { 95 } else { 68 });
                cluster.seconds(1);
                moves += u32::from(sizes(&cluster) != before);
                before = sizes(&cluster);
            }
            moves
        };
        assert!(moves(0.0) > 5, "{}", moves(0.0));
        assert_eq!(moves(0.1), 0);
    }

    #[test]
    fn three_classes_each_follow_their_load() {
        let mut cluster = Cluster::new(12, 3, r#"{ "policy": "dynamic", "period": "1s", "dead_band": 0.0 }"#);
        cluster.hold(0, 60);
        cluster.hold(1, 100);
        for _ in 0..20 {
            cluster.turn_over();
            cluster.seconds(1);
        }
        assert_eq!(sizes(&cluster), [4, 6, 2]);
    }

    #[test]
    fn when_a_partition_dies_another_server_steps_in() {
        let mut cluster = Cluster::new(4, 2, r#"{ "policy": "dynamic", "shares": [0.2] }"#);
        assert_eq!(sizes(&cluster), [2, 2]);
        cluster.down(0);
        cluster.down(1);
        assert_eq!(sizes(&cluster), [1, 1]);
        cluster.up(0);
        cluster.up(1);
        assert_eq!(sizes(&cluster), [3, 1], "those that were away are where they were");
    }

    #[test]
    fn when_a_reload_leaves_no_server_nothing_moves_and_the_period_begins_anew() {
        let mut cluster = Cluster::new(4, 2, POLICY);
        (0..4).for_each(|server| cluster.down(server));
        assert_eq!(sizes(&cluster), [3, 1], "all are dead and tried");
        // Two would do.
        cluster.hold(0, 30);
        cluster.pass(Duration::from_millis(500));
        cluster.when_all_down(WhenAllDown::Refuse);
        cluster.seconds(3);
        cluster.when_all_down(WhenAllDown::Try);
        cluster.pass(Duration::from_millis(500));
        assert_eq!(sizes(&cluster), [3, 1], "what was before is forgotten");
        cluster.seconds(1);
        assert_eq!(sizes(&cluster), [2, 2]);
    }

    /// Ten times a second everything is answered and as much comes again, so that each class is where it belongs now.
    fn tenths(cluster: &mut Cluster, tenths: u32) {
        for _ in 0..tenths {
            cluster.turn_over();
            cluster.pass(Duration::from_millis(100));
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(16))]

        /// Whenever in a period the mix changes, and however far: within two periods a server moves the right way, then
        /// one a period, until the load fits.
        #[test]
        fn k_moves_within_two_periods_of_a_change_of_mix(
            before in 0..=170usize,
            after in 0..=170usize,
            phase in 0..10u32,
            period in 1..3u32,
        ) {
            const ALL: usize = 170;
            let policy = alloc::format!(r#"{{ "policy": "dynamic", "period": "{period}s", "dead_band": 0.1 }}"#);
            let mut cluster = Cluster::new(10, 2, &policy);
            let mix = |cluster: &mut Cluster, top: usize| {
                cluster.only(0, top);
                cluster.only(1, ALL - top);
            };
            mix(&mut cluster, before);
            tenths(&mut cluster, 10 * 10 * period + phase * period);
            let settled = sizes(&cluster)[0];
            mix(&mut cluster, after);
            // What holds the new mix: not so few that they are over the mark, not so many that one could go.
            let is_few = |servers: usize| after as f64 > servers as f64 * 18.0 * 1.1 && servers < 9;
            let is_many = |servers: usize| (after as f64) < (servers as f64 - 1.0) * 18.0 * 0.9 && servers > 1;
            let mut expected = settled;
            tenths(&mut cluster, 10 * period);
            for _ in 0..11 {
                tenths(&mut cluster, 10 * period);
                expected = match expected {
                    servers if is_few(servers) => servers + 1,
                    servers if is_many(servers) => servers - 1,
                    servers => servers,
                };
                let now = sizes(&cluster)[0];
                let ahead = if after > before { now >= expected } else { now <= expected };
                prop_assert!(ahead || now == expected, "{now} servers, {expected} expected, from {settled}");
                prop_assert!(now.abs_diff(expected) <= 1, "no more than one a period: {now}, {expected}");
            }
            let now = sizes(&cluster)[0];
            prop_assert!(!is_few(now) && !is_many(now), "{now} servers for {after}");
        }
    }
}
