//! The governor: one task per graph that runs controllers whose time has come, and adjusts workers and batches.
//!
//! It also finds out which stages nearly everything from an entry comes to. Only those may refuse at the entry what
//! names no destination: refusing there on behalf of one stage out of many would hit work that never goes to it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tidegate_engine::Timestamp;
use tokio::runtime::Handle;

use super::Part;
use crate::clock;
use crate::member::Look;
use crate::shared::{Phase, Shared};

/// Share of an entry's work that comes to a stage, from which on the stage counts as on everybody's way.
const NEARLY_ALL: f64 = 0.9;
/// Fewer events say nothing of shares.
const FEWEST_EVENTS: f64 = 20.0;
/// How much of the old counts a look keeps.
const KEEP: f64 = 0.98;

/// Runs until the graph has stopped.
pub(super) async fn govern(shared: Arc<Shared>, parts: Arc<Vec<Part>>, every: Duration, runtime: Handle) {
    let mut shares = Shares::new(parts.len());
    while shared.phase() != Phase::Stopped {
        let looks = look_at_all(&shared, &parts, &runtime);
        if shared.refuses_early() {
            shares.look(&parts);
        }
        if looks.iter().all(|look| look.is_still)
            && let Some(timeout) = sleep_until(&shared, &parts, &looks)
        {
            tokio::select! {
                () = tokio::time::sleep_until(clock::instant(timeout)) => continue,
                // Not at once: an event that comes alone would cost a look each.
                () = shared.stirred.notified() => {}
            }
        }
        tokio::select! {
            () = tokio::time::sleep(every) => {}
            () = shared.changed.notified() => {}
        }
    }
}

fn look_at_all(shared: &Shared, parts: &[Part], runtime: &Handle) -> Vec<Look> {
    let now = clock::now();
    let looks = parts.iter().enumerate().map(|(index, part)| {
        let look = part.member.look(now);
        if !look.refuses {
            shared.relieve(index as u8);
        }
        for _ in 0..look.grow {
            // No thread now: the next look asks again.
            if part.spawn.as_ref().is_none_or(|spawn| spawn(runtime).is_err()) {
                break;
            }
        }
        look
    });
    looks.collect()
}

/// Until when the governor may sleep if nothing happens; not at all if something did meanwhile.
fn sleep_until(shared: &Shared, parts: &[Part], looks: &[Look]) -> Option<Timestamp> {
    shared.fall_asleep();
    // What came before the last line took effect woke nobody.
    let is_still = parts.iter().all(|part| part.member.is_quiet().0);
    is_still.then(|| looks.iter().map(|look| look.timeout).min().unwrap_or(Timestamp::MAX))
}

/// Which share of what enters where comes to which stage.
struct Shares {
    /// By stage, then by entry: events at the last look, and a fading sum of those since.
    seen: Vec<Vec<u64>>,
    sums: Vec<Vec<f64>>,
}

impl Shares {
    fn new(stages: usize) -> Self {
        Shares { seen: vec![vec![0; stages]; stages], sums: vec![vec![0.0; stages]; stages] }
    }

    fn look(&mut self, parts: &[Part]) {
        for (stage, part) in parts.iter().enumerate() {
            for (entry, count) in part.member.by_entry().into_iter().take(parts.len()).enumerate() {
                let new = count - std::mem::replace(&mut self.seen[stage][entry], count);
                let sum = &mut self.sums[stage][entry];
                *sum = KEEP * *sum + new as f64;
            }
        }
        for (entry, part) in parts.iter().enumerate().filter(|(_, part)| part.is_entry) {
            part.always.store(self.on_the_way_from(entry), Ordering::Relaxed);
        }
    }

    /// Bit n: nearly everything from the entry comes to stage n.
    fn on_the_way_from(&self, entry: usize) -> u64 {
        let entered = self.sums[entry][entry];
        let comes = |stage: usize| entered >= FEWEST_EVENTS && self.sums[stage][entry] >= NEARLY_ALL * entered;
        (0..self.sums.len()).filter(|&stage| stage != entry && comes(stage)).fold(0, |bits, stage| bits | 1 << stage)
    }
}
