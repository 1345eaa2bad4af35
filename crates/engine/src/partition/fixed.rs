//! A fixed number of servers for each class, from the share of requests that it is expected to bring.
//!
//! *Intuition.* A restaurant that keeps tables for members: as many as their share of the guests, and some more,
//! because members must not wait and their number is never quite as expected.
//!
//! *Applied.* `K = ceil(r N + N (1 - r) (1 - max_conn(T) / max_conn))` servers for the top class with the share `r`,
//! the rest for the others. With more than two classes the formula divides the rest again. Servers are dealt in their
//! order, the first ones to class 1. A server of weight 2 counts as two.
//!
//! *Awkward cases.* Of several kinds in `max_conn`, the one with the smallest safety factor decides. The least
//! important class keeps one server whatever the formula says. When a server goes down the formula is applied to those
//! that are left: a server at a border changes sides, finishes what it has, and comes back with the other. What the
//! policy does not do is follow the load: its share has to be known, and to stay.
//!
//! *Source.* M. Andreolini et al. (2004), section 5.3, StaticPart, equation 1.

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::division::{are_shares, least, shares};
use super::{Division, PartitionPolicy, require};
use crate::demands::Demands;
use crate::setup::{Setup, SetupError};

/// Settings of the policy `static`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Expected share of the requests, per class, most important first; classes without one divide the rest evenly.
    pub shares: Vec<f64>,
    /// The fewest servers, per class; 1 where nothing is said.
    pub least: Vec<u32>,
}

impl Config {
    pub(super) fn check(&self) -> Result<(), SetupError> {
        let key = "shares";
        require(are_shares(&self.shares), "static", key, "must each be 0 to 1, and at most 1 together")
    }

    pub(super) fn demands(&self) -> Demands {
        Demands { kinds: true, weights: true, ..Demands::default() }
    }

    pub(super) fn build(&self, _setup: &Setup) -> Fixed {
        Fixed { config: self.clone() }
    }
}

/// State of the policy `static`.
#[derive(Debug)]
pub struct Fixed {
    config: Config,
}

impl PartitionPolicy for Fixed {
    fn on_servers_changed(&mut self, division: &mut Division<'_>) {
        let groups = division.groups();
        let least = least(&self.config.least, groups, division.live().count());
        division.by_formula(&shares(&self.config.shares, groups), &least);
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Cluster, sizes};

    /// The paper's figure 5: N = 10, 18 of 26.
    #[test]
    fn k_over_the_share_of_top_requests() {
        let k = |share: f64| {
            let cluster = Cluster::new(10, 2, &alloc::format!(r#"{{ "policy": "static", "shares": [{share}] }}"#));
            sizes(&cluster)[0]
        };
        assert_eq!([0.2, 0.4, 0.6, 0.8].map(k), [5, 6, 8, 9]);
        assert_eq!([0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0].map(k), [4, 4, 6, 7, 8, 9, 9]);
    }

    #[test]
    fn every_class_has_a_server_of_its_own() {
        for (servers, classes) in [(2, 2), (3, 3), (10, 5), (40, 7)] {
            let cluster = Cluster::new(servers, classes, r#"{ "policy": "static", "shares": [1.0] }"#);
            let sizes = sizes(&cluster);
            assert_eq!((sizes.len(), sizes.iter().sum::<usize>()), (classes, servers));
            assert!(sizes.iter().all(|&size| size >= 1), "{sizes:?}");
        }
    }

    #[test]
    fn with_fewer_servers_than_classes_the_least_important_share_one() {
        let cluster = Cluster::new(2, 4, r#"{ "policy": "static" }"#);
        assert_eq!(sizes(&cluster), [1, 1]);
        assert_eq!((0..4).map(|class| cluster.group_of(class)).collect::<alloc::vec::Vec<_>>(), [0, 1, 1, 1]);
    }

    #[test]
    fn after_a_death_the_formula_holds_for_those_left_and_none_is_dead() {
        let mut cluster = Cluster::new(10, 2, r#"{ "policy": "static", "shares": [0.2] }"#);
        (0..5).for_each(|server| cluster.down(server));
        // Of five servers: 1 + 4 * 8 / 26 = 2.2.
        assert_eq!(sizes(&cluster), [3, 2]);
        (0..5).for_each(|server| cluster.up(server));
        assert_eq!(sizes(&cluster), [5, 5]);
    }

    #[test]
    fn a_server_of_twice_the_weight_counts_as_two() {
        let mut setup = Cluster::setup(6, 2, r#"{ "policy": "static", "shares": [0.2] }"#);
        (0..4).for_each(|server| setup.servers[server].weight = 2.0);
        // Weight 4.46 of 10: two and a half of the large ones.
        assert_eq!(sizes(&Cluster::of(setup)), [3, 3]);
    }
}
