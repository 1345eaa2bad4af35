//! What an operator says of single tenants: a guarantee, a limit, a larger share.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use crate::bucket::TokenBucket;
use crate::request::TenantKey;
use crate::setup::{SetupError, SetupPlace};
use crate::snapshot::NamedTenantSnapshot;
use crate::time::Timestamp;

/// Setup of a tenant of which more is to be said than of others.
#[derive(Clone, Debug, PartialEq)]
pub struct TenantSetup {
    /// Its name, for metrics and messages.
    pub name: String,
    /// The tenant.
    pub key: TenantKey,
    /// Guaranteed rate, requests per second; 0 for none. Conforming requests are admitted untested.
    pub min_rate: f64,
    /// The most it may send, requests per second; what is beyond is refused at any load. `None`: no limit.
    pub max_rate: Option<f64>,
    /// Its share is so many times that of others.
    pub weight: f64,
}

impl TenantSetup {
    /// A tenant like any other.
    pub fn new(name: impl Into<String>, key: TenantKey) -> Self {
        TenantSetup { name: name.into(), key, min_rate: 0.0, max_rate: None, weight: 1.0 }
    }

    /// Whether it makes sense.
    ///
    /// # Errors
    /// Rates or a weight that are out of range, or a limit below the guarantee.
    pub fn check(&self) -> Result<(), SetupError> {
        let wrong = |what: &str, value: f64, right: &str| {
            let place = SetupPlace::Tenant(self.name.clone());
            Err(SetupError::wrong(place, format!("{what} = {value} is out of range; {right}")))
        };
        let positive = |value: f64| value.is_finite() && value > 0.0;
        if !(self.min_rate.is_finite() && self.min_rate >= 0.0) {
            return wrong("min_rate", self.min_rate, "it must not be negative");
        }
        match self.max_rate {
            Some(most) if !positive(most) => return wrong("max_rate", most, "it must be more than zero"),
            Some(most) if most < self.min_rate => return wrong("max_rate", most, "min_rate promises more"),
            _ => {}
        }
        if positive(self.weight) { Ok(()) } else { wrong("weight", self.weight, "it must be more than zero") }
    }
}

/// What the rules say of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ruling {
    Nothing,
    Guaranteed,
    Limited,
}

/// Tenants with rules, by key.
#[derive(Debug)]
pub(super) struct Rules(Vec<Rule>);

#[derive(Debug)]
struct Rule {
    setup: TenantSetup,
    guarantee: Option<TokenBucket>,
    limit: Option<TokenBucket>,
    offered: u64,
    admitted: u64,
    refused: u64,
    limited: u64,
}

/// Seconds of its rate that a bucket lets through at once.
const BURST: f64 = 1.0;

impl Rules {
    pub(super) fn new(setups: &[TenantSetup]) -> Rules {
        let bucket = |rate: f64| TokenBucket::new(rate, (rate * BURST).max(1.0));
        let rule = |setup: &TenantSetup| Rule {
            setup: setup.clone(),
            guarantee: (setup.min_rate > 0.0).then(|| bucket(setup.min_rate)),
            limit: setup.max_rate.map(bucket),
            offered: 0,
            admitted: 0,
            refused: 0,
            limited: 0,
        };
        let mut rules: Vec<Rule> = setups.iter().map(rule).collect();
        rules.sort_by_key(|rule| rule.setup.key);
        Rules(rules)
    }

    /// Tenants that stay keep their counts, and those whose rules are as before what they have used.
    pub(super) fn follow(&mut self, setups: &[TenantSetup]) {
        let old = core::mem::replace(self, Rules::new(setups));
        for before in old.0 {
            let Some(at) = self.find(before.setup.key) else { continue };
            let rule = &mut self.0[at];
            if rule.setup == before.setup {
                *rule = before;
            } else {
                let Rule { offered, admitted, refused, limited, .. } = before;
                (rule.offered, rule.admitted, rule.refused, rule.limited) = (offered, admitted, refused, limited);
            }
        }
    }

    /// A tenant's weight, and what is said of a request that it sends now, which is counted.
    pub(super) fn look(&mut self, now: Timestamp, tenant: TenantKey) -> (f64, Ruling) {
        let Some(at) = self.find(tenant) else { return (1.0, Ruling::Nothing) };
        let rule = &mut self.0[at];
        rule.offered += 1;
        let ruling = if rule.limit.as_mut().is_some_and(|limit| !limit.conforms(now)) {
            rule.limited += 1;
            Ruling::Limited
        } else if rule.guarantee.as_mut().is_some_and(|guarantee| guarantee.conforms(now)) {
            Ruling::Guaranteed
        } else {
            Ruling::Nothing
        };
        (rule.setup.weight, ruling)
    }

    pub(super) fn admit(&mut self, tenant: TenantKey) {
        if let Some(at) = self.find(tenant) {
            self.0[at].admitted += 1;
        }
    }

    pub(super) fn refuse(&mut self, tenant: TenantKey, requests: u64) {
        if let Some(at) = self.find(tenant) {
            self.0[at].refused += requests;
        }
    }

    /// Requests that never came here: counted, and the tenant's weight.
    pub(super) fn count(&mut self, tenant: TenantKey, requests: u64) -> f64 {
        let Some(at) = self.find(tenant) else { return 1.0 };
        self.0[at].offered += requests;
        self.0[at].setup.weight
    }

    pub(super) fn weight(&self, tenant: TenantKey) -> f64 {
        self.find(tenant).map_or(1.0, |at| self.0[at].setup.weight)
    }

    /// Tenants with guarantees.
    pub(super) fn guaranteed(&self) -> impl Iterator<Item = TenantKey> {
        self.0.iter().filter(|rule| rule.guarantee.is_some()).map(|rule| rule.setup.key)
    }

    /// What became of their requests, by name.
    pub(super) fn counts(&self) -> Vec<NamedTenantSnapshot> {
        let count = |rule: &Rule| NamedTenantSnapshot {
            name: rule.setup.name.clone(),
            offered: rule.offered,
            admitted: rule.admitted,
            refused: rule.refused,
            limited: rule.limited,
        };
        let mut all: Vec<_> = self.0.iter().map(count).collect();
        all.sort_by(|a, b| a.name.cmp(&b.name));
        all
    }

    pub(super) fn name(&self, tenant: TenantKey) -> Option<String> {
        self.find(tenant).map(|at| self.0[at].setup.name.clone())
    }

    fn find(&self, tenant: TenantKey) -> Option<usize> {
        self.0.binary_search_by_key(&tenant, |rule| rule.setup.key).ok()
    }
}
