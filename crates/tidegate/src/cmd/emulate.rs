//! `tidegate emulate`: a server to try things out with.

use std::io::{Write, stdout};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use tidegate_testbed::{EmulatedServer, ServerSpec};
use tidegate_workload::{ServiceTime, parse_duration};
use tokio::signal::unix::{SignalKind, signal};

/// Run an emulated server: it answers real HTTP but waits instead of computing.
///
/// Many of them fit on one machine, for example as the command of a control plane's local provider. It prints its
/// address. SIGTERM finishes the requests in flight.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Address to listen on
    #[arg(long, value_name = "ADDR", required_unless_present = "spec")]
    listen: Option<SocketAddr>,
    /// Number of processors
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    cores: u32,
    /// Mean work of a request, exponentially distributed
    #[arg(long, value_name = "TIME", value_parser = parse_duration, default_value = "50ms")]
    service: Duration,
    /// Time until it listens, like the setup time of a real server
    #[arg(long, value_name = "TIME", value_parser = parse_duration, default_value = "0s")]
    setup_time: Duration,
    /// Seed of the service times [default: 1]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// JSON file with the whole specification, in place of the other options; --listen and --seed override it
    #[arg(long, value_name = "FILE", conflicts_with_all = ["cores", "service"])]
    spec: Option<PathBuf>,
}

/// How long a stop waits for what is under way.
const GRACE: Duration = Duration::from_secs(10);

/// Runs until a signal stops it. Exit status 2 when an option is invalid.
///
/// # Errors
/// When it cannot listen.
pub fn run(args: &Args) -> Result<ExitCode> {
    let spec = match args.spec.as_deref().map_or_else(|| args.to_spec(), |file| args.over(read(file)?)) {
        Ok(spec) => spec,
        Err(error) => return Ok(super::bad_configuration(format!("{error:#}"))),
    };
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
        stdout().flush()?;
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        server.stop(GRACE).await;
        Ok(ExitCode::SUCCESS)
    })
}

impl Args {
    fn to_spec(&self) -> Result<ServerSpec> {
        let service = ServiceTime::exponential(self.service.as_secs_f64()).context("--service")?;
        let listen = self.listen.context("--listen is missing")?;
        let (cores, seed) = (self.cores, self.seed.unwrap_or(1));
        Ok(ServerSpec { listen, cores, seed, cost_header: true, ..ServerSpec::new(service, 1024) })
    }

    /// What is given beside the file goes before it.
    fn over(&self, spec: ServerSpec) -> Result<ServerSpec> {
        let (listen, seed) = (self.listen.unwrap_or(spec.listen), self.seed.unwrap_or(spec.seed));
        Ok(ServerSpec { listen, seed, ..spec })
    }
}

fn read(file: &Path) -> Result<ServerSpec> {
    let text = std::fs::read_to_string(file).with_context(|| format!("{}: cannot be read", file.display()))?;
    let spec: ServerSpec = serde_json::from_str(&text).with_context(|| file.display().to_string())?;
    spec.validate()?;
    Ok(spec)
}
