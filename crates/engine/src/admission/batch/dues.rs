//! What requests of each cost are due: smallest first, but nobody starves.
//!
//! *Intuition.* A lift that always takes those with the least luggage takes nobody with a trunk while there is a queue.
//! So trunks collect tickets for the cases that go up. Who has a ticket for a whole trunk has the lift kept half empty
//! until one comes.
//!
//! *Applied.* Costs are grouped, four groups to a factor of two, and neighbours that chance may have parted are one
//! ([`super::kinds`]). Of the work that a class gets, a quarter of a group's part of what is offered is credited to the
//! group, and what is let in of the group is taken from that. A group whose credit covers one of its requests is *due*.
//! Small requests may be in flight in numbers among which a large one would be late. So while a group is due, and until
//! those let in for that reason are answered, all are tested as if they cost as much: due ones as far as that goes,
//! others leave them a place, and leave the more room the dearer they are (small ones first, within less room).
//!
//! *Awkward cases.* What is not expected in time even alone is due nothing. A rare kind collects tickets slowly and
//! spends them when one comes, so the lift is kept half empty for it no more often than it gets in. A class that has
//! only one kind of cost, or whose large requests get more than their quarter as it is, never sees any of this. What a
//! kind costs is learned, and moves: groups are of costs relative to the mean, because at the start all costs move
//! together; what a group has that is no longer seen goes to a neighbour that is, or is forgotten, and one seen once is
//! due nothing; and one that has had its part of late, whatever its tickets say, waits.
//!
//! *Source.* Credits that carry over are those of deficit round robin (M. Shreedhar, G. Varghese, SIGCOMM 1995).

mod kept;
mod patience;

use alloc::vec::Vec;
use core::time::Duration;

use super::super::{Context, Load};
use super::buckets::{BUCKETS, bucket_middle, bucket_of};
use super::kinds::Kinds;
use crate::estimate::{Average, Costs};
use crate::request::ClassId;
use crate::time::Timestamp;
use patience::Patience;

/// The part of its proportional share of the work that every group keeps.
pub(in crate::admission) const KEPT: f64 = 0.25;
/// What is credited of it: tickets are lost where a kind's cost moves, and where more are collected than may be.
const CREDITED: f64 = 1.2 * KEPT;
/// A group that of late had this part of its share is not due.
const HAD: f64 = 1.5 * KEPT;
/// What is late: time constant, seconds.
const TAU: f64 = 20.0;
/// The credit of so many of its requests at most, or of so many seconds: who could not be let in for long does not get
/// the servers for as long afterwards.
const MOST_REQUESTS: f64 = 4.0;
const MOST_SECONDS: f64 = 2.0;
/// A group that has not been seen for so many times its mean interval is gone.
const GONE: f64 = 5.0;
/// The least time after which, seconds.
const GONE_LEAST: f64 = 0.2;
/// A group that was seen once is forgotten after so long, seconds. Until it was seen again it is due nothing.
const ONCE: f64 = 20.0;
/// Intervals between arrivals that are remembered.
const INTERVALS: f64 = 8.0;
/// Of the room that the floor leaves, others have this part at least: who costs nearly as much is not shut out.
const LEAST_LEFT: f64 = 0.5;
/// Places that others leave to who is due.
const PLACE: usize = 1;
/// What stands for the mean cost among the bounds of the groups, seconds.
const MEAN: f64 = 0.05;

/// Per class; empty where the order knows no dues.
#[derive(Debug)]
pub(in crate::admission) struct Dues {
    classes: Vec<Class>,
    /// Mean cost of all requests, seconds, and whether it is known for sure.
    mean: f64,
    is_sure: bool,
}

/// What is known of all costs together.
#[derive(Clone, Copy, Debug)]
pub(in crate::admission) struct Known {
    /// Their mean, seconds.
    mean: f64,
    is_sure: bool,
    /// The deviation of what was learned of one, a part of it.
    chance: f64,
}

impl Known {
    pub(in crate::admission) fn of(costs: &Costs) -> Known {
        Known {
            mean: costs.mean().unwrap_or_else(|| costs.class_mean(0)),
            is_sure: costs.is_settled(),
            chance: costs.chance(),
        }
    }
}

/// What a request is held to within its class.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Terms {
    /// The least cost at which it is tested, and the greatest, seconds.
    pub(super) floor: f64,
    pub(super) most: f64,
    /// Places that it leaves free.
    pub(super) reserve: usize,
}

/// The largest costs, seconds, that can be answered in time by an application that has nothing else to do.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::admission) struct Possible {
    /// As surely as the SLA asks.
    pub(in crate::admission) surely: f64,
    /// By their mean: those beyond are late more often than not.
    pub(in crate::admission) expected: f64,
}

impl Possible {
    /// Costs at servers that were never seen with a single request may be too dear by any factor, all of them: then
    /// nothing is beyond what can be expected. What is let in for that reason shows it.
    pub(in crate::admission) fn of(load: &Load, surely: f64, expected: f64) -> Possible {
        Possible { surely, expected: if load.is_sure { expected } else { f64::INFINITY } }
    }
}

/// No terms.
const FREE: Terms = Terms { floor: 0.0, most: f64::INFINITY, reserve: 0 };

#[derive(Clone, Debug)]
struct Class {
    kinds: Kinds,
    /// By the middle of its kind.
    groups: [Group; BUCKETS],
    /// Work let in since the last look.
    admitted: f64,
    /// One bit per group: whether it is due.
    due: u64,
    possible: Possible,
    /// The dearest that was let in because it was due, and until when room is kept for it.
    kept: (usize, Timestamp),
    /// With those that are due and do not fit.
    patience: Patience,
}

/// Work is in means: the cost of a request by the mean.
#[derive(Clone, Copy, Debug, Default)]
struct Group {
    /// Work that arrived and that was let in, fading.
    offered: f64,
    admitted: f64,
    /// Work that is due to it; below 0 when it got more.
    credit: f64,
    /// When the last of it arrived, and the mean interval, seconds.
    last: Timestamp,
    interval: Average,
}

impl Dues {
    pub(in crate::admission) fn new(classes: usize) -> Self {
        let class = Class {
            kinds: Kinds::new(),
            groups: [Group::default(); BUCKETS],
            admitted: 0.0,
            due: 0,
            possible: Possible::default(),
            kept: (0, Timestamp::ZERO),
            patience: Patience::default(),
        };
        Dues { classes: alloc::vec![class; classes], mean: MEAN, is_sure: false }
    }

    /// A request of this cost, seconds, arrives. Its kind.
    pub(in crate::admission) fn offer(&mut self, now: Timestamp, class: ClassId, cost: f64) -> usize {
        let at = self.group_of(cost);
        let Some(class) = self.classes.get_mut(class.index()).filter(|_| self.is_sure) else { return at };
        class.kinds.offer(at, cost / self.mean * MEAN);
        let kind = class.kinds.of(at);
        let group = &mut class.groups[kind];
        if group.offered > 0.0 {
            group.interval.update(now.seconds_since(group.last), 1.0, INTERVALS);
        }
        group.offered += work(kind);
        group.last = now;
        kind
    }

    /// The same of one that costs so many times the mean: what moves the costs of all moves none of them.
    pub(in crate::admission) fn offer_relative(&mut self, now: Timestamp, class: ClassId, cost: f64) -> usize {
        self.offer(now, class, cost * self.mean)
    }

    /// What a request of a kind costs, seconds.
    pub(in crate::admission) fn cost(&self, class: ClassId, kind: usize) -> f64 {
        let cost = self.classes.get(class.index()).map_or(bucket_middle(kind), |class| class.kinds.cost(kind));
        cost / MEAN * self.mean
    }

    /// So many requests of a kind were let in.
    pub(in crate::admission) fn admit(&mut self, cx: &Context<'_>, class: ClassId, kind: usize, count: usize) {
        let Some(class) = self.classes.get_mut(class.index()).filter(|_| self.is_sure && count > 0) else { return };
        let sum = work(kind) * count as f64;
        class.admitted += sum;
        let is_due = class.is_due(kind);
        let group = &mut class.groups[kind];
        group.admitted += sum;
        group.credit -= sum;
        if is_due {
            class.patience.restore();
            let until = cx.now + Duration::try_from_secs_f64(cx.target).unwrap_or_default();
            class.kept = (if cx.now < class.kept.1 { class.kept.0.max(kind) } else { kind }, until);
            if group.credit < work(kind) {
                class.due &= !(1 << kind);
            }
        }
    }

    /// Some requests of a kind were refused.
    pub(in crate::admission) fn refuse(&mut self, cx: &Context<'_>, class: ClassId, kind: usize) {
        let Some(class) = self.classes.get_mut(class.index()).filter(|class| class.is_due(kind)) else { return };
        if cx.load.hanging > 0 && class.patience.refused(cx.now, class.possible.surely) {
            (class.due, class.kept.1) = (0, cx.now);
        }
    }

    /// Ten times a second: finds the kinds, and gives credit for what was let in. `possible`: by class.
    pub(in crate::admission) fn settle(
        &mut self,
        now: Timestamp,
        elapsed: f64,
        known: Known,
        possible: impl Fn(usize) -> Possible,
    ) {
        (self.mean, self.is_sure) = (known.mean, known.is_sure);
        for (index, class) in self.classes.iter_mut().enumerate() {
            class.settle(now, elapsed, known.chance);
            class.possible = possible(index);
            class.due = match class.patience.pauses(now) {
                true => 0,
                false => class.find_due(class.possible.expected / self.mean.max(f64::MIN_POSITIVE)),
            };
        }
    }

    /// How many requests of a kind go first.
    pub(in crate::admission) fn due(&self, class: ClassId, kind: usize) -> usize {
        let Some(class) = self.classes.get(class.index()) else { return 0 };
        if class.is_due(kind) { (class.groups[kind].credit / work(kind)) as usize } else { 0 }
    }

    /// What a request of a kind and of this cost, seconds, is held to.
    pub(super) fn terms(&self, now: Timestamp, class: ClassId, kind: usize, cost: f64) -> Terms {
        let Some(class) = self.classes.get(class.index()) else { return FREE };
        let Some(dearest) = class.dearest(now) else { return FREE };
        // Who is hardly in time alone gets a processor alone.
        let most = class.possible.surely;
        let floor = (work(dearest) * self.mean).min(most);
        if class.is_due(kind) {
            return Terms { floor, most, reserve: 0 };
        }
        // Room for so many of the floor's cost, less the part of it that the request's own cost is of that.
        let left = (1.0 - cost / floor).max(LEAST_LEFT);
        Terms { floor: floor / left, most: f64::INFINITY, reserve: if class.due == 0 { 0 } else { PLACE } }
    }

    fn group_of(&self, cost: f64) -> usize {
        bucket_of(cost / self.mean * MEAN)
    }
}

impl Class {
    fn settle(&mut self, now: Timestamp, elapsed: f64, chance: f64) {
        let keep = libm::exp(-elapsed / TAU);
        self.kinds.settle(keep, chance);
        self.regroup();
        let offered: f64 = self.groups.iter().map(|group| group.offered).sum();
        let part = if offered > 0.0 { CREDITED * core::mem::take(&mut self.admitted) / offered } else { 0.0 };
        for at in 0..BUCKETS {
            if self.groups[at].is_gone(now) {
                self.hand_over(at);
            }
            let group = &mut self.groups[at];
            let gain = group.offered * part;
            let most = (MOST_REQUESTS * work(at)).max(gain / elapsed.max(1e-3) * MOST_SECONDS);
            group.credit = (group.credit + gain).clamp(-work(at), most);
            (group.offered, group.admitted) = (group.offered * keep, group.admitted * keep);
        }
    }

    /// What a group has that is no longer seen goes to a neighbour that was seen since: what was learned of the cost
    /// has moved. Where there is none, it is forgotten.
    fn hand_over(&mut self, from: usize) {
        let gone = core::mem::take(&mut self.groups[from]);
        let near = from.saturating_sub(1)..(from + 2).min(BUCKETS);
        let since = |at: &usize| self.groups[*at].offered > 0.0 && self.groups[*at].last > gone.last;
        if let Some(to) = near.filter(since).max_by_key(|at| self.groups[*at].last) {
            self.groups[to].join(gone);
        }
    }

    /// What groups have that became part of another's kind is that one's.
    fn regroup(&mut self) {
        for at in 0..BUCKETS {
            let kind = self.kinds.of(at);
            if kind != at && self.groups[at].offered > 0.0 {
                let group = core::mem::take(&mut self.groups[at]);
                self.groups[kind].join(group);
            }
        }
    }

    fn is_due(&self, kind: usize) -> bool {
        self.due >> kind & 1 == 1
    }

    fn find_due(&self, possible: f64) -> u64 {
        let sum = |of: fn(&Group) -> f64| self.groups.iter().map(of).sum::<f64>();
        let (offered, admitted) = (sum(|group| group.offered), sum(|group| group.admitted));
        let is_due = |(at, group): (usize, &Group)| {
            let had = group.admitted * offered >= HAD * admitted * group.offered;
            group.interval.get().is_some() && group.credit >= work(at) && !had && work(at) <= possible
        };
        self.groups.iter().enumerate().map(|of| (of.0, is_due(of))).fold(0, |due, (at, is)| due | u64::from(is) << at)
    }

    /// The dearest group for which room is kept.
    fn dearest(&self, now: Timestamp) -> Option<usize> {
        let due = (self.due != 0).then(|| 63 - self.due.leading_zeros() as usize);
        due.max((now < self.kept.1).then_some(self.kept.0))
    }
}

impl Group {
    /// Not seen for so long that it hardly comes again.
    fn is_gone(&self, now: Timestamp) -> bool {
        let longest = self.interval.get().map_or(ONCE, |interval| (GONE * interval).max(GONE_LEAST));
        self.offered > 0.0 && now.seconds_since(self.last) > longest
    }

    fn join(&mut self, other: Group) {
        if self.offered > 0.0 {
            self.offered += other.offered;
            self.admitted += other.admitted;
            self.credit += other.credit;
            self.last = self.last.max(other.last);
            if self.interval.weight() < other.interval.weight() {
                self.interval = other.interval;
            }
        } else {
            *self = other;
        }
    }
}

/// The work of a request of a group, in means.
fn work(group: usize) -> f64 {
    bucket_middle(group) / MEAN
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The part of what was offered of late that is of the dearest group, when so many seconds have passed: small
    /// requests of this cost, 100/s, which are let in, and large ones, 20/s, five times as dear as `MEAN`.
    fn part_of_large(dues: &mut Dues, seconds: core::ops::Range<u64>, small: f64) -> f64 {
        let class = ClassId(0);
        let known = Known { mean: MEAN, is_sure: true, chance: 0.0 };
        for tenth in seconds.start * 10..seconds.end * 10 {
            let now = Timestamp::ZERO + Duration::from_millis(tenth * 100);
            (0..2).for_each(|_| _ = dues.offer(now, class, 5.0 * MEAN));
            let kind = (0..10).map(|_| dues.offer(now, class, small)).max().unwrap_or(0);
            let (all, sum) = (&mut dues.classes[0], 10.0 * work(kind));
            all.admitted += sum;
            all.groups[kind].admitted += sum;
            dues.settle(now, 0.1, known, |_| Possible { surely: 1.0, expected: 1.0 });
        }
        let groups = &dues.classes[0].groups;
        let sum: f64 = groups.iter().map(|group| group.offered).sum();
        groups[bucket_of(5.0 * MEAN)].offered / sum
    }

    #[test]
    fn a_cost_that_moves_across_a_bound_takes_along_what_was_offered() {
        let mut dues = Dues::new(1);
        let before = part_of_large(&mut dues, 0..40, MEAN);
        assert!((0.45..0.55).contains(&before), "half of the work: {before}");
        let after = part_of_large(&mut dues, 40..42, MEAN * 1.2);
        assert!((0.4..0.55).contains(&after), "{after}");
    }
}
