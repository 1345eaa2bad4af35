//! What got worse and what got better since the last report.
//!
//! Ratios to something in the same run are judged always, and counts of instructions between runs of the same compiler.
//! Times, rates and sizes are not, even on a processor and a kernel of the same names: the same code was up to twice as
//! fast half an hour later. Those that left their range are listed on their own. What is judged must have left the
//! other run's range by [`BOUND`], with its own range as a whole; what was measured once has no range.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::{FORM, NAME, fact, read_facts};
use crate::bench::figure::{Basis, Figure};
use crate::bench::report::Section;
use crate::command::root;

/// How far two ranges must lie apart, as a share.
const BOUND: f64 = 0.10;

/// The last report.
#[derive(Debug)]
pub struct Last {
    file: String,
    facts: Vec<(String, String)>,
    figures: Vec<Figure>,
}

/// What is said of a figure that is in both reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Worse,
    Better,
    /// A time, a rate or a size got worse or better, which alone says nothing.
    Moved,
    Same,
    /// It may not be compared.
    Shown,
}

/// The rule, as a report says it.
pub fn rule() -> String {
    format!(
        "Worse or better is what left the range of the last report by more than {:.0} %, with its whole range. Judged \
         are ratios to something in the same run, and counts of instructions when the compiler is the same. Times, \
         rates and sizes differ between runs of the same code, too: when processor and kernel are the same, those that \
         left their range are listed apart. A figure of one round is not judged.",
        BOUND * 100.0
    )
}

impl Last {
    /// The newest that is kept, of the same form; none when there is none.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn newest(form: &str) -> Result<Option<Self>> {
        let folder = root().join("benches/results");
        let entries = fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))?;
        let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
        let mut names: Vec<_> = names.filter_map(|name| Some((age(&name)?, name))).collect();
        names.sort();
        for (_, name) in names.iter().rev() {
            let last = Self::read(&folder.join(name))?;
            if fact(&last.facts, FORM) == Some(form) {
                return Ok(Some(last));
            }
        }
        Ok(None)
    }

    /// The raw data of a report.
    ///
    /// # Errors
    /// When it is none.
    pub fn read(file: &Path) -> Result<Self> {
        let text = fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
        let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Self::parse(name, &text).with_context(|| format!("{} is no report of `bench {NAME}`", file.display()))
    }

    fn parse(file: String, text: &str) -> Result<Self> {
        let data: Value = serde_json::from_str(text)?;
        let figures = data["figures"].as_array().context("it has no figures")?;
        let figures = figures.iter().map(Figure::read).collect::<Result<_>>()?;
        Ok(Self { file, facts: read_facts(&data)?, figures })
    }
}

/// The day and the number of the day of a report's raw data; none when it is that of something else.
fn age(name: &str) -> Option<(String, u32)> {
    let (day, rest) = name.strip_suffix(".json")?.split_at_checked("2000-01-01".len())?;
    let number = rest.strip_prefix('-')?.strip_prefix(NAME)?;
    let number = if number.is_empty() { 1 } else { number.strip_prefix('-')?.parse().ok()? };
    Some((day.to_owned(), number))
}

/// Judges what both have, of `benchmarks`, which ran now.
pub fn section(figures: &[Figure], benchmarks: &[&str], facts: &[(String, String)], last: Option<&Last>) -> Section {
    let title = "What got worse, what got better";
    let Some(last) = last else {
        let text = "There is no such report to compare with.".to_owned();
        return Section { title, text, data: Value::Null };
    };
    let both: Vec<_> = figures
        .iter()
        .filter_map(|now| {
            let before = last.figures.iter().find(|before| before.name == now.name && before.unit == now.unit)?;
            Some((before, now, judge(before, now, facts, &last.facts)))
        })
        .collect();
    let count = |wanted| both.iter().filter(|(.., verdict)| *verdict == wanted).count();
    let (worse, better, same) = (count(Verdict::Worse), count(Verdict::Better), count(Verdict::Same));
    let moved = count(Verdict::Moved);
    let was_asked = |name: &str| name.split_once(':').is_some_and(|(of, _)| benchmarks.contains(&of));
    let gone = last.figures.iter().filter(|before| figures.iter().all(|now| now.name != before.name));
    let gone: Vec<_> = gone.map(|before| before.name.as_str()).filter(|name| was_asked(name)).collect();
    let mut text = format!(
        "Compared with `{}`: {worse} worse, {better} better, {same} neither; {moved} times, rates and sizes left their \
         range; {} figures may not be compared, {} are new, {} are no longer there.\n",
        last.file,
        count(Verdict::Shown),
        figures.len() - both.len(),
        gone.len()
    );
    if worse + better + moved > 0 {
        text.push_str("\n| figure | unit | before (range) | now (range) | now by before | verdict |\n");
        text.push_str("|---|---|---|---|---|---|\n");
    }
    for (wanted, word) in [(Verdict::Worse, "worse"), (Verdict::Better, "better"), (Verdict::Moved, "moved")] {
        for (before, now, _) in both.iter().filter(|(.., verdict)| *verdict == wanted) {
            let ratio = now.median / before.median;
            let (name, unit) = (&now.name, &now.unit);
            let _ = writeln!(text, "| {name} | {unit} | {} | {} | {ratio:.2} | {word} |", before.shown(), now.shown());
        }
    }
    if !gone.is_empty() {
        let _ = writeln!(text, "\nNo longer there: {}.", gone.join("; "));
    }
    let named = |wanted| both.iter().filter(|(.., it)| *it == wanted).map(|(_, now, _)| json!(now.name)).collect();
    let [worse, better, moved]: [Vec<Value>; 3] = [Verdict::Worse, Verdict::Better, Verdict::Moved].map(named);
    let data = json!({ "against": last.file, "worse": worse, "better": better, "moved": moved, "gone": gone });
    Section { title, text, data }
}

fn judge(before: &Figure, now: &Figure, facts: &[(String, String)], earlier: &[(String, String)]) -> Verdict {
    let is_same = |name: &&str| fact(facts, name).is_some() && fact(facts, name) == fact(earlier, name);
    let must_be_same: &[&str] = match now.basis {
        Basis::Ratio => &[],
        Basis::Count => &["rustc"],
        Basis::Absolute => &["cpu", "cores", "kernel"],
    };
    let has_range = now.basis == Basis::Count || before.values.min(now.values) > 1;
    if before.basis != now.basis || !has_range || !must_be_same.iter().all(is_same) {
        return Verdict::Shown;
    }
    // What is beyond zero has no share to be told by: `bench latency` adds less than nothing now and then.
    if before.least <= 0.0 || now.least <= 0.0 {
        return if before.least > now.most || now.least > before.most { Verdict::Shown } else { Verdict::Same };
    }
    let (grew, shrank) = (now.least > before.most * (1.0 + BOUND), now.most * (1.0 + BOUND) < before.least);
    match (grew, shrank, now.more_is_better) {
        (true, ..) | (_, true, _) if now.basis == Basis::Absolute => Verdict::Moved,
        (true, _, false) | (_, true, true) => Verdict::Worse,
        (true, _, true) | (_, true, false) => Verdict::Better,
        _ => Verdict::Same,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(cpu: &str, rustc: &str) -> Vec<(String, String)> {
        [("cpu", cpu), ("cores", "2"), ("kernel", "6"), ("rustc", rustc)]
            .map(|(a, b)| (a.to_owned(), b.to_owned()))
            .into()
    }

    fn figure(basis: Basis, values: [f64; 2]) -> Figure {
        let unit = String::new();
        let (least, most) = (values[0], values[1]);
        let (median, name) = (f64::midpoint(least, most), "a".to_owned());
        Figure { name, unit, median, least, most, values: 3, basis, more_is_better: false }
    }

    #[test]
    fn only_what_may_be_compared_is_judged_and_only_beyond_both_ranges() {
        use Basis::{Absolute, Count, Ratio};
        let (here, there, other) = (facts("x", "1"), facts("y", "1"), facts("y", "2"));
        let cases = [
            (Ratio, [1.0, 1.2], [1.0, 1.2], &other, Verdict::Same),
            (Ratio, [1.0, 1.2], [1.33, 1.5], &other, Verdict::Worse),
            (Ratio, [1.0, 1.2], [1.31, 1.5], &other, Verdict::Same),
            (Ratio, [1.0, 1.2], [1.1, 9.0], &other, Verdict::Same),
            (Ratio, [1.0, 1.2], [0.8, 0.9], &other, Verdict::Better),
            (Ratio, [1.0, 1.2], [0.8, 0.95], &other, Verdict::Same),
            (Count, [100.0, 100.0], [120.0, 120.0], &there, Verdict::Worse),
            (Count, [100.0, 100.0], [120.0, 120.0], &other, Verdict::Shown),
            (Absolute, [1.0, 1.2], [3.0, 3.0], &here, Verdict::Moved),
            (Absolute, [1.0, 1.2], [3.0, 3.0], &there, Verdict::Shown),
            (Absolute, [-1.0, 1.2], [3.0, 3.0], &here, Verdict::Shown),
            (Absolute, [-1.0, 1.2], [0.5, 3.0], &here, Verdict::Same),
        ];
        for (basis, before, now, earlier, wanted) in cases {
            let (before, now) = (figure(basis, before), figure(basis, now));
            assert_eq!(judge(&before, &now, &here, earlier), wanted, "{before:?} {now:?}");
            let mirrored = match wanted {
                Verdict::Worse => Verdict::Better,
                Verdict::Better => Verdict::Worse,
                same => same,
            };
            let (before, now) = (before.more_is_better(), now.more_is_better());
            assert_eq!(judge(&before, &now, &here, earlier), mirrored, "more is better: {before:?} {now:?}");
        }
        let (ratio, count) = (figure(Ratio, [1.0, 1.0]), figure(Count, [9.0, 9.0]));
        assert_eq!(judge(&ratio, &count, &here, &here), Verdict::Shown, "it is measured in another way now");
        let once = Figure { values: 1, ..figure(Ratio, [9.0, 9.0]) };
        assert_eq!(judge(&ratio, &once, &here, &here), Verdict::Shown, "nobody knows its range");
    }

    #[test]
    fn reports_are_told_by_their_names_and_the_last_of_a_day_is_the_last() {
        let day = || "2026-11-29".to_owned();
        let cases = [
            ("2026-11-29-all.json", Some((day(), 1))),
            ("2026-11-29-all-12.json", Some((day(), 12))),
            ("2026-11-29-all.md", None),
            ("2026-11-29-overall.json", None),
            ("2026-11-29-all-of-it.json", None),
            ("2026-11-29-proxy.json", None),
            ("all.json", None),
        ];
        for (name, wanted) in cases {
            assert_eq!(age(name), wanted, "{name}");
        }
        assert!(age("2026-11-29-all-2.json") < age("2026-11-29-all-12.json"));
    }

    #[test]
    fn a_report_says_what_changed_and_what_is_gone() {
        let named = |name: &str, basis, value| Figure { name: name.to_owned(), ..figure(basis, [value, value]) };
        let before = |name| named(name, Basis::Ratio, 1.0).json();
        let text = json!({
            "facts": { "cpu": "x", "cores": "2", "kernel": "6" },
            "figures": [before("here: a"), before("here: b"), before("elsewhere: c"),
                named("here: d", Basis::Absolute, 1.0).json()],
        });
        let last = Last::parse("last.json".into(), &text.to_string()).unwrap();
        let now = [named("here: a", Basis::Ratio, 2.0), named("here: d", Basis::Absolute, 2.0)];
        let section = section(&now, &["here"], &facts("x", "1"), Some(&last));
        let counts = "1 worse, 0 better, 0 neither; 1 times, rates and sizes left their range; 0 figures may not be \
                      compared, 0 are new, 1 are";
        assert!(section.text.contains(counts), "{}", section.text);
        for (name, word) in [("here: a", "worse"), ("here: d", "moved")] {
            let row = format!("| {name} |  | 1.000 (1.000–1.000) | 2.000 (2.000–2.000) | 2.00 | {word} |");
            assert!(section.text.contains(&row), "{}", section.text);
        }
        assert_eq!(section.data["gone"], json!(["here: b"]), "`elsewhere` was not asked");
        assert!(Last::parse("x".into(), "{}").is_err());
    }
}
