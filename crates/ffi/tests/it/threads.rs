//! Threads share an application: every request gets one decision, each ticket ends once, and nothing is lost.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::thread;

use tidegate::abi::tidegate_close;
use tidegate::types::{self, Decision, End, POLL, Request};

use crate::calls::{arrive, complete, counts, open, poll, tick};

const EACH: u64 = 20_000;
const THREADS: u64 = 4;

/// What the threads have heard, by request.
struct Heard {
    app: u64,
    /// The threads' clock: a microsecond for each look.
    clock: AtomicU64,
    decided: Vec<AtomicU64>,
}

impl Heard {
    fn now(&self) -> u64 {
        self.clock.fetch_add(1000, SeqCst)
    }

    /// Notes a decision; who is admitted is answered at once. Gives the flags of the calls that came of it.
    fn take(&self, decision: &Decision) -> i32 {
        if decision.kind == types::WAITS {
            return 0;
        }
        assert_eq!(self.decided[decision.user as usize].fetch_add(1, SeqCst), 0, "decided twice");
        if decision.kind == types::REFUSED {
            return 0;
        }
        let flags = complete(self.app, self.now(), End { ticket: decision.ticket, ..End::default() });
        assert!(flags >= 0, "{flags}");
        flags
    }

    fn poll_all(&self) {
        while let Some(decision) = poll(self.app) {
            self.take(&decision);
        }
    }
}

#[test]
fn every_request_is_decided_once_whichever_thread_polls_it() {
    let total = (EACH * THREADS) as usize;
    let decided = (0..total).map(|_| AtomicU64::new(0)).collect();
    let heard = Heard { app: open("target = \"20ms\""), clock: AtomicU64::new(0), decided };
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let heard = &heard;
            scope.spawn(move || {
                for at in 0..EACH {
                    let user = thread * EACH + at;
                    let (decision, flags) = arrive(heard.app, heard.now(), Request { user, ..Request::default() });
                    if (flags | heard.take(&decision)) & POLL != 0 {
                        heard.poll_all();
                    }
                }
            });
        }
    });
    // Who still waits is decided as time goes by.
    let mut now = heard.now();
    while counts(heard.app, now, 0).waiting > 0 {
        now += 10_000_000;
        tick(heard.app, now);
        heard.poll_all();
    }
    heard.poll_all();
    assert!(heard.decided.iter().all(|times| times.load(SeqCst) == 1), "one was forgotten");
    let counts = counts(heard.app, now, 0);
    assert_eq!((counts.offered, counts.in_flight), (total as u64, 0));
    assert_eq!(counts.offered, counts.completed + counts.refused, "{counts:?}");
    assert_eq!(tidegate_close(heard.app), 0);
}
