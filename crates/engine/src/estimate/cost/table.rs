//! The table of costs by URL.

use alloc::boxed::Box;

use super::Average;
use crate::request::UrlKey;

/// Entries of a set: a URL's key names its set, so a look-up compares at most this many keys.
const WAYS: usize = 8;
/// What an insertion into a full set takes from its neighbours' weight: the frequent stay, the once-seen go.
const FADE: f64 = 0.98;

/// A bounded table of decayed averages. Allocates once, for its first URL: of a thousand applications most may have no
/// request.
///
/// Eight entries a set, as in a processor's cache. When a set is full, the entry that stands on the fewest samples
/// makes place and the others lose a little weight: a crawl through a million URLs cannot push out those in steady use.
#[derive(Debug)]
pub struct CostTable {
    /// None before the first.
    pub(super) entries: Box<[(UrlKey, Average)]>,
    sets: usize,
    used: usize,
}

impl CostTable {
    /// A table of about `entries` URLs (rounded up to a power of two of sets).
    pub fn new(entries: usize) -> Self {
        let sets = entries.div_ceil(WAYS).max(1).next_power_of_two();
        CostTable { entries: Box::default(), sets, used: 0 }
    }

    /// A URL's average, if it is there.
    pub fn get(&self, url: UrlKey) -> Option<&Average> {
        let set = self.entries.get(self.set(url))?;
        set.iter().find(|(key, average)| *key == url && average.weight() > 0.0).map(|(_, average)| average)
    }

    /// A URL's average, made if it is not there, at the cost of the least known of its set.
    pub fn entry(&mut self, url: UrlKey) -> &mut Average {
        if self.entries.is_empty() {
            self.entries = alloc::vec![Default::default(); self.sets * WAYS].into_boxed_slice();
        }
        let range = self.set(url);
        let set = &mut self.entries[range];
        let at = match set.iter().position(|(key, average)| *key == url && average.weight() > 0.0) {
            Some(at) => at,
            None => {
                let (at, was_free) = replace_least(set, url);
                self.used += usize::from(was_free);
                at
            }
        };
        &mut set[at].1
    }

    /// URLs in the table.
    pub fn len(&self) -> usize {
        self.used
    }

    /// Whether no URL is in the table.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn set(&self, url: UrlKey) -> core::ops::Range<usize> {
        let set = (url.0 >> 32) as usize & (self.sets - 1);
        set * WAYS..(set + 1) * WAYS
    }
}

/// Where `url` stands now, and whether that place was free.
fn replace_least(set: &mut [(UrlKey, Average)], url: UrlKey) -> (usize, bool) {
    let weight = |at: usize| set[at].1.weight();
    let least = (0..set.len()).min_by(|&a, &b| weight(a).total_cmp(&weight(b))).unwrap_or(0);
    let was_free = weight(least) <= 0.0;
    if !was_free {
        set.iter_mut().for_each(|(_, average)| average.fade(FADE));
    }
    set[least] = (url, Average::default());
    (least, was_free)
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;
    use crate::rng::Rng;

    /// Samples that an entry remembers.
    const MEMORY: f64 = 64.0;

    #[test]
    fn a_crawl_does_not_push_out_what_is_in_use() {
        let mut table = CostTable::new(1024);
        let mut rng = Rng::new(3);
        let hot: Vec<UrlKey> = (0..100).map(|_| UrlKey(rng.next_u64())).collect();
        for i in 0..200_000 {
            table.entry(UrlKey(rng.next_u64())).update(1.0, 1.0, MEMORY);
            table.entry(hot[i % hot.len()]).update(0.5, 1.0, MEMORY);
        }
        let kept = hot.iter().filter(|&&url| table.get(url).is_some_and(|a| a.weight() > 5.0)).count();
        assert!(kept >= 95, "{kept} of 100 kept");
        assert!(table.len() <= 1024);
    }
}
