//! First bytes, how long clients wait, who leaves work behind, and what servers do with it.

use std::fmt;

use prometheus_client::registry::Unit;
use tidegate_engine::ClassId;

use super::family::Families;
use super::{Seen, per_class};
use crate::cancels::Leaver;

/// The ranks of clients that leave most requests behind. Which clients these are is no label: clients would make
/// series.
const RANKS: [&str; 5] = ["1", "2", "3", "4", "5"];

pub(super) fn write(out: &mut Families<'_>, all: &[Seen]) -> fmt::Result {
    first_bytes(out, all)?;
    patience(out, all)?;
    let leavers: Vec<(&Seen, Vec<Leaver>)> = all.iter().map(|seen| (seen, seen.app.leavers(RANKS.len()))).collect();
    let ranked = leavers.iter().flat_map(|(seen, leavers)| {
        let ranked = RANKS.into_iter().zip(leavers);
        ranked.map(|(rank, leaver)| (seen.labels().and("rank", rank), leaver.recent))
    });
    let help = "Requests left behind lately, half-life a minute, by the clients that leave most.";
    out.gauge("tidegate_cancels_by_rank", help, None, ranked)?;
    let stops = all.iter().flat_map(|seen| {
        seen.snapshot.servers.iter().filter_map(|server| {
            let stops = match server.when_abandoned {
                "stops" => 1.0,
                "works-on" => 0.0,
                _ => return None,
            };
            Some((seen.labels().and("server", &server.name), stops))
        })
    });
    let help = "1 when the server stops on a request that nobody waits for, 0 when it works on; absent: not known.";
    out.gauge("tidegate_server_stops_when_abandoned", help, None, stops)
}

fn patience(out: &mut Families<'_>, all: &[Seen]) -> fmt::Result {
    let learned = per_class(all).filter_map(|(labels, class)| Some((labels, class.patience?)));
    let help = "After how long waiting hardly a client is there any more; absent: not known.";
    out.gauge("tidegate_patience", help, Some(Unit::Seconds), learned)
}

fn first_bytes(out: &mut Families<'_>, all: &[Seen]) -> fmt::Result {
    let p95 = per_class(all).filter_map(|(labels, class)| Some((labels, class.first_byte_p95?)));
    let help = "95th percentile of the time to the answer's first byte, over the last half minute or so.";
    out.gauge("tidegate_first_byte_time", help, Some(Unit::Seconds), p95)?;
    let live: Vec<_> = all.iter().map(|seen| seen.app.live()).collect();
    let histograms = all.iter().zip(&live).flat_map(|(seen, live)| {
        let classes = live.config.setup.classes.iter().enumerate();
        classes.filter_map(|(index, class)| {
            let times = live.times(ClassId(index as u8))?;
            Some((seen.labels().and("class", &class.name), times.first_bytes()))
        })
    });
    let help = "Time from the arrival of an admitted request to the first byte of its answer.";
    out.histogram("tidegate_first_byte_duration", help, Some(Unit::Seconds), histograms)
}
