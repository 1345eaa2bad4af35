//! Tenants and the published table, which decides where nobody holds the lock.
//!
//! The table lets the same share `p` of all requests of a class pass. At the level `a` at which that is what tenants'
//! rates add up to, of a tenant of rate `r > a` the part `a / r` passes instead, and of all others what is left of `p`.
//! Tenants with guarantees of their own are not decided on by the table.

use super::{Tenants, key_in};
use crate::policer::{Policer, SLOTS, Share};
use crate::request::{ClassId, TenantKey};
use crate::time::Timestamp;

/// A tenant above its share.
struct Above {
    tenant: TenantKey,
    /// Its part of the class's work.
    part: f64,
    /// The share of it that passes.
    keep: f64,
}

impl Tenants {
    /// Counts what the table refused since the last time.
    pub(super) fn count_refused(&mut self, now: Timestamp, policer: &Policer) {
        let Tenants { sketch, levels, heaviest, rules, refused, .. } = self;
        refused.resize(policer.lanes(), 0);
        policer.refused_since(refused, |class, tenant, requests| {
            let Some(level) = levels.get_mut(class.index()).filter(|_| tenant != TenantKey::NONE) else { return };
            // The table knows no costs: each is a mean one.
            let work = requests as f64;
            let rate = sketch.add(now, key_in(tenant, class), work) / rules.count(tenant, requests);
            level.offer(rate, work);
            heaviest.offer(tenant, work, requests);
            heaviest.refuse(tenant, requests);
            rules.refuse(tenant, requests);
        });
    }

    /// Puts the shares of tenants into the table.
    pub(crate) fn publish(&mut self, now: Timestamp, policer: &Policer) {
        for class in policer.classes() {
            // Where all pass, or each is asked about, nobody needs a share of its own.
            let share = match policer.share(class) {
                Share::Admit(share) if share < 1.0 => share,
                _ => {
                    policer.publish_tenants(class, &[], 1.0);
                    continue;
                }
            };
            let mut shares = [(TenantKey::NONE, Share::Ask); SLOTS];
            let mut used = 0;
            let mut add = |tenant, share| {
                if let Some(slot) = shares.get_mut(used) {
                    *slot = (tenant, share);
                    used += 1;
                }
            };
            self.rules.guaranteed().take(SLOTS).for_each(|tenant| add(tenant, Share::Ask));
            let above = self.above(now, class, share);
            let mut rest = (share, 1.0);
            for Above { tenant, part, keep } in above.iter().flatten() {
                rest = (rest.0 - part * keep, rest.1 - part);
                add(*tenant, Share::Admit(*keep));
            }
            let rest = if rest.1 > 0.0 { (rest.0 / rest.1).clamp(0.0, 1.0) } else { share };
            policer.publish_tenants(class, &shares[..used], rest);
        }
    }

    /// The tenants of a class that are above its level while this share of it passes: the heaviest of them.
    fn above(&self, now: Timestamp, class: ClassId, share: f64) -> [Option<Above>; SLOTS] {
        let mut above = [const { None }; SLOTS];
        let Some((level, all)) = self.levels[class.index()].at_share(share) else { return above };
        for tenant in self.heaviest.tenants() {
            let weight = self.rules.weight(tenant);
            let rate = self.sketch.rate(now, key_in(tenant, class));
            let (part, keep) = (rate / all, level * weight / rate);
            let lightest = above.iter_mut().min_by(|a, b| part_of(a).total_cmp(&part_of(b)));
            if let Some(place) = lightest.filter(|place| keep < 1.0 && part > part_of(place)) {
                *place = Some(Above { tenant, part: part.min(1.0), keep });
            }
        }
        above
    }
}

fn part_of(above: &Option<Above>) -> f64 {
    above.as_ref().map_or(0.0, |above| above.part)
}
