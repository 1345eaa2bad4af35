//! `tidegate-mail`: the mail service, and the mail for it.

#![forbid(unsafe_code)]

use std::io::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use clap::{Parser, Subcommand};
use tidegate_config::units::parse_duration;
use tidegate_mail::database::Database;
use tidegate_mail::generate::{Made, Mail};
use tidegate_mail::http::{Limits, listen, router, serve};
use tidegate_mail::policy::{Degrade, Options, Policy};
use tidegate_mail::private_mariadb::PrivateMariaDb;
use tidegate_mail::schema;
use tidegate_mail::service::Service;

/// A Web mail service made of stages that control themselves (Welsh and Culler, 2003).
///
/// Without a command it serves: mail is made up first where there is none.
#[derive(Debug, Parser)]
#[command(name = "tidegate-mail", version, args_conflicts_with_subcommands = true, after_help = EXAMPLES)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    serve: Serve,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Make up mail and put it into a database, in place of what is there
    Generate(Generate),
}

#[derive(Debug, clap::Args)]
struct Serve {
    /// Where the mail is: sqlite:FILE, mysql://user:password@host:port/name, or mariadb:FOLDER, which starts a MariaDB
    /// of its own with its data there
    #[arg(long, value_name = "DATABASE", default_value = DEFAULT_DATABASE)]
    database: String,
    /// Address to listen at; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8025")]
    listen: SocketAddr,
    /// How overload is met: aimd (a controller for each stage), single (one for all), none, or limit=128 (connections)
    #[arg(long, value_name = "POLICY", default_value = "aimd")]
    policy: Policy,
    /// Bound on the 90th percentile of each stage's response time
    #[arg(long, value_name = "TIME", value_parser = parse_duration, default_value = "1s")]
    target: Duration,
    /// A request that takes longer gets an error page
    #[arg(long, value_name = "TIME", value_parser = parse_duration, default_value = "30s")]
    timeout: Duration,
    /// Classes of requests. An account's class is in its session; 1 is the most important
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=9))]
    classes: u8,
    /// Believe the header Tidegate-Class: only behind something that sets it, or for measurements
    #[arg(long)]
    class_header: bool,
    /// Connections to the database at most
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=1000))]
    connections: u16,
    /// Workers of each stage that asks the database; default: as many as connections. Fewer, and one request type alone
    /// cannot take all connections
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1000))]
    workers: Option<u16>,
    /// What drawing pictures does when it is late: off, alone (coarser pictures), then-refuse (at the coarsest)
    #[arg(long, value_name = "HOW", default_value = "off")]
    degrade: Degrade,
    /// Looks at each point of a picture at full quality: how much processor time a picture costs
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    render_samples: u32,
    /// Settings of the controllers, as TOML
    #[arg(long, value_name = "FILE")]
    parameters: Option<PathBuf>,
    /// Connections that may wait to be accepted
    #[arg(long, value_name = "N", default_value_t = 1024)]
    backlog: i32,
    /// End when standard input ends: for programs that start this one, so that it does not outlive them
    #[arg(long)]
    while_stdin: bool,
}

#[derive(Debug, clap::Args)]
struct Generate {
    /// As for serving
    #[arg(long, value_name = "DATABASE", default_value = DEFAULT_DATABASE)]
    database: String,
    /// Accounts: user1, user2 and so on
    #[arg(long, value_name = "N", default_value_t = 128)]
    accounts: u32,
    /// Messages in the largest inbox
    #[arg(long, value_name = "N", default_value_t = 12_794)]
    largest: u32,
    /// Messages in the smallest inbox
    #[arg(long, value_name = "N", default_value_t = 1)]
    smallest: u32,
    /// Tail index of the inboxes' sizes: the smaller, the more large ones
    #[arg(long, value_name = "INDEX", default_value_t = 0.5)]
    tail: f64,
    /// Mean length of a message's text
    #[arg(long, value_name = "BYTES", default_value_t = 2_000)]
    text_bytes: u32,
    /// Classes the accounts are dealt into
    #[arg(long, value_name = "N", default_value_t = 2)]
    classes: u8,
    /// Seed: the same seed makes the same mail
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
}

fn main() -> Result<()> {
    let cli = Cli::parse();
    match cli.command {
        Some(Command::Generate(generate)) => generate.run(),
        None => {
            let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
            runtime.block_on(cli.serve.run())
        }
    }
}

impl Serve {
    async fn run(self) -> Result<()> {
        let options = self.options()?;
        let source = open(&self.database)?;
        fill_if_empty(&source.database)?;
        let service = Service::start(source.database.clone(), options, self.class_header, self.render_samples)?;
        let service = Arc::new(service);
        let connections = if let Policy::Limit(limit) = self.policy { Some(limit) } else { None };
        let limits = Limits { connections, backlog: self.backlog };
        let listener = listen(self.listen, limits).with_context(|| format!("cannot listen at {}", self.listen))?;
        println!("{}; sign in as user1 at http://{}/", source.database, listener.local_addr()?);
        std::io::stdout().flush()?;
        serve(listener, limits, router(Arc::clone(&service)), until_told_to_stop(self.while_stdin)).await?;
        service.drain(Duration::from_secs(10)).await;
        Ok(())
    }

    fn options(&self) -> Result<Options> {
        let parameters = match &self.parameters {
            None => Options::default().parameters,
            Some(path) => tidegate_config::parse(&tidegate_config::load(path)?, &path.display().to_string())?,
        };
        ensure!(!self.timeout.is_zero(), "--timeout is 0: no request would be answered");
        ensure!(self.backlog > 0, "--backlog must be at least 1");
        Ok(Options {
            policy: self.policy,
            target: self.target,
            timeout: self.timeout,
            classes: self.classes,
            connections: usize::from(self.connections),
            workers: usize::from(self.workers.unwrap_or(self.connections)),
            degrade: self.degrade,
            parameters,
            ..Options::default()
        })
    }
}

impl Generate {
    fn run(self) -> Result<()> {
        let Generate { database, accounts, largest, smallest, tail, text_bytes, classes, seed } = self;
        let source = open(&database)?;
        fill(&source.database, &Mail { accounts, largest, smallest, tail, text_bytes, classes, seed })
    }
}

/// A database, and the server that was started for it, which stops when this is dropped.
struct Source {
    database: Database,
    _server: Option<PrivateMariaDb>,
}

fn open(text: &str) -> Result<Source> {
    match text.strip_prefix("mariadb:") {
        Some(folder) if !folder.is_empty() => {
            let server = PrivateMariaDb::start(folder.as_ref(), 0)?;
            Ok(Source { database: server.database(), _server: Some(server) })
        }
        _ => Ok(Source { database: text.parse()?, _server: None }),
    }
}

fn fill_if_empty(database: &Database) -> Result<()> {
    let mut connection = database.connect(PATIENCE)?;
    if schema::holds_mail(&mut *connection)? {
        return Ok(());
    }
    drop(connection);
    fill(database, &Mail { accounts: 16, smallest: 60, largest: 2_000, ..Mail::default() })
}

fn fill(database: &Database, mail: &Mail) -> Result<()> {
    let (mut connection, start) = (database.connect(PATIENCE)?, Instant::now());
    connection.set_deadline(start + PATIENCE);
    schema::drop_all(&mut *connection)?;
    let made = mail.store(&mut *connection, |_| ())?;
    let Made { accounts, messages, bytes } = made;
    let took = start.elapsed().as_secs_f64();
    println!("made {accounts} accounts with {messages} messages, {:.1} MB of text, in {took:.1} s", bytes as f64 / 1e6);
    Ok(())
}

/// Until SIGINT or SIGTERM, or, where it is wanted, the end of standard input.
async fn until_told_to_stop(while_stdin: bool) {
    let terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate());
    let Ok(mut terminate) = terminate else { return std::future::pending().await };
    tokio::select! {
        _ = tokio::signal::ctrl_c() => {}
        _ = terminate.recv() => {}
        () = end_of_stdin(), if while_stdin => {}
    }
}

/// A thread of its own: one of the runtime's would hold up its end.
async fn end_of_stdin() {
    let (tell, ended) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        // An error ends it just as well.
        drop(std::io::copy(&mut std::io::stdin(), &mut std::io::sink()));
        tell.send(())
    });
    drop(ended.await);
}

const DEFAULT_DATABASE: &str = "sqlite:tidegate-mail.db";

/// For making up mail; a request's own time is an option.
const PATIENCE: Duration = Duration::from_secs(3600);

const EXAMPLES: &str = "Examples:
  tidegate-mail                                            SQLite, http://127.0.0.1:8025/
  tidegate-mail --database mariadb:/tmp/mail               a MariaDB of its own
  tidegate-mail generate --accounts 128 --largest 12794    the paper's mail
  tidegate-mail --target 10s --policy single";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_mistakes_in_parameters_are_told_at_once() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("aimd.toml");
        std::fs::write(&file, "sampels = 100\nlower_by = 1.2\ntimeout = \"5\"\n").expect("written");
        let cli = Cli::parse_from(["tidegate-mail", "--parameters", &file.display().to_string()]);
        let error = cli.serve.options().expect_err("two mistakes").to_string();
        let told: Vec<&str> = error.lines().collect();
        assert!(told.len() == 2, "{error}");
        assert!(told[0].ends_with(":1: sampels: unknown key \"sampels\"; did you mean \"samples\"?"), "{error}");
        assert!(told[1].contains(":3: timeout: \"5\" has no unit"), "{error}");
    }
}
