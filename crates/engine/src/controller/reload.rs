//! A change of setup while requests are waiting and in flight. What was learned follows names: a server keeps its
//! capacity, a class its rates and counts, a type its cost.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::Controller;
use super::core_state::Core;
use crate::admission::{self, AdmissionPolicy};
use crate::effect::Effect;
use crate::policer::{ClassCounts, Policer};
use crate::request::{ClassId, ServerId};
use crate::setup::{ClassSetup, Setup, SetupError};
use crate::time::Timestamp;

impl Controller {
    /// Takes over another setup without losing a request: in-flight ones stay with their servers, waiting ones wait on
    /// (in the least important class, if theirs is gone). Removed servers drain. Fetch the
    /// [policer](Controller::policer) again afterwards.
    ///
    /// # Errors
    /// When the setup makes no sense; nothing has changed then.
    pub fn reconfigure(&mut self, now: Timestamp, setup: Setup) -> Result<(), SetupError> {
        setup.check()?;
        let same_policy = setup.admission == self.core.setup.admission && setup.classes == self.core.setup.classes;
        let fresh: Option<Box<dyn AdmissionPolicy>> =
            (!same_policy).then(|| admission::build(&setup.admission, &setup));
        let before = Arc::clone(&self.core.policer);
        self.core.reconfigure(setup);
        if same_policy {
            self.core.policer.inherit_shares(&before);
        }
        let takes_over = fresh.is_some();
        match fresh {
            Some(policy) => {
                self.admission = policy;
                // Until the new policy asks for it.
                self.core.outbox.effects.push(Effect::Connections { rate: None, depth: 1.0 });
            }
            None => self.admission.on_setup(&self.core.setup),
        }
        self.core.traffic.requeue(self.admission.buckets());
        if self.core.setup.shadow {
            // Nobody waits in shadow mode.
            self.core.context(now).start_all();
        } else if takes_over {
            self.admission.on_takeover(&mut self.core.context(now));
        }
        self.settle(now);
        self.tick(now);
        Ok(())
    }
}

impl Core {
    fn reconfigure(&mut self, setup: Setup) {
        let class_names = |setup: &Setup| -> Vec<String> { setup.classes.iter().map(|c| c.name.clone()).collect() };
        let classes = positions(&class_names(&setup), &class_names(&self.setup));
        let types = positions(&setup.request_types, &self.setup.request_types);
        self.traffic.rename(&classes, &types);
        self.replace_policer(&setup, &classes);
        self.traffic.follow_classes(&classes);
        self.runaways.forget_classes();
        self.estimates.follow(&setup, &self.setup, &classes, &types);
        self.tenants.follow(&setup);
        self.fleet.follow(&setup, &self.setup, &mut self.traffic.flights);
        self.setup = setup;
    }

    fn replace_policer(&mut self, setup: &Setup, classes: &[Option<usize>]) {
        let lanes = self.policer.lanes();
        let seed = self.rng.next_u64();
        let mut policer = Policer::new(setup.admission.name(), setup, lanes, seed);
        let old = |at: &Option<usize>| at.map(|at| ClassId(at as u8));
        let pairs: Vec<(ClassSetup, Option<ClassId>)> =
            setup.classes.iter().cloned().zip(classes.iter().map(old)).collect();
        policer.inherit_guarantees(&self.policer, &pairs);
        // Requests that a worker polices by the old table from now on are lost to the counters: a handful at most.
        for (class, stats) in self.traffic.stats.iter_mut().enumerate() {
            let counts = self.policer.counts(ClassId(class as u8));
            stats.carried = sum(stats.carried, counts);
        }
        self.policer = Arc::new(policer);
    }
}

impl Controller {
    /// The id of the server of that name.
    pub fn server_named(&self, name: &str) -> Option<ServerId> {
        self.core.fleet.server_named(name)
    }
}

/// For each new name, where it stood before.
fn positions(new: &[String], old: &[String]) -> Vec<Option<usize>> {
    new.iter().map(|name| old.iter().position(|before| before == name)).collect()
}

fn sum(a: ClassCounts, b: ClassCounts) -> ClassCounts {
    ClassCounts {
        offered: a.offered + b.offered,
        retries: a.retries + b.retries,
        guaranteed: a.guaranteed + b.guaranteed,
        refused: a.refused + b.refused,
    }
}
