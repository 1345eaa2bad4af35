//! The scale of costs: how many seconds a unit of relative cost is.
//!
//! Costs of URLs are learned relative to each other, because under load nothing tells a cheap request on a slow server
//! from a dear one on a fast server. A server with a single request tells: while it has just one, it completes one
//! second of work per second. So each server's time is kept by how many requests were in service, with the work that
//! completed in that state; the lowest state with enough of it fixes the scale. A server that is never idle leaves only
//! states in which requests may have held each other up: what they took is too dear by that factor; but capacities then
//! come out larger by the same factor, and predictions for such a load are right.
//!
//! Time and work are taken from the *state*, not from the requests that happened to be alone: those are the shortest
//! ones, and on a busy server that makes the scale too small by any factor. Under processor sharing with Poisson
//! arrivals the state's ratio is exact whatever the distribution of costs (insensitivity: requests leave the state `n`
//! at the rate `min(n, c) / E[S]`); elsewhere it is close.
//!
//! Nothing here depends on capacities or costs in seconds. It must not: they depend on the scale, and an estimate that
//! feeds on itself runs away.

/// 1 in service, 2, up to 4, 8, ..., 64 and more.
const LEVELS: usize = 8;
/// Requests that make a level worth believing, over all servers.
const ENOUGH: f64 = 16.0;
/// ... and as how many equal ones their work and the level's time count at least: of fifteen small requests and a large
/// one the large one decides, and it may have been there for long and completed in another state.
const EQUAL: f64 = 8.0;
/// How many a level remembers, of one server.
const MEMORY: f64 = 256.0;

/// One server's time and work by how many requests were in service.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Sharing {
    levels: [Level; LEVELS],
}

#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
struct Level {
    /// Request-seconds in this state.
    seconds: f64,
    /// Relative work that completed in it.
    relative: f64,
    requests: f64,
    /// Sums of squares of what these are the sums of.
    seconds_squared: f64,
    relative_squared: f64,
}

impl Sharing {
    /// For `seconds`, `in_service` requests were in service.
    pub fn pass(&mut self, seconds: f64, in_service: u32) {
        if in_service > 0 {
            let level = &mut self.levels[level(in_service)];
            let seconds = seconds * f64::from(in_service);
            level.seconds += seconds;
            level.seconds_squared += seconds * seconds;
        }
    }

    /// A request of this relative cost is answered, the last of `in_service`.
    pub fn answered(&mut self, in_service: u32, relative: f64) {
        let level = &mut self.levels[level(in_service)];
        level.relative += relative;
        level.relative_squared += relative * relative;
        level.requests += 1.0;
        if level.requests > MEMORY {
            level.fade(MEMORY / level.requests);
        }
    }

    /// Whether it was seen that requests there are slower than `scale` says when there are more of them, or always.
    /// `None`: it was not seen with few and with more.
    pub fn slows(&self, scale: f64) -> Option<bool> {
        let mut known = self.levels.iter().filter(|level| level.is_enough());
        let (fewest, most) = (*known.next()?, *known.next_back()?);
        Some(most.speed() < SLOWER * fewest.speed() || most.speed() * scale < SLOWER)
    }

    /// A request was there for `seconds` in which the server did nothing for it: its client was reading, or nothing
    /// came of it. On average it was one of `in_service`.
    pub fn unserved(&mut self, seconds: f64, in_service: f64) {
        let level = &mut self.levels[level((in_service + 0.5) as u32)];
        level.seconds = (level.seconds - seconds).max(0.0);
        level.seconds_squared = (level.seconds_squared - seconds * seconds).max(0.0);
    }
}

/// By so much slower is slower.
const SLOWER: f64 = 0.7;

/// The scale, from the states of all servers.
#[derive(Clone, Copy, Debug, Default)]
pub struct Scale {
    known: Option<f64>,
    sure: bool,
}

impl Scale {
    /// The scale that these servers show.
    pub fn of<'s>(servers: impl Iterator<Item = &'s Sharing> + Clone) -> Scale {
        let sum = |at: usize| servers.clone().map(|server| server.levels[at]).fold(Level::default(), Level::with);
        let lowest = (0..LEVELS).map(|at| (at, sum(at))).find(|(_, level)| level.is_enough());
        let Some((at, lowest)) = lowest else { return Scale::default() };
        let scale = lowest.seconds / lowest.relative;
        let known = (scale > 0.0 && scale.is_finite()).then_some(scale);
        Scale { known, sure: at == 0 && known.is_some() }
    }

    /// Whether servers were seen with a single request: then costs and capacities are right one by one, and not only in
    /// relation to each other.
    pub fn is_sure(&self) -> bool {
        self.sure
    }

    /// Seconds per unit of relative cost, once a level says enough.
    pub fn get(&self) -> Option<f64> {
        self.known
    }
}

impl Level {
    /// Work per second that a request there is done.
    fn speed(self) -> f64 {
        self.relative / self.seconds
    }

    fn is_enough(&self) -> bool {
        let equal = |sum: f64, squares: f64| sum > 0.0 && sum * sum >= EQUAL * squares;
        self.requests >= ENOUGH
            && equal(self.relative, self.relative_squared)
            && equal(self.seconds, self.seconds_squared)
    }

    fn with(self, other: Level) -> Level {
        Level {
            seconds: self.seconds + other.seconds,
            relative: self.relative + other.relative,
            requests: self.requests + other.requests,
            seconds_squared: self.seconds_squared + other.seconds_squared,
            relative_squared: self.relative_squared + other.relative_squared,
        }
    }

    fn fade(&mut self, keep: f64) {
        *self = Level {
            seconds: self.seconds * keep,
            relative: self.relative * keep,
            requests: self.requests * keep,
            seconds_squared: self.seconds_squared * keep,
            relative_squared: self.relative_squared * keep,
        }
    }
}

/// The power of two from `in_service` on.
fn level(in_service: u32) -> usize {
    let bits = u32::BITS - in_service.max(1).saturating_sub(1).leading_zeros();
    (bits as usize).min(LEVELS - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scale(server: &Sharing) -> Scale {
        Scale::of([server].into_iter())
    }

    #[test]
    fn levels_are_powers_of_two() {
        let of: alloc::vec::Vec<usize> = [0, 1, 2, 3, 4, 5, 8, 9, 64, 65, u32::MAX].map(level).to_vec();
        assert_eq!(of, [0, 0, 1, 2, 2, 3, 3, 4, 6, 7, 7]);
    }

    #[test]
    fn who_was_alone_decides_once_there_are_enough() {
        let mut server = Sharing::default();
        assert_eq!(scale(&server).get(), None);
        // Eight share one processor: one of them completes each 10 ms.
        (0..100).for_each(|_| {
            server.pass(0.010, 8);
            server.answered(8, 1.0);
        });
        assert!((scale(&server).get().unwrap() - 0.080).abs() < 1e-9, "nothing better is known");
        assert!(!scale(&server).is_sure());
        (0..20).for_each(|_| {
            server.pass(0.010, 1);
            server.answered(1, 1.0);
        });
        assert!((scale(&server).get().unwrap() - 0.010).abs() < 1e-9);
        assert!(scale(&server).is_sure());
    }

    #[test]
    fn one_long_stay_among_small_requests_is_not_enough() {
        let mut server = Sharing::default();
        (0..100).for_each(|_| {
            server.pass(0.010, 8);
            server.answered(8, 1.0);
        });
        // Sixteen of 10 ms were alone, and for 0.3 s a large one that completes among others.
        (0..16).for_each(|_| {
            server.pass(0.010, 1);
            server.answered(1, 1.0);
        });
        server.pass(0.3, 1);
        assert!(!scale(&server).is_sure(), "0.46 s for sixteen would be three times too dear");
        (0..200).for_each(|_| {
            server.pass(0.010, 1);
            server.answered(1, 1.0);
        });
        assert!(scale(&server).is_sure());
    }

    #[test]
    fn whether_more_are_slower_is_seen_with_few_and_with_more() {
        let work = |server: &mut Sharing, in_service: u32, each: f64| {
            for _ in 0..100 {
                server.pass(each / f64::from(in_service), in_service);
                server.answered(in_service, 1.0);
            }
        };
        let mut server = Sharing::default();
        work(&mut server, 1, 0.010);
        assert_eq!(server.slows(0.010), None, "only one at a time");
        work(&mut server, 4, 0.011);
        assert_eq!(server.slows(0.010), Some(false));
        assert_eq!(server.slows(0.005), Some(true), "others take half as long");
        work(&mut server, 8, 0.020);
        assert_eq!(server.slows(0.010), Some(true));
    }

    #[test]
    fn the_past_fades() {
        let mut server = Sharing::default();
        let mut work = |times, seconds| {
            (0..times).for_each(|_| {
                server.pass(seconds, 1);
                server.answered(1, 1.0);
            });
            scale(&server).get().unwrap()
        };
        work(1000, 0.010);
        assert!((work(2000, 0.020) - 0.020).abs() < 1e-4);
    }

    #[test]
    fn a_request_that_hung_alone_tells_nothing() {
        let mut server = Sharing::default();
        (0..20).for_each(|_| {
            server.pass(0.010, 1);
            server.answered(1, 1.0);
        });
        server.pass(60.0, 1);
        server.unserved(60.0, 1.0);
        assert!((scale(&server).get().unwrap() - 0.010).abs() < 1e-6);
    }
}
