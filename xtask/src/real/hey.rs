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

use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::Signal;

use super::measure::{Answer, Run};
use crate::apache::SCRIPTS;
use crate::bench::service::pin;
use crate::bench::stop;

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
const POLL: Duration = Duration::from_millis(20);

/// What one process of hey does.
#[derive(Debug, Clone, PartialEq)]
pub struct Stream {
    /// Which of [`SCRIPTS`] it asks for.
    script: usize,
    /// Requests it has open at most.
    workers: u32,
    /// Requests per second of one worker; none is as fast as answers come.
    rate: Option<f64>,
    /// When it starts, after the load's begin.
    delay: Duration,
}

/// Each script with so many workers that ask again as soon as they are answered; none when 0.
pub fn closed(workers: &[u32]) -> Vec<Stream> {
    let streams = workers.iter().enumerate().filter(|(_, workers)| **workers > 0);
    streams.map(|(script, &workers)| Stream { script, workers, rate: None, delay: Duration::ZERO }).collect()
}

/// All scripts in their shares, `rate` requests per second together, one each `period` seconds from each worker.
pub fn open(rate: f64, period: f64) -> Vec<Stream> {
    let mut turns = Vec::new();
    for (script, of) in SCRIPTS.iter().enumerate() {
        let rate = rate * of.share;
        let workers = (rate * period).ceil().max(1.0) as u32;
        let each = rate / f64::from(workers);
        let processes = PROCESSES.min(workers);
        for turn in 0..processes {
            let workers = workers / processes + u32::from(turn < workers % processes);
            turns.push((turn, Stream { script, workers, rate: Some(each), delay: Duration::ZERO }));
        }
    }
    // Evenly over the period, the scripts in turn.
    turns.sort_by_key(|(turn, _)| *turn);
    let step = period / turns.len() as f64;
    let places = turns.into_iter().enumerate();
    places
        .map(|(place, (_, stream))| Stream { delay: Duration::from_secs_f64(step * place as f64), ..stream })
        .collect()
}

/// Puts a load on an address for some seconds from one core, and waits for the last answer.
///
/// # Errors
/// When hey is missing, fails, does not end, or says something unexpected.
pub fn put(address: SocketAddr, streams: &[Stream], seconds: f64, core: usize, dir: &Path) -> Result<Run> {
    let begin = Instant::now();
    let mut processes = Vec::new();
    for (index, stream) in streams.iter().enumerate() {
        thread::sleep(stream.delay.saturating_sub(begin.elapsed()));
        let file = dir.join(format!("hey-{index}.csv"));
        let started = begin.elapsed().as_secs_f64();
        processes.push((Process::start(stream, address, seconds, core, file)?, started));
    }
    let deadline = begin + Duration::from_secs_f64(seconds + PERIOD * 10.0) + TIMEOUT + GRACE;
    let mut answers = Vec::new();
    let mut due = 0.0;
    let stop = processes.first().map_or(0.0, |(_, started)| started + seconds);
    for ((process, started), stream) in processes.iter_mut().zip(streams) {
        let rows = process.finish(deadline)?;
        answers.extend(rows.into_iter().map(|row| Answer {
            script: stream.script,
            start: *started + row.offset,
            took: row.took,
            status: row.status,
        }));
        due += stream.due(stop - *started);
    }
    // A closed loop has the service busy until its last answer: all of it counts, and the time it took.
    let last = answers.iter().map(|answer| answer.start + answer.took).fold(0.0, f64::max);
    let is_open = streams.iter().any(|stream| stream.rate.is_some());
    Run::new(answers, if is_open { stop } else { last }, due)
}

impl Stream {
    /// Requests in the first seconds of an open one; none for a closed one, which has no schedule.
    fn due(&self, seconds: f64) -> f64 {
        let counted = seconds - START_UP;
        self.rate.map_or(0.0, |rate| f64::from(self.workers) * (counted * rate).floor())
    }
}

/// One hey, killed when dropped before its end.
struct Process {
    child: Child,
    file: PathBuf,
}

impl Process {
    fn start(stream: &Stream, address: SocketAddr, seconds: f64, core: usize, file: PathBuf) -> Result<Self> {
        let mut hey = Command::new("hey");
        hey.args(["-o", "csv", "-cpus", "1", "-z", &format!("{}ms", (seconds * 1e3).round())]);
        hey.args(["-t", &TIMEOUT.as_secs().to_string(), "-c", &stream.workers.to_string()]);
        if let Some(rate) = stream.rate {
            // An overload is many clients, each with few requests: every request has its own connection.
            hey.args(["-disable-keepalive", "-q", &format!("{rate:.6}")]);
        }
        hey.arg(format!("http://{address}{}", SCRIPTS[stream.script].path));
        let output = File::create(&file).with_context(|| format!("cannot write {}", file.display()))?;
        hey.stdin(Stdio::null()).stdout(output).stderr(Stdio::null());
        pin(&mut hey, core);
        let child = hey.spawn().context("hey (Debian package hey) puts the load")?;
        stop::remember(child.id());
        Ok(Self { child, file })
    }

    fn finish(&mut self, deadline: Instant) -> Result<Vec<Row>> {
        let status = loop {
            if let Some(status) = self.child.try_wait()? {
                break status;
            }
            if Instant::now() > deadline {
                bail!("hey does not end; is the service stuck?");
            }
            thread::sleep(POLL);
        };
        stop::forget(self.child.id());
        if !status.success() {
            bail!("hey ended with {status}");
        }
        parse(&fs::read_to_string(&self.file)?)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            stop::signal_tree(self.child.id(), Signal::KILL);
            let _ended = self.child.wait();
            stop::forget(self.child.id());
        }
    }
}

/// One answer in hey's words; times in seconds, the offset since the process's start.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Row {
    offset: f64,
    took: f64,
    status: u16,
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
        let streams = open(257.0, PERIOD);
        let rate = |stream: &Stream| f64::from(stream.workers) * stream.rate.unwrap();
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
        assert!(streams.iter().all(|stream| stream.rate.unwrap() <= 1.0 / PERIOD));
        assert_eq!(streams[..3].iter().map(|stream| stream.script).collect::<Vec<_>>(), [0, 1, 2]);
    }

    #[test]
    fn a_small_load_has_no_idle_process() {
        let streams = open(10.0, PERIOD);
        assert_eq!(streams.iter().map(|stream| stream.workers).sum::<u32>(), 5 + 3 + 2);
        assert!(streams.iter().all(|stream| stream.workers > 0));
    }

    #[test]
    fn what_is_due_follows_the_rate() {
        let stream = Stream { script: 0, workers: 4, rate: Some(0.5), delay: Duration::ZERO };
        assert_eq!(stream.due(9.9), 16.0);
        assert_eq!(closed(&[2, 0, 1]).iter().map(|stream| stream.due(5.0)).sum::<f64>(), 0.0);
    }
}
