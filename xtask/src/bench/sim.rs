//! The simulator's speed: on its own, and beside SimPy in the same session.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, anyhow};

use super::figure::{Figure, rows};
use super::machine;
use crate::args::Args;
use crate::command::{cargo, output};

/// Where a record goes.
const RESULTS: &str = "benches/results";

/// The cases of `crates/sim/benches/speed.rs`.
///
/// # Errors
/// When the bench fails.
pub fn run(mut args: Args) -> Result<Vec<Figure>> {
    let (short, big, record) = (args.switch("--short"), args.switch("--big"), args.switch("--record"));
    args.finish()?;
    let mut text = String::from(
        "# Speed of the simulator\n\n`cargo xtask bench sim`. Million happenings per second of one core's time.\n\n",
    );
    text.push_str(&facts());
    let mut said = speed(&[], short)?;
    if big {
        // A process of its own: the peak of memory is this case's alone.
        said.push('\n');
        said.push_str(&speed(&["million-100"], short)?);
    }
    text.push_str(&said);
    finish(&text, "sim", record)?;
    Ok(figures(&said))
}

/// The same model in SimPy and here, in turns.
///
/// # Errors
/// When Python, its packages or the bench fail.
pub fn beside_simpy(mut args: Args) -> Result<Vec<Figure>> {
    let (short, record) = (args.switch("--short"), args.switch("--record"));
    args.finish()?;
    let python = virtual_environment()?;
    let requests = if short { "50000" } else { "300000" };
    let mut text = String::from(
        "# The simulator beside SimPy\n\n`cargo xtask bench simpy`: ten servers of four cores, processor sharing, behind a \
         limit of 60 requests in flight, at 1.2 times their capacity; in turns, on one core, by CPU time.\n\n",
    );
    text.push_str(&facts());
    text.push_str("| round | SimPy requests/CPU s | tidegate requests/CPU s | ratio | admitted: SimPy, tidegate | mean ms: SimPy, tidegate |\n");
    text.push_str("|---|---|---|---|---|---|\n");
    let (mut speed_up, mut speeds) = (Vec::new(), Vec::new());
    for round in 1..=3 {
        let theirs = output(Command::new(&python).args(["benches/simpy/limited.py", requests]))?;
        let theirs: Vec<f64> = theirs.split_whitespace().filter_map(|number| number.parse().ok()).collect();
        let [count, seconds, admitted, mean] = theirs[..] else { return Err(anyhow!("SimPy said {theirs:?}")) };
        let ours = Row::read(&speed(&["simpy"], short)?)?;
        let (them, us) = (count / seconds, ours.requests / ours.seconds);
        text.push_str(&format!(
            "| {round} | {them:.0} | {us:.0} | {:.0} | {admitted:.3}, {:.3} | {mean:.2}, {:.2} |\n",
            us / them,
            ours.admitted,
            ours.mean
        ));
        speed_up.push(us / them);
        speeds.push(us);
    }
    finish(&text, "simpy", record)?;
    let speed = Figure::absolute("speed", "requests/CPU s", speeds.into_iter());
    let ratio = Figure::ratio("speed by that of SimPy", speed_up.into_iter());
    Ok([speed, ratio].into_iter().flatten().map(Figure::more_is_better).collect())
}

/// The speed of each case that the bench printed, one run each.
fn figures(said: &str) -> Vec<Figure> {
    let speed = |(_, cells): (&str, Vec<&str>)| {
        let speed = cells.get(8)?.parse().ok()?;
        Figure::absolute(*cells.first()?, "million happenings/CPU s", [speed].into_iter()).map(Figure::more_is_better)
    };
    rows(said).into_iter().filter_map(speed).collect()
}

/// A row of the bench's table.
struct Row {
    requests: f64,
    seconds: f64,
    admitted: f64,
    mean: f64,
}

impl Row {
    fn read(table: &str) -> Result<Row> {
        let row = table.lines().rfind(|line| line.starts_with("| simpy")).context("the bench printed no row")?;
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let cell = |at: usize| cells.get(at).and_then(|cell| cell.parse::<f64>().ok()).context(row.to_owned());
        Ok(Row { requests: cell(5)? * 1e6, seconds: cell(8)?, admitted: cell(11)?, mean: cell(12)? })
    }
}

fn speed(cases: &[&str], short: bool) -> Result<String> {
    let mut bench = cargo(["bench", "--quiet", "-p", "tidegate-sim", "--bench", "speed", "--locked", "--"]);
    bench.args(cases);
    if short {
        bench.env("TIDEGATE_BENCH_SHORT", "1");
    }
    output(&mut bench)
}

/// The machine as a table.
pub(super) fn facts() -> String {
    let mut text = String::from("| what | value |\n|---|---|\n");
    for (name, value) in machine::facts() {
        if name != "wrk" {
            text.push_str(&format!("| {name} | {value} |\n"));
        }
    }
    text.push('\n');
    text
}

/// Prints a text and, if told to, keeps it.
pub(super) fn finish(text: &str, name: &str, record: bool) -> Result<()> {
    print!("{text}");
    if record {
        let path = Path::new(RESULTS).join(format!("{}-{name}.md", machine::today()));
        std::fs::write(&path, format!("{}\n", text.trim_end())).with_context(|| path.display().to_string())?;
        println!("\nwritten: {}", path.display());
    }
    Ok(())
}

/// Python with the pinned packages, in the target folder.
fn virtual_environment() -> Result<PathBuf> {
    let folder = Path::new("target/simpy");
    let python = folder.join("bin/python");
    if !python.exists() {
        output(Command::new("python3").args(["-m", "venv"]).arg(folder)).context("python3 with venv is needed")?;
    }
    let install =
        ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r", "benches/simpy/requirements.txt"];
    output(Command::new(&python).args(install))?;
    Ok(python)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_speed_of_each_case_is_a_figure() {
        let said = "| case | servers | policy | load | M requests | M happenings | s | CPU s | M/CPU s | bar | admitted |\n\
            |---|---|---|---|---|---|---|---|---|---|---|\n\
            | million-1 | 10 | none, jsq | 0.8 x | 1.0 | 3.1 | 0.61 | 0.60 | 5.17 | 2 | 1.0000 | 1.2 | 30 |\n";
        let found = figures(said);
        assert_eq!((found.len(), found[0].name.as_str(), found[0].median), (1, "million-1", 5.17));
    }
}
