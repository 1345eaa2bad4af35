//! The results as tables and as raw data.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::Result;
use serde_json::{Value, json};

use super::check::{self, Check};
use super::httperf::{self, Counted};
use super::measure::{Run, Weights};
use super::{OVERLOAD, WARM_UP};
use crate::apache::SCRIPTS;
use crate::bench::report::write_pair;

/// Up to so much of the core may have gone to others in a run that is compared: interrupts, and hands on a keyboard.
const QUIET: f64 = 0.10;

/// Everything measured.
#[derive(Debug)]
pub struct Report {
    /// The machine and the versions, as names and values.
    pub facts: Vec<(String, String)>,
    /// Seconds.
    pub target: f64,
    /// Length of each overload.
    pub seconds: f64,
    /// Whether the bars are those of a short run.
    pub short: bool,
    /// What the scripts cost.
    pub weights: Weights,
    /// The mix alone in closed loops.
    pub levels: Vec<Level>,
    /// The best of these again, after everything else: has the machine changed?
    pub again: Option<Level>,
    /// The overload, alone.
    pub unprotected: Run,
    /// The overload through a sentry that has just started.
    pub cold: Protected,
    /// The overload through a sentry that has learned.
    pub warm: Protected,
}

/// The mix in a closed loop.
#[derive(Debug, Clone)]
pub struct Level {
    /// In all.
    pub workers: u32,
    /// Requests of the mix per second, by cost.
    pub rate: f64,
    /// What was measured.
    pub run: Run,
}

/// The overload through a sentry.
#[derive(Debug)]
pub struct Protected {
    /// From hey.
    pub run: Run,
    /// What the sentry thought meanwhile.
    pub views: Vec<Value>,
    /// From httperf, if it had a turn.
    pub heads: Option<Counted>,
    /// The sentry's own words at the end.
    pub state: Value,
    /// Whether nothing was in flight or waiting at the end.
    pub settled: bool,
}

impl Protected {
    /// What the sentry has learned by the end, in its own words.
    fn view(&self) -> String {
        let app = &self.state["applications"][0];
        let [processors, cost, calibration] = ["processors", "mean_cost", "calibration"].map(|name| &app[name]);
        format!("the sentry sees {processors} processors, a mean cost of {cost} s, a calibration of {calibration}.")
    }
}

impl Report {
    /// The best the service does alone, in requests of the mix per second.
    pub fn capacity(&self) -> f64 {
        self.levels.iter().map(|level| level.rate).fold(0.0, f64::max)
    }

    /// The part of [`Report::capacity`] that a run's goodput is, each per processor time that others left over.
    pub fn share_of_what_was_left(&self, run: &Run, good: f64) -> f64 {
        let left = |run: &Run| 1.0 - run.denied.min(0.99);
        let capacity = self.levels.iter().map(|level| level.rate / left(&level.run)).fold(0.0, f64::max);
        good / left(run) / capacity
    }

    /// Whether every check holds.
    pub fn holds(&self) -> bool {
        check::all(self).iter().all(|check| check.holds)
    }

    /// Writes `<date>-real.md` and `<date>-real.json`.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub fn write(&self, date: &str, dir: &Path) -> Result<PathBuf> {
        write_pair(&format!("{date}-real"), dir, &self.markdown(), &self.json())
    }

    /// The tables and the checks.
    pub fn markdown(&self) -> String {
        let mut text = format!("# Before a real service at {OVERLOAD:.0}x its capacity\n\n{}\n", self.method());
        text.push_str("\n| what | value |\n|---|---|\n");
        for (name, value) in &self.facts {
            let _ = writeln!(text, "| {name} | {} |", value.trim());
        }
        self.write_table(&mut text);
        for (name, protected) in [("cold", &self.cold), ("warm", &self.warm)] {
            let _ = writeln!(text, "\n{name}: {}", protected.view());
        }
        if let Some(heads) = &self.warm.heads {
            let _ = writeln!(text, "\n{}", self.said_by_httperf(heads));
        }
        if let Some(again) = &self.again {
            let change = (again.rate / self.capacity() - 1.0) * 1e2;
            let _ = writeln!(text, "\nThe best level alone, again at the end: {:.1}/s ({change:+.1} %).", again.rate);
        }
        let most = self.runs().map(|run| run.denied).fold(0.0, f64::max);
        if most > QUIET {
            let most = most * 1e2;
            let _ =
                writeln!(text, "\nOthers took up to {most:.0} % of the service's core: the runs cannot be compared.");
        }
        text.push_str("\n| holds | what | found |\n|---|---|---|\n");
        for Check { what, found, holds } in check::all(self) {
            let _ = writeln!(text, "| {} | {what} | {found} |", if holds { "yes" } else { "NO" });
        }
        text
    }

    fn runs(&self) -> impl Iterator<Item = &Run> {
        let alone = self.levels.iter().chain(&self.again).map(|level| &level.run);
        alone.chain([&self.warm.run])
    }

    fn method(&self) -> String {
        let weights = SCRIPTS.iter().zip(self.weights.values());
        let scripts = weights.map(|(script, weight)| {
            let (name, share) = (script.name, script.share * 1e2);
            format!("{name} {share:.0} % of the requests at a cost of {weight:.2}")
        });
        format!(
            "Apache with PHP (prefork, Debian's packages and settings) on core 0; on core 1 `tidegate run --listen … \
             --to … --target {:.0}ms --admin …` and the load. Scripts: {}; cost 1 is the mean of the mix. \
             Capacity is the highest throughput of the mix in a closed loop of hey. Overloads are {:.0} s of \
             {OVERLOAD:.0}x capacity, open loop, from hey, each request on a new connection; the warm sentry has seen \
             {:.0} % of capacity before. Rates are over the whole run, percentiles over all answers with status \
             200. Goodput is what was answered with 200 within the target; by cost, a heavy request counts as many \
             light ones as it costs.",
            self.target * 1e3,
            scripts.collect::<Vec<_>>().join(", "),
            self.seconds,
            WARM_UP * 1e2,
        )
    }

    fn write_table(&self, text: &mut String) {
        text.push_str("\n| run | offered/s | 200/s | goodput/s | goodput by cost, of capacity | p50 ms | p95 ms ");
        let names: Vec<_> = SCRIPTS.iter().map(|script| script.name).collect();
        let _ = writeln!(text, "| goodput/s {} | sent and answered | denied by others |", names.join(" + "));
        text.push_str("|---|---|---|---|---|---|---|---|---|---|\n");
        for level in &self.levels {
            self.write_row(&format!("alone, closed loop, {} workers", level.workers), &level.run, text);
        }
        self.write_row(&format!("alone, {OVERLOAD:.0}x"), &self.unprotected, text);
        self.write_row(&format!("with tidegate, {OVERLOAD:.0}x, cold"), &self.cold.run, text);
        self.write_row(&format!("with tidegate, {OVERLOAD:.0}x, warm"), &self.warm.run, text);
    }

    fn write_row(&self, name: &str, run: &Run, text: &mut String) {
        let good = run.goodput(self.target);
        let millis = |quantile| run.quantile(quantile).map_or("-".to_owned(), |time| format!("{:.0}", time * 1e3));
        let _ = writeln!(
            text,
            "| {name} | {:.1} | {:.1} | {:.1} | {:.1} % | {} | {} | {} | {} | {:.0} % |",
            run.offered(),
            run.admitted().iter().sum::<f64>(),
            good.iter().sum::<f64>(),
            self.weights.of_mix(good) / self.capacity() * 1e2,
            millis(0.5),
            millis(0.95),
            good.map(|rate| format!("{rate:.1}")).join(" + "),
            run.kept().map_or("-".to_owned(), |kept| format!("{:.1} %", kept * 1e2)),
            run.denied * 1e2,
        );
    }

    fn said_by_httperf(&self, heads: &Counted) -> String {
        let ok = heads.statuses.get(&200).copied().unwrap_or(0) as f64 / heads.seconds;
        format!(
            "httperf through the warm sentry, {} connections in {:.1} s: {:.1}/s with status 200, {} refusals, \
             errors {:?} (a client gives up after {} s).",
            heads.connections,
            heads.seconds,
            ok,
            heads.statuses.get(&503).copied().unwrap_or(0),
            heads.errors,
            httperf::PATIENCE,
        )
    }

    fn json(&self) -> Value {
        let facts: serde_json::Map<_, _> =
            self.facts.iter().map(|(name, value)| (name.clone(), json!(value))).collect();
        let level = |level: &Level| {
            let run = self.run_json(&level.run);
            json!({ "workers": level.workers, "rate_by_cost": level.rate, "run": run })
        };
        let checks = check::all(self).into_iter();
        let checks = checks.map(|check| json!({ "what": check.what, "found": check.found, "holds": check.holds }));
        json!({
            "facts": facts,
            "target_s": self.target,
            "overload": OVERLOAD,
            "capacity": self.capacity(),
            "weights": self.weights.values(),
            "levels": self.levels.iter().map(level).collect::<Vec<_>>(),
            "again": self.again.as_ref().map(level),
            "unprotected": self.run_json(&self.unprotected),
            "cold": self.protected_json(&self.cold),
            "warm": self.protected_json(&self.warm),
            "checks": checks.collect::<Vec<_>>(),
        })
    }

    fn run_json(&self, run: &Run) -> Value {
        let scripts = SCRIPTS.iter().enumerate().map(|(index, script)| {
            json!({
                "script": script.name,
                "admitted_per_second": run.admitted()[index],
                "goodput_per_second": run.goodput(self.target)[index],
                "p50_s": run.quantile_of(index, 0.5),
                "p95_s": run.quantile_of(index, 0.95),
            })
        });
        json!({
            "seconds": run.seconds(),
            "offered_per_second": run.offered(),
            "kept": run.kept(),
            "denied_by_others": run.denied,
            "statuses": run.statuses().iter().map(|(status, count)| json!([status, count])).collect::<Vec<_>>(),
            "p50_s": run.quantile(0.5),
            "p95_s": run.quantile(0.95),
            "p99_s": run.quantile(0.99),
            "max_s": run.quantile(1.0),
            "scripts": scripts.collect::<Vec<_>>(),
            "answered_200_by_second": run.by_second(),
        })
    }

    fn protected_json(&self, protected: &Protected) -> Value {
        let heads = protected.heads.as_ref().map(|heads| {
            json!({
                "connections": heads.connections,
                "seconds": heads.seconds,
                "statuses": heads.statuses.iter().map(|(status, count)| json!([status, count])).collect::<Vec<_>>(),
                "unexplained": heads.unexplained,
                "errors": heads.errors,
            })
        });
        json!({
            "run": self.run_json(&protected.run),
            "views": protected.views,
            "httperf": heads,
            "settled": protected.settled,
            "state": protected.state,
        })
    }
}
