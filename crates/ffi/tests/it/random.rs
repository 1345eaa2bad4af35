//! Calls with whatever numbers, in whatever order: each is answered with a success or an error, and nothing breaks.

use std::hash::{BuildHasher, Hasher, RandomState};

use tidegate::abi::*;
use tidegate::types::{Decision, End, Request};

use crate::calls::{MS, open};

/// xorshift: good enough to be anything.
struct Any(u64);

impl Any {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// One of these, or anything.
    fn of(&mut self, likely: &[u64]) -> u64 {
        let (wild, pick) = (self.next(), self.next());
        if wild % 8 == 0 { pick } else { likely[pick as usize % likely.len()] }
    }

    fn below(&mut self, most: u64) -> u64 {
        self.next() % most
    }
}

/// One call, of any kind; and whether it may have said that a handle or a ticket is wrong.
fn call(any: &mut Any, app: u64, now: u64, tickets: &mut Vec<u64>) -> i32 {
    let ticket = any.of(tickets);
    let request = Request {
        deadline_ns: any.of(&[0, 0, now + 50 * MS, 1]),
        url: any.of(&[0, 1, 2]),
        tenant: any.of(&[0, 1, 2]),
        session: any.of(&[0, 0, 9]),
        user: any.next(),
        request_type: any.of(&[0, 1]) as u16,
        class: any.of(&[0, 1]) as u8,
        is_retry: any.of(&[0, 0, 1]) as u8,
        reserved: 0,
    };
    let end = End {
        ticket,
        service_time_ns: any.of(&[0, MS, 5 * MS]),
        bytes: any.of(&[0, 1000]),
        end: any.of(&[0, 0, 1, 2, 3]) as u32,
        reserved: 0,
    };
    let mut decisions = [Decision::default(); 4];
    let mut next = 0;
    // SAFETY: the pointers are those of references, and the lists as long as is said.
    unsafe {
        match any.below(12) {
            0..4 => {
                let code = tidegate_arrive(app, now, &raw const request, &raw mut decisions[0]);
                tickets.extend((decisions[0].ticket != 0).then_some(decisions[0].ticket));
                code
            }
            4..6 => tidegate_complete(app, now, &raw const end),
            6 => tidegate_cancel(app, now, ticket),
            7 => tidegate_abandon(app, now, ticket, any.of(&[0, 1]) as u32, any.below(2) as i32),
            8 => tidegate_poll(app, decisions.as_mut_ptr(), any.below(5) as usize).min(0),
            9 => tidegate_tick(app, now, &raw mut next),
            10 => tidegate_first_byte(app, now, ticket),
            _ => match any.below(40) {
                0 => tidegate_server(app, now, any.of(&[0, 1]) as u16, any.of(&[0, 0, 1, 2]) as u32),
                1 => tidegate_shadow(app, now, any.below(2) as i32),
                _ => 0,
            },
        }
    }
}

fn play(seed: u64) {
    let mut any = Any(seed | 1);
    let app = open(
        "target = \"50ms\"\nservers = [\"a\", \"b\"]\nrequest_types = [\"x\", \"y\"]\n\
         [[class]]\nname = \"gold\"\nmin_rate = \"50/s\"\n[[class]]\nname = \"rest\"\n",
    );
    let (mut now, mut tickets) = (0u64, vec![0]);
    for step in 0..20_000 {
        // Mostly onwards, at times back, and late in the play as far as there is time.
        now = match any.below(1000) {
            0 => now.saturating_sub(any.below(MS)),
            1 if step > 19_000 => any.next(),
            _ => now.saturating_add(any.below(3 * MS)),
        };
        let code = call(&mut any, app, now, &mut tickets);
        assert!((-3..=3).contains(&code), "seed {seed}, step {step}: {code}");
        if tickets.len() > 64 {
            tickets.swap_remove(any.below(64) as usize);
        }
    }
    assert_eq!(tidegate_close(app), 0, "seed {seed}");
}

#[test]
fn no_number_breaks_it() {
    let given = std::env::var("TIDEGATE_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed: u64 = given.unwrap_or_else(|| RandomState::new().build_hasher().finish());
    println!("TIDEGATE_SEED={seed}");
    (0..10).for_each(|at| play(seed.wrapping_add(at)));
}
