//! `tidegate emulate`: a server to try things out with.

use std::io::{Write, stdout};
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use tidegate_testbed::{EmulatedServer, ServerSpec};
use tidegate_workload::{ServiceTime, parse_duration};
use tokio::signal::unix::{SignalKind, signal};

/// An emulated server: answers real HTTP, and works by the clock instead of a processor.
///
/// Many fit on one machine, so that a control plane can be tried out: as the command of its local provider, for
/// instance. SIGTERM finishes what is under way.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Where to listen
    #[arg(long, value_name = "ADDR")]
    listen: SocketAddr,
    /// Its processors
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    cores: u32,
    /// Mean work of a request, exponentially distributed
    #[arg(long, value_name = "TIME", value_parser = parse_duration, default_value = "50ms")]
    service: Duration,
    /// It listens only after so long, as a server that has to be set up
    #[arg(long, value_name = "TIME", value_parser = parse_duration, default_value = "0s")]
    setup_time: Duration,
    /// Seed of the service times
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
}

/// How long a stop waits for what is under way.
const GRACE: Duration = Duration::from_secs(10);

/// Runs until it is told to stop. Status 2 when what was asked for makes no sense.
///
/// # Errors
/// When it cannot listen.
pub fn run(args: &Args) -> Result<ExitCode> {
    let service = match ServiceTime::exponential(args.service.as_secs_f64()) {
        Ok(service) => service,
        Err(error) => return Ok(super::bad_configuration(format!("--service: {error}"))),
    };
    let (listen, cores, seed) = (args.listen, args.cores, args.seed);
    let spec = ServerSpec { listen, cores, seed, cost_header: true, ..ServerSpec::new(service, 1024) };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("cannot start")?;
    runtime.block_on(async {
        let mut terminate = signal(SignalKind::terminate()).context("cannot receive signals")?;
        let mut interrupt = signal(SignalKind::interrupt()).context("cannot receive signals")?;
        tokio::select! {
            () = tokio::time::sleep(args.setup_time) => {}
            _ = terminate.recv() => return Ok(ExitCode::SUCCESS),
            _ = interrupt.recv() => return Ok(ExitCode::SUCCESS),
        }
        let server = EmulatedServer::start(spec).await?;
        writeln!(stdout(), "listening on {}", server.address())?;
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        server.stop(GRACE).await;
        Ok(ExitCode::SUCCESS)
    })
}
