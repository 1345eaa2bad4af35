//! What outlives a process of the costs.

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::super::norm::{Chance, Norm};
use super::{Average, Costs};
use crate::request::UrlKey;

/// Costs as they were learned, without those of types and classes: these go by their names.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KeptCosts {
    /// By the keys of URLs, which mean the same wherever they are made with the same secret.
    urls: Vec<(u64, Average)>,
    all: Average,
    received: Norm,
    measured: Norm,
    chance: Chance,
    scale: f64,
}

impl KeptCosts {
    /// URLs that are known.
    pub(crate) fn len(&self) -> usize {
        self.urls.len()
    }
}

impl Costs {
    /// What there is to keep.
    pub(crate) fn keep(&self) -> KeptCosts {
        let known = self.urls.entries.iter().filter(|(_, average)| average.weight() > 0.0);
        KeptCosts {
            urls: known.map(|(url, average)| (url.0, *average)).collect(),
            all: self.all,
            received: self.received,
            measured: self.measured,
            chance: self.chance,
            scale: self.scale,
        }
    }

    /// Begins with what was learned elsewhere.
    pub(crate) fn recall(&mut self, kept: &KeptCosts) {
        for (url, average) in kept.urls.iter().filter(|(_, average)| is_cost(average)) {
            *self.urls.entry(UrlKey(*url)) = *average;
        }
        if is_cost(&kept.all) {
            self.all = kept.all;
        }
        (self.received, self.measured, self.chance) = (kept.received, kept.measured, kept.chance);
        self.set_scale(kept.scale);
    }

    /// What a type costs, and a class, relatively.
    pub(crate) fn of_type(&self, at: usize) -> Average {
        self.types.get(at).copied().unwrap_or_default()
    }

    /// See [`Costs::of_type`].
    pub(crate) fn of_class(&self, at: usize) -> Average {
        self.classes.get(at).copied().unwrap_or_default()
    }

    /// A type costs, relatively, what it did elsewhere.
    pub(crate) fn recall_type(&mut self, at: usize, kept: Average) {
        if is_cost(&kept) {
            self.types[at] = kept;
        }
    }

    /// See [`Costs::recall_type`].
    pub(crate) fn recall_class(&mut self, at: usize, kept: Average) {
        if is_cost(&kept) {
            self.classes[at] = kept;
        }
    }
}

fn is_cost(average: &Average) -> bool {
    average.get().is_some_and(|cost| cost >= 0.0 && cost.is_finite())
}
