//! `cargo xtask bench dashboard`: what viewers of the dashboard cost the sentry under load.
//!
//! A sentry with one worker passes 10,000 requests per second to servers of this process. Windows without and with
//! viewers alternate; the CPU time of the thread that serves the admin API, and of the whole process, is read before
//! and after each. A viewer is what the page is: one event stream that is read as it comes.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::json;

use super::figure::Figure;
use super::report::{Report, Section};
use super::service::{Service, free_address};
use super::stop::Scratch;
use super::{machine, proc_fs, record_folder};
use crate::args::Args;
use crate::command::Profile;

const VIEWERS: usize = 5;
const RATE: u32 = 10_000;
/// The name of the admin API's thread, as the system shortens it.
const THREAD: &str = "tidegate-admin";
/// Before the first window: learned capacities and the history settle.
const WARM_UP: Duration = Duration::from_secs(5);
/// Of the thread's time, beyond that of no viewer: the bar.
const BAR: f64 = 0.01;

/// Runs the comparison.
///
/// # Errors
/// When the sentry does not start, does not get its load, or viewers get no seconds.
pub fn run(mut args: Args) -> Result<Vec<Figure>> {
    let short = args.switch("--short");
    let rounds: usize = args.option("--rounds")?.unwrap_or(if short { 2 } else { 6 });
    let seconds: u64 = args.option("--seconds")?.unwrap_or(if short { 3 } else { 10 });
    let rate: u32 = args.option("--rate")?.unwrap_or(RATE);
    let folder = record_folder(&mut args)?;
    args.finish()?;
    if rounds == 0 || seconds == 0 {
        bail!("--rounds and --seconds must be at least 1");
    }
    Profile::Dist.build()?;
    let scratch = Scratch::new("dashboard")?;
    let setting = Setting::start(scratch.path())?;
    let whole = WARM_UP.as_secs() + 2 * rounds as u64 * (seconds + 2) + 5;
    let mut load = Load::start(setting.listen, rate, whole)?;
    thread::sleep(WARM_UP);
    let mut windows = Vec::new();
    for round in 0..rounds {
        // Either goes first in turn, so that drift favours neither.
        let order = if round % 2 == 0 { [0, VIEWERS] } else { [VIEWERS, 0] };
        for viewers in order {
            windows.push(setting.window(viewers, Duration::from_secs(seconds))?);
        }
    }
    load.ended_well()?;
    publish(&windows, rounds, seconds, rate, folder.as_deref())
}

/// The sentry and where it listens.
struct Setting {
    sentry: Service,
    listen: SocketAddr,
    admin: SocketAddr,
}

/// What was used in a window.
#[derive(Clone, Copy, Debug)]
struct Window {
    viewers: usize,
    /// Share of a core of the admin thread, and of the process.
    thread: f64,
    process: f64,
    requests_per_s: f64,
    bytes_per_viewer: f64,
}

impl Setting {
    fn start(dir: &Path) -> Result<Self> {
        let servers: Vec<String> = (0..3).map(|_| server().map(|at| format!("\"{at}\""))).collect::<Result<_>>()?;
        let (listen, admin) = (free_address()?, free_address()?);
        let class =
            |name: &str| format!("[[application.class]]\nname = \"{name}\"\nmatch = {{ path_prefix = \"/{name}\" }}\n");
        let file = dir.join("dashboard.toml");
        let text = format!(
            "[sentry]\nworkers = 1\n[admin]\nlisten = \"{admin}\"\n[[application]]\nname = \"shop\"\nlisten = \"{listen}\"\n\
             target = \"1s\"\nservers = [{}]\n{}{}[[application.class]]\nname = \"rest\"\n",
            servers.join(", "),
            class("gold"),
            class("silver")
        );
        fs::write(&file, text)?;
        let mut command = Command::new(Profile::Dist.tidegate());
        command.args(["run", "-c"]).arg(&file);
        let sentry = Service::start("tidegate", command, 0, listen, dir)?;
        Ok(Setting { sentry, listen, admin })
    }

    fn window(&self, viewers: usize, length: Duration) -> Result<Window> {
        let watching: Vec<Viewer> = (0..viewers).map(|_| Viewer::open(self.admin)).collect::<Result<_>>()?;
        // What a viewer gets when it comes is no part of watching.
        thread::sleep(Duration::from_secs(1));
        let read = |watching: &[Viewer]| watching.iter().map(|viewer| viewer.bytes.load(Relaxed)).sum::<u64>();
        let offered = offered(self.admin)?;
        let (bytes, began) = (read(&watching), Instant::now());
        let (thread, process) = (thread_nanos(self.sentry.pid())?, proc_fs::cpu_micros(self.sentry.pid())?);
        thread::sleep(length);
        let took = began.elapsed().as_secs_f64();
        let (thread, process) =
            (thread_nanos(self.sentry.pid())? - thread, proc_fs::cpu_micros(self.sentry.pid())? - process);
        let bytes = read(&watching) - bytes;
        if viewers > 0 && bytes == 0 {
            bail!("viewers got nothing in {took:.0} s");
        }
        Ok(Window {
            viewers,
            thread: thread as f64 / 1e9 / took,
            process: process / 1e6 / took,
            requests_per_s: (self::offered(self.admin)? - offered) / took,
            bytes_per_viewer: bytes as f64 / viewers.max(1) as f64 / took,
        })
    }
}

/// CPU time of the admin thread so far, in nanoseconds.
fn thread_nanos(pid: u32) -> Result<u64> {
    for entry in fs::read_dir(format!("/proc/{pid}/task"))?.flatten() {
        if fs::read_to_string(entry.path().join("comm")).is_ok_and(|name| name.trim() == THREAD) {
            let text = fs::read_to_string(entry.path().join("schedstat"))?;
            let first = text.split_whitespace().next().and_then(|nanos| nanos.parse().ok());
            return first.context("schedstat has no time");
        }
    }
    bail!("the sentry has no thread {THREAD}")
}

/// Requests that arrived so far, by `/metrics`.
fn offered(admin: SocketAddr) -> Result<f64> {
    let mut stream = TcpStream::connect(admin)?;
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    let lines = text.lines().filter(|line| line.starts_with("tidegate_requests_offered_total{"));
    Ok(lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum())
}

/// Someone who watches.
struct Viewer {
    stream: TcpStream,
    bytes: Arc<AtomicU64>,
    reader: Option<JoinHandle<()>>,
}

impl Viewer {
    fn open(admin: SocketAddr) -> Result<Self> {
        let mut stream = TcpStream::connect(admin)?;
        stream.write_all(b"GET /api/stream HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n")?;
        let (bytes, mut input) = (Arc::new(AtomicU64::new(0)), stream.try_clone()?);
        let count = bytes.clone();
        let read = move || {
            let mut buffer = [0; 64 * 1024];
            while let Ok(read @ 1..) = input.read(&mut buffer) {
                count.fetch_add(read as u64, Relaxed);
            }
        };
        Ok(Viewer { stream, bytes, reader: Some(thread::spawn(read)) })
    }
}

impl Drop for Viewer {
    fn drop(&mut self) {
        let _already_gone = self.stream.shutdown(std::net::Shutdown::Both);
        let _panicked = self.reader.take().map(JoinHandle::join);
    }
}

/// A server that answers everything at once, for as long as this process lives.
fn server() -> Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || answer(stream));
        }
    });
    Ok(address)
}

fn answer(mut stream: TcpStream) {
    let _best_effort = stream.set_nodelay(true);
    let mut buffer = [0; 16 * 1024];
    // The sentry sends one request at a time on a connection, in one piece.
    while let Ok(1..) = stream.read(&mut buffer) {
        if stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").is_err() {
            return;
        }
    }
}

/// `tidegate load`, on the other core.
struct Load {
    child: Child,
    ended: bool,
}

impl Load {
    fn start(to: SocketAddr, rate: u32, seconds: u64) -> Result<Self> {
        let mut command = Command::new(Profile::Dist.tidegate());
        command.args(["load", "--to", &format!("http://{to}/"), "--rate", &format!("{rate}/s")]);
        command.args(["--duration", &format!("{seconds}s"), "--connections", "64"]);
        super::service::pin(&mut command, 1);
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        Ok(Load { child, ended: false })
    }

    /// # Errors
    /// When it ended before the last window did.
    fn ended_well(&mut self) -> Result<()> {
        if let Some(status) = self.child.try_wait()? {
            self.ended = true;
            bail!("the load ended early, with {status}");
        }
        Ok(())
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        if !self.ended {
            let _already_gone = self.child.kill();
            let _already_gone = self.child.wait();
        }
    }
}

fn publish(windows: &[Window], rounds: usize, seconds: u64, rate: u32, folder: Option<&Path>) -> Result<Vec<Figure>> {
    let of = |viewers: usize| windows.iter().filter(move |window| window.viewers == viewers);
    let mut table = String::from(
        "| viewers | admin thread, % of a core | process, % of a core | requests/s | kB/s each viewer |\n|---|---|---|---|---|\n",
    );
    for window in [0, VIEWERS].into_iter().flat_map(of) {
        table.push_str(&format!(
            "| {} | {:.3} | {:.1} | {:.0} | {:.1} |\n",
            window.viewers,
            100.0 * window.thread,
            100.0 * window.process,
            window.requests_per_s,
            window.bytes_per_viewer / 1e3
        ));
    }
    let (without, with) = (median(of(0).map(|w| w.thread)), median(of(VIEWERS).map(|w| w.thread)));
    let verdict = if with < BAR { "met" } else { "missed" };
    table.push_str(&format!(
        "\nMedians of the admin thread: {:.3} % of a core without viewers (the history, once a second), {:.3} % with {VIEWERS}; \
         the bar of {:.0} % in all is {verdict}. The process as a whole differs from window to window by more than that.\n",
        100.0 * without,
        100.0 * with,
        100.0 * BAR
    ));
    let raw: Vec<_> = windows
        .iter()
        .map(|w| {
            json!({ "viewers": w.viewers, "thread": w.thread, "process": w.process, "requests_per_s": w.requests_per_s,
                         "bytes_per_viewer": w.bytes_per_viewer })
        })
        .collect();
    let figure = |viewers: usize| {
        let name = format!("admin thread with {viewers} viewers");
        Figure::absolute(name, "% of a core", of(viewers).map(|window| 100.0 * window.thread))
    };
    let report = Report {
        name: "dashboard",
        title: "What viewers of the dashboard cost",
        method: format!(
            "`cargo xtask bench dashboard`: {rounds} rounds of windows of {seconds} s without and with {VIEWERS} viewers, in turns. \
             A sentry with one worker, three classes and three servers on core 0, {rate} requests/s from core 1."
        ),
        facts: machine::facts().into_iter().map(|(name, value)| (name.to_owned(), value)).collect(),
        figures: [0, VIEWERS].into_iter().filter_map(figure).collect(),
        sections: vec![Section { title: "Windows", text: table, data: raw.into() }],
        ..Report::default()
    };
    report.publish(folder)
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut sorted: Vec<f64> = values.collect();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn viewers_read_until_they_leave() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let viewer = Viewer::open(listener.local_addr().expect("an address")).expect("a viewer");
        let (mut stream, _) = listener.accept().expect("a connection");
        stream.write_all(b"data: 1\n\n").expect("sends");
        let deadline = Instant::now() + Duration::from_secs(10);
        while viewer.bytes.load(Relaxed) < 9 && Instant::now() < deadline {
            thread::yield_now();
        }
        assert_eq!(viewer.bytes.load(Relaxed), 9);
        drop(viewer);
        assert_eq!(median([3.0, 1.0, 2.0].into_iter()), 2.0);
    }
}
