//! `tidegate run`: runs the sentry until a signal stops it.

mod guard;
mod keeper;
mod office;
mod signals;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, anyhow, bail};
use clap::builder::PossibleValuesParser;
use tidegate_engine::AdmissionConfig;
use tidegate_engine::units::format_duration;
use tidegate_sentry::config::{Application, Checked, Config, ConfigErrors, Listen, OneLine};
use tidegate_sentry::listen::usable;
use tidegate_sentry::sockets::Sockets;
use tidegate_sentry::syn_policing::{Helper, Mechanism, Settled};
use tidegate_sentry::upgrade::{Desk, Given, Launch, Predecessor, State, Verdict};
use tidegate_sentry::{Process, ProcessError, StartError, notify};
use tokio::runtime::Runtime;
use tokio::sync::mpsc;
use tracing::{info, warn};

use self::keeper::Keeper;
use self::office::Office;
use self::signals::Signals;
use crate::log;

/// Protect a service that the options describe, or the applications of a configuration file.
///
/// SIGTERM and SIGINT drain (a second one stops at once); SIGHUP reloads the file and reopens the access log; SIGUSR2
/// starts the program anew, which takes over without losing a connection, as `tidegate upgrade` does.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Configuration file; replaces all other options
    #[arg(value_name = "FILE", conflicts_with_all = ONE_LINE)]
    file: Option<PathBuf>,
    /// The same
    #[arg(short, long, value_name = "FILE", conflicts_with = "file", conflicts_with_all = ONE_LINE)]
    config: Option<PathBuf>,
    /// Address to listen on, such as :8080 or 127.0.0.1:8080; default 127.0.0.1:8080
    #[arg(long, value_name = "ADDR")]
    listen: Vec<String>,
    /// Speak TLS with the certificate in this PEM file, or with one made now that no client trusts (self-signed)
    #[arg(long, value_name = "CERT")]
    tls: Option<String>,
    /// PEM file with the certificate's key
    #[arg(long, value_name = "FILE", requires = "tls")]
    key: Option<String>,
    /// Addresses of the servers, host:port
    #[arg(long, value_name = "ADDR", num_args = 1.., required_unless_present_any = ["file", "config"])]
    to: Vec<String>,
    /// Response-time target for 95 % of the admitted requests, such as 500ms; default 1s
    #[arg(long, value_name = "TIME")]
    target: Option<String>,
    /// Address of the admin API (metrics, health, state, dashboard); default none
    #[arg(long, value_name = "ADDR")]
    admin: Option<String>,
    /// File with the token of the admin API; without a token the API allows no changes
    #[arg(long, value_name = "FILE", requires = "admin")]
    admin_token_file: Option<String>,
    /// The admission policy
    #[arg(long, value_name = "NAME", value_parser = PossibleValuesParser::new(AdmissionConfig::NAMES))]
    policy: Option<String>,
    /// Decide and count, but refuse nothing
    #[arg(long)]
    shadow: bool,
    /// Worker threads; default one per processor
    #[arg(long, value_name = "N")]
    workers: Option<u64>,
    /// Write one line of JSON per request to this file, or to standard output (-)
    #[arg(long, value_name = "PATH")]
    access_log: Option<String>,
    /// Listen here for `tidegate upgrade`; default the folder that systemd gives, if it does
    #[arg(long, value_name = "PATH")]
    upgrade_socket: Option<String>,
    /// Take over from the sentry whose upgrade socket this is; if there is none, start as usual
    #[arg(long, value_name = "PATH", num_args = 0..=1, default_missing_value = super::upgrade::SOCKET)]
    take_over: Option<PathBuf>,
    /// Keep what is learned in this file: written every minute and at the end, read at the start
    #[arg(long, value_name = "FILE")]
    state: Option<PathBuf>,
}

const ONE_LINE: [&str; 12] = [
    "listen",
    "tls",
    "key",
    "to",
    "target",
    "admin",
    "admin_token_file",
    "policy",
    "shadow",
    "workers",
    "access_log",
    "upgrade_socket",
];

const EXAMPLES: &str = "Examples:
  tidegate run --listen :8080 --to 127.0.0.1:9000 --target 500ms --admin 127.0.0.1:9900
  tidegate run --listen :8080 --to 10.0.0.1:80 10.0.0.2:80 --target 1s --shadow
  tidegate run --listen :8443 --tls site.pem --key site.key --to 127.0.0.1:9000
  tidegate run tidegate.toml";

/// Runs the sentry until a signal stops it, or a successor has taken over. Exit status 2 when the configuration is
/// invalid.
///
/// # Errors
/// When it cannot start.
pub fn run(args: Args) -> Result<ExitCode> {
    let launch = Launch::of_this_process();
    let mut predecessor = predecessor(args.take_over.as_deref())?;
    let kept = args.state.clone();
    let mut given = match &mut predecessor {
        Some(predecessor) => predecessor.receive().map_err(|why| anyhow!("cannot take over: {why}"))?,
        None => Given { sockets: Sockets::from_environment().context("from the service manager")?, state: None },
    };
    // A predecessor knows more.
    if let (None, Some(path)) = (&given.state, &kept) {
        given.state = State::load(path);
    }
    let began = begin(args, given).and_then(|began| match (began, &mut predecessor) {
        (Ok(begun), Some(predecessor)) => match predecessor.ready() {
            Verdict::Serve => {
                predecessor.latest().iter().for_each(|state| begun.process.recall(state));
                Ok(Ok(begun))
            }
            Verdict::End(why) => bail!("not to take over: {why}"),
        },
        (began, _) => Ok(began),
    });
    if let (Some(predecessor), Some(why)) = (&mut predecessor, why_not(&began)) {
        predecessor.failed(&why);
    }
    let Begun { process, runtime, signals, desk } = match began? {
        Ok(begun) => begun,
        Err(errors) => return Ok(super::bad_configuration(errors)),
    };
    process.open();
    if let Some(predecessor) = predecessor {
        predecessor.serving();
    }
    log::announce(announcement(&process));
    let (sender, calls) = mpsc::channel(1);
    let keeper = runtime.block_on(async { kept.map(Keeper::new) });
    let mut office = Office { process, signals, launch, desk, calls, keeper };
    if let Some(desk) = &mut office.desk {
        desk.start(sender).context("cannot listen at the upgrade socket")?;
    }
    told_ready(&office.process);
    runtime.block_on(office.serve())
}

/// Everything that a process has which could serve at once.
struct Begun {
    process: Process,
    runtime: Runtime,
    signals: Signals,
    desk: Option<Desk>,
}

/// Whom to succeed.
fn predecessor(socket: Option<&Path>) -> Result<Option<Predecessor>> {
    if let Some(predecessor) = Predecessor::by_birth().context("cannot hear the process that started this one")? {
        return Ok(Some(predecessor));
    }
    let Some(socket) = socket else { return Ok(None) };
    let found = Predecessor::at(socket).with_context(|| format!("cannot take over at {}", socket.display()))?;
    if found.is_none() {
        info!(target: "tidegate", "there is nobody to take over from at {}", socket.display());
    }
    Ok(found)
}

/// Reads the configuration and starts all but the accepting. The inner error: the configuration is invalid.
fn begin(args: Args, mut given: Given) -> Result<Result<Begun, ConfigErrors>> {
    let file = args.config.clone().or_else(|| args.file.clone());
    let source = file.as_ref().map_or("command line".to_owned(), |path| path.display().to_string());
    let Checked { config, warnings } = match args.load(file.as_deref()) {
        Ok(checked) => checked,
        Err(errors) => return Ok(Err(errors)),
    };
    for warning in &warnings {
        warn!(target: "tidegate", "{}", warning.at(&source));
    }
    raise_file_limit();
    guard::give_up_policing(&config, &mut given.sockets);
    super::confine::give_up_calls();
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().context("cannot wait for signals")?;
    // Before the first announcement: a signal without a handler would end the process.
    let signals = runtime.block_on(async { Signals::new() }).context("cannot receive signals")?;
    refuse_taken_ports(&config, &given.sockets)?;
    let desk = match upgrade_socket(&config) {
        Some(path) => Some(
            Desk::open(&path, &mut given.sockets)
                .with_context(|| format!("cannot open the upgrade socket {}", path.display()))?,
        ),
        None => None,
    };
    let process = Process::prepare(config, file.as_deref(), &mut given).map_err(explain)?;
    for (name, _) in given.sockets.iter() {
        warn!(target: "tidegate", "nothing listens at the socket {name} any more that was given: it is closed");
    }
    Ok(Ok(Begun { process, runtime, signals, desk }))
}

/// Why a process does not take over.
fn why_not(began: &Result<Result<Begun, ConfigErrors>>) -> Option<String> {
    match began {
        Ok(Ok(_)) => None,
        Ok(Err(errors)) => Some(format!("its configuration is invalid:\n{errors}")),
        Err(error) => Some(format!("{error:#}")),
    }
}

/// Where the configuration says, or in the folder that systemd gives.
fn upgrade_socket(config: &Config) -> Option<PathBuf> {
    let folder = || std::env::var_os("RUNTIME_DIRECTORY").filter(|folder| !folder.is_empty());
    config.upgrade.socket.clone().or_else(|| Some(Path::new(&folder()?).join("upgrade.sock")))
}

/// Tells systemd, and gives it the sockets to keep, if it keeps any.
fn told_ready(process: &Process) {
    if notify::stores()
        && let Ok(handover) = process.handover()
    {
        // Who polices ends when nobody has the way to it: a service manager would keep it alive.
        let listeners = handover.sockets.iter().filter(|(name, _)| *name != Helper::NAME);
        listeners.for_each(|(name, socket)| notify::store(name, socket));
    }
    notify::ready();
}

impl Args {
    fn load(self, file: Option<&Path>) -> Result<Checked, ConfigErrors> {
        match file {
            Some(path) => Config::load(path),
            None => Config::one_line(OneLine {
                listen: self.listen,
                tls: self.tls,
                key: self.key,
                to: self.to,
                target: self.target,
                policy: self.policy,
                shadow: self.shadow,
                admin: self.admin,
                admin_token_file: self.admin_token_file,
                workers: self.workers,
                access_log: self.access_log,
                upgrade_socket: self.upgrade_socket,
            }),
        }
    }
}

/// The block of lines that the program prints when it has started.
fn announcement(process: &Process) -> String {
    let (config, sentry) = (process.board().config(), process.sentry());
    let mut text = format!("tidegate {}\n", env!("CARGO_PKG_VERSION"));
    for app in &config.applications {
        let several = if config.applications.len() > 1 { format!("{}: ", app.name) } else { String::new() };
        let mut line = |what: &str, value: String| text.push_str(&format!("  {several}{what:<9}{value}\n"));
        line("listen", listeners(app, &sentry.addresses(&app.name)));
        line("servers", app.servers.iter().map(|server| server.address.as_str()).collect::<Vec<_>>().join(" "));
        line("target", target(app));
        line("policy", policy(app));
        let running = sentry.apps().iter().find(|running| running.name() == app.name);
        if let Some(syn) = running.and_then(|app| syn(&app.syn.in_force())) {
            line("syn", syn);
        }
    }
    if let Some(view) = sentry.reports() {
        text.push_str(&format!("  {:<9}udp {}\n", "reports", view.address()));
    }
    if let Some(control) = &config.control {
        let connect = control.connect.join(", ");
        text.push_str(&format!("  {:<9}{connect} (this sentry is \"{}\")\n", "control", control.name));
    }
    let admin = process.admin_address();
    let admin = admin.map_or("none (--admin ADDR, or [admin] in a file)".to_owned(), |admin| urls(&[admin]));
    text.push_str(&format!("  {:<9}{admin}\n  {:<9}{}", "admin", "workers", config.sentry.workers));
    text
}

/// Fails when another program listens on a port of the configuration that was not given. The workers share their
/// ports (`SO_REUSEPORT`), so the system would let a second sentry share them too and divide the requests. A socket
/// without that option finds out.
fn refuse_taken_ports(config: &Config, given: &Sockets) -> Result<()> {
    for app in &config.applications {
        let addresses = app.listen.iter().map(|listen| usable(listen.address));
        for address in addresses.filter(|address| address.port() != 0 && !given.has(*address)) {
            if let Err(error) = TcpListener::bind(address) {
                bail!("application \"{}\": cannot listen on {address}: {error}{}", app.name, hint(&error));
            }
        }
    }
    Ok(())
}

/// Adds to an error of the system what can be done about it.
fn explain(error: ProcessError) -> anyhow::Error {
    let hint = match &error {
        ProcessError::Sentry(StartError::Listen { source, .. }) | ProcessError::Admin { source, .. } => hint(source),
        _ => "",
    };
    anyhow!("{error}{hint}")
}

fn hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::AddrInUse => "; another program listens there: stop it, or listen on another port",
        io::ErrorKind::PermissionDenied => "; ports below 1024 need root or CAP_NET_BIND_SERVICE",
        io::ErrorKind::AddrNotAvailable => "; this machine has no such address",
        _ => "",
    }
}

fn listeners(app: &Application, addresses: &[SocketAddr]) -> String {
    let scheme = |listen: &Listen| if listen.tls { "https" } else { "http" };
    let urls = app.listen.iter().zip(addresses).map(|(listen, address)| match listen.socket {
        Some(socket) => socket.to_string(),
        None => format!("{}://{address}/", scheme(listen)),
    });
    urls.collect::<Vec<_>>().join(" ")
}

fn urls(addresses: &[SocketAddr]) -> String {
    addresses.iter().map(|address| format!("http://{address}/")).collect::<Vec<_>>().join(" ")
}

fn target(app: &Application) -> String {
    let sla = &app.setup.sla;
    let step = |step: &tidegate_engine::Step| {
        let target = format_duration(step.target);
        if step.below.is_finite() { format!("{target} below {}/s", step.below) } else { target }
    };
    let steps: Vec<String> = sla.steps().iter().map(step).collect();
    format!("{} within {}", sla.statistic().name(), steps.join(", "))
}

fn policy(app: &Application) -> String {
    let shadow = if app.setup.shadow { "; shadow mode: nothing is refused" } else { "" };
    format!("{}, dispatch {}{shadow}", app.setup.admission.name(), app.setup.dispatch.name())
}

/// How new connections are policed, and why not by a better mechanism. `None` where they are not.
fn syn(in_force: &Settled) -> Option<String> {
    let what = match in_force.mechanism {
        Mechanism::Off if in_force.why.is_empty() => return None,
        Mechanism::Off => "new connections are never turned away",
        Mechanism::Nftables => "new connections are policed in the kernel, by nftables",
        Mechanism::AcceptAndReset => "new connections are policed by the workers, which accept and reset",
    };
    Some(if in_force.why.is_empty() { what.to_owned() } else { format!("{what}: {}", in_force.why) })
}

/// Raises the limit on open files to the hard limit, because each connection is a file and the default of 1,024 is too
/// small. Where the system does not permit it, the limit stays.
pub(super) fn raise_file_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    if setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum }).is_err() {
        warn!(target: "tidegate", "at most {} files may be open", limit.current.unwrap_or_default());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hints_fit_the_error() {
        assert!(hint(&io::ErrorKind::AddrInUse.into()).contains("another program"));
        assert_eq!(hint(&io::ErrorKind::Other.into()), "");
    }

    #[test]
    fn a_target_is_said_in_a_line() {
        let line = OneLine { to: vec!["127.0.0.1:1".into()], target: Some("1500ms".into()), ..OneLine::default() };
        let app = Config::one_line(line).expect("valid").config.applications.remove(0);
        assert_eq!(target(&app), "p95 within 1500ms");
        assert_eq!(policy(&app), "waiting, dispatch jsq");
    }
}
