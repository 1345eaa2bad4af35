//! The floor: class priority across costs.
//!
//! *Intuition.* When a coach no longer takes a first-class passenger with two trunks, it does not go on to fill up with
//! second-class passengers who carry a handbag each: every handbag is room for a trunk that comes next.
//!
//! *Applied.* The test admits more cheap requests than expensive ones. By itself it would admit cheap requests of a
//! less important class at loads where expensive ones of a more important class do not pass, and so keep the load
//! there. Therefore the dearest that a class was refused lately is the least cost at which less important classes are
//! tested, in full once a third of the share `epsilon` of its requests was refused, and in proportion below.
//!
//! *Awkward cases.* A single refusal by chance must not cost less important classes the room that is left: hence the
//! proportion. A cost is remembered relative to the mean, because what a second is is still being learned when overload
//! comes with the first requests; until it is known at all, nothing is remembered.

use alloc::vec::Vec;
use core::time::Duration;

use super::super::Context;
use crate::learned::Kept;
use crate::request::ClassId;
use crate::time::Timestamp;

/// How long the dearest refused request is remembered: long beside the time in which load moves between the limits of
/// two classes, or every lapse lets the cheap in again.
const LASTS: Duration = Duration::from_secs(20);
/// The share of refused requests forgets with this time constant, seconds.
const TAU: f64 = 10.0;
/// The part of the share `epsilon` at which the floor counts in full: at the bound itself it would come too late to
/// hold it.
const FULL_AT: f64 = 1.0 / 3.0;

/// What was refused, per class.
#[derive(Debug)]
pub(super) struct Floors(Vec<Refused>);

#[derive(Clone, Copy, Debug, Default)]
struct Refused {
    tested: f64,
    refused: f64,
    /// Cost of the dearest, in means over all requests.
    dearest: f64,
    /// When it is forgotten.
    until: Timestamp,
}

impl Floors {
    pub(super) fn new(classes: usize) -> Self {
        Floors(alloc::vec![Refused::default(); classes])
    }

    /// The least cost at which `class` is tested, seconds.
    pub(super) fn get(&self, cx: &Context<'_>, class: ClassId, epsilon: f64) -> f64 {
        let above = self.0[..class.index()].iter().filter(|refused| cx.now < refused.until);
        let relative = above.map(|refused| refused.dearest * refused.weight(epsilon)).fold(0.0, f64::max);
        relative * cx.costs.mean().unwrap_or(0.0)
    }

    /// So many requests of `class` and of this cost, seconds, were tested, and so many of them refused.
    pub(super) fn record(&mut self, cx: &Context<'_>, class: ClassId, cost: f64, tested: usize, refused: usize) {
        let Some(mean) = cx.costs.mean().filter(|_| cx.costs.is_settled()) else { return };
        let class = &mut self.0[class.index()];
        class.tested += tested as f64;
        if refused > 0 {
            class.refused += refused as f64;
            let relative = cost / mean;
            class.dearest = if cx.now < class.until { class.dearest.max(relative) } else { relative };
            class.until = cx.now + LASTS;
        }
    }

    pub(super) fn keep(&self, now: Timestamp, kept: &mut Kept) {
        for (at, class) in self.0.iter().enumerate() {
            let kept = kept.of_class_mut(at);
            kept.put("floor_tested", class.tested);
            kept.put("floor_refused", class.refused);
            kept.put("floor_dearest", class.dearest);
            kept.put("floor_until", class.until.seconds_since(now));
        }
    }

    pub(super) fn recall(&mut self, now: Timestamp, kept: &Kept) {
        for (at, class) in self.0.iter_mut().enumerate() {
            let get = |name: &str, most: f64| kept.of_class(at).between(name, (0.0, most), 0.0);
            let until = now + Duration::from_secs_f64(get("floor_until", LASTS.as_secs_f64()));
            let (tested, refused) = (get("floor_tested", 1e12), get("floor_refused", 1e12));
            *class = Refused { tested, refused, dearest: get("floor_dearest", 1e9), until };
        }
    }

    /// `elapsed` seconds went by.
    pub(super) fn fade(&mut self, elapsed: f64) {
        let keep = libm::exp(-elapsed / TAU);
        for class in &mut self.0 {
            (class.tested, class.refused) = (class.tested * keep, class.refused * keep);
        }
    }
}

impl Refused {
    /// How much of the floor counts. A few tests say little of a small share.
    fn weight(&self, epsilon: f64) -> f64 {
        (self.refused / (self.tested * epsilon * FULL_AT + 1.0)).min(1.0)
    }
}
