//! V1, figure 4: 20 % scripts, the request rate rises; Apache alone and behind a sentry with the policy.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::chart::{Chart, draw};
use super::load::{Mix, Run};
use super::space::Space;
use super::watch::Look;
use super::{Bench, Check, SATURATED, SENTRY_PORT, SERVICE_PORT, check};

/// Up to this multiple of the saturation scripts alone must do.
const SCRIPTS_SUFFICE: f64 = 1.5;

/// What came of a rate.
struct Level {
    level: f64,
    alone: Run,
    with: Run,
    /// Connections turned away per second in the time that counts, and in all.
    turned: (f64, f64),
    /// Whether connections were limited at any time.
    was_limited: bool,
}

impl Bench<'_> {
    /// # Errors
    /// When something does not do its part.
    pub fn v1(&self) -> Result<Vec<Check>> {
        println!(
            "\n── V1\n| offered | | answered/s | mean | files | scripts answered | SYNs turned away |\n\
             |---|---|---|---|---|---|---|"
        );
        let levels = self.options.levels.iter().map(|level| self.level(*level)).collect::<Result<Vec<_>>>()?;
        if let Some(out) = &self.options.out {
            keep(out, &levels)?;
        }
        let mut checks = Vec::new();
        for level in &levels {
            checks.extend(level.checks());
        }
        Ok(checks)
    }

    fn level(&self, level: f64) -> Result<Level> {
        let mix = Mix::dynamic(level * SATURATED);
        let (settle, seconds) = (self.options.settle, self.options.seconds);
        // Nothing adapts here: the queues are full or empty after some seconds.
        let short = 0.25 * settle;
        let course = self.load(Space::Others, SERVICE_PORT, &[(mix, short + seconds)])?;
        let alone = course.between(short, short + seconds);
        row("alone", &alone, None);
        thread::sleep(Duration::from_secs(2));
        let guarded = self.guard(r#"{ policy = "resource", resources = [{ name = "cpu" }] }"#, "")?;
        let (course, looks) = self.watch(Space::Others, SENTRY_PORT, &[(mix, settle + seconds)])?;
        drop(guarded);
        let with = course.between(settle, settle + seconds);
        let turned = |from: f64| {
            let looks: Vec<&Look> = looks.iter().filter(|look| look.second >= from).collect();
            looks.last().map_or(0.0, |last| last.turned_away) - looks.first().map_or(0.0, |first| first.turned_away)
        };
        let turned = (turned(settle) / seconds, turned(0.0));
        row("resource", &with, Some(turned.0));
        let was_limited = looks.iter().any(|look| look.connections.is_some());
        Ok(Level { level, alone, with, turned, was_limited })
    }
}

impl Level {
    fn checks(&self) -> Vec<Check> {
        let (alone, with, level) = (self.alone.all, self.with.all, self.level);
        let mut checks = Vec::new();
        let mut must = |what: &str, found: String, holds| {
            checks.push(check(format!("V1 at {level} times: {what}"), found, holds));
        };
        if level <= 0.8 {
            let refused = (with.refused + with.failed) / with.offered.max(1.0);
            must("at most 3 % is refused", format!("{:.2} %", refused * 1e2), refused <= 0.03);
        }
        if level <= SCRIPTS_SUFFICE {
            let found = format!("limited: {}, turned away: {:.0}", self.was_limited, self.turned.1);
            must("the SYN policer is inactive", found, !self.was_limited && self.turned.1 == 0.0);
        }
        if (1.5..=2.0).contains(&level) {
            let scripts = self.with.scripts;
            let found = format!("{:.0} of {:.0}/s", scripts.answered, scripts.offered);
            must("scripts are limited", found, scripts.refused > 0.1 * scripts.offered);
        }
        if level >= 2.0 {
            let (more, faster) = (with.answered / alone.answered, alone.mean / with.mean);
            must("at least 40 % more answered", format!("{:.0} %", 1e2 * (more - 1.0)), more >= 1.4);
            must("mean response time at most a tenth", format!("1/{faster:.0}"), faster >= 10.0);
        }
        if level >= 3.0 {
            must("the SYN policer turns connections away", format!("{:.0}/s", self.turned.0), self.turned.0 > 0.0);
        }
        checks
    }

    fn to_json(&self) -> Value {
        let run = |run: &Run| {
            json!({
                "offered": run.all.offered, "answered": run.all.answered, "mean": run.all.mean,
                "files": run.files.answered, "files_mean": run.files.mean, "failed": run.all.failed,
                "scripts_offered": run.scripts.offered, "scripts": run.scripts.answered,
            })
        };
        let (alone, with) = (run(&self.alone), run(&self.with));
        json!({ "level": self.level, "alone": alone, "resource": with, "turned_away": self.turned.0 })
    }
}

/// Adds the levels to those that were measured before, and draws them all.
fn keep(out: &Path, levels: &[Level]) -> Result<()> {
    let file = out.join("v1.json");
    let before = fs::read_to_string(&file).ok().and_then(|text| serde_json::from_str(&text).ok());
    let mut all: Vec<Value> = before.unwrap_or_default();
    all.retain(|old| levels.iter().all(|new| old["level"] != new.level));
    all.extend(levels.iter().map(Level::to_json));
    all.sort_by(|a, b| a["level"].as_f64().unwrap_or(0.0).total_cmp(&b["level"].as_f64().unwrap_or(0.0)));
    fs::write(&file, serde_json::to_string_pretty(&all)? + "\n")
        .with_context(|| format!("cannot write {}", file.display()))?;
    let line = |arm: &str, key: &str, scale: f64| {
        let point = |row: &Value| Some((row[arm]["offered"].as_f64()?, row[arm][key].as_f64()? * scale));
        (arm.to_owned(), all.iter().filter_map(point).collect::<Vec<_>>())
    };
    let chart = |title: &str, y: &str, key: &str, scale: f64| Chart {
        title: title.into(),
        x: "offered, requests/s".into(),
        y: y.into(),
        lines: vec![line("alone", key, scale), line("resource", key, scale)],
        ..Chart::default()
    };
    let throughput = chart("Throughput", "answered, requests/s", "answered", 1.0);
    let response = chart("Mean response time", "milliseconds", "mean", 1e3);
    fs::write(out.join("v1.svg"), draw(&[throughput, Chart { is_logarithmic: true, ..response }]))?;
    Ok(())
}

fn row(name: &str, run: &Run, turned: Option<f64>) {
    println!(
        "| {:.0}/s | {name} | {:.0} | {:.0} ms | {:.0}/s in {:.0} ms | {:.0} of {:.0}/s | {} |",
        run.all.offered,
        run.all.answered,
        run.all.mean * 1e3,
        run.files.answered,
        run.files.mean * 1e3,
        run.scripts.answered,
        run.scripts.offered,
        turned.map_or(String::new(), |turned| format!("{turned:.0}/s"))
    );
}
