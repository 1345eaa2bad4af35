//! How clients of HTTP/2 behave, and what a worker does about it.
//!
//! *Intuition.* What is odd is seldom evil: a library sends more PINGs than it needs, a page is left and resets its
//! requests. While the worker has time, that costs nobody anything, and it is let be up to bounds that only a flood
//! reaches. When the worker has no rest any more, whatever is odd takes time from somebody who asks for something: the
//! bounds are a twentieth of what they were, connections that come anew may have fewer streams at once (so it is while
//! memory is short, too), and who was closed for its conduct and comes again at once finds the door shut. Streams are
//! memory, too: when there are as many as there is room for, who has much of it gets no more.
//!
//! *Awkward cases.* A client is what [`pile`] says, and a load balancer that is trusted is no client: it speaks for
//! many, and is never shut out. A worker is short of time as well where other programs take its processor: what counts
//! is the time in which it had work, whether it could do it or waited for its turn. Many requests that are refused
//! make it short, too, and that is right: those who ask go before those who do not.
//!
//! *Source.* HAProxy's `tune.glitches.kill.cpu-usage`, and its `rq-load` for the streams that it advertises.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

use http::HeaderMap;
use tidegate_engine::Timestamp;

use crate::counters::Counter;
use crate::share::WorkerApp;
use crate::shed::pile;
use crate::tls::budget::Usage;
use crate::tls::session::usage;

/// A worker that has had work for so much of its time is short of it.
const SHORT: f64 = 0.9;

/// From here on connections that come anew may have fewer streams, down to [`FEWEST`] of them where there is no rest.
const SHRINK: f64 = 0.8;
const FEWEST: f64 = 0.15;

/// Of what is odd, this much is borne while the worker is short.
pub(super) const STRICT: u32 = 20;

/// How often it is looked.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Who was closed for its conduct is remembered for so long, and so many of them.
const REMEMBERED: Duration = Duration::from_secs(10);
const MOST_REMEMBERED: usize = 4096;

/// What a stream takes while it is open, bytes, besides its head: its task, its part of what `h2` keeps, and of a
/// connection to a server.
pub(crate) const STREAM_BYTES: u32 = 8192;

/// What it takes besides where servers speak HTTP/1.1, so that it has a connection to itself: hyper's buffer for heads,
/// and the first for what comes. Measured: 31 KB for all of a stream before which an answer of 4 MB begins.
const SERVER_BYTES: u32 = 16 * 1024;

/// What a field takes besides its name and value, in the tables of a head.
const FIELD_BYTES: usize = 128;

/// A client whose streams take no more than this is refused none for what all take: a dozen where servers speak
/// HTTP/1.1.
const LITTLE: u64 = 320 << 10;

/// What a worker knows of its clients' conduct, and of its own time.
#[derive(Debug, Default)]
pub(crate) struct Conduct {
    looked: Cell<Timestamp>,
    usage: Cell<Usage>,
    busy: Cell<f64>,
    offenders: RefCell<HashMap<u64, Timestamp>>,
    /// Bytes that streams take, by client.
    streams: RefCell<HashMap<Option<u64>, u64>>,
}

impl Conduct {
    /// Of its time lately, the part in which the worker had work: 1: it has no rest.
    fn busy(&self, now: Timestamp, usage: impl FnOnce() -> Usage) -> f64 {
        let elapsed = now.since(self.looked.get());
        if elapsed >= LOOK_EVERY {
            let (before, after) = (self.usage.get(), usage());
            let had = |usage: Usage| (usage.used + usage.waited).as_secs_f64();
            let share = (had(after) - had(before)) / elapsed.as_secs_f64();
            // After a pause one look says all there is to say; of two in a row each says half.
            let weight = if elapsed > LOOK_EVERY * 10 { 1.0 } else { 0.5 };
            self.busy.set(self.busy.get() + weight * (share.clamp(0.0, 1.0) - self.busy.get()));
            self.looked.set(now);
            self.usage.set(after);
        }
        self.busy.get()
    }

    /// How much less is borne of what is odd: 1: nothing less.
    pub(super) fn strictness(&self, now: Timestamp) -> u32 {
        if self.busy(now, usage) >= SHORT { STRICT } else { 1 }
    }

    /// Streams that a new connection may have at once, of as many as it may have at most, where so much of the room for
    /// streams is taken.
    fn streams(&self, now: Timestamp, most: u32, taken: f64) -> u32 {
        let short = ((self.busy(now, usage) - SHRINK) / (1.0 - SHRINK)).max((taken - 0.5) / 0.5);
        let excess = short.clamp(0.0, 1.0);
        ((f64::from(most) * (1.0 - excess * (1.0 - FEWEST))) as u32).max(1)
    }

    fn note_offence(&self, of: u64, now: Timestamp) {
        let mut offenders = self.offenders.borrow_mut();
        if offenders.len() >= MOST_REMEMBERED {
            offenders.retain(|_, at| now.since(*at) < REMEMBERED);
        }
        if offenders.len() < MOST_REMEMBERED {
            offenders.insert(of, now);
        }
    }

    fn offended(&self, of: u64, now: Timestamp) -> bool {
        self.offenders.borrow().get(&of).is_some_and(|at| now.since(*at) < REMEMBERED)
    }

    /// Whether a client's streams take much of what all take: more than a little, and more than a quarter of the mean.
    fn has_most(&self, of: Option<u64>) -> bool {
        let streams = self.streams.borrow();
        let all: u64 = streams.values().sum();
        let own = streams.get(&of).copied().unwrap_or(0);
        own > LITTLE && 4 * own * streams.len() as u64 >= all
    }
}

/// Whose a connection is; `None`: a proxy's, which speaks for many.
fn owner(worker: &WorkerApp, peer: IpAddr) -> Option<u64> {
    let peer = peer.to_canonical();
    let local = worker.local();
    let is_proxy = local.live.config.forwarded.trust.iter().any(|network| network.contains(&peer));
    (!is_proxy).then(|| pile(peer))
}

/// Streams that a new connection may have at once.
pub(super) fn streams(worker: &WorkerApp) -> u32 {
    let limits = &worker.local().live.config.limits;
    let taken = worker.app.counters.streams_take() as f64 / worker.most_held().max(1) as f64;
    worker.conduct.streams(worker.now(), u32::try_from(limits.streams).unwrap_or(u32::MAX), taken)
}

/// A client was closed for what it did.
pub(super) fn note_offence(worker: &WorkerApp, peer: IpAddr) {
    if let Some(owner) = owner(worker, peer) {
        worker.conduct.note_offence(owner, worker.now());
    }
}

/// Whether a client that connects is turned away: for its conduct a moment ago, while the worker is short of time.
pub(crate) fn turns_away(worker: &WorkerApp, peer: IpAddr) -> bool {
    let conduct = &worker.conduct;
    if conduct.offenders.borrow().is_empty() {
        return false;
    }
    let now = worker.now();
    owner(worker, peer).is_some_and(|owner| conduct.offended(owner, now)) && conduct.strictness(now) > 1
}

/// Whether there is room for one more request of a client beside others on its connection; one that there is not room
/// for is counted.
pub(crate) fn has_room(worker: &WorkerApp, peer: IpAddr) -> bool {
    let is_crowded = is_crowded(worker, peer);
    if is_crowded {
        worker.lane().bump(Counter::Http2Crowded);
        worker.shortage.of_memory.notify_one();
    }
    !is_crowded
}

/// Whether there is no room for one more stream of a client: all take as much as they may, and its own much of that. A
/// proxy's are refused at twice as much.
fn is_crowded(worker: &WorkerApp, peer: IpAddr) -> bool {
    let counters = &worker.app.counters;
    let (taken, room) = (counters.streams_take() + counters.held(), worker.most_held());
    if taken < room {
        return false;
    }
    let owner = owner(worker, peer);
    if owner.is_none() { taken >= 2 * room } else { worker.conduct.has_most(owner) }
}

/// A stream in the books, until [`end`](Self::end).
#[derive(Debug)]
pub(crate) struct Counted {
    owner: Option<u64>,
    bytes: u32,
    /// Of these, of a head that came in a message.
    told: u32,
}

impl Counted {
    /// One with this head, which is there twice: as it came, and as it is written to a server.
    pub(crate) fn new(worker: &WorkerApp, peer: IpAddr, head: &HeaderMap) -> Self {
        let owner = owner(worker, peer);
        let server = if worker.asks_by_http1() { SERVER_BYTES } else { 0 };
        let bytes = (STREAM_BYTES + server).saturating_add(twice(head));
        *worker.conduct.streams.borrow_mut().entry(owner).or_default() += u64::from(bytes);
        worker.lane().count_streams(0, bytes);
        Counted { owner, bytes, told: 0 }
    }

    /// This head came in a message and is held, or none is any more.
    pub(crate) fn hold(&mut self, worker: &WorkerApp, head: Option<&HeaderMap>) {
        let told = head.map_or(0, twice);
        let before = self.bytes;
        self.bytes = (before - self.told).saturating_add(told);
        self.told = self.bytes - (before - self.told);
        let mut streams = worker.conduct.streams.borrow_mut();
        let own = streams.entry(self.owner).or_default();
        *own = (*own + u64::from(self.bytes)).saturating_sub(before.into());
        worker.lane().count_streams(before, self.bytes);
    }

    /// Whether it is to give way at once: memory is short, and its client has much of it.
    pub(crate) fn gives_way(&self, worker: &WorkerApp) -> bool {
        self.owner.is_some() && worker.holds_too_much() && worker.conduct.has_most(self.owner)
    }

    /// It is over.
    pub(crate) fn end(&self, worker: &WorkerApp) {
        worker.lane().count_streams(self.bytes, 0);
        let mut streams = worker.conduct.streams.borrow_mut();
        if let Some(left) = streams.get_mut(&self.owner) {
            *left = left.saturating_sub(self.bytes.into());
            if *left == 0 {
                streams.remove(&self.owner);
            }
        }
    }
}

/// Bytes of a head that is there twice.
fn twice(head: &HeaderMap) -> u32 {
    let fields: usize = head.iter().map(|(name, value)| name.as_str().len() + value.len() + FIELD_BYTES).sum();
    u32::try_from(2 * fields).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A worker that had work for `share` of each of `looks` spans between two looks.
    fn worked(conduct: &Conduct, from: Timestamp, share: f64, looks: u32) -> Timestamp {
        (1..=looks).fold(from, |now, _| {
            let now = now + LOOK_EVERY;
            let before = conduct.usage.get();
            let had = Usage {
                used: before.used + LOOK_EVERY.mul_f64(share / 2.0),
                waited: before.waited + LOOK_EVERY.mul_f64(share / 2.0),
            };
            conduct.busy(now, || had);
            now
        })
    }

    #[test]
    fn without_rest_less_is_borne_and_fewer_streams_are_given() {
        let conduct = Conduct::default();
        let now = worked(&conduct, Timestamp::ZERO, 0.5, 20);
        let no_look = || -> Usage { panic!("looked too soon") };
        assert!((conduct.busy(now, no_look) - 0.5).abs() < 0.01);
        assert_eq!((conduct.strictness(now), conduct.streams(now, 100, 0.5)), (1, 100));
        assert_eq!(conduct.streams(now, 100, 1.0), 15, "there is time, and no room");
        let now = worked(&conduct, now, 1.0, 20);
        assert_eq!((conduct.strictness(now), conduct.streams(now, 100, 0.0)), (STRICT, 15));
        assert_eq!(conduct.streams(now, 1, 0.0), 1);
        let now = worked(&conduct, now, 0.0, 20);
        assert_eq!((conduct.strictness(now), conduct.streams(now, 100, 0.0)), (1, 100));
    }

    #[test]
    fn offenders_are_remembered_for_a_while_and_never_too_many() {
        let conduct = Conduct::default();
        for of in 0..2 * MOST_REMEMBERED as u64 {
            conduct.note_offence(of, Timestamp::ZERO);
        }
        assert_eq!(conduct.offenders.borrow().len(), MOST_REMEMBERED);
        let later = Timestamp::ZERO + REMEMBERED;
        assert!(conduct.offended(0, Timestamp::ZERO) && !conduct.offended(0, later));
        conduct.note_offence(7, later);
        assert_eq!(conduct.offenders.borrow().len(), 1, "those of old are forgotten");
    }

    #[test]
    fn whose_streams_take_much_gets_no_more() {
        let conduct = Conduct::default();
        let mib = |count: u64| count << 20;
        conduct.streams.borrow_mut().extend([(Some(1), mib(40)), (Some(2), mib(6)), (Some(3), mib(2)), (Some(4), 3)]);
        assert_eq!([1, 2, 3, 4, 5].map(|of| conduct.has_most(Some(of))), [true, true, false, false, false]);
        conduct.streams.borrow_mut().extend((1..=4).map(|of| (Some(of), mib(6))));
        assert!((1..=4).all(|of| conduct.has_most(Some(of))), "all have the same, and there is no room");
        conduct.streams.borrow_mut().extend((1..=4).map(|of| (Some(of), LITTLE)));
        assert!(!conduct.has_most(Some(1)));
    }
}
