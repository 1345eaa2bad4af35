//! State that all stages of a graph share: whether it runs, which stages are overloaded, and who gets notices.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{OnceLock, Weak};

use tokio::runtime::Handle;
use tokio::sync::Notify;

use crate::member::Member;

/// A graph's life. Only forward.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Phase {
    /// Not started.
    Building,
    /// Takes work.
    Running,
    /// Takes no new work, and finishes what it has.
    Draining,
    /// Does nothing any more.
    Stopped,
}

/// Shared by the stages, senders and workers of one graph.
#[derive(Default)]
pub(crate) struct Shared {
    phase: AtomicU8,
    /// Bit n: stage n refused what others had worked on, within the last second.
    pressed: AtomicU64,
    refuse_early: AtomicBool,
    /// The governor sleeps until something happens.
    asleep: AtomicBool,
    pub(crate) stirred: Notify,
    /// Told when a stage runs empty while the graph drains.
    pub(crate) quiet: Notify,
    /// Told when the graph begins to drain, and when it stops.
    pub(crate) changed: Notify,
    pub(crate) runtime: OnceLock<Handle>,
    pub(crate) members: OnceLock<Vec<Weak<dyn Member>>>,
}

impl Shared {
    #[inline]
    pub(crate) fn phase(&self) -> Phase {
        match self.phase.load(Ordering::Acquire) {
            0 => Phase::Building,
            1 => Phase::Running,
            2 => Phase::Draining,
            _ => Phase::Stopped,
        }
    }

    /// Goes on to a later phase. Whether it was an earlier one before.
    pub(crate) fn advance(&self, to: Phase) -> bool {
        self.phase.fetch_max(to as u8, Ordering::AcqRel) < to as u8
    }

    pub(crate) fn set_refuse_early(&self, on: bool) {
        self.refuse_early.store(on, Ordering::Relaxed);
    }

    pub(crate) fn refuses_early(&self) -> bool {
        self.refuse_early.load(Ordering::Relaxed)
    }

    /// Stage `index` refuses late.
    pub(crate) fn press(&self, index: u8) {
        if self.refuses_early() {
            self.pressed.fetch_or(1 << index, Ordering::Relaxed);
        }
    }

    /// Stage `index` refuses nobody any more.
    pub(crate) fn relieve(&self, index: u8) {
        self.pressed.fetch_and(!(1 << index), Ordering::Relaxed);
    }

    /// Bit n: stage n is pressed.
    #[inline]
    pub(crate) fn pressed(&self) -> u64 {
        self.pressed.load(Ordering::Relaxed)
    }

    /// Something happened: a sleeping governor looks again.
    #[inline]
    pub(crate) fn stir(&self) {
        if self.asleep.load(Ordering::Relaxed) && self.asleep.swap(false, Ordering::AcqRel) {
            self.stirred.notify_one();
        }
    }

    /// The governor is about to sleep.
    pub(crate) fn fall_asleep(&self) {
        self.asleep.store(true, Ordering::Release);
    }

    pub(crate) fn tell_if_draining(&self) {
        if self.phase() == Phase::Draining {
            self.quiet.notify_one();
        }
    }
}
