//! A response-time target: one bound, or several that depend on the arrival rate.

use std::time::Duration;

use tidegate_engine::{Bounds, Sla, Statistic, Step};

use crate::report::Report;
use crate::section::{At, List};
use crate::values::{PerSecond, Time};

crate::section! {
    /// The table `sla` as it was typed.
    pub struct RawSla ("in sla of [[application]]") {
        /// Which statistic is bounded: `"mean"`, `"p90"`, `"p95"` or `"p99"`. Default: `"p95"`.
        statistic: String,
        /// Of which time of a request: `"response"`, until its last byte (of a stream: its first), or `"first-byte"`.
        /// Default: `"response"`.
        of: String,
        /// The bound. Default: `"1s"`.
        target: Time,
        /// Bounds that depend on the arrival rate, instead of `target`. Default: none.
        steps: List<RawStep>,
    }
}

crate::section! {
    /// One of its steps.
    pub struct RawStep ("in steps of sla") {
        /// Up to this arrival rate; the last step has none. Default: none.
        below: PerSecond,
        /// The bound there. Required.
        target: Time,
    }
}

/// What `target`, or in its place the table `sla`, means; the 95th percentile within a second where there is neither.
/// What is wrong is reported, and then what comes back is not to be used. Where not all of the file could be read
/// (`is_complete` is false), what seems to be missing is not reported: it may be what could not be read.
pub fn sla(target: Option<At<Time>>, sla: Option<At<RawSla>>, is_complete: bool, report: &mut Report<'_>) -> Sla {
    let Some(At { value: raw, span }) = sla else {
        let Some(target) = target else { return fallback() };
        return Sla::constant(Statistic::P95, target.value.0).unwrap_or_else(|_| {
            report.error(&target.span, "target is zero; give a time such as \"500ms\"");
            fallback()
        });
    };
    if let Some(target) = target {
        report.error(&target.span, "give \"target\" or \"sla\", not both");
    }
    let statistic = raw.statistic.map_or(Statistic::P95, |given| statistic(&given, report));
    let bounds = raw.of.map_or(Bounds::Response, |given| bounds(&given, report));
    let errors = report.errors();
    let steps = match (raw.target, raw.steps) {
        (Some(target), None) => vec![Step { below: f64::INFINITY, target: target.value.0 }],
        (None, Some(steps)) => read_steps(steps.value, is_complete, report),
        (None, None) => vec![Step { below: f64::INFINITY, target: Duration::from_secs(1) }],
        (Some(target), Some(_)) => {
            report.error(&target.span, "give \"target\" or \"steps\" in sla, not both");
            return fallback();
        }
    };
    // An SLA whose parts could not be read has been reported; judging what is left would confuse.
    if !is_complete || report.errors() > errors {
        return fallback();
    }
    Sla::new(statistic, steps).map_or_else(
        |error| {
            report.error(&span, error.to_string());
            fallback()
        },
        |sla| sla.bounding(bounds),
    )
}

fn fallback() -> Sla {
    Sla::constant(Statistic::P95, Duration::from_secs(1)).unwrap_or_else(|_| unreachable!())
}

fn read_steps(steps: List<RawStep>, is_complete: bool, report: &mut Report<'_>) -> Vec<Step> {
    let mut out = Vec::new();
    for At { value: step, span } in steps.0 {
        match step.target {
            Some(target) => {
                let below = step.below.map_or(f64::INFINITY, |below| below.value.0);
                out.push(Step { below, target: target.value.0 });
            }
            None if is_complete => report.error(&span, "this step has no target; add target = \"1s\""),
            None => {}
        }
    }
    out
}

fn statistic(given: &At<String>, report: &mut Report<'_>) -> Statistic {
    Statistic::of(&given.value).unwrap_or_else(|| {
        let known = Statistic::ALL.map(Statistic::name).join(", ");
        report.error(&given.span, format!("unknown statistic \"{}\"; known here: {known}", given.value));
        Statistic::P95
    })
}

fn bounds(given: &At<String>, report: &mut Report<'_>) -> Bounds {
    Bounds::ALL.into_iter().find(|bounds| bounds.name() == given.value).unwrap_or_else(|| {
        let known = Bounds::ALL.map(Bounds::name).join(", ");
        report.error(&given.span, format!("unknown time \"{}\"; known here: {known}", given.value));
        Bounds::Response
    })
}
