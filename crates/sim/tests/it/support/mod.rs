//! Named worlds, and how their runs are written down.

use std::fmt::Write;
use std::time::Duration;

use tidegate_engine::{AdmissionConfig, ClassSetup, Event, ServerSetup, Setup, Sla, Statistic};
use tidegate_sim::{Discipline, Fault, FaultKind, Report, ServerModel, Stream, Url, World};
use tidegate_workload::Course;
use tidegate_workload::{ArrivalProcess, ServiceTime};

/// Classes of the experiments, most important first.
pub const CLASSES: [&str; 3] = ["gold", "silver", "bronze"];

/// An admission policy from its JSON.
pub fn admission(text: &str) -> AdmissionConfig {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// Servers of `k` processors each under `policy`, nothing known of them, nothing arriving yet; target 1 s at p95.
pub fn world(servers: usize, k: f64, target: Duration, policy: AdmissionConfig) -> World {
    let sla = Sla::constant(Statistic::P95, target).expect("more than zero");
    let mut setup = Setup::simple("world", sla, (0..servers).map(|i| ServerSetup::new(format!("s{i}"))));
    setup.classes = CLASSES.map(ClassSetup::new).to_vec();
    setup.admission = policy;
    let server = ServerModel::new(k, Discipline::ProcessorSharing);
    World::new(setup, vec![server; servers], Duration::from_secs(60))
}

/// The first server's speed changes.
pub fn speed(at: u64, speed: f64) -> Fault {
    let at = Duration::from_secs(at);
    Fault { at, tier: None, server: 0, what: FaultKind::Speed(speed), noticed_after: Duration::ZERO }
}

/// Poisson requests of a class for one URL.
pub fn stream(class: u8, profile: &str, cost: ServiceTime) -> Stream {
    let url = Url::new(u64::from(class) * 10 + 1, cost);
    let profile = profile.parse().unwrap_or_else(|error| panic!("{profile}: {error}"));
    Stream { class, profile, process: ArrivalProcess::Poisson, urls: vec![url], retry: None, deadline: None }
}

/// The paper's first experiment (figure 3): three servers of 60 requests per second each.
pub fn c1(policy: AdmissionConfig, cost: ServiceTime) -> World {
    let mut world = world(3, 1.0, Duration::from_secs(1), policy);
    let profiles = ["0s:30/s, 210s:200/s", "0s:30/s, 195s:120/s", "0s:30/s, 130s:160/s"];
    world.streams = (0..3).map(|class| stream(class as u8, profiles[class], cost)).collect();
    world.duration = Duration::from_secs(300);
    world
}

/// The service times of C1: one server completes 60 requests per second.
pub fn service_times() -> [(&'static str, ServiceTime); 3] {
    let mean = 1.0 / 60.0;
    [
        ("constant", ServiceTime::constant(mean).expect("positive")),
        ("uniform", ServiceTime::uniform(mean / 2.0, mean * 1.5).expect("positive")),
        ("exponential", ServiceTime::exponential(mean).expect("positive")),
    ]
}

/// A run in rows of ten seconds, then its events. Numbers are rounded to what is worth reading, so that another
/// machine's last digits do not show.
pub fn trajectory(report: &Report) -> String {
    let mut text = String::from("    from     admitted/s         refused/s     p95 s\n");
    let seconds = report.duration.as_secs() as usize;
    for from in (0..seconds).step_by(10) {
        let to = (from + 10).min(seconds);
        let spans: Vec<_> = (0..report.classes.len()).map(|class| report.span(class, from, to)).collect();
        let rate = |count: u32| format!("{:5}", (f64::from(count) / (to - from) as f64).round());
        let admitted: Vec<String> = spans.iter().map(|s| rate(s.offered.saturating_sub(s.refused))).collect();
        let refused: Vec<String> = spans.iter().map(|s| rate(s.refused)).collect();
        let p95 = report.span_all(from, to).quantile(0.95);
        writeln!(text, "{from:7}s {} {}   {p95:.2}", admitted.concat(), refused.concat()).expect("a string takes all");
    }
    let processors: Vec<String> = report.snapshot.servers.iter().map(|s| format!("{:.1}", s.processors)).collect();
    writeln!(text, "processors learned: {}", processors.join(" ")).expect("a string takes all");
    writeln!(text, "policy: {}", policy(report)).expect("a string takes all");
    for controller in report.snapshot.policy.own.list("controllers") {
        for class in controller.list("classes") {
            let name = controller.text("request_type").unwrap_or("all");
            let percentile =
                class.number("percentile").map_or("-".to_owned(), |percentile| format!("{percentile:.2} s"));
            let (class, rate) = (class.text("class").expect("a name"), class.number("rate").expect("a rate"));
            writeln!(text, "{name}, {class}: {rate:.1}/s, p90 {percentile}").expect("a string takes all");
        }
        writeln!(text, "quality: {:.2}", controller.number("quality").expect("a number")).expect("a string takes all");
    }
    text.push_str(&events(report));
    text
}

fn policy(report: &Report) -> String {
    let policy = &report.snapshot.policy;
    let delays: Vec<String> = policy.delays.iter().map(|delay| format!("{:.0} ms", delay * 1e3)).collect();
    let threshold = policy.threshold.map(|(class, share)| format!(", class {} at {share:.1}", class + 1));
    let limit = policy.limit.map(|limit| format!(", limit {limit:.0}"));
    let name = if policy.active.is_empty() { policy.policy } else { policy.active };
    let tail = threshold.or(limit).unwrap_or_default();
    format!("{name}, delays [{}]{tail}", delays.join(", "))
}

/// Switches, moves of servers, and beginnings and ends of refusals; of the frequent kinds only how many.
fn events(report: &Report) -> String {
    let mut text = String::new();
    let mut counts = std::collections::BTreeMap::new();
    for (at, event) in &report.events {
        match event {
            Event::Admission(facts) if facts.name() == "policy-switched" => {
                let [from, to, reason] = ["from", "to", "reason"].map(|key| facts.text(key).expect("a text"));
                writeln!(text, "{:7.1}s {from} -> {to}: {reason}", at.as_secs_f64()).expect("a string takes all");
            }
            Event::ServerMoved { server, from, to } => {
                writeln!(text, "{:7.1}s server {} from class {from} to {to}", at.as_secs_f64(), server.0)
                    .expect("a string takes all");
            }
            Event::PartitionsSet { servers } => {
                writeln!(text, "{:7.1}s servers by class: {servers:?}", at.as_secs_f64()).expect("a string takes all");
            }
            other => *counts.entry(other.name()).or_insert(0u32) += 1,
        }
    }
    for (name, count) in counts {
        writeln!(text, "{name}: {count}").expect("a string takes all");
    }
    text
}

/// The share of a class's requests that was admitted in the seconds `from..to`.
pub fn admitted_share(report: &Report, class: usize, from: usize, to: usize) -> f64 {
    let span = report.span(class, from, to);
    1.0 - f64::from(span.refused) / f64::from(span.offered.max(1))
}

/// Text, images and scripts as in C5, all of one class, each a stream of this profile: cheap, dear and in between.
pub fn sizes(profile: &str) -> Vec<Stream> {
    let uniform = |min: f64, max: f64| ServiceTime::uniform(min, max).expect("growing");
    // 1-8 kB, 64-128 kB, and scripts.
    let costs = [uniform(0.002, 0.008), uniform(0.030, 0.060), uniform(0.010, 0.020)];
    let stream = |(key, cost): (u64, &ServiceTime)| {
        let url = Url::new(key, *cost);
        Stream { urls: vec![url], ..stream(0, profile, *cost) }
    };
    (1..).zip(&costs).map(stream).collect()
}

/// The share of a stream's requests that was admitted, over the whole run.
pub fn admitted_of(course: &Course) -> f64 {
    let all = course.total();
    1.0 - all.refused as f64 / all.offered.max(1) as f64
}
