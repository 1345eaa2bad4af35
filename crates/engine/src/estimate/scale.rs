//! The scale of costs: how many seconds a unit of relative cost is.
//!
//! Costs of URLs are learned relative to each other, because under load nothing tells a cheap request on a slow server
//! from a dear one on a fast server. Servers with little to do tell: a single request in service completes one second of
//! work per second. So work is counted by how many requests were in service while it completed, and the lowest level
//! with enough of it fixes the scale, with those above it at which requests are no slower. A higher level may be stretched, that is, too dear; but as long as nothing lower
//! was seen, capacities come out larger by the same factor, and predictions for such levels are right.

/// Levels 1, 2, 3-4, 5-8, ... , 65 and more requests in service.
const LEVELS: usize = 8;
/// Completions that make a level worth believing, and how many it remembers.
const ENOUGH: f64 = 16.0;
const MEMORY: f64 = 256.0;

/// A level this much slower per request than those below is stretched.
const STRETCHED: f64 = 1.15;

/// What was done at one level.
#[derive(Clone, Copy, Debug, Default)]
struct Level {
    /// Request-seconds in service: the work, if nothing was stretched.
    area: f64,
    /// Work by relative costs.
    work: f64,
    completions: f64,
}

/// Work by level.
#[derive(Clone, Debug, Default)]
pub struct Levels {
    levels: [Level; LEVELS],
}

impl Levels {
    /// `in_service` requests were in service for `seconds`.
    pub fn pass(&mut self, in_service: u32, seconds: f64) {
        if in_service > 0 {
            self.levels[level(in_service)].area += seconds * f64::from(in_service);
        }
    }

    /// One of `in_service` requests completed; its relative cost was `work`.
    pub fn complete(&mut self, in_service: u32, work: f64) {
        let level = &mut self.levels[level(in_service.max(1))];
        level.work += work;
        level.completions += 1.0;
    }

    /// Takes over what another saw, and leaves it empty.
    pub fn absorb(&mut self, other: &mut Levels) {
        for (mine, theirs) in self.levels.iter_mut().zip(&mut other.levels) {
            let Level { area, work, completions } = core::mem::take(theirs);
            let sum = mine.completions + completions;
            mine.area += area;
            mine.work += work;
            mine.completions = sum;
            if sum > MEMORY {
                let keep = MEMORY / sum;
                (mine.area, mine.work, mine.completions) = (mine.area * keep, mine.work * keep, MEMORY);
            }
        }
    }

    /// Seconds per unit of relative cost, once a level says enough: the lowest such level, and with it those above that
    /// are not stretched against it.
    pub fn scale(&self) -> Option<f64> {
        let mut believed = self.levels.iter().filter(|level| level.completions >= ENOUGH && level.work > 0.0);
        let mut sum = *believed.next()?;
        for level in believed {
            if level.area / level.work > STRETCHED * sum.area / sum.work {
                break;
            }
            (sum.area, sum.work) = (sum.area + level.area, sum.work + level.work);
        }
        let scale = sum.area / sum.work;
        (scale > 0.0 && scale.is_finite()).then_some(scale)
    }
}

fn level(in_service: u32) -> usize {
    // 1 -> 0, 2 -> 1, 3..=4 -> 2, 5..=8 -> 3, ...
    let bits = u32::BITS - (in_service - 1).leading_zeros();
    (bits as usize).min(LEVELS - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_powers_of_two() {
        let of: alloc::vec::Vec<usize> = [1, 2, 3, 4, 5, 8, 9, 64, 65, 4_000_000_000].map(level).to_vec();
        assert_eq!(of, [0, 1, 2, 2, 3, 3, 4, 6, 7, 7]);
    }

    #[test]
    fn the_lowest_level_with_enough_decides() {
        let mut levels = Levels::default();
        assert_eq!(levels.scale(), None);
        // Eight in service on one processor: each request is stretched eightfold.
        (0..100).for_each(|_| {
            levels.pass(8, 0.010);
            levels.complete(8, 1.0);
        });
        assert!((levels.scale().unwrap() - 0.080).abs() < 1e-9, "nothing better is known");
        (0..20).for_each(|_| {
            levels.pass(1, 0.010);
            levels.complete(1, 1.0);
        });
        assert!((levels.scale().unwrap() - 0.010).abs() < 1e-9);
    }

    #[test]
    fn what_was_absorbed_fades_as_more_comes() {
        let mut levels = Levels::default();
        let mut seen = |seconds: f64| {
            let mut new = Levels::default();
            (0..200).for_each(|_| {
                new.pass(1, seconds);
                new.complete(1, 1.0);
            });
            levels.absorb(&mut new);
            assert_eq!(new.scale(), None, "it was taken over");
            levels.scale().unwrap()
        };
        seen(0.010);
        seen(0.020);
        let after = (0..5).map(|_| seen(0.020)).last().unwrap();
        assert!((after - 0.020).abs() < 5e-4, "{after}");
    }
}
