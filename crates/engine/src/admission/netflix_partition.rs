//! The limit of `gradient2`, of which each class is sure of a share.
//!
//! *Intuition.* A restaurant keeps some tables for its regulars. While it is not full anybody may sit at any table;
//! when it is full, a regular still gets in, on a folding chair if need be, as long as the regulars have fewer chairs
//! than are theirs.
//!
//! *Applied.* While fewer requests are in flight than the limit, every request is admitted, whatever its class. From
//! the limit on, a request is admitted if fewer of its class are in flight than `max(1, ceil(share x limit))`. The
//! limit is that of `gradient2`. What does not fit is refused; no request waits.
//!
//! *Awkward cases.* Nobody is sent away for another: what less important classes hold above their shares they keep
//! until it ends, and meanwhile the others' shares come on top, so that with three classes almost twice the limit may
//! be in flight. That makes answers slower, which makes the limit smaller. A share that its class does not use is
//! everybody's, first come first served, and not that of the next class. What a class may have beyond its share is a
//! matter of chance: places below the limit go to the class of which most comes. The limit is as blind to targets as
//! `gradient2`.
//!
//! *Applied here.* The source's partitions are names that its caller gives to requests, with shares that have no
//! default; here they are classes, each with twice the share of the next unless `shares` says otherwise. The source
//! may hold a refusal back for a while to slow its caller down; off by default there, it is left out.
//!
//! *Source.* Netflix concurrency-limits, `AbstractPartitionedLimiter` over `Gradient2Limit` in a `WindowedLimit`. It
//! is what Netflix's prioritized load shedding (2024) grew from.

use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

use super::gradient2::{self, Gradient2};
use super::limit::is_reached;
use super::{Admission, AdmissionPolicy, Arrival, Context, Ended, PolicyState, require};
use crate::decision::Reason;
use crate::learned::Kept;
use crate::setup::{Setup, SetupError};
use crate::time::Timestamp;

/// Settings; those of the limit are the source's.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Shares of the limit of which classes are sure, the most important first, 0 to 1 each and 1 together at most.
    /// Classes for which there is none are sure of one request. Without any, each class has twice that of the next.
    pub shares: Vec<f64>,
    /// Settings of the limit, as of `gradient2`.
    pub limit: gradient2::Config,
}

impl Config {
    pub(super) fn check(&self) -> Result<(), SetupError> {
        let wrong = |holds, problem| require(holds, "netflix-partition", "shares", problem);
        wrong(self.shares.iter().all(|share| (0.0..=1.0).contains(share)), "must lie between 0 and 1 each")?;
        wrong(self.shares.iter().sum::<f64>() <= 1.0 + 1e-9, "must be 1 together at most")?;
        self.limit.check()
    }

    pub(super) fn build(&self, setup: &Setup) -> NetflixPartition {
        let classes = setup.classes.len();
        let given = |class: usize| match self.shares.is_empty() {
            // 1/2, 1/4, ... of a little more than all, so that they sum to 1.
            true => libm::exp2(-(class as f64 + 1.0)) / (1.0 - libm::exp2(-(classes as f64))),
            false => self.shares.get(class).copied().unwrap_or(0.0),
        };
        NetflixPartition { shares: (0..classes).map(given).collect(), limit: self.limit.build(setup) }
    }
}

/// State of the policy `netflix-partition`.
#[derive(Debug)]
pub struct NetflixPartition {
    /// By class.
    shares: Vec<f64>,
    limit: Gradient2,
}

impl AdmissionPolicy for NetflixPartition {
    fn on_arrival(&mut self, cx: &mut Context<'_>, arrival: &Arrival) -> Admission {
        let limit = self.limit.limit();
        let class = arrival.request.class;
        if is_reached(limit, cx) && cx.in_flight_of(class) >= guaranteed(limit, self.shares[class.index()]) {
            return Admission::refuse(cx.load.refusal(Reason::ConcurrencyLimit));
        }
        Admission::Admit
    }

    fn is_full(&self, cx: &Context<'_>) -> bool {
        let limit = self.limit.limit();
        let has_its_share = |(class, share): (_, &f64)| cx.in_flight_of(class) >= guaranteed(limit, *share);
        is_reached(limit, cx) && cx.class_ids().zip(&self.shares).all(has_its_share)
    }

    fn on_outcome(&mut self, cx: &mut Context<'_>, ended: &Ended) {
        self.limit.on_outcome(cx, ended);
    }

    fn describe(&self, state: &mut PolicyState) {
        self.limit.describe(state);
    }

    fn keep(&self, now: Timestamp, kept: &mut Kept) {
        self.limit.keep(now, kept);
    }

    fn recall(&mut self, now: Timestamp, kept: &Kept) {
        self.limit.recall(now, kept);
    }
}

/// Requests in flight of which a class is sure.
fn guaranteed(limit: f64, share: f64) -> usize {
    libm::ceil(libm::floor(limit) * share - 1e-9).max(1.0) as usize
}

#[cfg(test)]
mod tests {
    use alloc::format;

    use super::*;
    use crate::admission::testing::{Bench, answered};

    fn bench(shares: &str) -> Bench {
        let limit = r#"{ "initial_limit": 20, "min_limit": 20, "max_limit": 20 }"#;
        Bench::new(&format!(r#"{{ "policy": "netflix-partition", "shares": {shares}, "limit": {limit} }}"#))
    }

    /// How many of a class get in before one is refused.
    fn fill(bench: &mut Bench, class: u8) -> usize {
        (0..1000).take_while(|_| bench.arrive(class).is_some()).count()
    }

    #[test]
    fn below_the_limit_anybody_and_from_it_on_who_has_less_than_its_share() {
        let mut bench = bench("[0.5, 0.31]");
        assert_eq!(fill(&mut bench, 2), 20, "all places, as nobody else is there");
        assert_eq!(fill(&mut bench, 0), 10, "a half, whoever holds places above its share");
        assert_eq!(fill(&mut bench, 1), 7, "rounded up");
        assert_eq!(fill(&mut bench, 2), 0);
    }

    #[test]
    fn a_class_without_a_share_is_sure_of_one() {
        let mut bench = bench("[1.0]");
        assert_eq!(fill(&mut bench, 0), 20);
        assert_eq!((fill(&mut bench, 1), fill(&mut bench, 2)), (1, 1));
    }

    #[test]
    fn a_place_that_is_free_goes_to_whoever_comes_first() {
        let mut bench = bench("[0.5, 0.5]");
        let flying: Vec<_> = (0..20).filter_map(|_| bench.arrive(1)).collect();
        bench.advance(10);
        bench.complete(flying[0], answered(10));
        assert_eq!(fill(&mut bench, 1), 1);
    }

    #[test]
    fn each_class_has_twice_the_share_of_the_next() {
        let bench = Bench::new(r#"{ "policy": "netflix-partition" }"#);
        assert_eq!(bench.state().limit, Some(20.0));
        let sla = crate::Sla::constant(crate::Statistic::P95, core::time::Duration::from_secs(1)).expect("it is some");
        let mut setup = Setup::simple("shares", sla, [crate::ServerSetup::new("one")]);
        setup.classes = ["gold", "silver", "bronze"].map(crate::ClassSetup::new).to_vec();
        let shares = Config::default().build(&setup).shares;
        assert!(shares.iter().zip([4.0, 2.0, 1.0]).all(|(share, of)| (share - of / 7.0).abs() < 1e-12), "{shares:?}");
    }

    #[test]
    fn shares_of_more_than_all_are_refused() {
        let check = |shares: &[f64]| Config { shares: shares.to_vec(), ..Config::default() }.check();
        assert!(check(&[0.7, 0.3]).is_ok() && check(&[]).is_ok());
        assert!(check(&[0.7, 0.4]).is_err() && check(&[1.1]).is_err() && check(&[-0.1]).is_err());
        assert!(check(&[f64::NAN]).is_err());
    }
}
