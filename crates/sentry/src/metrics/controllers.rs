//! Response-time controllers: what they let in, what they see, and how good answers should be.

use std::fmt;

use prometheus_client::registry::Unit;
use tidegate_engine::{Facts, Snapshot};

use super::family::{Families, Labels};
use super::{Seen, flag};

pub(super) fn write(out: &mut Families<'_>, all: &[Seen]) -> fmt::Result {
    let class = |key: &'static str| {
        all.iter().flat_map(classes).filter_map(move |(labels, class)| Some((labels, class.number(key)?)))
    };
    out.gauge("tidegate_policy_rate", "Requests per second that the class's bucket lets in.", None, class("rate"))?;
    let help = "Smoothed percentile of the response time.";
    out.gauge("tidegate_policy_percentile", help, Some(Unit::Seconds), class("percentile"))?;
    let policing = all.iter().flat_map(types).map(|(labels, of)| (labels, flag(of.is_set("policing"))));
    let help = "1 while the controller refuses what its bucket does not let in.";
    out.gauge("tidegate_policy_policing", help, None, policing)?;
    let quality = all.iter().flat_map(types).filter_map(|(labels, of)| Some((labels, of.number("quality")?)));
    out.gauge("tidegate_policy_quality", "How good answers should be, 0 to 1.", None, quality)
}

/// The same by the names that the dashboard's history has.
pub(crate) fn gauges(now: &Snapshot, keep: &mut dyn FnMut(&str, f64)) {
    for controller in now.policy.own.list("controllers") {
        let of = controller.text("request_type").map(|name| format!(" {name}")).unwrap_or_default();
        controller.number("quality").into_iter().for_each(|quality| keep(&format!("quality{of}"), quality));
        for class in controller.list("classes") {
            let name = class.text("class").unwrap_or("");
            class.number("rate").into_iter().for_each(|rate| keep(&format!("rate{of}, {name}"), rate));
            class.number("percentile").into_iter().for_each(|time| keep(&format!("response{of}, {name}_s"), time));
        }
    }
}

fn types(seen: &Seen) -> impl Iterator<Item = (Labels<'_>, &Facts)> {
    seen.snapshot.policy.own.list("controllers").map(|of| {
        let name = of.text("request_type").unwrap_or("all");
        (seen.labels().and("request_type", name), of)
    })
}

fn classes(seen: &Seen) -> impl Iterator<Item = (Labels<'_>, &Facts)> {
    types(seen).flat_map(|(labels, of)| {
        of.list("classes").map(move |class| (labels.clone().and("class", class.text("class").unwrap_or("")), class))
    })
}
