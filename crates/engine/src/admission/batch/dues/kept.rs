//! What outlives a process of what is due: class by class.

use alloc::format;
use core::time::Duration;

use super::super::buckets::BUCKETS;
use super::{Class, Dues, Group, INTERVALS};
use crate::estimate::Average;
use crate::learned::Kept;
use crate::time::Timestamp;

/// Far beyond anything real.
const MOST: f64 = 1e12;

impl Dues {
    pub(in crate::admission) fn keep(&self, now: Timestamp, kept: &mut Kept) {
        for (index, class) in self.classes.iter().enumerate() {
            let kept = kept.of_class_mut(index);
            kept.put("due_kept", class.kept.0 as f64);
            kept.put("due_until", class.kept.1.seconds_since(now));
            class.patience.keep(now, |name, value| kept.put(name, value));
            let used = (0..BUCKETS).filter(|at| class.groups[*at].offered > 0.0 || class.kinds.seen(*at).0 > 0.0);
            for at in used {
                class.keep(now, at, |name, value| kept.put(&format!("due_{at}_{name}"), value));
            }
        }
    }

    pub(in crate::admission) fn recall(&mut self, now: Timestamp, kept: &Kept) {
        for (index, class) in self.classes.iter_mut().enumerate() {
            let kept = kept.of_class(index);
            let until = kept.between("due_until", (0.0, 60.0), 0.0);
            let group = kept.between("due_kept", (0.0, (BUCKETS - 1) as f64), 0.0) as usize;
            class.kept = (group, now + Duration::from_secs_f64(until));
            class.patience.recall(now, |name| kept.between(name, (0.0, 3600.0), 0.0));
            for at in 0..BUCKETS {
                class.recall(now, at, |name| kept.get(&format!("due_{at}_{name}")));
            }
        }
    }
}

impl Class {
    fn keep(&self, now: Timestamp, at: usize, mut put: impl FnMut(&str, f64)) {
        let group = &self.groups[at];
        put("offered", group.offered);
        put("admitted", group.admitted);
        put("credit", group.credit);
        put("age", now.seconds_since(group.last));
        if let Some(interval) = group.interval.get() {
            put("interval", interval);
            put("intervals", group.interval.weight());
        }
        let (seen, costs) = self.kinds.seen(at);
        put("seen", seen);
        put("costs", costs);
    }

    fn recall(&mut self, now: Timestamp, at: usize, get: impl Fn(&str) -> Option<f64>) {
        let bounded = |name: &str, least: f64| get(name).map_or(0.0, |value| value.clamp(least, MOST));
        let mut interval = Average::default();
        if let Some(mean) = get("interval").filter(|mean| *mean >= 0.0) {
            interval.update(mean, bounded("intervals", 0.0).min(INTERVALS), INTERVALS);
        }
        self.groups[at] = Group {
            offered: bounded("offered", 0.0),
            admitted: bounded("admitted", 0.0),
            credit: bounded("credit", -MOST),
            last: now - Duration::from_secs_f64(bounded("age", 0.0).min(3600.0)),
            interval,
        };
        self.kinds.recall(at, bounded("seen", 0.0), bounded("costs", 0.0));
    }
}
