//! The scale of costs: how many seconds a unit of relative cost is.
//!
//! Costs of URLs are learned relative to each other, because under load nothing tells a cheap request on a slow server
//! from a dear one on a fast server. A request that had its server to itself tells: it took what it costs. So times are
//! kept by how many requests shared the server meanwhile, and the lowest level with enough of them fixes the scale. A
//! server that is never idle leaves only levels at which requests may have held each other up: what they took is too
//! dear by that factor; but capacities then come out larger by the same factor, and predictions for such a load are
//! right.
//!
//! Nothing here depends on capacities or costs in seconds. It must not: they depend on the scale, and an estimate that
//! feeds on itself runs away.

/// Shared by 1 on average, by 2, 4, 8, ..., 128 and more.
const LEVELS: usize = 8;
/// Requests that make a level worth believing, and how many it remembers.
const ENOUGH: f64 = 16.0;
const MEMORY: f64 = 256.0;

/// Seconds and relative costs by how many shared the server.
#[derive(Clone, Debug, Default)]
pub struct Scale {
    levels: [Level; LEVELS],
}

#[derive(Clone, Copy, Debug, Default)]
struct Level {
    seconds: f64,
    relative: f64,
    requests: f64,
}

impl Scale {
    /// Takes a completed request: its time at the server (seconds), how many requests shared the server meanwhile,
    /// itself included, and its expected relative cost.
    pub fn record(&mut self, seconds: f64, shared_by: f64, relative: f64) {
        let level = &mut self.levels[level(shared_by)];
        if level.requests >= MEMORY {
            let keep = 1.0 - 1.0 / MEMORY;
            (level.seconds, level.relative) = (level.seconds * keep, level.relative * keep);
        } else {
            level.requests += 1.0;
        }
        level.seconds += seconds;
        level.relative += relative;
    }

    /// Whether enough requests had their server to themselves: then costs and capacities are right one by one, and not
    /// only in relation to each other.
    pub fn is_sure(&self) -> bool {
        self.levels[0].requests >= ENOUGH
    }

    /// Seconds per unit of relative cost, once a level says enough.
    pub fn get(&self) -> Option<f64> {
        let lowest = self.levels.iter().find(|level| level.requests >= ENOUGH && level.relative > 0.0)?;
        let scale = lowest.seconds / lowest.relative;
        (scale > 0.0 && scale.is_finite()).then_some(scale)
    }
}

/// The nearest power of two.
fn level(shared_by: f64) -> usize {
    ((libm::log2(shared_by.max(1.0)) + 0.5) as usize).min(LEVELS - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_powers_of_two() {
        let of: alloc::vec::Vec<usize> = [0.0, 1.0, 1.4, 1.5, 3.0, 4.0, 100.0, 1e9].map(level).to_vec();
        assert_eq!(of, [0, 0, 0, 1, 2, 2, 7, 7]);
    }

    #[test]
    fn who_was_alone_decides_once_there_are_enough() {
        let mut scale = Scale::default();
        assert_eq!(scale.get(), None);
        // Eight share one processor: each takes eight times its cost.
        (0..100).for_each(|_| scale.record(0.080, 8.0, 1.0));
        assert!((scale.get().unwrap() - 0.080).abs() < 1e-9, "nothing better is known");
        assert!(!scale.is_sure());
        (0..20).for_each(|_| scale.record(0.010, 1.1, 1.0));
        assert!((scale.get().unwrap() - 0.010).abs() < 1e-9);
        assert!(scale.is_sure());
    }

    #[test]
    fn the_past_fades() {
        let mut scale = Scale::default();
        (0..1000).for_each(|_| scale.record(0.010, 1.0, 1.0));
        (0..2000).for_each(|_| scale.record(0.020, 1.0, 1.0));
        assert!((scale.get().unwrap() - 0.020).abs() < 1e-4);
    }
}
