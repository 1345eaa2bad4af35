//! `tidegate control`: the control plane, what it would do, and what it did.

use std::io::{Write, stdout};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::Value;
use tidegate_control::backend::{self, Store};
use tidegate_control::{Config, Member, admin};
use tokio::signal::unix::{SignalKind, signal};

use super::top::get;

/// Keep as many servers as the offered load needs: start and stop them, and assign them to sentries
///
/// Without a subcommand this is the daemon. Sentries connect to it when their configuration has `[control]`. Its state
/// survives kill -9, and the servers that it started keep running without it. docs/control.md describes the
/// configuration.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(subcommand)]
    what: Option<What>,
    /// The configuration file
    #[arg(short, long, value_name = "FILE", global = true, default_value = "control.toml")]
    config: PathBuf,
    /// Only record what would be done: no server is started, and sentries receive no orders. With a subcommand:
    /// read the
    /// record of a dry run
    #[arg(long, global = true)]
    dry_run: bool,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// Show what would be done now, and why
    Plan {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Print every decision, step and event, one line of JSON each, oldest first
    Audit {
        /// Only records after this number
        #[arg(long, value_name = "N", default_value_t = 0)]
        after: u64,
    },
    /// Check the configuration
    Check,
}

const EXAMPLES: &str = "Examples:
  tidegate control -c control.toml
  tidegate control plan -c control.toml
  tidegate control audit -c control.toml --after 4096";

/// How long the running daemon may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long steps that are under way at a stop are waited for.
const AT_WORK: Duration = Duration::from_secs(1);

/// Runs the command. Exit status 2 when the configuration is invalid.
///
/// # Errors
/// When it fails while running.
pub fn run(args: &Args) -> Result<ExitCode> {
    let config = match Config::load(&args.config) {
        Ok(config) => config,
        Err(error) => return Ok(super::bad_configuration(error)),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("cannot start")?;
    let ended = runtime.block_on(async {
        match &args.what {
            None => serve(config, args.dry_run).await,
            Some(What::Plan { json }) => plan(&config, args.dry_run, *json).await,
            Some(What::Audit { after }) => audit(&config, args.dry_run, *after).await,
            Some(What::Check) => {
                let site = &config.site;
                let posts = match site.posts.count {
                    0 => String::new(),
                    posts => format!(", {posts} posts of sentries"),
                };
                let (file, applications) = (args.config.display(), site.applications.len());
                writeln!(stdout(), "{file}: {applications} applications, {} servers{posts}", site.servers)?;
                Ok(ExitCode::SUCCESS)
            }
        }
    });
    // A provider's step may hang. One that was begun and not recorded is what a kill -9 leaves, too.
    runtime.shutdown_timeout(AT_WORK);
    ended
}

async fn serve(config: Config, dry_run: bool) -> Result<ExitCode> {
    super::run::raise_file_limit();
    // Before anybody can see that it runs: a signal that nobody waits for yet would end it as a kill does.
    let mut terminate = signal(SignalKind::terminate()).context("cannot receive signals")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot receive signals")?;
    let (listen_admin, store) = (config.admin, config.store_of(dry_run));
    let (member, handle) = Member::start(config, dry_run).await?;
    let shown = match listen_admin {
        Some(listen) => {
            let address = admin::serve(listen, handle.clone()).await;
            format!("http://{}/", address.with_context(|| format!("the admin API cannot listen on {listen}"))?)
        }
        None => "none (admin = \"ADDR\" in the file)".to_owned(),
    };
    let mode = if dry_run { "\n  dry run: nothing is done, and no orders are sent" } else { "" };
    let names = member.names_address().map_or(String::new(), |address| format!("\n  names    {address}, UDP and TCP"));
    crate::log::announce(format_args!(
        "tidegate control {}\n  sentries {}\n  admin    {shown}\n  store    {store}{mode}{names}",
        env!("CARGO_PKG_VERSION"),
        member.address(),
    ));
    let running = tokio::spawn(member.run());
    let stopper = tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        handle.stop().await;
    });
    let ended = running.await.context("the control plane broke off")?;
    stopper.abort();
    ended?;
    tracing::info!(target: "tidegate", "the control plane stops; servers and sentries go on as they are");
    Ok(ExitCode::SUCCESS)
}

async fn plan(config: &Config, dry_run: bool, as_json: bool) -> Result<ExitCode> {
    let status = leading(config, dry_run).await?;
    let plan = match &status {
        Some(_) => running(config, "/api/plan").await?.context("the control plane ended meanwhile")?,
        None => serde_json::to_value(open(config, dry_run)?.plane(config.site.clone())?.plan())?,
    };
    if let Some(why) = status.as_ref().and_then(|status| status["store_away"].as_str()) {
        crate::log::announce(format_args!("tidegate: nothing is changed now: {why}"));
    }
    let mut out = stdout();
    if as_json {
        writeln!(out, "{plan:#}")?;
        return Ok(ExitCode::SUCCESS);
    }
    for application in plan.as_array().into_iter().flatten() {
        let text = |key: &str| application[key].as_str().unwrap_or_default().to_owned();
        let inputs = &application["inputs"];
        let or_unknown = |value: &Value| value.as_f64().map_or("unknown".to_owned(), |value| format!("{value:.4}"));
        writeln!(
            out,
            "{}: {} serve, {} are coming, {} were wanted",
            text("application"),
            application["serving"],
            application["coming"],
            application["wanted"]
        )?;
        writeln!(out, "  now {} would be wanted: {}", application["would_want"], text("reason"))?;
        writeln!(
            out,
            "  offered {} /s, refused {} of it, servers busy {}, service time {} s (variation {}, of arrivals {}), foreseen {} /s by {}",
            or_unknown(&inputs["offered"]),
            or_unknown(&inputs["refused"]),
            or_unknown(&inputs["busy"]),
            or_unknown(&inputs["mean_service"]),
            or_unknown(&inputs["service_variation"]),
            or_unknown(&inputs["arrival_variation"]),
            or_unknown(&inputs["foreseen"]),
            inputs["basis"].as_str().unwrap_or("nothing"),
        )?;
        writeln!(
            out,
            "  {} sentries, {} wanted; target at most {} s",
            application["sentries"], application["sentries_wanted"], application["ceiling"]
        )?;
    }
    Ok(ExitCode::SUCCESS)
}

async fn audit(config: &Config, dry_run: bool, mut after: u64) -> Result<ExitCode> {
    let mut out = stdout();
    let store = match leading(config, dry_run).await? {
        Some(_) => None,
        None => {
            let mut store = open(config, dry_run)?;
            // The newest records may only be in the journal yet; where it is another site's, they stay out.
            let _ = store.plane(config.site.clone());
            Some(store)
        }
    };
    loop {
        let records = match &store {
            Some(store) => store.audit(after, 1000)?,
            None => {
                let records = running(config, &format!("/api/audit?after={after}")).await?;
                records.and_then(|records| records.as_array().cloned()).unwrap_or_default()
            }
        };
        let Some(last) = records.last() else { return Ok(ExitCode::SUCCESS) };
        after = last["number"].as_u64().unwrap_or(u64::MAX);
        for record in &records {
            writeln!(out, "{record}")?;
        }
    }
}

/// The running daemon's status, if it leads and works on the store that is asked about.
async fn leading(config: &Config, dry_run: bool) -> Result<Option<Value>> {
    let status = running(config, "/api/status").await?;
    if let Some(leader) = status.as_ref().and_then(|status| status["leader"]["name"].as_str()) {
        crate::log::announce(format_args!("tidegate: this control plane waits; {leader} leads"));
    }
    Ok(status.filter(|status| status["role"] == "leads" && (status["dry_run"] == true) == dry_run))
}

/// What the running daemon says; `None` when none runs.
async fn running(config: &Config, path: &str) -> Result<Option<Value>> {
    let Some(admin) = config.admin else { return Ok(None) };
    if tokio::net::TcpStream::connect(admin).await.is_err() {
        return Ok(None);
    }
    let address = admin.to_string();
    let text = tokio::time::timeout(PATIENCE, get(&address, path, None))
        .await
        .context("the control plane does not answer")??;
    let value = serde_json::from_slice(&text).context("the answer of the control plane is not valid JSON")?;
    Ok(Some(value))
}

/// The store, only to look.
fn open(config: &Config, dry_run: bool) -> Result<Box<dyn Store>> {
    Ok(backend::at(&config.store_of(dry_run))?.look()?)
}
