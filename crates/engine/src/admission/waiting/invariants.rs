//! What holds whatever arrives and ends: nobody waits beside a free place, no server gets more than its places, the
//! more important never wait behind others, and the number of places is finite. Who hangs has no place.

use alloc::format;
use alloc::vec::Vec;

use proptest::prelude::{ProptestConfig, any, prop, prop_assert, proptest};
use proptest::test_runner::TestCaseError;

use super::super::testing::{Bench, answered};
use crate::{Decision, Outcome, Ticket};

/// What is known of the requests from outside.
#[derive(Default)]
struct Seen {
    flying: Vec<Ticket>,
    waiting: Vec<(u8, Ticket)>,
    started: usize,
    refused: usize,
    looked: usize,
}

impl Seen {
    fn arrive(&mut self, bench: &mut Bench, class: u8) {
        match bench.decide(class) {
            Decision::Admit { ticket, .. } => self.flying.push(ticket),
            Decision::Enqueue { ticket } => self.waiting.push((class, ticket)),
            Decision::Reject(_) => {}
        }
    }

    /// Takes over what began and what was refused meanwhile. No more may have begun than there are places.
    fn follow(&mut self, bench: &Bench) -> Result<(), TestCaseError> {
        for (ticket, _) in &bench.refused[self.refused..] {
            self.waiting.retain(|(_, waiting)| waiting != ticket);
        }
        self.refused = bench.refused.len();
        let begun = &bench.started[self.started..];
        for (at, ticket) in begun.iter().enumerate() {
            let found = self.waiting.iter().position(|(_, waiting)| waiting == ticket);
            let (class, ticket) = self.waiting.swap_remove(found.expect("who begins has waited"));
            let later = |other: &Ticket| begun[at..].contains(other);
            let passed = self.waiting.iter().find(|(other, ticket)| *other < class && !later(ticket));
            prop_assert!(passed.is_none(), "class {class} begins, {passed:?} waits");
            self.flying.push(ticket);
        }
        self.started = bench.started.len();
        Ok(())
    }

    fn check(&mut self, bench: &Bench, flew: usize) -> Result<(), TestCaseError> {
        let limit = bench.state().limit.unwrap_or_default();
        prop_assert!(limit.is_finite() && limit >= 1.0, "{limit} places");
        // There may have been more places for a while, when time went by.
        let most = bench.limits()[self.looked..].iter().copied().fold(limit, f64::max);
        self.looked = bench.limits().len().saturating_sub(1);
        // Who hangs has no place.
        let at_work = self.flying.len() - bench.hanging();
        prop_assert!(at_work <= flew.max(most as usize), "{at_work} at work, {most} places");
        let waiting = self.waiting.len();
        prop_assert!(waiting == 0 || at_work >= limit as usize, "{waiting} wait, {at_work} at work, {limit} places");
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn places_are_used_and_no_more_than_places(
        order in 0usize..3,
        steps in prop::collection::vec((0u8..8, any::<u8>(), 1u64..400), 1..400),
    ) {
        let order = ["smallest-first", "fair", "fifo"][order];
        let mut bench = Bench::new(&format!(r#"{{"policy": "waiting", "order": "{order}"}}"#));
        let mut seen = Seen::default();
        for (what, which, ms) in steps {
            let flew = seen.flying.len();
            let at = usize::from(which);
            match what {
                0..=3 => (0..=which % 4).for_each(|class| seen.arrive(&mut bench, class.min(2))),
                4 | 5 if flew > 0 => {
                    let ticket = seen.flying.swap_remove(at % flew);
                    bench.complete(ticket, if which % 16 == 0 { Outcome::timed_out() } else { answered(ms) });
                }
                6 if !seen.waiting.is_empty() => {
                    let left = seen.waiting.swap_remove(at % seen.waiting.len());
                    bench.cancel(left.1);
                }
                _ => bench.advance(ms),
            }
            seen.follow(&bench)?;
            seen.check(&bench, flew)?;
        }
    }
}
