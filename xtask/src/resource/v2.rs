//! V2, table 1: a link of 100 Mbit/s is the bottleneck, and large files beside the mix fill it.

use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::Duration;

use anyhow::Result;
use serde_json::json;

use super::load::{Mix, Run};
use super::space::Space;
use super::{Bench, Check, SENTRY_PORT, SERVICE_PORT, check};

const LINK: &str = "100mbit";
/// Of the mix, requests per second.
const MIX: f64 = 300.0;
/// Of the large file.
const LARGE: [f64; 2] = [50.0, 80.0];

impl Bench<'_> {
    /// # Errors
    /// When something does not do its part.
    pub fn v2(&self) -> Result<Vec<Check>> {
        self.spaces.bound(Space::Others, LINK)?;
        // Nothing but the link is short, and what is sent is what the files have.
        self.group.bound(None)?;
        self.compressed.store(false, Relaxed);
        println!(
            "\n── V2\n| large files | | mix answered/s | mean | large answered/s | mean |\n|---|---|---|---|---|---|"
        );
        let mut checks = Vec::new();
        let mut rows = Vec::new();
        for large in LARGE {
            let (alone, with) = self.link_filled_by(large)?;
            let numbers = |run: &Run| {
                let (files, big) = (run.files, run.large);
                json!({ "mix": files.answered, "mix_mean": files.mean, "large": big.answered, "large_mean": big.mean })
            };
            rows.push(json!({ "large": large, "alone": numbers(&alone), "resource": numbers(&with) }));
            checks.extend(checks_of(large, &alone, &with));
        }
        self.keep("v2.json", &json!(rows))?;
        self.compressed.store(true, Relaxed);
        self.group.bound(self.share)?;
        Ok(checks)
    }

    fn link_filled_by(&self, large: f64) -> Result<(Run, Run)> {
        let (settle, seconds) = (0.5 * self.options.settle, self.options.seconds);
        let steps = [(Mix { files: MIX, scripts: 0.0, large }, settle + seconds)];
        let alone = self.load(Space::Others, SERVICE_PORT, &steps)?.between(settle, settle + seconds);
        row(large, "alone", &alone);
        thread::sleep(Duration::from_secs(5));
        let guarded = self.guard(r#"{ policy = "resource", resources = [{ name = "nic_queue" }] }"#, "")?;
        let (course, _) = self.watch(Space::Others, SENTRY_PORT, &steps)?;
        drop(guarded);
        let with = course.between(settle, settle + seconds);
        row(large, "resource", &with);
        Ok((alone, with))
    }
}

fn checks_of(large: f64, alone: &Run, with: &Run) -> Vec<Check> {
    let kept = with.files.answered / with.files.offered;
    let mut checks = vec![check(
        format!("V2 at {large}/s: the mix keeps 95 % (paper: 96, 95)"),
        format!("{:.1} %", kept * 1e2),
        kept >= 0.95,
    )];
    if large > LARGE[0] {
        let faster = alone.files.mean / with.files.mean;
        checks.push(check(
            format!("V2 at {large}/s: the mix is answered ten times as fast (paper: 118)"),
            format!("{faster:.0} times"),
            faster >= 10.0,
        ));
        let more = with.files.answered / alone.files.answered;
        checks.push(check(
            format!("V2 at {large}/s: more of the mix is answered (paper: 39 %)"),
            format!("{:.0} %", 1e2 * (more - 1.0)),
            more >= 1.1,
        ));
    }
    checks
}

fn row(large: f64, name: &str, run: &Run) {
    let (files, big) = (run.files, run.large);
    println!(
        "| {large}/s | {name} | {:.0} of {:.0} | {:.0} ms | {:.0} | {:.0} ms |",
        files.answered,
        files.offered,
        files.mean * 1e3,
        big.answered,
        big.mean * 1e3
    );
}
