//! What a run is counted into: what came of the requests, and what was offered, stretch by stretch.

use std::time::Duration;

use tidegate_sim::Offer;
use tidegate_workload::Course;

/// What came of a run.
#[derive(Debug, Clone, Default)]
pub struct Tally {
    /// Per class, by stretch of its arrival: a "second" of a course is a stretch here.
    pub classes: Vec<Course>,
    /// Work offered in each stretch, seconds.
    pub work: Vec<f64>,
    /// When the last request arrived.
    pub length: Duration,
}

impl Tally {
    /// Counts an offer's work; stretches are `stretch` long.
    pub fn offered(&mut self, offer: &Offer, stretch: Duration) {
        let index = (offer.at.as_nanos() / stretch.as_nanos().max(1)) as usize;
        if self.work.len() <= index {
            self.work.resize(index + 1, 0.0);
        }
        self.work[index] += offer.work;
        self.length = offer.at;
    }
}
