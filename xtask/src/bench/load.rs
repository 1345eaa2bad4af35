//! One round of load: wrk on its own core, and what it counted.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::service::{Service, pin};
use crate::command::output;

/// Connections wrk keeps open.
pub const CONNECTIONS: u32 = 64;
/// Requests in one write when pipelining.
pub const PIPELINE: u32 = 16;

/// How requests use connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// One after the other on kept connections.
    KeepAlive,
    /// A new connection for each.
    NewConnection,
    /// [`PIPELINE`] in one write on kept connections.
    Pipelined,
}

/// What one round gave.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Counted {
    /// Responses, whatever their status.
    pub responses: u64,
    /// Of these, the ones with a status of 400 or more.
    pub refused: u64,
    /// Per second of wall time.
    pub per_second: f64,
    /// The 99th percentile, in microseconds; none when wrk had too few samples.
    pub p99_us: Option<f64>,
    /// Connections that failed or timed out.
    pub socket_errors: u64,
}

/// What is put on a service.
#[derive(Debug, Clone, Copy)]
pub struct Load {
    /// What is asked for.
    pub path: &'static str,
    /// How.
    pub shape: Shape,
    /// On how many connections at a time.
    pub connections: u32,
}

/// Puts load on a service from the given core for some seconds.
///
/// # Errors
/// When wrk is missing or says something unexpected.
pub fn put(service: &Service, load: Load, seconds: f64, core: usize, dir: &Path) -> Result<Counted> {
    let mut wrk = Command::new("wrk");
    wrk.args(["-t1", "--latency", &format!("-c{}", load.connections), &format!("-d{}s", seconds.ceil())]);
    match load.shape {
        Shape::KeepAlive => {}
        Shape::NewConnection => {
            wrk.args(["-H", "Connection: close"]);
        }
        Shape::Pipelined => {
            let script = dir.join("pipeline.lua");
            fs::write(&script, pipeline_script())?;
            wrk.arg("-s").arg(script);
        }
    }
    wrk.arg(format!("http://{}{}", service.address, load.path));
    pin(&mut wrk, core);
    let said = output(&mut wrk).context("wrk (Debian package wrk) puts the load")?;
    parse(&said).with_context(|| format!("cannot understand wrk:\n{said}"))
}

/// Every write is the same sixteen requests; wrk counts each response.
fn pipeline_script() -> String {
    let mut script = String::from("local batch\n\n");
    let _ = writeln!(script, "init = function(args)\n  local requests = {{}}");
    let _ = writeln!(script, "  for i = 1, {PIPELINE} do\n    requests[i] = wrk.format(\"GET\")\n  end");
    let _ = writeln!(script, "  batch = table.concat(requests)\nend\n");
    let _ = writeln!(script, "request = function()\n  return batch\nend");
    script
}

fn parse(said: &str) -> Result<Counted> {
    let (mut responses, mut per_second) = (None, None);
    let mut counted = Counted { responses: 0, refused: 0, per_second: 0.0, p99_us: None, socket_errors: 0 };
    for line in said.lines().map(str::trim) {
        if let Some((count, _)) = line.split_once(" requests in ") {
            responses = Some(count.parse()?);
        } else if let Some(rate) = line.strip_prefix("Requests/sec:") {
            per_second = Some(rate.trim().parse()?);
        } else if let Some(count) = line.strip_prefix("Non-2xx or 3xx responses:") {
            counted.refused = count.trim().parse()?;
        } else if let Some(errors) = line.strip_prefix("Socket errors:") {
            counted.socket_errors = errors.split(|c: char| !c.is_ascii_digit()).flat_map(str::parse::<u64>).sum();
        } else if let Some(time) = line.strip_prefix("99%") {
            counted.p99_us = micros(time.trim()).filter(|time| *time > 0.0);
        }
    }
    let (Some(responses), Some(per_second)) = (responses, per_second) else {
        bail!("no count of requests");
    };
    Ok(Counted { responses, per_second, ..counted })
}

/// `2.93ms` in microseconds.
fn micros(text: &str) -> Option<f64> {
    let units = [("us", 1.0), ("ms", 1e3), ("s", 1e6), ("m", 6e7)];
    units.iter().find_map(|(unit, factor)| Some(text.strip_suffix(unit)?.parse::<f64>().ok()? * factor))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_wrk_prints() {
        let said = "Running 5s test @ http://127.0.0.1:1/\n  1 threads and 64 connections\n  Latency Distribution\n\
            50%    1.20ms\n     99%    2.93ms\n  217440 requests in 5.01s, 300.05MB read\n\
            Socket errors: connect 1, read 20, write 0, timeout 3\n  Non-2xx or 3xx responses: 217439\n\
            Requests/sec:  43401.20\nTransfer/sec: 1MB\n";
        let counted = parse(said).unwrap();
        let wanted = Counted {
            responses: 217_440,
            refused: 217_439,
            per_second: 43_401.2,
            p99_us: Some(2930.0),
            socket_errors: 24,
        };
        assert_eq!(counted, wanted);
        assert!(parse("unable to connect\n").is_err());
    }

    #[test]
    fn times_have_units() {
        assert_eq!(micros("633.00us"), Some(633.0));
        assert_eq!(micros("1.50s"), Some(1.5e6));
        assert_eq!(micros("2.00m"), Some(1.2e8));
        assert_eq!(micros("soon"), None);
    }
}
