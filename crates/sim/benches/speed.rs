//! How fast the simulator is: happenings per second of one core's time, through the full path (arrival, decision,
//! dispatch, server, completion, estimates, report). Prints a Markdown table.
//!
//! Arguments are names of cases; without any, all but `million-100`, which takes minutes. `TIDEGATE_BENCH_SHORT=1`
//! plays a tenth.

use std::time::{Duration, Instant};

use tidegate_engine::{AdmissionConfig, ClassSetup, DispatchConfig, ServerSetup, Setup, Sla, Statistic};
use tidegate_sim::{Discipline, ServerModel, Stream, Url, World};
use tidegate_workload::Second;
use tidegate_workload::{ArrivalProcess, Profile, Rate, ServiceTime};

/// A world, and the happenings per second that it must reach.
struct Case {
    name: &'static str,
    admission: &'static str,
    dispatch: &'static str,
    servers: usize,
    /// Offered load as a share of capacity.
    load: f64,
    /// Million requests.
    requests: f64,
    /// Million happenings per second.
    bar: Option<f64>,
}

const CASES: &[Case] = &[
    case("threshold-2x", "threshold", "jsq", 10, 2.0, 6.0, Some(5.0)),
    case("threshold-0.9x", "threshold", "jsq", 10, 0.9, 3.0, Some(5.0)),
    case("batch-2x", "batch", "jsq", 10, 2.0, 4.0, Some(2.0)),
    case("batch-0.9x", "batch", "jsq", 10, 0.9, 3.0, Some(2.0)),
    case("none-0.9x", "none", "jsq", 10, 0.9, 3.0, None),
    case("thousand", "threshold", "jsq", 1000, 1.2, 2.0, None),
    // As benches/simpy/limited.py has it.
    case("simpy", "concurrency", "jsq", 10, 1.2, 2.0, None),
    case("million-100", "threshold", "jsq", 1000, 1.2, 100.0, None),
];

const fn case(
    name: &'static str,
    admission: &'static str,
    dispatch: &'static str,
    servers: usize,
    load: f64,
    requests: f64,
    bar: Option<f64>,
) -> Case {
    Case { name, admission, dispatch, servers, load, requests, bar }
}

/// Mean service time, seconds, and cores of a server.
const MEAN: f64 = 0.01;
const CORES: f64 = 4.0;
/// Requests in flight under policy `concurrency`.
const LIMIT: u32 = 60;

fn main() {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    // `cargo test --benches` runs this file too, to see that it works.
    let is_test = arguments.iter().any(|argument| argument == "--test");
    arguments.retain(|argument| !argument.starts_with("--"));
    let scale = match (is_test, std::env::var_os("TIDEGATE_BENCH_SHORT").is_some()) {
        (true, _) => 0.001,
        (false, true) => 0.1,
        (false, false) => 1.0,
    };
    println!(
        "| case | servers | policy | load | M requests | M happenings | s | CPU s | M/CPU s | bar | admitted | mean ms | memory MB |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|---|---|---|");
    for case in CASES {
        let wanted = arguments.iter().any(|name| name == case.name);
        if wanted || (arguments.is_empty() && case.name != "million-100") {
            case.measure(scale);
        }
    }
}

impl Case {
    fn measure(&self, scale: f64) {
        let world = self.world(scale);
        let (start, processor) = (Instant::now(), processor_seconds());
        let report = world.run(1).expect("the setup makes sense");
        let took = start.elapsed().as_secs_f64();
        // Processor time where it is known: the machine may have other things to do.
        let processor = processor_seconds().zip(processor).map_or(took, |(after, before)| after - before);
        let totals: Vec<_> = report.courses.iter().map(|course| course.total()).collect();
        let offered: u64 = totals.iter().map(|total| total.offered).sum();
        let admitted: u64 = totals.iter().map(|total| total.admitted()).sum();
        let weighted = |total: &Second| total.responses.mean().unwrap_or(0.0) * total.admitted() as f64;
        let mean = totals.iter().map(weighted).sum::<f64>() / admitted as f64 * 1e3;
        let happened = report.happenings as f64 / 1e6;
        let bar = self.bar.map_or("-".to_owned(), |bar| format!("{bar:.0}"));
        let memory = peak_memory_mb().map_or("?".to_owned(), |mb| mb.to_string());
        println!(
            "| {} | {} | {}, {} | {} x | {:.1} | {happened:.1} | {took:.2} | {processor:.2} | {:.2} | {bar} | {:.4} | {mean:.3} | {memory} |",
            self.name,
            self.servers,
            self.admission,
            self.dispatch,
            self.load,
            offered as f64 / 1e6,
            happened / processor,
            admitted as f64 / offered as f64,
        );
    }

    fn world(&self, scale: f64) -> World {
        let sla = Sla::constant(Statistic::P95, Duration::from_millis(500)).expect("more than zero");
        let mut setup = Setup::simple("speed", sla, (0..self.servers).map(|at| ServerSetup::new(format!("s{at}"))));
        setup.classes = ["gold", "silver", "bronze"].map(ClassSetup::new).to_vec();
        setup.admission = read::<AdmissionConfig>(self.admission);
        if let AdmissionConfig::Concurrency(config) = &mut setup.admission {
            config.limit = LIMIT;
        }
        setup.dispatch = read::<DispatchConfig>(self.dispatch);
        let capacity = self.servers as f64 * CORES / MEAN;
        let rate = capacity * self.load;
        let seconds = self.requests * 1e6 * scale / rate;
        let server = ServerModel::new(CORES, Discipline::ProcessorSharing);
        let mut world = World::new(setup, vec![server; self.servers], Duration::from_secs_f64(seconds));
        // As scenario files are played.
        world.by_answer = false;
        world.streams = [0.2, 0.3, 0.5].iter().zip(0..).map(|(share, class)| stream(class, rate * share)).collect();
        world
    }
}

fn stream(class: u8, rate: f64) -> Stream {
    let cost = ServiceTime::exponential(MEAN).expect("positive");
    let urls = (0..8).map(|url| Url::new(u64::from(class) * 100 + url, cost)).collect();
    let profile = Profile::constant(Rate::new(rate).expect("positive"));
    Stream { class, profile, process: ArrivalProcess::Poisson, urls, retry: None, deadline: None }
}

fn read<T: serde::de::DeserializeOwned>(policy: &str) -> T {
    serde_json::from_str(&format!(r#"{{ "policy": "{policy}" }}"#)).expect("a policy of the table")
}

/// Seconds that this process's thread was on a processor so far, by Linux's account.
fn processor_seconds() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    text.split_whitespace().next()?.parse::<u64>().ok().map(|nanos| nanos as f64 * 1e-9)
}

/// The most that this process had so far, by Linux's account.
fn peak_memory_mb() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.split_whitespace().next()?.parse::<u64>().ok().map(|kb| kb / 1024)
}
