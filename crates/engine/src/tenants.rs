//! Fair shares for the tenants of a class: who gets what of it while there is not enough.
//!
//! *Intuition.* A canteen that does not count portions until the pots run low. Then whoever has eaten less than the
//! others goes to the front of the queue, and who keeps coming back is served from what is left.
//!
//! *Applied.* A tenant's rate is the work it offers a class per second, by learned costs. While the class is refused
//! any, there is a level `a` such that the tenants' rates, each cut to `a`, add up to what the class gets: its max-min
//! fair share. Who offers less is *within* its share, and nothing changes for it. Of a tenant that offers `r > a`, the
//! part `a / r` of its requests is *due* to it and the rest is *excess* (the labels of core-stateless fair queueing).
//! Policies are not told: a request that is due or excess is shown a [`Load`](crate::admission::Load) whose queue is
//! longer than it is, so that the last places are left to tenants within their share (`tenants/pressure.rs`); where
//! requests wait, those go first. What nobody else wants the heavy tenant gets: servers do not stand idle for fairness.
//!
//! *Awkward cases.* A class with one tenant, or whose tenants all offer about the same, has nobody to protect: the
//! policy decides as if there were no tenants. Tenants may be millions, so rates are kept in a sketch of fixed size
//! (`tenants/sketch.rs`), whose hashes change every few seconds: who shares a cell with a heavy tenant does not for
//! long. The level follows from a histogram of offered work by its tenant's rate (`tenants/level.rs`), in a few hundred
//! steps ten times a second. Whom a published table refuses the controller never sees: it is told of the last few
//! (`policer/tenants.rs`), and publishes shares of the heaviest (`tenants/published.rs`).
//!
//! *Source.* Labels and level: I. Stoica, S. Shenker, H. Zhang, *Core-stateless fair queueing* (SIGCOMM 1998), with the
//! level worked out instead of approached. Rates: C. Estan, G. Varghese, *New directions in traffic measurement*
//! (SIGCOMM 2002), conservative update. Heaviest: A. Metwally et al., *Efficient computation of frequent and top-k
//! elements in data streams* (ICDT 2005).

mod heaviest;
mod level;
mod pressure;
mod published;
mod rules;
mod sketch;

use alloc::vec::Vec;

use crate::admission::Arrival;
use crate::decision::Reason;
use crate::policer::Policer;
use crate::request::{ClassId, TenantKey};
use crate::rng::Rng;
use crate::setup::Setup;
use crate::snapshot::{NamedTenantSnapshot, TenantSnapshot};
use crate::time::Timestamp;

use heaviest::Heaviest;
use level::Level;
use pressure::{DUE, Pressure};
use rules::{Rules, Ruling};
use sketch::Sketch;

pub use rules::TenantSetup;

/// Where an arrival's tenant stands.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Standing {
    /// Nothing changes for it.
    Within,
    /// Its tenant is above its share: by this part what waits for a processor looks longer to it.
    Over(f64),
    /// Its tenant's own guarantee lets it in.
    Guaranteed,
    /// Its tenant's own limit keeps it out.
    Limited,
}

impl Standing {
    /// Whether its tenant is above its share.
    pub(crate) fn is_over(self) -> bool {
        matches!(self, Standing::Over(_))
    }

    /// Why a request of this standing is refused that a policy refuses for `reason`.
    pub(crate) fn reason(self, reason: Reason) -> Reason {
        if self.is_over() { blame(reason) } else { reason }
    }
}

/// Why a request of a tenant above its share is refused: for want of room means, for its tenant.
pub(crate) fn blame(reason: Reason) -> Reason {
    match reason {
        Reason::SlaTarget | Reason::Patience | Reason::ConcurrencyLimit | Reason::QueueFull | Reason::Threshold => {
            Reason::TenantShare
        }
        other => other,
    }
}

/// What is known of an application's tenants: of fixed size, however many there are.
pub(crate) struct Tenants {
    sketch: Sketch,
    /// Per class.
    levels: Vec<Level>,
    pressures: Vec<Pressure>,
    heaviest: Heaviest,
    rules: Rules,
    rng: Rng,
    /// Mean cost of all requests, seconds; `None` until it is known.
    mean: Option<f64>,
    /// Per lane of the published table: requests refused there that are counted here.
    refused: Vec<u64>,
}

impl Tenants {
    pub(crate) fn new(setup: &Setup, seed: u64) -> Tenants {
        let mut rng = Rng::new(seed);
        Tenants {
            sketch: Sketch::new(&mut rng),
            levels: alloc::vec![Level::default(); setup.classes.len()],
            pressures: alloc::vec![Pressure::default(); setup.classes.len()],
            heaviest: Heaviest::default(),
            rules: Rules::new(&setup.tenants),
            rng,
            mean: None,
            refused: Vec::new(),
        }
    }

    /// A request arrives: it is counted, and its tenant's standing is told.
    pub(crate) fn arrive(&mut self, now: Timestamp, arrival: &Arrival) -> Standing {
        let (tenant, class) = (arrival.request.tenant, arrival.request.class);
        if tenant == TenantKey::NONE {
            return Standing::Within;
        }
        let (weight, ruling) = self.rules.look(now, tenant);
        let work = self.work(arrival.cost);
        self.heaviest.offer(tenant, work, 1);
        if ruling == Ruling::Limited {
            return Standing::Limited;
        }
        let rate = self.sketch.add(now, key_in(tenant, class), work) / weight;
        let level = &mut self.levels[class.index()];
        level.offer(rate, work);
        match ruling {
            Ruling::Guaranteed => Standing::Guaranteed,
            _ if !level.is_above(rate) => Standing::Within,
            _ if self.rng.next_f64() * rate < level.get() => Standing::Over(DUE),
            _ => Standing::Over(self.pressures[class.index()].excess()),
        }
    }

    /// The policy answered an arrival of this standing.
    pub(crate) fn answered(&mut self, class: ClassId, standing: Standing, is_refused: bool) {
        if standing == Standing::Within && self.levels[class.index()].in_force().is_some() {
            self.pressures[class.index()].ask(is_refused);
        }
    }

    /// A request of a tenant is let in, of this cost in seconds.
    pub(crate) fn admit(&mut self, tenant: TenantKey, class: ClassId, cost: f64) {
        if tenant != TenantKey::NONE {
            let work = self.work(cost);
            self.levels[class.index()].admit(work);
            self.rules.admit(tenant);
        }
    }

    /// A request of a tenant is refused.
    pub(crate) fn refuse(&mut self, tenant: TenantKey) {
        if tenant != TenantKey::NONE {
            self.heaviest.refuse(tenant, 1);
            self.rules.refuse(tenant, 1);
        }
    }

    /// Ten times a second: works out the levels anew. `elapsed`: seconds since the last time. `mean`: of all costs,
    /// seconds. `policer`: where requests were refused meanwhile.
    pub(crate) fn tick(&mut self, now: Timestamp, elapsed: f64, mean: Option<f64>, policer: &Policer) {
        self.mean = mean;
        self.count_refused(now, policer);
        self.sketch.turn(now, &mut self.rng);
        let is_alone = self.heaviest.is_one_alone();
        self.levels.iter_mut().for_each(|level| level.settle(elapsed, is_alone));
        self.pressures.iter_mut().for_each(|pressure| pressure.settle(elapsed));
        self.heaviest.fade(elapsed);
    }

    /// The setup changed. Who offers how much is known still; who gets how much of which class is learned anew.
    pub(crate) fn follow(&mut self, setup: &Setup) {
        self.levels = alloc::vec![Level::default(); setup.classes.len()];
        self.pressures = alloc::vec![Pressure::default(); setup.classes.len()];
        self.rules.follow(&setup.tenants);
    }

    /// The fair share of a class, requests of mean cost per second, while some tenant is above it.
    pub(crate) fn share(&self, class: ClassId) -> Option<f64> {
        self.levels[class.index()].in_force()
    }

    /// Work in means: at the start what is learned of all costs moves together.
    fn work(&self, cost: f64) -> f64 {
        self.mean.filter(|mean| *mean > 0.0).map_or(1.0, |mean| cost / mean)
    }

    /// The heaviest tenants of late, the heaviest first.
    pub(crate) fn heaviest(&self) -> Vec<TenantSnapshot> {
        self.heaviest.list(|tenant| self.rules.name(tenant))
    }

    /// The tenants of which the setup says something, by name.
    pub(crate) fn named(&self) -> Vec<NamedTenantSnapshot> {
        self.rules.counts()
    }
}

/// A tenant has a rate in each class.
fn key_in(tenant: TenantKey, class: ClassId) -> u64 {
    tenant.0 ^ (u64::from(class.0) << 56 | u64::from(class.0)).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

#[cfg(test)]
mod tests;
