//! Rates from `httperf`, an open-loop generator that is not ours, and what was answered of them.

use std::net::SocketAddr;
use std::process::Command;

use anyhow::{Context, Result};

use crate::bench::service::pin;
use crate::command::output;
use crate::real::httperf::after;

/// A request without an answer for so long has none, seconds: long enough for a queue to be worked off.
const PATIENCE: u32 = 30;

/// What one run of httperf gave.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Counted {
    /// Replies per second, from the first request to the last reply.
    pub rate: f64,
    /// From a request to the end of its reply, mean, seconds.
    pub reply: f64,
    /// Requests without a reply, connections refused, and whatever else went wrong.
    pub errors: u64,
}

/// Asks for a path at a rate for some seconds, from one core, each request over a connection of its own.
///
/// # Errors
/// When httperf is missing, fails, or says something unexpected.
pub fn put(address: SocketAddr, path: &str, rate: f64, seconds: f64, core: usize) -> Result<Counted> {
    let mut httperf = Command::new("httperf");
    httperf.args(["--hog", &format!("--timeout={PATIENCE}"), "--num-calls=1", &format!("--rate={rate:.3}")]);
    httperf.arg(format!("--num-conns={}", (rate * seconds).ceil().max(1.0)));
    httperf.arg(format!("--server={}", address.ip())).arg(format!("--port={}", address.port()));
    httperf.arg(format!("--uri={path}"));
    pin(&mut httperf, core);
    parse(&output(&mut httperf).context("httperf (Debian package httperf) puts the load")?)
}

fn parse(said: &str) -> Result<Counted> {
    let line = |start: &str| {
        let found = said.lines().find(|line| line.starts_with(start));
        found.with_context(|| format!("cannot understand httperf: no line `{start}`"))
    };
    let total = line("Total: connections ")?;
    let (replies, seconds): (f64, f64) = (after(total, "replies")?, after(total, "test-duration")?);
    let status = line("Reply status: ")?;
    let well = status.split_whitespace().find_map(|word| word.strip_prefix("2xx=")?.parse::<f64>().ok());
    let well = well.context("cannot understand httperf: no number after `2xx=`")?;
    let errors: u64 = after(line("Errors: total ")?, "total")?;
    let time = line("Reply time [ms]: ")?;
    let (response, transfer): (f64, f64) = (after(time, "response")?, after(time, "transfer")?);
    let reply = (response + transfer) / 1e3;
    Ok(Counted { rate: well / seconds, reply, errors: errors + (replies - well) as u64 })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAID: &str = "httperf --hog --rate=4\nTotal: connections 40 requests 40 replies 38 test-duration 2.000 s\n\n\
        Reply time [ms]: response 7.5 transfer 0.5\n\
        Reply status: 1xx=0 2xx=36 3xx=0 4xx=0 5xx=2\n\nErrors: total 2 client-timo 2 socket-timo 0\n\
        Errors: fd-unavail 0 addrunavail 0\n";

    #[test]
    fn what_was_answered_well_counts_and_the_rest_is_an_error() {
        assert_eq!(parse(SAID).unwrap(), Counted { rate: 18.0, reply: 8e-3, errors: 4 });
        for missing in ["Total: connections", "Reply time", "Reply status", "Errors: total"] {
            assert!(parse(&SAID.replace(missing, "x")).is_err(), "{missing}");
        }
    }
}
