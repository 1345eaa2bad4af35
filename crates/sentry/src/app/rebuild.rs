//! A controller in which a panic happened is not used on: nobody knows which half of a change was made. A new one takes
//! its place, with the configuration in force.
//!
//! What it learned is learned again. Requests in flight go on; the new controller does not know of them, so for as long
//! as they last it may admit as many again. Those that waited are refused. What they all say later, by permits of the
//! old controller, is not for the new one: an epoch tells them apart.

use std::sync::MutexGuard;
use std::sync::atomic::Ordering;

use tidegate_engine::{Controller, SetupError, Status, Timestamp};
use tracing::error;

use super::{App, Core};
use crate::in_force::InForce;

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

    fn replace_controller(&self, core: &mut Core) -> Result<(), SetupError> {
        let (old, now) = (self.live(), self.now());
        let mut config = old.config.clone();
        config.setup.shadow = core.controller.setup().shadow;
        let seed = now.as_nanos() ^ self.rebuilt();
        let sink = Box::new(self.events.clone());
        let mut controller = Controller::new(config.setup.clone(), old.policer.lanes(), seed, sink)?;
        let generation = core.generation + 1;
        let Ok(live) = InForce::new(config, &controller, generation, Some(&old)) else { return Ok(()) };
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
