//! Stealing from the data tier, where the dispatch policy does it.

use std::fmt;

use super::family::Families;
use super::{Seen, flag};

/// Writes the families.
pub(super) fn write(out: &mut Families<'_>, all: &[Seen]) -> fmt::Result {
    let seen = || all.iter().filter_map(|seen| Some((seen, seen.snapshot.stealing.as_ref()?)));
    out.counter(
        "tidegate_stolen",
        "Requests sent to data servers.",
        seen().map(|(seen, stealing)| (seen.labels(), stealing.stolen)),
    )?;
    out.gauge(
        "tidegate_stealing",
        "1 while requests are sent to data servers.",
        None,
        seen().map(|(seen, stealing)| (seen.labels(), flag(stealing.is_stealing))),
    )?;
    out.gauge(
        "tidegate_stealing_limit",
        "The most that each data server may have in flight.",
        None,
        seen().map(|(seen, stealing)| (seen.labels(), f64::from(stealing.limit))),
    )?;
    let cores = seen().filter_map(|(seen, stealing)| Some((seen.labels(), f64::from(stealing.cores?))));
    out.gauge("tidegate_stealing_cores", "Cores that each data server is to give to application work.", None, cores)?;
    out.gauge(
        "tidegate_stealing_load_ratio",
        "Requests sent to servers, as a share of the data tier's peak.",
        None,
        seen().map(|(seen, stealing)| (seen.labels(), stealing.load)),
    )
}
