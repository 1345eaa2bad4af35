//! Response-time controllers (`aimd`): what they let in, what they see, and how good answers should be.

use std::fmt;

use prometheus_client::registry::Unit;
use tidegate_engine::{ClassControl, ControllerState};

use super::Seen;
use super::family::{Families, Labels};

pub(super) fn write(out: &mut Families<'_>, all: &[Seen]) -> fmt::Result {
    let rates = all.iter().flat_map(classes).map(|(labels, class)| (labels, class.rate));
    out.gauge("tidegate_policy_rate", "Requests per second that the class's bucket lets in.", None, rates)?;
    let percentiles = all.iter().flat_map(classes).filter_map(|(labels, class)| Some((labels, class.percentile?)));
    let help = "Smoothed percentile of the response time.";
    out.gauge("tidegate_policy_percentile", help, Some(Unit::Seconds), percentiles)?;
    let policing = all.iter().flat_map(types).map(|(labels, of)| (labels, f64::from(u8::from(of.policing))));
    let help = "1 while the controller refuses what its bucket does not let in.";
    out.gauge("tidegate_policy_policing", help, None, policing)?;
    let quality = all.iter().flat_map(types).map(|(labels, of)| (labels, of.quality));
    out.gauge("tidegate_policy_quality", "How good answers should be, 0 to 1.", None, quality)
}

fn types(seen: &Seen) -> impl Iterator<Item = (Labels<'_>, &ControllerState)> {
    seen.snapshot.policy.controllers.iter().map(|of| {
        let name = of.request_type.as_deref().unwrap_or("all");
        (seen.labels().and("request_type", name), of)
    })
}

fn classes(seen: &Seen) -> impl Iterator<Item = (Labels<'_>, &ClassControl)> {
    types(seen)
        .flat_map(|(labels, of)| of.classes.iter().map(move |class| (labels.clone().and("class", &class.class), class)))
}
