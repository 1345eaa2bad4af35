//! What a sentry's processor does at a rate, measured before the run: machines differ.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use tidegate_loadgen::LoadRun;
use tidegate_testbed::{PAUSE, Process};
use tidegate_workload::{Profile, Rate};

use super::LEAD;
use super::site::{self, SentryProcess};
use crate::configure::file::Server;
use crate::scenario::{Arm, Scenario};
use crate::service::ServiceError;
use crate::service::emulated;
use crate::service::processes::processor_time;

/// Caches and estimates settle first.
const SETTLE: Duration = Duration::from_secs(3);
/// Then so long is measured: where others use the machine too, what a request costs wavers from second to second.
const MEASURED: Duration = Duration::from_secs(12);

/// The share of a processor that a sentry takes for `rate`: it is sent four fifths of it.
pub(super) fn processor_at(
    scenario: &Scenario,
    arm: &Arm,
    seed: u64,
    rate: Rate,
    program: &Path,
    folder: &Path,
) -> Result<f64, ServiceError> {
    site::prepare(scenario, seed, folder)?;
    let (servers, addresses) = servers(scenario, program, folder)?;
    let listed: Vec<Server> = addresses.iter().map(|&address| Server { address, max_connections: None }).collect();
    let sentry = site::start_sentry(scenario, arm, &listed, program, folder)?;
    let busy = measure(scenario, seed, rate, &sentry);
    // Who sends goes first.
    drop(sentry);
    drop(servers);
    Ok(busy?.max(f64::MIN_POSITIVE))
}

fn measure(scenario: &Scenario, seed: u64, rate: Rate, sentry: &SentryProcess) -> Result<f64, ServiceError> {
    let at = Rate::new(rate.per_second() * SHARE).unwrap_or(rate);
    let mut plan = emulated::plan(scenario, |_| sentry.listen[0], seed)?;
    plan.streams.truncate(1);
    plan.streams[0].profile = Profile::constant(at);
    plan.duration = SETTLE + MEASURED;
    let load = LoadRun::start(plan)?;
    std::thread::sleep(SETTLE);
    let (since, before) = (Instant::now(), processor_time(sentry.process.id()));
    std::thread::sleep(MEASURED - Duration::from_millis(200));
    let used = processor_time(sentry.process.id()).saturating_sub(before);
    let share = used.as_secs_f64() / since.elapsed().as_secs_f64();
    load.stop();
    Ok(share / SHARE)
}

/// What is sent, of the rate asked for.
const SHARE: f64 = 0.8;

/// As many servers as the scenario has, without a control plane.
fn servers(
    scenario: &Scenario,
    program: &Path,
    folder: &Path,
) -> Result<(Vec<Process>, Vec<std::net::SocketAddr>), ServiceError> {
    let (mut processes, mut addresses) = (Vec::new(), Vec::new());
    for at in 0..scenario.servers.count {
        let address = site::free_port()?;
        let words: Vec<String> = site::server(program, folder)
            .into_iter()
            .map(|word| word.replace("{port}", &address.port().to_string()))
            .collect();
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).stdout(Stdio::null());
        processes.push(Process::start(&format!("measured-server-{at}"), command, folder)?);
        addresses.push(address);
    }
    let give_up = Instant::now() + LEAD;
    while !addresses.iter().all(|address| std::net::TcpStream::connect(address).is_ok()) {
        if Instant::now() >= give_up {
            let folder = folder.display().to_string();
            return Err(ServiceError::Late { what: "a server does not listen", within: LEAD.as_secs(), folder });
        }
        std::thread::sleep(PAUSE);
    }
    Ok((processes, addresses))
}
