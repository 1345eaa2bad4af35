//! The tenants that offer most, of any number, in a table of fixed size (space-saving).
//!
//! Who is not in the table takes the place of the lightest that is, and its weight as an error: so every tenant with
//! more than one [`PLACES`]-th of all work is in it.

use alloc::string::String;
use alloc::vec::Vec;

use crate::request::TenantKey;
use crate::snapshot::TenantSnapshot;

/// How many are known.
const PLACES: usize = 64;
/// How many are shown.
const SHOWN: usize = 20;
/// A tenant with this part of all work is as good as alone.
const ALONE: f64 = 0.995;
/// Weights fade with this time constant, seconds.
const TAU: f64 = 30.0;

/// The table. Keys apart from the rest: they are what is searched.
#[derive(Debug)]
pub(super) struct Heaviest {
    keys: [TenantKey; PLACES],
    entries: [Entry; PLACES],
    /// Work of all tenants.
    total: f64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    /// Work, fading.
    work: f64,
    /// By how much that may be too much.
    error: f64,
    offered: u64,
    refused: u64,
}

impl Default for Heaviest {
    fn default() -> Self {
        Heaviest { keys: [TenantKey::NONE; PLACES], entries: [Entry::default(); PLACES], total: 0.0 }
    }
}

impl Heaviest {
    /// So many requests arrive, of so much work together.
    pub(super) fn offer(&mut self, tenant: TenantKey, work: f64, requests: u64) {
        self.total += work;
        let at = self.place(tenant).unwrap_or_else(|| self.take_place(tenant));
        let entry = &mut self.entries[at];
        entry.work += work;
        entry.offered += requests;
    }

    /// So many of its requests are refused.
    pub(super) fn refuse(&mut self, tenant: TenantKey, requests: u64) {
        if let Some(at) = self.place(tenant) {
            self.entries[at].refused += requests;
        }
    }

    /// All of the table, in no order.
    pub(super) fn tenants(&self) -> impl Iterator<Item = TenantKey> {
        self.keys.iter().copied().filter(|&key| key != TenantKey::NONE)
    }

    pub(super) fn fade(&mut self, elapsed: f64) {
        let keep = libm::exp(-elapsed / TAU);
        self.total *= keep;
        for entry in &mut self.entries {
            (entry.work, entry.error) = (entry.work * keep, entry.error * keep);
        }
    }

    /// Whether nearly everything is one tenant's.
    pub(super) fn is_one_alone(&self) -> bool {
        self.entries.iter().any(|entry| entry.work - entry.error > ALONE * self.total)
    }

    /// The heaviest, with names.
    pub(super) fn list(&self, name: impl Fn(TenantKey) -> Option<String>) -> Vec<TenantSnapshot> {
        let mut places: Vec<usize> = (0..PLACES).filter(|&at| self.keys[at] != TenantKey::NONE).collect();
        places.sort_by(|&a, &b| self.entries[b].work.total_cmp(&self.entries[a].work).then(a.cmp(&b)));
        places.truncate(SHOWN);
        let shown = |at: usize| {
            let Entry { work, error, offered, refused } = self.entries[at];
            let part = |work: f64| if self.total > 0.0 { (work / self.total).min(1.0) } else { 0.0 };
            let tenant = self.keys[at];
            TenantSnapshot { tenant, name: name(tenant), share: part(work), error: part(error), offered, refused }
        };
        places.into_iter().map(shown).collect()
    }

    fn place(&self, tenant: TenantKey) -> Option<usize> {
        self.keys.iter().position(|&key| key == tenant)
    }

    fn take_place(&mut self, tenant: TenantKey) -> usize {
        let lightest = |&a: &usize, &b: &usize| self.entries[a].work.total_cmp(&self.entries[b].work);
        let at = (0..PLACES).min_by(lightest).unwrap_or(0);
        let work = self.entries[at].work;
        self.keys[at] = tenant;
        self.entries[at] = Entry { work, error: work, ..Entry::default() };
        at
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    #[test]
    fn the_heavy_are_found_among_a_hundred_thousand() {
        let (mut heaviest, mut rng) = (Heaviest::default(), Rng::new(5));
        for round in 0..200_000u64 {
            // Three heavy ones with a tenth, a fifteenth and a twentieth of all requests; everybody else once or twice.
            let tenant = match round % 60 {
                0..=5 => 1,
                6..=9 => 2,
                10..=12 => 3,
                _ => 1000 + rng.below(100_000) as u64,
            };
            heaviest.offer(TenantKey(tenant), 0.01, 1);
        }
        let list = heaviest.list(|_| None);
        let first: Vec<u64> = list.iter().take(3).map(|seen| seen.tenant.0).collect();
        assert_eq!(first, [1, 2, 3]);
        for (seen, share) in list.iter().zip([0.1, 4.0 / 60.0, 0.05]) {
            assert!(seen.share >= share * 0.999 && seen.share - seen.error <= share * 1.001, "{seen:?}: {share}");
        }
        assert_eq!(list.len(), SHOWN);
    }
}
