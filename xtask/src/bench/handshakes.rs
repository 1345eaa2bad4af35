//! `cargo xtask bench handshakes`: a flood of TLS handshakes before a sentry, and what it does to those that it ought
//! not to touch.
//!
//! The sentry has one worker on core 0. A calm run learns what a full handshake costs there; the flood is that many
//! times more than the core could bear, from core 1, and costs its clients no cryptography: each sends the same
//! ClientHello, waits for the first byte or the reset, and leaves by a reset. Beside it ask, once without the flood and
//! once with it, clients who come back with their sessions, or clients of the most important class who come anew.

use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};
use serde_json::{Value, json};

use super::contender::start_origin;
use super::machine;
use super::proc_fs;
use super::proxy::{LOAD_CORE, PROXY_CORE};
use super::record_folder;
use super::report::{Report, Section, spread};
use super::service::{Service, free_address, pin};
use super::stop::Scratch;
use crate::args::Args;
use crate::command::{Profile, output};

/// Clients of the flood at once.
const FLOODERS: u32 = 64;
const PATIENCE: Duration = Duration::from_secs(1);

/// Who asks beside the flood.
struct World {
    name: &'static str,
    title: &'static str,
    /// How many a second, and further words for `tidegate load`.
    rate: u32,
    words: &'static [&'static str],
    /// What the sentry is told of classes.
    classes: &'static str,
}

const WORLDS: &[World] = &[
    World { name: "back", title: "clients who come back with their sessions", rate: 50, words: &[], classes: "" },
    World {
        name: "gold",
        title: "clients of the most important class who come anew",
        rate: 20,
        words: &["--full-handshakes"],
        classes: "\n[[application.class]]\nname = \"gold\"\nmatch = [{ network = \"127.0.0.1\" }]\n\n\
                  [[application.class]]\nname = \"rest\"\n",
    },
    World {
        name: "strangers",
        title: "strangers of the same class, whom nothing tells from the flood",
        rate: 20,
        words: &["--full-handshakes"],
        classes: "",
    },
];

/// One round of one world.
struct Outcome {
    /// Of those beside the flood, without it and with it: the 95th percentile in milliseconds, and the share answered.
    calm: (f64, f64),
    flooded: (f64, f64),
    /// Processor time of a full handshake, microseconds.
    full_us: f64,
    /// Of one that was refused: all that the process took in the flood besides handshakes, by those refused. One that
    /// the flood was given and left counts as a full one.
    refused_us: f64,
    /// A second: tried, refused.
    tried: f64,
    refused: f64,
}

/// Runs the flood, and writes what came of it.
///
/// # Errors
/// When a program is missing, or the sentry does not serve.
pub fn run(mut args: Args) -> Result<()> {
    let short = args.switch("--short");
    let rounds: usize = args.option("--rounds")?.unwrap_or(if short { 1 } else { 5 });
    let seconds: u64 = args.option("--seconds")?.unwrap_or(if short { 3 } else { 8 });
    let times: f64 = args.option("--times")?.unwrap_or(5.0);
    let folder = record_folder(&mut args)?;
    args.finish()?;
    if rounds == 0 || seconds == 0 || !(1.0..=100.0).contains(&times) {
        bail!("--rounds and --seconds must be at least 1, --times from 1 to 100");
    }
    Profile::Release.build()?;
    let scratch = Scratch::new("handshakes")?;
    make_certificate(scratch.path())?;
    let (origin, _) = start_origin(LOAD_CORE, scratch.path())?;
    let mut report = Report {
        name: "handshakes",
        title: "A flood of TLS handshakes",
        method: method(rounds, seconds, times),
        facts: machine::facts().into_iter().map(|(name, value)| (name.to_owned(), value)).collect(),
        ..Report::default()
    };
    let mut outcomes: Vec<Vec<Outcome>> = WORLDS.iter().map(|_| Vec::new()).collect();
    for round in 1..=rounds {
        for (world, outcomes) in WORLDS.iter().zip(&mut outcomes) {
            let outcome = play(world, seconds, times, origin.address, scratch.path())?;
            println!("round {round}: {:9} {}", world.name, outcome.row());
            outcomes.push(outcome);
        }
    }
    report.sections.push(section(&outcomes));
    report.publish(folder.as_deref())
}

fn method(rounds: usize, seconds: u64, times: f64) -> String {
    format!(
        "{rounds} interleaved rounds of {seconds} s without and {seconds} s with the flood, each with a sentry of its \
         own: one worker on core {PROXY_CORE}, RSA 2048; generators and the origin (nginx) share core {LOAD_CORE}. The \
         flood is {times} times what the core could bear by the cost of a handshake that the calm run shows; its \
         clients send a ClientHello that was recorded, and compute nothing. What a refusal takes is the process's time \
         besides handshakes, where those that the flood was given and left count as full ones; they take less, so this \
         is a lower bound. Medians, in brackets the range. Run again \
         with `cargo xtask bench handshakes --rounds {rounds} --seconds {seconds} --times {times} --record`, on a \
         machine that does nothing else."
    )
}

fn section(outcomes: &[Vec<Outcome>]) -> Section {
    let mut text = String::from(
        "| who asks | p95 ms without | p95 ms with | answered without | answered with | full handshake us | \
         refused one us | ratio | tried/s | refused/s |\n|---|---|---|---|---|---|---|---|---|---|\n",
    );
    for (world, outcomes) in WORLDS.iter().zip(outcomes) {
        let of = |value: fn(&Outcome) -> f64, digits| spread(outcomes.iter().map(value), digits);
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |",
            world.title,
            of(|outcome| outcome.calm.0, 1),
            of(|outcome| outcome.flooded.0, 1),
            of(|outcome| outcome.calm.1, 3),
            of(|outcome| outcome.flooded.1, 3),
            of(|outcome| outcome.full_us, 0),
            of(|outcome| outcome.refused_us, 1),
            of(|outcome| outcome.refused_us / outcome.full_us, 3),
            of(|outcome| outcome.tried, 0),
            of(|outcome| outcome.refused, 0),
        );
    }
    let data = WORLDS.iter().zip(outcomes).map(|(world, outcomes)| {
        json!({ "world": world.name, "rounds": outcomes.iter().map(Outcome::json).collect::<Vec<_>>() })
    });
    Section { title: "what became of whom", text, data: data.collect() }
}

impl Outcome {
    fn row(&self) -> String {
        format!(
            "p95 {:.1} to {:.1} ms, answered {:.3} to {:.3}, full {:.0} us, refused {:.1} us, {:.0} tried/s",
            self.calm.0, self.flooded.0, self.calm.1, self.flooded.1, self.full_us, self.refused_us, self.tried
        )
    }

    fn json(&self) -> Value {
        let beside = |(p95, answered): (f64, f64)| json!({ "p95_ms": p95, "answered": answered });
        json!({
            "calm": beside(self.calm), "flooded": beside(self.flooded), "full_us": self.full_us,
            "refused_us": self.refused_us, "tried_per_s": self.tried, "refused_per_s": self.refused,
        })
    }
}

fn play(world: &World, seconds: u64, times: f64, origin: SocketAddr, dir: &Path) -> Result<Outcome> {
    let (listen, admin) = (free_address()?, free_address()?);
    let file = dir.join(format!("{}.toml", world.name));
    let text = format!(
        "[sentry]\nworkers = 1\n\n[admin]\nlisten = \"{admin}\"\n\n[[application]]\nname = \"bench\"\n\
         listen = \"{listen}\"\nservers = [\"{origin}\"]\nlimits = {{ connections = 12000 }}\n\n\
         [[application.tls.certificate]]\ncert = \"rsa.pem\"\nkey = \"rsa-key.pem\"\n{}",
        world.classes
    );
    std::fs::write(&file, text)?;
    let mut command = Command::new(Profile::Release.tidegate());
    command.arg("run").arg("-c").arg(&file).current_dir(dir);
    let sentry = Service::start("tidegate", command, PROXY_CORE, listen, dir)?;
    learn(&sentry, admin)?;
    let calm = ask(world, &sentry, seconds)?;
    let (before, cpu) = (Told::by(admin)?, proc_fs::cpu_micros(sentry.pid())?);
    let full_us = before.full_us()?;
    let flood = Flood::start(listen, times * 1e6 / full_us)?;
    let began = Instant::now();
    let flooded = ask(world, &sentry, seconds)?;
    let elapsed = began.elapsed().as_secs_f64();
    let tried = flood.stop() as f64 / elapsed;
    let (after, cpu) = (Told::by(admin)?, proc_fs::cpu_micros(sentry.pid())? - cpu);
    let refused = after.refused - before.refused;
    if refused == 0.0 {
        bail!("the flood of {tried:.0} handshakes a second was no flood: none was refused");
    }
    let shaking = after.shaking_us - before.shaking_us + (after.failed - before.failed) * full_us;
    let refused_us = (cpu - shaking).max(0.0) / refused;
    Ok(Outcome { calm, flooded, full_us, refused_us, tried, refused: refused / elapsed })
}

/// What the sentry's metrics say of handshakes.
#[derive(Debug, Default)]
struct Told {
    full: f64,
    full_cpu_us: f64,
    refused: f64,
    failed: f64,
    shaking_us: f64,
}

impl Told {
    fn by(admin: SocketAddr) -> Result<Told> {
        let mut stream = TcpStream::connect(admin)?;
        stream.set_read_timeout(Some(10 * PATIENCE))?;
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")?;
        let mut page = String::new();
        stream.read_to_string(&mut page).context("the sentry's metrics")?;
        Ok(Told::read(&page))
    }

    fn read(page: &str) -> Told {
        let sum = |name: &str, label: &str| -> f64 {
            let of = page.lines().filter(|line| line.starts_with(name) && line.contains(label));
            of.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
        };
        let (done, cpu) = ("tidegate_handshakes_total{", "tidegate_handshake_cpu_seconds_total{");
        Told {
            full: sum(done, "outcome=\"full\""),
            full_cpu_us: 1e6 * sum(cpu, "kind=\"full\""),
            refused: sum(done, "outcome=\"refused\""),
            failed: sum(done, "outcome=\"failed\""),
            shaking_us: 1e6 * sum(cpu, ""),
        }
    }

    /// What a full handshake took so far.
    fn full_us(&self) -> Result<f64> {
        if self.full < 20.0 || self.full_cpu_us <= 0.0 {
            bail!("the sentry tells of {} full handshakes and {} us", self.full, self.full_cpu_us);
        }
        Ok(self.full_cpu_us / self.full)
    }
}

/// Full handshakes in calm, from which their cost is known.
fn learn(sentry: &Service, admin: SocketAddr) -> Result<()> {
    let world = World { name: "", title: "", rate: 100, words: &["--full-handshakes"], classes: "" };
    let (_, answered) = ask(&world, sentry, 2)?;
    if answered < 0.9 {
        bail!("in calm {answered:.2} of the requests were answered; metrics: {:?}", Told::by(admin)?);
    }
    Ok(())
}

/// The 95th percentile in milliseconds, and the share that was answered.
fn ask(world: &World, sentry: &Service, seconds: u64) -> Result<(f64, f64)> {
    let mut load = Command::new(Profile::Release.tidegate());
    load.args(["load", "--insecure", "--close", "--json", "-", "--timeout", "2s"]).args(world.words);
    load.args(["--rate", &format!("{}/s", world.rate), "--duration", &format!("{seconds}s")]);
    load.args(["--to", &format!("https://{}/1k", sentry.address)]);
    pin(&mut load, LOAD_CORE);
    let said: Value = serde_json::from_str(&output(&mut load)?).context("what `tidegate load` says")?;
    let number = |pointer: &str| said.pointer(pointer).and_then(Value::as_f64).context(pointer.to_owned());
    Ok((1e3 * number("/total/latency/p95")?, number("/total/admitted")? / number("/total/offered")?))
}

/// Clients that begin handshakes; all stop when it is told to.
struct Flood {
    is_over: Arc<AtomicBool>,
    tried: Arc<AtomicU64>,
    threads: Vec<thread::JoinHandle<()>>,
}

impl Flood {
    fn start(target: SocketAddr, rate: f64) -> Result<Flood> {
        let hello: Arc<[u8]> = client_hello()?.into();
        let (is_over, tried) = (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
        let every = Duration::from_secs_f64(f64::from(FLOODERS) / rate);
        let threads = (0..FLOODERS).map(|number| {
            let (is_over, tried, hello) = (is_over.clone(), tried.clone(), hello.clone());
            thread::spawn(move || {
                let mut cores = rustix::thread::CpuSet::new();
                cores.set(LOAD_CORE);
                let _ = rustix::thread::sched_setaffinity(None, &cores);
                let mut due = Instant::now() + every.mul_f64(f64::from(number) / f64::from(FLOODERS));
                let mut client = number;
                while !is_over.load(Relaxed) {
                    thread::sleep(due.saturating_duration_since(Instant::now()));
                    // Who is behind does not catch up.
                    due = (due + every).max(Instant::now());
                    tried.fetch_add(1, Relaxed);
                    client = client.wrapping_add(FLOODERS);
                    let _ = begin(client, target, &hello);
                }
            })
        });
        Ok(Flood { is_over: is_over.clone(), tried: tried.clone(), threads: threads.collect() })
    }

    /// How many were tried.
    fn stop(self) -> u64 {
        self.is_over.store(true, Relaxed);
        for thread in self.threads {
            let _ = thread.join();
        }
        self.tried.load(Relaxed)
    }
}

/// One handshake of a client of many, up to the first byte of an answer.
fn begin(client: u32, target: SocketAddr, hello: &[u8]) -> Result<()> {
    let SocketAddr::V4(target) = target else { bail!("{target} is no IPv4 address") };
    let [_, _, high, low] = (client % 16_384).to_be_bytes();
    let own = SocketAddrV4::new(Ipv4Addr::new(127, 1, high, low), 0);
    let socket = rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    sockopt::set_socket_linger(&socket, Some(Duration::ZERO))?;
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Send, Some(PATIENCE))?;
    rustix::net::bind(&socket, &own)?;
    rustix::net::connect(&socket, &target)?;
    let mut stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(hello)?;
    let _ = stream.read(&mut [0])?;
    Ok(())
}

/// What openssl begins a handshake with.
fn client_hello() -> Result<Vec<u8>> {
    let listener = TcpListener::bind(("127.0.0.1", 0))?;
    let mut openssl = Command::new("openssl");
    openssl.args(["s_client", "-connect", &listener.local_addr()?.to_string(), "-servername", "bench.test"]);
    openssl.stdin(std::process::Stdio::null()).stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
    let mut openssl = openssl.spawn().context("openssl (Debian package openssl) begins a handshake")?;
    let (mut stream, _) = listener.accept()?;
    stream.set_read_timeout(Some(10 * PATIENCE))?;
    let mut head = [0; 5];
    stream.read_exact(&mut head)?;
    let mut record = vec![0; usize::from(u16::from_be_bytes([head[3], head[4]]))];
    stream.read_exact(&mut record)?;
    drop(stream);
    openssl.wait()?;
    Ok([&head[..], &record].concat())
}

fn make_certificate(dir: &Path) -> Result<()> {
    let mut openssl = Command::new("openssl");
    openssl.args(["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]);
    openssl.args(["-keyout", "rsa-key.pem", "-out", "rsa.pem"]).current_dir(dir);
    output(&mut openssl).context("openssl (Debian package openssl) makes a certificate")?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_the_metrics_say() {
        let page = "tidegate_handshakes_total{application=\"a\",outcome=\"full\"} 40\n\
                    tidegate_handshakes_total{application=\"a\",outcome=\"refused\"} 7\n\
                    tidegate_handshake_cpu_seconds_total{application=\"a\",kind=\"full\"} 0.02\n\
                    tidegate_handshake_cpu_seconds_total{application=\"a\",kind=\"resumed\"} 0.01\n";
        let told = Told::read(page);
        assert_eq!((told.full, told.refused), (40.0, 7.0));
        assert!((told.full_us().unwrap() - 500.0).abs() < 1e-9 && (told.shaking_us - 30_000.0).abs() < 1e-9);
        assert!(Told::default().full_us().is_err());
    }

    #[test]
    fn a_recorded_hello_is_the_beginning_of_a_handshake() {
        let hello = client_hello().unwrap();
        assert_eq!((hello[0], hello[5]), (22, 1));
        assert_eq!(usize::from(u16::from_be_bytes([hello[3], hello[4]])), hello.len() - 5);
    }
}
