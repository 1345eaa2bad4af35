//! V3, figure 5: a sudden load, and what the two rates do.

use std::fs;

use anyhow::Result;
use serde_json::json;

use super::chart::{Chart, draw};
use super::load::Mix;
use super::space::Space;
use super::watch::Look;
use super::{Bench, Check, SENTRY_PORT, check};

/// Requests per second before and after, and in between: the paper's.
const LOW: f64 = 300.0;
const HIGH: f64 = 850.0;
/// Seconds of each.
const STEPS: [f64; 3] = [40.0, 20.0, 70.0];
/// Where the paper's rates begin.
const ADMISSION: &str = r#"{ policy = "resource", syn = { initial_rate = 1000 },
    resources = [{ name = "cpu", control = { initial_rate = 74 } }] }"#;

impl Bench<'_> {
    /// # Errors
    /// When something does not do its part.
    pub fn v3(&self) -> Result<Vec<Check>> {
        println!("\n── V3: {LOW:.0}/s, for {:.0} s {HIGH:.0}/s, {LOW:.0}/s", STEPS[1]);
        let guarded = self.guard(&ADMISSION.replace('\n', " "), "")?;
        let rates = [LOW, HIGH, LOW].map(Mix::dynamic);
        let steps: Vec<(Mix, f64)> = rates.into_iter().zip(STEPS).collect();
        let (course, looks) = self.watch(Space::Others, SENTRY_PORT, &steps)?;
        drop(guarded);
        let rates = |resource: &str| {
            looks.iter().filter_map(|look| Some((look.second, look.rate(resource)?))).collect::<Vec<_>>()
        };
        let (connections, scripts) = (rates("syn"), rates("cpu"));
        println!("| second | rate of connections | rate of scripts | answered/s | mean |\n|---|---|---|---|---|");
        for (at, ((second, connections), (_, scripts))) in connections.iter().zip(&scripts).enumerate() {
            let all = course.between(at as f64, at as f64 + 1.0).all;
            println!(
                "| {second:.0} | {connections:.0} | {scripts:.1} | {:.0} | {:.0} ms |",
                all.answered,
                all.mean * 1e3
            );
        }
        if let Some(out) = &self.options.out {
            let svg = draw(&[
                chart("Rate of connections", "connections/s", &connections),
                chart("Rate of scripts", "requests/s", &scripts),
            ]);
            fs::write(out.join("v3.svg"), svg)?;
        }
        self.keep("v3.json", &json!({ "connections": connections, "scripts": scripts }))?;
        let mut checks = checks(&looks, &connections, &scripts);
        checks.extend(change_of_rate(&looks));
        Ok(checks)
    }
}

fn checks(looks: &[Look], connections: &[(f64, f64)], scripts: &[(f64, f64)]) -> Vec<Check> {
    let (rush, over) = (STEPS[0], STEPS[0] + STEPS[1]);
    let least = |from: f64, to: f64| {
        let within = connections.iter().filter(|at| at.0 >= from && at.0 < to);
        within.map(|at| at.1).fold(f64::INFINITY, f64::min)
    };
    let falls = || scripts.windows(2).map(|pair| pair[0].1 - pair[1].1);
    let (fell, rose) = (falls().fold(0.0, f64::max), -falls().fold(0.0, f64::min));
    let last = connections.last().map_or(0.0, |at| at.1);
    let (calm, soon) = (least(0.0, rush), least(rush, rush + 12.0));
    let turned = looks.last().map_or(0.0, |look| look.turned_away);
    vec![
        check("V3: before, the rate of connections stays".into(), format!("{calm:.0}"), calm >= 900.0),
        check(
            "V3: within a few samples it is below the demand".into(),
            format!("{soon:.0} of {HIGH:.0} after 12"),
            soon < HIGH && turned > 0.0,
        ),
        check("V3: it recovers to more than the demand (paper: 340)".into(), format!("{last:.0}"), last > LOW),
        check(
            "V3: that of scripts falls by 2 a sample at most".into(),
            format!("{fell:.2}"),
            // Two samples may lie between two looks.
            fell <= 2.0 * 2.0 + 1e-6 && falls_on_average(scripts, rush, over) <= 2.0 + 1e-6,
        ),
        check("V3: and rises faster".into(), format!("{rose:.1}"), rose > fell),
    ]
}

/// What it takes to give the kernel another rate: as the sentry measured it, in the midst of all this.
fn change_of_rate(looks: &[Look]) -> Option<Check> {
    let mut took: Vec<f64> = looks.iter().filter_map(|look| look.change).collect();
    took.dedup();
    took.sort_by(f64::total_cmp);
    let median = *took.get(took.len() / 2)?;
    println!("   {} changes of the kernel's rate, {:.0} us at most", took.len(), took.last()? * 1e6);
    let found = format!("{:.1} us", median * 1e6);
    Some(check("V3: the kernel has another rate within 100 us (median)".into(), found, median < 100e-6))
}

/// By how much a rate falls in a second, on average, while the load is high.
fn falls_on_average(rates: &[(f64, f64)], from: f64, to: f64) -> f64 {
    let within: Vec<&(f64, f64)> = rates.iter().filter(|at| at.0 >= from && at.0 < to).collect();
    match (within.first(), within.last()) {
        (Some(first), Some(last)) if last.0 > first.0 => (first.1 - last.1) / (last.0 - first.0),
        _ => 0.0,
    }
}

fn chart(title: &str, y: &str, rates: &[(f64, f64)]) -> Chart {
    let lines = vec![("rate".to_owned(), rates.to_vec())];
    Chart { title: title.into(), x: "second".into(), y: y.into(), lines, ..Chart::default() }
}
