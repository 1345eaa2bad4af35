//! Time for stages: tokio's clock as the engine's [`Timestamp`], read once where that is enough.
//!
//! Reading a clock costs more than the rest of an enqueue. While a worker is polled, the time it read last serves the
//! sends of its handler too: it is behind by at most the processor time of one event. The first reading in each poll is
//! fresh, so no wait is ever skipped over. Outside of workers every reading is fresh.
//!
//! Services of millions of events per second may have the processor's counter read in place of the system's clock.

use std::cell::Cell;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use tidegate_engine::Timestamp;

use crate::tag;

thread_local! {
    /// What this thread's worker read last; zero: nothing to go by.
    static LAST: Cell<Reading> = const { Cell::new(Reading { in_worker: false, at: Timestamp::ZERO }) };
}

#[derive(Clone, Copy)]
struct Reading {
    in_worker: bool,
    at: Timestamp,
}

/// Has every stage and layer of this process read the processor's time-stamp counter from now on, in place of the
/// system's clock: a third of the cost, for services of millions of events per second. Where the processor has no
/// counter of constant rate, nothing changes.
///
/// Call it at the beginning of `main`: the first call takes up to 200 ms, to measure the counter's rate. A paused tokio
/// clock is not followed any more, so do not call it in tests that use one.
pub fn use_processor_clock() {
    PROCESSOR.get_or_init(|| {
        let clock = quanta::Clock::new();
        Processor { began: clock.raw(), base: system_now(), clock }
    });
}

/// The processor's counter, once somebody asked for it.
static PROCESSOR: OnceLock<Processor> = OnceLock::new();

struct Processor {
    clock: quanta::Clock,
    /// The counter at `base`, nanoseconds since the origin.
    began: u64,
    base: u64,
}

/// The time now. Every graph and layer of the process counts from one origin, so their timestamps compare.
#[inline]
pub(crate) fn now() -> Timestamp {
    let nanos = match PROCESSOR.get() {
        Some(Processor { clock, began, base }) => base + clock.delta_as_nanos(*began, clock.raw()),
        None => system_now(),
    };
    let at = Timestamp::from_nanos(nanos);
    LAST.with(|last| {
        if last.get().in_worker {
            last.set(Reading { in_worker: true, at });
        }
    });
    at
}

/// The time a worker on this thread read last in its present poll, or the time now.
#[inline]
pub(crate) fn recent() -> Timestamp {
    let last = LAST.with(Cell::get);
    if last.at == Timestamp::ZERO { now() } else { last.at }
}

/// The tokio instant of a timestamp: for timers.
pub(crate) fn instant(at: Timestamp) -> tokio::time::Instant {
    let far = Duration::from_secs(365 * 86_400);
    let now = tokio::time::Instant::now();
    now + at.since(self::now()).min(far)
}

/// Marks that a worker is being polled on this thread, until dropped.
pub(crate) struct InWorker {
    before: Reading,
    stage_before: u64,
}

impl InWorker {
    /// A worker of the stage with this tag begins; it knows no time yet.
    pub(crate) fn enter(stage: u64) -> Self {
        let before = LAST.replace(Reading { in_worker: true, at: Timestamp::ZERO });
        InWorker { before, stage_before: tag::set_current(stage) }
    }
}

impl Drop for InWorker {
    fn drop(&mut self) {
        LAST.set(self.before);
        tag::set_current(self.stage_before);
    }
}

fn system_now() -> u64 {
    tokio::time::Instant::now().into_std().duration_since(origin()).as_nanos() as u64
}

/// An hour before the first use: a paused clock may have stopped a little before it.
fn origin() -> Instant {
    static ORIGIN: OnceLock<Instant> = OnceLock::new();
    *ORIGIN.get_or_init(|| {
        let now = Instant::now();
        now.checked_sub(Duration::from_secs(3600)).unwrap_or(now)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn only_a_worker_in_its_poll_goes_by_what_it_read() {
        let first = recent();
        tokio::time::advance(Duration::from_millis(5)).await;
        assert_eq!(recent().since(first), Duration::from_millis(5));
        let worker = InWorker::enter(0);
        let read = recent();
        assert_eq!(read, now());
        drop(worker);
        tokio::time::advance(Duration::from_millis(5)).await;
        let worker = InWorker::enter(0);
        assert_eq!(recent().since(read), Duration::from_millis(5), "each poll begins afresh");
        drop(worker);
    }

    #[tokio::test(start_paused = true)]
    async fn timestamps_and_instants_agree() {
        let later = now() + Duration::from_secs(3);
        assert_eq!(instant(later) - tokio::time::Instant::now(), Duration::from_secs(3));
    }
}
