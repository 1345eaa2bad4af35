//! Batching controller: how many events a worker takes at once.
//!
//! *Intuition.* Larger batches spread what a batch costs over more events, up to a point; beyond it they only make
//! events wait for each other. So make batches smaller as long as the stage gets no slower by it.
//!
//! *Applied.* Ten times a second or so: the throughput since the last look is compared with a moving average. As long
//! as it does not fall, the limit shrinks by a tenth; when it falls by more than a twentieth, the limit grows by a
//! fifth. When it falls by half the work itself has changed, and the limit starts again at its largest.
//!
//! *Awkward cases.* Events per second of the stage would mostly show how many are offered, so throughput is counted
//! per second that workers were busy. Fewer than sixteen events say nothing: they are kept until the next look.
//!
//! *Source.* M. Welsh, D. Culler and E. Brewer, "SEDA: an architecture for well-conditioned, scalable Internet
//! services" (2001), section 4.2, the batching controller.

use std::time::Duration;

use crate::settings::BatchBounds;

const FEWEST_EVENTS: u64 = 16;
const KEEP: f64 = 0.7;
const SLOWER: f64 = 0.95;
const BROKE_DOWN: f64 = 0.5;

/// The batch size limit of a stage.
#[derive(Clone, Debug)]
pub(crate) struct Batching {
    bounds: BatchBounds,
    limit: f64,
    /// Moving average of throughput, events per busy second.
    average: Option<f64>,
    /// Seen since the limit was last decided on.
    events: u64,
    busy: Duration,
}

impl Batching {
    pub(crate) fn new(bounds: BatchBounds) -> Self {
        Batching { bounds, limit: bounds.max as f64, average: None, events: 0, busy: Duration::ZERO }
    }

    /// How many events a worker may take at once.
    pub(crate) fn limit(&self) -> usize {
        self.limit as usize
    }

    /// The moving average of throughput, events per second of a busy worker.
    pub(crate) fn throughput(&self) -> Option<f64> {
        self.average
    }

    /// Since the last call workers processed `events` in `busy` time, summed over workers.
    pub(crate) fn observe(&mut self, events: u64, busy: Duration) {
        self.events += events;
        self.busy += busy;
        if self.events < FEWEST_EVENTS || self.busy.is_zero() {
            return;
        }
        let (events, busy) = (std::mem::take(&mut self.events), std::mem::take(&mut self.busy));
        let throughput = events as f64 / busy.as_secs_f64();
        let Some(average) = self.average else {
            self.average = Some(throughput);
            return;
        };
        let (min, max) = (self.bounds.min as f64, self.bounds.max as f64);
        if throughput < BROKE_DOWN * average {
            self.limit = max;
            self.average = Some(throughput);
            return;
        }
        self.limit = match throughput < SLOWER * average {
            true => (self.limit * 1.2).ceil().min(max),
            false => (self.limit * 0.9).floor().max(min),
        };
        self.average = Some(KEEP * average + (1.0 - KEEP) * throughput);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Looks `times` at a stage where a batch costs `fixed` and an event `each`, seconds; the limits.
    fn run(batching: &mut Batching, times: usize, fixed: f64, each: f64) -> Vec<usize> {
        let look = |_| {
            let n = batching.limit() as f64;
            let busy = 100.0 * (fixed + n * each);
            batching.observe(100 * n as u64, Duration::from_secs_f64(busy));
            batching.limit()
        };
        (0..times).map(look).collect()
    }

    #[test]
    fn events_that_gain_nothing_from_a_batch_come_alone() {
        let mut batching = Batching::new(BatchBounds { min: 1, max: 64 });
        assert_eq!(run(&mut batching, 60, 0.0, 1e-3).last(), Some(&1));
    }

    #[test]
    fn a_costly_batch_stays_large() {
        let mut batching = Batching::new(BatchBounds { min: 1, max: 64 });
        let limits = run(&mut batching, 200, 1e-3, 1e-5);
        let mean = limits[100..].iter().sum::<usize>() as f64 / 100.0;
        // At 64 a batch takes 1.64 ms: 39,000 per second. A limit of 1 would give 990.
        assert!(mean > 20.0, "{mean}: {limits:?}");
    }

    #[test]
    fn a_breakdown_starts_again_at_the_largest() {
        let mut batching = Batching::new(BatchBounds { min: 2, max: 64 });
        assert_eq!(run(&mut batching, 60, 0.0, 1e-3).last(), Some(&2));
        assert_eq!(run(&mut batching, 1, 0.0, 1e-2), [64]);
    }

    #[test]
    fn too_few_events_say_nothing_alone() {
        let mut batching = Batching::new(BatchBounds { min: 1, max: 64 });
        batching.observe(8, Duration::from_millis(4));
        assert_eq!((batching.limit(), batching.throughput()), (64, None));
        batching.observe(8, Duration::from_millis(4));
        assert_eq!((batching.limit(), batching.throughput()), (64, Some(2000.0)));
    }
}
