//! Load from `hey`, many processes of it, and what they measured.
//!
//! hey is the generator because it writes the response time and the status of every request, so that the 95th
//! percentile of the admitted ones is exact; httperf gives means and medians over all of them. hey's limits, and what
//! is done about them here:
//!
//! - It is a closed loop: a worker waits for its answer. With a rate of one request each [`PERIOD`] per worker, and as
//!   many workers as that takes, the load is an open one as long as answers take less than the period.
//! - The workers of one process fire together. [`PROCESSES`] per script, started one after the other within a period,
//!   spread the bursts.
//! - It takes one URL: each script has its own processes, which also keeps the mix.
//! - A request without an answer (refused connection, reset, time-out) has no row. What was due and has no row is
//!   counted as lost, and httperf counts such errors in its own run.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::process::Process;
use crate::apache::SCRIPTS;

/// Processes for each script in an open load.
const PROCESSES: u32 = 16;
/// Between two requests of a worker, seconds, unless answers are expected to take longer.
pub const PERIOD: f64 = 1.0;
/// After this a request has no answer: few people wait longer.
const TIMEOUT: Duration = Duration::from_secs(10);
/// What a process may take over its time and the last request's.
const GRACE: Duration = Duration::from_secs(10);
/// From a process's start to its clock's, at most, seconds: a request due just before the end may come just after.
const START_UP: f64 = 0.1;

/// Every answer of a load.
#[derive(Debug)]
pub struct Answers {
    pub(super) rows: Vec<Row>,
    /// Of requests, in the time that counts: from the beginning until the first process stops.
    pub(super) seconds: f64,
    pub(super) due: f64,
}

impl Answers {
    /// The part of the due requests that was sent and answered.
    pub fn kept(&self) -> f64 {
        self.rows.iter().filter(|row| row.offset <= self.seconds).count() as f64 / self.due.max(1.0)
    }

    /// How many answers had each status.
    pub fn statuses(&self) -> BTreeMap<u16, u64> {
        let mut counts = BTreeMap::new();
        self.rows.iter().for_each(|row| *counts.entry(row.status).or_default() += 1);
        counts
    }

    /// Answers with status 200 within so many seconds, per second.
    pub fn good_rate(&self, target: f64) -> f64 {
        let in_time = |row: &&Row| row.status == 200 && row.took <= target && row.offset + row.took <= self.seconds;
        self.rows.iter().filter(in_time).count() as f64 / self.seconds
    }

    /// The 95th percentile of the response times with status 200, seconds: the nearest rank; none without any.
    pub fn p95(&self) -> Option<f64> {
        let mut took: Vec<f64> = self.rows.iter().filter(|row| row.status == 200).map(|row| row.took).collect();
        took.sort_by(f64::total_cmp);
        took.get(((0.95 * took.len() as f64).ceil() as usize).saturating_sub(1)).copied()
    }
}

/// What one process of hey does.
#[derive(Debug, Clone, PartialEq)]
struct Stream {
    /// Which of [`SCRIPTS`] it asks for.
    script: usize,
    /// Requests it has open at most.
    workers: u32,
    /// Requests per second of one worker.
    rate: f64,
    /// When it starts, after the load's begin.
    delay: Duration,
}

/// All scripts in their shares, `rate` requests per second together, one each [`PERIOD`] from each worker.
fn streams(rate: f64) -> Vec<Stream> {
    let mut turns = Vec::new();
    for (script, of) in SCRIPTS.iter().enumerate() {
        let rate = rate * of.share;
        let workers = (rate * PERIOD).ceil().max(1.0) as u32;
        let each = rate / f64::from(workers);
        let processes = PROCESSES.min(workers);
        for turn in 0..processes {
            let workers = workers / processes + u32::from(turn < workers % processes);
            turns.push((turn, Stream { script, workers, rate: each, delay: Duration::ZERO }));
        }
    }
    // Evenly over the period, the scripts in turn.
    turns.sort_by_key(|(turn, _)| *turn);
    let step = PERIOD / turns.len() as f64;
    let places = turns.into_iter().enumerate();
    places
        .map(|(place, (_, stream))| Stream { delay: Duration::from_secs_f64(step * place as f64), ..stream })
        .collect()
}

/// Puts the mix on a sentry at a rate for some seconds from one core, and waits for the last answer. `url`: what its
/// addresses begin with, scheme and port.
///
/// # Errors
/// When hey is missing, fails, does not end, or says something unexpected.
pub fn put(url: &str, rate: f64, seconds: f64, core: usize, dir: &Path) -> Result<Answers> {
    let (begin, streams) = (Instant::now(), streams(rate));
    let mut processes = Vec::new();
    for (index, stream) in streams.iter().enumerate() {
        thread::sleep(stream.delay.saturating_sub(begin.elapsed()));
        let file = dir.join(format!("hey-{index}.csv"));
        let started = begin.elapsed().as_secs_f64();
        processes.push((start(stream, url, seconds, core, file)?, started));
    }
    let deadline = begin + Duration::from_secs_f64(seconds + PERIOD * 10.0) + TIMEOUT + GRACE;
    let stop = processes.first().map_or(0.0, |(_, started)| started + seconds);
    let mut answers = Answers { rows: Vec::new(), seconds: stop, due: 0.0 };
    for ((process, started), stream) in processes.iter_mut().zip(&streams) {
        let rows = parse(&process.finish(deadline)?)?.into_iter();
        answers.rows.extend(rows.map(|row| Row { offset: *started + row.offset, ..row }));
        answers.due += stream.due(stop - *started);
    }
    if answers.rows.is_empty() {
        bail!("no request was answered");
    }
    Ok(answers)
}

impl Stream {
    /// Requests in the first seconds.
    fn due(&self, seconds: f64) -> f64 {
        f64::from(self.workers) * ((seconds - START_UP) * self.rate).floor()
    }
}

fn start(stream: &Stream, url: &str, seconds: f64, core: usize, file: PathBuf) -> Result<Process> {
    let mut hey = Command::new("hey");
    hey.args(["-o", "csv", "-cpus", "1", "-z", &format!("{}ms", (seconds * 1e3).round())]);
    hey.args(["-t", &TIMEOUT.as_secs().to_string(), "-c", &stream.workers.to_string()]);
    // An overload is many clients, each with few requests: every request has its own connection.
    hey.args(["-disable-keepalive", "-q", &format!("{:.6}", stream.rate)]);
    // It takes any certificate. In the handshake it names whom the Host field names, with the port where that has one,
    // and a name with a port is no name.
    hey.args(["-host", "localhost"]);
    hey.arg(format!("{url}{}", SCRIPTS[stream.script].path));
    Process::start("hey", hey, core, file)
}

/// One answer in hey's words; times in seconds, the offset since the process's start.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Row {
    pub(super) offset: f64,
    pub(super) took: f64,
    pub(super) status: u16,
}

fn parse(text: &str) -> Result<Vec<Row>> {
    let mut lines = text.lines();
    let head: Vec<&str> = lines.next().unwrap_or_default().split(',').collect();
    let column = |name: &str| {
        let place = head.iter().position(|column| *column == name);
        place.with_context(|| format!("hey's table has no column `{name}`: {}", head.join(",")))
    };
    let (took, status, offset) = (column("response-time")?, column("status-code")?, column("offset")?);
    let row = |line: &str| {
        let cells: Vec<&str> = line.split(',').collect();
        let cell = |index: usize| cells.get(index).copied().unwrap_or_default().trim();
        Some(Row {
            offset: cell(offset).parse().ok()?,
            took: cell(took).parse().ok()?,
            status: cell(status).parse().ok()?,
        })
    };
    let lines = lines.filter(|line| !line.trim().is_empty());
    lines.map(|line| row(line).with_context(|| format!("cannot understand hey's line `{line}`"))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "response-time,DNS+dialup,DNS,Request-write,Response-delay,Response-read,status-code,offset\n";

    #[test]
    fn reads_what_hey_writes() {
        let text = format!("{HEAD}0.0252,0.0056,0.0000,0.0001,0.0193,0.0001,404,2.8165\n0.5,0,0,0,0,0,200,10.0\n\n");
        let rows = parse(&text).unwrap();
        assert_eq!(rows[0], Row { offset: 2.8165, took: 0.0252, status: 404 });
        assert_eq!(rows[1], Row { offset: 10.0, took: 0.5, status: 200 });
        assert_eq!(rows.len(), 2);
        assert!(parse(HEAD).unwrap().is_empty());
    }

    #[test]
    fn another_table_or_a_torn_line_is_an_error() {
        assert!(parse("").unwrap_err().to_string().contains("response-time"));
        assert!(parse("a,b,status-code\n1,2,3\n").is_err());
        assert!(parse(&format!("{HEAD}0.1,0,0\n")).unwrap_err().to_string().contains("0.1,0,0"));
    }

    #[test]
    fn an_open_load_keeps_rate_and_shares_and_spreads_its_starts() {
        let streams = streams(257.0);
        let rate = |stream: &Stream| f64::from(stream.workers) * stream.rate;
        let whole: f64 = streams.iter().map(rate).sum();
        assert!((whole - 257.0).abs() < 1e-9, "{whole}");
        for (index, script) in SCRIPTS.iter().enumerate() {
            let of: f64 = streams.iter().filter(|stream| stream.script == index).map(rate).sum();
            assert!((of / whole - script.share).abs() < 1e-9);
        }
        let mut delays: Vec<_> = streams.iter().map(|stream| stream.delay).collect();
        assert!(delays.is_sorted() && delays.iter().all(|delay| delay.as_secs_f64() < PERIOD));
        delays.dedup();
        assert_eq!(delays.len(), streams.len());
        assert!(streams.iter().all(|stream| stream.rate <= 1.0 / PERIOD));
        assert_eq!(streams[..3].iter().map(|stream| stream.script).collect::<Vec<_>>(), [0, 1, 2]);
    }

    #[test]
    fn a_small_load_has_no_idle_process() {
        let streams = streams(10.0);
        assert_eq!(streams.iter().map(|stream| stream.workers).sum::<u32>(), 5 + 3 + 2);
        assert!(streams.iter().all(|stream| stream.workers > 0));
    }

    #[test]
    fn what_is_due_follows_the_rate() {
        let stream = Stream { script: 0, workers: 4, rate: 0.5, delay: Duration::ZERO };
        assert_eq!(stream.due(9.9), 16.0);
    }

    #[test]
    fn answers_count_within_the_time_and_percentiles_over_all() {
        let row = |offset, took, status| Row { offset, took, status };
        let rows = vec![
            row(1.0, 0.1, 200),
            row(2.0, 0.6, 200),
            row(2.5, 0.01, 503),
            // Sent in time, answered after it.
            row(4.9, 0.3, 200),
            // Sent after it.
            row(5.5, 0.2, 200),
        ];
        let answers = Answers { rows, seconds: 5.0, due: 5.0 };
        assert_eq!((answers.kept(), answers.good_rate(0.5), answers.p95()), (0.8, 0.2, Some(0.6)));
        assert_eq!(answers.statuses().into_iter().collect::<Vec<_>>(), [(200, 4), (503, 1)]);
        assert_eq!(Answers { rows: Vec::new(), seconds: 5.0, due: 5.0 }.p95(), None);
    }
}
