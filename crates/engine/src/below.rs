//! What services further down would refuse is refused here, before any work is done for it.
//!
//! *Intuition.* A travel agent whose airline refuses every other booking does not take every booking, work on it, and
//! send half of the customers away at the end: it takes half of them, and tells the others at the door.
//!
//! *Applied.* An answer may say that a service which the server called refused the request
//! ([`Outcome::refused_below`](crate::Outcome::refused_below)). Requests of a class for a URL are a *kind*. Each kind
//! that is refused below has a *level*: the share of it that is let in is `STEP` to the power of the level. Each
//! request that ends says what of its kind passes below: the share that was let in when it came, or 0 if it was refused
//! there. The mean of that is what passes of all that are offered, whatever the share was; so samples of before and
//! after a change of level go together, and answers that take long do not make the level swing. At the end of a window
//! the level becomes the least at which no more than `EXCESS` of those let in are refused below. Nothing refused in a
//! window opens the kind by a step, and by twice as many after each further such window.
//!
//! *Awkward cases.* A little more is let in than passes: a service further down chooses among what comes, and only so
//! it is noticed that more passes again. Where nothing passes, one in a hundred still goes, and one in a second, to
//! find out when that is over: a kind with few requests is hardly held back. A request that calls
//! several times passes only if all calls do: what is let in is measured by whole requests, so the calls below succeed
//! nearly always. Guaranteed requests are not held back. A kind that was not held back for long gives its cell to
//! another; kinds beyond [`CELLS`] share what is there, and the one held back more keeps it.
//!
//! *Source.* Ours. That callers drop what callees would is from DAGOR (Zhou et al., SoCC 2018, section 4.2.4), which
//! sends its level with every answer and needs all services to agree on priorities; here an answer's being refused is
//! what is sent, and every sentry finds its own level.

use alloc::vec::Vec;
use core::time::Duration;

use crate::request::{Request, UrlKey};
use crate::time::Timestamp;

/// What one level lets in of what the level before lets in.
const STEP: f64 = 0.98;
/// The highest level lets in a hundredth.
const HIGHEST: u8 = 228;
/// Of those let in, so much may be refused below.
const EXCESS: f64 = 0.04;
/// A window ends with so many requests, if it lasted at least [`SHORTEST`]; or with [`FEWEST`], after [`LONGEST`].
const MANY: u32 = 50;
const FEWEST: u32 = 5;
const SHORTEST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_millis(500);
/// The most levels by which a kind is opened at once: to twice as much.
const LEAP: u8 = 35;
/// One is let in if none was for so long.
const PROBE: Duration = Duration::from_secs(1);
/// Kinds that are told apart.
const CELLS: usize = 512;

/// Kinds of requests that services further down refuse.
#[derive(Debug, Default)]
pub(crate) struct Below {
    /// None until something was refused below.
    cells: Vec<Cell>,
}

/// What is known of a kind.
#[derive(Clone, Copy, Debug, Default)]
struct Cell {
    /// The class and URL, hashed; 0: nobody's.
    key: u64,
    level: u8,
    /// Windows in a row without a refusal.
    calm: u8,
    /// The part of a request that is let in but has not come yet.
    credit: f64,
    /// When the last one was let in.
    last: Timestamp,
    /// Of the window: what passed below of what was offered, summed up; requests that ended, and were refused below.
    passed: f64,
    ended: u32,
    refused: u32,
    since: Timestamp,
}

impl Below {
    /// Whether the next request of its kind is let in.
    pub(crate) fn lets_in(&mut self, now: Timestamp, request: &Request) -> bool {
        let Some(cell) = self.cell(request) else { return true };
        if cell.level == 0 {
            return true;
        }
        cell.credit += share(cell.level);
        let is_in = cell.credit >= 1.0 || now.since(cell.last) >= PROBE;
        if is_in {
            cell.credit = f64::max(cell.credit - 1.0, 0.0);
            cell.last = now;
        }
        is_in
    }

    /// The level of a request's kind.
    pub(crate) fn level(&self, request: &Request) -> u8 {
        let key = key(request);
        self.cells.get(place(key)).filter(|cell| cell.key == key).map_or(0, |cell| cell.level)
    }

    /// A request ended that was let in at `level`.
    pub(crate) fn learn(&mut self, now: Timestamp, request: &Request, level: u8, refused: bool) {
        if refused {
            self.make_room(now, request);
        }
        let Some(cell) = self.cell(request) else { return };
        cell.ended += 1;
        cell.refused += u32::from(refused);
        cell.passed += if refused { 0.0 } else { share(level) };
        let lasted = now.since(cell.since);
        if cell.ended >= MANY && lasted >= SHORTEST || cell.ended >= FEWEST && lasted >= LONGEST {
            cell.close(now);
        }
    }

    fn cell(&mut self, request: &Request) -> Option<&mut Cell> {
        if self.cells.is_empty() {
            return None;
        }
        let key = key(request);
        self.cells.get_mut(place(key)).filter(|cell| cell.key == key)
    }

    /// Makes the cell of a request its kind's, unless another kind is held back there.
    fn make_room(&mut self, now: Timestamp, request: &Request) {
        if self.cells.is_empty() {
            self.cells = alloc::vec![Cell::default(); CELLS];
        }
        let key = key(request);
        let cell = &mut self.cells[place(key)];
        if cell.key != key && cell.level == 0 {
            *cell = Cell { key, since: now, ..Cell::default() };
        }
    }
}

impl Cell {
    /// The window is over: the level for the next.
    fn close(&mut self, now: Timestamp) {
        let passes = self.passed / f64::from(self.ended);
        if self.refused == 0 {
            let step = 1u8 << self.calm.min(6);
            self.level = self.level.saturating_sub(step.min(LEAP));
            self.calm = self.calm.saturating_add(1);
        } else {
            self.level = level_of(passes / (1.0 - EXCESS));
            self.calm = 0;
        }
        (self.passed, self.ended, self.refused, self.since) = (0.0, 0, 0, now);
    }
}

/// The share that a level lets in.
fn share(level: u8) -> f64 {
    libm::pow(STEP, f64::from(level))
}

/// The lowest level that lets in no more than a share.
fn level_of(share: f64) -> u8 {
    if share >= 1.0 {
        return 0;
    }
    let level = libm::ceil(libm::log(share.max(1e-9)) / libm::log(STEP));
    level.clamp(0.0, f64::from(HIGHEST)) as u8
}

fn key(request: &Request) -> u64 {
    let UrlKey(url) = request.url;
    let kind = url ^ (u64::from(request.class.0) + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (kind ^ kind >> 29).wrapping_mul(0xBF58_476D_1CE4_E5B9) | 1
}

fn place(key: u64) -> usize {
    (key >> 40) as usize % CELLS
}

#[cfg(test)]
mod tests {
    use alloc::collections::VecDeque;

    use super::*;
    use crate::rng::Rng;

    /// A service further down that lets `capacity` of `offered` requests per second pass, which it answers after
    /// `delay`: how much is refused below of what is let in, and how much is let in of what passes, over time.
    fn play(capacity: &dyn Fn(f64) -> f64, offered: f64, delay: f64, seconds: f64) -> (f64, f64) {
        let (mut below, mut rng) = (Below::default(), Rng::new(7));
        let request = Request::default();
        let mut answers: VecDeque<(f64, u8, bool)> = VecDeque::new();
        let mut room = 0.0;
        let (mut sent, mut refused, mut could) = (0.0, 0.0, 0.0);
        for number in 0..(offered * seconds) as u32 {
            let at = f64::from(number) / offered;
            let now = Timestamp::from_secs_f64(at);
            while let Some((_, level, is_refused)) = answers.pop_front_if(|(when, ..)| *when <= at) {
                below.learn(now, &request, level, is_refused);
            }
            room = f64::min(room + capacity(at) / offered * (0.5 + rng.next_f64()), 3.0);
            let counts = at > seconds / 2.0;
            could += if counts { (capacity(at) / offered).min(1.0) } else { 0.0 };
            if below.lets_in(now, &request) {
                let is_refused = room < 1.0;
                room -= if is_refused { 0.0 } else { 1.0 };
                answers.push_back((at + delay, below.level(&request), is_refused));
                sent += if counts { 1.0 } else { 0.0 };
                refused += if counts && is_refused { 1.0 } else { 0.0 };
            }
        }
        (refused / sent, (sent - refused) / could)
    }

    #[test]
    fn lets_in_little_more_than_passes_however_late_the_answers() {
        for (share, delay) in [(0.8, 0.02), (0.5, 0.1), (0.5, 0.5), (0.2, 0.5), (0.1, 0.1)] {
            let (refused, used) = play(&|_| share * 400.0, 400.0, delay, 60.0);
            assert!(refused <= 0.1 && used >= 0.95, "{share}, {delay}: {refused:.3} refused, {used:.3} used");
        }
    }

    #[test]
    fn opens_when_more_passes_again() {
        let (refused, used) = play(&|at| if at < 30.0 { 0.0 } else { 500.0 }, 400.0, 0.1, 80.0);
        assert!(refused < 0.001 && used > 0.99, "{refused:.3} refused, {used:.3} used");
    }

    #[test]
    fn what_nobody_refuses_is_not_held_back_and_costs_no_memory() {
        let mut below = Below::default();
        for number in 0..1000 {
            below.learn(Timestamp::from_secs_f64(f64::from(number)), &Request::default(), 0, false);
            assert!(below.lets_in(Timestamp::from_secs_f64(f64::from(number)), &Request::default()));
        }
        assert!(below.cells.is_empty());
    }

    #[test]
    fn one_kind_does_not_hold_another_back() {
        let (mut below, other) = (Below::default(), Request { url: UrlKey(99), ..Request::default() });
        for number in 0..100 {
            below.learn(Timestamp::from_secs_f64(f64::from(number)), &Request::default(), 0, true);
        }
        assert_eq!((below.level(&Request::default()), below.level(&other)), (HIGHEST, 0));
        let mut probes = |from: f64, apart: f64| {
            let comes = (1..=1000).map(|number| Timestamp::from_secs_f64(from + apart * f64::from(number)));
            comes.filter(|now| below.lets_in(*now, &Request::default())).count()
        };
        assert_eq!(probes(100.0, 0.001), 10, "one in a hundred still goes");
        assert_eq!(probes(200.0, 0.1), 100, "or one in a second");
    }
}
