//! Processor time for handshakes: who gets one when there is not enough for all.
//!
//! *Intuition.* A full handshake costs a worker as much as dozens of refusals, and nobody has asked for anything yet.
//! So handshakes may have what a worker's other business leaves of its processor, less a margin, and never less than a
//! tenth. That is a bucket of processor seconds. While it is full enough everybody gets a handshake. When it is half
//! empty, those whose clients were never here are refused by a reset, before any cryptography; whoever comes back with
//! a ticket of ours is cheaper, has shown patience before, and may draw on what the bucket does not hold yet. Where
//! there are classes, each has such a pair of floors: those of more important classes lie lower, so a flood of one
//! class holds the bucket at its own floor and leaves what is below to the classes before it.
//!
//! What is let in close to its floor is likely a flood's. It is done [aside](super::aside), so that nobody else waits
//! for it; and of that no more may wait than strangers leave to all others, as it may get less of a processor than
//! there seemed to be.
//!
//! *Awkward cases.* What a handshake costs depends on the keys and on the machine, so it is learned from the threads'
//! own processor time: of resumed ones, of full ones, and of full ones whose clients leave no choice but RSA. A ticket
//! is believed only when it opens: a client that makes one up is a stranger. A worker that is busy with requests, or
//! with refusing handshakes, lowers the rate by itself: both are its other business. Where other programs take the
//! processor, a worker gets a part of it only, which shows in how long it waits for its turn while it has work: shares
//! are of that part.
//!
//! *Source.* Ours. Others have fixed rates of handshakes (HAProxy's `maxsslrate`), which know no costs and no clients.

use std::time::Duration;

use tidegate_engine::Timestamp;

use super::rank::Claim;

/// Processor seconds that the bucket holds.
const BURST: f64 = 0.1;

/// Strangers of the last class leave so much of it to all others.
const RESERVE: f64 = BURST / 2.0;

/// From the floor of those who are served before all others to that of strangers of the last class.
const BETWEEN_ENDS: f64 = RESERVE + BURST;

/// Within this of its own floor a handshake gives way; or within half of what lies between two floors, if that is less.
const CLOSE: f64 = RESERVE / 2.0;

/// Of a worker's processor, what all its business together may take before handshakes are held back.
const BUSY_AT_MOST: f64 = 0.9;

/// Of it, what handshakes always get.
const LEAST: f64 = 0.1;

/// How often the rate is set.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Part of a new measurement in what is believed.
const WEIGHT: f64 = 1.0 / 16.0;

/// What handshakes cost until the first was measured, seconds, by [`Kind`].
const FIRST_COSTS: [f64; 3] = [300e-6, 300e-6, 100e-6];

/// How a session begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// With everything: key exchange, certificate, signature.
    Full,
    /// The same for a client that verifies no signature but RSA's: where there are certificates of both sorts, these
    /// cost several times as much.
    FullRsa,
    /// From a ticket.
    Resumed,
}

impl Kind {
    /// That of a stranger, by whether it verifies more than RSA's signatures.
    pub(crate) fn full(verifies_ecdsa: bool) -> Kind {
        if verifies_ecdsa { Kind::Full } else { Kind::FullRsa }
    }
}

/// One worker's processor time for handshakes.
#[derive(Debug)]
pub(crate) struct Budget {
    /// Learned, seconds, by kind.
    costs: [f64; FIRST_COSTS.len()],
    /// Processor seconds to be spent now; less than none when those who came back drew on the future.
    left: f64,
    /// Processor seconds a second.
    rate: f64,
    /// When `left` was that.
    at: Timestamp,
    /// When the rate was set, the processor time the worker had used by then, and what handshakes took since.
    looked: Timestamp,
    usage: Usage,
    shaken: f64,
}

/// What a thread has had of a processor since it began.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Usage {
    /// Time that it ran.
    pub(crate) used: Duration,
    /// Time that it had work and waited for its turn.
    pub(crate) waited: Duration,
}

/// Processor time that a handshake took: the worker's, and the other thread's.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Took {
    pub(crate) here: Duration,
    pub(crate) aside: Duration,
}

impl Took {
    pub(crate) fn and(self, more: Took) -> Took {
        Took { here: self.here + more.here, aside: self.aside + more.aside }
    }

    pub(crate) fn all(self) -> Duration {
        self.here + self.aside
    }
}

/// Paid for in advance.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Paid {
    seconds: f64,
    gives_way: bool,
}

impl Paid {
    /// Whether others go before it.
    pub(crate) fn gives_way(&self) -> bool {
        self.gives_way
    }
}

impl Budget {
    /// A worker that has had so much by now.
    pub(crate) fn new(now: Timestamp, usage: Usage) -> Self {
        let rate = BUSY_AT_MOST;
        Budget { costs: FIRST_COSTS, left: BURST, rate, at: now, looked: now, usage, shaken: 0.0 }
    }

    /// Sets the rate by what the worker's other business took, when it is time to; `usage`: what it has had by now.
    pub(crate) fn look(&mut self, now: Timestamp, usage: impl FnOnce() -> Usage) {
        let elapsed = now.seconds_since(self.looked);
        if elapsed < LOOK_EVERY.as_secs_f64() {
            return;
        }
        let usage = usage();
        let used = usage.used.saturating_sub(self.usage.used).as_secs_f64();
        let waited = usage.waited.saturating_sub(self.usage.waited).as_secs_f64();
        // Of the time that it had work, the part that it could do some.
        let part = if waited > 0.0 { used / (used + waited) } else { 1.0 };
        let other = (used - self.shaken).max(0.0) / elapsed;
        self.refill(now);
        // After a pause one look says all there is to say; in a flood there are twenty a second.
        let weight = 1.0 - (-elapsed / 0.2).exp();
        let target = (BUSY_AT_MOST * part - other).max(LEAST * part);
        self.rate += weight * (target - self.rate);
        (self.looked, self.usage, self.shaken) = (now, usage, 0.0);
    }

    /// Pays for a handshake, which is of kind `full` where the client was not here before; `None`: it gets none.
    /// `waiting`: how many wait that gave way.
    pub(crate) fn pay(&mut self, now: Timestamp, claim: Claim, full: Kind, waiting: usize) -> Option<Paid> {
        self.refill(now);
        let cost = self.cost(if claim.comes_back() { Kind::Resumed } else { full });
        let close = CLOSE.min(BETWEEN_ENDS * claim.step() / 2.0);
        let least = floor(claim) + cost;
        let gives_way = self.left < least + close;
        let dearest = self.cost(Kind::Full).max(self.cost(Kind::FullRsa));
        if gives_way && waiting as f64 * dearest > RESERVE {
            // Time that the thread does not have is not saved up for the worker to spend.
            self.left = self.left.min(least);
            return None;
        }
        if self.left < least {
            return None;
        }
        self.left -= cost;
        Some(Paid { seconds: cost, gives_way })
    }

    /// Whether a stranger of the last class would be refused now: only then it matters who is who.
    pub(crate) fn is_short(&mut self, now: Timestamp, full: Kind) -> bool {
        self.refill(now);
        self.left - self.cost(full) < RESERVE
    }

    /// Whether it may matter soon: a stranger of the last class would give way now, or be refused.
    pub(crate) fn is_close(&mut self, now: Timestamp, full: Kind) -> bool {
        self.refill(now);
        self.left - self.cost(full) < RESERVE + CLOSE
    }

    /// A handshake is over: what was paid is corrected by what it took. `kind`: `None` where it failed.
    pub(crate) fn settle(&mut self, paid: Paid, kind: Option<Kind>, took: Took) {
        let seconds = took.all().as_secs_f64();
        self.left += paid.seconds - seconds;
        self.shaken += took.here.as_secs_f64();
        if let Some(kind) = kind {
            let cost = &mut self.costs[kind as usize];
            *cost += WEIGHT * (seconds - *cost);
        }
    }

    /// What a handshake costs, processor seconds.
    pub(crate) fn cost(&self, kind: Kind) -> f64 {
        self.costs[kind as usize]
    }

    /// There is so much in the bucket now.
    #[cfg(any(test, feature = "faults"))]
    pub(crate) fn hold(&mut self, now: Timestamp, seconds: f64) {
        (self.left, self.at) = (seconds, now);
    }

    fn refill(&mut self, now: Timestamp) {
        self.left = (self.left + self.rate * now.seconds_since(self.at)).min(BURST);
        self.at = self.at.max(now);
    }
}

/// What a handshake leaves in the bucket at least.
fn floor(claim: Claim) -> f64 {
    -BURST + BETWEEN_ENDS * claim.position()
}

#[cfg(test)]
mod tests {
    use tidegate_engine::ClassId;

    use super::*;

    fn here(seconds: f64) -> Took {
        Took { here: Duration::from_secs_f64(seconds), aside: Duration::ZERO }
    }

    /// A worker in a made-up second: what it did, and how long each thing took it.
    struct Played {
        budget: Budget,
        now: Timestamp,
        used: Duration,
        full: f64,
        /// Part of a processor that the worker has.
        part: f64,
    }

    impl Played {
        fn new(full: f64) -> Self {
            Played {
                budget: Budget::new(Timestamp::ZERO, Usage::default()),
                now: Timestamp::ZERO,
                used: Duration::ZERO,
                full,
                part: 1.0,
            }
        }

        /// A client of the only class comes after `gap` seconds; whether it gets its handshake.
        fn comes(&mut self, gap: f64, comes_back: bool, other: f64) -> bool {
            self.comes_as(gap, Claim::of(ClassId(0), 1, 1, comes_back), other)
        }

        fn comes_as(&mut self, gap: f64, claim: Claim, other: f64) -> bool {
            self.now = self.now + Duration::from_secs_f64(gap);
            self.used += Duration::from_secs_f64(other);
            let used = self.used;
            // With less than a processor it waits for the rest of each turn.
            let waited = used.mul_f64(1.0 / self.part - 1.0);
            self.budget.look(self.now, || Usage { used, waited });
            let Some(paid) = self.budget.pay(self.now, claim, Kind::Full, 0) else { return false };
            let comes_back = claim.comes_back();
            let (kind, seconds) = if comes_back { (Kind::Resumed, self.full / 3.0) } else { (Kind::Full, self.full) };
            self.used += Duration::from_secs_f64(seconds);
            self.budget.settle(paid, Some(kind), here(seconds));
            true
        }
    }

    /// Five times what a processor can do, in strangers, and a few who come back: all of these are served, and the
    /// strangers get what is left and no more.
    #[test]
    fn a_flood_of_strangers_leaves_those_who_come_back_served() {
        let full = 400e-6;
        let mut played = Played::new(full);
        let gap = full / 5.0;
        let (mut strangers, mut back, mut back_served) = (0, 0, 0);
        let rounds = (10.0 / gap) as usize;
        for round in 0..rounds {
            if round % 100 == 0 {
                back += 1;
                back_served += usize::from(played.comes(gap, true, 0.0));
            } else {
                // A refusal costs something, too.
                strangers += usize::from(played.comes(gap, false, 5e-6));
            }
        }
        assert_eq!(back, back_served);
        let busy = strangers as f64 * full / 10.0;
        assert!((0.6..=BUSY_AT_MOST + 0.05).contains(&busy), "{busy} of the processor for strangers");
    }

    /// Five times what a processor can do, by who comes in each round: how many of each of three classes came, and how
    /// many of them were served.
    fn flood(played: &mut Played, seconds: f64, who: impl Fn(usize) -> (u8, bool)) -> [(u32, u32); 3] {
        let gap = played.full / 5.0;
        let mut counts = [(0, 0); 3];
        for round in 0..(seconds / gap) as usize {
            let (class, comes_back) = who(round % 50);
            let is_served = played.comes_as(gap, Claim::of(ClassId(class), 3, 3, comes_back), 1e-6);
            let (came, served) = &mut counts[usize::from(class)];
            *came += 1;
            *served += u32::from(is_served);
        }
        counts
    }

    /// In a flood of the last class, strangers or with tickets, strangers of the classes before it are served. In one
    /// of the middle class the first is served, and the last gets nothing.
    #[test]
    fn a_flood_of_one_class_leaves_those_before_it_served() {
        for tickets in [false, true] {
            let mut played = Played::new(400e-6);
            let [first, middle, last] = flood(&mut played, 10.0, |n| match n {
                0 => (0, false),
                1 => (1, false),
                _ => (2, tickets),
            });
            assert_eq!((first.0, middle.0), (first.1, middle.1), "of the last class come back: {tickets}");
            assert!(0 < last.1 && last.1 < last.0, "{last:?}");
            let middling = |n| match n {
                0 => (0, false),
                n if n % 5 > 0 => (1, false),
                _ => (2, tickets),
            };
            // Until what was there is used up, they have it.
            flood(&mut played, 1.0, middling);
            let [first, middle, last] = flood(&mut played, 10.0, middling);
            assert_eq!((first.0, last.1), (first.1, 0), "of the last class come back: {tickets}");
            assert!(0 < middle.1 && middle.1 < middle.0, "{middle:?}");
        }
    }

    /// A worker that others leave a third of a processor: strangers get most of that, and who comes back is served.
    #[test]
    fn shares_are_of_what_others_leave() {
        let full = 400e-6;
        let mut played = Played { part: 1.0 / 3.0, ..Played::new(full) };
        let gap = full / 5.0;
        let mut served = 0;
        for round in 0..(10.0 / gap) as usize {
            if round % 100 == 0 {
                assert!(played.comes(gap, true, 0.0));
            } else {
                served += usize::from(played.comes(gap, false, 1e-6));
            }
        }
        let busy = served as f64 * full / 10.0;
        assert!((0.2..=0.34).contains(&busy), "{busy} of a processor for strangers");
    }

    /// While requests keep the worker busy, strangers get a tenth; when it is idle again, all that there is.
    #[test]
    fn handshakes_get_what_requests_leave() {
        let full = 1e-3;
        let mut played = Played::new(full);
        let second = |played: &mut Played, other: f64| {
            (0..5000).filter(|_| played.comes(200e-6, false, other * 200e-6)).count() as f64 * full
        };
        second(&mut played, 0.85);
        let busy = second(&mut played, 0.85);
        assert!((0.05..=0.2).contains(&busy), "{busy}");
        second(&mut played, 0.0);
        let idle = second(&mut played, 0.0);
        assert!((0.8..=0.95).contains(&idle), "{idle}");
    }

    #[test]
    fn costs_are_learned_by_kind() {
        let mut played = Played::new(3e-3);
        for _ in 0..500 {
            assert!(played.comes(0.02, false, 0.0) && played.comes(0.02, true, 0.0));
        }
        let (full, resumed) = (played.budget.cost(Kind::Full), played.budget.cost(Kind::Resumed));
        assert!((full - 3e-3).abs() < 1e-6 && (resumed - 1e-3).abs() < 1e-6, "{full} {resumed}");
    }

    /// Who can only be answered by a dearer signature is refused before others are.
    #[test]
    fn strangers_pay_by_their_signatures() {
        let mut budget = Budget::new(Timestamp::ZERO, Usage::default());
        for (kind, seconds) in [(Kind::FullRsa, 3e-3), (Kind::Full, 0.5e-3)] {
            for _ in 0..500 {
                budget.hold(Timestamp::ZERO, BURST);
                let paid = budget.pay(Timestamp::ZERO, Claim::NONE, kind, 0).expect("a full bucket");
                budget.settle(paid, Some(kind), here(seconds));
            }
        }
        let costs = [Kind::FullRsa, Kind::Full].map(|kind| budget.cost(kind));
        assert!((costs[0] - 3e-3).abs() < 1e-6 && (costs[1] - 0.5e-3).abs() < 1e-6, "{costs:?}");
        budget.hold(Timestamp::ZERO, RESERVE + 1e-3);
        assert!(budget.is_short(Timestamp::ZERO, Kind::FullRsa) && !budget.is_short(Timestamp::ZERO, Kind::Full));
        assert!(budget.pay(Timestamp::ZERO, Claim::NONE, Kind::FullRsa, 0).is_none());
        assert!(budget.pay(Timestamp::ZERO, Claim::NONE, Kind::Full, 0).is_some());
    }

    /// A flood holds the bucket at its own floor: it gives way, and nobody else does. When what gave way does not get
    /// done, no more of it is let in, and all others are.
    #[test]
    fn a_flood_gives_way_and_nobody_else() {
        for flood in [2, 1] {
            let claim = |class| Claim::of(ClassId(class), 3, 3, false);
            let mut budget = Budget::new(Timestamp::ZERO, Usage::default());
            let most_waiting = (RESERVE / FIRST_COSTS[0]) as usize;
            let paid: Vec<_> =
                std::iter::from_fn(|| budget.pay(Timestamp::ZERO, claim(flood), Kind::Full, 0)).collect();
            let first_aside = paid.iter().position(Paid::gives_way).expect("one");
            assert!(paid[..first_aside].iter().all(|paid| !paid.gives_way()) && first_aside > 100, "{first_aside}");
            assert!(paid[first_aside..].iter().all(Paid::gives_way));
            let before =
                budget.pay(Timestamp::ZERO, claim(flood - 1), Kind::Full, usize::MAX).expect("the class before it");
            assert!(!before.gives_way(), "{flood}");
            // However long that lasts, the worker is not to do it.
            for millis in 1..2000 {
                let now = Timestamp::ZERO + Duration::from_millis(millis);
                assert!(budget.pay(now, claim(flood), Kind::Full, most_waiting + 1).is_none(), "{millis}");
            }
            let now = Timestamp::ZERO + Duration::from_millis(2001);
            assert!(budget.pay(now, claim(flood), Kind::Full, most_waiting).is_some_and(|paid| paid.gives_way()));
        }
    }

    /// What fails is paid for as well, and teaches nothing.
    #[test]
    fn a_failure_costs_what_it_took() {
        let mut budget = Budget::new(Timestamp::ZERO, Usage::default());
        let before = (budget.left, budget.costs);
        let paid = budget.pay(Timestamp::ZERO, Claim::NONE, Kind::Full, 0).expect("a full bucket");
        budget.settle(paid, None, here(0.02));
        assert!((before.0 - budget.left - 0.02).abs() < 1e-9);
        assert_eq!(budget.costs, before.1);
    }
}
