//! What a stage costs per event beside a bare tokio channel, and what the tower layer costs per call.
//!
//! Everything runs on one thread. Figures are medians over interleaved rounds, with the fastest and the slowest: a
//! round times the bare way and ours one after the other, and the ratio is taken within the round, so that a busy
//! machine spoils few. `TIDEGATE_BENCH_SHORT=1` takes fewer rounds; `TIDEGATE_BENCH_ONLY=NAME` runs one way of work
//! alone, for counting instructions.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context as TaskContext, Poll};
use std::time::{Duration, Instant};

use tidegate_stage::{
    Admission, AdmissionLayer, Batch, ClassId, Context, Entry, Event, Graph, GraphBuilder, Handler, Parameters,
    Refused, Sender, Settings, each,
};
use tokio::runtime::{Builder, Runtime};
use tower_layer::Layer;
use tower_service::Service;

const FIRST: ClassId = ClassId(0);
const EVENTS: u64 = 65_536;

fn main() {
    // `cargo test --benches` runs this file too, to see that it works.
    let is_test = std::env::args().any(|argument| argument == "--test");
    let short = is_test || std::env::var_os("TIDEGATE_BENCH_SHORT").is_some();
    let rounds = if short { 9 } else { 101 };
    if let Ok(name) = std::env::var("TIDEGATE_BENCH_ONLY") {
        tidegate_stage::use_processor_clock();
        return alone(&name, rounds);
    }
    table("the system's clock", rounds);
    // The bars are for services that need such speed, and those ask for it.
    tidegate_stage::use_processor_clock();
    table("the processor's clock (`use_processor_clock`)", rounds);
}

fn table(clock: &str, rounds: usize) {
    println!("## With {clock}\n");
    println!("| what | ns per event | fastest | slowest | beside bare | bar |\n|---|---|---|---|---|---|");
    hops(rounds);
    pipeline(rounds);
    tower(rounds);
    println!();
}

/// One way of work, so that a tool can count what it costs.
fn alone(name: &str, rounds: usize) {
    let (mut bare, mut ones) = (Bare::new(1024), Hop::new(settings(1), One::Each));
    let mut batches = Hop::new(settings(64), One::Whole);
    let (mut calls, mut plain) = (Calls::new(true), Calls::new(false));
    let mut pipeline = Pipeline::new();
    for _ in 0..rounds {
        let _time = match name {
            "bare" => bare.run(64),
            "ones" => ones.run(64),
            "batches" => batches.run(64),
            "batches-all" => batches.run_together(64),
            "pipeline" => pipeline.run(),
            "tower" => calls.run(),
            "plain" => plain.run(),
            other => {
                eprintln!("there is no `{other}`; there are bare, ones, batches, batches-all, pipeline, tower, plain");
                std::process::exit(2);
            }
        };
    }
}

fn hops(rounds: usize) {
    for (what, burst, bar) in [("one event, then the other side", 1, 1.5), ("batches of one, 64 waiting", 64, 1.5)] {
        let (mut bare, mut stage) = (Bare::new(1024), Hop::new(settings(1), One::Each));
        compare(what, rounds, Some(bar), || bare.run(burst), || stage.run(burst));
    }
    for limit in [16, 64] {
        let (mut bare, mut stage) = (Bare::new(1024), Hop::new(settings(limit), One::Whole));
        let what = format!("batches of {limit}, sent one by one");
        compare(&what, rounds, Some(1.0), || bare.run(64), || stage.run(64));
        let what = format!("batches of {limit}, sent {limit} at once");
        compare(&what, rounds, Some(1.0), || bare.run(64), || stage.run_together(limit as u64));
    }
}

fn pipeline(rounds: usize) {
    let mut pipeline = Pipeline::new();
    pipeline.run();
    let times: Vec<f64> = (0..rounds).map(|_| per_event(pipeline.run())).collect();
    let rate = 1e3 / median(&times);
    let verdict = if rate >= 1.0 { "held" } else { "MISSED" };
    row("three stages on one core", &times, &format!("{rate:.2} million/s"), &format!("1 million/s {verdict}"));
}

fn tower(rounds: usize) {
    let (mut plain, mut guarded) = (Calls::new(false), Calls::new(true));
    let mut added = Vec::new();
    for _ in 0..rounds {
        let bare = per_event(plain.run());
        added.push(per_event(guarded.run()) - bare);
    }
    let verdict = if median(&added) <= 150.0 { "held" } else { "MISSED" };
    row("tower layer, added to a call", &added, "", &format!("150 ns {verdict}"));
}

/// Times the two ways in turns; prints what ours costs, and the ratio.
fn compare(
    what: &str,
    rounds: usize,
    bar: Option<f64>,
    mut bare: impl FnMut() -> Duration,
    mut ours: impl FnMut() -> Duration,
) {
    bare();
    ours();
    let mut times = Vec::new();
    let mut ratios = Vec::new();
    for _ in 0..rounds {
        let (theirs, mine) = (per_event(bare()), per_event(ours()));
        times.push(mine);
        ratios.push(mine / theirs);
    }
    let ratio = median(&ratios);
    ratios.sort_by(f64::total_cmp);
    let (least, most) = (ratios[ratios.len() / 10], ratios[ratios.len() * 9 / 10]);
    let verdict = |bar| if ratio <= bar { "held" } else { "MISSED" };
    let bar = bar.map_or(String::new(), |bar| format!("{bar} {}", verdict(bar)));
    row(what, &times, &format!("{ratio:.2} ({least:.2} to {most:.2})"), &bar);
}

fn row(what: &str, times: &[f64], ratio: &str, bar: &str) {
    let least = times.iter().copied().fold(f64::INFINITY, f64::min);
    let most = times.iter().copied().fold(0.0, f64::max);
    println!("| {what} | {:.1} | {least:.1} | {most:.1} | {ratio} | {bar} |", median(times));
}

fn median(values: &[f64]) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn per_event(time: Duration) -> f64 {
    time.as_secs_f64() * 1e9 / EVENTS as f64
}

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_time().build().expect("a runtime")
}

/// The controller is on, and has no reason to refuse.
fn settings(batch: usize) -> Settings {
    let parameters = Parameters { initial_rate: 1e9, max_rate: 1e9, depth: 1e6, ..Parameters::default() };
    Settings::target(Duration::from_secs(10)).parameters(parameters).workers(1, 1).batch(batch, batch)
}

/// A bounded channel of tokio, and a task that takes one event after the other.
struct Bare {
    runtime: Runtime,
    sender: tokio::sync::mpsc::Sender<u64>,
    seen: Arc<AtomicU64>,
}

impl Bare {
    fn new(bound: usize) -> Self {
        let runtime = runtime();
        let (sender, mut receiver) = tokio::sync::mpsc::channel(bound);
        let seen = Arc::new(AtomicU64::new(0));
        let counted = seen.clone();
        runtime.spawn(async move {
            while let Some(event) = receiver.recv().await {
                count(&counted, black_box(event));
            }
        });
        Bare { runtime, sender, seen }
    }

    fn run(&mut self, burst: u64) -> Duration {
        let (sender, seen) = (&self.sender, &self.seen);
        self.runtime.block_on(in_bursts(burst, seen, || sender.try_send(1).expect("room")))
    }
}

/// One stage.
struct Hop {
    runtime: Runtime,
    entry: Entry<u64>,
    sender: Sender<u64>,
    seen: Arc<AtomicU64>,
    _graph: Graph,
}

enum One {
    Each,
    Whole,
}

struct Whole(Arc<AtomicU64>);

impl Handler<u64> for Whole {
    async fn handle(&self, batch: &mut Batch<u64>, _context: &Context) {
        let sum = batch.take().map(|event| black_box(event.body)).sum();
        count(&self.0, sum);
    }
}

impl Hop {
    fn new(settings: Settings, one: One) -> Self {
        let runtime = runtime();
        let entered = runtime.enter();
        let seen = Arc::new(AtomicU64::new(0));
        let counted = seen.clone();
        let mut builder = GraphBuilder::new("bench");
        let stage = builder.stage("stage", settings);
        match one {
            One::Each => builder.handle(
                &stage,
                each(move |event: Event<u64>, _: &Context| {
                    count(&counted, black_box(event.body));
                    ready(())
                }),
            ),
            One::Whole => builder.handle(&stage, Whole(counted)),
        }
        let entry = builder.entry(&stage);
        let sender = builder.link(&stage, &stage);
        let graph = builder.start().expect("a sound graph");
        drop(entered);
        Hop { runtime, entry, sender, seen, _graph: graph }
    }

    fn run(&mut self, burst: u64) -> Duration {
        let (entry, seen) = (&self.entry, &self.seen);
        self.runtime.block_on(in_bursts(burst, seen, || entry.try_send(FIRST, 1).expect("room")))
    }

    /// Sends each burst under one lock.
    fn run_together(&mut self, burst: u64) -> Duration {
        let (sender, seen) = (&self.sender, &self.seen);
        let mut refused: Vec<Refused<u64>> = Vec::new();
        self.runtime.block_on(async {
            let until = seen.load(Ordering::Relaxed) + EVENTS;
            let start = Instant::now();
            for _ in 0..EVENTS / burst {
                let first = Event::new(FIRST, 1);
                sender.try_send_all((0..burst).map(|_| first.clone()), &mut refused);
                tokio::task::yield_now().await;
            }
            assert!(refused.is_empty());
            until_seen(seen, until).await;
            start.elapsed()
        })
    }
}

/// Three stages, each of which sends its whole batch on.
struct Pipeline {
    runtime: Runtime,
    entry: Entry<u64>,
    seen: Arc<AtomicU64>,
    _graph: Graph,
}

struct PassOn(Sender<u64>);

impl Handler<u64> for PassOn {
    async fn handle(&self, batch: &mut Batch<u64>, _context: &Context) {
        let mut refused = Vec::new();
        self.0.try_send_all(batch.take(), &mut refused);
        assert!(refused.is_empty());
    }
}

impl Pipeline {
    fn new() -> Self {
        let runtime = runtime();
        let entered = runtime.enter();
        let seen = Arc::new(AtomicU64::new(0));
        let mut builder = GraphBuilder::new("bench");
        let [a, b, c] = ["a", "b", "c"].map(|name| builder.stage::<u64>(name, settings(64)));
        let (to_b, to_c) = (builder.link(&a, &b), builder.link(&b, &c));
        builder.handle(&a, PassOn(to_b));
        builder.handle(&b, PassOn(to_c));
        builder.handle(&c, Whole(seen.clone()));
        let entry = builder.entry(&a);
        let graph = builder.start().expect("a sound graph");
        drop(entered);
        Pipeline { runtime, entry, seen, _graph: graph }
    }

    fn run(&mut self) -> Duration {
        let (entry, seen) = (&self.entry, &self.seen);
        self.runtime.block_on(in_bursts(256, seen, || entry.try_send(FIRST, 1).expect("room")))
    }
}

/// Calls to a service that answers at once.
struct Calls {
    guarded: Option<tidegate_stage::Admitted<Echo>>,
    plain: Echo,
}

#[derive(Clone)]
struct Echo;

impl Service<u64> for Echo {
    type Response = u64;
    type Error = Infallible;
    type Future = Ready<Result<u64, Infallible>>;

    fn poll_ready(&mut self, _cx: &mut TaskContext<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: u64) -> Self::Future {
        ready(Ok(black_box(request)))
    }
}

impl Calls {
    fn new(is_guarded: bool) -> Self {
        let layer = || AdmissionLayer::new(Admission::new("bench", &settings(1)).expect("sound settings"));
        Calls { guarded: is_guarded.then(|| layer().layer(Echo)), plain: Echo }
    }

    fn run(&mut self) -> Duration {
        // No runtime: what is measured is the call, and nothing of it waits.
        let mut cx = TaskContext::from_waker(std::task::Waker::noop());
        let start = Instant::now();
        for request in 0..EVENTS {
            match &mut self.guarded {
                Some(service) => {
                    let mut call = std::pin::pin!(service.call(black_box(request)));
                    assert!(matches!(call.as_mut().poll(&mut cx), Poll::Ready(Ok(_))));
                }
                None => {
                    let mut call = std::pin::pin!(self.plain.call(black_box(request)));
                    assert!(matches!(call.as_mut().poll(&mut cx), Poll::Ready(Ok(_))));
                }
            }
        }
        start.elapsed()
    }
}

/// Sends [`EVENTS`] in bursts, after each of which the other side has its turn; until all were seen.
async fn in_bursts(burst: u64, seen: &AtomicU64, mut send: impl FnMut()) -> Duration {
    let until = seen.load(Ordering::Relaxed) + EVENTS;
    let start = Instant::now();
    for _ in 0..EVENTS / burst {
        for _ in 0..burst {
            send();
        }
        tokio::task::yield_now().await;
    }
    until_seen(seen, until).await;
    start.elapsed()
}

async fn until_seen(seen: &AtomicU64, until: u64) {
    while seen.load(Ordering::Relaxed) < until {
        tokio::task::yield_now().await;
    }
}

/// A plain addition: there is one thread.
fn count(seen: &AtomicU64, by: u64) {
    seen.store(seen.load(Ordering::Relaxed) + by, Ordering::Relaxed);
}
