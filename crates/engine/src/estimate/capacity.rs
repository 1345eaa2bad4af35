//! A server's effective processors: how many seconds of inherent work it completes per second when it has enough to do.
//!
//! Eight cores give about eight; a service that mostly waits for a database gives more than its cores, and that is
//! right: the number says how far requests can overlap before they slow each other down.
//!
//! **How it is learned.** Work completed is the sum of the costs of the requests that completed. It tells the capacity
//! only while at least as many requests were in service as there are processors; so work and time are counted only
//! while that many were (a server that idles now and then would look slow otherwise). Three cases follow:
//!
//! * requests queue, the server completes `w` per second: its capacity is `w`, up or down;
//! * it was never busy enough: nothing is learned, the estimate stands;
//! * admission holds requests back, yet those in service do not slow each other down: the estimate is too low. It is
//!   raised step by step until queueing shows. When a raise only brings queueing, the next attempt waits twice as long,
//!   because each attempt costs some requests their target.
//!
//! **In which unit.** Costs are relative (see [`Costs`](super::Costs)), so this measures relative work per second; the
//! scale, seconds per unit, turns it into processors. What a request received of them while it was there, one or its
//! share `k / n` when `n > k` were in service, is what costs are learned from ([`Capacity::received`]).
//!
//! It starts at one processor, the paper's assumption and the safe side: eight times too low refuses for some
//! hundred milliseconds what could be served; eight times too high would bury the server.

mod kept;

use super::scale::Sharing;
use crate::time::Timestamp;

pub use kept::KeptCapacity;

/// Completions that make a window worth reading.
const WINDOW_COMPLETIONS: f64 = 8.0;
/// Where fewer were in service than there are thought to be processors, it takes more to prove the estimate wrong.
const DOUBT_COMPLETIONS: f64 = 24.0;
/// A window whose level was not reached for this long, seconds, is reopened at a lower one, if it never was, or if the
/// server is thought half as large by now.
const WINDOW_LONGEST: f64 = 1.0;
/// The average remembers this many completions, or those of this many seconds, whichever is more.
const MEMORY: f64 = 80.0;
const MEMORY_SECONDS: f64 = 1.0;
/// The first estimate counts as this many completions.
const PRIOR: f64 = 4.0;
/// Requests in service per processor that give a server enough to do.
const ENOUGH_TO_DO: f64 = 1.5;
/// Below this stretch (requests in service per unit of work rate) requests do not slow each other down.
const NO_QUEUE: f64 = 1.2;
/// From this stretch on they do, even where few samples make the measurement rough.
const CLEARLY_QUEUED: f64 = 1.5;
/// A raise while admission holds back and nothing queues.
const RAISE: f64 = 1.3;
/// A raise that is right lets this many times as much complete.
const GAIN: f64 = 1.08;
/// Wait after a failed raise, seconds: first and longest.
const WAIT_FIRST: f64 = 1.0;
const WAIT_LONGEST: f64 = 15.0;
/// The estimate's bounds: far out, because a bound that holds the capacity but not the costs makes nonsense of both.
const LEAST: f64 = 1e-9;
const MOST: f64 = 1e9;

/// One server's capacity, given or learned.
#[derive(Clone, Debug)]
pub struct Capacity {
    processors: f64,
    given: bool,
    /// Seconds per unit of relative cost.
    scale: f64,
    /// What the estimate stands on, old windows faded.
    learned: Sum,
    in_service: u32,
    changed: Timestamp,
    /// Processor-seconds that a request present since the start would have received.
    received: f64,
    /// The same, each as a part of what the server was thought to have then.
    parts: f64,
    /// The same, had the server one processor only.
    shares: f64,
    /// Requests that completed.
    completed: u64,
    window: Window,
    raise: Raise,
    sharing: Sharing,
}

/// Where a request's stay at a server began.
#[derive(Clone, Copy, Debug, Default)]
pub struct Mark {
    received: f64,
    parts: f64,
    shares: f64,
    /// How many will have completed when all that were there before it have.
    ahead: u64,
}

/// Work and the time it took.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
struct Sum {
    seconds: f64,
    /// Relative work.
    work: f64,
    completions: f64,
}

/// What happened while the server had enough to do, since the window opened.
#[derive(Clone, Copy, Debug, Default)]
struct Window {
    /// When as many as `level` were in service last; at first, when it was opened.
    reached: Timestamp,
    /// In service at least this many: enough to do.
    level: u32,
    most: u32,
    sum: Sum,
    /// Request-seconds in service.
    area: f64,
}

/// The state of raising attempts.
#[derive(Clone, Copy, Debug, Default)]
struct Raise {
    /// What completed before the raise that is being tried, processors.
    before: Option<f64>,
    wait: f64,
    not_before: Timestamp,
}

impl Sum {
    /// `completions` like those of `like` on average, at `rate` work per second.
    fn at_rate(rate: f64, like: Sum, completions: f64) -> Sum {
        let each = if like.completions > 0.0 { like.work / like.completions } else { 0.0 };
        let work = each * completions;
        Sum { seconds: work / rate, work, completions }
    }
}

impl Capacity {
    /// A capacity that is known: `processors` (more than zero), never learned.
    pub fn given(processors: f64) -> Self {
        Capacity { given: true, ..Capacity::with(processors) }
    }

    /// A capacity to be learned, starting at one processor.
    pub fn learned() -> Self {
        Capacity::with(1.0)
    }

    fn with(processors: f64) -> Self {
        Capacity {
            processors: processors.clamp(LEAST, MOST),
            given: false,
            scale: 1.0,
            learned: Sum::default(),
            in_service: 0,
            changed: Timestamp::ZERO,
            received: 0.0,
            parts: 0.0,
            shares: 0.0,
            completed: 0,
            window: Window { level: 1, ..Window::default() },
            raise: Raise { wait: WAIT_FIRST, ..Raise::default() },
            sharing: Sharing::default(),
        }
    }

    /// From now on it is known to be `processors`.
    pub fn give(&mut self, processors: f64) {
        (self.processors, self.given) = (processors.clamp(LEAST, MOST), true);
    }

    /// From now on it is learned, starting with what it is.
    pub fn release(&mut self) {
        self.given = false;
    }

    /// Estimated number of effective processors.
    pub fn processors(&self) -> f64 {
        self.processors
    }

    /// Seconds per unit of relative cost.
    pub fn scale(&self) -> f64 {
        self.scale
    }

    /// Whether it was given rather than learned.
    pub fn is_given(&self) -> bool {
        self.given
    }

    /// Completions that the learned value stands on, up to its memory; 0 when nothing was learned yet.
    pub fn confidence(&self) -> f64 {
        self.learned.completions
    }

    /// One more request is in service from `now` on. Returns a mark for [`Capacity::received`].
    pub fn start(&mut self, now: Timestamp) -> Mark {
        self.advance(now);
        let ahead = self.completed + u64::from(self.in_service);
        self.in_service += 1;
        self.window.most = self.window.most.max(self.in_service);
        Mark { received: self.received, parts: self.parts, shares: self.shares, ahead }
    }

    /// How many requests completed, at least, that came after the one whose mark this is.
    pub fn overtakers(&self, mark: Mark) -> u64 {
        self.completed.saturating_sub(mark.ahead)
    }

    /// A request that has been there for `stay` seconds since `mark` hangs: it is not in service, and was not. It must
    /// not end ([`Capacity::end`]).
    pub fn set_aside(&mut self, now: Timestamp, mark: Mark, stay: f64) {
        self.witness(now, mark, stay, 0.0, None);
        self.in_service = self.in_service.saturating_sub(1);
    }

    /// Processor-seconds received until `now` by a request in service since [`Capacity::start`] returned `mark`.
    pub fn received(&mut self, now: Timestamp, mark: Mark) -> f64 {
        self.advance(now);
        self.received - mark.received
    }

    /// The same per processor: seconds of the whole server. Each moment counts by how many processors there were
    /// thought to be at that moment, or all that takes long would look dear whenever that number falls.
    pub fn received_per_processor(&mut self, now: Timestamp, mark: Mark) -> f64 {
        self.advance(now);
        self.parts - mark.parts
    }

    /// A request that has been there for `stay` seconds since `mark` is about to end. The server worked on it for
    /// `served` of them; `answered` is its relative cost, if it was answered. Call before [`Capacity::end`].
    pub fn witness(&mut self, now: Timestamp, mark: Mark, stay: f64, served: f64, answered: Option<f64>) {
        self.advance(now);
        let unserved = stay - served;
        if unserved > 0.0 {
            let share = self.shares - mark.shares;
            let shared_by = if share > 0.0 { stay / share } else { f64::from(self.in_service) };
            self.sharing.unserved(unserved, shared_by);
        }
        if let Some(relative) = answered {
            self.sharing.answered(self.in_service, relative);
        }
    }

    /// Relative costs have another unit than before.
    pub fn forget_sharing(&mut self) {
        self.sharing = Sharing::default();
    }

    /// Its time and work by how many were in service.
    pub fn sharing(&self) -> &Sharing {
        &self.sharing
    }

    /// A request ends after completing `work` units of relative work (0 for a cancel).
    pub fn end(&mut self, now: Timestamp, work: f64) {
        self.advance(now);
        self.completed += u64::from(work > 0.0);
        if self.in_service >= self.window.level && work > 0.0 {
            self.window.sum.work += work;
            self.window.sum.completions += 1.0;
        }
        self.in_service = self.in_service.saturating_sub(1);
    }

    /// The scale of costs, seconds per unit, is now `scale`.
    pub fn set_scale(&mut self, scale: f64) {
        if !self.given && self.scale > 0.0 {
            self.processors = (self.processors * scale / self.scale).clamp(LEAST, MOST);
        }
        self.scale = scale;
    }

    /// Reads the window if it says enough. `held_back`: admission refused requests since the last call; `full`: as many
    /// in service as keep the server busy, if that is known. Returns the estimate before, when it changed.
    pub fn learn(&mut self, now: Timestamp, held_back: bool, full: Option<u32>) -> Option<f64> {
        self.advance(now);
        if self.given {
            return None;
        }
        let before = self.processors;
        let window = self.window;
        let enough_to_do = f64::from(window.level) >= self.processors || full.is_some_and(|full| window.level >= full);
        let needed = if enough_to_do { WINDOW_COMPLETIONS } else { DOUBT_COMPLETIONS };
        if window.sum.completions >= needed && window.sum.seconds > 0.0 {
            self.read(now, window, enough_to_do, held_back);
            self.open_window(now, full);
        } else if now.seconds_since(window.reached) >= WINDOW_LONGEST
            && (window.most < window.level || self.enough(full) <= window.level / 2)
        {
            self.open_window(now, full);
        }
        (before != self.processors).then_some(before)
    }

    fn open_window(&mut self, now: Timestamp, full: Option<u32>) {
        // No more than there really are, or nothing is learned.
        let level = self.enough(full).min(self.window.most.max(1));
        self.window = Window { reached: now, level, most: self.in_service, ..Window::default() };
    }

    /// As many in service as give the server enough to do: clearly more than there are processors, for an estimate on
    /// the low side must be able to rise.
    fn enough(&self, full: Option<u32>) -> u32 {
        (libm::ceil(self.processors * ENOUGH_TO_DO) as u32).min(full.unwrap_or(u32::MAX))
    }

    fn read(&mut self, now: Timestamp, window: Window, enough_to_do: bool, held_back: bool) {
        let rate = window.sum.work * self.scale / window.sum.seconds;
        let stretch = window.area / window.sum.seconds / rate;
        if enough_to_do || rate > self.processors || stretch >= CLEARLY_QUEUED {
            self.average(window.sum);
        }
        // The fewer completions, the rougher the stretch: one bad window must not end the climb.
        let surely = 1.0 + 1.0 / libm::sqrt(window.sum.completions);
        // After a raise more must complete, or requests queue, whatever the costs say.
        let in_vain = self.raise.before.is_some_and(|before| rate < before * GAIN);
        if in_vain || stretch >= surely.max(NO_QUEUE) {
            self.raise_failed(now);
        } else if held_back && stretch < NO_QUEUE {
            self.try_raise(now, rate);
        }
    }

    /// Takes a window into the average: sums of work and of time, so that short windows weigh little.
    fn average(&mut self, window: Sum) {
        if self.learned.completions == 0.0 {
            self.learned = Sum::at_rate(self.processors / self.scale, window, PRIOR);
        }
        let memory = (window.completions / window.seconds * MEMORY_SECONDS).max(MEMORY);
        let sum = self.learned.completions + window.completions;
        let keep = ((memory - window.completions) / self.learned.completions).clamp(0.0, 1.0);
        self.learned = Sum {
            seconds: self.learned.seconds * keep + window.seconds,
            work: self.learned.work * keep + window.work,
            completions: sum.min(memory),
        };
        self.processors = (self.learned.work * self.scale / self.learned.seconds).clamp(LEAST, MOST);
    }

    fn try_raise(&mut self, now: Timestamp, rate: f64) {
        if self.raise.before.is_some() {
            // The last raise brought no queueing: it was right, and the next need not wait.
            self.raise.wait = WAIT_FIRST;
        } else if now < self.raise.not_before {
            return;
        }
        self.raise.before = Some(rate);
        self.processors = (self.processors * RAISE).min(MOST);
        // Belief, not measurement: a window or two may overrule it.
        let learned = self.learned;
        self.learned = Sum::at_rate(self.processors / self.scale, learned, learned.completions.min(2.0 * PRIOR));
    }

    fn raise_failed(&mut self, now: Timestamp) {
        if self.raise.before.take().is_some() {
            self.raise.not_before = now + core::time::Duration::from_secs_f64(self.raise.wait);
            self.raise.wait = (self.raise.wait * 2.0).min(WAIT_LONGEST);
        }
    }

    fn advance(&mut self, now: Timestamp) {
        if now <= self.changed {
            // An end asks for it several times: no time went by.
            if self.in_service >= self.window.level {
                self.window.reached = now;
            }
            return;
        }
        let dt = now.seconds_since(self.changed);
        let in_service = f64::from(self.in_service);
        let area = dt * in_service;
        self.sharing.pass(dt, self.in_service);
        let received = dt * (self.processors / in_service.max(1.0)).min(1.0);
        self.received += received;
        self.parts += received / self.processors;
        self.shares += dt / in_service.max(1.0);
        if self.in_service >= self.window.level {
            self.window.sum.seconds += dt;
            self.window.area += area;
            self.window.reached = now;
        }
        self.changed = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_long_request_received_does_not_depend_on_what_is_thought_at_its_end() {
        let at = Timestamp::from_millis;
        let mut server = Capacity::given(4.0);
        let mark = server.start(at(0));
        (0..7).for_each(|_| _ = server.start(at(0)));
        // Eight share the server for two seconds; in the second one it is thought to be a quarter of what it was.
        server.received(at(1000), mark);
        server.give(1.0);
        let each = server.received_per_processor(at(2000), mark);
        assert!((each - 0.25).abs() < 1e-9, "{each}");
    }

    #[test]
    fn a_server_that_never_has_so_many_again_is_learned_all_the_same() {
        let at = Timestamp::from_millis;
        let mut server = Capacity::learned();
        // Two at a time, one unit of work a second between them: what two do is watched from now on ...
        server.start(at(0));
        server.start(at(0));
        for second in 1..=20 {
            server.end(at(1000 * second), 1.0);
            server.start(at(1000 * second));
            server.learn(at(1000 * second), false, None);
        }
        assert_eq!(server.window.level, 2);
        // ... and then costs turn out to be a fiftieth of what was thought, and with them what the server can do.
        server.set_scale(0.02);
        server.end(at(20_000), 1.0);
        server.end(at(20_000), 1.0);
        assert!(server.processors() < 0.03, "{}", server.processors());
        // So only one is let in at a time, which is answered in 20 ms: one processor's work.
        for i in 0..500 {
            server.start(at(20_000 + 20 * i));
            server.end(at(20_020 + 20 * i), 1.0);
            server.learn(at(20_020 + 20 * i), true, None);
        }
        assert!(server.processors() > 0.8, "{}", server.processors());
    }
}
