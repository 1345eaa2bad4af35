//! Size-based batch admission as it was published, and no more (Cataclysm, sections 3.1 and 3.2).
//!
//! *Intuition.* The ferry of [`batch`](super::batch) with a purser who goes by the book: whole groups or none of them.
//!
//! *Applied.* Class `i` is looked at every `d_i` seconds (`d_1` = 0: on arrival), most important first. Inside a class,
//! from the cheapest bucket to the dearest, the `beta` requests of a bucket are all let in, or all refused, by
//!
//! ```text
//! Q + (eta + ceil(beta / n)) S <= R_sla - d_i
//! ```
//!
//! with `Q` the queueing delay at the servers, `eta` the requests in service per server, `n` the servers, and `S` the
//! middle of the bucket. When a bucket of a class fails, everything that waits in less important classes is refused.
//!
//! *Awkward cases.* All that [`batch`](super::batch) does about them is left out: servers have one processor each, a
//! request that is foreseen to take longer than the target is refused for ever, no place is left for requests that come
//! next, and a prediction is not compared with what came of it. It is here to be compared with.
//!
//! *Source.* Urgaonkar and Shenoy, "Cataclysm: policing extreme overloads in Internet applications", 2008. Delays of 0,
//! 50 and 100 ms are those of its experiments.

use alloc::vec::Vec;
use core::time::Duration;
use serde::{Deserialize, Serialize};

use super::batch::{BUCKETS, bucket_middle, bucket_of, next_round};
use super::{Admission, AdmissionPolicy, Arrival, Context, PolicyState, require};
use crate::decision::Reason;
use crate::flight::Turn;
use crate::policer::Share;
use crate::request::ClassId;
use crate::setup::{Setup, SetupError};
use crate::time::Timestamp;
use crate::units::Seconds;

/// Settings.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// The delays d_i, one per class, most important first; a missing one repeats the last.
    pub delays: Vec<Seconds>,
    /// Most requests waiting, all classes together.
    pub max_waiting: u32,
}

impl Default for Config {
    fn default() -> Self {
        Config { delays: [0.0, 0.05, 0.1].map(Seconds).into(), max_waiting: 100_000 }
    }
}

impl Config {
    pub(super) fn check(&self) -> Result<(), SetupError> {
        let delays = &self.delays;
        require(!delays.is_empty(), "cataclysm-batch", "delays", "needs at least one time")?;
        let growing = delays.windows(2).all(|w| w[0].0 <= w[1].0) && delays.iter().all(|d| d.0 >= 0.0 && d.0 < 60.0);
        require(growing, "cataclysm-batch", "delays", "must not shrink from class to class, and stay below one minute")
    }

    pub(super) fn build(&self, setup: &Setup) -> CataclysmBatch {
        let classes = setup.classes.len();
        let last = self.delays.len() - 1;
        CataclysmBatch {
            delays: (0..classes).map(|class| self.delays[class.min(last)].duration()).collect(),
            rounds: alloc::vec![None; classes],
            max_waiting: self.max_waiting as usize,
        }
    }
}

/// State of the policy `cataclysm-batch`.
#[derive(Debug)]
pub struct CataclysmBatch {
    /// d_i per class.
    delays: Vec<Duration>,
    /// Next round per class; `None` while nothing waits.
    rounds: Vec<Option<Timestamp>>,
    max_waiting: usize,
}

impl AdmissionPolicy for CataclysmBatch {
    fn on_arrival(&mut self, cx: &mut Context<'_>, arrival: &Arrival) -> Admission {
        let class = arrival.request.class;
        let delay = self.delays[class.index()];
        if !delay.is_zero() && !cx.shadow {
            if cx.waiting_in_all() >= self.max_waiting {
                return Admission::refuse(Reason::QueueFull);
            }
            self.rounds[class.index()].get_or_insert_with(|| next_round(cx.now, delay));
            return Admission::Wait { bucket: bucket_of(arrival.cost) };
        }
        let predicted = predicted(cx, arrival.cost, 1);
        if cx.load.free > 0 && predicted <= cx.target - delay.as_secs_f64() {
            return Admission::Admit;
        }
        self.refuse_below(cx, class);
        Admission::Refuse { reason: cx.load.refusal(Reason::SlaTarget), predicted: Some(predicted) }
    }

    fn on_timeout(&mut self, cx: &mut Context<'_>) {
        for class in cx.class_ids() {
            if self.rounds[class.index()].is_none_or(|at| at > cx.now) {
                continue;
            }
            self.rounds[class.index()] = None;
            if !self.round(cx, class) {
                self.refuse_below(cx, class);
                return;
            }
        }
    }

    /// What waits gets its rounds.
    fn on_takeover(&mut self, cx: &mut Context<'_>) {
        self.plan_rounds(cx);
    }

    fn on_tick(&mut self, cx: &mut Context<'_>) {
        for class in cx.class_ids() {
            cx.publish(class, Share::Ask);
        }
        self.plan_rounds(cx);
    }

    fn next_timeout(&self) -> Option<Timestamp> {
        self.rounds.iter().flatten().min().copied()
    }

    fn buckets(&self) -> usize {
        BUCKETS
    }

    fn describe(&self, state: &mut PolicyState) {
        state.active = "cataclysm-batch";
        state.delays = self.delays.iter().map(Duration::as_secs_f64).collect();
    }
}

impl CataclysmBatch {
    /// Tests each bucket of a class as a whole, cheapest first. `false` when one failed.
    fn round(&self, cx: &mut Context<'_>, class: ClassId) -> bool {
        let bound = cx.target - self.delays[class.index()].as_secs_f64();
        let mut all_passed = true;
        for bucket in 0..BUCKETS {
            let batch = Turn::ALL.iter().map(|turn| cx.waiting_at(class, bucket, *turn)).sum::<usize>();
            if batch == 0 {
                continue;
            }
            let predicted = predicted(cx, bucket_middle(bucket), batch);
            if batch <= cx.load.free && predicted <= bound {
                cx.start(class, bucket, batch);
            } else {
                let reason = cx.load.refusal(Reason::SlaTarget);
                cx.refuse(class, bucket, batch, reason, Some(predicted));
                all_passed = false;
            }
        }
        all_passed
    }

    /// A class failed: what waits in less important ones goes, untested.
    fn refuse_below(&mut self, cx: &mut Context<'_>, class: ClassId) {
        for lower in cx.class_ids().skip(class.index() + 1) {
            if cx.waiting(lower) > 0 {
                cx.refuse_class(lower, Reason::MoreImportantFirst);
            }
            self.rounds[lower.index()] = None;
        }
    }

    /// For requests that wait in a class without a round, as a reload carries them over.
    fn plan_rounds(&mut self, cx: &Context<'_>) {
        for class in cx.class_ids().filter(|class| cx.waiting(*class) > 0) {
            self.rounds[class.index()].get_or_insert(cx.now + Duration::from_nanos(1));
        }
    }
}

/// The response time foreseen for a batch of this cost, seconds.
fn predicted(cx: &Context<'_>, cost: f64, batch: usize) -> f64 {
    let servers = cx.load.servers.max(1);
    let per_server = batch.div_ceil(servers) as f64;
    // The paper counts whatever is in flight, also what hangs.
    let in_service = (cx.load.in_flight as f64 + cx.load.elsewhere).max(0.0) / servers as f64;
    cx.load.queueing_delay + (in_service + per_server) * cost
}
