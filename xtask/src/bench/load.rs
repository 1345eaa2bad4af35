//! One round of load: wrk on its own core, and what it counted.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::service::{Service, pin};
use crate::command::{Profile, output};

/// Connections wrk keeps open.
pub const CONNECTIONS: u32 = 64;
/// Requests at once on a connection of HTTP/2.
pub const STREAMS: u32 = 8;
/// Requests in one write when pipelining.
pub const PIPELINE: u32 = 16;

/// New connections a second where what counts is how they begin: less than any proxy can bear.
pub const HANDSHAKES: u32 = 500;

/// How requests use connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// One after the other on kept connections.
    KeepAlive,
    /// A new connection for each.
    NewConnection,
    /// [`PIPELINE`] in one write on kept connections.
    Pipelined,
    /// By HTTP/2, [`STREAMS`] at once on each of fewer connections; by h2load, as the one that follows.
    Http2,
    /// The same over TLS.
    Http2Tls,
    /// One after the other on kept connections over TLS.
    Tls,
    /// A new connection for each, with a full handshake; by `tidegate load`, [`HANDSHAKES`] a second.
    FullHandshake,
    /// The same with a session that is resumed.
    ResumedHandshake,
}

impl Shape {
    /// Whether it is by HTTP/2.
    pub fn is_http2(self) -> bool {
        matches!(self, Self::Http2 | Self::Http2Tls)
    }

    /// Whether it is over TLS.
    pub fn is_tls(self) -> bool {
        self == Self::Tls || self == Self::Http2Tls || self.is_handshake()
    }

    /// Whether what counts is how connections begin.
    pub fn is_handshake(self) -> bool {
        matches!(self, Self::FullHandshake | Self::ResumedHandshake)
    }
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
    if load.shape.is_http2() {
        return put_http2(service, load, seconds, core);
    }
    if load.shape.is_handshake() {
        return put_handshakes(service, load, seconds, core);
    }
    let mut wrk = Command::new("wrk");
    wrk.args(["-t1", "--latency", &format!("-c{}", load.connections), &format!("-d{}s", seconds.ceil())]);
    match load.shape {
        Shape::KeepAlive | Shape::Tls => {}
        Shape::Http2 | Shape::Http2Tls | Shape::FullHandshake | Shape::ResumedHandshake => unreachable!("not by wrk"),
        Shape::NewConnection => {
            wrk.args(["-H", "Connection: close"]);
        }
        Shape::Pipelined => {
            let script = dir.join("pipeline.lua");
            fs::write(&script, pipeline_script())?;
            wrk.arg("-s").arg(script);
        }
    }
    let scheme = if load.shape.is_tls() { "https" } else { "http" };
    wrk.arg(format!("{scheme}://{}{}", service.address, load.path));
    pin(&mut wrk, core);
    let said = output(&mut wrk).context("wrk (Debian package wrk) puts the load")?;
    parse(&said).with_context(|| format!("cannot understand wrk:\n{said}"))
}

/// As many requests at once as wrk has, on an eighth of the connections.
fn put_http2(service: &Service, load: Load, seconds: f64, core: usize) -> Result<Counted> {
    let mut h2load = Command::new("h2load");
    let clients = (load.connections / STREAMS).max(1);
    h2load.args(["-t1", "-D", &seconds.ceil().to_string(), "-m", &STREAMS.to_string(), "-c", &clients.to_string()]);
    let scheme = if load.shape == Shape::Http2Tls { "https" } else { "http" };
    h2load.arg(format!("{scheme}://{}{}", service.address, load.path));
    pin(&mut h2load, core);
    let said = output(&mut h2load).context("h2load (Debian package nghttp2-client) puts the load")?;
    parse_http2(&said).with_context(|| format!("cannot understand h2load:\n{said}"))
}

/// By our own generator, which can be told to resume sessions or not to.
fn put_handshakes(service: &Service, load: Load, seconds: f64, core: usize) -> Result<Counted> {
    let mut tidegate = Command::new(Profile::Release.tidegate());
    tidegate.args(["load", "--insecure", "--close", "--arrivals", "constant", "--json", "-"]);
    tidegate.args(["--rate", &format!("{HANDSHAKES}/s"), "--duration", &format!("{}s", seconds.ceil())]);
    tidegate.args(["--to", &format!("https://{}{}", service.address, load.path)]);
    if load.shape == Shape::FullHandshake {
        tidegate.arg("--full-handshakes");
    }
    pin(&mut tidegate, core);
    let said = output(&mut tidegate).context("`tidegate load` puts the load")?;
    parse_handshakes(&said).with_context(|| format!("cannot understand `tidegate load`:\n{said}"))
}

fn parse_handshakes(said: &str) -> Result<Counted> {
    let report: serde_json::Value = serde_json::from_str(said)?;
    let total = &report["total"];
    let number = |name: &str| total[name].as_u64().with_context(|| format!("no count of `{name}`"));
    let errors = total["errors"].as_object().map_or(0, |errors| errors.values().filter_map(|n| n.as_u64()).sum());
    let refused = number("refused")?;
    Ok(Counted {
        responses: number("admitted")? + refused,
        refused,
        per_second: total["admitted_per_s"].as_f64().context("no rate")?,
        p99_us: None,
        socket_errors: errors,
    })
}

/// What h2load says it did.
///
/// # Errors
/// When a count is missing.
pub fn parse_http2(said: &str) -> Result<Counted> {
    let line =
        |begins: &str| said.lines().find(|line| line.starts_with(begins)).with_context(|| format!("no `{begins}`"));
    // `requests: 779 total, 805 started, 779 done, 752 succeeded, 27 failed, 0 errored, 0 timeout`
    let counts = |line: &str| {
        let parts = line.split_once(':').map_or("", |(_, parts)| parts).split(',');
        let pair = |part: &str| part.trim().split_once(' ').map(|(count, name)| (name.to_owned(), count.to_owned()));
        parts.filter_map(pair).collect::<std::collections::HashMap<_, _>>()
    };
    let number = |line: &str, name: &str| -> Result<u64> {
        let found = counts(line).remove(name).with_context(|| format!("no count of `{name}`"))?;
        Ok(found.parse()?)
    };
    let (requests, statuses, finished) = (line("requests:")?, line("status codes:")?, line("finished in")?);
    let per_second = finished.split(',').find_map(|part| part.trim().strip_suffix(" req/s")?.parse().ok());
    let responses = number(requests, "done")?;
    Ok(Counted {
        responses,
        // Among the statuses are those of answers whose ends it did not wait for.
        refused: responses.min(number(statuses, "4xx")? + number(statuses, "5xx")?),
        per_second: per_second.context("no rate")?,
        p99_us: None,
        socket_errors: number(requests, "errored")? + number(requests, "timeout")?,
    })
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
    fn reads_what_h2load_prints() {
        let said = "starting benchmark...\n\nfinished in 8.00s, 97.38 req/s, 3.01KB/s\n\
            requests: 779 total, 805 started, 779 done, 752 succeeded, 27 failed, 1 errored, 2 timeout\n\
            status codes: 752 2xx, 0 3xx, 3 4xx, 24 5xx\n";
        let wanted = Counted { responses: 779, refused: 27, per_second: 97.38, p99_us: None, socket_errors: 3 };
        assert_eq!(parse_http2(said).unwrap(), wanted);
        let cut = said.replace("752 2xx, 0 3xx, 3 4xx, 24 5xx", "0 2xx, 0 3xx, 0 4xx, 780 5xx");
        assert_eq!(parse_http2(&cut).unwrap().refused, 779);
        assert!(parse_http2("requests: 1 total\n").is_err());
    }

    #[test]
    fn times_have_units() {
        assert_eq!(micros("633.00us"), Some(633.0));
        assert_eq!(micros("1.50s"), Some(1.5e6));
        assert_eq!(micros("2.00m"), Some(1.2e8));
        assert_eq!(micros("soon"), None);
    }
}
