//! Load from `httperf`: an open loop, whatever the answers, and a look at every head.
//!
//! It counts what hey hides (resets, refused connections, clients that gave up) and prints the head of every answer, so
//! that each refusal can be checked. It says nothing about response times by status, so times are hey's.
//! It spins: where it shares a core with the sentry, the sentry has half of it.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::apache::SCRIPTS;
use crate::bench::service::pin;
use crate::command::output;

/// A client gives up after so many seconds. httperf has at most 1,024 connections open at a time: at 300 requests per
/// second that is the longest time in which all may wait.
const PATIENCE: f64 = 3.0;

/// What one run of httperf gave.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Counted {
    /// Connections it opened, each for one request.
    pub connections: u64,
    /// Seconds from the first to the last.
    pub seconds: f64,
    /// How many answers had each status.
    pub statuses: BTreeMap<u16, u64>,
    /// Refusals (503) without `Retry-After` or `Tidegate-Decision`.
    pub unexplained: u64,
    /// What went wrong, by httperf's name for it; only what did.
    pub errors: BTreeMap<String, u64>,
}

/// Sends the scripts in their shares, `rate` requests per second for some seconds, from one core.
///
/// # Errors
/// When httperf is missing, fails, or says something unexpected.
pub fn put(address: SocketAddr, rate: f64, seconds: f64, core: usize, dir: &Path) -> Result<Counted> {
    let list = dir.join("httperf.uris");
    fs::write(&list, uris())?;
    let mut httperf = Command::new("httperf");
    httperf.args(["--hog", "--print-reply=header", "--num-calls=1"]);
    httperf.arg(format!("--timeout={PATIENCE}")).arg(format!("--rate={rate:.3}"));
    httperf.arg(format!("--num-conns={}", (rate * seconds).round()));
    httperf.arg(format!("--server={}", address.ip())).arg(format!("--port={}", address.port()));
    httperf.arg(format!("--wlog=y,{}", list.display()));
    pin(&mut httperf, core);
    let said = output(&mut httperf).context("httperf (Debian package httperf) puts the load")?;
    parse(&said)
}

/// The mix as a list that httperf goes round: shares in tenths, spread by largest arrears.
fn uris() -> String {
    let mut arrears = SCRIPTS.each_ref().map(|_| 0.0);
    let mut text = String::new();
    for _ in 0..10 {
        for (arrear, script) in arrears.iter_mut().zip(&SCRIPTS) {
            *arrear += script.share;
        }
        let most = (0..SCRIPTS.len()).max_by(|a, b| arrears[*a].total_cmp(&arrears[*b])).unwrap_or(0);
        arrears[most] -= 1.0;
        text.push_str(SCRIPTS[most].path);
        text.push('\0');
    }
    text
}

/// One answer's head, as far as it was printed.
#[derive(Debug, Default)]
struct Head {
    status: u16,
    retry_after: bool,
    decision: bool,
}

fn parse(said: &str) -> Result<Counted> {
    let mut counted = Counted::default();
    let mut heads: HashMap<&str, Head> = HashMap::new();
    let mut whole = false;
    for line in said.lines() {
        if let Some((call, text)) = line.strip_prefix("RH").and_then(|line| line.split_once(':')) {
            heads.entry(call).or_default().read(text);
        } else if line.starts_with("Total: connections ") {
            counted.connections = after(line, "connections")?;
            counted.seconds = after(line, "test-duration")?;
            whole = true;
        } else if let Some(errors) = line.strip_prefix("Errors: ") {
            counted.errors.extend(pairs(errors)?);
        }
    }
    if !whole {
        bail!("cannot understand httperf: no line `Total: connections`");
    }
    counted.errors.retain(|name, count| name != "total" && *count > 0);
    for head in heads.values() {
        *counted.statuses.entry(head.status).or_default() += 1;
        counted.unexplained += u64::from(head.status == 503 && !(head.retry_after && head.decision));
    }
    Ok(counted)
}

impl Head {
    fn read(&mut self, line: &str) {
        if line.starts_with("HTTP/") {
            self.status = line.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
        }
        let name = line.split(':').next().unwrap_or_default().to_ascii_lowercase();
        self.retry_after |= name == "retry-after";
        self.decision |= name == "tidegate-decision";
    }
}

/// The number after a word.
///
/// # Errors
/// When there is none.
pub fn after<T: std::str::FromStr>(line: &str, word: &str) -> Result<T> {
    let mut words = line.split_whitespace().skip_while(|found| *found != word).skip(1);
    let value = words.next().and_then(|value| value.parse().ok());
    value.with_context(|| format!("cannot understand httperf: no number after `{word}` in `{line}`"))
}

/// `client-timo 0 socket-timo 2` as names and counts.
fn pairs(text: &str) -> Result<Vec<(String, u64)>> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let pair = |pair: &[&str]| Some((pair.first()?.to_string(), pair.get(1)?.parse().ok()?));
    let read = words.chunks(2).map(pair);
    read.collect::<Option<_>>().with_context(|| format!("cannot understand httperf's errors `{text}`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAID: &str = "httperf --hog --rate=4\nRH0:HTTP/1.1 200 OK\nRH0:Content-Length: 3\nRH0:\n\
        RS0: header 1 content 3 footer 0\nRH1:HTTP/1.1 503 Service Unavailable\nRH2:HTTP/1.1 503 Service Unavailable\n\
        RH1:retry-after: 1\nRH2:Retry-After: 2\nRH1:tidegate-decision: rejected; reason=overload\n\
        Total: connections 4 requests 4 replies 3 test-duration 0.759 s\n\n\
        Reply status: 1xx=0 2xx=1 3xx=0 4xx=0 5xx=2\n\n\
        Errors: total 1 client-timo 1 socket-timo 0 connrefused 0 connreset 0\n\
        Errors: fd-unavail 0 addrunavail 0 ftab-full 0 other 0\n";

    #[test]
    fn reads_counts_errors_and_every_head() {
        let counted = parse(SAID).unwrap();
        assert_eq!((counted.connections, counted.seconds), (4, 0.759));
        assert_eq!(counted.statuses.into_iter().collect::<Vec<_>>(), [(200, 1), (503, 2)]);
        assert_eq!(counted.unexplained, 1);
        assert_eq!(counted.errors.into_iter().collect::<Vec<_>>(), [("client-timo".to_owned(), 1)]);
    }

    #[test]
    fn another_output_is_an_error() {
        assert!(parse("httperf: connection failed\n").is_err());
        assert!(parse("Total: connections many\n").unwrap_err().to_string().contains("many"));
        assert!(parse("Errors: total\n").is_err());
    }

    #[test]
    fn the_list_holds_the_shares() {
        let list = uris();
        let paths: Vec<&str> = list.split_terminator('\0').collect();
        for script in &SCRIPTS {
            let part = paths.iter().filter(|path| **path == script.path).count() as f64 / paths.len() as f64;
            assert!((part - script.share).abs() < 1e-9, "{}: {part}", script.path);
        }
    }
}
