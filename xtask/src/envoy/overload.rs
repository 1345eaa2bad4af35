//! Three times what a service can do.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde_json::Value;

use crate::bench::proc_fs::cpu_micros;
use crate::bench::report::median;
use crate::bench::service::{Service, free_address};
use crate::command;
use crate::real::process::Process;
use crate::real::sentry::Sentry;

use super::shown::{Filter, envoy, sentry};
use super::{Check, OTHER_CORE, PROXY_CORE, told};

/// Of the service, requests a second: four processors, 20 ms each.
const CAPACITY: f64 = 200.0;
/// Of the capacity: important requests, and the others.
const SHARES: (f64, f64) = (0.3, 2.7);
/// Within which an answer is good, as docs/envoy.md says.
const TARGET: f64 = 0.5;
/// Of important requests, answered in time.
const IMPORTANT: f64 = 0.95;
/// Beyond its time, for the answers to the last requests.
const GRACE: Duration = Duration::from_secs(15);

/// Who decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Arm {
    Envoy(Filter),
    /// There is no Envoy.
    Sentry,
}

const ARMS: [(&str, Arm); 4] = [
    ("Envoy alone", Arm::Envoy(Filter::None)),
    ("Envoy's adaptive concurrency", Arm::Envoy(Filter::Adaptive)),
    ("Envoy and tidegate", Arm::Envoy(Filter::Tidegate)),
    ("tidegate in its place", Arm::Sentry),
];

/// What one run came to.
#[derive(Debug, Clone, Copy)]
struct Found {
    /// Of the important, the part that was answered in time.
    important: f64,
    /// Answers in time, a second.
    goodput: f64,
    /// Of the admitted, seconds.
    p95: f64,
    /// Processor time of Envoy and of the sentry, microseconds a request.
    cpu: (f64, f64),
    settled: bool,
}

/// Puts the load on each arm in turn, as often as is wanted.
pub(super) fn measure(program: &Path, runs: usize, short: bool, dir: &Path) -> Result<Vec<Check>> {
    let seconds = if short { 6.0 } else { 20.0 };
    let mut found: [Vec<Found>; ARMS.len()] = Default::default();
    for run in 0..runs {
        for (arm, found) in ARMS.iter().zip(&mut found) {
            found.push(put(program, arm.1, run as u64 + 1, seconds, dir)?);
        }
    }
    println!("\nThree times the capacity of {CAPACITY}/s for {seconds} s, {runs} runs: medians, and each run.\n");
    println!(
        "| who decides | important in time, % | in time, a second | p95 of the admitted, ms | Envoy, us | sentry, us |"
    );
    println!("|---|---|---|---|---|---|");
    for ((name, _), found) in ARMS.iter().zip(&found) {
        let all = |of: fn(&Found) -> f64, digits| told(&found.iter().map(of).collect::<Vec<_>>(), digits);
        println!(
            "| {name} | {} | {} | {} | {} | {} |",
            all(|found| found.important * 1e2, 1),
            all(|found| found.goodput, 1),
            all(|found| found.p95 * 1e3, 0),
            all(|found| found.cpu.0, 0),
            all(|found| found.cpu.1, 0),
        );
    }
    Ok(judge(&found[1], &found[2]))
}

/// What tidegate inside must come to, beside Envoy's own.
fn judge(adaptive: &[Found], ours: &[Found]) -> Vec<Check> {
    let of = |found: &[Found], value: fn(&Found) -> f64| median(found.iter().map(value)).unwrap_or(f64::NAN);
    let important = of(ours, |found| found.important);
    let p95 = of(ours, |found| found.p95);
    let goodput = (of(ours, |found| found.goodput), of(adaptive, |found| found.goodput));
    let settled = ours.iter().all(|found| found.settled);
    vec![
        (
            format!("at least {:.0} % of the important in time", IMPORTANT * 1e2),
            format!("{:.1} %", important * 1e2),
            important >= IMPORTANT,
        ),
        (format!("p95 of the admitted at most {TARGET} s"), format!("{p95:.3} s"), p95 <= TARGET),
        (
            "as many answers in time as with Envoy's own".to_owned(),
            format!("{:.1} and {:.1} a second", goodput.0, goodput.1),
            goodput.0 >= goodput.1,
        ),
        ("in flight and waiting return to 0".to_owned(), settled.to_string(), settled),
    ]
}

fn put(program: &Path, arm: Arm, seed: u64, seconds: f64, dir: &Path) -> Result<Found> {
    let service = emulate(seed, dir)?;
    let sentry = match arm {
        Arm::Envoy(_) => sentry(dir)?,
        Arm::Sentry => in_its_place(service.address, dir)?,
    };
    let envoy = match arm {
        Arm::Envoy(filter) => Some(envoy(program, filter, service.address, sentry.address(), dir)?),
        Arm::Sentry => None,
    };
    let to = envoy.as_ref().map_or(sentry.address(), |envoy| envoy.address);
    load(to, 0.5 * CAPACITY / (SHARES.0 + SHARES.1), seconds / 2.0, seed, dir)?;
    let used = || -> Result<(f64, f64)> {
        let envoy = envoy.as_ref().map_or(Ok(0.0), |envoy| cpu_micros(envoy.pid()))?;
        Ok((envoy, cpu_micros(sentry.pid())?))
    };
    let before = used()?;
    let report = load(to, CAPACITY, seconds, seed, dir)?;
    let after = used()?;
    let number = |of: &Value, name: &str| of[name].as_f64().with_context(|| format!("no `{name}` in the report"));
    let (total, important) = (&report["total"], &report["classes"][0]);
    let offered = number(total, "offered")?.max(1.0);
    Ok(Found {
        important: number(important, "good")? / number(important, "offered")?.max(1.0),
        goodput: number(total, "goodput_per_s")?,
        p95: number(&total["latency"], "p95")?,
        cpu: ((after.0 - before.0) / offered, (after.1 - before.1) / offered),
        settled: sentry.settle()?,
    })
}

fn emulate(seed: u64, dir: &Path) -> Result<Service> {
    let listen = free_address()?;
    let mut emulated = Command::new(command::tidegate());
    emulated.args(["emulate", "--cores", "4", "--service", "20ms", "--seed", &seed.to_string()]);
    emulated.args(["--listen", &listen.to_string()]);
    Service::start("service", emulated, OTHER_CORE, listen, dir)
}

/// With the same classes as the one that Envoy asks.
fn in_its_place(service: SocketAddr, dir: &Path) -> Result<Sentry> {
    let listen = free_address()?;
    let text = format!(
        "[sentry]\nworkers = 1\n\n[[application]]\nlisten = \"{listen}\"\nservers = [\"{service}\"]\ntarget = \"500ms\"\n\n\
         [[application.class]]\nname = \"gold\"\nmatch = {{ path_prefix = \"/buy\" }}\n\n\
         [[application.class]]\nname = \"bronze\"\n"
    );
    Sentry::with_file(&text, listen, PROXY_CORE, dir)
}

/// An open loop at so many times the shares, and its report.
fn load(to: SocketAddr, times: f64, seconds: f64, seed: u64, dir: &Path) -> Result<Value> {
    let mut load = Command::new(command::tidegate());
    load.args(["load", "--to", &format!("http://{to}"), "--target", &format!("{TARGET}s"), "--json", "-"]);
    load.args(["--duration", &format!("{seconds}s"), "--seed", &seed.to_string()]);
    for (name, path, share) in [("gold", "/buy", SHARES.0), ("bronze", "/look", SHARES.1)] {
        load.args(["--class", &format!("name={name},path={path},rate={}/s,timeout=5s", share * times)]);
    }
    let mut process = Process::start("tidegate load", load, OTHER_CORE, dir.join("load.json"))?;
    let said = process.finish(Instant::now() + Duration::from_secs_f64(seconds) + GRACE)?;
    serde_json::from_str(&said).context("`tidegate load` wrote no report")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_bar_can_be_missed() {
        let good = Found { important: 0.99, goodput: 200.0, p95: 0.4, cpu: (0.0, 0.0), settled: true };
        let holds = |adaptive: f64, ours: Found| {
            judge(&[Found { goodput: adaptive, ..good }], &[ours]).iter().map(|check| check.2).collect::<Vec<_>>()
        };
        assert_eq!(holds(190.0, good), [true; 4]);
        let bad = Found { important: 0.94, goodput: 189.0, p95: 0.51, settled: false, ..good };
        assert_eq!(holds(190.0, bad), [false; 4]);
    }
}
