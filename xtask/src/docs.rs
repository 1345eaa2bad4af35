//! `cargo xtask docs`: the documents as a site of plain pages, with every link checked.
//!
//! The pages are the Markdown of `docs/` and of the top of the repository, in the order of `docs/SUMMARY.md`. What is
//! generated in them (the reference of the configuration, the policies) is part of the Markdown and kept true by tests;
//! `--bless` writes it again. A page that nothing leads to, a link or picture that leads nowhere, HTML in a text: each
//! is an error. The site needs no script but for the search and asks nobody else for anything.
//!
//! `--run` runs the commands that the documents show, all or those of one (`--run --only docs/start.md`).

mod book;
mod check;
mod layout;
mod page;
mod run;
mod scene;
mod shown;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};

use crate::args::Args;
use crate::command::{self, cargo};
use book::{Book, Page};

/// Where the site goes.
const OUT: &str = "target/site";

/// Files that are there without a page's asking.
const ASSETS: &[(&str, &str)] =
    &[("style.css", include_str!("docs/style.css")), ("search.js", include_str!("docs/search.js"))];

/// The tests that write what is generated.
const BLESS: &[&[&str]] = &[
    &["test", "--quiet", "--locked", "-p", "tidegate-engine", "--test", "it", "documentation::"],
    &["test", "--quiet", "--locked", "-p", "tidegate-sentry", "--lib", "config::tests::reference"],
    &["test", "--quiet", "--locked", "-p", "tidegate-experiment", "--lib", "report::kept::tests::the_table"],
];

/// Makes the site; with `--bless`, first what is generated in the documents; with `--run`, runs the commands instead.
///
/// # Errors
/// When an argument is unknown, or something is wrong with the documents.
pub fn run(mut args: Args) -> Result<ExitCode> {
    let bless = args.switch("--bless");
    let out = args.option("--out")?.unwrap_or_else(|| PathBuf::from(OUT));
    let (runs, only, play) = (args.switch("--run"), args.option::<String>("--only")?, args.option::<String>("--play")?);
    args.finish()?;
    if let Some(source) = play {
        run::play(&source, &shown(&source)?)?;
        return Ok(ExitCode::SUCCESS);
    }
    if runs {
        run::run(&all_shown(only.as_deref())?)?;
        return Ok(ExitCode::SUCCESS);
    }
    if bless {
        for test in BLESS {
            command::run(cargo(*test).env("TIDEGATE_BLESS", "1"))?;
        }
    }
    make(&out)?;
    Ok(ExitCode::SUCCESS)
}

/// Makes the site where it usually goes.
///
/// # Errors
/// When something is wrong with the documents.
pub fn build() -> Result<()> {
    make(Path::new(OUT))
}

fn make(out: &Path) -> Result<()> {
    let repository = repository(&fs::read_to_string("Cargo.toml")?)?;
    let book = Book::read(&fs::read_to_string(book::SUMMARY)?)?;
    let mut problems = forgotten(&book)?;
    let mut made = Vec::new();
    let mut files = BTreeSet::new();
    for page in book.pages() {
        let text = fs::read_to_string(&page.source).with_context(|| format!("{} cannot be read", page.source))?;
        let rendered = page::render(page, &text, &book, &repository);
        problems.extend(rendered.problems.iter().map(|problem| format!("{}: {problem}", page.source)));
        files.extend(rendered.files.iter().cloned());
        let commands = read_shown(&text).problems;
        problems.extend(commands.into_iter().map(|problem| format!("{}: {problem}", page.source)));
        made.push((page, rendered));
    }
    problems.extend(check::links(&made));
    if !problems.is_empty() {
        bail!("{} problems with the documents:\n{}", problems.len(), problems.join("\n"));
    }
    write(out, &book, &made, &files)?;
    println!("{} pages, {} pictures in {}", made.len(), files.len(), out.display());
    Ok(())
}

fn write(out: &Path, book: &Book, made: &[(&Page, page::Rendered)], files: &BTreeSet<String>) -> Result<()> {
    // What was removed must not linger. Only what an earlier run made is deleted.
    if out.join("search.js").exists() {
        fs::remove_dir_all(out)?;
    }
    fs::create_dir_all(out)?;
    for (page, rendered) in made {
        fs::write(out.join(&page.file), layout::page(book, page, rendered))?;
    }
    for (name, content) in ASSETS {
        fs::write(out.join(name), content)?;
    }
    fs::write(out.join("index.json"), layout::index(made))?;
    fs::copy("dashboard/icon.svg", out.join("icon.svg"))?;
    for file in files {
        let to = out.join(file);
        fs::create_dir_all(to.parent().unwrap_or(out))?;
        fs::copy(file, to).with_context(|| format!("{file} cannot be copied"))?;
    }
    Ok(())
}

/// What every document shows, or the one of this path.
fn all_shown(only: Option<&str>) -> Result<Vec<(String, shown::Shown)>> {
    let book = Book::read(&fs::read_to_string(book::SUMMARY)?)?;
    let sources = book.pages().map(|page| page.source.clone());
    let chosen = sources.filter(|source| only.is_none_or(|only| only == source));
    let all: Result<Vec<_>> = chosen.map(|source| shown(&source).map(|shown| (source, shown))).collect();
    all.and_then(|all| if all.is_empty() { bail!("no such document in {}", book::SUMMARY) } else { Ok(all) })
}

/// What a document shows; what is wrong with it is an error.
fn shown(source: &str) -> Result<shown::Shown> {
    let text = fs::read_to_string(source).with_context(|| format!("{source} cannot be read"))?;
    let shown = read_shown(&text);
    if !shown.problems.is_empty() {
        bail!("{source}:\n{}", shown.problems.join("\n"));
    }
    Ok(shown)
}

fn read_shown(text: &str) -> shown::Shown {
    shown::read(text, crate::suite::is_step, run::is_program)
}

/// Documents that the contents do not name.
fn forgotten(book: &Book) -> Result<Vec<String>> {
    let mut problems = Vec::new();
    for entry in fs::read_dir("docs")? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        let path = format!("docs/{name}");
        if name.ends_with(".md") && path != book::SUMMARY && !book.pages().any(|page| page.source == path) {
            problems.push(format!("{path}: not in {}; add a line there", book::SUMMARY));
        }
    }
    Ok(problems)
}

/// Where the rest of the repository can be read.
fn repository(manifest: &str) -> Result<String> {
    let manifest: toml::Table = toml::from_str(manifest)?;
    let address = manifest["workspace"]["package"]["repository"].as_str();
    address.map(str::to_owned).context("Cargo.toml does not say where the repository is")
}
