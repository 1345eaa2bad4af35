//! Waiting in the sentry, beside `sentry`: the worlds in which it matters where requests wait.

use std::time::Duration;

use tidegate_sim::{Fault, Link, World};
use tidegate_workload::ServiceTime;

use crate::support::{admission, admitted_share, speed, stream, world};

/// A world, the seconds that are judged, and what could be answered in time there by somebody who knows everything.
struct Trial {
    name: &'static str,
    processors: f64,
    target: Duration,
    cost: ServiceTime,
    load: String,
    faults: Vec<Fault>,
    judged: (usize, usize),
    /// Answers per second; `None`: all that is offered.
    ideal: Option<f64>,
    /// The least share of it.
    least: f64,
}

impl Trial {
    fn world(&self, policy: &str) -> World {
        let policy = admission(&format!(r#"{{ "policy": "{policy}" }}"#));
        let mut world = world(1, self.processors, self.target, policy);
        world.streams = vec![stream(1, &self.load, self.cost)];
        world.faults.clone_from(&self.faults);
        world.duration = Duration::from_secs(self.judged.1 as u64);
        world
    }

    /// Goodput as a share of the ideal, and the 95th percentile over the target.
    fn run(&self, policy: &str, seed: u64) -> (f64, f64) {
        let report = self.world(policy).run(seed).expect("the setup makes sense");
        let (from, to) = self.judged;
        let span = report.span_all(from, to);
        let ideal = self.ideal.map_or(f64::from(span.offered), |rate| rate * (to - from) as f64);
        (f64::from(span.in_target) / ideal, span.quantile(0.95) / self.target.as_secs_f64())
    }
}

fn exponential(ms: f64) -> ServiceTime {
    ServiceTime::exponential(ms / 1e3).expect("positive")
}

/// A tenth of each second at 600, the rest at 20 per second.
fn bursts(seconds: u32) -> String {
    let entries: Vec<String> =
        (0..seconds).map(|s| format!("{}ms:600/s, {}ms:20/s", s * 1000, s * 1000 + 100)).collect();
    entries.join(", ")
}

fn trials() -> Vec<Trial> {
    let four = |name, load: &str, judged, ideal, least| Trial {
        name,
        processors: 4.0,
        target: Duration::from_millis(500),
        cost: exponential(40.0),
        load: load.into(),
        faults: Vec::new(),
        judged,
        ideal,
        least,
    };
    let lognormal = ServiceTime::lognormal(0.3, 0.5).expect("positive");
    let many = |trial: Trial| Trial { processors: 64.0, target: Duration::from_secs(1), cost: lognormal, ..trial };
    vec![
        four("0.8x", "80/s", (0, 40), None, 0.98),
        four("1.4x", "0s:80/s, 8s:140/s", (8, 40), Some(100.0), 0.95),
        four("2x", "0s:80/s, 8s:200/s", (8, 40), Some(100.0), 0.95),
        four("5x", "0s:80/s, 8s:500/s", (8, 40), Some(100.0), 0.95),
        // Whoever knows the processors gets 0.93; `sentry` has 0.65.
        Trial { faults: vec![speed(20, 1.0 / 3.0)], ..four("slower", "80/s", (20, 50), Some(100.0 / 3.0), 0.85) },
        Trial { faults: vec![speed(20, 3.0)], ..four("faster", "200/s", (20, 50), None, 0.97) },
        // `sentry` has 0.55. 0.84 while a URL's cost moved by chance, and all its requests with it.
        four("bursts", &bursts(40), (0, 40), None, 0.85),
        four("cold 0.6x", "60/s", (0, 20), None, 0.98),
        four("cold 3x", "300/s", (0, 30), Some(100.0), 0.8),
        many(four("64 cold", "107/s", (0, 30), None, 0.9)),
        // `sentry` has 0.88. 0.81 while fewer places were tried before anything had slowed anybody down.
        Trial { processors: 256.0, ..many(four("256 cold", "512/s", (0, 20), None, 0.88)) },
        // 0.94 while there were twice as many places again before half of those that began with the last had ended.
        many(four("64 2x", "0s:171/s, 8s:427/s", (8, 40), Some(213.3), 0.95)),
        Trial { processors: 256.0, ..many(four("256 2x", "0s:683/s, 6s:1707/s", (6, 20), Some(853.3), 0.94)) },
    ]
}

/// Seeds on which nothing was tuned: 1 to 10, 101 to 105 and 201 to 210 were for that.
const SEEDS: std::ops::Range<u64> = 301..311;

#[test]
fn servers_that_hold_few_answer_as_much_in_time_and_sooner() {
    let mut missed = Vec::new();
    println!("world      policy   goodput (seeds)                      p95/target");
    for trial in trials() {
        let [there, here] = ["sentry", "waiting"].map(|policy| {
            let runs: Vec<(f64, f64)> = SEEDS.map(|seed| trial.run(policy, seed)).collect();
            let mean = |of: fn(&(f64, f64)) -> f64| runs.iter().map(of).sum::<f64>() / runs.len() as f64;
            let (goodput, p95) = (mean(|run| run.0), mean(|run| run.1));
            let each: Vec<String> = runs.iter().map(|run| format!("{:.3}", run.0)).collect();
            println!("{:10} {policy:8} {goodput:.3} ({}) {p95:.2}", trial.name, each.join(" "));
            (goodput, p95)
        });
        missed.extend((here.0 < trial.least).then(|| format!("{}: {}, {} is due", trial.name, here.0, trial.least)));
        missed
            .extend((here.0 < there.0 - 0.03).then(|| format!("{}: {}, `sentry` has {}", trial.name, here.0, there.0)));
        missed.extend((here.1 > 1.0).then(|| format!("{}: p95 at {} of the target", trial.name, here.1)));
    }
    assert!(missed.is_empty(), "{missed:#?}");
}

/// Three servers of two processors, 120 requests per second together; 300 arrive, of which gold has 40, silver 60.
#[test]
fn the_more_important_goes_first_and_the_rest_fills_the_servers() {
    // The least of gold was 0.91 while fewer places were not tried. 0.98 was asked for while small requests went first
    // by default; where every cost has its part, one seed has 0.979, as W is taken for 6 for half a minute.
    for (order, least) in [("smallest-first", 0.98), ("fair", 0.95)] {
        let mut mean = [0.0; 4];
        // A run's share of silver is off by 0.02 and more; so there are forty.
        for seed in SEEDS.start..SEEDS.start + 40 {
            let policy = admission(&format!(r#"{{ "policy": "waiting", "order": "{order}" }}"#));
            let mut world = world(3, 2.0, Duration::from_millis(500), policy);
            let rates = ["40/s", "60/s", "200/s"];
            world.streams = (0..3).map(|class| stream(class as u8, rates[class], exponential(50.0))).collect();
            let report = world.run(seed).expect("the setup makes sense");
            let [gold, silver, bronze] = [0, 1, 2].map(|class| admitted_share(&report, class, 20, 60));
            let goodput = f64::from(report.span_all(20, 60).in_target) / 40.0;
            println!("{order}, {seed}: admitted {gold:.3} {silver:.3} {bronze:.3}, {goodput:.1} of 120/s in time");
            assert!(gold > least && silver > bronze, "{order}, seed {seed}: {gold} {silver} {bronze}");
            mean.iter_mut().zip([gold, silver, bronze, goodput]).for_each(|(mean, value)| *mean += value / 40.0);
        }
        // 0.92 of silver while a URL's cost moved by chance, and all its requests with it.
        let [gold, silver, bronze, goodput] = mean;
        let is_whole = gold > 0.995 && silver > 0.95;
        assert!(is_whole && bronze < 0.2 && goodput > 0.95 * 120.0, "{order}: {mean:?}");
    }
}

/// Three servers of two processors, 600 requests per second together, and a link that takes 500 answers: what comes
/// over it is not done when a server is.
#[test]
fn a_link_that_is_narrower_than_servers_are_fast_is_kept_busy_and_no_more() {
    let run = |bronze: &str, seed: u64| {
        let mut world = world(3, 2.0, Duration::from_millis(500), admission(r#"{ "policy": "waiting" }"#));
        world.link = Some(Link { rate: Some(25e6), latency: Duration::ZERO });
        world.streams =
            [(0, "150/s"), (2, bronze)].map(|(class, rate)| stream(class, rate, exponential(10.0))).to_vec();
        world.streams.iter_mut().for_each(|stream| stream.urls[0].bytes = 50_000);
        world.duration = Duration::from_secs(40);
        let report = world.run(seed).expect("the setup makes sense");
        let [gold, bronze] = [0, 2].map(|class| admitted_share(&report, class, 12, 40));
        let span = report.span_all(12, 40);
        println!(
            "{seed}: {gold:.3} {bronze:.3}, {:.1}/s, p95 {:.2}",
            f64::from(span.in_target) / 28.0,
            span.quantile(0.95)
        );
        (gold, bronze, f64::from(span.in_target) / 28.0, span.quantile(0.95))
    };
    let mut bronze_of_all = 0.0;
    for seed in SEEDS {
        // 0.87 of what the link takes.
        let (gold, bronze, ..) = run("285/s", seed);
        // Of 80 seeds three have between 0.92 and 0.98, as before cold starts were compared lot by lot; until then none
        // was among these ten, and each had to have 0.98.
        assert!(gold > 0.99 && bronze > 0.9, "seed {seed}: {gold} {bronze}");
        bronze_of_all += bronze / 10.0;
        // Without the time over the link, and without soft knees, 0.83 of 500/s.
        let (gold, _, goodput, p95) = run("0s:200/s, 10s:1000/s", seed);
        assert!(gold > 0.99 && goodput > 0.9 * 500.0 && p95 < 0.5, "seed {seed}: {gold} {goodput} {p95}");
    }
    assert!(bronze_of_all > 0.98, "{bronze_of_all}");
}

/// Three servers of eight processors, 126 requests per second together, of which the slowest twentieth takes two thirds
/// of the target alone: while more places are tried, there is next to no time to wait. 225 arrive; 60 are gold's, and
/// 75 silver's.
#[test]
fn the_more_important_goes_first_where_there_is_hardly_time_to_wait() {
    let mut mean = [0.0; 3];
    for seed in SEEDS {
        let mut world = world(3, 8.0, Duration::from_millis(500), admission(r#"{ "policy": "waiting" }"#));
        let rate = |calm: u32| format!("0s:{calm}/s, 20s..30s:{calm}/s->{0}/s, 30s:{0}/s", 3 * calm);
        let cost = ServiceTime::lognormal(0.19, 0.4).expect("positive");
        world.streams = [(0, 20), (1, 25), (2, 30)].map(|(class, calm)| stream(class, &rate(calm), cost)).to_vec();
        world.duration = Duration::from_secs(120);
        let report = world.run(seed).expect("the setup makes sense");
        let gold = admitted_share(&report, 0, 40, 120);
        let span = report.span_all(40, 120);
        let (goodput, p95) = (f64::from(span.in_target) / 80.0, span.quantile(0.95));
        println!("{seed}: admitted {gold:.3} of gold, {goodput:.1} in time per second of 126, p95 {p95:.3} s");
        mean.iter_mut().zip([gold, goodput, p95]).for_each(|(mean, value)| *mean += value / 10.0);
    }
    // 0.96 of gold while more places left no time, and whoever would be in time by 0.94 was refused for bronze.
    let [gold, goodput, p95] = mean;
    assert!(gold > 0.99 && goodput > 0.93 * 126.0 && p95 <= 0.5, "{mean:?}");
}

/// One processor, at three times what it can do after a minute of nothing: half of the requests take 5 ms, three of ten
/// 10 ms, one of five 30 ms.
#[test]
fn who_was_idle_for_long_starts_as_if_it_were_new() {
    let mut first = 0.0;
    for seed in SEEDS {
        let mut world = world(1, 1.0, Duration::from_millis(500), admission(r#"{ "policy": "waiting" }"#));
        let kind = |(rate, ms): (u32, f64)| {
            let cost = ServiceTime::constant(ms / 1e3).expect("positive");
            stream(0, &format!("0s:0/s, 60s:{rate}/s"), cost)
        };
        world.streams = [(130, 5.0), (78, 10.0), (52, 30.0)].map(kind).to_vec();
        world.duration = Duration::from_secs(70);
        let report = world.run(seed).expect("the setup makes sense");
        let [start, rest] = [(60, 63), (62, 70)].map(|(from, to)| report.span_all(from, to).quantile(0.95));
        println!("{seed}: p95 {start:.3} s in the first three seconds, then {rest:.3} s");
        // At three times the load from the first request, two seconds are given until the target is kept.
        assert!(rest < 0.5, "seed {seed}: {rest}");
        first += start / 10.0;
    }
    // 1.03 s while the minute counted as the time that the first requests had taken, and 0.59 without it.
    assert!(first < 0.75, "{first}");
}
