//! `cargo xtask bench all`: every benchmark that makes a record, one after the other, in one report, compared with the
//! last such report.
//!
//! A benchmark that fails is named in the report, and the others go on. What got worse or better is told of figures
//! that may be compared at all; [`judge`] says which.

mod judge;

use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use serde_json::json;

use super::contender::CONTENDERS;
use super::figure::Figure;
use super::proxy::facts;
use super::report::{Report, Section};
use super::{BENCHES, Bench, record_folder};
use crate::args::{Args, all_known};
use crate::command::root;
use judge::Last;

/// What this one is called among the others, and the end of its reports' names.
pub const NAME: &str = "all";
/// The fact by which reports of a short form are told from those of the whole.
const FORM: &str = "form";

/// What came of one benchmark.
struct Part {
    name: &'static str,
    seconds: f64,
    figures: Result<Vec<Figure>>,
}

/// Runs them.
///
/// # Errors
/// When one of them failed, after all have run; or the last report is not one.
pub fn run(mut args: Args) -> Result<Vec<Figure>> {
    let short = args.switch("--short");
    let only = args.list("--only")?;
    let against = args.option::<PathBuf>("--against")?;
    let folder = record_folder(&mut args)?;
    args.finish()?;
    let known: Vec<_> = BENCHES.iter().map(|bench| bench.name).filter(|name| *name != NAME).collect();
    all_known("benchmark", only.as_deref(), &known)?;
    let form = if short { "short" } else { "whole" };
    // Before hours of work, and before the report of today lies beside it.
    let last = match against {
        Some(file) => Some(Last::read(&file)?),
        None => Last::newest(form)?,
    };
    let wanted =
        |bench: &&Bench| bench.name != NAME && only.as_ref().is_none_or(|only| only.iter().any(|it| it == bench.name));
    // Also before: which commit it is, and how busy the machine was.
    let facts = facts_of(form);
    let parts: Vec<Part> = BENCHES.iter().filter(wanted).map(|bench| part(bench, short)).collect();
    let report = report(&parts, form, facts, last.as_ref());
    let figures = report.publish(folder.as_deref())?;
    let failed: Vec<_> = parts.iter().filter(|part| part.figures.is_err()).map(|part| part.name).collect();
    if !failed.is_empty() {
        bail!("{} of {} benchmarks failed: {}", failed.len(), parts.len(), failed.join(", "));
    }
    Ok(figures)
}

fn part(bench: &Bench, short: bool) -> Part {
    println!("\n════ {}: {}", bench.name, bench.what);
    let words = if short && bench.has_short { vec!["--short".to_owned()] } else { Vec::new() };
    let begun = Instant::now();
    let found = (bench.run)(Args::new(words));
    if let Err(error) = &found {
        println!("{} failed: {error:#}", bench.name);
    }
    let name_all = |figures: Vec<Figure>| {
        let named = figures.into_iter().map(|it| Figure { name: format!("{}: {}", bench.name, it.name), ..it });
        named.collect()
    };
    Part { name: bench.name, seconds: begun.elapsed().as_secs_f64(), figures: found.map(name_all) }
}

fn facts_of(form: &str) -> Vec<(String, String)> {
    // Ours is told by the commit.
    let others: Vec<_> = CONTENDERS.iter().filter(|it| !it.name.starts_with("tidegate")).copied().collect();
    let mut facts = facts(&others);
    facts.push((FORM.to_owned(), form.to_owned()));
    facts
}

fn report(parts: &[Part], form: &str, facts: Vec<(String, String)>, last: Option<&Last>) -> Report {
    let figures: Vec<Figure> = parts.iter().filter_map(|part| part.figures.as_ref().ok()).flatten().cloned().collect();
    let ran: Vec<_> = parts.iter().map(|part| part.name).collect();
    let mut sections = vec![benchmarks(parts), judge::section(&figures, &ran, &facts, last)];
    sections.push(shown(&figures));
    Report { name: NAME, title: "Every benchmark", method: method(form), facts, sections, figures, ..Report::default() }
}

fn method(form: &str) -> String {
    let short = if form == "short" { " --short" } else { "" };
    format!(
        "`cargo xtask bench all{short} --record`, on a machine that does nothing else, Envoy's program in `ENVOY`: the \
         benchmarks one after the other. Each figure is a median with its range, over rounds or as its benchmark's own \
         report says; the benchmarks by themselves write reports with all raw data. {}",
        judge::rule()
    )
}

fn benchmarks(parts: &[Part]) -> Section {
    let mut text = String::from("| benchmark | took s | figures | what came of it |\n|---|---|---|---|\n");
    let outcome = |part: &Part| match &part.figures {
        Ok(figures) => (figures.len(), "done".to_owned()),
        // In a cell there are no lines.
        Err(error) => (0, anywhere(&format!("failed: {error:#}")).replace('\n', " ").replace('|', "/")),
    };
    for part in parts {
        let (count, outcome) = outcome(part);
        let _ = writeln!(text, "| {} | {:.0} | {count} | {outcome} |", part.name, part.seconds);
    }
    let data = parts.iter().map(|part| {
        let (count, outcome) = outcome(part);
        json!({ "benchmark": part.name, "seconds": part.seconds, "figures": count, "outcome": outcome })
    });
    Section { title: "Benchmarks", text, data: data.collect() }
}

/// Without the places of this machine.
fn anywhere(text: &str) -> String {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    text.replace(&cargo, "cargo").replace(&root().display().to_string(), ".")
}

fn shown(figures: &[Figure]) -> Section {
    let mut text = String::from("| figure | unit | median (range) | kind | better |\n|---|---|---|---|---|\n");
    for figure in figures {
        let better = if figure.more_is_better { "more" } else { "less" };
        let (name, unit, kind) = (&figure.name, &figure.unit, figure.basis.name());
        let _ = writeln!(text, "| {name} | {unit} | {} | {kind} | {better} |", figure.shown());
    }
    // Raw data has them on their own.
    Section { title: "Figures", text, data: json!(figures.len()) }
}

/// A fact of a report.
fn fact<'a>(facts: &'a [(String, String)], name: &str) -> Option<&'a str> {
    facts.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
}

/// The facts of a report's raw data.
fn read_facts(data: &serde_json::Value) -> Result<Vec<(String, String)>> {
    let facts = data["facts"].as_object().context("it has no facts")?;
    Ok(facts.iter().map(|(name, value)| (name.clone(), value.as_str().unwrap_or_default().to_owned())).collect())
}

#[cfg(test)]
mod tests {
    use anyhow::anyhow;

    use super::*;

    #[test]
    fn a_benchmark_that_fails_is_named_and_the_figures_of_the_others_are_there() {
        let figure = Figure::ratio("engine: a", [2.0].into_iter()).unwrap();
        let parts = [
            Part { name: "engine", seconds: 3.0, figures: Ok(vec![figure]) },
            Part { name: "proxy", seconds: 1.0, figures: Err(anyhow!("no\nnginx | here")) },
        ];
        let report = report(&parts, "short", facts_of("short"), None);
        let text = report.markdown();
        assert!(text.contains("| engine | 3 | 1 | done |"), "{text}");
        assert!(text.contains("| proxy | 1 | 0 | failed: no nginx / here |"), "{text}");
        assert!(text.contains("| engine: a |  | 2.000 (2.000–2.000) | ratio | less |"), "{text}");
        assert_eq!(anywhere(&format!("in {}/a", root().display())), "in ./a");
        assert_eq!(fact(&report.facts, FORM), Some("short"));
    }
}
