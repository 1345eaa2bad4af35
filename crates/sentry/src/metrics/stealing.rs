//! Stealing from the data tier, where the dispatch policy does it.

use std::fmt;

use tidegate_engine::Snapshot;

use super::family::Families;
use super::{Seen, flag};

/// Gauges: name, help, and what the policy calls it.
const GAUGES: [(&str, &str, &str); 3] = [
    ("tidegate_stealing_limit", "The most that each data server may have in flight.", "limit"),
    ("tidegate_stealing_cores", "Cores that each data server is to give to application work.", "cores"),
    ("tidegate_stealing_load_ratio", "Requests sent to servers, as a share of the data tier's peak.", "load"),
];

/// Writes the families.
pub(super) fn write(out: &mut Families<'_>, all: &[Seen]) -> fmt::Result {
    let states = || all.iter().filter_map(|seen| Some((seen.labels(), seen.snapshot.dispatching.facts("stealing")?)));
    let stolen = states().filter_map(|(labels, stealing)| Some((labels, stealing.count("stolen")?)));
    out.counter("tidegate_stolen", "Requests sent to data servers.", stolen)?;
    let is_stealing = states().map(|(labels, stealing)| (labels, flag(stealing.is_set("is_stealing"))));
    out.gauge("tidegate_stealing", "1 while requests are sent to data servers.", None, is_stealing)?;
    for (name, help, key) in GAUGES {
        out.gauge(name, help, None, states().filter_map(|(labels, state)| Some((labels, state.number(key)?))))?;
    }
    Ok(())
}

/// The same by the names that the dashboard's history has.
pub(crate) fn gauges(now: &Snapshot, keep: &mut dyn FnMut(&str, f64)) {
    let Some(stealing) = now.dispatching.facts("stealing") else { return };
    let mut keep = |name, key| stealing.number(key).into_iter().for_each(|value| keep(name, value));
    keep("stolen", "stolen");
    keep("stealing_limit", "limit");
    keep("data_tier_load", "load");
    keep("data_cores_lent", "cores");
}
