//! C1 of the Cataclysm paper (its figure 3) over seeds and service times: what the paper shows must hold.
//!
//! Three servers of 60 requests per second each; bronze floods from 130 s, silver from 195 s, gold from 210 s.

use tidegate_sim::Report;

use crate::support::{admission, admitted_share, c1, service_times};

/// Answers per second that the servers can give.
const CAPACITY: f64 = 180.0;

fn run_all(check: impl Fn(&str, &Report)) {
    let policy = admission(r#"{ "policy": "batch", "delays": ["0ms", "50ms", "100ms"] }"#);
    for (name, cost) in service_times() {
        let world = c1(policy.clone(), cost);
        for seed in 1..=8 {
            check(&format!("{name}, seed {seed}"), &world.run(seed).expect("the setup makes sense"));
        }
    }
}

/// Notes what does not hold of every run, so that one failure shows all figures.
#[derive(Default)]
struct Findings(std::cell::RefCell<Vec<String>>);

impl Findings {
    fn bound(&self, run: &str, what: &str, value: f64, holds: bool) {
        if !holds {
            self.0.borrow_mut().push(format!("{run}: {what} is {value:.3}"));
        }
    }

    fn none(self) {
        let found = self.0.into_inner();
        assert!(found.is_empty(), "{} do not hold:\n{}", found.len(), found.join("\n"));
    }
}

#[test]
fn the_less_important_are_refused_first() {
    let findings = Findings::default();
    run_all(|run, report| {
        let share = |class, from, to| admitted_share(report, class, from, to);
        let at_least = |what: &str, value: f64, least: f64| findings.bound(run, what, value, value >= least);
        let at_most = |what: &str, value: f64, most: f64| findings.bound(run, what, value, value <= most);
        let of_all = report.span_all(0, 130);
        at_least("share of all until 130 s", 1.0 - f64::from(of_all.refused) / f64::from(of_all.offered), 0.98);
        at_least("gold 130-195 s", share(0, 130, 195), 0.97);
        at_least("silver 130-195 s", share(1, 130, 195), 0.97);
        at_least("gold 195-210 s", share(0, 195, 210), 0.98);
        at_least("silver less bronze 195-210 s", share(1, 195, 210) - share(2, 195, 210), 0.2);
        at_most("bronze 210-300 s", share(2, 210, 300), 0.02);
        at_most("silver 210-300 s", share(1, 210, 300), 0.09);
    });
    findings.none();
}

#[test]
fn the_95th_percentile_of_the_admitted_stays_below_the_target() {
    let findings = Findings::default();
    run_all(|run, report| {
        for from in (0..300).step_by(5) {
            let p95 = report.span_all(from, from + 5).quantile(0.95);
            findings.bound(run, &format!("p95 from {from} s"), p95, p95 < 1.0);
        }
    });
    findings.none();
}

#[test]
fn goodput_stays_near_capacity_under_overload() {
    let findings = Findings::default();
    run_all(|run, report| {
        for from in (0..300).step_by(10) {
            let span = report.span_all(from, from + 10);
            let (offered, good) = (f64::from(span.offered) / 10.0, f64::from(span.in_target) / 10.0);
            if offered > 1.2 * CAPACITY {
                findings.bound(run, &format!("goodput from {from} s"), good, good >= 0.9 * CAPACITY);
            }
        }
    });
    findings.none();
}
