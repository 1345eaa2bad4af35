//! The published part of a controller: what every worker may read without a lock.
//!
//! A request's first test is a look-up here: its class's guarantee (a leaky bucket shared by all workers), then the
//! class's share in the threshold table. Only what the table cannot decide goes on to the controller, behind its lock.
//! The controller writes the table; workers only read it, and count in a lane of their own, so that no two threads
//! write the same cache line per request (Cataclysm, section 3.3: "a few arithmetic operations per request").

mod tenants;

use alloc::boxed::Box;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use core::time::Duration;

use crate::bucket::SharedBucket;
use crate::decision::{Reason, Rejection};
use crate::request::{ClassId, Request, RequestTypeId, TenantKey};
use crate::rng::splitmix64;
use crate::setup::{ClassSetup, Setup};
use crate::time::Timestamp;
use tenants::{Refused, Slots};

pub(crate) use tenants::SLOTS;

/// The answer of the lock-free test.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Verdict {
    /// It conforms to its class's guarantee: admitted with no further test.
    Guaranteed,
    /// The table lets it pass.
    Pass,
    /// The table does not decide: the controller must.
    Ask,
    /// The request is refused.
    Refuse(Rejection),
}

/// What the table says of a class.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Share {
    /// The controller decides each request.
    Ask,
    /// This share passes, 0 to 1; the rest is refused.
    Admit(f64),
}

/// In a class's word: ask the controller.
const ASK: u64 = u64::MAX;
/// In a class's word: a draw of 32 bits below this passes, so this passes always.
const ALWAYS: u64 = 1 << 32;

/// The table and counters that all workers of an application share.
#[derive(Debug)]
pub struct Policer {
    policy: &'static str,
    shadow: AtomicBool,
    classes: Box<[Class]>,
    /// Per request type: how good answers should be, in bits of an `f64`.
    qualities: Box<[AtomicU64]>,
    lanes: Box<[Lane]>,
}

#[derive(Debug)]
struct Class {
    /// `ASK`, or the bound that a 32-bit draw must stay below.
    share: AtomicU64,
    /// The same of requests that were tried before.
    share_of_retries: AtomicU64,
    /// Until when first tries of the class go before retries; nanoseconds.
    retries_held_until: AtomicU64,
    retry_after_nanos: AtomicU64,
    /// `None` without a guarantee, so that the ordinary class costs no clock arithmetic.
    guarantee: Option<SharedBucket>,
    /// Of first tries, where a share is neither none nor all.
    tenants: Slots,
}

/// Counters and coins of one worker. Aligned so that lanes never share a cache line (nor a prefetched pair of them).
#[derive(Debug)]
#[repr(align(128))]
struct Lane {
    coin: AtomicU64,
    counts: Box<[Counts]>,
    refused: Refused,
}

#[derive(Debug, Default)]
struct Counts {
    offered: AtomicU64,
    retries: AtomicU64,
    guaranteed: AtomicU64,
    refused: AtomicU64,
}

/// Sums over all lanes, since the policer was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClassCounts {
    /// Requests that arrived.
    pub offered: u64,
    /// Of these, tried before.
    pub retries: u64,
    /// Of these, admitted by the guarantee.
    pub guaranteed: u64,
    /// Of these, refused by the table (or, in shadow mode, that would have been).
    pub refused: u64,
}

impl Policer {
    /// A policer that asks the controller for everything but guaranteed requests. `lanes` is the number of workers.
    pub(crate) fn new(policy: &'static str, setup: &Setup, lanes: usize, seed: u64) -> Self {
        let classes = &setup.classes;
        let class = |setup: &ClassSetup| Class {
            share: AtomicU64::new(ASK),
            share_of_retries: AtomicU64::new(ASK),
            retries_held_until: AtomicU64::new(0),
            retry_after_nanos: AtomicU64::new(1_000_000_000),
            guarantee: (setup.min_rate > 0.0).then(|| SharedBucket::new(setup.min_rate, setup.burst)),
            tenants: Slots::default(),
        };
        let mut seed = seed;
        let mut lane = |_| Lane {
            coin: AtomicU64::new(splitmix64(&mut seed)),
            counts: classes.iter().map(|_| Counts::default()).collect(),
            refused: Refused::default(),
        };
        Policer {
            policy,
            shadow: AtomicBool::new(setup.shadow),
            classes: classes.iter().map(class).collect(),
            qualities: setup.request_types.iter().map(|_| AtomicU64::new(1f64.to_bits())).collect(),
            lanes: (0..lanes.max(1)).map(&mut lane).collect(),
        }
    }

    /// Decides what can be decided without the controller. `lane` is the calling worker's number: a lane has one
    /// writer, or counts are lost. No lock, no allocation. While first tries of its class are refused, a retry has no
    /// part in the guarantee.
    ///
    /// # Panics
    /// When `lane` or the request's class is out of range: the driver classified by another setup.
    pub fn police(&self, lane: usize, now: Timestamp, request: &Request) -> Verdict {
        let Request { class, is_retry, tenant, .. } = *request;
        let lane = &self.lanes[lane];
        let counts = &lane.counts[class.index()];
        let entry = &self.classes[class.index()];
        bump(&counts.offered);
        if is_retry {
            bump(&counts.retries);
        }
        let is_held = is_retry && self.holds_retries(now, class);
        if !is_held && entry.guarantee.as_ref().is_some_and(|bucket| bucket.conforms(now)) {
            bump(&counts.guaranteed);
            return Verdict::Guaranteed;
        }
        match entry.word(tenant, is_retry) {
            ASK => Verdict::Ask,
            ALWAYS => Verdict::Pass,
            share if share > 0 && lane.flip() < share => Verdict::Pass,
            _ => self.refuse(lane, class, tenant),
        }
    }

    fn refuse(&self, lane: &Lane, class: ClassId, tenant: TenantKey) -> Verdict {
        bump(&lane.counts[class.index()].refused);
        lane.refused.note(class, tenant);
        Verdict::Refuse(self.rejection(class, Reason::Threshold))
    }

    /// The verdict on a request that [`Policer::police`] gave `before`, now that its body is here. What the table let
    /// pass stands, unless the class was shut meanwhile; it is counted no second time. `lane` as there.
    ///
    /// # Panics
    /// As [`Policer::police`].
    pub fn police_again(&self, lane: usize, request: &Request, before: Verdict) -> Verdict {
        let Request { class, is_retry, tenant, .. } = *request;
        let (lane, share) = (&self.lanes[lane], self.classes[class.index()].word(tenant, is_retry));
        match before {
            Verdict::Guaranteed | Verdict::Refuse(_) => before,
            _ if share == ASK => Verdict::Ask,
            Verdict::Pass if share > 0 => Verdict::Pass,
            Verdict::Ask if share == ALWAYS || (share > 0 && lane.flip() < share) => Verdict::Pass,
            Verdict::Pass | Verdict::Ask => self.refuse(lane, class, tenant),
        }
    }

    /// Whether refusals are decided and counted, but not carried out.
    pub fn shadow(&self) -> bool {
        self.shadow.load(Relaxed)
    }

    /// How good answers to a request type should be, 0 to 1: drivers tell the server. 1 unless a policy degrades, and
    /// for a type that is not there, and in shadow mode. No lock.
    pub fn quality(&self, request_type: RequestTypeId) -> f64 {
        if self.shadow() {
            return 1.0;
        }
        self.qualities.get(request_type.index()).map_or(1.0, |bits| f64::from_bits(bits.load(Relaxed)))
    }

    /// Name of the active policy.
    pub fn policy(&self) -> &'static str {
        self.policy
    }

    /// How many workers it serves.
    pub fn lanes(&self) -> usize {
        self.lanes.len()
    }

    /// A rejection in this policer's words.
    pub(crate) fn rejection(&self, class: ClassId, reason: Reason) -> Rejection {
        let retry_after = Duration::from_nanos(self.classes[class.index()].retry_after_nanos.load(Relaxed));
        Rejection { reason, policy: self.policy, class, retry_after, predicted: None }
    }

    /// Publishes the shares of a class's first tries and of its retries.
    pub(crate) fn publish(&self, class: ClassId, first_tries: Share, retries: Share) {
        let class = &self.classes[class.index()];
        class.share.store(first_tries.word(), Relaxed);
        class.share_of_retries.store(retries.word(), Relaxed);
    }

    /// Of a class's guarantee, `part` is this sentry's from now on.
    pub(crate) fn share_guarantee(&self, class: ClassId, setup: &ClassSetup, part: f64) {
        if let Some(bucket) = &self.classes[class.index()].guarantee {
            bucket.set(setup.min_rate * part, setup.burst * part);
        }
    }

    /// First tries of a class go before its retries until then.
    pub(crate) fn hold_retries(&self, class: ClassId, until: Timestamp) {
        self.classes[class.index()].retries_held_until.store(until.as_nanos(), Relaxed);
    }

    /// Whether first tries of a class go before its retries now.
    pub(crate) fn holds_retries(&self, now: Timestamp, class: ClassId) -> bool {
        now.as_nanos() < self.classes[class.index()].retries_held_until.load(Relaxed)
    }

    pub(crate) fn publish_retry_after(&self, class: ClassId, retry_after: Duration) {
        let nanos = retry_after.as_nanos().min(u64::MAX as u128) as u64;
        self.classes[class.index()].retry_after_nanos.store(nanos, Relaxed);
    }

    pub(crate) fn publish_quality(&self, request_type: RequestTypeId, quality: f64) {
        if let Some(bits) = self.qualities.get(request_type.index()) {
            bits.store(quality.clamp(0.0, 1.0).to_bits(), Relaxed);
        }
    }

    pub(crate) fn publish_quality_of_all(&self, quality: f64) {
        (0..self.qualities.len()).for_each(|at| self.publish_quality(RequestTypeId(at as u16), quality));
    }

    pub(crate) fn set_shadow(&self, shadow: bool) {
        self.shadow.store(shadow, Relaxed);
    }

    /// What the table says of a class's first tries now.
    pub fn share(&self, class: ClassId) -> Share {
        match self.classes[class.index()].share.load(Relaxed) {
            ASK => Share::Ask,
            word => Share::Admit(word as f64 / ALWAYS as f64),
        }
    }

    /// A class's counts, summed over the lanes.
    pub fn counts(&self, class: ClassId) -> ClassCounts {
        self.lanes.iter().map(|lane| &lane.counts[class.index()]).fold(ClassCounts::default(), |sum, lane| {
            ClassCounts {
                offered: sum.offered + lane.offered.load(Relaxed),
                retries: sum.retries + lane.retries.load(Relaxed),
                guaranteed: sum.guaranteed + lane.guaranteed.load(Relaxed),
                refused: sum.refused + lane.refused.load(Relaxed),
            }
        })
    }

    /// The classes, most important first.
    pub(crate) fn classes(&self) -> impl Iterator<Item = ClassId> + use<> {
        let count = self.classes.len();
        (0..count).map(|index| ClassId(index as u8))
    }

    /// Takes over what the guarantees of `old` have let through, so that a reload does not refill them.
    pub(crate) fn inherit_guarantees(&mut self, old: &Policer, setups: &[(ClassSetup, Option<ClassId>)]) {
        for (class, (setup, before)) in self.classes.iter_mut().zip(setups) {
            let before = before.and_then(|id| old.classes[id.index()].guarantee.as_ref());
            if let (Some(_), Some(before)) = (&class.guarantee, before) {
                class.guarantee = Some(before.reshaped(setup.min_rate, setup.burst));
            }
        }
    }
}

impl Policer {
    /// Goes on with the table of `old`, whose classes are the same: a policy publishes only when it computes anew.
    pub(crate) fn inherit_shares(&self, old: &Policer) {
        for (class, before) in self.classes.iter().zip(&old.classes) {
            class.share.store(before.share.load(Relaxed), Relaxed);
            class.share_of_retries.store(before.share_of_retries.load(Relaxed), Relaxed);
        }
    }
}

impl Share {
    fn word(self) -> u64 {
        match self {
            Share::Ask => ASK,
            Share::Admit(p) => (p.clamp(0.0, 1.0) * ALWAYS as f64) as u64,
        }
    }
}

impl Class {
    /// What a request's draw must stay below.
    fn word(&self, tenant: TenantKey, is_retry: bool) -> u64 {
        if is_retry {
            return self.share_of_retries.load(Relaxed);
        }
        match self.share.load(Relaxed) {
            share @ (ASK | ALWAYS) => share,
            share => self.tenants.word(tenant).unwrap_or(share),
        }
    }
}

impl Lane {
    /// 32 uniform bits. Load and store suffice: a lane has one writer.
    fn flip(&self) -> u64 {
        let mut coin = self.coin.load(Relaxed);
        let bits = splitmix64(&mut coin);
        self.coin.store(coin, Relaxed);
        bits >> 32
    }
}

/// One more, by the counter's only writer: cheaper than a locked add.
fn bump(counter: &AtomicU64) {
    counter.store(counter.load(Relaxed) + 1, Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sla::{Sla, Statistic};
    use alloc::vec;
    use alloc::vec::Vec;

    const GOLD: ClassId = ClassId(0);
    const REST: ClassId = ClassId(1);

    fn of(class: ClassId) -> Request {
        Request { class, ..Request::default() }
    }

    fn policer(min_rate: f64) -> Policer {
        let gold = ClassSetup { min_rate, burst: 2.0, ..ClassSetup::new("gold") };
        let sla = Sla::constant(Statistic::P95, Duration::from_secs(1)).expect("more than zero");
        let mut setup = Setup::simple("shop", sla, []);
        setup.classes = vec![gold, ClassSetup::new("rest")];
        Policer::new("threshold", &setup, 2, 1)
    }

    #[test]
    fn asks_until_a_table_is_published() {
        assert_eq!(policer(0.0).police(0, Timestamp::ZERO, &of(GOLD)), Verdict::Ask);
    }

    #[test]
    fn a_share_passes_in_proportion_and_is_counted_over_all_lanes() {
        let policer = policer(0.0);
        policer.publish(GOLD, Share::Admit(1.0), Share::Admit(1.0));
        policer.publish(REST, Share::Admit(0.25), Share::Admit(0.25));
        let mut passed = 0;
        for i in 0..100_000 {
            assert_eq!(policer.police(i % 2, Timestamp::ZERO, &of(GOLD)), Verdict::Pass);
            passed += u64::from(policer.police(i % 2, Timestamp::ZERO, &of(REST)) == Verdict::Pass);
        }
        assert!((24_000..26_000).contains(&passed), "{passed}");
        let counts = policer.counts(REST);
        assert_eq!((counts.offered, counts.refused), (100_000, 100_000 - passed));
    }

    #[test]
    fn what_passed_stands_when_its_body_is_here_unless_the_class_was_shut() {
        let policer = policer(0.0);
        let again = |before| policer.police_again(0, &of(GOLD), before);
        assert_eq!(again(Verdict::Pass), Verdict::Ask, "the controller decides by now");
        policer.publish(GOLD, Share::Admit(1e-9), Share::Admit(1e-9));
        assert_eq!((again(Verdict::Pass), again(Verdict::Guaranteed)), (Verdict::Pass, Verdict::Guaranteed));
        policer.publish(GOLD, Share::Admit(1.0), Share::Admit(1.0));
        assert_eq!(again(Verdict::Ask), Verdict::Pass);
        policer.publish(GOLD, Share::Admit(0.0), Share::Admit(0.0));
        for before in [Verdict::Pass, Verdict::Ask] {
            assert!(matches!(again(before), Verdict::Refuse(_)), "{before:?}");
        }
        assert_eq!(again(Verdict::Guaranteed), Verdict::Guaranteed);
        assert_eq!(policer.counts(GOLD), ClassCounts { offered: 0, guaranteed: 0, refused: 2, retries: 0 });
    }

    #[test]
    fn guaranteed_requests_pass_even_when_the_class_is_shut() {
        let policer = policer(10.0);
        policer.publish(GOLD, Share::Admit(0.0), Share::Admit(0.0));
        let verdicts =
            vec![0, 0, 0, 100].into_iter().map(|ms| policer.police(0, Timestamp::from_millis(ms), &of(GOLD)));
        let guaranteed: Vec<bool> = verdicts.map(|v| v == Verdict::Guaranteed).collect();
        assert_eq!(guaranteed, [true, true, false, true]);
    }

    #[test]
    fn a_held_retry_has_no_part_in_the_guarantee() {
        let policer = policer(10.0);
        policer.hold_retries(GOLD, Timestamp::from_millis(100));
        let police = |ms, is_retry| policer.police(0, Timestamp::from_millis(ms), &Request { is_retry, ..of(GOLD) });
        assert_eq!((police(0, true), police(0, false)), (Verdict::Ask, Verdict::Guaranteed));
        assert_eq!(police(100, true), Verdict::Guaranteed, "it is over");
        assert_eq!((policer.counts(GOLD).offered, policer.counts(GOLD).retries), (3, 2));
    }

    #[test]
    fn a_reload_does_not_refill_a_guarantee() {
        let old = policer(1.0);
        assert_eq!(old.police(0, Timestamp::ZERO, &of(GOLD)), Verdict::Guaranteed);
        assert_eq!(old.police(0, Timestamp::ZERO, &of(GOLD)), Verdict::Guaranteed);
        let mut new = policer(1.0);
        let gold = ClassSetup { min_rate: 1.0, burst: 2.0, ..ClassSetup::new("gold") };
        new.inherit_guarantees(&old, &[(gold, Some(GOLD)), (ClassSetup::new("rest"), None)]);
        assert_eq!(new.police(0, Timestamp::ZERO, &of(GOLD)), Verdict::Ask);
    }
}
