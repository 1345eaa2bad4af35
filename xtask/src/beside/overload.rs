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

use super::proxy::{Decides, Proxy};
use super::{Check, OTHER_CORE, PROXY_CORE, told};

/// Of the service, requests a second: four processors, 20 ms each.
const CAPACITY: f64 = 200.0;
/// Of the capacity: important requests, and the others.
const SHARES: (f64, f64) = (0.3, 2.7);
/// Within which an answer is good, as the pages say.
const TARGET: f64 = 0.5;
/// Of important requests, answered in time.
const IMPORTANT: f64 = 0.95;
/// Beyond its time, for the answers to the last requests.
const GRACE: Duration = Duration::from_secs(15);

/// Who decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Arm {
    Proxy(Decides),
    /// There is no proxy but the sentry.
    Sentry,
}

const ARMS: [Arm; 4] =
    [Arm::Proxy(Decides::Nobody), Arm::Proxy(Decides::Itself), Arm::Proxy(Decides::Tidegate), Arm::Sentry];

impl Arm {
    fn name(self, proxy: &Proxy) -> String {
        match self {
            Arm::Proxy(Decides::Nobody) => format!("{} alone", proxy.title()),
            Arm::Proxy(Decides::Itself) => proxy.own().to_owned(),
            Arm::Proxy(Decides::Tidegate) => format!("{} and tidegate", proxy.title()),
            Arm::Sentry => "tidegate in its place".to_owned(),
        }
    }
}

/// What one run came to.
#[derive(Debug, Clone, Copy)]
struct Found {
    /// Of the important, the part that was answered in time.
    important: f64,
    /// Answers in time, a second.
    goodput: f64,
    /// Of the admitted, seconds.
    p95: f64,
    /// Processor time of the proxy and of the sentry, microseconds a request.
    cpu: (f64, f64),
    settled: bool,
}

/// Puts the load on each arm in turn, as often as is wanted.
pub(super) fn measure(proxy: &Proxy, runs: usize, short: bool, dir: &Path) -> Result<Vec<Check>> {
    let seconds = if short { 6.0 } else { 20.0 };
    let mut found: [Vec<Found>; ARMS.len()] = Default::default();
    for run in 0..runs {
        for (arm, found) in ARMS.iter().zip(&mut found) {
            found.push(put(proxy, *arm, run as u64 + 1, seconds, dir)?);
        }
    }
    println!("\nThree times the capacity of {CAPACITY}/s for {seconds} s, {runs} runs: medians, and each run.\n");
    println!(
        "| who decides | important in time, % | in time, a second | p95 of the admitted, ms | {}, us | sentry, us |",
        proxy.title()
    );
    println!("|---|---|---|---|---|---|");
    for (arm, found) in ARMS.iter().zip(&found) {
        let name = arm.name(proxy);
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

/// What tidegate must come to, beside what the proxy has itself.
fn judge(own: &[Found], ours: &[Found]) -> Vec<Check> {
    let of = |found: &[Found], value: fn(&Found) -> f64| median(found.iter().map(value)).unwrap_or(f64::NAN);
    let important = of(ours, |found| found.important);
    let p95 = of(ours, |found| found.p95);
    let goodput = (of(ours, |found| found.goodput), of(own, |found| found.goodput));
    let settled = ours.iter().all(|found| found.settled);
    vec![
        (
            format!("at least {:.0} % of the important in time", IMPORTANT * 1e2),
            format!("{:.1} %", important * 1e2),
            important >= IMPORTANT,
        ),
        (format!("p95 of the admitted at most {TARGET} s"), format!("{p95:.3} s"), p95 <= TARGET),
        (
            "as many answers in time as with the proxy's own".to_owned(),
            format!("{:.1} and {:.1} a second", goodput.0, goodput.1),
            goodput.0 >= goodput.1,
        ),
        ("in flight and waiting return to 0".to_owned(), settled.to_string(), settled),
    ]
}

fn put(proxy: &Proxy, arm: Arm, seed: u64, seconds: f64, dir: &Path) -> Result<Found> {
    let service = emulate(seed, dir)?;
    let (sentry, proxy) = match arm {
        Arm::Proxy(decides) => {
            let asked = proxy.asked(dir)?;
            let proxy = proxy.start(decides, service.address, &asked, dir)?;
            (asked.sentry, Some(proxy))
        }
        Arm::Sentry => (in_its_place(service.address, dir)?, None),
    };
    let to = proxy.as_ref().map_or(sentry.address(), |proxy| proxy.address);
    load(to, 0.5 * CAPACITY / (SHARES.0 + SHARES.1), seconds / 2.0, seed, dir)?;
    let used = || -> Result<(f64, f64)> {
        let proxy = proxy.as_ref().map_or(Ok(0.0), |proxy| cpu_micros(proxy.pid()))?;
        Ok((proxy, cpu_micros(sentry.pid())?))
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

/// With the same classes as the one that is asked.
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
        let holds = |own: f64, ours: Found| {
            judge(&[Found { goodput: own, ..good }], &[ours]).iter().map(|check| check.2).collect::<Vec<_>>()
        };
        assert_eq!(holds(190.0, good), [true; 4]);
        let bad = Found { important: 0.94, goodput: 189.0, p95: 0.51, settled: false, ..good };
        assert_eq!(holds(190.0, bad), [false; 4]);
    }
}
