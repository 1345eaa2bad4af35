//! `tidegate nucleus`: the agent beside a server.

use std::io::{Write, stdout};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use tidegate_engine::units::format_duration;
use tidegate_nucleus::{Config, ConfigError, Given, Nucleus};
use tracing::info;

use crate::log;

/// Measure a server and report to its sentries.
///
/// Runs on the server's machine, as any user; as root it can also measure processor time per connection.
/// docs/nucleus.md says what it measures and what that costs.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// File with the same settings; options override it
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The server, as the sentry names it: host:port, its name, or application/name
    #[arg(long, value_name = "NAME")]
    server: Option<String>,
    /// Addresses on which sentries receive reports, host:port
    #[arg(long, value_name = "ADDR", num_args = 1..)]
    to: Vec<String>,
    /// File with the secret that sentries and nuclei share
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
    /// Time between reports; default 100ms
    #[arg(long, value_name = "TIME")]
    interval: Option<String>,
    /// The server's listening socket: a port, address:port, or none; default: that of --server
    #[arg(long, value_name = "ADDR")]
    service: Option<String>,
    /// URL of the server's status page: Apache's ?auto, nginx's stub_status, or JSON
    #[arg(long, value_name = "URL")]
    status: Option<String>,
    /// The server's cgroup, below /sys/fs/cgroup; default: the root cgroup
    #[arg(long, value_name = "PATH")]
    cgroup: Option<PathBuf>,
    /// The server's effective processors, if known; otherwise the sentry learns them
    #[arg(long, value_name = "N")]
    processors: Option<f64>,
    /// Measure processor time per connection: for a process per connection, such as Apache prefork
    #[arg(long)]
    connections: bool,
    /// Print one sample as JSON, and exit
    #[arg(long)]
    once: bool,
}

const EXAMPLES: &str = "Examples:
  tidegate nucleus --server 10.0.0.1:80 --to 10.0.0.9:9901 --key-file /etc/tidegate/key
  tidegate nucleus --server 10.0.0.1:80 --status http://127.0.0.1/server-status?auto --connections --once
  tidegate nucleus -c nucleus.toml";

/// Runs until a signal stops it. Exit status 2 when the settings are invalid.
///
/// # Errors
/// When it cannot start.
#[expect(unsafe_code, reason = "the allocator's own call")]
pub fn run(args: Args) -> Result<ExitCode> {
    let once = args.once;
    let config = match args.load() {
        Ok(config) => config,
        Err(error) => return Ok(super::bad_configuration(error)),
    };
    if once {
        let json = serde_json::to_string_pretty(&Nucleus::once(&config).to_json(&config.server))?;
        writeln!(stdout(), "{json}").context("cannot print the sample")?;
        return Ok(ExitCode::SUCCESS);
    }
    super::confine::give_up_calls();
    let nucleus = Nucleus::new(&config)?;
    log::announce(format_args!(
        "tidegate nucleus {}: {} to {} every {}",
        env!("CARGO_PKG_VERSION"),
        config.server,
        config.to.join(" "),
        format_duration(config.interval)
    ));
    // What reading the command line took, nobody needs any more.
    // SAFETY: takes no pointers; it may be called at any time.
    unsafe { libmimalloc_sys::mi_collect(true) };
    nucleus.run().context("cannot wait for signals")?;
    info!(target: "tidegate", "stopped");
    Ok(ExitCode::SUCCESS)
}

impl Args {
    fn load(self) -> Result<Config, ConfigError> {
        let file = self.config.as_deref().map_or(Ok(Given::default()), Given::load)?;
        let line = Given {
            server: self.server,
            to: self.to,
            key_file: self.key_file,
            interval: self.interval,
            service: self.service,
            status: self.status,
            cgroup: self.cgroup,
            processors: self.processors,
            connections: self.connections.then_some(true),
            isolation: None,
        };
        line.or(file).resolve(!self.once)
    }
}
