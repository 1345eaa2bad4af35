//! The library under overload, in virtual time: the target is held through the boundary, and the more important class
//! goes first.

use std::collections::{HashMap, VecDeque};

use tidegate::abi::*;
use tidegate::types::{self, Counts, Decision, End, POLL, Request, SOONER};

/// Nanoseconds of a millisecond.
pub const MS: u64 = 1_000_000;

/// An application of this configuration.
pub fn open(config: &str) -> u64 {
    let mut app = 0;
    // SAFETY: the pointers are those of references.
    let code = unsafe { tidegate_open(config.as_ptr().cast(), config.len(), 7, &raw mut app, std::ptr::null_mut()) };
    assert_eq!(code, 0, "{config}");
    app
}

pub fn arrive(app: u64, now: u64, request: Request) -> (Decision, i32) {
    let mut decision = Decision::default();
    // SAFETY: the pointers are those of references.
    let flags = unsafe { tidegate_arrive(app, now, &raw const request, &raw mut decision) };
    assert!(flags >= 0, "{flags}");
    (decision, flags)
}

pub fn complete(app: u64, now: u64, end: End) -> i32 {
    // SAFETY: the pointer is that of a reference.
    unsafe { tidegate_complete(app, now, &raw const end) }
}

pub fn poll(app: u64) -> Option<Decision> {
    let mut decision = Decision::default();
    // SAFETY: the pointer is that of a reference.
    let count = unsafe { tidegate_poll(app, &raw mut decision, 1) };
    assert!((0..=1).contains(&count), "{count}");
    (count == 1).then_some(decision)
}

pub fn tick(app: u64, now: u64) -> (u64, i32) {
    let mut next = 0;
    // SAFETY: the pointer is that of a reference.
    let flags = unsafe { tidegate_tick(app, now, &raw mut next) };
    assert!(flags >= 0, "{flags}");
    (next, flags)
}

pub fn counts(app: u64, now: u64, class: u8) -> Counts {
    let mut counts = Counts::default();
    // SAFETY: the pointer is that of a reference.
    assert_eq!(unsafe { tidegate_count(app, now, class, &raw mut counts) }, 0);
    counts
}

/// A service in virtual time that takes one request after the other, each for 5 ms.
struct Service {
    app: u64,
    free_at: u64,
    work: VecDeque<(u64, Decision)>,
    arrived: HashMap<u64, u64>,
    times: [Vec<u64>; 2],
    refused: [u64; 2],
}

impl Service {
    fn take(&mut self, now: u64, decision: Decision) {
        match decision.kind {
            types::ADMITTED => {
                self.free_at = self.free_at.max(now) + 5 * MS;
                self.work.push_back((self.free_at, decision));
            }
            types::REFUSED => {
                self.arrived.remove(&decision.user);
                self.refused[usize::from(decision.class)] += 1;
            }
            _ => {}
        }
    }

    fn follow(&mut self, now: u64, flags: i32) -> bool {
        if flags & POLL != 0 {
            while let Some(decision) = poll(self.app) {
                self.take(now, decision);
            }
        }
        flags & SOONER != 0
    }
}

#[test]
fn at_three_times_what_can_be_served_the_target_is_held_and_gold_goes_first() {
    let app = open("target = \"100ms\"\n[[class]]\nname = \"gold\"\n[[class]]\nname = \"rest\"\n");
    let mut service = Service {
        app,
        free_at: 0,
        work: VecDeque::new(),
        arrived: HashMap::new(),
        times: [Vec::new(), Vec::new()],
        refused: [0; 2],
    };
    let (mut arrival, mut due, mut user) = (0, 0, 0);
    // 600 requests/s, of which 120 are gold; 200/s can be served.
    while arrival < 60_000 * MS {
        let answer = service.work.front().map_or(u64::MAX, |(at, _)| *at);
        let now = arrival.min(answer).min(due);
        let flags = if now == answer {
            let (_, decision) = service.work.pop_front().expect("there is one");
            let since = service.arrived.remove(&decision.user).expect("it arrived");
            service.times[usize::from(decision.class)].push(now - since);
            complete(app, now, End { ticket: decision.ticket, ..End::default() })
        } else if now == arrival {
            arrival += 1_666_667;
            user += 1;
            service.arrived.insert(user, now);
            let (decision, flags) =
                arrive(app, now, Request { user, class: u8::from(user % 5 != 0), ..Request::default() });
            service.take(now, decision);
            flags
        } else {
            let (next, flags) = tick(app, now);
            due = next;
            flags
        };
        if service.follow(now, flags) {
            due = now;
        }
    }
    let [gold, rest] = [0, 1].map(|class| counts(app, arrival, class));
    assert_eq!((gold.refused, rest.refused), (service.refused[0], service.refused[1]));
    for counts in [gold, rest] {
        assert_eq!(counts.offered, counts.admitted + counts.refused + counts.waiting, "{counts:?}");
    }
    assert!(gold.admitted * 100 > gold.offered * 97, "gold is 60 % of what can be served: {gold:?}");
    assert!((gold.completed + rest.completed) * 100 > 200 * 60 * 95, "little is left idle: {gold:?} {rest:?}");
    let mut times = service.times.concat();
    times.sort_unstable();
    let p95 = times[times.len() * 95 / 100];
    assert!(p95 <= 100 * MS, "p95 is {} ms", p95 / MS);
    assert_eq!(tidegate_close(app), 0);
}
