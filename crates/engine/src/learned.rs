//! What a controller has learned, as a value that outlives it.
//!
//! *Intuition.* A watch is relieved: the next one does not find out anew how strong the current is. What was learned
//! goes by names, as a reload does it: classes, types and servers that the next one has, too, go on with what is known
//! of them; what it does not have is dropped, and what is new to it begins anew.
//!
//! *Awkward cases.* The numbers come from outside when they come back, so none is trusted to be more than a number:
//! what makes no sense is left out. What is at work at the servers is part of it: whoever comes next would otherwise
//! find them empty, and send as much again. These requests are ghosts to it: they keep their places until they are
//! expected to be done. Not kept: counts, what waits, what nuclei reported (they report again), and tenants' shares,
//! which are learned within seconds.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::estimate::{Abandoned, Alpha, Average, KeptCapacity, KeptCosts, KeptHistogram};

/// Everything that a controller learned, at one instant. Made by
/// [`Controller::learned`](crate::Controller::learned), taken by [`Controller::recall`](crate::Controller::recall).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Learned {
    pub(crate) costs: Option<KeptCosts>,
    pub(crate) alpha: Alpha,
    /// Of which statistic the calibration is, and whose bounds.
    pub(crate) judged: String,
    pub(crate) calibration: KeptHistogram,
    /// Requests per second, of all classes.
    pub(crate) offered: Option<f64>,
    pub(crate) classes: BTreeMap<String, KeptClass>,
    pub(crate) types: BTreeMap<String, Average>,
    pub(crate) servers: BTreeMap<String, KeptServer>,
    /// Name of the admission policy, and what it learned of no class.
    pub(crate) policy: (String, Kept),
    /// What it learned of classes.
    pub(crate) policy_classes: BTreeMap<String, Kept>,
    pub(crate) sessions: Vec<KeptSession>,
    pub(crate) at_work: Vec<KeptWork>,
}

/// Of a class.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct KeptClass {
    pub(crate) offered: Option<f64>,
    pub(crate) excess: Option<f64>,
    pub(crate) retries: Option<f64>,
    pub(crate) cost_spread: KeptHistogram,
    pub(crate) cost: Average,
}

/// Of a server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct KeptServer {
    pub(crate) capacity: KeptCapacity,
    pub(crate) abandoned: Abandoned,
}

/// A session and its server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct KeptSession {
    pub(crate) key: u64,
    pub(crate) server: String,
    /// Seconds since it was used.
    pub(crate) age: f64,
    pub(crate) is_given: bool,
}

/// A request at work at a server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct KeptWork {
    pub(crate) server: String,
    pub(crate) class: String,
    pub(crate) request_type: String,
    /// Expected inherent service time, seconds, and how long the work is still expected to take.
    pub(crate) cost: f64,
    pub(crate) left: f64,
}

/// What a policy learned that its settings do not say: numbers by name; and of each class the same.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Kept {
    own: BTreeMap<String, f64>,
    /// In the order of the setup: from controller to controller they go by name.
    #[serde(skip)]
    classes: Vec<Kept>,
}

static NOTHING: Kept = Kept { own: BTreeMap::new(), classes: Vec::new() };

impl Kept {
    /// Keeps a number under a name; one that is no number is not kept.
    pub fn put(&mut self, name: &str, value: f64) {
        if value.is_finite() {
            self.own.insert(name.into(), value);
        }
    }

    /// The number of that name.
    pub fn get(&self, name: &str) -> Option<f64> {
        self.own.get(name).copied().filter(|value| value.is_finite())
    }

    /// The number of that name, in these bounds; `other` if there is none.
    pub fn between(&self, name: &str, (least, most): (f64, f64), other: f64) -> f64 {
        self.get(name).map_or(other, |value| value.clamp(least, most))
    }

    /// What is known of the class at this place of the setup.
    pub fn of_class(&self, at: usize) -> &Kept {
        self.classes.get(at).unwrap_or(&NOTHING)
    }

    /// The same, to put something away.
    pub fn of_class_mut(&mut self, at: usize) -> &mut Kept {
        grown(&mut self.classes, at)
    }
}

fn grown(all: &mut Vec<Kept>, at: usize) -> &mut Kept {
    if all.len() <= at {
        all.resize(at + 1, Kept::default());
    }
    &mut all[at]
}

impl Learned {
    /// Puts away what a policy learned whose classes have these names, in their order.
    pub(crate) fn keep_policy<'n>(&mut self, name: &str, mut kept: Kept, classes: impl Iterator<Item = &'n String>) {
        let filled = |(_, kept): &(&String, Kept)| !kept.own.is_empty();
        let named = |(name, kept): (&String, Kept)| (name.clone(), kept);
        self.policy_classes = classes.zip(core::mem::take(&mut kept.classes)).filter(filled).map(named).collect();
        self.policy = (name.into(), kept);
    }

    /// What a policy of that name learned, for one whose classes have these names.
    pub(crate) fn of_policy<'n>(&self, name: &str, classes: impl Iterator<Item = &'n String>) -> Option<Kept> {
        let of = |all: &BTreeMap<String, Kept>, name: &String| all.get(name).cloned().unwrap_or_default();
        (self.policy.0 == name).then(|| Kept {
            own: self.policy.1.own.clone(),
            classes: classes.map(|name| of(&self.policy_classes, name)).collect(),
        })
    }

    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        *self == Learned::default()
    }

    /// Leaves out what is at work: for who begins when that is over.
    pub fn forget_work(&mut self) {
        self.at_work.clear();
    }

    /// URLs whose costs are known.
    pub fn urls(&self) -> usize {
        self.costs.as_ref().map_or(0, KeptCosts::len)
    }

    /// Requests that were at work at servers.
    pub fn at_work(&self) -> usize {
        self.at_work.len()
    }
}
