//! `tidegate experiment`: scenario files, simulated or with real HTTP, and whether they show what they must.

use std::io::{Write, stderr, stdout};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, Result, anyhow};
use indicatif::{ProgressBar, ProgressStyle};
use tidegate_loadgen::Progress;
use tidegate_sim::Played;
use tidegate_testbed::LiveRun;
use tidegate_testbed::report::{ArmReport, ExperimentReport, Mode, RunReport};
use tidegate_workload::scenario::{Arm, Scenario};

/// Rerun the papers' experiments, or your own, and check what they must show.
///
/// Exit status: 0 when every check passed, 1 when one was missed, 2 when a scenario makes no sense.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// List the scenarios that are built in
    List,
    /// Run scenarios
    Run(RunArgs),
}

/// What to run, and how.
#[derive(Debug, clap::Args)]
struct RunArgs {
    /// Names of built-in scenarios, such as C1, or TOML files
    #[arg(required = true, value_name = "ID|FILE")]
    scenarios: Vec<String>,
    /// Real HTTP, through a real sentry to emulated servers, instead of the simulator
    #[arg(long)]
    live: bool,
    /// The short form: the same rates in less time, without the checks that need more
    #[arg(long)]
    short: bool,
    /// Only these arms
    #[arg(long = "arm", value_name = "NAME")]
    arms: Vec<String>,
    /// Seed of the first run; default: the scenario's
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Runs of each arm, with seeds that count upwards
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1000))]
    seeds: u64,
    /// Simulations at the same time; default: one per processor
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    jobs: Option<u16>,
    /// Folder for the results; of several scenarios, each gets a folder in it
    #[arg(long, value_name = "DIR", default_value = "target/experiments")]
    out: PathBuf,
}

/// The scenarios that the program brings along, so that it needs no other file.
const BUILT_IN: [(&str, &str); 4] = [
    ("c1.toml", include_str!("../../../../scenarios/c1.toml")),
    ("c3.toml", include_str!("../../../../scenarios/c3.toml")),
    ("c5.toml", include_str!("../../../../scenarios/c5.toml")),
    ("c6.toml", include_str!("../../../../scenarios/c6.toml")),
];

/// Runs the command.
///
/// # Errors
/// When sockets or threads cannot be had, or results cannot be written.
pub fn run(args: Args) -> Result<ExitCode> {
    match args.what {
        What::List => list().map(|()| ExitCode::SUCCESS),
        What::Run(args) => args.run(),
    }
}

fn list() -> Result<()> {
    for (file, text) in BUILT_IN {
        let scenario = Scenario::parse(text, file)?;
        let arms: Vec<&str> = scenario.arms.iter().map(|arm| arm.name.as_str()).collect();
        writeln!(stdout(), "{:<4} {}", scenario.id, scenario.title)?;
        writeln!(stdout(), "     after {}; arms: {}", scenario.source, arms.join(", "))?;
    }
    Ok(())
}

impl RunArgs {
    fn run(&self) -> Result<ExitCode> {
        // All are read before the first runs: a slip in the last must not cost the time of the others.
        let scenarios: Result<Vec<Scenario>> = self.scenarios.iter().map(|name| self.prepare(name)).collect();
        let scenarios = match scenarios {
            Ok(scenarios) => scenarios,
            Err(error) => {
                eprintln!("{error:#}");
                return Ok(ExitCode::from(2));
            }
        };
        let mut pass = true;
        for scenario in scenarios {
            let folder = self.out.join(&scenario.id);
            let report = self.play(scenario)?;
            write!(stdout(), "{}", report.text())?;
            let files = report.write(&folder)?;
            let names: Vec<String> = files.iter().map(|file| file.display().to_string()).collect();
            writeln!(stdout(), "written: {}\n", names.join(", "))?;
            pass &= report.pass();
        }
        Ok(if pass { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    /// The scenario as it is to be run. Its policies are tried too, so that nothing fails halfway for a wrong key.
    fn prepare(&self, name: &str) -> Result<Scenario> {
        let mut scenario = find(name)?;
        if self.short {
            scenario = scenario.shortened();
        }
        if !self.arms.is_empty() {
            let known: Vec<String> = scenario.arms.iter().map(|arm| arm.name.clone()).collect();
            if let Some(unknown) = self.arms.iter().find(|arm| !known.contains(arm)) {
                return Err(anyhow!("{name}: there is no arm \"{unknown}\"; its arms are {}", known.join(", ")));
            }
            scenario.arms.retain(|arm| self.arms.contains(&arm.name));
        }
        for arm in &scenario.arms {
            Played::new(&scenario, arm).with_context(|| name.to_owned())?;
        }
        Ok(scenario)
    }

    fn play(&self, scenario: Scenario) -> Result<ExperimentReport> {
        let first = self.seed.unwrap_or(scenario.seed);
        let seeds: Vec<u64> = (0..self.seeds).map(|n| first.wrapping_add(n)).collect();
        let mode = if self.live { Mode::Live } else { Mode::Simulated };
        let arms = match mode {
            Mode::Live => live(&scenario, &seeds)?,
            Mode::Simulated => simulate(&scenario, &seeds, self.jobs())?,
        };
        Ok(ExperimentReport { scenario, mode, short: self.short, arms })
    }

    fn jobs(&self) -> usize {
        let processors = || std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        self.jobs.map_or_else(processors, usize::from)
    }
}

/// A built-in scenario by its id, or a file.
fn find(name: &str) -> Result<Scenario> {
    let mut ids = Vec::new();
    for (file, text) in BUILT_IN {
        let scenario = Scenario::parse(text, file)?;
        if scenario.id.eq_ignore_ascii_case(name) {
            return Ok(scenario);
        }
        ids.push(scenario.id);
    }
    let path = Path::new(name);
    if path.extension().is_none() && !path.exists() {
        return Err(anyhow!("there is no scenario \"{name}\": built in are {}; else give a TOML file", ids.join(", ")));
    }
    Ok(Scenario::load(path)?)
}

/// Every arm with every seed, several at a time. The order of the results does not depend on who is ready first.
fn simulate(scenario: &Scenario, seeds: &[u64], jobs: usize) -> Result<Vec<ArmReport>> {
    let tasks: Vec<(&Arm, u64)> =
        scenario.arms.iter().flat_map(|arm| seeds.iter().map(move |&seed| (arm, seed))).collect();
    let results: Mutex<Vec<Option<Result<RunReport>>>> = Mutex::new(tasks.iter().map(|_| None).collect());
    let (next, bar) = (AtomicUsize::new(0), bar(tasks.len() as u64, "{pos} of {len} runs"));
    bar.set_message(scenario.id.clone());
    std::thread::scope(|scope| {
        for _ in 0..jobs.min(tasks.len()) {
            scope.spawn(|| {
                while let Some((at, (arm, seed))) = take(&next, &tasks) {
                    let result = simulate_one(scenario, arm, *seed);
                    results.lock().expect("no run panics while it holds the results")[at] = Some(result);
                    bar.inc(1);
                }
            });
        }
    });
    bar.finish_and_clear();
    let results = results.into_inner().expect("no run panics while it holds the results");
    let mut runs = results.into_iter().flatten();
    let mut arm = |arm: &Arm| {
        Ok(ArmReport { name: arm.name.clone(), runs: runs.by_ref().take(seeds.len()).collect::<Result<_>>()? })
    };
    scenario.arms.iter().map(&mut arm).collect()
}

fn take<'t, T>(next: &AtomicUsize, tasks: &'t [T]) -> Option<(usize, &'t T)> {
    let at = next.fetch_add(1, Ordering::Relaxed);
    tasks.get(at).map(|task| (at, task))
}

fn simulate_one(scenario: &Scenario, arm: &Arm, seed: u64) -> Result<RunReport> {
    let outcome = Played::new(scenario, arm)?.play(seed)?;
    Ok(RunReport::new(scenario, arm, seed, outcome))
}

/// Every arm with every seed, one after the other: they would take the processors from each other.
fn live(scenario: &Scenario, seeds: &[u64]) -> Result<Vec<ArmReport>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut arms = Vec::new();
    for arm in &scenario.arms {
        let mut runs = Vec::new();
        for &seed in seeds {
            let run =
                LiveRun::start(scenario, arm, seed).with_context(|| format!("{}, arm {}", scenario.id, arm.name))?;
            let outcome = runtime.block_on(watch(run, &format!("{} {} seed {seed}", scenario.id, arm.name)))?;
            runs.push(RunReport::new(scenario, arm, seed, outcome));
        }
        arms.push(ArmReport { name: arm.name.clone(), runs });
    }
    Ok(arms)
}

/// Shows a live run until it is over. Interrupted, the experiment is over: half a run shows nothing.
async fn watch(run: LiveRun, title: &str) -> Result<tidegate_workload::outcome::Outcome> {
    let mut progress = run.progress();
    let bar = bar(progress.borrow().duration.as_secs(), "{pos} of {len} s");
    let mut done = std::pin::pin!(run.wait());
    loop {
        tokio::select! {
            outcome = &mut done => {
                bar.finish_and_clear();
                return Ok(outcome?);
            }
            _ = tokio::signal::ctrl_c() => {
                bar.finish_and_clear();
                return Err(anyhow!("{title}: interrupted"));
            }
            Ok(()) = progress.changed() => show(&bar, title, &progress.borrow_and_update()),
        }
    }
}

fn show(bar: &ProgressBar, title: &str, progress: &Progress) {
    bar.set_position(progress.elapsed.as_secs());
    let class = |class: &tidegate_loadgen::ClassProgress| {
        format!("{} {:.0} of {:.0}/s", class.class, class.recent.admitted_per_s, class.recent.offered_per_s)
    };
    let classes: Vec<String> = progress.classes.iter().map(class).collect();
    let slowest = progress.classes.iter().filter_map(|class| class.recent.p95).fold(0.0, f64::max);
    bar.set_message(format!("{title}: {}; p95 {:.0} ms", classes.join(", "), slowest * 1e3));
}

fn bar(length: u64, count: &str) -> ProgressBar {
    let style = ProgressStyle::with_template(&format!("{{elapsed:>4}} [{{bar:30}}] {count}  {{msg}}"));
    // Without a terminal the bar is silent; the reports say everything anyway.
    let _ = stderr().flush();
    ProgressBar::new(length).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        args: Args,
    }

    /// A scenario that takes milliseconds: two servers of 50/s, twice that offered in the middle.
    const TINY: &str = r#"
        id = "tiny"
        title = "a short rush"
        duration = "30s"
        sla = { target = "500ms" }
        servers = { count = 2 }
        class = [{ name = "gold" }, { name = "rest" }]
        request = [{ name = "page", service = { distribution = "exponential", mean = "20ms" }, urls = 3 }]
        load = [
            { class = "gold", requests = { page = 1 }, rate = "20/s" },
            { class = "rest", requests = { page = 1 }, rate = "0s:20/s, 10s:180/s, 20s:20/s" },
        ]
        arm = [{ name = "sentry" }, { name = "none", admission = { policy = "none" } }]
    "#;
    const HOLDS: &str = r#"expect = [{ what = "gold is whole", class = "gold", metric = "offered_rate", over = "0s..30s", at_least = 5 }]"#;
    const CANARY: &str = r#"expect = [{ what = "a flood passes", arms = ["sentry"], metric = "refused_share", over = "10s..20s", at_most = 0.0 }]"#;

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Folder {
            let path = std::env::temp_dir().join(format!("tidegate-experiment-{name}-{}", std::process::id()));
            std::fs::create_dir_all(&path).unwrap();
            Folder(path)
        }

        fn file(&self, name: &str, text: &str) -> String {
            let path = self.0.join(name);
            std::fs::write(&path, text).unwrap();
            path.display().to_string()
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    fn experiment(line: &[&str]) -> ExitCode {
        let line = ["experiment"].iter().chain(line);
        run(Cli::try_parse_from(line).unwrap().args).unwrap()
    }

    fn same(a: ExitCode, b: ExitCode) -> bool {
        // An exit code cannot be compared, only shown.
        format!("{a:?}") == format!("{b:?}")
    }

    #[test]
    fn built_in_scenarios_are_sound_and_their_names_are_their_files() {
        for (file, text) in BUILT_IN {
            let scenario = Scenario::parse(text, file).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(format!("{}.toml", scenario.id.to_lowercase()), file);
            for form in [scenario.shortened(), scenario] {
                assert!(!form.expects.is_empty(), "{file}");
                form.arms.iter().for_each(|arm| drop(Played::new(&form, arm).unwrap()));
            }
        }
    }

    #[test]
    fn same_seed_same_bytes_whatever_the_jobs() {
        let folder = Folder::new("bytes");
        let file = folder.file("tiny.toml", &format!("{TINY}{HOLDS}"));
        let written = |out: &str, more: &[&str]| {
            let out = folder.0.join(out);
            let line = [&["run", &file, "--seeds", "3", "--out", out.to_str().unwrap()], more].concat();
            assert!(same(experiment(&line), ExitCode::SUCCESS));
            ["report.json", "seconds.csv", "sentry.svg", "none.svg"]
                .map(|name| std::fs::read(out.join("tiny").join(name)).unwrap())
        };
        let first = written("a", &["--jobs", "1"]);
        assert!(first == written("b", &["--jobs", "3"]));
        assert!(first != written("c", &["--seed", "9"]));
    }

    #[test]
    fn the_canary_fails() {
        let folder = Folder::new("canary");
        let file = folder.file("canary.toml", &format!("{TINY}{CANARY}"));
        let out = folder.0.join("out");
        assert!(same(experiment(&["run", &file, "--out", out.to_str().unwrap()]), ExitCode::FAILURE));
        let json: serde_json::Value =
            serde_json::from_slice(&std::fs::read(out.join("tiny/report.json")).unwrap()).unwrap();
        assert_eq!(
            (&json["pass"], &json["arms"][0]["pass"], &json["arms"][1]["pass"]),
            (&false.into(), &false.into(), &true.into())
        );
    }

    #[test]
    fn nonsense_is_status_2_and_nothing_is_written() {
        let folder = Folder::new("nonsense");
        let good = folder.file("good.toml", &format!("{TINY}{HOLDS}"));
        let bad_key = folder.file("bad.toml", &TINY.replace("duration", "duratoin"));
        let bad_policy = folder.file("policy.toml", &TINY.replace("policy = \"none\"", "policy = \"nun\""));
        let out = folder.0.join("out");
        for last in [&bad_key, &bad_policy, "C99", "missing.toml"] {
            let status = experiment(&["run", &good, last, "--out", out.to_str().unwrap()]);
            assert!(same(status, ExitCode::from(2)), "{last}");
            assert!(!out.exists(), "{last}");
        }
        assert!(same(experiment(&["run", &good, "--arm", "x", "--out", out.to_str().unwrap()]), ExitCode::from(2)));
    }

    #[test]
    fn wrong_policies_name_the_arm_and_what_is_known() {
        let scenario = Scenario::parse(&TINY.replace("policy = \"none\"", "policy = \"nun\""), "t").unwrap();
        let error = Played::new(&scenario, &scenario.arms[1]).unwrap_err().to_string();
        assert!(
            error.contains("arm \"none\": admission") && error.contains("nun") && error.contains("batch"),
            "{error}"
        );
    }
}
