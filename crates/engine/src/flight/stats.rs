//! Counters of a class, and runs of refusals.

use core::time::Duration;

use crate::decision::{Open, Reason};
use crate::estimate::DecayedHistogram;
use crate::event::{Event, EventSink};
use crate::policer::ClassCounts;
use crate::request::ClassId;
use crate::time::Timestamp;

/// Displayed response times fade with this half-life, seconds.
const RESPONSE_HALF_LIFE: f64 = 10.0;
/// A class whose refusals paused this long was not being refused.
const REFUSAL_GAP: Duration = Duration::from_secs(1);

/// Counters of a class since the start.
#[derive(Clone, Debug)]
pub(crate) struct ClassStats {
    pub(crate) admitted: u64,
    pub(crate) completed: u64,
    pub(crate) in_target: u64,
    pub(crate) failed: u64,
    /// Of these, ended by the controller.
    pub(crate) runaways: u64,
    /// Of these, refused by a service that the server called.
    pub(crate) refused_below: u64,
    pub(crate) cancelled: u64,
    pub(crate) in_flight: u64,
    /// Of these, ghosts.
    pub(crate) ghosts: u64,
    /// In the pool.
    pub(crate) streams: u64,
    pub(crate) tunnels: u64,
    pub(crate) refused: [u64; Reason::ALL.len()],
    /// Counts of policers before a reload.
    pub(crate) carried: ClassCounts,
    pub(crate) responses: DecayedHistogram,
    /// Times to the first byte, of those of which that is known.
    pub(crate) first_bytes: DecayedHistogram,
    /// Until when retries of tenants above their share stand back for first tries of such.
    pub(crate) held_above: Timestamp,
    /// Refusals up to the last look, when the current run of them began, and when the last was seen.
    refused_seen: u64,
    hopeless_seen: u64,
    refusing: Option<(Timestamp, u64)>,
    refused_last: Timestamp,
}

impl ClassStats {
    /// Those of a kind in the pool.
    pub(crate) fn open_mut(&mut self, kind: Open) -> &mut u64 {
        match kind {
            Open::Stream | Open::Poll => &mut self.streams,
            Open::Tunnel => &mut self.tunnels,
        }
    }

    pub(crate) fn new() -> Self {
        ClassStats {
            admitted: 0,
            completed: 0,
            in_target: 0,
            failed: 0,
            runaways: 0,
            refused_below: 0,
            cancelled: 0,
            in_flight: 0,
            ghosts: 0,
            streams: 0,
            tunnels: 0,
            refused: [0; Reason::ALL.len()],
            carried: ClassCounts::default(),
            responses: DecayedHistogram::new(RESPONSE_HALF_LIFE),
            first_bytes: DecayedHistogram::new(RESPONSE_HALF_LIFE),
            held_above: Timestamp::ZERO,
            refused_seen: 0,
            hopeless_seen: 0,
            refusing: None,
            refused_last: Timestamp::ZERO,
        }
    }

    /// Whether requests of `class` were refused since the last look, by the published table or by the controller. Says
    /// when a run of refusals begins and ends.
    pub(crate) fn look(&mut self, now: Timestamp, class: ClassId, by_table: u64, sink: &mut dyn EventSink) -> bool {
        let total = by_table + self.refused_by_controller() + self.carried.refused;
        let before = core::mem::replace(&mut self.refused_seen, total);
        let refused_now = total > before;
        if refused_now {
            self.refused_last = now;
            if self.refusing.is_none() {
                self.refusing = Some((now, before));
                sink.record(now, Event::RefusalBegan { class, reason: self.most_frequent_reason() });
            }
        } else if let Some((_, before)) = self.refusing
            && now.since(self.refused_last) >= REFUSAL_GAP
        {
            self.refusing = None;
            sink.record(now, Event::RefusalEnded { class, refused: total - before });
        }
        // What misses its own deadline does so at any load.
        let hopeless = self.refused[Reason::Deadline.index()];
        refused_now && total - before > hopeless - core::mem::replace(&mut self.hopeless_seen, hopeless)
    }

    /// Requests refused by the controller because more arrives than can be served.
    pub(crate) fn refused_for_want(&self) -> u64 {
        let of = |reason: &Reason| if reason.is_contention() { self.refused[reason.index()] } else { 0 };
        Reason::ALL.iter().map(of).sum()
    }

    fn refused_by_controller(&self) -> u64 {
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
