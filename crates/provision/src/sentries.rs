//! Number of sentries of an application, and the division of its servers among them.
//!
//! *Intuition.* A sentry whose CPU stays above `high` for `hold` asks for another one; one whose CPU stays below `low`
//! is returned, never the last. Whenever their number or the servers change, the servers are split equally and
//! disjointly, so that each sentry decides and dispatches for itself (Cataclysm, section 4.2).
//!
//! *Awkward cases.* Several that ask at once get one for all of them: after it has come, everybody's load falls, and
//! who still needs one asks again. So that the change can show itself, all watches begin anew. A sentry is returned
//! only if the others would stay below `high` with its share, or it would come straight back.

use alloc::vec::Vec;
use core::time::Duration;

use serde::{Deserialize, Serialize};

use tidegate_engine::{Seconds, Timestamp};

/// Rule for the number of sentries.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct SentryRule {
    /// Share of its CPU above which a sentry asks for another one; paper: 0.8.
    pub high: f64,
    /// Share of its CPU below which a sentry is returned.
    pub low: f64,
    /// For how long it must be so; paper: 30 s.
    pub hold: Seconds,
}

impl Default for SentryRule {
    fn default() -> Self {
        SentryRule { high: 0.8, low: 0.3, hold: Seconds(30.0) }
    }
}

/// The sentries of one application.
#[derive(Clone, Debug)]
pub(super) struct Sentries {
    rule: SentryRule,
    most: u32,
    watches: Vec<Watch>,
}

/// One sentry.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
pub(super) struct Watch {
    cpu: f64,
    above_since: Option<Timestamp>,
    below_since: Option<Timestamp>,
}

impl Sentries {
    pub(super) fn new(rule: &SentryRule, most: u32) -> Sentries {
        Sentries { rule: rule.clone(), most: most.max(1), watches: alloc::vec![Watch::default()] }
    }

    /// What is to be kept.
    pub(super) fn watches(&self) -> &[Watch] {
        &self.watches
    }

    /// Watches that were kept; never fewer than one, nor more than allowed.
    pub(super) fn restore(&mut self, mut watches: Vec<Watch>) {
        watches.resize(watches.len().clamp(1, self.most as usize), Watch::default());
        self.watches = watches;
    }

    pub(super) fn count(&self) -> u32 {
        self.watches.len() as u32
    }

    /// A sentry says how busy it was since it last did. The number wanted now, when it changes, and the CPU that
    /// decided it.
    pub(super) fn hear(&mut self, now: Timestamp, sentry: usize, since: Timestamp, cpu: f64) -> Option<(u32, f64)> {
        let (high, low) = (self.rule.high, self.rule.low);
        let watch = self.watches.get_mut(sentry)?;
        watch.cpu = cpu;
        let begun = |holds: bool, begun: Option<Timestamp>| holds.then(|| begun.unwrap_or(since));
        watch.above_since = begun(cpu > high, watch.above_since);
        watch.below_since = begun(cpu < low, watch.below_since);
        let held = |since: Option<Timestamp>, hold: Duration| since.is_some_and(|since| now.since(since) >= hold);
        let (above, below) = (watch.above_since, watch.below_since);
        let count = self.count();
        let wanted = if held(above, self.rule.hold.duration()) && count < self.most {
            count + 1
        } else if held(below, self.rule.hold.duration()) && count > 1 && self.load() / f64::from(count - 1) < high {
            count - 1
        } else {
            return None;
        };
        self.watches = alloc::vec![Watch::default(); wanted as usize];
        Some((wanted, cpu))
    }

    /// Sentries' worth of work.
    fn load(&self) -> f64 {
        self.watches.iter().map(|watch| watch.cpu).sum()
    }
}

/// Splits servers equally and disjointly among `sentries`. A server stays with its sentry where it can: one that moves
/// leaves requests behind.
pub fn repartition(before: &[Vec<usize>], servers: &[usize], sentries: u32) -> Vec<Vec<usize>> {
    let sentries = sentries.max(1) as usize;
    let mut parts = alloc::vec![Vec::new(); sentries];
    let (each, more) = (servers.len() / sentries, servers.len() % sentries);
    let mut placed = alloc::collections::BTreeSet::new();
    let members: alloc::collections::BTreeSet<usize> = servers.iter().copied().collect();
    let stay = |at: usize| before.get(at).into_iter().flatten().filter(|server| members.contains(server));
    // Who had the most keeps one more, where it does not come out even.
    let mut order: Vec<usize> = (0..sentries).collect();
    order.sort_by_cached_key(|&at| core::cmp::Reverse(stay(at).count()));
    for (rank, &at) in order.iter().enumerate() {
        let room = each + usize::from(rank < more);
        parts[at].extend(stay(at).take(room).copied());
        placed.extend(parts[at].iter().copied());
    }
    let mut rest = servers.iter().filter(|server| !placed.contains(server)).copied();
    for (rank, &at) in order.iter().enumerate() {
        let room = each + usize::from(rank < more) - parts[at].len();
        parts[at].extend(rest.by_ref().take(room));
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn second(at: u64) -> Timestamp {
        Timestamp::from_millis(at * 1000)
    }

    fn hear(sentries: &mut Sentries, at: u64, sentry: usize, cpu: f64) -> Option<u32> {
        sentries.hear(second(at), sentry, second(at - 1), cpu).map(|(wanted, _)| wanted)
    }

    #[test]
    fn thirty_seconds_above_the_threshold_bring_another_one() {
        let mut sentries = Sentries::new(&SentryRule::default(), 3);
        for at in 1..30 {
            assert_eq!(hear(&mut sentries, at, 0, 0.85), None, "{at}");
        }
        assert_eq!(hear(&mut sentries, 30, 0, 0.85), Some(2));
        // From the beginning for both.
        assert_eq!(hear(&mut sentries, 31, 0, 0.85), None);
        assert_eq!(hear(&mut sentries, 31, 7, 0.85), None, "one that is not there");
    }

    #[test]
    fn a_moment_below_it_begins_anew() {
        let mut sentries = Sentries::new(&SentryRule::default(), 3);
        for at in 1..100 {
            let cpu = if at % 20 == 0 { 0.7 } else { 0.9 };
            assert_eq!(hear(&mut sentries, at, 0, cpu), None);
        }
    }

    #[test]
    fn never_more_than_allowed_never_the_last_and_none_that_is_needed() {
        let mut sentries = Sentries::new(&SentryRule::default(), 1);
        for at in 1..100 {
            assert_eq!(hear(&mut sentries, at, 0, 1.0), None);
        }
        for at in 100..200 {
            assert_eq!(hear(&mut sentries, at, 0, 0.0), None);
        }
        let mut two =
            Sentries { watches: alloc::vec![Watch::default(); 2], ..Sentries::new(&SentryRule::default(), 3) };
        for at in 1..100 {
            // The other one would have to do 0.85.
            assert_eq!((hear(&mut two, at, 1, 0.6), hear(&mut two, at, 0, 0.25)), (None, None), "{at}");
        }
        let wanted: Vec<u32> =
            (100..200).flat_map(|at| [hear(&mut two, at, 1, 0.2), hear(&mut two, at, 0, 0.25)]).flatten().collect();
        assert_eq!(wanted, [1]);
    }

    #[test]
    fn servers_stay_where_they_are() {
        let before = [alloc::vec![0, 1, 2, 3]];
        let two = repartition(&before, &[0, 1, 2, 3], 2);
        assert_eq!(two, [alloc::vec![0, 1], alloc::vec![2, 3]]);
        assert_eq!(repartition(&two, &[0, 1, 2, 3, 4], 2), [alloc::vec![0, 1, 4], alloc::vec![2, 3]]);
        assert_eq!(repartition(&two, &[0, 2, 3], 2), [alloc::vec![0], alloc::vec![2, 3]]);
        assert_eq!(repartition(&two, &[0, 1, 2, 3], 1), [alloc::vec![0, 1, 2, 3]]);
        assert_eq!(repartition(&two, &[], 2), [Vec::new(), Vec::<usize>::new()]);
    }

    proptest! {
        #[test]
        fn parts_are_disjoint_equal_and_complete(
            count in 0usize..100, sentries in 1u32..12, first in 0usize..20, later in 1u32..12,
        ) {
            let old: Vec<usize> = (0..count).collect();
            let before = repartition(&[], &old, sentries);
            let servers: Vec<usize> = (first.min(count)..count + 5).collect();
            let parts = repartition(&before, &servers, later);
            let mut all: Vec<usize> = parts.concat();
            all.sort_unstable();
            prop_assert_eq!(all, servers);
            let sizes = || parts.iter().map(Vec::len);
            prop_assert!(sizes().max().unwrap() - sizes().min().unwrap() <= 1);
        }
    }
}
