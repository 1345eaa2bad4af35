//! `cargo xtask soak` and `cargo xtask chaos`: a sentry before servers and nuclei, all processes, for hours or through
//! one fault after the other.
//!
//! Both go in pieces, and each piece is a line of a record: a soak that was ended, or that is to be longer, goes on
//! where its record ends. The soak puts far more load than the servers can do, with a reload and a change of servers
//! in each piece, and judges whether memory, descriptors, latency and the learned level of costs stay where they
//! were. Chaos draws a fault for each piece, and judges whether everything is well again behind it. The seed of the
//! draws is printed.

mod company;
mod configuration;
mod fault;
mod judge;
mod look;
pub mod network;
mod relay;
mod site;
mod well;

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use crate::args::Args;
use crate::bench::machine;
use crate::bench::stop::Scratch;
use crate::checks::Check;
use crate::command;

use fault::Fault;
use judge::Piece;
use look::Look;
use site::{Site, until};
use well::Before;

/// Of what is offered behind a fault, half the capacity for ten seconds, so much is admitted. It was 0.95 of two
/// seconds: costs that were learned under overload are learned anew meanwhile, and 510 of 806 were admitted on a
/// machine that had other things to do.
const SERVED: f64 = 0.8;
/// What the servers can do, requests/s: four of one core, 5 ms each.
const CAPACITY: f64 = 800.0;
/// How long everything may take to come to rest behind a piece.
const REST: Duration = Duration::from_secs(20);

/// The long run.
///
/// # Errors
/// When a process cannot be started or asked; what does not stay flat is an exit status of 1.
pub fn soak(mut args: Args) -> Result<ExitCode> {
    let short = args.switch("--short");
    let pieces: usize = args.option("--pieces")?.unwrap_or(if short { 4 } else { 360 });
    let seconds: u64 = args.option("--seconds")?.unwrap_or(if short { 2 } else { 60 });
    let rate: f64 = args.option("--rate")?.unwrap_or(if short { 4.0 * CAPACITY } else { 20_000.0 });
    let record: PathBuf = args.option("--record")?.unwrap_or_else(|| command::target().join("soak.jsonl"));
    args.finish()?;
    if short {
        // What a short run finds says nothing about the next one.
        let _ = fs::remove_file(&record);
    }
    command::build_tidegate()?;
    let scratch = Scratch::new("soak")?;
    let mut site = Site::start(scratch.path())?;
    let start = read(&record)?.len();
    if start > 0 {
        println!("{} has {start} pieces: it goes on behind them", record.display());
    }
    for piece in start..start + pieces {
        site.reload(piece)?;
        site.change_servers(piece)?;
        let load = site.load(rate, seconds)?;
        let seen = Look::at(&site, &load.wait()?)?;
        println!("{piece}: {seen}");
        write(&record, &seen.to_json(site.pid(), piece))?;
    }
    let rests = at_rest(&site)?;
    let pieces: Vec<Piece> = read(&record)?.iter().map(Piece::read).collect::<Result<_>>()?;
    let mut checks = judge::flatness(&pieces, short);
    checks.push(("in flight and waiting return to 0".to_owned(), said(rests), rests));
    Ok(judge::tell(&record, &checks))
}

/// One fault after the other, in a network of its own.
///
/// # Errors
/// When a process cannot be started or asked; what is not well again is an exit status of 1.
pub fn chaos(mut args: Args) -> Result<ExitCode> {
    let short = args.switch("--short");
    let seconds: u64 = args.option("--seconds")?.unwrap_or(if short { 30 } else { 600 });
    let seed: u64 = args.option("--seed")?.unwrap_or_else(drawn);
    let only: Option<String> = args.option("--only")?;
    let record: PathBuf = args.option("--record")?.unwrap_or_else(|| command::target().join("chaos.jsonl"));
    let inside = args.switch("--inside");
    args.finish()?;
    // A name that is none is said before anything is built.
    Fault::drawn(seed, 0, only.as_deref())?;
    if !inside {
        command::build_tidegate()?;
        return network::again_inside();
    }
    network::raise()?;
    println!("--seed {seed}");
    let _ = fs::remove_file(&record);
    write(&record, &json!({ "seed": seed, "machine": machine::facts() }))?;
    let scratch = Scratch::new("chaos")?;
    let mut site = Site::start_with_company(scratch.path())?;
    let pid = site.pid();
    let end = Instant::now() + Duration::from_secs(seconds);
    let (mut checks, mut number) = (Vec::new(), 0);
    while Instant::now() < end {
        checks.extend(befalls(&mut site, Fault::drawn(seed, number, only.as_deref())?, number, &record)?);
        number += 1;
    }
    let lives = site.pid() == pid && site.is_healthy()?;
    checks.push(("the sentry lives and is well, and nothing panicked".to_owned(), said(lives), lives));
    if number == 0 {
        bail!("no fault in {seconds} s");
    }
    Ok(judge::tell(&record, &checks))
}

/// One fault, under load; what must hold of it.
fn befalls(site: &mut Site, fault: Fault, number: usize, record: &Path) -> Result<Vec<Check>> {
    let before = Before::of(site)?;
    let load = site.load(2.0 * CAPACITY, 5)?;
    let striking = fault.strike(site);
    // Whatever came of it, what was stopped goes on, and what was killed comes back.
    let undone = fault.undo(site);
    let load = load.wait();
    let noticed = striking.with_context(|| format!("fault {number}, {fault:?}"))?;
    undone?;
    let during = Look::at(site, &load?)?;
    let rests = at_rest(site)?;
    let mut found = before.checks(site, fault.keeps_line())?;
    let after = Look::at(site, &site.load(0.5 * CAPACITY, 10)?.wait()?)?;
    println!("{number}: {fault:?}: during {during}; after {after}");
    found.push(("in flight and waiting return to 0".to_owned(), said(rests), rests));
    found.push(("half the capacity is served".to_owned(), format!("{after}"), after.each_serves(SERVED)));
    if let Some(noticed) = noticed {
        found.push(("who is concerned notices".to_owned(), said(noticed), noticed));
    }
    if let Some(least) = fault.leaves() {
        found.push((format!("{least} is served meanwhile"), format!("{during}"), during.serves(least)));
    }
    let missed: Vec<_> = found.iter().filter(|check| !check.2).map(|check| (&check.0, &check.1)).collect();
    write(
        record,
        &json!({
            "number": number, "fault": format!("{fault:?}"), "rests": rests, "missed": missed,
            "during": during.to_json(site.pid(), number), "after": after.to_json(site.pid(), number),
        }),
    )?;
    let named = |(what, found, holds): Check| (format!("{number} {fault:?}: {what}"), found, holds);
    Ok(found.into_iter().map(named).collect())
}

fn said(holds: bool) -> String {
    if holds { "it does".to_owned() } else { "it does not".to_owned() }
}

fn drawn() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(())
}

/// Waits until nothing is in flight and nothing waits; whether it came to that.
fn at_rest(site: &Site) -> Result<bool> {
    until(REST, || Ok(site.busy()? == 0))
}

/// The lines of a record; none, if there is no record.
fn read(record: &Path) -> Result<Vec<Value>> {
    let text = match fs::read_to_string(record) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error).with_context(|| format!("cannot read {}", record.display())),
    };
    let line = |line: &str| serde_json::from_str(line).with_context(|| format!("{}: {line}", record.display()));
    text.lines().map(line).collect()
}

fn write(record: &Path, line: &Value) -> Result<()> {
    let file = fs::OpenOptions::new().append(true).create(true).open(record);
    let mut file = file.with_context(|| format!("cannot write {}", record.display()))?;
    writeln!(file, "{line}").with_context(|| format!("cannot write {}", record.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_goes_on_where_it_ended() {
        let record = std::env::temp_dir().join(format!("tidegate-record-{}", std::process::id()));
        assert_eq!(read(&record).unwrap().len(), 0);
        for piece in 0..3 {
            write(&record, &json!({ "piece": piece })).unwrap();
        }
        let lines = read(&record).unwrap();
        fs::remove_file(&record).unwrap();
        assert_eq!((lines.len(), lines[2]["piece"].as_u64()), (3, Some(2)));
    }
}
