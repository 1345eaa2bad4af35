//! Estimates of an application's requests: rates, costs, and the error of predictions.

use alloc::vec::Vec;

use super::patience::Patience;
use super::rate::Average;
use super::{Alpha, Calibration, Costs, DecayedHistogram, Rate, Scale, Unevenness};
use crate::fleet::ServerState;
use crate::peers::Peers;
use crate::policer::ClassCounts;
use crate::setup::{ClassSetup, Setup};
use crate::time::Timestamp;

/// URLs in the cost table.
const COST_ENTRIES: usize = 16_384;
/// Offered rates forget with this time constant, seconds.
const RATE_TAU: f64 = 1.0;
/// The lasting offered rate is the mean over so long, and known after half of it, seconds.
const LASTING: f64 = 30.0;
/// The delays' service times fade with this half-life, seconds.
const SPREAD_HALF_LIFE: f64 = 60.0;
/// An unknown request costs this share of the target.
const DEFAULT_COST_SHARE: f64 = 0.25;

/// What is known of a class.
#[derive(Clone, Debug)]
pub struct ClassEstimate {
    /// Offered rate, requests per second.
    pub offered: Rate,
    /// Offered rate beyond the guarantee, requests per second.
    pub excess: Rate,
    /// Rate of requests that were tried before, per second.
    pub retries: Rate,
    /// Guaranteed rate, requests per second.
    pub min_rate: f64,
    /// Costs of the class's requests (seconds), for the delays' formula.
    pub cost_spread: DecayedHistogram,
    /// How long its clients wait that do not say so.
    pub(crate) patience: Patience,
}

/// Everything that is estimated and not a server's own.
pub(crate) struct Estimates {
    /// Per class, most important first.
    pub(crate) classes: Vec<ClassEstimate>,
    pub(crate) costs: Costs,
    pub(crate) calibration: Calibration,
    pub(crate) scale: Scale,
    pub(crate) alpha: Alpha,
    /// Of all classes.
    offered: Rate,
    /// The same over a longer time, weighted by time.
    lasting: Average,
    pub(crate) arrivals: Unevenness,
    /// The SLA's target at that rate, seconds.
    pub(crate) target: f64,
    /// Per class, as of the last refresh, and when that was.
    counted: Vec<ClassCounts>,
    refreshed: Timestamp,
}

impl ClassEstimate {
    fn new(setup: &ClassSetup) -> ClassEstimate {
        ClassEstimate {
            offered: Rate::new(RATE_TAU),
            excess: Rate::new(RATE_TAU),
            retries: Rate::new(RATE_TAU),
            min_rate: setup.min_rate,
            cost_spread: DecayedHistogram::new(SPREAD_HALF_LIFE),
            patience: Patience::new(),
        }
    }
}

impl Estimates {
    pub(crate) fn new(setup: &Setup) -> Estimates {
        let classes = setup.classes.len();
        Estimates {
            classes: setup.classes.iter().map(ClassEstimate::new).collect(),
            costs: Costs::new(COST_ENTRIES, setup.request_types.len(), classes, default_cost(setup)),
            calibration: Calibration::new(setup.sla.statistic()),
            scale: Scale::default(),
            alpha: Alpha::default(),
            offered: Rate::new(RATE_TAU),
            lasting: Average::default(),
            arrivals: Unevenness::default(),
            target: setup.sla.target(0.0).as_secs_f64(),
            counted: alloc::vec![ClassCounts::default(); classes],
            refreshed: Timestamp::ZERO,
        }
    }

    /// Offered rates, from what the published table has counted per class.
    pub(crate) fn refresh_rates(&mut self, now: Timestamp, counts: impl Iterator<Item = ClassCounts>) {
        let dt = now.seconds_since(self.refreshed);
        self.refreshed = now;
        let mut offered = 0;
        for ((class, counted), counts) in self.classes.iter_mut().zip(&mut self.counted).zip(counts) {
            let new = difference(counts, core::mem::replace(counted, counts));
            offered += new.offered;
            class.offered.update(new.offered as f64, dt);
            class.excess.update((new.offered - new.guaranteed) as f64, dt);
            class.retries.update(new.retries as f64, dt);
            class.patience.refresh(dt);
        }
        self.offered.update(offered as f64, dt);
        if dt > 0.0 {
            self.lasting.update(offered as f64 / dt, dt, LASTING);
        }
        self.arrivals.update(offered as f64, dt);
    }

    /// The target at the current rate; the one before, when it is another one now.
    pub(crate) fn refresh_target(&mut self, setup: &Setup, peers: &Peers) -> Option<f64> {
        let target = peers.target(&setup.sla, self.offered.get());
        let before = core::mem::replace(&mut self.target, target);
        (target != before).then_some(before)
    }

    /// Fixes the scale of costs by what servers did while they had little to do. Whether it changed.
    pub(crate) fn fix_scale(&mut self, servers: &mut [ServerState]) -> bool {
        self.scale = Scale::of(servers.iter().map(|server| server.capacity.sharing()));
        let Some(scale) = self.scale.get() else { return false };
        if (scale / self.costs.scale() - 1.0).abs() < 1e-3 {
            return false;
        }
        self.costs.set_scale(scale);
        servers.iter_mut().for_each(|server| server.capacity.set_scale(scale));
        true
    }

    /// The offered rate of all classes, once it is known.
    pub(crate) fn offered(&self) -> Option<f64> {
        self.offered.known()
    }

    /// The mean of that over the last half minute or so, once it was measured for a quarter.
    pub(crate) fn lasting_offered(&self) -> Option<f64> {
        self.lasting.get().filter(|_| self.lasting.weight() >= LASTING / 2.0)
    }

    /// The offered rate and the target that goes with it, as they were elsewhere. Rates are measured from `now` on.
    pub(crate) fn recall_offered(&mut self, now: Timestamp, setup: &Setup, offered: Option<f64>) {
        self.refreshed = now;
        self.offered.recall(offered);
        self.target = setup.sla.target(self.offered.get()).as_secs_f64();
    }

    /// Takes over another setup. What was learned follows classes and types to where they stand now.
    pub(crate) fn follow(&mut self, setup: &Setup, old: &Setup, classes: &[Option<usize>], types: &[Option<usize>]) {
        let before = core::mem::take(&mut self.classes);
        let estimate = |(class, at): (&ClassSetup, &Option<usize>)| {
            let known = at.map_or_else(|| ClassEstimate::new(class), |at| before[at].clone());
            ClassEstimate { min_rate: class.min_rate, ..known }
        };
        self.classes = setup.classes.iter().zip(classes).map(estimate).collect();
        self.counted = alloc::vec![ClassCounts::default(); setup.classes.len()];
        self.costs.remap(types, classes, default_cost(setup));
        if (setup.sla.statistic(), setup.sla.bounds()) != (old.sla.statistic(), old.sla.bounds()) {
            self.calibration = Calibration::new(setup.sla.statistic());
        }
    }

    /// Seconds of work per second that a class brings.
    pub(crate) fn demand(&self, class: usize) -> f64 {
        self.classes[class].offered.get() * self.costs.class_mean(class)
    }
}

/// Seconds.
fn default_cost(setup: &Setup) -> f64 {
    let target = setup.sla.target(0.0).as_secs_f64();
    setup.default_cost.map_or(target * DEFAULT_COST_SHARE, |cost| cost.as_secs_f64()).max(1e-6)
}

fn difference(now: ClassCounts, before: ClassCounts) -> ClassCounts {
    ClassCounts {
        offered: now.offered - before.offered,
        retries: now.retries - before.retries,
        guaranteed: now.guaranteed - before.guaranteed,
        refused: now.refused - before.refused,
    }
}
