//! The workers' side of a stage: taking batches, and telling how they went.

use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tidegate_engine::Timestamp;

use super::{Core, Stage, WorkerId};
use crate::batch::Batch;
use crate::clock;
use crate::notice::What;
use crate::shared::Phase;

/// What a worker gets for asking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pulled {
    /// The batch holds events.
    Events,
    /// The worker shall end; it is not counted any more.
    Leave,
}

impl<T> Stage<T> {
    /// Counts a new worker in, and names it.
    pub(crate) fn enlist(&self) -> WorkerId {
        let mut core = self.lock();
        core.workers += 1;
        core.next_worker += 1;
        core.next_worker
    }

    /// A worker that was counted in did not start.
    pub(crate) fn discharge(&self) {
        self.lock().workers -= 1;
    }

    /// Ends the batch before, and takes the next one. Registers the worker as idle when there is none.
    pub(crate) fn poll_pull(&self, worker: WorkerId, batch: &mut Batch<T>, cx: &mut Context<'_>) -> Poll<Pulled> {
        let ended = batch.is_busy.then(clock::now);
        let mut core = self.lock();
        // A worker that was idle begins when the event came that woke it: as good as a clock, and cheaper.
        let now = ended.unwrap_or(core.gate.latest());
        core.settle(batch, now);
        let pulled = core.pull(self, worker, batch, now, cx.waker());
        let notices = core.gate.take_notices();
        let wake = match pulled {
            Some(Pulled::Events) => core.wakes_after_pull(),
            _ => Wakes::default(),
        };
        let is_last = core.queue.is_empty() && core.busy == 0;
        drop(core);
        if !wake.is_empty() {
            wake.wake();
        }
        if !notices.is_empty() {
            self.reporter.report_all(notices);
        }
        if is_last {
            self.shared.tell_if_draining();
        }
        pulled.map_or(Poll::Pending, Poll::Ready)
    }

    /// Tells the controller, in the middle of a batch, what has ended.
    pub(crate) fn tell(&self, batch: &mut Batch<T>, now: Timestamp) {
        let mut core = self.lock();
        core.record(batch, now);
        let notices = core.gate.take_notices();
        drop(core);
        self.reporter.report_all(notices);
    }

    /// A handler panicked: what it had in hand is lost.
    pub(crate) fn count_panic(&self, batch: &mut Batch<T>, message: String) {
        let now = clock::now();
        let lost = batch.in_hand.len();
        let mut core = self.lock();
        core.panics += 1;
        for mark in batch.in_hand.drain(..) {
            core.gate.count_lost(mark.class);
            core.meter.processed += 1;
        }
        drop(core);
        self.reporter.report(now, What::HandlerPanicked { message, lost });
    }

    /// A handler neither processed nor refused what it was given: the worker drops it.
    pub(crate) fn count_left_over(&self, batch: &mut Batch<T>) {
        let mut core = self.lock();
        for event in &batch.waiting {
            core.gate.count_lost(event.mark.class);
            core.meter.processed += 1;
        }
        drop(core);
        batch.waiting.clear();
    }
}

/// Who is to be woken once the lock is released.
#[derive(Default)]
struct Wakes {
    worker: Option<Waker>,
    senders: Vec<Waker>,
}

impl Wakes {
    fn is_empty(&self) -> bool {
        self.worker.is_none() && self.senders.is_empty()
    }

    fn wake(self) {
        if let Some(worker) = self.worker {
            worker.wake();
        }
        self.senders.into_iter().for_each(Waker::wake);
    }
}

impl<T> Core<T> {
    /// Takes what has ended into the controller and the meter.
    fn record(&mut self, batch: &mut Batch<T>, now: Timestamp) {
        self.meter.processed += batch.ended.len() as u64;
        for (at, mark) in &batch.ended {
            self.gate.complete(*at, mark.class, mark.entered);
        }
        batch.ended.clear();
        self.meter.busy += now.since(batch.busy_since);
        batch.busy_since = now;
    }

    /// The worker's batch is at its end.
    fn settle(&mut self, batch: &mut Batch<T>, now: Timestamp) {
        if batch.is_busy {
            self.record(batch, now);
            // What is in hand ends with the batch, without the detour over `ended`.
            self.meter.processed += batch.in_hand.len() as u64;
            for mark in &batch.in_hand {
                self.gate.complete(now, mark.class, mark.entered);
            }
            batch.in_hand.clear();
            batch.is_busy = false;
            self.busy -= 1;
        }
    }

    fn pull(
        &mut self,
        stage: &Stage<T>,
        worker: WorkerId,
        batch: &mut Batch<T>,
        now: Timestamp,
        waker: &Waker,
    ) -> Option<Pulled> {
        // Woken for another reason than a push, it is still registered.
        if let Some(at) = self.idle.iter().position(|(id, _)| *id == worker) {
            self.idle.swap_remove(at);
        }
        let shall_leave = match self.leaving.iter().position(|id| *id == worker) {
            Some(at) => {
                self.leaving.swap_remove(at);
                self.queue.is_empty()
            }
            None => false,
        };
        if stage.shared.phase() == Phase::Stopped || shall_leave {
            self.workers -= 1;
            return Some(Pulled::Leave);
        }
        if self.queue.is_empty() {
            self.idle.push((worker, waker.clone()));
            self.meter.least_waiting = 0;
            return None;
        }
        let share = self.queue.len().div_ceil(self.workers.max(1));
        let count = share.min(self.batching.limit());
        match count {
            // The ordinary case when batches bring nothing; a drain costs more than the event.
            1 => {
                if let Some(event) = self.queue.pop_front() {
                    batch.waiting.push_back(event);
                }
            }
            _ => batch.waiting.extend(self.queue.drain(..count)),
        }
        batch.busy_since = now;
        batch.is_busy = true;
        self.busy += 1;
        self.meter.least_waiting = self.meter.least_waiting.min(self.queue.len());
        Some(Pulled::Events)
    }

    /// There is room now, and perhaps work for another worker.
    fn wakes_after_pull(&mut self) -> Wakes {
        let worker = match self.queue.is_empty() {
            true => None,
            false => self.idle.pop().map(|(_, waker)| waker),
        };
        if worker.is_some() {
            self.meter.least_idle = self.meter.least_idle.min(self.idle.len());
        }
        // They stay registered until they have had their turn: what they wait for is kept for them.
        Wakes { worker, senders: self.room.iter().flatten().cloned().collect() }
    }
}

impl super::Meter {
    /// Smoothed events per second, after `processed` in `time`.
    pub(super) fn smooth(&mut self, processed: u64, time: Duration) {
        let seconds = time.as_secs_f64();
        if seconds > 0.0 {
            let keep = (-seconds).exp();
            self.per_second = keep * self.per_second + (1.0 - keep) * processed as f64 / seconds;
        }
    }
}
