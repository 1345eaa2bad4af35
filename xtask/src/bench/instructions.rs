//! `cargo xtask bench instructions`: how many instructions in user space a request, a decision and a simulated
//! happening take, held against `benches/instructions.toml`.
//!
//! Times say little on a machine with neighbours; instructions hardly move there, so a twentieth more is a finding.
//! They are counted by valgrind, in the program as checks build it (profile `release`). A figure is for one unit: of a
//! process that serves it is counted between two instants ([`mod@served`]), of one that computes it is the difference
//! between runs of different lengths ([`models`]). What the kernel does for a request does not show, nor what memory
//! costs.

mod baseline;
mod callgrind;
mod models;
mod served;

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};

use super::figure::Figure;
use super::load::Shape;
use super::origin::start_origin;
use super::proxy::LOAD_CORE;
use super::stop::Scratch;
use crate::args::{Args, all_known};
use crate::command::{Profile, find_program, root};
use baseline::{Baseline, Built, FILE, Finding};
use models::Model;
use served::Case;

/// Counts of one row that lie further apart than this share are no figure.
const STEADY: f64 = 0.02;

/// One figure.
struct Row {
    /// Its name in the baseline and in `--only`.
    name: &'static str,
    /// What one unit is.
    what: &'static str,
    of: Of,
}

/// What is counted.
enum Of {
    Served(Case),
    Model(Model),
}

impl Row {
    fn is_served(&self) -> bool {
        matches!(self.of, Of::Served(_))
    }
}

/// The default policy.
const DEFAULT: &str = "admission = { policy = \"waiting\" }\n";
const REFUSE: &str = "admission = { policy = \"concurrency\", limit = 0, queue = 0 }\n";

const fn served(
    name: &'static str,
    what: &'static str,
    (path, shape): (&'static str, Shape),
    (admission, status): (&'static str, u16),
    requests: u32,
) -> Row {
    Row { name, what, of: Of::Served(Case { path, shape, admission, status, requests }) }
}

const fn model(name: &'static str, what: &'static str, words: &'static [&'static str]) -> Row {
    Row { name, what, of: Of::Model(Model { words }) }
}

/// Every figure. To add one, add a row and `--record`.
const ROWS: &[Row] = &[
    served("pass-1k", "request passed, 1 kB", ("/1k", Shape::KeepAlive), (DEFAULT, 200), 2000),
    served("pass-64k", "request passed, 64 kB", ("/64k", Shape::KeepAlive), (DEFAULT, 200), 1000),
    served("pass-h2c", "request passed by HTTP/2, 1 kB", ("/1k", Shape::Http2), (DEFAULT, 200), 1000),
    served("pass-new", "connection with a request passed", ("/1k", Shape::NewConnection), (DEFAULT, 200), 2000),
    served("refuse", "request refused", ("/1k", Shape::KeepAlive), (REFUSE, 503), 4000),
    model("engine-none", "arrival and completion", &["engine", "none", "3"]),
    model("engine-threshold", "arrival and completion", &["engine", "threshold", "3"]),
    model("engine-batch", "arrival and completion", &["engine", "batch", "3"]),
    model("engine-waiting", "arrival and completion", &["engine", "waiting", "3"]),
    model("engine-1k-servers", "arrival and completion, 1,000 servers", &["engine", "waiting", "1000"]),
    model("engine-10k-servers", "arrival and completion, 10,000 servers", &["engine", "waiting", "10000"]),
    model("sim-threshold", "happening in the simulator", &["sim", "threshold"]),
    model("sim-batch", "happening in the simulator", &["sim", "batch"]),
];

/// What was counted of one row.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Count {
    /// Instructions for a unit.
    figure: u64,
    /// How far its repetitions lie apart, as a share.
    spread: f64,
}

impl Count {
    /// The median of several counts, and how far they lie apart.
    fn of(mut each: Vec<f64>) -> Self {
        each.sort_by(f64::total_cmp);
        let (Some(least), Some(most)) = (each.first(), each.last()) else { return Self { figure: 0, spread: 0.0 } };
        let median = each[each.len() / 2];
        Self { figure: median.round() as u64, spread: (most - least) / median }
    }

    fn figure(self, name: &str) -> Option<Figure> {
        let (figure, half) = (self.figure as f64, self.spread / 2.0);
        Figure::count(name, "instructions", [figure, figure * (1.0 - half), figure * (1.0 + half)].into_iter())
    }

    fn is_steady(self) -> bool {
        self.spread <= STEADY
    }
}

/// What was asked for.
struct Options {
    record: bool,
    only: Option<Vec<String>>,
}

impl Options {
    fn take(mut args: Args) -> Result<Self> {
        let record = args.switch("--record");
        let only = args.list("--only")?;
        args.finish()?;
        let known: Vec<_> = ROWS.iter().map(|row| row.name).collect();
        all_known("row", only.as_deref(), &known)?;
        ensure!(!(record && only.is_some()), "a baseline is of all rows: leave out --only or --record");
        Ok(Self { record, only })
    }

    fn wanted(&self) -> impl Iterator<Item = &'static Row> {
        let wants = |row: &&Row| self.only.as_ref().is_none_or(|only| only.iter().any(|name| name == row.name));
        ROWS.iter().filter(wants)
    }
}

/// Counts every row, and judges or records what came of it.
///
/// # Errors
/// When a row takes more instructions than it may, cannot be counted, or has no baseline.
pub fn run(args: Args) -> Result<Vec<Figure>> {
    let options = Options::take(args)?;
    for program in ["valgrind", "vgdb"] {
        find_program(program).with_context(|| format!("{program} is missing; install the Debian package valgrind"))?;
    }
    let built = Built::here()?;
    if options.record {
        built.ensure_plain()?;
    }
    if options.wanted().any(Row::is_served) {
        Profile::Release.build()?;
    }
    models::build()?;
    let counts = count(&options)?;
    if options.record {
        record(built, &counts)?;
    } else {
        judge(&built, &counts, options.only.is_none())?;
    }
    Ok(counts.iter().filter_map(|(row, count)| count.figure(row.name)).collect())
}

/// Rows and what was counted of them.
type Counts = Vec<(&'static Row, Count)>;

fn count(options: &Options) -> Result<Counts> {
    let scratch = Scratch::new("instructions")?;
    let count = |rows: Vec<&'static Row>, origin| -> Result<Counts> {
        rows.into_iter().map(|row| Ok((row, count_row(row, origin, scratch.path())?))).collect()
    };
    let (served, computed) = options.wanted().partition::<Vec<_>, _>(|row| row.is_served());
    // What computes alone takes what is left of the processors, and is counted the same.
    let counts = thread::scope(|scope| {
        let computed = scope.spawn(|| count(computed, None));
        let counts = if served.is_empty() {
            Ok(Vec::new())
        } else {
            let cores = thread::available_parallelism()?.get();
            let (origin, _) = start_origin(LOAD_CORE.min(cores - 1), scratch.path())?;
            count(served, Some(origin.address))
        };
        let computed = computed.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        Ok::<_, anyhow::Error>([counts?, computed?])
    })?;
    Ok(counts.concat())
}

fn count_row(row: &Row, origin: Option<SocketAddr>, dir: &Path) -> Result<Count> {
    let begun = Instant::now();
    let again = || match (&row.of, origin) {
        (Of::Served(case), Some(origin)) => case.count(row.name, origin, dir),
        (Of::Served(_), None) => bail!("there is no origin"),
        (Of::Model(model), _) => model.count(dir),
    };
    let counted = || again().map(Count::of).with_context(|| row.name);
    let mut count = counted()?;
    if !count.is_steady() {
        println!("{}: {}, counted again", row.name, unsteady(count));
        count = counted()?;
    }
    println!("{}: {} ({:.1} s)", row.name, count.figure, begun.elapsed().as_secs_f64());
    Ok(count)
}

fn unsteady(count: Count) -> String {
    format!("its counts lie {:.1} % apart, {:.0} % at most", count.spread * 100.0, STEADY * 100.0)
}

fn record(built: Built, counts: &Counts) -> Result<()> {
    for (row, count) in counts {
        ensure!(count.is_steady(), "{}: {}: give it more units before it is recorded", row.name, unsteady(*count));
    }
    let rows = counts.iter().map(|(row, count)| (row.name.to_owned(), count.figure)).collect();
    let baseline = Baseline { built, rows };
    fs::write(path(), baseline.to_string()).with_context(|| format!("cannot write {FILE}"))?;
    println!("written: {FILE}; commit it with the reason");
    Ok(())
}

fn judge(built: &Built, counts: &Counts, is_whole: bool) -> Result<()> {
    let text = fs::read_to_string(path()).with_context(|| format!("cannot read {FILE}; --record writes it"))?;
    let baseline = Baseline::read(&text).with_context(|| format!("{FILE} is no baseline; --record writes another"))?;
    println!("\n| row | what is one | before | now | ratio | spread % |\n|---|---|--:|--:|--:|--:|");
    for (row, count) in counts {
        let before = baseline.figure(row.name);
        let ratio = before.map_or("-".to_owned(), |before| format!("{:.3}", count.figure as f64 / before as f64));
        let before = before.map_or("-".to_owned(), |before| before.to_string());
        let (name, what, now, spread) = (row.name, row.what, count.figure, count.spread * 100.0);
        println!("| {name} | {what} | {before} | {now} | {ratio} | {spread:.2} |");
    }
    println!();
    if let Some(why) = baseline.built.differs(built) {
        // The suite counts what begins so as not judged.
        println!("{}{why}; `cargo xtask bench instructions --record` writes one of this", crate::steps::NOT_JUDGED);
        return Ok(());
    }
    let counted: Vec<_> = counts.iter().map(|(row, count)| (row.name, *count)).collect();
    let findings = baseline.judge(&counted, is_whole);
    for finding in &findings {
        println!("{finding}");
    }
    let failed = findings.iter().filter(|finding| finding.is_failure()).count();
    if failed > 0 {
        bail!(
            "{failed} of the rows above take more instructions than they may, or cannot be judged. If a change is worth it, \
             run `cargo xtask bench instructions --record` and commit {FILE} with the reason"
        );
    }
    if findings.iter().any(Finding::is_shrunk) {
        println!("so that they stay few, run `cargo xtask bench instructions --record` and commit {FILE}");
    }
    println!("{} rows hold", counts.len() - findings.len());
    Ok(())
}

fn path() -> PathBuf {
    root().join(FILE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_is_a_median_with_its_spread() {
        let count = Count::of(vec![101.0, 99.0, 100.4]);
        assert_eq!(count.figure, 100);
        assert!((count.spread - 2.0 / 100.4).abs() < 1e-9 && count.is_steady());
        assert!(!Count::of(vec![100.0, 97.0]).is_steady());
    }

    #[test]
    fn the_baseline_in_the_repository_has_every_row_and_no_other() {
        let baseline = Baseline::read(&fs::read_to_string(path()).unwrap()).unwrap();
        let recorded: Vec<_> = baseline.rows.iter().map(|(name, _)| name.as_str()).collect();
        let rows: Vec<_> = ROWS.iter().map(|row| row.name).collect();
        assert_eq!(recorded, rows, "run `cargo xtask bench instructions --record`");
    }
}
