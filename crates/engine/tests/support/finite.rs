//! Every number that a snapshot shows is finite and within its bounds.

use tidegate_engine::{AdmissionConfig, Delays, Fact, Facts, Setup, Snapshot};

/// Checks all numbers of a snapshot. `longest_target`: the largest target of any setup so far, seconds.
///
/// # Errors
/// The first number that is not in its bounds.
pub fn check(snapshot: &Snapshot, setup: &Setup, longest_target: f64) -> Result<(), String> {
    within("target", snapshot.target, 1e-9, 1e6)?;
    within("processors", snapshot.processors, 0.0, 1e8)?;
    within("calibration", snapshot.calibration, 0.9, 20.0)?;
    within("mean cost", snapshot.mean_cost.unwrap_or(0.0), 0.0, 1e9)?;
    for class in &snapshot.classes {
        within("offered rate", class.offered_rate, 0.0, 1e12)?;
        within("class cost", class.mean_cost, 0.0, 1e9)?;
        let (p50, p95, p99) = (class.p50.unwrap_or(0.0), class.p95.unwrap_or(0.0), class.p99.unwrap_or(0.0));
        within("p99", p99, 0.0, 1e9)?;
        within("patience", class.patience.unwrap_or(0.0), 0.0, 1e9)?;
        within("first byte", class.first_byte_p95.unwrap_or(0.0), 0.0, 1e9)?;
        if !(p50 <= p95 && p95 <= p99) {
            return Err(format!("percentiles out of order: {p50} {p95} {p99}"));
        }
    }
    for server in &snapshot.servers {
        within("server's processors", server.processors, 1e-9, 1e9)?;
        within("confidence", server.confidence, 0.0, 1e12)?;
        within("stops after", server.stops_after.unwrap_or(0.0), 0.0, 1e9)?;
    }
    policy(snapshot, setup, longest_target)
}

fn policy(snapshot: &Snapshot, setup: &Setup, longest_target: f64) -> Result<(), String> {
    let policy = &snapshot.policy;
    within("limit", policy.limit.unwrap_or(0.0), 0.0, f64::from(u32::MAX))?;
    within("full", policy.full.unwrap_or(0.0), 0.0, 1.0)?;
    if let Some((class, share)) = policy.threshold {
        within("threshold's share", share, 0.0, 1.0)?;
        within("threshold's class", f64::from(class), 0.0, setup.classes.len() as f64 - 1.0)?;
    }
    let fixed = match &setup.admission {
        AdmissionConfig::Batch(config) => fixed(&config.delays),
        AdmissionConfig::Sentry(config) => fixed(&config.batch.delays),
        _ => None,
    };
    let most = fixed.unwrap_or(longest_target / 4.0);
    for delay in &policy.delays {
        within("delay", *delay, 0.0, most + 1e-9)?;
    }
    if !policy.delays.is_sorted() {
        return Err(format!("a more important class waits longer: {:?}", policy.delays));
    }
    for controller in policy.own.list("controllers") {
        field(controller, "quality", 0.0, 1.0)?;
        for class in controller.list("classes") {
            field(class, "rate", 0.05, 5000.0)?;
            field(class, "percentile", 0.0, 1e9)?;
            field(class, "target", 1e-9, longest_target)?;
        }
    }
    for resource in policy.own.list("resources") {
        field(resource, "rate", 1e-9, 1e12)?;
        field(resource, "hits", 0.0, 1e12)?;
        field(resource, "input", 0.0, 1e12)?;
        field(resource, "error", -1e12, 1e12)?;
        field(resource, "step", -1e12, 1e12)?;
        let parts = resource.get("parts").map_or_else(Vec::new, numbers);
        let sum: f64 = parts.iter().sum();
        let whole = resource.number("rate").filter(|_| !parts.is_empty()).unwrap_or(sum);
        within("resource's parts", sum, whole * 0.999, whole * 1.001)?;
    }
    for (name, value) in &policy.more {
        within(name, *value, f64::MIN, f64::MAX)?;
    }
    Ok(())
}

fn fixed(delays: &Delays) -> Option<f64> {
    match delays {
        Delays::Fixed(delays) => delays.last().map(|delay| delay.0),
        Delays::Computed(_) => None,
    }
}

/// A number of a policy's own, where it is there.
fn field(facts: &Facts, key: &str, least: f64, most: f64) -> Result<(), String> {
    match facts.number(key) {
        Some(value) => within(&format!("{key} of {}", facts.name()), value, least, most),
        None => Ok(()),
    }
}

fn numbers(fact: &Fact) -> Vec<f64> {
    let Fact::List(list) = fact else { return Vec::new() };
    let number = |fact: &Fact| if let Fact::Number(number) = fact { *number } else { f64::NAN };
    list.iter().map(number).collect()
}

fn within(what: &str, value: f64, least: f64, most: f64) -> Result<(), String> {
    let holds = value.is_finite() && (least..=most).contains(&value);
    if holds { Ok(()) } else { Err(format!("{what} is {value}, not within {least} and {most}")) }
}
