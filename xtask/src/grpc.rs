//! `cargo xtask grpc`: what load generators that are not ours find of the sentry before a real service over HTTP/2.
//!
//! The service is written in Go and speaks gRPC and plain HTTP/2; its capacity is known. First it is alone, with as
//! many calls at a time as keep it busy: the best that it does. Then ghz (gRPC) and h2load (HTTP/2) send three times
//! its capacity through the sentry, half of a capacity in important calls. The first load finds the sentry cold, the
//! next is judged. Then the same with deadlines that are shorter than the target, and, beside the load, a client of
//! gRPC that tries again as it is told.

mod answers;
mod ghz;
mod h2load;
mod programs;
mod retries;
mod service;

use std::net::SocketAddr;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, bail};

use crate::args::Args;
use crate::bench::stop::Scratch;
use crate::checks::{self, Check};
use crate::command;
use crate::real::sentry::Sentry;

use answers::Answers;
use ghz::{Calls, Pace};
use programs::Programs;
use retries::Client;
use service::{BUSY, CAPACITY, Shop, guard};

/// The service, which mostly waits, shares a core with the sentry.
const SERVICE_CORE: usize = 0;
const LOAD_CORE: usize = 1;
/// Of capacity: important calls, and the others.
const SHARES: (f64, f64) = (0.5, 2.5);
const TARGET: (&str, f64) = ("500ms", 0.5);
/// Shorter than what a place in the queue takes.
const DEADLINE: Duration = Duration::from_millis(200);
/// Of the best that the service does alone; in the short form, of which chance is a larger part.
const GOODPUT: (f64, f64) = (0.98, 0.93);
/// Of what was due: less, and the load was not what it claims to be.
const KEPT: f64 = 0.95;
/// Of the important calls.
const IMPORTANT: f64 = 0.99;
/// Of the calls that the service began: nobody waits for them any more when they are done.
const WASTED: f64 = 0.05;
/// Until a load has built up.
const BUILD_UP: f64 = 1.0;
/// Rows of [`crate::programs::PROGRAMS`] without which it cannot run.
pub const NEEDS: &[&str] = &["go", "h2load"];

/// Puts the loads, prints what must hold, and fails when a bar is missed.
///
/// # Errors
/// When a program is missing or does not do its part; a missed bar is an exit status of 1.
pub fn run(mut args: Args) -> Result<ExitCode> {
    let short = args.switch("--short");
    let only_build = args.switch("--build");
    let seconds: f64 = args.option("--seconds")?.unwrap_or(if short { 6.0 } else { 20.0 });
    args.finish()?;
    if seconds < 4.0 * BUILD_UP {
        bail!("--seconds must be at least {}: a load needs one to build up", 4.0 * BUILD_UP);
    }
    if std::thread::available_parallelism()?.get() < 2 {
        bail!("this needs two cores: one for service and sentry, one for the load");
    }
    crate::programs::require(NEEDS)?;
    let programs = Programs::build()?;
    if only_build {
        return Ok(ExitCode::SUCCESS);
    }
    command::build_tidegate()?;
    let scratch = Scratch::new("grpc")?;
    let bar = if short { GOODPUT.1 } else { GOODPUT.0 };
    let mut checks = measure_grpc(&programs, seconds, bar, scratch.path())?;
    checks.extend(measure_h2(&programs, seconds, bar, scratch.path())?);
    Ok(checks::tell(&checks))
}

fn measure_grpc(programs: &Programs, seconds: f64, bar: f64, dir: &Path) -> Result<Vec<Check>> {
    let shop = Shop::start(programs, SERVICE_CORE, dir)?;
    let ghz = programs.path("ghz");
    let put = |to: SocketAddr, calls: Calls| ghz::Load::start(&ghz, to, calls, seconds, LOAD_CORE, dir);
    let alone = Calls { method: "Order", pace: Pace::Closed(BUSY), deadline: ghz::PATIENCE };
    let best = put(shop.grpc(), alone)?.finish()?.good_rate(TARGET.1, window(seconds));
    println!("gRPC alone: {best:.1}/s; then {:.0}/s", CAPACITY * (SHARES.0 + SHARES.1));
    let sentry = guard(shop.grpc(), "/tidegate.live.Shop/Order", TARGET.0, SERVICE_CORE, dir)?;
    let both = |deadline| {
        let calls = |method, share| Calls { method, pace: Pace::Open(share * CAPACITY), deadline };
        let important = put(sentry.address(), calls("Order", SHARES.0))?;
        let others = put(sentry.address(), calls("Report", SHARES.1))?;
        Ok::<_, anyhow::Error>([important.finish()?, others.finish()?])
    };
    let name = "ghz";
    let refused = ["OK", "Unavailable"];
    let mut checks = orderly(&format!("{name}, cold"), &both(ghz::PATIENCE)?, &refused);
    let warm = both(ghz::PATIENCE)?;
    checks.extend(orderly(&format!("{name}, warm"), &warm, &refused));
    checks.extend(quick(name, &warm, best, seconds, bar));
    let before = shop.counts()?;
    let hurried = both(DEADLINE)?;
    let done = shop.counts()? - before;
    let name = format!("{name}, deadlines of {} ms", DEADLINE.as_millis());
    checks.extend(orderly(&name, &hurried, &["OK", "Unavailable", "DeadlineExceeded"]));
    let rate = rate(&hurried, DEADLINE.as_secs_f64(), seconds) / best;
    let goodput = (format!("{name}: goodput at least {:.0} % of the best", bar * 1e2), percent(rate), rate >= bar);
    let late = (done.wasted + done.expired) as f64 / done.begun.max(1) as f64;
    let what = format!("{name}: at most {:.0} % of the service's work is for nobody", WASTED * 1e2);
    let wasted = (what, format!("{done:?}"), late <= WASTED);
    // The short form found 93.4 and 98.1 % of the best, and 2 and 8 % for nobody: too few calls to judge either.
    if bar >= GOODPUT.0 {
        checks.extend([goodput, wasted]);
    }
    checks.extend(retries(&shop, &sentry, programs, || both(ghz::PATIENCE), dir)?);
    checks.push(settled(&sentry)?);
    Ok(checks)
}

/// A client of gRPC beside a load.
fn retries(
    shop: &Shop,
    sentry: &Sentry,
    programs: &Programs,
    load: impl FnOnce() -> Result<[Answers; 2]>,
    dir: &Path,
) -> Result<Vec<Check>> {
    let before = shop.counts()?;
    let client = Client::start(&programs.path("client"), sentry.address(), LOAD_CORE, dir)?;
    load()?;
    let found = client.finish()?;
    let retried = (shop.counts()? - before).retried;
    Ok(vec![
        (
            "a client of gRPC: every refusal says when to try again".to_owned(),
            format!("{} of {} do not", found.untold, found.refused),
            found.refused > 0 && found.untold == 0,
        ),
        (
            "a client of gRPC tries again, and never earlier than it is told".to_owned(),
            format!("{} of {} were early; {} came to the service", found.early, found.again, retried),
            found.again > 0 && found.early == 0,
        ),
    ])
}

fn measure_h2(programs: &Programs, seconds: f64, bar: f64, dir: &Path) -> Result<Vec<Check>> {
    let shop = Shop::start(programs, SERVICE_CORE, dir)?;
    let put = |to: SocketAddr, path, pace| h2load::Load::start(to, path, pace, seconds, LOAD_CORE, dir);
    let best = put(shop.http, "/order", Pace::Closed(BUSY))?.finish()?.good_rate(TARGET.1, window(seconds));
    println!("HTTP/2 alone: {best:.1}/s; then {:.0}/s", CAPACITY * (SHARES.0 + SHARES.1));
    let sentry = guard(shop.http, "/order", TARGET.0, SERVICE_CORE, dir)?;
    let both = || {
        let important = put(sentry.address(), "/order", Pace::Open(SHARES.0 * CAPACITY))?;
        let others = put(sentry.address(), "/report", Pace::Open(SHARES.1 * CAPACITY))?;
        Ok::<_, anyhow::Error>([important.finish()?, others.finish()?])
    };
    let mut checks = orderly("h2load, cold", &both()?, &["200", "503"]);
    let warm = both()?;
    checks.extend(orderly("h2load, warm", &warm, &["200", "503"]));
    checks.extend(quick("h2load", &warm, best, seconds, bar));
    checks.push(settled(&sentry)?);
    Ok(checks)
}

/// Nothing came but what should, and the load was what it claims to be.
fn orderly(name: &str, loads: &[Answers; 2], expected: &[&str]) -> Vec<Check> {
    let statuses = loads.each_ref().map(Answers::statuses);
    let only = statuses.iter().flat_map(|of| of.keys()).all(|status| expected.contains(status));
    let is_refused = statuses.iter().flat_map(|of| of.keys()).any(|status| *status != loads[0].good);
    let kept = loads.each_ref().map(Answers::kept);
    vec![
        (format!("{name}: only {}", expected.join(", ")), format!("{statuses:?}"), only && is_refused),
        (
            format!("{name}: at least {:.0} % of what was due was sent and answered", KEPT * 1e2),
            kept.map(percent).join(", "),
            kept.iter().all(|kept| *kept >= KEPT),
        ),
    ]
}

/// Target, goodput, and who comes first.
fn quick(name: &str, loads: &[Answers; 2], best: f64, seconds: f64, bar: f64) -> Vec<Check> {
    let p95 = loads.each_ref().map(Answers::p95);
    let goodput = rate(loads, TARGET.1, seconds) / best;
    let important = loads[0].good_share(TARGET.1, BUILD_UP);
    let in_millis = |p95: Option<f64>| p95.map_or("nothing admitted".to_owned(), |p95| format!("{:.0} ms", p95 * 1e3));
    vec![
        (
            format!("{name}, warm: p95 of the admitted at most {}, of both classes", TARGET.0),
            p95.map(in_millis).join(", "),
            p95.iter().all(|p95| p95.is_some_and(|p95| p95 <= TARGET.1)),
        ),
        (format!("{name}, warm: goodput at least {:.0} % of the best", bar * 1e2), percent(goodput), goodput >= bar),
        (
            format!("{name}, warm: at least {:.0} % of the important answered in time", IMPORTANT * 1e2),
            percent(important),
            important >= IMPORTANT,
        ),
    ]
}

fn settled(sentry: &Sentry) -> Result<Check> {
    let settled = sentry.settle()?;
    let found = if settled { "they do" } else { "they do not" };
    Ok(("in flight and waiting return to 0".to_owned(), found.to_owned(), settled))
}

/// Good answers of both loads, a second.
fn rate(loads: &[Answers; 2], target: f64, seconds: f64) -> f64 {
    loads.iter().map(|load| load.good_rate(target, window(seconds))).sum()
}

/// What counts of a load.
fn window(seconds: f64) -> (f64, f64) {
    (BUILD_UP, seconds - BUILD_UP / 2.0)
}

fn percent(part: f64) -> String {
    format!("{:.1} %", part * 1e2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use answers::Row;

    #[test]
    fn a_load_without_a_refusal_or_with_another_status_is_not_orderly() {
        let load = |statuses: &[&str]| {
            let row = |status: &&str| Row { ended: 1.0, took: 0.1, status: (*status).to_owned() };
            Answers { rows: statuses.iter().map(row).collect(), due: 1.0, good: "OK" }
        };
        let holds = |first: &[&str], second: &[&str]| {
            orderly("x", &[load(first), load(second)], &["OK", "Unavailable"]).iter().all(|check| check.2)
        };
        assert!(holds(&["OK"], &["OK", "Unavailable"]));
        assert!(!holds(&["OK"], &["OK"]));
        assert!(!holds(&["OK"], &["Unavailable", "Internal"]));
        assert!(!holds(&[], &["Unavailable"]), "less than was due");
    }
}
