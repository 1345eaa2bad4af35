//! Load from `ghz`, a gRPC load generator in Go, which writes down every call.
//!
//! With `--async` a call does not wait for the one before: the load is an open one. Without it, so many calls are open
//! at a time. A call's time ends with its status; ghz notes when that was.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::answers::{Answers, Row};
use crate::command;
use crate::real::process::Process;

/// What a call carries: the one byte `x`.
const DATA: &str = "\"eA==\"";
/// After this a call is over, unless a load says otherwise.
pub const PATIENCE: Duration = Duration::from_secs(10);
/// What the process may take over its time and the last call's.
const GRACE: Duration = Duration::from_secs(10);

/// How calls are made.
#[derive(Debug, Clone, Copy)]
pub enum Pace {
    /// So many a second, whatever the answers.
    Open(f64),
    /// So many at a time.
    Closed(u32),
}

/// Calls of one method.
#[derive(Debug, Clone, Copy)]
pub struct Calls {
    /// The method's name.
    pub method: &'static str,
    /// How many.
    pub pace: Pace,
    /// Each call's deadline.
    pub deadline: Duration,
}

/// A load under way.
pub struct Load {
    process: Process,
    deadline: Instant,
    due: f64,
}

impl Load {
    /// Starts calls for some seconds from one core.
    ///
    /// # Errors
    /// When ghz cannot be started.
    pub fn start(ghz: &Path, to: SocketAddr, calls: Calls, seconds: f64, core: usize, dir: &Path) -> Result<Self> {
        let mut command = Command::new(ghz);
        let proto = command::root().join("xtask/grpc/shop.proto");
        command.arg("--insecure").arg("--proto").arg(proto).args(["--data", DATA, "--format", "json"]);
        command.args(["--call", &format!("tidegate.live.Shop.{}", calls.method), "--duration-stop", "wait"]);
        command.args(["--duration", &format!("{seconds}s"), "--timeout", &millis(calls.deadline)]);
        let due = match calls.pace {
            Pace::Open(rate) => {
                command.args(["--async", "--rps", &rate.round().to_string(), "--concurrency=8", "--connections=8"]);
                rate.round() * seconds
            }
            Pace::Closed(count) => {
                command.args(["--concurrency", &count.to_string(), "--connections=2"]);
                0.0
            }
        };
        command.arg(to.to_string());
        let file: PathBuf = dir.join(format!("ghz-{}.json", calls.method));
        let deadline = Instant::now() + Duration::from_secs_f64(seconds) + calls.deadline + GRACE;
        Ok(Self { process: Process::start("ghz", command, core, file)?, deadline, due })
    }

    /// Waits for the last call.
    ///
    /// # Errors
    /// When ghz fails, does not end, or says something unexpected.
    pub fn finish(mut self) -> Result<Answers> {
        let said = self.process.finish(self.deadline)?;
        Ok(Answers { rows: parse(&said)?, due: self.due, good: "OK" })
    }
}

fn millis(time: Duration) -> String {
    format!("{}ms", time.as_millis())
}

fn parse(said: &str) -> Result<Vec<Row>> {
    let report: Value = serde_json::from_str(said).context("ghz's report is not JSON")?;
    let details = report["details"].as_array().context("ghz's report has no list `details`")?;
    let row = |detail: &Value| {
        let ended = seconds_of_day(detail["timestamp"].as_str()?)?;
        let took = detail["latency"].as_f64()? / 1e9;
        Some(Row { ended, took, status: detail["status"].as_str()?.to_owned() })
    };
    let rows: Option<Vec<Row>> = details.iter().map(row).collect();
    let mut rows = rows.context("cannot understand a call in ghz's report")?;
    if rows.is_empty() {
        bail!("ghz made no call");
    }
    // Midnight may lie within.
    let (first, last) = (0..rows.len())
        .fold((f64::MAX, 0.0_f64), |(first, last), row| (first.min(rows[row].ended), last.max(rows[row].ended)));
    if last - first > DAY / 2.0 {
        rows.iter_mut().filter(|row| row.ended < DAY / 2.0).for_each(|row| row.ended += DAY);
    }
    let first = rows.iter().map(|row| row.ended).fold(f64::MAX, f64::min);
    rows.iter_mut().for_each(|row| row.ended -= first);
    Ok(rows)
}

const DAY: f64 = 86_400.0;

/// `2026-11-24T13:46:54.074050097Z` in seconds since midnight.
fn seconds_of_day(time: &str) -> Option<f64> {
    let (_, clock) = time.split_once('T')?;
    let clock = clock.split(['Z', '+', '-']).next()?;
    clock.split(':').try_fold(0.0, |sum, part| Some(sum * 60.0 + part.parse::<f64>().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_read_with_their_times_over_midnight_too() {
        let said = r#"{"count":2,"details":[
            {"timestamp":"2026-11-25T00:00:00.5Z","latency":26426173,"error":"","status":"OK"},
            {"timestamp":"2026-11-24T23:59:59.250Z","latency":1000000,"error":"x","status":"Unavailable"}]}"#;
        let rows = parse(said).unwrap();
        assert_eq!((rows[0].ended, rows[1].ended), (1.25, 0.0));
        assert_eq!((rows[0].status.as_str(), rows[1].status.as_str()), ("OK", "Unavailable"));
        assert!((rows[0].took - 0.026_426_173).abs() < 1e-12);
        assert_eq!(seconds_of_day("2026-11-24T01:02:03.5+02:00"), Some(3723.5));
    }

    #[test]
    fn another_report_is_an_error() {
        assert!(parse("oops").is_err());
        assert!(parse("{}").unwrap_err().to_string().contains("details"));
        assert!(parse(r#"{"details":[]}"#).unwrap_err().to_string().contains("no call"));
        assert!(parse(r#"{"details":[{"timestamp":"now"}]}"#).is_err());
    }
}
