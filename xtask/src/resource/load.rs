//! Load from `tidegate load`, a new connection for every request, and what came of it second by second.
//!
//! The clients are S-clients (Banga and Druschel), as the paper's: who has no connection after half a second gives up,
//! so that what arrives is what is offered, whatever becomes of it. Throughput is what is answered *in* a second.

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::service::{FILES, LARGE, SCRIPT, file};
use crate::command;

/// How long a client waits for a connection.
const CONNECT: &str = "500ms";
/// How long it waits for its answer.
const PATIENCE: &str = "10s";

/// What is asked for, requests per second.
#[derive(Debug, Clone, Copy, Default)]
pub struct Mix {
    /// Files of the mix.
    pub files: f64,
    /// Scripts.
    pub scripts: f64,
    /// The large file.
    pub large: f64,
}

/// Loads one after the other, each for so many seconds, without a gap.
pub type Steps<'a> = &'a [(Mix, f64)];

/// What came of a kind of requests in a stretch of time.
#[derive(Debug, Clone, Copy, Default)]
pub struct Kind {
    /// Asked for per second.
    pub offered: f64,
    /// Answered per second, whenever they were asked for.
    pub answered: f64,
    /// Refused by a 503, of those asked for then, per second.
    pub refused: f64,
    /// Neither, per second: most of them found no connection.
    pub failed: f64,
    /// Mean response time of those answered, seconds.
    pub mean: f64,
}

/// What came of a load in a stretch of time.
#[derive(Debug, Clone, Copy, Default)]
pub struct Run {
    /// Everything.
    pub all: Kind,
    /// Files of the mix.
    pub files: Kind,
    /// Scripts.
    pub scripts: Kind,
    /// The large file.
    pub large: Kind,
}

/// The course of a load.
#[derive(Debug)]
pub struct Course(Value);

impl Mix {
    /// The paper's mix: 20 % scripts.
    pub fn dynamic(rate: f64) -> Mix {
        Mix { files: 0.8 * rate, scripts: 0.2 * rate, large: 0.0 }
    }
}

impl Course {
    /// What came of it between two seconds.
    pub fn between(&self, from: f64, to: f64) -> Run {
        let class =
            |name: &str| self.0["classes"].as_array().into_iter().flatten().find(|class| class["class"] == name);
        let of = |name: &str| class(name).map(|class| kind(class, from, to)).unwrap_or_default();
        Run { all: kind(&self.0["total"], from, to), files: of("files"), scripts: of("scripts"), large: of("large") }
    }
}

/// Puts a load on an address from the caller's namespace, by a process on `core`.
///
/// # Errors
/// When the program fails, or could not offer what it was to offer.
pub fn put(to: SocketAddr, steps: Steps, compressed: bool, core: usize, dir: &Path) -> Result<Course> {
    let json = dir.join("load.json");
    let mut load = Command::new("taskset");
    load.args(["-c", &core.to_string()]).arg(command::tidegate()).args(["load", "--to", &format!("http://{to}/")]);
    let seconds: f64 = steps.iter().map(|(_, seconds)| seconds).sum();
    load.args(["--duration", &format!("{seconds}s"), "--timeout", PATIENCE, "--connect-timeout", CONNECT, "--close"]);
    load.args(["--connections", "20000", "--json"]).arg(&json);
    if compressed {
        load.args(["--header", "Accept-Encoding: gzip"]);
    }
    for class in classes(steps) {
        load.args(["--class", &class]);
    }
    let output = load.stdin(Stdio::null()).output().context("cannot start tidegate load")?;
    if !output.status.success() {
        bail!("tidegate load: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    let report: Value = serde_json::from_str(&std::fs::read_to_string(&json)?)?;
    for warning in report["warnings"].as_array().into_iter().flatten() {
        println!("   (the load: {})", warning.as_str().unwrap_or_default());
    }
    Ok(Course(report))
}

fn classes(steps: Steps) -> Vec<String> {
    let popularity = |number: usize| format!("path={:.4}*{}", FILES as f64 / (number + 1) as f64, file(number));
    let files: Vec<String> = (0..FILES).map(popularity).collect();
    let class = |name: &str, rate: fn(&Mix) -> f64, paths: String| {
        let is_asked_for = steps.iter().any(|(mix, _)| rate(mix) > 0.0);
        is_asked_for.then(|| format!("name={name},profile={},{paths}", profile(steps, rate)))
    };
    let classes = [
        class("files", |mix| mix.files, files.join(",")),
        class("scripts", |mix| mix.scripts, format!("path={SCRIPT}")),
        class("large", |mix| mix.large, format!("path={LARGE}")),
    ];
    classes.into_iter().flatten().collect()
}

fn profile(steps: Steps, rate: fn(&Mix) -> f64) -> String {
    let mut at = 0.0;
    let mut parts = Vec::new();
    for (mix, seconds) in steps {
        parts.push(format!("{at}s:{:.2}/s", rate(mix)));
        at += seconds;
    }
    parts.join(", ")
}

fn kind(class: &Value, from: f64, to: f64) -> Kind {
    let seconds = class["seconds"].as_array().map_or(&[][..], Vec::as_slice);
    let stretch = seconds.get(from as usize..(to as usize).min(seconds.len())).unwrap_or_default();
    let sum = |name: &str| stretch.iter().filter_map(|second| second[name].as_f64()).sum::<f64>();
    let length = stretch.len().max(1) as f64;
    let took = |second: &Value| Some(second["answered"].as_f64()? * second["answered_mean"].as_f64()?);
    let answered = sum("answered");
    Kind {
        offered: sum("offered") / length,
        answered: answered / length,
        refused: sum("refused") / length,
        failed: sum("failed") / length,
        mean: stretch.iter().filter_map(took).sum::<f64>() / answered.max(1.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_mix_is_told_in_classes() {
        let classes = classes(&[(Mix::dynamic(100.0), 5.0), (Mix::dynamic(50.0), 20.0)]);
        assert_eq!(classes.len(), 2);
        let files = "name=files,profile=0s:80.00/s, 5s:40.00/s,path=40.0000*/small/0.html,path=20.0000*";
        assert!(classes[0].starts_with(files), "{}", classes[0]);
        assert_eq!(classes[1], "name=scripts,profile=0s:20.00/s, 5s:10.00/s,path=/cgi-bin/work.cgi");
    }

    #[test]
    fn throughput_is_what_is_answered_in_the_stretch() {
        let second = |offered: u64, answered: u64, mean: f64| {
            let failed = 2;
            json!({ "offered": offered, "answered": answered, "answered_mean": mean, "refused": 1, "failed": failed })
        };
        let seconds = [second(9, 9, 9.0), second(10, 4, 1.0), second(20, 12, 0.2), second(9, 9, 9.0)];
        let total = json!({ "class": "total", "seconds": seconds });
        let course = Course(json!({ "total": total, "classes": [], "sent_for": 4.0 }));
        let all = course.between(1.0, 3.0).all;
        assert_eq!((all.offered, all.answered, all.refused, all.failed), (15.0, 8.0, 1.0, 2.0));
        assert!((all.mean - 6.4 / 16.0).abs() < 1e-12, "{}", all.mean);
        assert_eq!(course.between(4.0, 9.0).all.answered, 0.0);
    }
}
