//! A controller in which a panic happened is not used on: nobody knows which half of a change was made. A new one takes
//! its place, with the configuration in force.
//!
//! What it learned is kept, as numbers that are checked one by one, unless that was done a moment ago already: then
//! they may be what is wrong. Requests in flight go on, and keep their places in the new one until they are expected to
//! be done. Those that waited are refused. What they all say later, by permits of the old controller, is not for the
//! new one: an epoch tells them apart.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::MutexGuard;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tidegate_engine::{Controller, Learned, SetupError, Status, Timestamp};
use tracing::error;

use super::{App, Core};
use crate::in_force::InForce;

/// What was learned is not kept again within this time.
const SUSPICIOUS: Duration = Duration::from_secs(60);

impl App {
    /// How often a controller was built anew after a panic.
    pub fn rebuilt(&self) -> u64 {
        self.rebuilt.load(Ordering::Relaxed)
    }

    /// Workers that were stuck and whose places others took.
    pub fn replaced(&self) -> u64 {
        self.replaced.load(Ordering::Relaxed)
    }

    pub(crate) fn note_replaced(&self) {
        self.replaced.fetch_add(1, Ordering::Relaxed);
    }

    /// Takes the lock after somebody panicked who held it.
    #[cold]
    pub(super) fn rebuild<'a>(&'a self, mut core: MutexGuard<'a, Core>) -> MutexGuard<'a, Core> {
        self.core.clear_poison();
        let count = self.rebuilt.fetch_add(1, Ordering::Relaxed) + 1;
        let app = self.name();
        match self.replace_controller(&mut core) {
            Ok(()) => error!(app, count, "the controller panicked and was built anew: please report it"),
            // It was valid when it was put in force, so this is not reached; and an old controller is better than none.
            Err(error) => error!(app, %error, "the controller panicked and cannot be built anew: restart the sentry"),
        }
        core
    }

    /// What the controller learned that panicked. It may panic once more.
    fn learned_before(&self, core: &mut Core, now: Timestamp) -> Option<Learned> {
        let last = self.rebuilt_at.swap(now.as_nanos().max(1), Ordering::Relaxed);
        let is_first = last == 0 || now.since(Timestamp::from_nanos(last)) > SUSPICIOUS;
        let learned = || catch_unwind(AssertUnwindSafe(|| core.controller.learned(now))).ok();
        is_first.then(learned).flatten()
    }

    fn replace_controller(&self, core: &mut Core) -> Result<(), SetupError> {
        let (old, now) = (self.live(), self.now());
        let shadow = core.controller.setup().shadow;
        let mut laid = old.laid();
        laid.config.setup.shadow = shadow;
        let mut declared = old.declared.clone();
        declared.setup.shadow = shadow;
        let seed = now.as_nanos() ^ self.rebuilt();
        let sink = Box::new(self.events.clone());
        let mut controller = Controller::new(laid.config.setup.clone(), old.policer.lanes(), seed, sink)?;
        let learned = self.learned_before(core, now);
        let generation = core.generation + 1;
        let Ok(live) = InForce::new(declared, laid, &controller, generation, Some(&old)) else { return Ok(()) };
        for server in live.servers() {
            // In the new one's slots, with the state that the old one's had.
            let before = old.servers().find(|before| before.name == server.name);
            let status = before.map_or(Status::Up, |before| before.status());
            if let Some(before) = before {
                server.set_health(before.health());
                server.set_excluded(before.is_excluded());
            }
            controller.handle_server(now, server.id, status);
        }
        if let Some(learned) = learned {
            controller.recall(now, &learned);
        }
        core.controller = controller;
        core.epoch += 1;
        core.waiters.clear();
        core.divisions.clear();
        core.armed = Timestamp::MAX;
        core.generation = generation;
        self.live.store(std::sync::Arc::new(live));
        self.generation.store(generation, Ordering::Release);
        self.rearm.notify_one();
        Ok(())
    }
}
