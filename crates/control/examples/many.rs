//! A control plane with many sentries: what it costs. `cargo xtask bench control` runs this and keeps the results.
//!
//! `many` starts the daemon as a process of its own, and is itself all the sentries: each connects, registers, and
//! reports once a period what it offered and how its servers are, which is where nuclei speak to sentries. It measures
//! the daemon's CPU time and memory, and prints them as JSON, with what deciding alone costs (`many/plane.rs`).
//! `many daemon FILE` is the daemon.

#[path = "many/plane.rs"]
mod plane;

use std::fmt::Write as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use serde_json::json;
use tidegate_control::{Config, Member};
use tidegate_wire::control::{
    ApplicationSeen, Channel, ControlKeys, FromControl, FromSentry, Hello, Orders, Report, ServerSeen,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{interval, sleep, timeout};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Ports that the servers share.
const PORTS: usize = 50;
const KEY: &[u8] = b"the secret of the benchmark";
/// By then all must be registered and have their servers.
const PATIENCE: Duration = Duration::from_secs(180);

/// How much there is.
#[derive(Clone, Copy)]
struct Size {
    sentries: usize,
    servers: usize,
    applications: usize,
    windows: usize,
    seconds: u64,
}

/// What all sentries saw together.
#[derive(Default)]
struct Seen {
    registered: AtomicU64,
    reports: AtomicU64,
    orders: AtomicU64,
    servers: AtomicU64,
    lost: AtomicU64,
}

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    more_descriptors();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    match words.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["daemon", file] => runtime.block_on(daemon(Path::new(file))),
        words => runtime.block_on(measure(size(words)?)),
    }
}

fn size(words: &[&str]) -> Result<Size> {
    let mut size = Size { sentries: 1000, servers: 10_000, applications: 100, windows: 6, seconds: 10 };
    for pair in words.chunks(2) {
        let [key, value] = pair else { return Err("options come in pairs: --sentries 1000".into()) };
        match *key {
            "--sentries" => size.sentries = value.parse()?,
            "--servers" => size.servers = value.parse()?,
            "--applications" => size.applications = value.parse()?,
            "--windows" => size.windows = value.parse()?,
            "--seconds" => size.seconds = value.parse()?,
            other => return Err(format!("there is no {other}").into()),
        }
    }
    if size.applications == 0 || size.sentries < size.applications || size.servers < size.sentries {
        return Err("each application has a sentry, and each sentry a server".into());
    }
    Ok(size)
}

async fn daemon(file: &Path) -> Result<()> {
    let (member, _handle) = Member::start(Config::load(file)?, false).await?;
    Ok(member.run().await?)
}

async fn measure(size: Size) -> Result<()> {
    let folder = std::env::temp_dir().join(format!("tidegate-many-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let servers = answer_checks()?;
    let (file, listen) = write_config(&folder, size, &servers)?;
    let deciding = plane::costs(Config::load(&file)?.site, size.sentries)?;
    let daemon = Daemon::start(&file)?;
    let began = Instant::now();
    let seen = Arc::new(Seen::default());
    let keys = ControlKeys::derive(KEY);
    for number in 0..size.sentries {
        tokio::spawn(sentry(number, size, listen, keys.clone(), seen.clone()));
    }
    let all = || {
        let (sentries, servers) = (seen.registered.load(Relaxed), seen.servers.load(Relaxed));
        sentries == size.sentries as u64 && servers == size.servers as u64
    };
    let mut registered = None;
    while !all() {
        if registered.is_none() && seen.registered.load(Relaxed) == size.sentries as u64 {
            registered = Some(began.elapsed());
        }
        if began.elapsed() > PATIENCE {
            let (sentries, servers) = (seen.registered.load(Relaxed), seen.servers.load(Relaxed));
            return Err(format!("after {PATIENCE:?}: {sentries} sentries with {servers} servers").into());
        }
        // tidy-allow(sleeping-tests): polls the conditions above, with a deadline
        sleep(Duration::from_millis(20)).await;
    }
    let complete = began.elapsed();
    let starting = daemon.usage()?.cpu;
    let mut windows = Vec::new();
    for _ in 0..size.windows {
        let (before, reports, at) = (daemon.usage()?, seen.reports.load(Relaxed), Instant::now());
        // tidy-allow(sleeping-tests): the window that is measured
        sleep(Duration::from_secs(size.seconds)).await;
        let (after, took) = (daemon.usage()?, at.elapsed().as_secs_f64());
        windows.push(json!({
            "cores": (after.cpu - before.cpu).as_secs_f64() / took,
            "resident_mb": after.resident_mb,
            "reports_per_s": (seen.reports.load(Relaxed) - reports) as f64 / took,
            "complete": all(),
        }));
    }
    let result = json!({
        "sentries": size.sentries,
        "servers": size.servers,
        "applications": size.applications,
        "seconds": size.seconds,
        "registered_after_s": registered.unwrap_or(complete).as_secs_f64(),
        "complete_after_s": complete.as_secs_f64(),
        "cpu_until_complete_s": starting.as_secs_f64(),
        "peak_mb": daemon.usage()?.peak_mb,
        "orders": seen.orders.load(Relaxed),
        "lost": seen.lost.load(Relaxed),
        "deciding": deciding,
        "windows": windows,
    });
    println!("{result:#}");
    drop(daemon);
    std::fs::remove_dir_all(&folder)?;
    Ok(())
}

/// All servers of the pool: whether they serve is asked there. On threads of their own, as others are who answer; at
/// several ports, or the system would run out of connections that it remembers for one.
fn answer_checks() -> Result<Vec<SocketAddr>> {
    let answer = || -> Result<SocketAddr> {
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        // Each connection that opens is closed at once.
        std::thread::spawn(move || listener.incoming().for_each(drop));
        Ok(address)
    };
    (0..PORTS).map(|_| answer()).collect()
}

fn write_config(folder: &Path, size: Size, servers: &[SocketAddr]) -> Result<(PathBuf, SocketAddr)> {
    let listen = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?;
    std::fs::write(folder.join("key"), KEY)?;
    let addresses: Vec<String> = servers.iter().cycle().take(size.servers).map(|at| format!("\"{at}\"")).collect();
    let addresses = addresses.join(", ");
    let mut text = format!("listen = \"{listen}\"\nkey_file = \"key\"\n");
    write!(text, "[provider]\nkind = \"static\"\nsetup_time = \"10s\"\naddresses = [{addresses}]\n")?;
    for application in 0..size.applications {
        let count = share(size.servers, size.applications, application);
        write!(
            text,
            "[[application]]\nname = \"application-{application}\"\ntarget = \"1s\"\nservice_time = \"50ms\"\n\
             min_servers = {count}\nmax_sentries = {}\n",
            size.sentries.div_ceil(size.applications)
        )?;
    }
    let file = folder.join("control.toml");
    std::fs::write(&file, text)?;
    Ok((file, listen))
}

/// Of so many, how many the one at a place gets.
fn share(all: usize, among: usize, at: usize) -> usize {
    all / among + usize::from(at < all % among)
}

/// The daemon, killed at the end.
struct Daemon(Child);

struct Usage {
    cpu: Duration,
    resident_mb: f64,
    peak_mb: f64,
}

impl Daemon {
    fn start(file: &Path) -> Result<Daemon> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("daemon").arg(file).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Ok(Daemon(command.spawn()?))
    }

    fn usage(&self) -> Result<Usage> {
        let of = |name: &str| std::fs::read_to_string(format!("/proc/{}/{name}", self.0.id()));
        let stat = of("stat")?;
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        let ticks: u64 = fields.iter().skip(11).take(2).map(|field| field.parse::<u64>().unwrap_or(0)).sum();
        let status = of("status")?;
        let line = |key: &str| status.lines().find_map(|line| line.strip_prefix(key)?.split_whitespace().next());
        let megabytes = |key: &str| line(key).and_then(|text| text.parse().ok()).map_or(0.0, |kb: f64| kb / 1024.0);
        Ok(Usage {
            cpu: Duration::from_secs_f64(ticks as f64 / rustix::param::clock_ticks_per_second() as f64),
            resident_mb: megabytes("VmRSS:"),
            peak_mb: megabytes("VmHWM:"),
        })
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// One sentry, for ever.
async fn sentry(number: usize, size: Size, connect: SocketAddr, keys: ControlKeys, seen: Arc<Seen>) {
    loop {
        let mut of_me = OfMe { seen: &seen, registered: false, servers: 0 };
        if speak(number, size, connect, &keys, &mut of_me).await.is_err() && of_me.registered {
            seen.lost.fetch_add(1, Relaxed);
        }
        drop(of_me);
        // tidy-allow(sleeping-tests): the pause before a sentry connects again
        sleep(Duration::from_millis(200)).await;
    }
}

/// What one sentry counts among all; taken back when it is lost.
struct OfMe<'a> {
    seen: &'a Seen,
    registered: bool,
    servers: u64,
}

impl OfMe<'_> {
    fn registered(&mut self) {
        self.registered = true;
        self.seen.registered.fetch_add(1, Relaxed);
    }

    fn obeys(&mut self, orders: &Orders) {
        let servers = orders.applications.iter().map(|application| application.servers.len() as u64).sum();
        self.seen.orders.fetch_add(1, Relaxed);
        self.seen.servers.fetch_add(servers, Relaxed);
        self.seen.servers.fetch_sub(std::mem::replace(&mut self.servers, servers), Relaxed);
    }
}

impl Drop for OfMe<'_> {
    fn drop(&mut self) {
        self.seen.registered.fetch_sub(u64::from(self.registered), Relaxed);
        self.seen.servers.fetch_sub(self.servers, Relaxed);
    }
}

async fn speak(number: usize, size: Size, connect: SocketAddr, keys: &ControlKeys, of_me: &mut OfMe<'_>) -> Result<()> {
    let mut stream = timeout(Duration::from_secs(30), TcpStream::connect(connect)).await??;
    stream.set_nodelay(true)?;
    let mut channel = Channel::connecting(keys);
    let application = format!("application-{}", number % size.applications);
    channel.send(&FromSentry::Hello(Hello {
        addresses: Vec::new(),
        sentry: format!("sentry-{number:04}"),
        instance: number as u64 + 1,
        applications: vec![(application.clone(), 1)],
        asks: true,
    }));
    let mut period: Option<tokio::time::Interval> = None;
    let (mut buffer, mut orders) = (vec![0; 4096], Orders::default());
    loop {
        while let Some(bytes) = channel.poll_bytes() {
            stream.write_all(&bytes).await?;
        }
        tokio::select! {
            read = stream.read(&mut buffer) => match read? {
                0 => return Err("it closed the connection".into()),
                read => channel.handle_bytes(&buffer[..read])?,
            },
            () = tick(&mut period) => {
                channel.send(&FromSentry::Report(report(&application, &orders)));
                of_me.seen.reports.fetch_add(1, Relaxed);
            }
        }
        while let Some(message) = channel.poll_message()? {
            match message {
                FromControl::Welcome { period_ms, .. } => {
                    of_me.registered();
                    period = Some(interval(Duration::from_millis(period_ms.max(50))));
                }
                FromControl::Orders(new) => {
                    of_me.obeys(&new);
                    orders = new;
                }
                FromControl::Here => {}
                FromControl::Refused { why, .. } => return Err(why.into()),
            }
        }
    }
}

async fn tick(period: &mut Option<tokio::time::Interval>) {
    match period {
        Some(period) => drop(period.tick().await),
        None => std::future::pending().await,
    }
}

/// As a real sentry's: a load that its servers can carry, each of them with a little in flight.
fn report(application: &str, orders: &Orders) -> Report {
    let servers: Vec<ServerSeen> = orders
        .applications
        .iter()
        .flat_map(|application| &application.servers)
        .map(|server| ServerSeen { name: server.name.clone(), status: String::from("up"), in_flight: 2 })
        .collect();
    let seen = ApplicationSeen {
        name: application.to_owned(),
        offered: vec![servers.len() as u64 * 8],
        refused: 0,
        busy: 0.4,
        mean_service: Some(0.05),
        service_variation: Some(1.0),
        arrival_variation: Some(1.0),
        processors: Some(1.0),
        servers,
    };
    Report { seconds: 1.0, cpu: 0.3, applied: (orders.term, orders.revision), applications: vec![seen] }
}

fn more_descriptors() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    // As many as the system gives: too few show as sentries that cannot connect.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
}
