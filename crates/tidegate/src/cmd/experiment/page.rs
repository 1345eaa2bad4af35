//! `tidegate experiment report`: everything that was run on one page.

use std::io::{Write, stdout};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use tidegate_testbed::report::{SavedReport, page};

/// Make one HTML page of every result in a folder: tables, checks, figures
///
/// The page needs no other file and no network. `experiment run` makes it too.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Folder of the results
    #[arg(long = "in", value_name = "DIR", default_value = "target/experiments")]
    folder: PathBuf,
    /// The page; default: report.html in that folder
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// Runs the command. Status 2 when there is nothing to read.
pub(super) fn run(args: &Args) -> Result<ExitCode> {
    match write(&args.folder, args.out.as_deref()) {
        Ok(file) => writeln!(stdout(), "written: {}", file.display()).map(|()| ExitCode::SUCCESS).map_err(Into::into),
        Err(error) => Ok(super::super::bad_configuration(format!("{error:#}"))),
    }
}

/// Writes the page of `folder`, by default into it.
///
/// # Errors
/// When a result cannot be read or the page not be written.
pub(super) fn write(folder: &Path, file: Option<&Path>) -> Result<PathBuf> {
    let reports = SavedReport::read_all(folder)?;
    anyhow::ensure!(!reports.is_empty(), "{}: no results; run an experiment first", folder.display());
    let file = file.map_or_else(|| folder.join("report.html"), Path::to_path_buf);
    std::fs::write(&file, page(&reports)).with_context(|| format!("cannot write {}", file.display()))?;
    Ok(file)
}
