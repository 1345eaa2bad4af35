//! Several sentries before the same servers: what each tells the others, and what it makes of that.
//!
//! *Intuition.* Two doctors share the rooms of a practice. Now and then each calls out how many patients it has, the
//! urgent ones and the rest; so both know who may use how many rooms, and nobody asks for each patient.
//!
//! *Applied.* A sentry says how many requests it has at the servers, and how many places each of its classes needs:
//! what arrives per second, times how long it is at a server (Little's law). That means the same at every sentry,
//! whatever its costs are measured in. From the sum of the others each works out its own part of the places, the most
//! important class of all sentries first ([`Peers::share`]). Nobody is asked while a request waits; what was said last
//! holds until something else is.
//!
//! *Awkward cases.* Nobody says what it needs before it knows how long requests take: until then all have the same
//! part. Who has nothing of a class now may have some in an instant, so nobody's part of a class is nothing.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::time::Duration;

use crate::sla::Sla;
use crate::time::Timestamp;

/// What one sentry says of an application, or several together.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Summary {
    /// Requests that servers worked on for it, on average since it said so last.
    pub in_service: f64,
    /// What completed meanwhile, in requests of average cost.
    pub completed: f64,
    /// Processors that its guaranteed requests need.
    pub guaranteed: f64,
    /// Requests that wait at it.
    pub waiting: f64,
    /// Per class, most important first.
    pub classes: Vec<ClassSummary>,
    /// How many places a server has, as far as it knows.
    pub places: Option<Places>,
    /// What requests took that ended meanwhile, by how many were in service.
    pub times: Vec<Times>,
}

/// How many places a server has, for all sentries together.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Places {
    /// So many now: more than are worth it while that is tried.
    pub now: f64,
    /// As many as are worth their time there, as far as is known.
    pub most: f64,
    /// How likely that is more than were ever in service.
    pub beyond: f64,
    /// Whether it is known.
    pub is_known: bool,
}

/// What requests took while about so many were in service at a server, whoever sent them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Times {
    /// So many, on average over servers and time.
    pub in_service: f64,
    /// How many requests.
    pub count: f64,
    /// The sum of the logarithms of their times at the server, seconds, over their cost in average ones.
    pub ln: f64,
    /// The sum of the squares of these.
    pub square: f64,
}

/// What one sentry says of a class.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ClassSummary {
    /// Requests that arrive per second.
    pub offered: f64,
    /// Processors that those of them need which are not guaranteed, in order to wait for hardly anybody but each other.
    pub needs: f64,
}

/// The other sentries before the same servers, as far as they were heard of.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Peers {
    /// How many there are.
    pub count: usize,
    /// How many of them said nothing yet.
    pub silent: usize,
    /// How many of them come before this one.
    pub rank: usize,
    /// What they said, summed up; what completed and took how long, since that was asked for last; and how many places
    /// there are by the word of the one that says so for all, if that is another.
    pub sum: Summary,
}

/// What one sentry heard of the others, and when: the driver's part, the same in the sentry and in the simulator.
#[derive(Clone, Debug, Default)]
pub struct Circle {
    own: u64,
    /// How many others there should be, until it is known.
    expected: Option<(usize, Timestamp)>,
    heard: BTreeMap<u64, (Timestamp, Summary)>,
}

/// So many intervals of silence, and this long at least, and a sentry is taken to be gone.
const GONE: u32 = 10;
const GONE_LEAST: Duration = Duration::from_secs(1);
/// Between two summaries: about as long as a request is at a server, or what is in service changes too much meanwhile
/// for its mean to say anything. (At 0.1 s gold gets 0.97 of what it asks for in F2, at 25 ms 0.99.) In a fleet of more
/// than fifty this long for each member, so that nobody spends more on reading them than on a thousand a second.
const EVERY: Duration = Duration::from_millis(50);
const EVERY_EACH: Duration = Duration::from_millis(1);

/// Of what all need together, each sentry's part is reckoned as if it needed this part of the mean besides.
const LEAST: f64 = 0.05;
/// What nobody needs is given away so many times.
const SPARE: f64 = 2.0;

impl Summary {
    /// The sum of what was said.
    pub fn sum<'a>(said: impl IntoIterator<Item = &'a Summary>) -> Summary {
        said.into_iter().fold(Summary::default(), |mut sum, said| {
            sum.add(said);
            sum
        })
    }

    /// Adds what another said.
    fn add(&mut self, other: &Summary) {
        self.in_service += other.in_service;
        self.completed += other.completed;
        self.guaranteed += other.guaranteed;
        self.waiting += other.waiting;
        let classes = self.classes.len().max(other.classes.len());
        self.classes.resize(classes, ClassSummary::default());
        for (sum, class) in self.classes.iter_mut().zip(&other.classes) {
            sum.offered += class.offered;
            sum.needs += class.needs;
        }
    }

    /// Requests that arrive per second, of all classes.
    pub fn offered(&self) -> f64 {
        self.classes.iter().map(|class| class.offered).sum()
    }

    fn class(&self, class: usize) -> ClassSummary {
        self.classes.get(class).copied().unwrap_or_default()
    }
}

impl Circle {
    /// Of the member that is called `own` and begins at `now`, with as many others as it was told of.
    pub fn new(own: u64, now: Timestamp, others: usize) -> Circle {
        Circle { own, expected: Some((others, now + GONE_LEAST)), heard: BTreeMap::new() }
    }

    /// Another member says how it is doing.
    pub fn hear(&mut self, now: Timestamp, member: u64, mut summary: Summary) {
        if let Some((_, before)) = self.heard.get_mut(&member) {
            let mut times = core::mem::take(&mut before.times);
            times.append(&mut summary.times);
            summary.times = times;
            summary.completed += before.completed;
        }
        self.heard.insert(member, (now, summary));
    }

    /// A member leaves.
    pub fn leave(&mut self, member: u64) {
        self.heard.remove(&member);
    }

    /// How long after one summary the next is due.
    pub fn every(&self) -> Duration {
        EVERY.max(EVERY_EACH * self.heard.len() as u32)
    }

    /// The others, but for those of whom nothing was heard for too long.
    pub fn peers(&mut self, now: Timestamp) -> Peers {
        let patience = GONE_LEAST.max(GONE * self.every());
        self.heard.retain(|_, (at, _)| now.since(*at) <= patience);
        let mut sum = Summary::sum(self.heard.values().map(|(_, summary)| summary));
        for (_, summary) in self.heard.values_mut() {
            sum.times.append(&mut summary.times);
            summary.completed = 0.0;
        }
        // The first that knows says it for all.
        let first = self.heard.iter().find_map(|(member, (_, summary))| Some((member, summary.places?)));
        sum.places = first.filter(|(member, _)| **member < self.own).map(|(_, places)| places);
        let (heard, rank) = (self.heard.len(), self.heard.range(..self.own).count());
        // For so long, who was not heard may not have had the time.
        self.expected = self.expected.filter(|(_, until)| now < *until);
        let silent = self.expected.map_or(0, |(others, _)| others.saturating_sub(heard));
        Peers { count: heard + silent, silent, rank, sum }
    }
}

impl Peers {
    /// What one has of so many processors that needs what `own` says: what is guaranteed first, then class by class.
    /// What all together do not need is there for whoever does in the next instant: more of it than there is, as not
    /// all will.
    pub(crate) fn share(&self, own: &Summary, processors: f64) -> f64 {
        let (mut left, mut mine, mut needs) = (processors, 0.0, (0.0, 0.0));
        let classes = self.sum.classes.len().max(own.classes.len());
        let of_classes = (0..classes).map(|class| (own.class(class).needs, self.sum.class(class).needs));
        for (own, others) in [(own.guaranteed, self.sum.guaranteed)].into_iter().chain(of_classes) {
            let others = others + self.silent as f64 * own;
            let all = own + others;
            let got = all.min(left);
            mine += got * self.part(own, others);
            left -= got;
            (needs.0, needs.1) = (needs.0 + own, needs.1 + others);
        }
        mine + left * (SPARE * self.part(needs.0, needs.1)).min(1.0)
    }

    /// The part of what there is for a class that goes to one which has `own` of it.
    pub(crate) fn part(&self, own: f64, others: f64) -> f64 {
        let members = (self.count + 1) as f64;
        let all = own + others;
        if all > 0.0 { (own + LEAST * all / members) / ((1.0 + LEAST) * all) } else { 1.0 / members }
    }

    /// The part of a class's guarantee that is one's own, when so many of its requests arrive here per second.
    pub(crate) fn guarantee(&self, class: usize, offered: f64) -> f64 {
        self.part(offered, self.sum.class(class).offered)
    }

    /// The target when so many requests arrive here per second, seconds: that at the rate of all.
    pub(crate) fn target(&self, sla: &Sla, offered: f64) -> f64 {
        sla.target(offered + self.sum.offered()).as_secs_f64()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn needs(needs: &[f64]) -> Summary {
        let classes = needs.iter().map(|needs| ClassSummary { offered: 10.0 * needs, needs: *needs }).collect();
        Summary { classes, ..Summary::default() }
    }

    #[test]
    fn the_most_important_class_of_all_goes_first() {
        // Gold is at one sentry, bronze at the other; twelve places.
        let (gold, bronze) = (needs(&[8.0, 0.0]), needs(&[0.0, 20.0]));
        let of = |others: &Summary, own: &Summary| {
            Peers { count: 1, sum: others.clone(), ..Peers::default() }.share(own, 12.0)
        };
        let (golds, bronzes) = (of(&bronze, &gold), of(&gold, &bronze));
        assert!((7.5..8.5).contains(&golds) && (3.5..4.5).contains(&bronzes), "{golds} {bronzes}");
    }

    #[test]
    fn until_anything_is_known_all_have_the_same_part() {
        let peers = Peers { count: 3, ..Peers::default() };
        assert_eq!(peers.guarantee(0, 0.0), 0.25);
        assert_eq!(Peers::default().share(&Summary::default(), 12.0), 12.0);
    }

    #[test]
    fn a_sum_has_the_classes_of_all() {
        let sum = Summary::sum([&needs(&[1.0, 2.0]), &needs(&[3.0])]);
        assert_eq!(sum.classes.iter().map(|class| class.needs).collect::<Vec<_>>(), [4.0, 2.0]);
        assert_eq!(sum.offered(), 60.0);
    }

    #[test]
    fn who_says_nothing_for_a_second_is_gone_and_who_leaves_at_once() {
        let (mut circle, at) = (Circle::new(0, Timestamp::ZERO, 0), Timestamp::from_millis);
        circle.hear(at(0), 1, needs(&[1.0]));
        circle.hear(at(0), 2, needs(&[2.0]));
        circle.hear(at(500), 1, needs(&[4.0]));
        assert_eq!(circle.peers(at(1000)).sum.classes[0].needs, 6.0);
        assert_eq!(circle.peers(at(1001)), Peers { count: 1, sum: needs(&[4.0]), ..Peers::default() });
        circle.leave(1);
        assert_eq!(circle.peers(at(1002)), Peers::default());
    }

    proptest! {
        /// Parts of a class add up to the whole, and so do places under overload.
        #[test]
        fn parts_add_up(all in prop::collection::vec(prop::collection::vec(0.1f64..50.0, 2), 2..9)) {
            let said: Vec<Summary> = all.iter().map(|all| needs(all)).collect();
            let sum = Summary::sum(&said);
            let places = 0.9 * sum.classes.iter().map(|class| class.needs).sum::<f64>();
            let shares: f64 = said.iter().enumerate().map(|(at, own)| {
                let others = said.iter().enumerate().filter(|(other, _)| *other != at).map(|(_, said)| said);
                Peers { count: said.len() - 1, sum: Summary::sum(others), ..Peers::default() }.share(own, places)
            }).sum();
            prop_assert!((shares - places).abs() < 1e-6, "{shares} of {places}");
        }
    }
}
