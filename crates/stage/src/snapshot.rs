//! A running graph as data: for people, dashboards and metrics.

use std::collections::BTreeMap;

use serde::Serialize;
use tidegate_engine::ClassId;

use crate::gate::Gate;
use crate::refused::RefusalReason;

/// A graph at one moment. Serializes to JSON.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct GraphSnapshot {
    /// The graph's name.
    pub name: String,
    /// `running`, `draining` or `stopped`.
    pub phase: &'static str,
    /// Whether entries refuse what a later stage would refuse.
    pub refuses_early: bool,
    /// Its stages, in the order they were declared.
    pub stages: Vec<StageSnapshot>,
}

/// One stage at one moment.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct StageSnapshot {
    /// Name of the stage.
    pub name: String,
    /// Whether work enters the service here.
    pub is_entry: bool,
    /// The stages it was declared to send to.
    pub sends_to: Vec<LinkSnapshot>,
    /// Events in the queue.
    pub waiting: usize,
    /// Bound of the queue.
    pub queue: usize,
    /// Number of running workers.
    pub workers: usize,
    /// Of these, workers with a batch in hand.
    pub busy: usize,
    /// Least number of workers.
    pub workers_min: usize,
    /// Largest number of workers.
    pub workers_max: usize,
    /// How many events a worker may take at once now.
    pub batch: usize,
    /// Events per second that a busy worker processes, smoothed; `None` before that is known.
    pub throughput: Option<f64>,
    /// Events processed per second, smoothed over about a second.
    pub per_second: f64,
    /// Whether the admission controller refuses.
    pub policing: bool,
    /// How good answers should be, 0 to 1.
    pub quality: f64,
    /// Panics of the handler since the start.
    pub panics: u64,
    /// Its classes, most important first.
    pub classes: Vec<ClassSnapshot>,
}

/// A declared way from one stage to another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct LinkSnapshot {
    /// The stage it leads to.
    pub to: String,
    /// Whether the sender may wait until the event is taken.
    pub waits: bool,
}

/// One class at a stage or layer. Counts are since the start.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct ClassSnapshot {
    /// Its rank: 1 is the most important.
    pub class: usize,
    /// Response-time target, seconds.
    pub target: f64,
    /// Smoothed percentile of response time, seconds; `None` before it is known.
    pub percentile: Option<f64>,
    /// Events admitted per second at most.
    pub rate: f64,
    /// What the controller did last: `raised`, `lowered`, ...
    pub last_step: Option<&'static str>,
    /// Events that arrived, since the start.
    pub offered: u64,
    /// Events that were admitted, since the start.
    pub admitted: u64,
    /// Events refused, by reason.
    pub refused: BTreeMap<&'static str, u64>,
    /// Of these, events that other stages had worked on before.
    pub refused_late: u64,
    /// Events refused at an entry on behalf of this stage; not among the offered.
    pub refused_early: u64,
    /// Events that were processed, since the start.
    pub completed: u64,
    /// Of these, within the target.
    pub within_target: u64,
    /// Events lost with a panic, or dropped when the graph stopped.
    pub lost: u64,
    /// Sum of the response times of the completed, seconds.
    pub response_seconds: f64,
}

impl ClassSnapshot {
    pub(crate) fn of(gate: &Gate, index: usize) -> ClassSnapshot {
        let (controller, counts, class) = (gate.controller(), &gate.counts()[index], ClassId(index as u8));
        let refused = |reason: RefusalReason| (reason.name(), counts.refused[reason.index()]);
        ClassSnapshot {
            class: index + 1,
            target: controller.target(class),
            percentile: controller.percentile(class),
            rate: controller.rate(class),
            last_step: controller.last_run(class).map(|run| run.step.name()),
            offered: counts.offered,
            admitted: counts.admitted,
            refused: RefusalReason::ALL.into_iter().map(refused).collect(),
            refused_late: counts.refused_late,
            refused_early: counts.refused_early,
            completed: counts.completed,
            within_target: counts.within_target,
            lost: counts.lost,
            response_seconds: counts.response_nanos as f64 * 1e-9,
        }
    }

    /// Events refused at the stage, for any reason.
    pub fn refused_in_all(&self) -> u64 {
        self.refused.values().sum()
    }
}

impl StageSnapshot {
    /// A sum over its classes.
    pub fn total(&self, of: impl Fn(&ClassSnapshot) -> u64) -> u64 {
        self.classes.iter().map(of).sum()
    }
}

impl GraphSnapshot {
    /// The stage of that name.
    pub fn stage(&self, name: &str) -> Option<&StageSnapshot> {
        self.stages.iter().find(|stage| stage.name == name)
    }
}
