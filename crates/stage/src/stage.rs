//! A stage: a bounded queue behind a gate, and the workers that empty it.
//!
//! Everything that changes per event lies under one short lock: the gate (controller, counters), the queue, who is
//! idle. An event costs one lock when it is sent; a worker takes one more for a whole batch, in which it also tells how
//! the batch before went. No handler, waker or sink is ever called within the lock.

mod look;
mod pull;
mod wait;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Duration;

use tidegate_engine::{ClassId, Timestamp};

use crate::batching::Batching;
use crate::clock;
use crate::event::{Event, Mark};
use crate::gate::{Gate, Published};
use crate::notice::Reporter;
use crate::refused::{Refusal, RefusalReason, Refused};
use crate::settings::{Settings, SettingsError};
use crate::shared::{Phase, Shared};
use crate::tag::Tag;

pub(crate) use look::as_member;
pub(crate) use pull::Pulled;

/// Names a worker within its stage.
pub(crate) type WorkerId = u64;

/// A stage whose events have bodies of type `T`.
pub(crate) struct Stage<T> {
    /// Its number in the graph, less than 64.
    pub(crate) index: u8,
    pub(crate) tag: Tag,
    pub(crate) reporter: Reporter,
    pub(crate) published: Arc<Published>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) settings: Settings,
    /// Senders that wait, one at a time for each class, in the order they came.
    turnstiles: Vec<tokio::sync::Mutex<()>>,
    core: Mutex<Core<T>>,
}

/// What lies under the stage's lock.
struct Core<T> {
    gate: Gate,
    queue: VecDeque<Event<T>>,
    /// Workers that wait for events; the last one waits for the shortest time.
    idle: Vec<(WorkerId, Waker)>,
    /// Workers that shall leave.
    leaving: Vec<WorkerId>,
    next_worker: WorkerId,
    /// Workers there are, idle or not.
    workers: usize,
    busy: usize,
    /// For each class, the sender that waits for room.
    room: Vec<Option<Waker>>,
    batching: Batching,
    meter: Meter,
    /// Events that came to this stage, by the entry they came through.
    by_entry: Vec<u64>,
    panics: u64,
}

/// What was seen since the governor looked last.
#[derive(Debug, Default)]
struct Meter {
    looked: Timestamp,
    /// Events processed since the start, and at the last look.
    processed: u64,
    processed_before: u64,
    /// Time that workers were busy since the last look, summed.
    busy: Duration,
    /// Least number of events that waited.
    least_waiting: usize,
    /// Least number of idle workers, and since when there was one too many.
    least_idle: usize,
    spare_since: Option<Timestamp>,
    /// Smoothed events per second.
    per_second: f64,
}

impl<T> Stage<T> {
    pub(crate) fn new(
        index: u8,
        settings: Settings,
        reporter: Reporter,
        shared: Arc<Shared>,
    ) -> Result<Self, SettingsError> {
        let gate = Gate::new(&settings, clock::now(), reporter.has_sink())?;
        let published = gate.published().clone();
        let core = Core {
            gate,
            queue: VecDeque::with_capacity(settings.queue.min(1024)),
            idle: Vec::new(),
            leaving: Vec::new(),
            next_worker: 0,
            workers: 0,
            busy: 0,
            room: vec![None; settings.classes],
            batching: Batching::new(settings.batch),
            meter: Meter::default(),
            by_entry: vec![0; 64],
            panics: 0,
        };
        let turnstiles = (0..settings.classes).map(|_| tokio::sync::Mutex::new(())).collect();
        let tag = Tag::new(reporter.stage.clone());
        Ok(Stage { index, tag, reporter, published, shared, settings, turnstiles, core: Mutex::new(core) })
    }

    /// Takes the event, or gives it back. Never waits.
    pub(crate) fn offer(&self, event: Event<T>, now: Timestamp) -> Result<(), Refused<T>> {
        let mut core = self.lock();
        let class = core.gate.class(event.mark.class);
        core.count_offered(self.index, class, event.mark);
        let refusal = match core.room_for(self, now, class, event.mark, Turn::NotWaiting) {
            Ok(()) => {
                let wake = core.push(self.index, event, class);
                drop(core);
                self.after_push(wake);
                return Ok(());
            }
            Err(refusal) => refusal,
        };
        Err(self.refuse(core, event, now, class, refusal))
    }

    /// Takes as many of the events as it can, in one go; those it refuses come back.
    pub(crate) fn offer_all(&self, events: impl Iterator<Item = Event<T>>, refused: &mut Vec<Refused<T>>) {
        let now = clock::recent();
        let mut wakes = Vec::new();
        let mut core = self.lock();
        let taken_back: Vec<_> = events
            .filter_map(|event| {
                let class = core.gate.class(event.mark.class);
                core.count_offered(self.index, class, event.mark);
                match core.room_for(self, now, class, event.mark, Turn::NotWaiting) {
                    Ok(()) => {
                        wakes.extend(core.push(self.index, event, class));
                        None
                    }
                    Err(refusal) => {
                        core.gate.count_refused(now, class, refusal.0, self.is_late(event.mark));
                        Some((event, refusal))
                    }
                }
            })
            .collect();
        let notices = core.gate.take_notices();
        drop(core);
        wakes.into_iter().for_each(|wake| self.after_push(Some(wake)));
        for (event, (reason, retry_after)) in taken_back {
            self.press_if_late(event.mark);
            refused.push(self.refusal(reason, retry_after).of(event));
        }
        self.reporter.report_all(notices);
    }

    /// Asks, at an entry, whether this stage further down would take an event of the class; takes its token if so.
    pub(crate) fn reserve(&self, class: ClassId) -> Result<(), Refusal> {
        let now = clock::recent();
        let mut core = self.lock();
        let class = core.gate.class(class);
        let mark = Mark::new(class, now);
        let Err((reason, retry_after)) = core.room_for(self, now, class, mark, Turn::NotWaiting) else {
            return Ok(());
        };
        core.gate.count_refused_early(now, class, reason);
        let notices = core.gate.take_notices();
        drop(core);
        self.reporter.report_all(notices);
        Err(Refusal { is_early: true, ..self.refusal(reason, retry_after) })
    }

    pub(crate) fn refusal(&self, reason: RefusalReason, retry_after: Duration) -> Refusal {
        Refusal { reason, retry_after, stage: self.reporter.stage.clone(), is_early: false }
    }

    /// Counts a refusal and hands the event back.
    fn refuse(
        &self,
        mut core: MutexGuard<'_, Core<T>>,
        event: Event<T>,
        now: Timestamp,
        class: ClassId,
        (reason, retry_after): (RefusalReason, Duration),
    ) -> Refused<T> {
        core.gate.count_refused(now, class, reason, self.is_late(event.mark));
        let notices = core.gate.take_notices();
        drop(core);
        self.reporter.report_all(notices);
        self.press_if_late(event.mark);
        self.refusal(reason, retry_after).of(event)
    }

    fn after_push(&self, wake: Option<Waker>) {
        if let Some(waker) = wake {
            waker.wake();
        }
        self.shared.stir();
    }

    /// Whether other stages worked on the event before it came here.
    fn is_late(&self, mark: Mark) -> bool {
        mark.entry != self.index
    }

    /// A stage that refuses late asks entries to refuse on its behalf.
    fn press_if_late(&self, mark: Mark) {
        if self.is_late(mark) {
            self.shared.press(self.index);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Core<T>> {
        // Nothing of a handler runs within the lock, so a poisoned one is as good as any.
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Where a sender stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    /// It takes what is left by those who wait.
    NotWaiting,
    /// It is the first of its class that waits.
    First,
}

impl<T> Core<T> {
    /// Whether there is room and a token for an event; takes the token if so.
    #[inline]
    fn room_for(
        &mut self,
        stage: &Stage<T>,
        now: Timestamp,
        class: ClassId,
        mark: Mark,
        turn: Turn,
    ) -> Result<(), (RefusalReason, Duration)> {
        if !matches!(stage.shared.phase(), Phase::Running | Phase::Draining) {
            return Err((RefusalReason::Stopped, Duration::ZERO));
        }
        // Who waits goes first, more important classes before others.
        let ahead = match turn {
            Turn::NotWaiting => &self.room[..],
            Turn::First => &self.room[..class.index()],
        };
        let kept = ahead.iter().flatten().count();
        if self.queue.len() + kept >= stage.settings.queue {
            return Err((RefusalReason::QueueFull, self.time_to_drain(class)));
        }
        if mark.prepaid >> stage.index & 1 == 1 {
            self.gate.forward(now);
            return Ok(());
        }
        self.gate.admit(now, class).map_err(|retry_after| (RefusalReason::RateLimit, retry_after))
    }

    /// Takes an event in; a worker to wake, if one is idle.
    fn push(&mut self, index: u8, event: Event<T>, class: ClassId) -> Option<Waker> {
        self.gate.count_admitted(class);
        if event.mark.entry == index {
            self.count_entry(event.mark);
        }
        self.queue.push_back(event);
        let (_, waker) = self.idle.pop()?;
        self.meter.least_idle = self.meter.least_idle.min(self.idle.len());
        Some(waker)
    }

    /// An event came. Where it entered, only what was taken counts: the share that goes on to a stage is of that.
    fn count_offered(&mut self, index: u8, class: ClassId, mark: Mark) {
        self.gate.count_offered(class);
        if mark.entry != index {
            self.count_entry(mark);
        }
    }

    fn count_entry(&mut self, mark: Mark) {
        if let Some(count) = self.by_entry.get_mut(usize::from(mark.entry)) {
            *count += 1;
        }
    }

    /// How long the queue is expected to last; the class's target where that is not known.
    fn time_to_drain(&self, class: ClassId) -> Duration {
        let per_second = self.batching.throughput().unwrap_or(0.0) * self.workers.max(1) as f64;
        let seconds = self.queue.len() as f64 / per_second;
        match Duration::try_from_secs_f64(seconds) {
            Ok(time) => time,
            Err(_) => Duration::from_secs_f64(self.gate.published().target(class)),
        }
    }
}
