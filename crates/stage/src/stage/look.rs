//! View of a stage, of any type of event, for the governor and the graph.

use std::sync::Arc;
use std::task::Waker;

use tidegate_engine::{ClassId, Timestamp};

use super::{Core, Stage};
use crate::context::StageView;
use crate::member::{Look, Member};
use crate::notice::What;
use crate::refused::Refusal;
use crate::snapshot::{ClassSnapshot, StageSnapshot};

impl<T: Send + 'static> Member for Stage<T> {
    fn look(&self, now: Timestamp) -> Look {
        let mut notices = Vec::new();
        let mut core = self.lock();
        core.gate.tick(now);
        core.look_at_batches(now, &mut notices);
        let grow = core.growth(self);
        let leaves = core.shrink(self, now);
        let workers = core.workers;
        core.meter.least_waiting = core.queue.len();
        core.meter.least_idle = core.idle.len();
        let look = Look {
            grow,
            is_still: core.queue.is_empty() && core.busy == 0 && workers <= self.settings.workers.min,
            timeout: core.gate.next_timeout(),
            refuses: core.gate.is_refusing(),
        };
        notices.extend(core.gate.take_notices());
        drop(core);
        if let Some(waker) = leaves {
            waker.wake();
            notices.push((now, What::WorkersChanged { from: workers, to: workers - 1 }));
        }
        if grow > 0 {
            notices.push((now, What::WorkersChanged { from: workers, to: workers + grow }));
        }
        self.reporter.report_all(notices);
        look
    }

    fn reserve(&self, class: ClassId) -> Result<(), Refusal> {
        Stage::reserve(self, class)
    }

    fn is_quiet(&self) -> (bool, u64) {
        let core = self.lock();
        let admitted = core.gate.counts().iter().map(|counts| counts.admitted).sum();
        (core.queue.is_empty() && core.busy == 0, admitted)
    }

    fn pending(&self) -> usize {
        let core = self.lock();
        let admitted: u64 = core.gate.counts().iter().map(|counts| counts.admitted).sum();
        admitted.saturating_sub(core.meter.processed) as usize
    }

    fn stop(&self) {
        let mut core = self.lock();
        let wakers: Vec<_> = core.idle.drain(..).map(|(_, waker)| waker).collect();
        let dropped = std::mem::take(&mut core.queue);
        for event in &dropped {
            core.gate.count_lost(event.mark.class);
        }
        core.meter.processed += dropped.len() as u64;
        drop(core);
        // Bodies may do anything when dropped, so not within the lock.
        drop(dropped);
        wakers.into_iter().for_each(Waker::wake);
    }

    fn by_entry(&self) -> Vec<u64> {
        self.lock().by_entry.clone()
    }

    fn snapshot(&self) -> StageSnapshot {
        let core = self.lock();
        let classes = (0..core.gate.counts().len()).map(|class| ClassSnapshot::of(&core.gate, class)).collect();
        StageSnapshot {
            name: self.reporter.stage.to_string(),
            is_entry: false,
            sends_to: Vec::new(),
            waiting: core.queue.len(),
            queue: self.settings.queue,
            workers: core.workers,
            busy: core.busy,
            workers_min: self.settings.workers.min,
            workers_max: self.settings.workers.max,
            batch: core.batching.limit(),
            throughput: core.batching.throughput(),
            per_second: core.meter.per_second,
            policing: core.gate.controller().policing(),
            quality: core.gate.controller().quality(),
            panics: core.panics,
            classes,
        }
    }
}

impl<T: Send + 'static> StageView for Stage<T> {
    fn set_policing(&self, now: Timestamp, on: bool) {
        let mut core = self.lock();
        core.gate.set_policing(now, on);
        let notices = core.gate.take_notices();
        drop(core);
        self.reporter.report_all(notices);
    }

    fn waiting(&self) -> usize {
        self.lock().queue.len()
    }
}

impl<T> Core<T> {
    fn look_at_batches(&mut self, now: Timestamp, notices: &mut Vec<(Timestamp, What)>) {
        let time = now.since(self.meter.looked);
        let processed = self.meter.processed - self.meter.processed_before;
        let busy = std::mem::take(&mut self.meter.busy);
        self.meter.looked = now;
        self.meter.processed_before = self.meter.processed;
        self.meter.smooth(processed, time);
        let from = self.batching.limit();
        self.batching.observe(processed, busy);
        let to = self.batching.limit();
        if from != to {
            notices.push((now, What::BatchChanged { from, to }));
        }
    }

    /// Workers to add: none was idle, and events waited all the time. At most as many as there are.
    fn growth<U>(&self, stage: &Stage<U>) -> usize {
        let bounds = stage.settings.workers;
        let waited = self.meter.least_waiting.min(self.queue.len());
        if !self.idle.is_empty() || waited < bounds.grow_at {
            return 0;
        }
        let wanted = (waited / bounds.grow_at).min(self.workers.max(1));
        wanted.min(bounds.max.saturating_sub(self.workers))
    }

    /// Lets the worker go that has been idle longest, if there was one too many for long enough.
    fn shrink<U>(&mut self, stage: &Stage<U>, now: Timestamp) -> Option<Waker> {
        let bounds = stage.settings.workers;
        if self.workers <= bounds.min || self.meter.least_idle.min(self.idle.len()) == 0 {
            self.meter.spare_since = None;
            return None;
        }
        let since = *self.meter.spare_since.get_or_insert(now);
        if now.since(since) < bounds.idle_for.duration() {
            return None;
        }
        let (worker, waker) = self.idle.remove(0);
        self.leaving.push(worker);
        Some(waker)
    }
}

/// A stage as its handlers and the graph hold it.
pub(crate) fn as_member<T: Send + 'static>(stage: &Arc<Stage<T>>) -> Arc<dyn Member> {
    stage.clone()
}
