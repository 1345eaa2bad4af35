//! What it costs that a proxy asks.

use std::path::Path;

use anyhow::Result;

use crate::bench::load::{Load, Shape, put};
use crate::bench::origin::start_origin;
use crate::bench::proc_fs::cpu_micros;

use super::proxy::{Decides, Proxy};
use super::{Check, OTHER_CORE, told};

/// Connections that keep both sides busy.
const MANY: u32 = 64;

/// Both ways, in turn: the proxy alone, and with tidegate.
const ARMS: [(&str, Decides); 2] = [("alone", Decides::Nobody), ("and tidegate", Decides::Tidegate)];

/// What one round gave.
#[derive(Debug, Clone, Copy)]
struct Found {
    /// Of a request alone, microseconds.
    takes: f64,
    /// Processor time of the proxy and of the sentry, microseconds a request, with many at a time.
    cpu: (f64, f64),
}

/// So many rounds of both.
pub(super) fn measure(proxy: &Proxy, runs: usize, short: bool, dir: &Path) -> Result<Vec<Check>> {
    let seconds = if short { 1.0 } else { 4.0 };
    let (origin, _) = start_origin(OTHER_CORE, dir)?;
    let mut found: [Vec<Found>; ARMS.len()] = Default::default();
    let mut failed = 0;
    for _ in 0..runs {
        for ((_, decides), found) in ARMS.iter().zip(&mut found) {
            let asked = proxy.asked(dir)?;
            let started = proxy.start(*decides, origin.address, &asked, dir)?;
            let load = |connections| Load { path: "/1k", shape: Shape::KeepAlive, connections };
            put(&started, load(MANY), seconds, OTHER_CORE, dir)?;
            let alone = put(&started, load(1), seconds, OTHER_CORE, dir)?;
            let used = || Ok::<_, anyhow::Error>((cpu_micros(started.pid())?, cpu_micros(asked.sentry.pid())?));
            let before = used()?;
            let many = put(&started, load(MANY), seconds, OTHER_CORE, dir)?;
            let after = used()?;
            let each = |after: f64, before: f64| (after - before) / many.responses.max(1) as f64;
            failed += alone.refused + alone.socket_errors + many.socket_errors;
            found
                .push(Found { takes: 1e6 / alone.per_second, cpu: (each(after.0, before.0), each(after.1, before.1)) });
        }
    }
    println!("\nA file of 1 kB, {runs} rounds of {seconds} s: medians, and each round; microseconds.\n");
    let title = proxy.title();
    println!("| who decides | a request alone takes | {title}, of {MANY} | sentry, of {MANY} |\n|---|---|---|---|");
    for ((name, _), found) in ARMS.iter().zip(&found) {
        let all = |of: fn(&Found) -> f64| told(&found.iter().map(of).collect::<Vec<_>>(), 0);
        let (takes, own, sentry) = (all(|found| found.takes), all(|found| found.cpu.0), all(|found| found.cpu.1));
        println!("| {title} {name} | {takes} | {own} | {sentry} |");
    }
    let more: Vec<f64> = found[0].iter().zip(&found[1]).map(|(without, with)| with.takes - without.takes).collect();
    println!("\nAsking takes {} us of a request alone.", told(&more, 0));
    Ok(vec![(
        "no request alone is refused, and no connection fails".to_owned(),
        format!("{failed}; asking takes {} us", told(&more, 0)),
        failed == 0,
    )])
}
