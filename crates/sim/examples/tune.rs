//! Scratch: tries policies.
use std::time::Duration;
use tidegate_engine::*;
use tidegate_sim::*;
use tidegate_workload::*;

fn c1(policy: AdmissionConfig, cost: &str, k: f64, disc: Discipline) -> World {
    let sla = Sla::constant(Statistic::P95, Duration::from_secs(1)).unwrap();
    let mut setup = Setup::simple("c1", sla, (0..3).map(|i| ServerSetup::new(format!("s{i}"))));
    setup.classes = ["gold", "silver", "bronze"].map(ClassSetup::new).to_vec();
    setup.admission = policy;
    let mean = k / 60.0;
    let cost = match cost {
        "exp" => ServiceTime::exponential(mean),
        "const" => ServiceTime::constant(mean),
        "ln" => ServiceTime::lognormal(mean, 1.5),
        _ => ServiceTime::uniform(mean * 0.5, mean * 1.5),
    }
    .unwrap();
    let profs = ["0s:30/s,210s:200/s,300s:30/s", "0s:30/s,195s:120/s", "0s:30/s,130s:160/s"];
    World {
        setup,
        processors: vec![k; 3],
        discipline: disc,
        streams: profs
            .iter()
            .enumerate()
            .map(|(i, p)| Stream {
                class: i as u8,
                profile: p.parse().unwrap(),
                process: ArrivalProcess::Poisson,
                urls: (0..3)
                    .map(|u| Url { key: i as u64 * 10 + u + 1, request_type: 0, weight: 1.0, cost: cost.clone() })
                    .collect(),
            })
            .collect(),
        speeds: vec![],
        sentry_cpu: vec![],
        duration: Duration::from_secs(360),
    }
}

fn main() {
    let policies: Vec<(&str, AdmissionConfig)> = vec![
        ("none", AdmissionConfig::from_name("none").unwrap()),
        ("batch", AdmissionConfig::from_name("batch").unwrap()),
        ("threshold", AdmissionConfig::from_name("threshold").unwrap()),
    ];
    let only = std::env::args().nth(1);
    for (name, p) in policies {
        if only.as_deref().is_some_and(|o| o != name) {
            continue;
        }
        for (cost, k, disc) in [
            ("exp", 1.0, Discipline::ProcessorSharing),
            ("const", 1.0, Discipline::Fifo),
            ("uni", 1.0, Discipline::ProcessorSharing),
            ("exp", 8.0, Discipline::ProcessorSharing),
            ("ln", 4.0, Discipline::ProcessorSharing),
        ] {
            let reps: Vec<Report> = (1..=6).map(|seed| c1(p.clone(), cost, k, disc).run(seed).unwrap()).collect();
            let r = &reps[0];
            println!("== {name} {cost} k={k} {disc:?} calib {:.2} k^ {:?} mean cost {:?} delays {:?}", r.snapshot.calibration, r.snapshot.servers.iter().map(|s| (s.processors*100.).round()/100.).collect::<Vec<_>>(), r.snapshot.mean_cost, r.snapshot.policy.delays);
            for (a, b) in [(0, 130), (130, 195), (195, 210), (212, 300), (305, 360)] {
                let n = reps.len() as f64;
                let s: Vec<String> = (0..3).map(|c| { let (mut an, mut of, mut re) = (0.0, 0.0, 0.0); for r in &reps { let s = r.span(c, a, b); an += s.answered() as f64; of += s.offered as f64; re += s.refused as f64; } format!("{:5.1}/{:5.1}({:3.0}%)", an/n/(b-a) as f64, of/n/(b-a) as f64, 100.0 - 100.0*re/of.max(1.0)) }).collect();
                let worst = reps.iter().map(|r| (a..b).map(|t| r.span_all(t, t+1).quantile(0.95)).fold(0.0, f64::max)).fold(0.0, f64::max);
                let p95: Vec<f64> = reps.iter().map(|r| r.span_all(a, b).quantile(0.95)).collect();
                let good = reps.iter().map(|r| r.span_all(a, b).in_target as f64).sum::<f64>()/n/(b-a) as f64;
                let over = reps.iter().map(|r| (a..b).filter(|&t| r.span_all(t, t+1).quantile(0.95) > 1.0).count()).sum::<usize>();
                println!("  {a:3}-{b:3}: {}  good {good:6.1}/s p95 {:.3}..{:.3} worst1s {worst:.3} over {over}", s.join(" "), p95.iter().cloned().fold(9.0, f64::min), p95.iter().cloned().fold(0.0, f64::max));
            }
        }
    }
}
