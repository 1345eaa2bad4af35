//! What must hold, and whether it did.

use super::httperf::Counted;
use super::measure::Run;
use super::report::{Protected, Report};

/// One thing that must hold.
#[derive(Debug)]
pub struct Check {
    /// In words, with its bar.
    pub what: String,
    /// What was measured.
    pub found: String,
    /// Whether it held.
    pub holds: bool,
}

/// Of capacity.
const GOODPUT: f64 = 0.90;
/// The same for a short run, of which building up is a larger part, and which allows for others on the core: it runs
/// where nobody keeps the machine quiet.
const GOODPUT_SHORT: f64 = 0.75;
/// Of what was due: less, and the load was not what it claims to be.
const KEPT: f64 = 0.95;

/// Every check of a report. The cold run must only be without errors: it shows what learning costs.
pub fn all(report: &Report) -> Vec<Check> {
    let run = &report.warm.run;
    let good = run.goodput(report.target);
    let mut checks = vec![
        p95(run, report.target),
        goodput(report, "by cost", report.weights.of_mix(good)),
        goodput(report, "in requests", good.iter().sum()),
    ];
    for (name, protected) in [("warm", &report.warm), ("cold", &report.cold)] {
        checks.extend(orderly(name, protected));
    }
    checks.extend(report.warm.heads.iter().flat_map(heads));
    checks
}

fn p95(run: &Run, target: f64) -> Check {
    let found = run.quantile(0.95);
    Check {
        what: format!("warm: p95 of admitted at most {:.0} ms", target * 1e3),
        found: found.map_or("nothing admitted".to_owned(), |p95| format!("{:.0} ms", p95 * 1e3)),
        holds: found.is_some_and(|p95| p95 <= target),
    }
}

fn goodput(report: &Report, how: &str, good: f64) -> Check {
    let (bar, share, left) = if report.short {
        let share = report.share_of_what_was_left(&report.warm.run, good);
        (GOODPUT_SHORT, share, ", each by the processor time that others left")
    } else {
        (GOODPUT, good / report.capacity(), "")
    };
    Check {
        what: format!("warm: goodput, {how}, at least {:.0} % of the best alone{left}", bar * 1e2),
        found: format!("{:.1} %", share * 1e2),
        holds: share >= bar,
    }
}

fn orderly(name: &str, protected: &Protected) -> [Check; 3] {
    let statuses = protected.run.statuses();
    let kept = protected.run.kept().unwrap_or(0.0);
    [
        Check {
            what: format!("{name}: only 200 and 503"),
            found: format!("{statuses:?}"),
            holds: statuses.keys().all(|status| matches!(status, 200 | 503)) && statuses.contains_key(&503),
        },
        Check {
            what: format!("{name}: at least {:.0} % of the requests that were due were sent and answered", KEPT * 1e2),
            found: format!("{:.1} %", kept * 1e2),
            holds: kept >= KEPT,
        },
        Check {
            what: format!("{name}: in flight and waiting return to 0"),
            found: if protected.settled { "they do" } else { "they do not" }.to_owned(),
            holds: protected.settled,
        },
    ]
}

fn heads(counted: &Counted) -> [Check; 2] {
    let refused = counted.statuses.get(&503).copied().unwrap_or(0);
    let others = counted.statuses.keys().any(|status| !matches!(status, 200 | 503));
    [
        Check {
            what: "httperf: every refusal has Retry-After and Tidegate-Decision".to_owned(),
            found: format!("{} of {refused} have not", counted.unexplained),
            holds: refused > 0 && counted.unexplained == 0,
        },
        Check {
            what: "httperf: no error, only 200 and 503".to_owned(),
            found: format!("{:?}, errors {:?}", counted.statuses, counted.errors),
            holds: !others && counted.errors.is_empty(),
        },
    ]
}
