//! Names of servers and of other sentries, and files of servers: what they lead to, and how old that is.

use std::fmt;

use prometheus_client::registry::Unit;

use super::family::{Families, Labels};
use super::flag;
use crate::board::Board;
use crate::names::Seen;

pub(super) fn write(out: &mut Families<'_>, board: &Board) -> fmt::Result {
    let all = board.names().map(|view| view.all()).unwrap_or_default();
    let servers = all.iter().filter_map(|seen| Some((labels(seen), seen.servers? as f64)));
    out.gauge("tidegate_source_servers", "Servers or other sentries of a name, or servers of a file.", None, servers)?;
    let stale = all.iter().map(|seen| (labels(seen), flag(seen.state != "fresh")));
    let help = "1 while what is in force is older than the last answer, or there was no good one.";
    out.gauge("tidegate_source_stale", help, None, stale)?;
    let ages = all.iter().filter_map(|seen| Some((labels(seen), seen.good_at?.elapsed().as_secs_f64())));
    out.gauge("tidegate_source_age", "Time since the last good answer.", Some(Unit::Seconds), ages)?;
    let lookups = all
        .iter()
        .flat_map(|seen| seen.lookups.iter().map(move |(result, count)| (labels(seen).and("result", result), *count)));
    out.counter("tidegate_source_lookups", "Look-ups of names and readings of files, by result.", lookups)?;
    let changes = all.iter().map(|seen| (labels(seen), seen.changes));
    out.counter("tidegate_source_changes", "How often others came of it.", changes)
}

fn labels(seen: &Seen) -> Labels<'_> {
    Labels::new("source", &seen.source)
}
