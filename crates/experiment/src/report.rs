//! Reports of experiments: the same for a simulation and for real HTTP.
//!
//! A [`ExperimentReport`] holds every run of every arm. From it are made the text for the terminal
//! ([`ExperimentReport::text`]) and the files ([`ExperimentReport::write`]): `report.json`, `seconds.csv`, and a figure
//! per arm in the style of the papers. Nothing in them depends on when or where they were made, so equal outcomes give
//! equal bytes.

mod book;
mod csv;
mod curves;
mod json;
mod kept;
mod page;
mod plot;
mod profile;
mod saved;
mod space;
mod sweep;
mod text;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::measure::{Check, Measure};
use crate::outcome::Outcome;
use crate::scenario::{Arm, Scenario};

pub use book::{Chapter, chapter};
pub use kept::{Kept, KeptCheck, KeptPoint, table};
pub use page::page;
pub use profile::{Curve, curves};
pub use saved::{ReadError, SavedReport};
pub use space::{SpaceError, SpaceReport};
pub use sweep::{Settings, settings, sweep_csv, sweep_text};

/// Where outcomes come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Virtual time.
    Simulated,
    /// Real HTTP.
    Live,
}

/// A scenario and everything that came of it.
#[derive(Debug, Clone)]
pub struct ExperimentReport {
    /// The scenario, as it was run: in the short form, the shortened one.
    pub scenario: Scenario,
    /// How it was run.
    pub mode: Mode,
    /// Whether in the short form.
    pub short: bool,
    /// Its arms, in the order of the scenario.
    pub arms: Vec<ArmReport>,
}

/// One arm.
#[derive(Debug, Clone)]
pub struct ArmReport {
    /// Its name.
    pub name: String,
    /// Its runs, one per seed.
    pub runs: Vec<RunReport>,
}

/// One run.
#[derive(Debug, Clone)]
pub struct RunReport {
    /// Its seed.
    pub seed: u64,
    /// What came of it.
    pub outcome: Outcome,
    /// What was expected of it.
    pub checks: Vec<Check>,
}

/// Why a report could not be written.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// A file or folder.
    #[error("cannot write {}: {error}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// A figure.
    #[error("cannot draw the figure of arm \"{arm}\": {problem}")]
    Figure {
        /// Of which arm.
        arm: String,
        /// What the drawing library said.
        problem: String,
    },
}

impl Mode {
    /// Its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Mode::Simulated => "simulated",
            Mode::Live => "live",
        }
    }
}

impl RunReport {
    /// Measures an outcome.
    pub fn new(scenario: &Scenario, arm: &Arm, seed: u64, outcome: Outcome) -> RunReport {
        let checks = Measure::new(scenario, &outcome).checks(arm);
        RunReport { seed, outcome, checks }
    }

    /// Whether every check passed.
    pub fn pass(&self) -> bool {
        self.checks.iter().all(|check| check.pass)
    }
}

impl ArmReport {
    /// Whether every check of every run passed.
    pub fn pass(&self) -> bool {
        self.runs.iter().all(RunReport::pass)
    }
}

impl ExperimentReport {
    /// Whether every check passed. A scenario that expects nothing passes.
    pub fn pass(&self) -> bool {
        self.arms.iter().all(ArmReport::pass)
    }

    /// The report for the terminal: a table per arm, and the checks with what was measured.
    pub fn text(&self) -> String {
        text::render(self)
    }

    /// The report as JSON.
    pub fn json(&self) -> String {
        json::render(self)
    }

    /// Every second of every run as CSV.
    pub fn csv(&self) -> String {
        csv::render(self)
    }

    /// The figure of one run as SVG.
    ///
    /// # Errors
    /// When the drawing library refuses.
    pub fn figure(&self, arm: &ArmReport, run: &RunReport) -> Result<String, WriteError> {
        let failed = |problem| WriteError::Figure { arm: arm.name.clone(), problem };
        plot::render(&self.scenario, &arm.name, self.mode, &run.outcome).map_err(failed)
    }

    /// Writes everything into a folder, which is made when it is not there. The figures are of each arm's first run.
    /// Returns the files.
    ///
    /// # Errors
    /// The first file that cannot be written.
    pub fn write(&self, folder: &Path) -> Result<Vec<PathBuf>, WriteError> {
        let mut files = vec![("report.json".to_owned(), self.json()), ("seconds.csv".to_owned(), self.csv())];
        let any = |has: fn(&Outcome) -> bool| self.arms.iter().flat_map(|arm| &arm.runs).any(|run| has(&run.outcome));
        if any(|outcome| !outcome.controls.is_empty()) {
            files.push(("controls.csv".to_owned(), csv::controls(self)));
        }
        if any(|outcome| !outcome.partitions.is_empty()) {
            files.push(("partitions.csv".to_owned(), csv::partitions(self)));
        }
        if any(|outcome| !outcome.provisioned.is_empty()) {
            files.push(("provisioned.csv".to_owned(), csv::provisioned(self)));
        }
        if any(|outcome| !outcome.connections.is_empty()) {
            files.push(("connections.csv".to_owned(), csv::connections(self)));
        }
        if let Some(curves) = &self.scenario.curves {
            let failed = |problem| WriteError::Figure { arm: "all".to_owned(), problem };
            files.push(("curves.csv".to_owned(), curves::csv(self, curves)));
            files.push(("curves.svg".to_owned(), curves::svg(self, curves).map_err(failed)?));
        }
        for arm in &self.arms {
            if let Some(run) = arm.runs.first() {
                files.push((format!("{}.svg", arm.name), self.figure(arm, run)?));
            }
        }
        let failed = |path: &Path| {
            let path = path.to_path_buf();
            move |error| WriteError::File { path, error }
        };
        fs::create_dir_all(folder).map_err(failed(folder))?;
        let write = |(name, text): (String, String)| {
            let path = folder.join(name);
            fs::write(&path, text).map_err(failed(&path))?;
            Ok(path)
        };
        files.into_iter().map(write).collect()
    }
}

#[cfg(test)]
mod tests;
