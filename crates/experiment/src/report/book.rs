//! All reports as a chapter of the documents: Markdown, with one figure an experiment in a folder beside it.

use std::fmt::Write;

use super::saved::{Arm, Check, Experiment, Run, SavedReport};

/// What stands before and after what [`Chapter`] writes in a document.
const BEGIN: &str = "<!-- generated: tidegate experiment report --chapter -->\n";
const END: &str = "<!-- end of what is generated -->";

/// A chapter, and the pictures it shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chapter {
    /// Markdown.
    pub text: String,
    /// File name and SVG.
    pub figures: Vec<(String, String)>,
}

/// The chapter on these reports. `folder` is where its figures will be, as the document reaches it.
pub fn chapter(reports: &[SavedReport], folder: &str) -> Chapter {
    let mut chapter = Chapter { text: String::new(), figures: Vec::new() };
    for report in reports {
        section(&mut chapter, report, folder);
    }
    chapter
}

impl Chapter {
    /// The document with this chapter in its place; `None` when it has no place for one.
    pub fn put_into(&self, document: &str) -> Option<String> {
        let (before, rest) = document.split_once(BEGIN)?;
        let (_, after) = rest.split_once(END)?;
        Some([before, BEGIN, &self.text, "\n", END, after].concat())
    }
}

fn section(chapter: &mut Chapter, report: &SavedReport, folder: &str) {
    let experiment = &report.experiment;
    let from = if experiment.source.is_empty() { "Ours.".to_owned() } else { format!("After {}.", experiment.source) };
    let _ = write!(chapter.text, "\n### {}: {}\n\n{from} {}\n", name(report), experiment.title, verdict(experiment));
    if let Some((arm, svg)) = figure(report) {
        let file = format!("{}-{arm}.svg", name(report).to_lowercase());
        let _ = write!(chapter.text, "\n![{}, {arm}: requests over time by class]({folder}/{file})\n", name(report));
        chapter.figures.push((file, small(svg)));
    }
    let _ = write!(chapter.text, "\n| arm | what it must show | wanted | measured | |\n|---|---|---|---|---|\n");
    for arm in &experiment.arms {
        checks(&mut chapter.text, arm);
    }
}

fn verdict(experiment: &Experiment) -> String {
    let checks = experiment.arms.iter().flat_map(|arm| &arm.runs).flat_map(|run: &Run| &run.checks);
    let (all, passed) = checks.fold((0, 0), |(all, passed), check| (all + 1, passed + usize::from(check.pass)));
    let how = format!("{}{}", experiment.mode, if experiment.short { ", short form" } else { "" });
    format!("{} s of load, {how}: {passed} of {all} checks passed.", experiment.duration_s)
}

/// The folder's name: of a sweep, each combination has one of its own.
fn name(report: &SavedReport) -> String {
    report.folder.file_name().map_or_else(|| report.experiment.id.clone(), |name| name.to_string_lossy().into_owned())
}

/// Arms that are there to compare with.
const BASELINES: [&str; 4] = ["baseline", "none", "late", "wrr"];

/// The first arm of which something is expected, and that is no baseline, stands for the experiment.
fn figure(report: &SavedReport) -> Option<(&str, &str)> {
    let expected = |arm: &&Arm| arm.runs.first().is_some_and(|run| !run.checks.is_empty());
    let arms = || report.experiment.arms.iter().filter(expected);
    let arm = arms().find(|arm| !BASELINES.contains(&arm.name.as_str())).or_else(|| arms().next())?;
    let (name, svg) = report.figures.iter().find(|(name, _)| *name == arm.name)?;
    Some((name, svg))
}

fn checks(text: &mut String, arm: &Arm) {
    let Some(first) = arm.runs.first() else { return };
    for (at, check) in first.checks.iter().enumerate() {
        let all: Vec<&Check> = arm.runs.iter().filter_map(|run| run.checks.get(at)).collect();
        let mark = if all.iter().all(|check| check.pass) { "✓" } else { "✖ missed" };
        let mark = check.mark.map_or_else(|| mark.to_owned(), |of| format!("{mark} {}", of.words()));
        let _ = writeln!(
            text,
            "| {} | {}: {} of {}, {} | {} | {} | {mark} |",
            code(&arm.name),
            plain(&check.what),
            code(&check.metric),
            plain(&check.subject),
            plain(&check.over),
            plain(&check.bound),
            measured(&all)
        );
    }
}

/// The mean of many runs with its interval, or each of a few.
fn measured(checks: &[&Check]) -> String {
    let values: Vec<f64> = checks.iter().filter_map(|check| check.measured).collect();
    match checks.first().and_then(|check| check.interval).filter(|_| values.len() > 3) {
        Some([low, high]) => {
            let mean = values.iter().sum::<f64>() / values.len() as f64;
            format!("{} ({} to {})", digits(mean), digits(low), digits(high))
        }
        None => {
            let each = checks.iter().map(|check| check.measured.map_or("nothing".into(), digits));
            each.collect::<Vec<_>>().join(", ")
        }
    }
}

fn digits(value: f64) -> String {
    if value >= 100.0 { format!("{value:.1}") } else { format!("{value:.3}") }
}

fn code(text: &str) -> String {
    format!("`{}`", text.replace(['`', '|'], ""))
}

/// Text that no table or Markdown takes for its own.
fn plain(text: &str) -> String {
    text.replace('|', "\\|").replace('<', "\\<").replace('*', "\\*").replace('_', "\\_")
}

/// The same picture in fewer bytes, and one that shrinks with its page.
fn small(svg: &str) -> String {
    let mut out = svg.replace(" opacity=\"1\"", "").replace("font-size=\"19.35483870967742\"", "font-size=\"19\"");
    out = out.replace("font-size=\"15.32258064516129\"", "font-size=\"15\"");
    out.replace("font-size=\"12.903225806451614\"", "font-size=\"13\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> SavedReport {
        let experiment = serde_json::json!({
            "id": "T1", "title": "a test", "source": "a paper, figure 3", "mode": "simulated", "short": false,
            "duration_s": 10.0, "pass": false,
            "arms": [{ "name": "none", "pass": true, "runs": [{ "seed": 7, "warnings": [], "checks": [], "totals": [] }] },
                     { "name": "sentry", "pass": false, "runs": [{ "seed": 7, "warnings": [], "totals": [],
                "checks": [{ "what": "gold | stays", "subject": "gold", "metric": "p95", "over": "0s..1s", "bound": "<= 1",
                             "measured": 0.25, "pass": true },
                           { "what": "y", "subject": "gold", "metric": "p95", "over": "all", "bound": "<= 1",
                             "measured": null, "pass": false }] }] }],
        });
        SavedReport {
            folder: "out/T1".into(),
            experiment: serde_json::from_value(experiment).expect("it is written as a report is"),
            figures: vec![("none".into(), "<svg>n</svg>".into()), ("sentry".into(), "<svg opacity=\"1\"/>".into())],
        }
    }

    #[test]
    fn a_chapter_has_the_statements_beside_what_was_measured() {
        let chapter = chapter(&[report()], "experiments");
        for part in [
            "### T1: a test\n\nAfter a paper, figure 3. 10 s of load, simulated: 1 of 2 checks passed.",
            "(experiments/t1-sentry.svg)",
            "| `sentry` | gold \\| stays: `p95` of gold, 0s..1s | \\<= 1 | 0.250 | ✓ |",
            "| nothing | ✖ missed |",
        ] {
            assert!(chapter.text.contains(part), "{part}\n{}", chapter.text);
        }
        assert_eq!(chapter.figures, [("t1-sentry.svg".to_owned(), "<svg/>".to_owned())]);
    }

    #[test]
    fn it_goes_where_the_document_has_a_place_for_it() {
        let chapter = Chapter { text: "\nnew\n".into(), figures: Vec::new() };
        let before = format!("# Title\n{BEGIN}old\n{END}\nafter\n");
        assert_eq!(chapter.put_into(&before), Some(format!("# Title\n{BEGIN}\nnew\n\n{END}\nafter\n")));
        assert_eq!(chapter.put_into("# Title\n"), None);
    }
}
