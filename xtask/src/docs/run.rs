//! `cargo xtask docs --run`: every command that the documents show, run.
//!
//! Each document is a scene of its own: network and process namespaces (so that ports are free, addresses are what the
//! text says, nothing outside is reached, and nothing is left running) and a folder that looks like the top of the
//! checkout, with the files that the document shows. What is run and what is not is said beside each block: `shown.rs`.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::scene::{self, Scene};
use super::shown::{Block, How, Part, Shown};
use crate::command::{self, cargo, output, target};
use crate::programs::{self, PROGRAMS};

/// Where scenes are, below the target folder.
const FOLDER: &str = "shown";

/// The name of a configuration that the document gives none.
const CONFIGURATION: &str = "shown.toml";

/// The commands of one document take longer only if something hangs.
const LONGEST: Duration = Duration::from_secs(1800);

/// Runs what these documents show; each has a path and what it shows.
///
/// Where the system gives no namespaces nothing is run, and that is said.
///
/// # Errors
/// When a command does not end well; each document is tried before that.
pub fn run(documents: &[(String, Shown)]) -> Result<()> {
    let begun = Instant::now();
    if let Err(error) = output(unshare().arg("true")) {
        if crate::suite::in_ci() {
            return Err(error.context("no namespaces to run commands in"));
        }
        println!(
            "skipped: commands of the documents, because this machine gives no namespaces to run them in: {error:#}"
        );
        return Ok(());
    }
    build()?;
    let documents: Vec<_> = documents.iter().filter(|(_, shown)| !shown.parts.is_empty()).collect();
    let mut sums = BTreeMap::<&str, usize>::new();
    for command in documents.iter().flat_map(|(_, shown)| shown.blocks()).flat_map(|block| &block.commands) {
        *sums.entry(kind(&command.how)).or_default() += 1;
    }
    let sources: Vec<&str> = documents.iter().map(|(source, _)| source.as_str()).collect();
    let failed = play_all(&sources)?;
    let sums: Vec<_> = sums.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
    println!("commands shown: {}; {:.0} s", sums.join(", "), begun.elapsed().as_secs_f64());
    if !failed.is_empty() {
        bail!("commands that do not do what the text says, in {}", failed.join(", "));
    }
    Ok(())
}

/// Plays documents, several at a time: each has a network of its own, and mostly waits. Names those that failed.
fn play_all<'a>(sources: &[&'a str]) -> Result<Vec<&'a str>> {
    let (next, failed) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let worker = || {
        while let Some(source) = sources.get(next.fetch_add(1, Ordering::Relaxed)) {
            let (said, result) = match within(source) {
                Ok((said, result)) => (said, result),
                Err(error) => (String::new(), Err(error)),
            };
            let mut failed = failed.lock().unwrap_or_else(PoisonError::into_inner);
            println!("{source}\n{}", said.trim_end());
            if let Err(error) = result {
                println!("  FAILED: {error:#}");
                failed.push(*source);
            }
        }
    };
    let at_once = std::thread::available_parallelism()?.get() + 1;
    std::thread::scope(|scope| (0..at_once).for_each(|_| drop(scope.spawn(worker))));
    let mut failed = failed.into_inner().unwrap_or_else(PoisonError::into_inner);
    failed.sort_unstable();
    Ok(failed)
}

/// Plays one document; called in its namespaces.
///
/// # Errors
/// When a command does not end well.
pub fn play(source: &str, shown: &Shown) -> Result<()> {
    scene::raise_network()?;
    let mut scene = Scene::set(folder(source), &target())?;
    for part in &shown.parts {
        if let Part::File { name, text } = part {
            scene.write(name, text)?;
        }
    }
    for part in &shown.parts {
        match part {
            Part::File { .. } => {}
            Part::Configuration { line, text } => {
                scene.write(CONFIGURATION, text)?;
                let check = format!("tidegate check {CONFIGURATION}");
                scene.run(&check).with_context(|| format!("{source}:{line}"))?;
                println!("  {:>9}  the configuration of line {line}", "checked");
            }
            Part::Block(block) => {
                play_block(&mut scene, block).with_context(|| format!("{source}:{}", block.line))?;
            }
        }
    }
    scene.end()
}

fn play_block(scene: &mut Scene, block: &Block) -> Result<()> {
    let missing: Vec<_> = block.needs.iter().filter(|name| !is_here(name)).cloned().collect();
    if !missing.is_empty() {
        if crate::suite::in_ci() {
            bail!("{} is missing", missing.join(", "));
        }
        println!("  skipped: line {}, because {} is missing", block.line, missing.join(", "));
        return Ok(());
    }
    for address in &block.addresses {
        scene::add_address(address)?;
    }
    for given in &block.given {
        match &given.address {
            Some(address) => scene.serve(&given.line, Some(address))?,
            None => scene.run(&given.line)?,
        }
    }
    for command in &block.commands {
        let begun = Instant::now();
        match &command.how {
            How::Run(line) => scene.run(line)?,
            How::Stays { line, address } => scene.serve(line, address.as_deref())?,
            How::Step(step) => {
                println!("             {}   # run by: {step}", command.shown);
                continue;
            }
            How::Not(reason) => {
                println!("             {}   # not run: {reason}", command.shown);
                continue;
            }
        }
        println!("  {:>7.1} s  {}", begun.elapsed().as_secs_f64(), command.shown);
    }
    for line in &block.after {
        scene.until(line)?;
    }
    scene.check()
}

/// Starts this program again for one document, in namespaces of its own: what it starts ends with it. Gives what it
/// said, and how it ended.
fn within(source: &str) -> Result<(String, Result<()>)> {
    let scene = folder(source);
    if scene.exists() {
        fs::remove_dir_all(&scene).with_context(|| format!("{} cannot be removed", scene.display()))?;
    }
    let log = scene.with_extension("log");
    fs::create_dir_all(target().join(FOLDER))?;
    let out = fs::File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
    let mut command = unshare();
    command.arg(std::env::current_exe()?).args(["docs", "--play", source]).stderr(out.try_clone()?).stdout(out);
    let end = end_in_time(&mut command.spawn()?, &scene);
    Ok((fs::read_to_string(&log)?, end))
}

fn end_in_time(child: &mut Child, scene: &Path) -> Result<()> {
    let deadline = Instant::now() + LONGEST;
    loop {
        if let Some(status) = child.try_wait()? {
            return if status.success() { Ok(()) } else { bail!("it ended with {status}; see {}", scene.display()) };
        }
        if Instant::now() > deadline {
            // With `--kill-child` whatever it started ends, too.
            child.kill()?;
            child.wait()?;
            bail!("it takes longer than {LONGEST:?}; see {}", scene.display());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// What runs a program in namespaces of its own; whatever that starts ends with it.
fn unshare() -> Command {
    let mut unshare = Command::new("unshare");
    unshare.args(["--map-root-user", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"]).stdin(Stdio::null());
    unshare
}

/// The programs that the documents are about, and whatever cargo needs, as scenes have no way to the Internet.
fn build() -> Result<()> {
    command::run(&mut cargo(["fetch", "--quiet", "--locked"]))?;
    // As the tests are built, so that after them there is nothing to do.
    command::run(cargo(["test", "--quiet", "--no-run"]).args(crate::suite::BUILD))
}

fn is_here(name: &str) -> bool {
    PROGRAMS.iter().any(|program| program.name == name && program.is_present())
}

/// Whether it is one of the external programs that we know.
pub fn is_program(name: &str) -> bool {
    programs::PROGRAMS.iter().any(|program| program.name == name)
}

fn kind(how: &How) -> &'static str {
    match how {
        How::Run(_) | How::Stays { .. } => "run here",
        How::Step(_) => "run by other steps",
        How::Not(_) => "not run",
    }
}

fn folder(source: &str) -> PathBuf {
    let name = Path::new(source).with_extension("").to_string_lossy().replace('/', "-").to_lowercase();
    target().join(FOLDER).join(name)
}
