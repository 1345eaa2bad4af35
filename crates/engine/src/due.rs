//! Deadlines: what cannot be answered before its own client stops waiting is refused, at its arrival or as it waits.
//!
//! *Intuition.* A cook who is told that a guest's train leaves in ten minutes does not begin a roast for him. He says
//! so at once: the guest can eat elsewhere, and the stove is free for others.
//!
//! *Applied.* A request that was sent off at `now` would be answered `Q + c r max(1, (eta + 1) / k)` later: `c` is its
//! learned cost, `r` a measured ratio of what requests take to what was expected of them, and the rest as in the policy
//! `batch`. While a processor is free, waiting for a late answer costs nobody anything: then `r` is what only one in
//! ten stays below, so that whoever is refused had hardly a chance. Else, and for a free processor that others wait
//! for, `r` is the median: places go to requests that are more likely in time than not. What waits in a class queue
//! leaves it at the instant from which even a free processor would be too late.
//!
//! *Awkward cases.* A deadline must not be worth setting to get in: it is looked at before the policy, and a policy
//! that minds it, as `waiting` does, gives less time for it, and no other place. Until costs are known only a deadline
//! that has passed refuses. And who is always refused would never be seen to have become cheaper: so while a processor
//! is free, one in fifty of those is let in.

use crate::admission::Load;
use crate::estimate::{Calibration, Costs};
use crate::time::Timestamp;

/// In how many seconds a request of this cost is answered that is sent now, and whether a processor is free for it that
/// nobody else waits for.
pub(crate) fn foresee(
    load: &Load,
    costs: &Costs,
    calibration: &Calibration,
    cost: f64,
    others_wait: bool,
) -> (f64, bool) {
    let is_free = !others_wait && (load.in_flight as f64) < load.idle_processors;
    if !costs.is_settled() {
        return (0.0, is_free);
    }
    if is_free {
        return (load.queueing_delay + cost * calibration.least(), true);
    }
    let stretch = ((load.in_service() + 1.0) / load.processors.max(1e-9)).max(1.0);
    (load.queueing_delay + cost * calibration.median() * stretch, false)
}

/// Whether a request that is sent now, and answered in so many seconds, is answered after its deadline.
pub(crate) fn is_too_late(now: Timestamp, deadline: Timestamp, predicted: f64) -> bool {
    now >= deadline || deadline.seconds_since(now) < predicted
}
