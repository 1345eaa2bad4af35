//! Who gives way when connections, descriptors or memory are short.
//!
//! *Intuition.* While there is room nobody is counted: a thousand people behind one address may have a thousand
//! connections. When there is none, what goes is what waits for its client and asks for nothing: idle connections, half
//! a head, an answer that is not read. Which of them first? Each client's connections are a pile, the youngest on top;
//! what lies deepest in its own pile goes first. So who has most loses first, and nobody with less than the share that
//! all could have loses anything (max-min fairness). Memory goes the same way, with bytes for connections.
//!
//! *Awkward cases.* A client is an address, or 64 bits of one in IPv6, where each customer has so many. A load balancer
//! speaks for many: networks in `trust` are no pile. Connections whose servers are working lie on top and do not go;
//! but they count, so that a client with much work in flight has less that is idle. A worker looks at its own
//! connections only: the kernel deals them to the workers at random, so shares there are shares of all.
//!
//! *Source.* Suter et al., *Buffer management schemes for supporting TCP in gigabit routers with per-flow queueing*
//! (1999): longest queue drop.

use std::cell::Cell;
use std::net::IpAddr;
use std::rc::Rc;
use std::time::Duration;

use tidegate_engine::Timestamp;
use tokio::sync::Notify;
use tracing::warn;

use crate::client::{Client, Wait};
use crate::counters::Counter;
use crate::share::WorkerApp;

/// One connection in so many makes room at once: going through all of them is then cheap for each that comes.
const AT_ONCE: usize = 64;

/// Nobody gave way: for so long it is not looked again.
const IN_VAIN: Duration = Duration::from_millis(20);

/// An answer of which the client took nothing for so long is not read. Short of memory nobody waits for that.
const UNREAD: Duration = Duration::from_secs(2);

/// Short of memory, so many eighths of the bound are left to clients.
const EIGHTHS_LEFT: u64 = 7;

/// Shortages are said this often at most.
const SAID_EVERY: Duration = Duration::from_secs(10);

/// What a worker remembers of shortages.
#[derive(Debug, Default)]
pub(crate) struct Shortage {
    /// Clients together hold too much.
    pub(crate) of_memory: Notify,
    /// Connections that were told to go and whose places nobody took yet.
    made: Cell<usize>,
    in_vain_until: Cell<Timestamp>,
    said_until: Cell<Timestamp>,
    /// The workers' wants of descriptors that were answered.
    lacks: Cell<u64>,
}

/// A connection as the choice sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Candidate {
    key: usize,
    /// Whose it is; `None`: a proxy's, which speaks for many.
    pile: Option<u64>,
    /// Since when it waits for its client, nanoseconds; `None`: it does not, and stays.
    since: Option<i64>,
    /// What it takes of what is short.
    weight: u64,
}

/// Whether one more connection may stay although there are as many as may be, or all hold far too much: for each that
/// is told to go, one.
pub(crate) fn make_room(worker: &WorkerApp) -> bool {
    let shortage = &worker.shortage;
    if shortage.made.get() == 0 {
        let now = worker.now();
        if now < shortage.in_vain_until.get() {
            return false;
        }
        shortage.made.set(if worker.is_full() { free_memory(worker) } else { close_waiting(worker) });
        if shortage.made.get() == 0 {
            shortage.in_vain_until.set(now + IN_VAIN);
            return false;
        }
    }
    shortage.made.update(|made| made - 1);
    true
}

/// Whether one more handshake may begin although there are as many as may be: of those under way, the one that lies
/// deepest in the largest pile goes.
pub(crate) fn make_handshake_room(worker: &WorkerApp) -> bool {
    let mut candidates = candidates(worker, UNREAD, |_| 1);
    let clients = worker.clients.borrow();
    candidates
        .retain(|candidate| clients.get(candidate.key).is_some_and(|client| client.waits_for() == Wait::Handshake));
    drop(clients);
    close(worker, first_to_go(candidates, 1), Counter::ConnectionsMadeRoom) > 0
}

/// The system has no descriptor left: connections that rest go, to servers and from clients. How many; those of clients
/// are closed when their tasks had their turn.
pub(crate) fn give_back_descriptors(worker: &WorkerApp) -> usize {
    worker.app.counters.note_lack();
    worker.close_resting() + close_waiting(worker)
}

/// When another worker had no descriptor left: all that are there may be at rest here.
pub(crate) fn help_others(worker: &WorkerApp) {
    let lacks = worker.app.counters.lacks();
    if worker.shortage.lacks.replace(lacks) != lacks {
        worker.close_resting();
        close_waiting(worker);
    }
}

/// While clients together hold more than they may: this worker's part of what is too much goes, and its connections to
/// servers that rest. While what they hold leaves no room for streams, only connections go that ask for nothing. How
/// many are going: those too that were told before and had no turn since. What these hold counts until they have it,
/// and is not asked of others once more.
pub(crate) fn free_memory(worker: &WorkerApp) -> usize {
    let (held, streams, most) = (worker.app.counters.held(), worker.app.counters.streams_take(), worker.most_held());
    if held.max(streams) > most {
        worker.close_resting();
    }
    let excess = excess(held, streams, most);
    if excess == 0 {
        return 0;
    }
    let clients = worker.clients.borrow();
    let (mut own, mut going, mut told) = (0, 0, 0);
    for (_, client) in &*clients {
        let bytes = u64::from(client.held.get());
        own += bytes;
        if client.gives_way() {
            going += bytes;
            told += 1;
        }
    }
    let wanted = part(excess, held, own).saturating_sub(going);
    if wanted == 0 {
        return told;
    }
    let mut candidates = candidates(worker, Duration::ZERO, |client| client.held.get().into());
    if held <= most {
        let is_idle = |key| clients.get(key).is_some_and(|client| client.waits_for() == Wait::Idle);
        candidates.iter_mut().for_each(|one| one.since = one.since.filter(|_| is_idle(one.key)));
    }
    drop(clients);
    let closed = close(worker, first_to_go(candidates, wanted), Counter::ConnectionsShed);
    say(worker, "memory", closed);
    told + closed
}

/// How many bytes of those `held` for clients are to be freed, where streams take others and both may take `most`.
fn excess(held: u64, streams: u64, most: u64) -> u64 {
    let taken = if held > most { held } else { held + streams };
    if held == 0 || taken < most {
        return 0;
    }
    let excess = taken - most / 8 * EIGHTHS_LEFT;
    // Where it is the streams that take most, the few that rest would make no difference.
    if held > most { excess } else { excess.min(held.saturating_sub(most / 8)) }
}

/// The part of it that a worker has to free which holds `own` of what is held.
fn part(excess: u64, held: u64, own: u64) -> u64 {
    (u128::from(excess) * u128::from(own) / u128::from(held)) as u64
}

/// Closes some of the connections that wait for their clients: how many.
fn close_waiting(worker: &WorkerApp) -> usize {
    let candidates = candidates(worker, UNREAD, |client| u64::from(!client.is_stream.get()));
    let wanted = (candidates.len() / AT_ONCE).max(1);
    let closed = close(worker, first_to_go(candidates, wanted as u64), Counter::ConnectionsMadeRoom);
    say(worker, "connections or descriptors", closed);
    closed
}

fn close(worker: &WorkerApp, keys: Vec<usize>, counter: Counter) -> usize {
    let clients = worker.clients.borrow();
    for client in keys.iter().filter_map(|key| clients.get(*key)) {
        worker.lane().bump(counter);
        client.give_way();
    }
    keys.len()
}

/// All connections of a worker. `unread`: for how long an answer must lie there to count as not read.
fn candidates(worker: &WorkerApp, unread: Duration, weigh: impl Fn(&Client) -> u64) -> Vec<Candidate> {
    let (live, now) = (worker.local().live.clone(), worker.now());
    let (timeouts, trust) = (&live.config.timeouts, &live.config.forwarded.trust);
    let clients = worker.clients.borrow();
    let candidate = |(key, client): (usize, &Rc<Client>)| {
        let address = client.peer().ip().to_canonical();
        let is_proxy = trust.iter().any(|network| network.contains(&address));
        Candidate {
            key,
            pile: (!is_proxy).then(|| pile(address)),
            since: client.waits_since(timeouts, now, unread),
            weight: weigh(client),
        }
    };
    clients.iter().map(candidate).collect()
}

/// Whose connections are counted together: an address, or the first 64 bits of an IPv6 one.
pub(crate) fn pile(address: IpAddr) -> u64 {
    match address {
        // Nobody has an address that begins like a multicast one.
        IpAddr::V4(address) => 0xFF << 56 | u64::from(address.to_bits()),
        IpAddr::V6(address) => (address.to_bits() >> 64) as u64,
    }
}

/// Which go, so that `wanted` is free, or as much as can be.
fn first_to_go(mut candidates: Vec<Candidate>, wanted: u64) -> Vec<usize> {
    // Within a pile from top to bottom: what stays, then the youngest.
    candidates.sort_unstable_by_key(|one| (one.pile, one.since.is_some(), one.since.map(std::cmp::Reverse)));
    let (mut pile, mut depth) = (None, 0);
    let mut going = Vec::new();
    for one in candidates {
        if one.pile.is_none() || one.pile != pile {
            (pile, depth) = (one.pile, 0);
        }
        depth += one.weight;
        if let Some(since) = one.since.filter(|_| one.weight > 0) {
            // A proxy's are on top of everybody's.
            let depth = if one.pile.is_some() { depth } else { 0 };
            going.push((std::cmp::Reverse(depth), since, one.key, one.weight));
        }
    }
    going.sort_unstable();
    let mut freed = 0;
    let enough = |&(_, _, _, weight): &(_, _, _, u64)| {
        let more = freed < wanted;
        freed += weight;
        more
    };
    going.into_iter().take_while(enough).map(|(_, _, key, _)| key).collect()
}

fn say(worker: &WorkerApp, of: &'static str, closed: usize) {
    let (said, now) = (&worker.shortage.said_until, worker.now());
    if closed > 0 && now >= said.get() {
        said.set(now + SAID_EVERY);
        let app = worker.app.name();
        warn!(app, closed, "short of {of}: connections that wait for their clients are closed");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(key: usize, pile: u64, since: Option<i64>) -> Candidate {
        Candidate { key, pile: Some(pile), since, weight: 1 }
    }

    #[test]
    fn who_has_most_loses_first_and_of_its_own_the_oldest() {
        let few = [one(0, 1, Some(0)), one(1, 1, Some(1))];
        let many = (2..8).map(|key| one(key, 2, Some(100 - key as i64)));
        let all: Vec<_> = few.into_iter().chain(many).collect();
        assert_eq!(first_to_go(all.clone(), 4), [7, 6, 5, 4]);
        // Even now: the oldest of all, and then in turn.
        assert_eq!(first_to_go(all.clone(), 6), [7, 6, 5, 4, 0, 3]);
        assert_eq!(first_to_go(all, 100).len(), 8);
    }

    #[test]
    fn what_works_stays_and_counts() {
        let busy = (0..5).map(|key| one(key, 1, None));
        let all: Vec<_> = busy.chain([one(5, 1, Some(9)), one(6, 2, Some(0)), one(7, 2, Some(1))]).collect();
        assert_eq!(first_to_go(all.clone(), 1), [5], "its client has six");
        assert_eq!(first_to_go(all, 9), [5, 6, 7]);
    }

    #[test]
    fn a_proxy_speaks_for_many() {
        let proxied = (0..5).map(|key| Candidate { pile: None, ..one(key, 0, Some(0)) });
        let all: Vec<_> = proxied.chain([one(5, 1, Some(9))]).collect();
        assert_eq!(first_to_go(all, 2), [5, 0]);
    }

    #[test]
    fn memory_goes_by_bytes() {
        let held = |key, pile, weight| Candidate { weight, ..one(key, pile, Some(key as i64)) };
        let all = vec![held(0, 1, 0), held(1, 1, 10), held(2, 2, 5), held(3, 2, 7), held(4, 2, 0)];
        // The second client holds more, though less on each connection; what holds nothing frees nothing.
        assert_eq!(first_to_go(all.clone(), 1), [2]);
        assert_eq!(first_to_go(all.clone(), 6), [2, 1]);
        assert_eq!(first_to_go(all, 100), [2, 1, 3]);
    }

    #[test]
    fn what_is_too_much_is_freed_by_workers_as_they_hold_it() {
        assert_eq!(excess(1000, 0, 800), 300, "what is more than seven eighths");
        assert_eq!((part(300, 1000, 500), part(300, 1000, 1000)), (150, 300));
        assert_eq!(excess(799, 0, 800), 0);
        // Streams take a quarter of the bound; what rests makes way for them, but for an eighth of it.
        assert_eq!(excess(700, 200, 800), 200);
        assert_eq!(excess(200, 900, 800), 100);
    }

    #[test]
    fn an_ipv6_client_is_a_network_of_64_bits() {
        let of = |text: &str| pile(text.parse().expect("an address"));
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:2"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_ne!(of("192.0.2.1"), of("192.0.2.2"));
        assert_ne!(of("::1"), of("0.0.0.0"));
    }
}
