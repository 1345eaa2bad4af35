//! `tidegate experiment report`: everything that was run on one page.

use std::io::{Write, stdout};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use tidegate_experiment::report::{Kept, SavedReport, chapter, page};

/// Make one HTML page of every result in a folder: tables, checks, figures
///
/// The page needs no other file and no network. `experiment run` makes it too.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Folder with the results
    #[arg(long = "in", value_name = "DIR", default_value = "target/experiments")]
    folder: PathBuf,
    /// File to write; default: report.html in that folder
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Insert the results into this document, at its mark, instead of writing the page
    #[arg(long, value_name = "FILE", conflicts_with = "out")]
    chapter: Option<PathBuf>,
    /// Write what is kept of each experiment into this folder, instead of the page: its checks, over all seeds
    #[arg(long, value_name = "DIR", conflicts_with_all = ["out", "chapter"])]
    keep: Option<PathBuf>,
}

/// Runs the command. Status 2 when there is nothing to read.
pub(super) fn run(args: &Args) -> Result<ExitCode> {
    let written = match (&args.chapter, &args.keep) {
        (Some(document), _) => write_chapter(&args.folder, document),
        (None, Some(folder)) => keep(&args.folder, folder),
        (None, None) => write(&args.folder, args.out.as_deref()),
    };
    match written {
        Ok(file) => writeln!(stdout(), "written: {}", file.display()).map(|()| ExitCode::SUCCESS).map_err(Into::into),
        Err(error) => Ok(super::super::bad_configuration(format!("{error:#}"))),
    }
}

/// Puts the results of `folder` into a document; figures go to a folder of the document's name.
fn write_chapter(folder: &Path, document: &Path) -> Result<PathBuf> {
    let reports = read(folder)?;
    let name = document.file_stem().context("the document has no name")?.to_string_lossy().into_owned();
    let chapter = chapter(&reports, &name);
    let text = std::fs::read_to_string(document).with_context(|| format!("cannot read {}", document.display()))?;
    let text = chapter.put_into(&text);
    let text = text.with_context(|| format!("{} has no place for a chapter", document.display()))?;
    let figures = document.with_extension("");
    std::fs::create_dir_all(&figures).with_context(|| format!("cannot make {}", figures.display()))?;
    for (file, svg) in &chapter.figures {
        let file = figures.join(file);
        std::fs::write(&file, svg).with_context(|| format!("cannot write {}", file.display()))?;
    }
    std::fs::write(document, text).with_context(|| format!("cannot write {}", document.display()))?;
    Ok(document.to_path_buf())
}

/// Writes what is kept of the results of `from` into `to`, a file an experiment.
fn keep(from: &Path, to: &Path) -> Result<PathBuf> {
    std::fs::create_dir_all(to).with_context(|| format!("cannot make {}", to.display()))?;
    for kept in Kept::of(&read(from)?) {
        let file = to.join(kept.file());
        std::fs::write(&file, kept.json()).with_context(|| format!("cannot write {}", file.display()))?;
    }
    Ok(to.to_path_buf())
}

/// Writes the page of `folder`, by default into it.
///
/// # Errors
/// When a result cannot be read or the page not be written.
pub(super) fn write(folder: &Path, file: Option<&Path>) -> Result<PathBuf> {
    let reports = read(folder)?;
    let file = file.map_or_else(|| folder.join("report.html"), Path::to_path_buf);
    std::fs::write(&file, page(&reports)).with_context(|| format!("cannot write {}", file.display()))?;
    Ok(file)
}

fn read(folder: &Path) -> Result<Vec<SavedReport>> {
    let reports = SavedReport::read_all(folder)?;
    anyhow::ensure!(!reports.is_empty(), "{}: no results; run an experiment first", folder.display());
    Ok(reports)
}
