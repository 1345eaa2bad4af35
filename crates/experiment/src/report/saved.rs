//! Reports read back from the folders they were written to.

use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::scenario::Mark;

/// A report as it lies in a folder: `report.json` and the figures.
#[derive(Debug, Clone)]
pub struct SavedReport {
    pub(super) folder: PathBuf,
    pub(super) experiment: Experiment,
    /// Arm and SVG.
    pub(super) figures: Vec<(String, String)>,
}

/// Why a report could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// A file or folder.
    #[error("cannot read {}: {error}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// What the system said.
        error: std::io::Error,
    },
    /// It is not a report, or one of another version.
    #[error("{} is no report of this version: {error}; run the experiment again", path.display())]
    Json {
        /// Which file.
        path: PathBuf,
        /// What is wrong.
        error: serde_json::Error,
    },
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct Experiment {
    pub(super) id: String,
    pub(super) title: String,
    pub(super) source: String,
    pub(super) mode: String,
    pub(super) short: bool,
    pub(super) duration_s: f64,
    pub(super) pass: bool,
    pub(super) arms: Vec<Arm>,
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct Arm {
    pub(super) name: String,
    pub(super) pass: bool,
    pub(super) runs: Vec<Run>,
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct Run {
    pub(super) seed: u64,
    pub(super) checks: Vec<Check>,
    pub(super) warnings: Vec<String>,
    pub(super) totals: Vec<Total>,
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct Check {
    pub(super) what: String,
    #[serde(default)]
    pub(super) mark: Option<Mark>,
    #[serde(default)]
    pub(super) claim: String,
    #[serde(default)]
    pub(super) because: String,
    #[serde(default)]
    pub(super) interval: Option<[f64; 2]>,
    pub(super) subject: String,
    pub(super) metric: String,
    pub(super) over: String,
    pub(super) bound: String,
    pub(super) measured: Option<f64>,
    pub(super) pass: bool,
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct Total {
    pub(super) name: String,
    pub(super) offered: f64,
    pub(super) admitted: f64,
    pub(super) refused: f64,
    pub(super) failed: f64,
    pub(super) good: f64,
    pub(super) p50: Option<f64>,
    pub(super) p95: Option<f64>,
}

impl SavedReport {
    /// The report in `folder`.
    ///
    /// # Errors
    /// When it is not there, or is none.
    pub fn read(folder: &Path) -> Result<SavedReport, ReadError> {
        let path = folder.join("report.json");
        let experiment: Experiment =
            serde_json::from_str(&text(&path)?).map_err(|error| ReadError::Json { path, error })?;
        let mut figures = Vec::new();
        for arm in &experiment.arms {
            figures.push((arm.name.clone(), text(&folder.join(format!("{}.svg", arm.name)))?));
        }
        Ok(SavedReport { folder: folder.to_path_buf(), experiment, figures })
    }

    /// Every report in the folders of `folder`, by name.
    ///
    /// # Errors
    /// The first that cannot be read.
    pub fn read_all(folder: &Path) -> Result<Vec<SavedReport>, ReadError> {
        let failed = |error| ReadError::File { path: folder.to_path_buf(), error };
        let entries: Result<Vec<_>, _> = fs::read_dir(folder).map_err(failed)?.collect();
        let mut folders: Vec<PathBuf> = entries.map_err(failed)?.iter().map(fs::DirEntry::path).collect();
        folders.retain(|folder| folder.join("report.json").is_file());
        folders.sort();
        folders.iter().map(|folder| SavedReport::read(folder)).collect()
    }
}

pub(super) fn text(path: &Path) -> Result<String, ReadError> {
    fs::read_to_string(path).map_err(|error| ReadError::File { path: path.to_path_buf(), error })
}
