//! What the reports of a thousand nuclei, ten times a second each, cost the sentry: processor time of the thread that
//! listens. `cargo bench -p tidegate-sentry --bench reports`.

use std::net::UdpSocket;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate_sentry::Sentry;
use tidegate_sentry::config::{Config, OneLine, Reports, WhenSilent};
use tidegate_sentry::record::NoRecords;
use tidegate_wire::{Gauge, Gauges, Keys, Kind, MAX_DATAGRAM, Message, ReportWriter, Sender};

const SERVERS: usize = 1000;
const INTERVAL: Duration = Duration::from_millis(100);
const ROUNDS: usize = 5;
const INTERVALS: u32 = 20;
/// The reports of an interval are spread over it.
const SLICES: usize = 50;

fn main() {
    let keys = Keys::derive(b"the key of the benchmark");
    let names: Vec<String> = (0..SERVERS).map(|i| format!("127.0.{}.{}:9", i / 250, i % 250 + 1)).collect();
    let mut config = Config::one_line(OneLine { to: names.clone(), ..OneLine::default() }).expect("valid").config;
    config.sentry.workers = 1;
    config.applications[0].listen = vec![([127, 0, 0, 1], 0).into()];
    config.applications[0].health.interval = Duration::from_secs(3600);
    config.reports = Some(Reports {
        listen: ([127, 0, 0, 1], 0).into(),
        key_file: PathBuf::new(),
        keys: keys.clone(),
        silent_after: Some(Duration::from_secs(10)),
        when_silent: WhenSilent::Exclude,
    });
    let sentry = Sentry::start(config, Arc::new(NoRecords)).expect("a sentry");
    let view = sentry.reports().expect("a listener").clone();
    let socket = UdpSocket::bind(("127.0.0.1", 0)).expect("a port");
    socket.connect(view.address()).expect("connected");
    let mut senders: Vec<Sender> = (0..SERVERS as u64).map(|boot| Sender::new(boot + 1)).collect();
    // Two intervals to open the sessions.
    (0..2).for_each(|_| interval(&socket, &keys, &names, &mut senders));
    let mut shares = Vec::new();
    for _ in 0..ROUNDS {
        let (taken, used, began) = (view.counts().taken(), cpu_seconds(), Instant::now());
        (0..INTERVALS).for_each(|_| interval(&socket, &keys, &names, &mut senders));
        let (used, taken) = (cpu_seconds() - used, view.counts().taken() - taken);
        let share = used / began.elapsed().as_secs_f64();
        println!("{taken} reports: {:.2} % of a processor, {:.2} us each", share * 100.0, used / taken as f64 * 1e6);
        shares.push(share);
    }
    shares.sort_by(f64::total_cmp);
    println!("median {:.2} %", shares[ROUNDS / 2] * 100.0);
}

/// Every server reports once, spread over an interval; challenges are taken.
fn interval(socket: &UdpSocket, keys: &Keys, names: &[String], senders: &mut [Sender]) {
    let mut gauges = Gauges::default();
    Gauge::ALL.iter().filter(|gauge| **gauge != Gauge::Processors).for_each(|&gauge| gauges.set(gauge, 1.0));
    gauges.set(Gauge::Interval, INTERVAL.as_secs_f64());
    gauges.set(Gauge::QueueingDelay, 0.01);
    let mut buffer = [0; MAX_DATAGRAM];
    let began = Instant::now();
    let per_slice = names.len().div_ceil(SLICES);
    for (slice, names_of_slice) in names.chunks(per_slice).enumerate() {
        for (at, name) in names_of_slice.iter().enumerate() {
            let header = senders[slice * per_slice + at].next(Kind::Report);
            let length = ReportWriter::new(&mut buffer, name, &gauges).finish(&keys.first(), &header);
            let _ = socket.send(&buffer[..length]);
        }
        let next = began + INTERVAL * (slice as u32 + 1) / SLICES as u32;
        // Answers are heard until the next slice is due: that paces it, too.
        loop {
            let left = next.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            socket.set_read_timeout(Some(left)).expect("more than zero");
            let Ok(length) = socket.recv(&mut buffer) else { continue };
            let message = Message::read(keys, &buffer[..length]).expect("sound");
            let at = message.header.boot as usize - 1;
            let _ = senders[at].hear(&message, &names[at]);
        }
    }
}

/// Processor time of the thread that listens, seconds.
fn cpu_seconds() -> f64 {
    let tasks = std::fs::read_dir("/proc/self/task").expect("threads");
    let used = |task: std::fs::DirEntry| {
        let name = std::fs::read_to_string(task.path().join("comm")).ok()?;
        let text = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
        (name.trim() == "tidegate-report").then(|| text.split(' ').next()?.parse::<f64>().ok())?
    };
    tasks.filter_map(|task| used(task.ok()?)).sum::<f64>() * 1e-9
}
