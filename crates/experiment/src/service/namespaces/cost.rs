//! What a connection costs that the kernel turns away, beside one that is answered by a refusal.

use std::net::SocketAddr;
use std::process::Command;
use std::thread;
use std::time::Duration;

use tidegate_loadgen::LoadRun;

use super::flood::flood;
use super::spaces::{Space, run};
use super::{Laboratory, NamespacesError, SENTRY_PORT, load};
use crate::configure::file::SynPolicing;
use crate::scenario::{Arm, Scenario};
use crate::service::ServiceError;
use crate::service::processes::processor_time;

/// Connections that are tried in a round.
const ATTEMPTS: u32 = 6_000;
/// Rounds. In each, dropped and floor follow on each other, and of the differences the median counts: a processor that
/// is faster for a second or two changes both.
const ROUNDS: usize = 25;
/// So fast nobody tries them.
const AT_ONCE: f64 = 1e6;
/// Refusals per second, for how long, and how many times.
const REFUSALS: f64 = 1_500.0;
const REFUSED_FOR: Duration = Duration::from_secs(2);
const REFUSED_TIMES: usize = 5;

/// Processor time of both ends together, less what the sender's own calls cost, in multiples of what the sentry needs
/// for a 503.
pub(super) fn of_turning_away(lab: &Laboratory, scenario: &Scenario) -> Result<f64, ServiceError> {
    let to = SocketAddr::from((Space::Others.server(), SENTRY_PORT));
    let send = |count| {
        lab.spaces.within(Space::Others, || {
            let failed = |error| NamespacesError::System { what: "no more sockets".to_owned(), error };
            flood(to, count, AT_ONCE).map_err(failed)
        })
    };
    let with = |policy: &str| -> Arm {
        let admission = policy.parse().unwrap_or_default();
        Arm { admission, ..scenario.arms[0].clone() }
    };
    let closed = with("policy = \"resource\"\nsyn = { initial_rate = 1, min_rate = 1, max_rate = 1 }");
    let required = SynPolicing { required: true, class: Vec::new() };
    let guarded = lab.guard(scenario, &closed, Some(required))?;
    thread::sleep(Duration::from_secs(2));
    send(1_000)?;
    let rules = |rules: &str| {
        lab.spaces.within(Space::Others, || run(Command::new("nft").arg(rules), "nftables").map_err(ServiceError::from))
    };
    let mut costs = Vec::new();
    for _ in 0..ROUNDS {
        let dropped = send(ATTEMPTS)?;
        // The same calls, whose SYNs do not leave: what they cost in any case.
        rules("add table ip floor; add chain ip floor out { type filter hook output priority 0; }")?;
        rules(&format!("add rule ip floor out tcp dport {SENTRY_PORT} drop"))?;
        costs.push(dropped - send(ATTEMPTS)?);
        rules("delete table ip floor")?;
    }
    drop(guarded);
    let refusing = lab.guard(scenario, &with("policy = \"threshold\"\nfixed = 0.0"), None)?;
    let refusal = || {
        let before = processor_time(refusing.sentry.id());
        let plan = load::mix(scenario, REFUSALS, REFUSED_FOR, to, true)?;
        let report = lab.load_from(Space::Others, || Ok::<_, ServiceError>(LoadRun::start(plan)?.join()?))?;
        let used = processor_time(refusing.sentry.id()).saturating_sub(before).as_secs_f64();
        Ok::<_, ServiceError>(used / (report.total.refused as f64).max(1.0))
    };
    let refusals = (0..REFUSED_TIMES).map(|_| refusal()).collect::<Result<Vec<_>, _>>()?;
    Ok(median(costs) / median(refusals).max(f64::MIN_POSITIVE))
}

fn median(mut of: Vec<f64>) -> f64 {
    of.sort_by(f64::total_cmp);
    of.get(of.len() / 2).copied().unwrap_or(f64::NAN)
}
