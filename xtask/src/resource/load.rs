//! Load from `tidegate load`, a new connection for every request, and what came of it.

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::service::{FILES, LARGE, SCRIPT, file};
use crate::command;

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

/// What came of a kind of requests.
#[derive(Debug, Clone, Copy, Default)]
pub struct Kind {
    /// Asked for per second.
    pub offered: f64,
    /// Answered per second, within the client's patience.
    pub admitted: f64,
    /// Refused by a 503, per second.
    pub refused: f64,
    /// Mean response time of those answered, seconds.
    pub mean: f64,
}

/// What came of a load.
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

impl Mix {
    /// The paper's mix: 20 % scripts.
    pub fn dynamic(rate: f64) -> Mix {
        Mix { files: 0.8 * rate, scripts: 0.2 * rate, large: 0.0 }
    }

    fn classes(self) -> Vec<String> {
        let popularity = |number: usize| format!("path={:.4}*{}", FILES as f64 / (number + 1) as f64, file(number));
        let files: Vec<String> = (0..FILES).map(popularity).collect();
        [
            ("files", self.files, files.join(",")),
            ("scripts", self.scripts, format!("path={SCRIPT}")),
            ("large", self.large, format!("path={LARGE}")),
        ]
        .into_iter()
        .filter(|(_, rate, _)| *rate > 0.0)
        .map(|(name, rate, paths)| format!("name={name},rate={rate:.2}/s,{paths}"))
        .collect()
    }
}

/// Puts a load on an address from the caller's namespace.
///
/// # Errors
/// When the program fails.
pub fn put(to: SocketAddr, mix: Mix, seconds: f64, timeout: &str, core: usize, dir: &Path) -> Result<Run> {
    let json = dir.join("load.json");
    let mut load = Command::new("taskset");
    load.args(["-c", &core.to_string()]).arg(command::tidegate()).args(["load", "--to", &format!("http://{to}/")]);
    load.args(["--duration", &format!("{seconds}s"), "--timeout", timeout, "--close", "--target", "500ms"]);
    load.args(["--connections", "4000", "--json"]).arg(&json);
    for class in mix.classes() {
        load.args(["--class", &class]);
    }
    let output = load.stdin(Stdio::null()).output().context("cannot start tidegate load")?;
    if !output.status.success() {
        bail!("tidegate load: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    let report: Value = serde_json::from_str(&std::fs::read_to_string(&json)?)?;
    let class = |name: &str| report["classes"].as_array().into_iter().flatten().find(|class| class["class"] == name);
    let of = |name: &str| class(name).map(kind).unwrap_or_default();
    Ok(Run { all: kind(&report["total"]), files: of("files"), scripts: of("scripts"), large: of("large") })
}

fn kind(class: &Value) -> Kind {
    let number = |value: &Value| value.as_f64().unwrap_or(0.0);
    let (offered, rate) = (number(&class["offered"]), number(&class["offered_per_s"]));
    let per_second = if offered > 0.0 { rate / offered } else { 0.0 };
    Kind {
        offered: rate,
        admitted: number(&class["admitted_per_s"]),
        refused: number(&class["refused"]) * per_second,
        mean: number(&class["latency"]["mean"]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mix_is_told_in_classes() {
        let classes = Mix::dynamic(100.0).classes();
        assert_eq!(classes.len(), 2);
        assert!(
            classes[0].starts_with("name=files,rate=80.00/s,path=40.0000*/small/0.html,path=20.0000*"),
            "{}",
            classes[0]
        );
        assert_eq!(classes[1], "name=scripts,rate=20.00/s,path=/cgi-bin/work.cgi");
    }
}
