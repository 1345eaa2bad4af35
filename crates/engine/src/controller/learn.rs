//! What the controller does ten times a second: rates, capacities, calibration, the target, and when to come back.

use core::time::Duration;

use super::core_state::{ClassStats, Core};
use crate::decision::{Reason, Rejection};
use crate::estimate::Scale;
use crate::event::Event;
use crate::policer::ClassCounts;
use crate::request::ClassId;
use crate::time::Timestamp;

/// A class whose refusals paused this long was not being refused.
const REFUSAL_GAP: Duration = Duration::from_secs(1);
/// A capacity is worth an event when it moved by this factor since the last one.
const CAPACITY_NEWS: f64 = 1.25;
/// Bounds of Retry-After, seconds.
const RETRY_LEAST: f64 = 1.0;
const RETRY_MOST: f64 = 60.0;

impl Rejection {
    /// The same, with another time to come back, within the bounds.
    pub(super) fn come_back_after(self, after: Duration) -> Rejection {
        let seconds = after.as_secs_f64().clamp(RETRY_LEAST, RETRY_MOST);
        Rejection { retry_after: Duration::from_secs_f64(seconds), ..self }
    }
}

impl Core {
    /// Brings everything slow up to date.
    pub(super) fn refresh(&mut self, now: Timestamp) {
        let held_back = self.refresh_rates(now);
        self.refresh_capacities(now, held_back);
        self.calibration.refresh(now);
        self.refresh_target(now);
        self.tick_dispatch(now);
        self.sum_reports();
        self.publish_retry_after(now);
        self.refreshed = now;
    }

    /// Offered rates per class, and the beginnings and ends of refusals. Whether anything was refused.
    fn refresh_rates(&mut self, now: Timestamp) -> bool {
        let dt = now.seconds_since(self.refreshed);
        let mut held_back = false;
        let mut offered = 0;
        for index in 0..self.classes.len() {
            let class = ClassId(index as u8);
            let counts = self.policer.counts(class);
            let new = difference(counts, self.counted[index]);
            self.counted[index] = counts;
            offered += new.offered;
            self.classes[index].offered.update(new.offered as f64, dt);
            self.classes[index].excess.update((new.offered - new.guaranteed) as f64, dt);
            held_back |= self.note_refusals(now, class, counts);
        }
        self.offered.update(offered as f64, dt);
        held_back
    }

    fn note_refusals(&mut self, now: Timestamp, class: ClassId, counts: ClassCounts) -> bool {
        let stats = &mut self.stats[class.index()];
        let total = counts.refused + stats.refused_by_controller() + stats.carried.refused;
        let refused_now = total > stats.refused_seen;
        let before = stats.refused_seen;
        stats.refused_seen = total;
        if refused_now {
            stats.refused_last = now;
            if stats.refusing.is_none() {
                stats.refusing = Some((now, before));
                let reason = stats.most_frequent_reason();
                self.sink.record(now, Event::RefusalBegan { class, reason });
            }
        } else if let Some((_, before)) = stats.refusing
            && now.since(stats.refused_last) >= REFUSAL_GAP
        {
            stats.refusing = None;
            self.sink.record(now, Event::RefusalEnded { class, refused: total - before });
        }
        refused_now
    }

    fn refresh_capacities(&mut self, now: Timestamp, held_back: bool) {
        let mut changed = self.fix_scale();
        for server in &mut self.servers {
            let Some(before) = server.capacity.learn(now, held_back) else { continue };
            changed = true;
            let to = server.capacity.processors();
            let told = *server.told_capacity.get_or_insert(before);
            if (to / told).max(told / to) > CAPACITY_NEWS {
                server.told_capacity = Some(to);
                self.sink.record(now, Event::CapacityLearned { server: server.id, from: told, to });
            }
        }
        if changed {
            self.count_servers();
        }
    }

    /// Fixes the scale of costs by what servers did while they had little to do. Whether it changed.
    fn fix_scale(&mut self) -> bool {
        self.scale = Scale::of(self.servers.iter().map(|server| server.capacity.sharing()));
        let Some(scale) = self.scale.get() else { return false };
        if (scale / self.costs.scale() - 1.0).abs() < 1e-3 {
            return false;
        }
        self.costs.set_scale(scale);
        self.servers.iter_mut().for_each(|server| server.capacity.set_scale(scale));
        true
    }

    fn refresh_target(&mut self, now: Timestamp) {
        let target = self.setup.sla.target(self.offered.get()).as_secs_f64();
        if target != self.target {
            self.sink.record(now, Event::TargetChanged { from: self.target, to: target });
            self.target = target;
        }
    }

    /// A refused client should come back when what is queued is drained: the more so the less important it is, since
    /// more important requests go first all that time. While more servers are on their way, not before they serve.
    pub(super) fn publish_retry_after(&self, now: Timestamp) {
        let coming = self.coming.map_or(0.0, |at| at.seconds_since(now));
        let cost = self.costs.mean().unwrap_or(0.0);
        let queued = self.flights.len() as f64 * cost / self.processors().max(1e-9);
        for class in self.policer.classes() {
            let ahead: f64 = self.classes[..class.index()].iter().zip(0..).map(|(c, i)| self.demand(c, i)).sum();
            let left = (1.0 - ahead / self.processors().max(1e-9)).max(0.05);
            let seconds = (queued / left).max(coming).clamp(RETRY_LEAST, RETRY_MOST);
            self.policer.publish_retry_after(class, Duration::from_secs_f64(seconds));
        }
    }

    /// Seconds of work per second that a class brings.
    fn demand(&self, class: &crate::admission::ClassEstimate, index: usize) -> f64 {
        class.offered.get() * self.costs.class_mean(index)
    }
}

impl ClassStats {
    /// Refusals that did not come from the published table.
    pub(super) fn refused_by_controller(&self) -> u64 {
        self.refused.iter().sum()
    }

    fn most_frequent_reason(&self) -> Reason {
        let most = (0..Reason::ALL.len()).max_by_key(|&i| self.refused[i]);
        match most {
            Some(at) if self.refused[at] > 0 => Reason::ALL[at],
            _ => Reason::Threshold,
        }
    }
}

fn difference(now: ClassCounts, before: ClassCounts) -> ClassCounts {
    ClassCounts {
        offered: now.offered - before.offered,
        guaranteed: now.guaranteed - before.guaranteed,
        refused: now.refused - before.refused,
    }
}
