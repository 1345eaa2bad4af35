//! The scale of costs: how many seconds a unit of relative cost is.
//!
//! Costs of URLs are learned relative to each other, because under load nothing tells a cheap request on a slow server
//! from a dear one on a fast server. A request that found its server idle tells: it took what it costs, or, if others
//! came meanwhile, received that much of the processors. (That it found the server idle says nothing about its own
//! size; that it *stayed* alone would, since short requests stay alone more often.) A server that is never idle leaves
//! only requests that found others there. What they took is too dear by as much as the others held them up; but then
//! capacities come out larger by the same factor, and predictions for such a load are right.

/// Found 1 (itself alone), 2, 3-4, 5-8, ..., 65 and more in service.
const LEVELS: usize = 8;
/// Requests that make a level worth believing, and how many it remembers.
const ENOUGH: f64 = 16.0;
const MEMORY: f64 = 256.0;
/// Finding at most this share of the processors busy is as good as finding the server idle.
const NEARLY_IDLE: f64 = 0.25;

/// What a completed request tells of the scale.
#[derive(Clone, Copy, Debug)]
pub struct Found {
    /// Requests in service when it was sent, itself included.
    pub in_service: u32,
    /// The server's effective processors.
    pub processors: f64,
    /// Its time at the server, seconds.
    pub seconds: f64,
    /// What it received of the processors, seconds.
    pub received: f64,
    /// Its relative cost.
    pub relative: f64,
}

/// Seconds and relative costs by what requests found.
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
    /// Takes a completed request.
    pub fn record(&mut self, found: Found) {
        let idle = f64::from(found.in_service) <= (found.processors * NEARLY_IDLE).max(1.0);
        let (level, seconds) = if idle { (0, found.received) } else { (level(found.in_service), found.seconds) };
        let level = &mut self.levels[level];
        if level.requests >= MEMORY {
            let keep = 1.0 - 1.0 / MEMORY;
            (level.seconds, level.relative) = (level.seconds * keep, level.relative * keep);
        } else {
            level.requests += 1.0;
        }
        level.seconds += seconds;
        level.relative += found.relative;
    }

    /// Whether enough requests found their server idle: then costs and capacities are right one by one, and not only in
    /// relation to each other.
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

fn level(in_service: u32) -> usize {
    // 1 -> 0, 2 -> 1, 3..=4 -> 2, 5..=8 -> 3, ...
    let bits = u32::BITS - in_service.saturating_sub(1).leading_zeros();
    (bits as usize).min(LEVELS - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(in_service: u32, seconds: f64, received: f64) -> Found {
        Found { in_service, processors: 1.0, seconds, received, relative: 1.0 }
    }

    #[test]
    fn levels_are_powers_of_two() {
        let of: alloc::vec::Vec<usize> = [1, 2, 3, 4, 5, 8, 9, 64, 65, 4_000_000_000].map(level).to_vec();
        assert_eq!(of, [0, 1, 2, 2, 3, 3, 4, 6, 7, 7]);
    }

    #[test]
    fn who_found_the_server_idle_decides_once_there_are_enough() {
        let mut scale = Scale::default();
        assert_eq!(scale.get(), None);
        // Eight share one processor: each takes eight times its cost.
        (0..100).for_each(|_| scale.record(found(8, 0.080, 0.010)));
        assert!((scale.get().unwrap() - 0.080).abs() < 1e-9, "nothing better is known");
        (0..20).for_each(|_| scale.record(found(1, 0.025, 0.010)));
        assert!((scale.get().unwrap() - 0.010).abs() < 1e-9);
    }

    #[test]
    fn a_quarter_of_the_processors_busy_is_idle() {
        let mut scale = Scale::default();
        (0..20).for_each(|_| scale.record(Found { processors: 16.0, ..found(4, 0.5, 0.010) }));
        assert!((scale.get().unwrap() - 0.010).abs() < 1e-9);
    }

    #[test]
    fn the_past_fades() {
        let mut scale = Scale::default();
        (0..1000).for_each(|_| scale.record(found(1, 0.010, 0.010)));
        (0..2000).for_each(|_| scale.record(found(1, 0.020, 0.020)));
        assert!((scale.get().unwrap() - 0.020).abs() < 1e-4);
    }
}
