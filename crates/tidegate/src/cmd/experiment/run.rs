//! `tidegate experiment run` and `tidegate simulate`: scenarios from reading to the written results.

use std::io::{Write, stdout};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, anyhow};
use tidegate_experiment::built_in;
use tidegate_experiment::report::{ExperimentReport, Mode, SpaceReport, settings, sweep_csv, sweep_text};
use tidegate_experiment::scenario::{Point, Scenario, Space, Spoken};
use tidegate_experiment::service::{Lab, Played};

use super::{folder_of, jobs, page, play};

/// What to run, and how.
#[derive(Debug, clap::Args)]
pub(in super::super) struct PlayArgs {
    /// Names of built-in scenarios, such as C1, or TOML files
    #[arg(required = true, value_name = "ID|FILE")]
    pub(super) scenarios: Vec<String>,
    /// The short form: the same rates in less time, without the checks that need more
    #[arg(long)]
    short: bool,
    /// Run only these arms
    #[arg(long = "arm", value_name = "NAME")]
    arms: Vec<String>,
    /// Seed of the first run; default: the scenario's
    #[arg(long, value_name = "N")]
    pub(super) seed: Option<u64>,
    /// Runs of each arm, with consecutive seeds; default: 10 of `experiment run` in the simulator, where the mean is
    /// judged, else, and of the short form and of spaces, 1
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1000))]
    pub(super) seeds: Option<u64>,
    /// Simulations at the same time; default: one per processor
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(super) jobs: Option<u16>,
    /// With --live: program of the mail service; default: tidegate-mail in this program's folder
    #[arg(long, value_name = "PATH")]
    mail: Option<PathBuf>,
    /// Folder for the results; each scenario gets a subfolder, in a sweep each combination
    #[arg(long, value_name = "DIR", default_value = "target/experiments")]
    out: PathBuf,
}

/// A scenario that is about to be run.
pub(super) struct Prepared {
    space: Option<Space>,
    pub(super) points: Vec<Point>,
}

impl PlayArgs {
    /// Runs everything, live with what is `spoken` in place of what scenarios say. Status 2 when a scenario makes no
    /// sense: then nothing was run and nothing written.
    pub(in super::super) fn run(&self, mode: Mode, seeds: u64, spoken: Option<Spoken>) -> Result<ExitCode> {
        let seeds = self.seeds.unwrap_or(if self.short { 1 } else { seeds });
        // All are read before the first runs: a slip in the last must not cost the time of the others.
        let scenarios: Result<Vec<Prepared>> =
            self.scenarios.iter().map(|name| self.prepare(name, mode, spoken)).collect();
        let scenarios = match scenarios {
            Ok(scenarios) => scenarios,
            Err(error) => return Ok(super::super::bad_configuration(format!("{error:#}"))),
        };
        let (mut pass, mut is_written) = (true, false);
        for Prepared { space, points } in scenarios {
            if let Some(space) = space {
                pass &= self.play_space(&space, points, mode)?;
                continue;
            }
            is_written = true;
            let mut reports = Vec::new();
            let sweeps = points.len() > 1;
            for (at, point) in points.into_iter().enumerate() {
                let folder = folder_of(&point.scenario, mode == Mode::Live);
                let folder = self.out.join(if sweeps { format!("{folder}.{}", at + 1) } else { folder });
                let report = self.play(point.scenario, mode, seeds)?;
                write!(stdout(), "{}", report.text())?;
                let files = report.write(&folder)?;
                let names: Vec<String> = files.iter().map(|file| file.display().to_string()).collect();
                writeln!(stdout(), "written: {}\n", names.join(", "))?;
                pass &= report.pass();
                reports.push((point.settings, report));
            }
            if sweeps {
                write!(stdout(), "{}", sweep_text(&reports))?;
                self.put(&format!("{}.sweep.csv", reports[0].1.scenario.id), &sweep_csv(&reports))?;
                writeln!(stdout())?;
            }
        }
        if is_written {
            let file = page::write(&self.out, None)?;
            writeln!(stdout(), "all on one page: {}", file.display())?;
        }
        Ok(if pass { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    /// The scenario as it is to be run, once for every combination of its sweep. Policies are tried too, so that
    /// nothing fails halfway for a wrong key.
    pub(super) fn prepare(&self, name: &str, mode: Mode, spoken: Option<Spoken>) -> Result<Prepared> {
        let mut scenario = built_in::find(name)?;
        scenario = match mode {
            Mode::Live => scenario.for_live()?,
            Mode::Simulated => scenario.for_simulation(),
        };
        if let Some(spoken) = spoken {
            scenario = scenario.speaking(spoken).map_err(anyhow::Error::msg)?;
            scenario.title += &format!(", by {}", spoken.protocol);
        }
        if mode == Mode::Live {
            let beyond = tidegate_experiment::service::of(&scenario.on()).cannot_do(&scenario);
            anyhow::ensure!(
                beyond.is_empty(),
                "{name}: only the simulator can do {}; leave out --live, or these keys",
                beyond.join(", ")
            );
        }
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
        let mut points = scenario.points()?;
        for point in &mut points {
            for arm in &point.scenario.arms {
                Played::new(&point.scenario, arm).with_context(|| name.to_owned())?;
            }
            if !point.settings.is_empty() {
                point.scenario.title += &format!(" ({})", settings(&point.settings));
            }
        }
        Ok(Prepared { space: scenario.space, points })
    }

    /// Plays a sweep of which only the figures matter.
    fn play_space(&self, space: &Space, points: Vec<Point>, mode: Mode) -> Result<bool> {
        let mut spaces = SpaceReport::new(space, &points)?;
        for point in points {
            let report = self.play(point.scenario, mode, self.seeds.unwrap_or(1))?;
            spaces.add(&point.settings, &report)?;
        }
        std::fs::create_dir_all(&self.out).with_context(|| format!("cannot make {}", self.out.display()))?;
        for figure in 0..spaces.figures() {
            write!(stdout(), "{}", spaces.text(figure))?;
            self.put(&format!("{}.svg", spaces.name(figure)), &spaces.svg(figure)?)?;
            self.put(&format!("{}.csv", spaces.name(figure)), &spaces.csv(figure))?;
        }
        Ok(spaces.pass())
    }

    /// Writes a file into the folder of the results.
    fn put(&self, name: &str, text: &str) -> Result<()> {
        let file = self.out.join(name);
        std::fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
        Ok(writeln!(stdout(), "written: {}", file.display())?)
    }

    fn play(&self, scenario: Scenario, mode: Mode, seeds: u64) -> Result<ExperimentReport> {
        let first = self.seed.unwrap_or(scenario.seed);
        let seeds: Vec<u64> = (0..seeds).map(|n| first.wrapping_add(n)).collect();
        let arms = match mode {
            Mode::Live => play::live(&scenario, &seeds, &lab(self.mail.clone(), &self.out)?)?,
            Mode::Simulated => play::simulate(&scenario, &seeds, jobs(self.jobs))?,
        };
        Ok(ExperimentReport { scenario, mode, short: self.short, arms })
    }
}

/// Where live runs find programs and leave files. Both programs are built into one folder, and installed so.
pub(super) fn lab(mail: Option<PathBuf>, out: &Path) -> Result<Lab> {
    let tidegate = std::env::current_exe()?;
    let mail = mail.unwrap_or_else(|| tidegate.with_file_name("tidegate-mail"));
    Ok(Lab { tidegate, mail, folder: out.join("mail") })
}
