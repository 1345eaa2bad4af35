//! Tenants in the published table: how much of whose requests passes, and whose were refused.
//!
//! A table's share is every tenant's alike, unless some are above their fair share of the class: those have shares of
//! their own here, and the others what is left. Whom the table refuses the controller never sees, so each worker
//! remembers of the last few whose they were.

use core::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering::Relaxed};

use super::{Policer, Share};
use crate::request::{ClassId, TenantKey};

/// Tenants of a class with shares of their own, at most. A request is compared with each of them.
pub(crate) const SLOTS: usize = 16;

/// Refused requests of which a worker remembers whose they were; a power of two.
const REMEMBERED: usize = 256;

/// The tenants of one class that have shares of their own. One word is replaced after another: a request in between
/// meets one tenant's share in place of another's.
#[derive(Debug, Default)]
pub(super) struct Slots {
    used: AtomicUsize,
    tenants: [AtomicU64; SLOTS],
    words: [AtomicU64; SLOTS],
    /// The word of all other tenants.
    rest: AtomicU64,
}

impl Slots {
    /// The word of a request of this tenant; `None`: it is the class's.
    pub(super) fn word(&self, tenant: TenantKey) -> Option<u64> {
        let used = self.used.load(Relaxed).min(SLOTS);
        if used == 0 {
            return None;
        }
        let at = self.tenants[..used].iter().position(|key| key.load(Relaxed) == tenant.0);
        Some(at.map_or_else(|| self.rest.load(Relaxed), |at| self.words[at].load(Relaxed)))
    }

    /// Puts these tenants' words in force, and that of the rest.
    pub(super) fn set(&self, words: &[(TenantKey, u64)], rest: u64) {
        self.rest.store(rest, Relaxed);
        for (at, &(tenant, word)) in words.iter().take(SLOTS).enumerate() {
            self.tenants[at].store(tenant.0, Relaxed);
            self.words[at].store(word, Relaxed);
        }
        self.used.store(words.len().min(SLOTS), Relaxed);
    }
}

/// The last requests that one worker refused.
#[derive(Debug)]
pub(super) struct Refused {
    tenants: [AtomicU64; REMEMBERED],
    classes: [AtomicU8; REMEMBERED],
    /// How many there were.
    count: AtomicU64,
}

impl Default for Refused {
    fn default() -> Self {
        Refused {
            tenants: core::array::from_fn(|_| AtomicU64::new(0)),
            classes: core::array::from_fn(|_| AtomicU8::new(0)),
            count: AtomicU64::new(0),
        }
    }
}

impl Refused {
    /// By the only worker that refuses here.
    pub(super) fn note(&self, class: ClassId, tenant: TenantKey) {
        let count = self.count.load(Relaxed);
        let at = count as usize % REMEMBERED;
        self.tenants[at].store(tenant.0, Relaxed);
        self.classes[at].store(class.0, Relaxed);
        self.count.store(count + 1, Relaxed);
    }

    /// Those since there were `seen`, which is then how many there were: each that is remembered stands for as many as
    /// make up for those that are not.
    pub(super) fn since(&self, seen: &mut u64, mut tell: impl FnMut(ClassId, TenantKey, u64)) {
        let count = self.count.load(Relaxed);
        // Another table's count, from before a reload.
        let all = if count < *seen { count } else { count - *seen };
        *seen = count;
        let remembered = all.min(REMEMBERED as u64);
        for i in 0..remembered {
            let at = (count - remembered + i) as usize % REMEMBERED;
            let stands_for = all * (i + 1) / remembered - all * i / remembered;
            let class = ClassId(self.classes[at].load(Relaxed));
            tell(class, TenantKey(self.tenants[at].load(Relaxed)), stands_for);
        }
    }
}

impl Policer {
    /// Publishes the shares of single tenants of a class, and of its others; of nobody: all have the class's.
    pub(crate) fn publish_tenants(&self, class: ClassId, shares: &[(TenantKey, Share)], rest: f64) {
        let mut words = [(TenantKey::NONE, 0); SLOTS];
        for (word, &(tenant, share)) in words.iter_mut().zip(shares) {
            *word = (tenant, share.word());
        }
        self.classes[class.index()].tenants.set(&words[..shares.len().min(SLOTS)], Share::Admit(rest).word());
    }

    /// Whose requests the table refused since `seen`, a count for each lane, which is moved on: class, tenant, and how
    /// many requests stand behind it.
    pub(crate) fn refused_since(&self, seen: &mut [u64], mut tell: impl FnMut(ClassId, TenantKey, u64)) {
        for (lane, seen) in self.lanes.iter().zip(seen) {
            lane.refused.since(seen, &mut tell);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Verdict;
    use super::*;
    use crate::request::Request;
    use crate::setup::Setup;
    use crate::sla::{Sla, Statistic};
    use crate::time::Timestamp;
    use alloc::vec::Vec;
    use core::time::Duration;

    #[test]
    fn those_that_are_remembered_stand_for_all() {
        let refused = Refused::default();
        let mut seen = 0;
        for (more, remembered) in [(3, 3), (0, 0), (1000, 256), (257, 256)] {
            (0..more).for_each(|i| refused.note(ClassId(1), TenantKey(i)));
            let mut told = Vec::new();
            refused.since(&mut seen, |class, tenant, count| told.push((class, tenant.0, count)));
            assert_eq!((told.len(), told.iter().map(|told| told.2).sum::<u64>()), (remembered, more));
            let last: Vec<u64> = told.iter().map(|told| told.1).collect();
            assert!(last.into_iter().eq(more - remembered as u64..more));
            assert!(told.iter().all(|told| told.0 == ClassId(1)));
        }
    }

    #[test]
    fn tenants_with_shares_of_their_own_have_those() {
        const CLASS: ClassId = ClassId(0);
        let sla = Sla::constant(Statistic::P95, Duration::from_secs(1)).expect("more than zero");
        let policer = Policer::new("threshold", &Setup::simple("shop", sla, []), 1, 7);
        let passed = |tenant| {
            let request = Request { tenant: TenantKey(tenant), ..Request::default() };
            (0..1000).filter(|_| policer.police(0, Timestamp::ZERO, &request) == Verdict::Pass).count()
        };
        policer.publish(CLASS, Share::Admit(0.5), Share::Admit(0.5));
        assert!((400..600).contains(&passed(1)), "nobody is told apart");
        let shares = [(TenantKey(1), Share::Admit(0.0)), (TenantKey(2), Share::Ask)];
        policer.publish_tenants(CLASS, &shares, 1.0);
        assert_eq!((passed(1), passed(3)), (0, 1000));
        let asks = Request { tenant: TenantKey(2), ..Request::default() };
        assert_eq!(policer.police(0, Timestamp::ZERO, &asks), Verdict::Ask);
        let mut told = [0; 4];
        policer.refused_since(&mut [0], |_, tenant, count| told[tenant.0 as usize] += count);
        assert!(told[1] > 1000 && told[2..] == [0, 0], "{told:?}");
        policer.publish(CLASS, Share::Admit(1.0), Share::Admit(1.0));
        assert_eq!(passed(1), 1000, "there is enough for all");
        policer.publish(CLASS, Share::Admit(0.5), Share::Admit(0.5));
        policer.publish_tenants(CLASS, &[], 1.0);
        assert!((400..600).contains(&passed(1)));
    }
}
