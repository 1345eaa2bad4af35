//! Posts: places for the sentries that a driver starts and stops itself.
//!
//! *Intuition.* A post is to a sentry what a place in the pool is to a server, and goes through the same states. The
//! number of sentries that an application is to have is [decided](super::sentries) whoever starts them; of that number
//! those are subtracted that somebody else has started, and the rest stand at posts.
//!
//! *Awkward cases.* A sentry that is to go is not stopped at once: clients have its address from a name server, and
//! come as long as they remember it. While one is coming, one that nobody knows may be that one: it does not count as
//! somebody else's. Whoever begins waits until the sentries that are there have spoken, or it would start more.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::time::Duration;

use serde::{Deserialize, Serialize};

use super::ProvisionAction;
use super::fleet::{Fleet, Place, Pool, ServerNews};
use tidegate_engine::Timestamp;

/// Posts of a site; none means that somebody else starts sentries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Posts {
    /// How many there are, for all applications together.
    pub count: u32,
    /// From being asked for until it speaks; one that needs much longer is given up.
    pub setup_time: Duration,
    /// A sentry that is to go is stopped so long after clients were told of others.
    pub leave_after: Duration,
}

impl Default for Posts {
    fn default() -> Self {
        Posts { count: 0, setup_time: Duration::ZERO, leave_after: Duration::from_secs(10) }
    }
}

/// A post whose sentry failed is not used for so long.
const LEFT_ALONE: Duration = Duration::from_secs(5);

/// Who stands at the posts.
#[derive(Clone, Debug)]
pub(super) struct Crew {
    fleet: Fleet,
    /// By application, the sentries that somebody else has started.
    others: Vec<u32>,
    /// Until then nobody is started and nobody goes.
    paused_until: Timestamp,
    actions: VecDeque<ProvisionAction>,
}

/// What is kept of a crew.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(super) struct CrewState {
    places: Vec<Place>,
    others: Vec<u32>,
    paused_until: Option<Timestamp>,
}

impl Crew {
    pub(super) fn new(posts: Posts, applications: usize) -> Crew {
        let pool = Pool { setup_time: posts.setup_time, drain_limit: posts.leave_after, ..Pool::default() };
        let nobody = alloc::vec![0; applications];
        let fleet = Fleet::new(pool, posts.count, &nobody).leaving_alone(LEFT_ALONE);
        Crew { fleet, others: nobody, paused_until: Timestamp::ZERO, actions: VecDeque::new() }
    }

    pub(super) fn state(&self) -> CrewState {
        let (places, others) = (self.fleet.places().to_vec(), self.others.clone());
        CrewState { places, others, paused_until: Some(self.paused_until) }
    }

    /// What was kept; who stood at posts that are no more is nobody's.
    pub(super) fn restore(&mut self, state: CrewState) {
        self.fleet.restore(state.places);
        self.others.iter_mut().zip(state.others).for_each(|(others, kept)| *others = kept);
        self.paused_until = state.paused_until.unwrap_or(Timestamp::ZERO);
    }

    /// States of the posts.
    pub(super) fn places(&self) -> &[Place] {
        self.fleet.places()
    }

    /// Nobody is started and nobody goes until then.
    pub(super) fn pause(&mut self, until: Timestamp) {
        self.paused_until = until;
    }

    /// Somebody else has started so many of an application's sentries.
    pub(super) fn hear_others(&mut self, application: usize, count: u32) {
        let comes = self.fleet.coming(application) > 0;
        if let Some(others) = self.others.get_mut(application) {
            *others = if comes { count.min(*others) } else { count };
        }
    }

    /// News of who stands at a post.
    pub(super) fn hear(&mut self, now: Timestamp, post: usize, news: ServerNews) {
        self.fleet.hear(now, post, news, &mut self.actions);
    }

    /// Whether a sentry was asked for that is not there yet.
    pub(super) fn is_coming(&self, application: usize) -> bool {
        self.fleet.coming(application) > 0
    }

    /// Time has passed, and this is how many sentries each application is to have.
    pub(super) fn settle(&mut self, now: Timestamp, wanted: impl Iterator<Item = u32>) {
        if now < self.paused_until {
            return;
        }
        self.fleet.expire(now, &mut self.actions);
        let own = wanted.zip(&self.others).map(|(wanted, others)| wanted.saturating_sub(*others));
        let mut own: Vec<(usize, u32)> = own.enumerate().collect();
        // Whoever has none goes first: the last post is worth more to it.
        own.sort_by_key(|(application, _)| self.fleet.has(*application) + self.others[*application] > 0);
        for (application, own) in own {
            self.fleet.settle(now, application, own, &mut self.actions);
        }
    }

    pub(super) fn poll_action(&mut self) -> Option<ProvisionAction> {
        self.actions.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn second(at: u64) -> Timestamp {
        Timestamp::from_millis(at * 1000)
    }

    fn crew(count: u32) -> Crew {
        Crew::new(Posts { count, ..Posts::default() }, 2)
    }

    fn settle(crew: &mut Crew, at: u64, wanted: [u32; 2]) -> Vec<ProvisionAction> {
        crew.settle(second(at), wanted.into_iter());
        core::iter::from_fn(|| crew.poll_action()).collect()
    }

    const fn start(server: usize, application: usize) -> ProvisionAction {
        ProvisionAction::Start { server, application }
    }

    #[test]
    fn posts_fill_up_to_what_is_wanted_less_what_others_have_started() {
        let mut crew = crew(3);
        crew.hear_others(0, 1);
        assert_eq!(settle(&mut crew, 0, [1, 1]), [start(0, 1)]);
        assert_eq!(settle(&mut crew, 1, [3, 1]), [start(1, 0), start(2, 0)]);
        assert_eq!(settle(&mut crew, 2, [4, 1]), [], "there is no post left");
    }

    #[test]
    fn who_is_to_go_stays_while_clients_may_still_come() {
        let mut crew = crew(2);
        settle(&mut crew, 0, [2, 0]);
        crew.hear(second(1), 0, ServerNews::Up);
        crew.hear(second(1), 1, ServerNews::Up);
        assert_eq!(settle(&mut crew, 5, [1, 0]), [ProvisionAction::Drain { server: 1, application: 0 }]);
        assert_eq!(settle(&mut crew, 15, [1, 0]), []);
        assert_eq!(settle(&mut crew, 16, [1, 0]), [ProvisionAction::Stop { server: 1 }]);
        assert_eq!(crew.places()[1], Place::Free);
    }

    #[test]
    fn one_that_is_not_known_may_be_the_one_that_is_coming() {
        let mut crew = crew(2);
        assert_eq!(settle(&mut crew, 0, [1, 0]), [start(0, 0)]);
        crew.hear_others(0, 1);
        assert_eq!(settle(&mut crew, 1, [1, 0]), [], "it is not sent home");
        crew.hear(second(2), 0, ServerNews::Up);
        crew.hear_others(0, 1);
        let goes = settle(&mut crew, 3, [1, 0]);
        assert_eq!(goes, [ProvisionAction::Drain { server: 0, application: 0 }], "it was somebody else's");
    }

    #[test]
    fn one_that_failed_is_followed_by_another_soon_even_at_its_own_post() {
        let mut crew = crew(1);
        settle(&mut crew, 0, [1, 0]);
        crew.hear(second(1), 0, ServerNews::Failed);
        assert_eq!(settle(&mut crew, 2, [1, 0]), []);
        let again = (3..20).find(|at| !settle(&mut crew, *at, [1, 0]).is_empty());
        assert_eq!(again, Some(7), "after five seconds");
    }

    #[test]
    fn one_that_needs_long_to_start_is_waited_for() {
        let gives_up = |setup_time: u64| {
            let posts = Posts { count: 1, setup_time: Duration::from_secs(setup_time), ..Posts::default() };
            let mut crew = Crew::new(posts, 2);
            settle(&mut crew, 0, [1, 0]);
            (1..1000).find(|at| !settle(&mut crew, *at, [1, 0]).is_empty())
        };
        assert_eq!((gives_up(0), gives_up(60)), (Some(31), Some(211)));
    }

    #[test]
    fn while_paused_nobody_comes_or_goes_and_a_state_goes_on() {
        let mut crew = crew(2);
        crew.pause(second(3));
        assert_eq!(settle(&mut crew, 2, [1, 0]), []);
        let mut other = Crew::new(Posts { count: 4, ..Posts::default() }, 2);
        other.restore(crew.state());
        assert_eq!(settle(&mut other, 2, [1, 0]), []);
        assert_eq!((settle(&mut other, 3, [1, 0]), other.places().len()), (alloc::vec![start(0, 0)], 4));
    }
}
