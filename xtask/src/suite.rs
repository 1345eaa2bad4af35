//! `cargo xtask test`: the programs tests need, the workspace's tests, and the live checks.
//!
//! There are two kinds of tests, and of live checks. *Correctness* does not depend on how fast the machine is: those
//! tests run several at a time, each in a process of its own, and a failure is a failure. *Measurements* do, so they
//! run alone, last, while the machine is watched; one that was disturbed is repeated, and in the end not judged
//! rather than guessed at ([`measure`]). Nothing else is ever tried again.
//!
//! On Debian as root, missing programs are installed. Elsewhere they are listed and what needs them is skipped aloud;
//! with `CI=true` a missing program is a failure, never a skip.

mod background;
mod binaries;
mod durations;
mod live;
mod measure;
mod plain;
mod pool;
mod side_by_side;
mod telling;
mod trial;

use std::fs;
use std::hash::{BuildHasher, Hasher};
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::sync::mpsc::Receiver;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::args::Args;
use crate::command::{cargo, run as run_command, target};
use crate::programs::{self, PROGRAMS};
use crate::steps::{Steps, Verdict};
use background::Background;
pub use binaries::BUILD;
use binaries::{Kind, Test};
use durations::Durations;
use live::{LIVE, Live};
use measure::{Judge, Run};
use side_by_side::Ended;
use trial::{End, Trial};

/// The step that runs the tests.
const TESTS: &str = "tests";

/// With `--quick`, tests that took longer when they ran last are left out.
const QUICK: Duration = Duration::from_secs(3);

/// How many of the slowest are named at the end.
const SLOWEST: usize = 10;

/// What was asked for.
#[derive(Debug, Default)]
pub struct Options {
    /// Only correctness tests that are not slow, and no live check.
    quick: bool,
    /// A measurement that could not be judged is a failure.
    pub strict: bool,
    /// Only names the tests.
    list: bool,
    /// Only tests whose title has this text, and no live check.
    only: Option<String>,
}

impl Options {
    fn take(args: &mut Args) -> Result<Self> {
        Ok(Self {
            quick: args.switch("--quick"),
            strict: args.switch("--strict"),
            list: args.switch("--list"),
            only: args.option("--only")?,
        })
    }

    fn is_whole(&self) -> bool {
        !self.quick && self.only.is_none()
    }
}

/// Runs every test and prints the summary.
///
/// # Errors
/// When an argument is unknown; a failing step is counted, not returned.
pub fn run(mut args: Args) -> Result<ExitCode> {
    let options = Options::take(&mut args)?;
    args.finish()?;
    if options.list {
        for test in binaries::build()? {
            println!("{}{}", test.title(), if test.kind == Kind::Measurement { " (measurement)" } else { "" });
        }
        return Ok(ExitCode::SUCCESS);
    }
    let mut steps = Steps::new(options.strict);
    add_to(&mut steps, &options);
    Ok(steps.finish())
}

/// Installs or lists the external programs, and no more.
///
/// # Errors
/// When an argument is unknown; a failing step is counted, not returned.
pub fn run_programs(args: Args) -> Result<ExitCode> {
    args.finish()?;
    let mut steps = Steps::default();
    steps.run("external programs", external_programs);
    Ok(steps.finish())
}

/// Whether `cargo xtask test` has a step of this name that runs commands.
pub fn is_step(name: &str) -> bool {
    name == TESTS || LIVE.iter().any(|live| live.name == name)
}

/// Adds the steps of `cargo xtask test` to a longer list.
pub fn add_to(steps: &mut Steps, options: &Options) {
    if options.is_whole() {
        steps.run("external programs", external_programs);
    }
    let no_namespaces = no_namespaces();
    match &no_namespaces {
        None => steps.run("network namespaces can be made", || Ok(())),
        Some(because) => lack(steps, "tests in network namespaces (connections policed in the kernel)", because),
    }
    // In what time the processors have to spare, from the beginning: what has no tests waits for it last.
    let mut release = options.is_whole().then(Background::release_build);
    let mut tests = Vec::new();
    steps.run("build of the tests", || {
        tests = binaries::build()?;
        Ok(())
    });
    if let Some(text) = &options.only {
        tests.retain(|test| test.title().contains(text));
    }
    if tests.is_empty() {
        return steps.run(TESTS, || bail!("there are none"));
    }
    let mut bench = match Bench::new() {
        Ok(bench) => bench,
        Err(error) => return steps.run(TESTS, || Err(error)),
    };
    bench.correctness(steps, &tests, options.quick);
    if options.is_whole() {
        steps.run("examples in the documentation of the crates", || {
            run_command(cargo(["test", "--quiet", "--doc"]).args(BUILD))
        });
        // These mostly wait, for programs that they show and for the optimised one.
        let waits = |live: &Live| live.kind == Kind::Correctness && !live.needs_release();
        let waiting = start_live_checks(steps, no_namespaces.as_deref(), usize::MAX, waits);
        steps.run("release build", || release.take().context("it was not started")??.join());
        steps.run("a build without optional features names them", || plain::check(&bench.folder));
        let is_left = |live: &Live| live.kind == Kind::Correctness && live.needs_release();
        // These compute.
        let computing =
            start_live_checks(steps, no_namespaces.as_deref(), cores(), |live| is_left(live) && !live.counts());
        end_live_checks(steps, computing);
        end_live_checks(steps, waiting);
        live_checks(steps, &mut bench.judge, no_namespaces.as_deref(), |live| is_left(live) && live.counts());
    }
    if !options.quick {
        bench.measurements(steps, &tests);
    }
    if options.is_whole() {
        live_checks(steps, &mut bench.judge, no_namespaces.as_deref(), |live| live.kind == Kind::Measurement);
    }
    bench.finish();
}

/// What all tests are run with.
struct Bench {
    /// For what tests print, and how long they took.
    folder: PathBuf,
    variables: Vec<(String, String)>,
    durations: Durations,
    took: Vec<(String, Duration)>,
    judge: Judge,
}

impl Bench {
    fn new() -> Result<Self> {
        let folder = target().join("tests");
        fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        let seed = seed()?;
        println!("generated inputs: TIDEGATE_SEED={seed}");
        let mut variables: Vec<(String, String)> =
            programs::environment().into_iter().map(|(name, value)| (name, value.to_owned())).collect();
        variables.extend(["TIDEGATE_SEED", "PROPTEST_RNG_SEED"].map(|name| (name.to_owned(), seed.to_string())));
        let durations = Durations::read(&folder);
        Ok(Self { folder, variables, durations, took: Vec::new(), judge: Judge::default() })
    }

    fn correctness(&mut self, steps: &mut Steps, tests: &[Test], quick: bool) {
        let is_wanted =
            |test: &&Test| test.kind == Kind::Correctness && !(quick && self.durations.expected(test) > QUICK);
        let wanted: Vec<&Test> = tests.iter().filter(is_wanted).collect();
        let left_out = tests.iter().filter(|test| test.kind == Kind::Correctness).count() - wanted.len();
        if left_out > 0 {
            println!("left out: {left_out} tests that took more than {} s", QUICK.as_secs());
        }
        let mut done = Vec::new();
        steps.run(TESTS, || {
            done = pool::run(&wanted, &self.variables, &self.folder, &self.durations)?;
            pool::clear_line();
            let failed: Vec<_> = done.iter().filter(|(_, trial)| trial.end != End::Passed).collect();
            for (test, _) in &failed {
                println!("FAILED {}\n   {}", test.title(), test.by_hand());
            }
            println!("{} of {} tests passed", done.len() - failed.len(), done.len());
            let reasons: Vec<_> = failed
                .iter()
                .map(|(test, trial)| format!("{}\n{}", test.title(), telling::lines(&trial.said)))
                .collect();
            if reasons.is_empty() { Ok(()) } else { bail!("{} tests\n{}", reasons.len(), reasons.join("\n")) }
        });
        for (test, trial) in done {
            steps.count_test(trial.end == End::Passed);
            self.note(test, &trial);
        }
    }

    fn measurements(&mut self, steps: &mut Steps, tests: &[Test]) {
        for test in tests.iter().filter(|test| test.kind == Kind::Measurement) {
            let mut last = None;
            let log = self.folder.join("measurement.log");
            steps.judge(&test.title(), || {
                let verdict = self.judge.judge(|| {
                    let trial = trial::run(test, &self.variables, &log)?;
                    let run = match trial.end {
                        End::Passed => Run::Held,
                        End::Missed => Run::Missed,
                        End::Broke => Run::Broke,
                    };
                    if run != Run::Held {
                        println!("{}", trial.said.trim_end());
                    }
                    let said = trial.said.clone();
                    last = Some(trial);
                    Ok((run, said))
                })?;
                if matches!(verdict, Verdict::Failed(_)) {
                    println!("   {}", test.by_hand());
                }
                Ok(verdict)
            });
            if let Some(trial) = last {
                self.note(test, &trial);
            }
        }
    }

    fn note(&mut self, test: &Test, trial: &Trial) {
        self.durations.note(test, trial.took);
        self.took.push((test.title(), trial.took));
    }

    /// Names the slowest, and remembers how long each took.
    fn finish(mut self) {
        self.took.sort_by_key(|(_, took)| std::cmp::Reverse(*took));
        println!("\nthe slowest tests");
        for (title, took) in self.took.iter().take(SLOWEST) {
            println!("  {:>6.1} s  {title}", took.as_secs_f64());
        }
        if let Err(error) = self.durations.write() {
            println!("how long tests take is not remembered: {error:#}");
        }
    }
}

fn live_checks(steps: &mut Steps, judge: &mut Judge, no_namespaces: Option<&str>, which: impl Fn(&Live) -> bool) {
    for live in possible(steps, no_namespaces, which) {
        live_check(steps, judge, live);
    }
}

/// Starts those that can run here, so many at a time.
fn start_live_checks(
    steps: &mut Steps,
    no_namespaces: Option<&str>,
    at_once: usize,
    which: impl Fn(&Live) -> bool,
) -> Receiver<Ended> {
    let checks = possible(steps, no_namespaces, which);
    let at_once = at_once.min(checks.len());
    side_by_side::start(checks, at_once)
}

/// Waits for the ends of those that run beside each other.
fn end_live_checks(steps: &mut Steps, started: Receiver<Ended>) {
    for Ended { live, took, run } in started {
        steps.ran(live.name, took, || {
            let (run, said) = run?;
            print!("{said}");
            verdict(run, &said)
        });
    }
}

/// Those that can run here; of the others it is said why not.
fn possible(steps: &mut Steps, no_namespaces: Option<&str>, which: impl Fn(&Live) -> bool) -> Vec<&'static Live> {
    let mut possible = Vec::new();
    for live in LIVE.iter().filter(|live| which(live)) {
        let because = match live.absent().as_slice() {
            [] => no_namespaces.filter(|_| live.is_in_namespaces()).map(str::to_owned),
            absent => {
                let names: Vec<_> = absent.iter().map(|program| program.name).collect();
                Some(format!("{} is missing", names.join(", ")))
            }
        };
        match because {
            Some(because) => lack(steps, live.name, &because),
            None => possible.push(live),
        }
    }
    possible
}

fn live_check(steps: &mut Steps, judge: &mut Judge, live: &Live) {
    match live.kind {
        Kind::Measurement => steps.judge(live.name, || judge.judge(|| live.run())),
        Kind::Correctness => steps.judge(live.name, || {
            let (run, said) = live.run()?;
            verdict(run, &said)
        }),
    }
}

/// What is known of a check that does not depend on the machine.
fn verdict(run: Run, said: &str) -> Result<Verdict> {
    match run {
        Run::Held => Ok(telling::not_judged(said).map_or(Verdict::Held, Verdict::NotJudged)),
        _ => bail!("{}", telling::lines(said)),
    }
}

/// A step that cannot run here: in continuous integration a failure.
fn lack(steps: &mut Steps, name: &str, because: &str) {
    if in_ci() {
        steps.run(name, || bail!("{because}"));
    } else {
        steps.skip(name, because);
    }
}

fn cores() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

/// Why tests cannot have network namespaces with packet filters of their own; `None`: they can. Those tests say it too,
/// but what a test that passes says is not shown.
fn no_namespaces() -> Option<String> {
    let Some(nft) = crate::command::find_program("nft") else { return Some("nft is missing".to_owned()) };
    let mut probe = Command::new("unshare");
    let made = crate::command::output(probe.arg("--net").arg(nft).args(["list", "tables"]));
    made.err().map(|error| format!("they need root, or CAP_NET_ADMIN and CAP_SYS_ADMIN: {error}"))
}

/// What generated inputs are made from: other ones with every run, or those that `TIDEGATE_SEED` asks for.
fn seed() -> Result<u64> {
    match std::env::var("TIDEGATE_SEED") {
        Ok(text) => text.parse().with_context(|| format!("TIDEGATE_SEED: `{text}` is no whole number")),
        // The standard library's hasher draws its keys at random.
        Err(_) => Ok(std::collections::hash_map::RandomState::new().build_hasher().finish()),
    }
}

fn external_programs() -> Result<()> {
    let missing = programs::missing();
    if missing.is_empty() {
        println!("all {} are here", PROGRAMS.len());
        return Ok(());
    }
    let list: Vec<_> = missing.iter().map(|program| program.package).collect();
    if programs::can_install() {
        println!("installing {}", list.join(" "));
        return programs::install(&missing);
    }
    for program in &missing {
        println!("missing: {} (Debian package {}): needed for {}", program.name, program.package, program.needed_by);
    }
    let remedy = format!("apt-get install --no-install-recommends {}", list.join(" "));
    if in_ci() {
        bail!("with CI=true every program must be here; run, as root: {remedy}");
    }
    println!("what needs them is skipped; to run all, as root: {remedy}");
    Ok(())
}

/// Whether this is continuous integration, where nothing may be left out.
pub fn in_ci() -> bool {
    std::env::var("CI").is_ok_and(|value| value == "true" || value == "1")
}
