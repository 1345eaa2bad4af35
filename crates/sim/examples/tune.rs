//! Scratch.
use std::time::Duration;
use tidegate_engine::Seconds;
use tidegate_engine::*;
use tidegate_sim::*;
use tidegate_workload::*;
fn main() {
    let a: Vec<String> = std::env::args().collect();
    let (k, seed): (f64, u64) = (a[1].parse().unwrap(), a[2].parse().unwrap());
    let sla = Sla::constant(Statistic::P95, Duration::from_secs(1)).unwrap();
    let mut setup = Setup::simple("c1", sla, (0..3).map(|i| ServerSetup::new(format!("s{i}"))));
    setup.classes = ["gold", "silver", "bronze"].map(ClassSetup::new).to_vec();
    setup.admission = AdmissionConfig::from_name(&a[3]).unwrap();
    if let AdmissionConfig::Batch(c) = &mut setup.admission {
        if a[7] == "fixed" {
            c.delays = Delays::Fixed(vec![Seconds(0.0), Seconds(0.05), Seconds(0.1)]);
        }
    }
    let mean = k / 60.0;
    let cost = match a[4].as_str() {
        "exp" => ServiceTime::exponential(mean),
        "const" => ServiceTime::constant(mean),
        "ln" => ServiceTime::lognormal(mean, 1.5),
        _ => ServiceTime::uniform(mean * 0.5, mean * 1.5),
    }
    .unwrap();
    let profs = ["0s:30/s,210s:200/s,300s:30/s", "0s:30/s,195s:120/s", "0s:30/s,130s:160/s"];
    let (from, to) = a[5].split_once("-").unwrap();
    for end in (from.parse::<u64>().unwrap()..to.parse().unwrap()).step_by(a[6].parse().unwrap()) {
        let w = World {
            setup: setup.clone(),
            processors: vec![k; 3],
            discipline: Discipline::ProcessorSharing,
            streams: profs
                .iter()
                .enumerate()
                .map(|(i, p)| Stream {
                    class: i as u8,
                    profile: p.parse().unwrap(),
                    process: ArrivalProcess::Poisson,
                    urls: (0..3)
                        .map(|u| Url { key: i as u64 * 10 + u + 1, request_type: 0, weight: 1.0, cost })
                        .collect(),
                })
                .collect(),
            speeds: vec![],
            sentry_cpu: vec![],
            duration: Duration::from_millis(end * 1000),
        };
        let r = w.run(seed).unwrap();
        let s = r.span_all(end as usize - 1, end as usize);
        println!(
            "{end}: k {:?} cost {:.4} k/cost {:.1} calib {:.2} delays {:?} good {} p95 {:.3}",
            r.snapshot
                .servers
                .iter()
                .map(|s| ((s.processors * 100.).round() / 100., s.confidence as u32))
                .collect::<Vec<_>>(),
            r.snapshot.mean_cost.unwrap_or(0.),
            r.snapshot.processors / r.snapshot.mean_cost.unwrap_or(1.),
            r.snapshot.calibration,
            r.snapshot.policy.delays,
            s.in_target,
            s.quantile(0.95)
        );
    }
}
