//! Load from `h2load`, nghttp2's load generator, which writes down every answer.
//!
//! Each of its clients sends at a rate of its own, up to a hundred streams at once: an open loop for as long as no
//! client has so many open. Without a rate each keeps so many streams open.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::answers::{Answers, Row};
use super::ghz::Pace;
use crate::real::process::Process;

/// Of each client, a second.
const RATE: f64 = 20.0;
/// What the process may take over its time.
const GRACE: Duration = Duration::from_secs(20);

/// A load under way.
pub struct Load {
    process: Process,
    deadline: Instant,
    log: PathBuf,
    due: f64,
}

impl Load {
    /// Starts requests for one path for some seconds from one core.
    ///
    /// # Errors
    /// When h2load cannot be started.
    pub fn start(to: SocketAddr, path: &str, pace: Pace, seconds: f64, core: usize, dir: &Path) -> Result<Self> {
        let name = path.replace('/', "-");
        let log = dir.join(format!("h2load{name}.tsv"));
        // It appends.
        let _none_before = fs::remove_file(&log);
        let mut command = Command::new("h2load");
        command.args(["-t1", "-D", &seconds.round().to_string(), "--log-file"]).arg(&log);
        let due = match pace {
            Pace::Open(rate) => {
                let clients = (rate / RATE).round().max(1.0);
                command.args(["-m100", "--rps", &RATE.to_string(), "-c", &clients.to_string()]);
                clients * RATE * seconds.round()
            }
            Pace::Closed(count) => {
                command.args(["-c2", "-m", &count.div_ceil(2).to_string()]);
                0.0
            }
        };
        command.arg(format!("http://{to}{path}"));
        let deadline = Instant::now() + Duration::from_secs_f64(seconds) + GRACE;
        let file = dir.join(format!("h2load{name}.log"));
        Ok(Self { process: Process::start("h2load", command, core, file)?, deadline, log, due })
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// When h2load fails, does not end, or says something unexpected.
    pub fn finish(mut self) -> Result<Answers> {
        self.process.finish(self.deadline)?;
        let said = fs::read_to_string(&self.log).context("h2load wrote no log")?;
        Ok(Answers { rows: parse(&said)?, due: self.due, good: "200" })
    }
}

/// Each line is the time at which a request began, microseconds since 1970, its status, and how many it took.
fn parse(said: &str) -> Result<Vec<Row>> {
    let row = |line: &str| {
        let mut cells = line.split('\t');
        let (began, status, took) = (cells.next()?, cells.next()?, cells.next()?);
        let (began, took): (u64, u64) = (began.parse().ok()?, took.parse().ok()?);
        Some((began, took, status.to_owned()))
    };
    let rows = said.lines().map(|line| row(line).with_context(|| format!("cannot understand h2load's line `{line}`")));
    let rows = rows.collect::<Result<Vec<_>>>()?;
    let Some(first) = rows.iter().map(|(began, ..)| *began).min() else {
        bail!("h2load had no answer");
    };
    let row = |(began, took, status): (u64, u64, String)| Row {
        ended: (began - first + took) as f64 / 1e6,
        took: took as f64 / 1e6,
        status,
    };
    Ok(rows.into_iter().map(row).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read_with_their_times() {
        let rows = parse("1795528170625445\t503\t4257\n1795528170125445\t200\t250000\n").unwrap();
        assert_eq!((rows[0].ended, rows[0].status.as_str()), (0.504_257, "503"));
        assert_eq!((rows[1].ended, rows[1].took), (0.25, 0.25));
        assert!(parse("").is_err());
        assert!(parse("now\t200\t1\n").unwrap_err().to_string().contains("now"));
    }
}
