//! Results that are kept in the repository, and the table of the documents that is made of them.
//!
//! A report of ten seeds is megabytes of seconds; what is kept of it is each check with what it is evidence of, its
//! bound, and the mean that was measured with its interval. One file an experiment and mode, all its combinations in
//! it.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::saved::{Arm, Check, ReadError, SavedReport, text};
use crate::scenario::Mark;

/// What is kept of an experiment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Kept {
    /// Its short name.
    pub id: String,
    /// `simulated` or `live`.
    pub mode: String,
    /// How many runs of each arm there were, each with a seed of its own.
    pub seeds: usize,
    /// What came of each combination of the sweep; one without a sweep.
    pub points: Vec<KeptPoint>,
}

/// One combination of a sweep.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct KeptPoint {
    /// The scenario's title there.
    pub title: String,
    /// Every check, arm by arm.
    pub checks: Vec<KeptCheck>,
}

/// A check over all seeds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct KeptCheck {
    /// Of which arm.
    pub arm: String,
    /// What it is evidence of.
    pub mark: Option<Mark>,
    /// What it shows, in words.
    pub what: String,
    /// The paper's sentence or figure.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub claim: String,
    /// Why its bounds are not the paper's, or why the paper's policy misses the claim.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub because: String,
    /// What was measured, of what and when, in words.
    pub measure: String,
    /// What is demanded.
    pub bound: String,
    /// The mean over the seeds; `None` where there was nothing to measure.
    pub mean: Option<f64>,
    /// Where it lies with 95 % confidence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<[f64; 2]>,
    /// Whether it passed, with every seed or on the mean.
    pub pass: bool,
}

impl Kept {
    /// What is to be kept of reports: one of each experiment and mode, in the order in which they first appear.
    pub fn of(reports: &[SavedReport]) -> Vec<Kept> {
        let mut all: Vec<Kept> = Vec::new();
        for SavedReport { experiment, .. } in reports {
            let checks = experiment.arms.iter().flat_map(checks).collect();
            let point = KeptPoint { title: experiment.title.clone(), checks };
            let seeds = experiment.arms.iter().map(|arm| arm.runs.len()).max().unwrap_or(0);
            match all.iter_mut().find(|kept| kept.id == experiment.id && kept.mode == experiment.mode) {
                Some(kept) => kept.points.push(point),
                None => all.push(Kept {
                    id: experiment.id.clone(),
                    mode: experiment.mode.clone(),
                    seeds,
                    points: vec![point],
                }),
            }
        }
        all
    }

    /// The name of its file: `W1.json`, or `W1-live.json`.
    pub fn file(&self) -> String {
        if self.mode == "live" { format!("{}-live.json", self.id) } else { format!("{}.json", self.id) }
    }

    /// The text of its file.
    pub fn json(&self) -> String {
        serde_json::to_string_pretty(self).expect("plain numbers and text can be written as JSON") + "\n"
    }

    /// Every one in a folder, by the names of their files.
    ///
    /// # Errors
    /// The first file that cannot be read.
    pub fn read_all(folder: &Path) -> Result<Vec<Kept>, ReadError> {
        let failed = |error| ReadError::File { path: folder.to_path_buf(), error };
        let entries: Result<Vec<_>, _> = std::fs::read_dir(folder).map_err(failed)?.collect();
        let mut files: Vec<_> = entries.map_err(failed)?.iter().map(std::fs::DirEntry::path).collect();
        files.retain(|file| file.extension().is_some_and(|extension| extension == "json"));
        files.sort();
        let read = |path: std::path::PathBuf| {
            serde_json::from_str(&text(&path)?).map_err(|error| ReadError::Json { path, error })
        };
        files.into_iter().map(read).collect()
    }
}

fn checks(arm: &Arm) -> impl Iterator<Item = KeptCheck> {
    let count = arm.runs.first().map_or(0, |run| run.checks.len());
    (0..count).map(|at| {
        let all: Vec<&Check> = arm.runs.iter().filter_map(|run| run.checks.get(at)).collect();
        let (check, values) = (all[0], all.iter().filter_map(|check| check.measured).collect::<Vec<f64>>());
        let is_whole = values.len() == all.len();
        let round = |value: f64| (value * 1e4).round() / 1e4;
        KeptCheck {
            arm: arm.name.clone(),
            mark: check.mark,
            what: check.what.clone(),
            claim: check.claim.clone(),
            because: check.because.clone(),
            measure: format!("{} of {}, {}", check.metric, check.subject, check.over),
            bound: check.bound.clone(),
            mean: is_whole.then(|| round(values.iter().sum::<f64>() / values.len() as f64)),
            interval: check.interval.map(|ends| ends.map(round)),
            pass: all.iter().all(|check| check.pass),
        }
    })
}

/// The 31 experiments of the five papers, in the papers' order.
const EXPERIMENTS: [&str; 32] = [
    "C1", "C2", "C3", "C4", "C5", "C6", "C7", "W1", "W2", "W3", "W4", "W5", "W6", "W7", "A1", "A2", "A3", "A4", "A5",
    "S1", "S2", "S3", "S4", "S5", "S6", "S7", "S8", "S8B", "S9", "V1", "V2", "V3",
];

/// What stands in the place of results that are not made by a scenario.
const ELSEWHERE: [(&str, &str); 3] = [
    ("C2", "a benchmark, no scenario: [record](../benches/results/2026-11-21-c2.md)"),
    ("S5", "judged by its figure as a whole: [stealing](softscale.md#results)"),
    ("S9", "judged by its figure as a whole: [stealing](softscale.md#results)"),
];

/// The table: a row for each claim of each experiment.
pub fn table(all: &[Kept]) -> String {
    let mut rows = String::from(
        "| | the paper's claim | the paper's policy here | ours | how | verdict |\n|---|---|---|---|---|---|\n",
    );
    for id in EXPERIMENTS {
        let of_it: Vec<&Kept> = all.iter().filter(|kept| kept.id == id).collect();
        if of_it.is_empty() {
            let words = ELSEWHERE.iter().find(|(of, _)| *of == id).map_or("no results kept yet", |(_, words)| words);
            rows += &format!("| {id} | {words} | | | | |\n");
        }
        of_it.iter().for_each(|kept| rows += &self::rows(kept));
    }
    rows
}

/// The rows of one experiment: its claims in the order in which they first appear, and what is ours alone last.
fn rows(kept: &Kept) -> String {
    let checks: Vec<&KeptCheck> = kept.points.iter().flat_map(|point| &point.checks).collect();
    let (id, how) = (&kept.id, format!("{}, {}", kept.mode, count(kept.seeds, "run")));
    if checks.iter().all(|check| check.mark.is_none()) {
        let passed = checks.iter().filter(|check| check.pass).count();
        return format!("| {id} | checks not marked yet | | | {how} | {passed} of {} passed |\n", checks.len());
    }
    let mut claims: Vec<&str> = Vec::new();
    for check in &checks {
        if !claims.contains(&check.claim.as_str()) {
            claims.push(&check.claim);
        }
    }
    claims.sort_by_key(|claim| claim.is_empty());
    let row = |claim: &str| {
        let about: Vec<&KeptCheck> = checks.iter().copied().filter(|check| check.claim == claim).collect();
        let (ours, papers): (Vec<&KeptCheck>, Vec<&KeptCheck>) =
            about.iter().partition(|check| check.mark == Some(Mark::Ours));
        let claim = if claim.is_empty() { "*beyond the paper*".to_owned() } else { plain(claim) };
        format!("| {id} | {claim} | {} | {} | {how} | {} |\n", cell(&papers), cell(&ours), verdict(&about))
    };
    claims.into_iter().map(row).collect()
}

/// Measured values of checks, those of one arm and measure in all combinations together.
fn cell(checks: &[&KeptCheck]) -> String {
    let mut groups: BTreeMap<(usize, &str, &str), Vec<&KeptCheck>> = BTreeMap::new();
    for (at, check) in checks.iter().enumerate() {
        let same = |other: &&KeptCheck| (&other.arm, &other.what) == (&check.arm, &check.what);
        let first = checks.iter().position(same).unwrap_or(at);
        groups.entry((first, &check.arm, &check.what)).or_default().push(check);
    }
    let words = |((_, arm, what), checks): (&(usize, &str, &str), &Vec<&KeptCheck>)| {
        let means: Vec<f64> = checks.iter().filter_map(|check| check.mean).collect();
        let measured = match (means.as_slice(), checks[0].interval) {
            ([], _) => "nothing".to_owned(),
            ([mean], Some([low, high])) => format!("{} ({} to {})", digits(*mean), digits(low), digits(high)),
            ([mean], None) => digits(*mean),
            (means, _) => {
                let (low, high) = means.iter().fold((f64::MAX, f64::MIN), |(l, h), &m| (l.min(m), h.max(m)));
                format!("{} to {} at {} loads", digits(low), digits(high), means.len())
            }
        };
        let bound = if checks.iter().all(|check| check.bound == checks[0].bound) {
            plain(&checks[0].bound)
        } else {
            "each its own".into()
        };
        format!("`{arm}`: {}: **{measured}**, wanted {bound}", plain(what))
    };
    groups.iter().map(words).collect::<Vec<_>>().join("; ")
}

fn verdict(checks: &[&KeptCheck]) -> String {
    let failed = checks.iter().filter(|check| !check.pass).count();
    if failed > 0 {
        return format!("✖ {} not as wanted", count(failed, "check"));
    }
    let has = |mark| checks.iter().any(|check| check.mark == Some(mark));
    let reason = checks.iter().find(|check| check.mark == Some(Mark::Finding)).map(|check| plain(&check.because));
    match (has(Mark::Paper), reason, has(Mark::Ours)) {
        (_, Some(reason), true) => format!("misses; ours holds or is shown beside it. {reason}"),
        (_, Some(reason), false) => format!("misses: {reason}"),
        (true, None, true) => "as the paper, and ours".to_owned(),
        (true, None, false) => "as the paper".to_owned(),
        (false, None, _) => "ours".to_owned(),
    }
}

fn count(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

fn digits(value: f64) -> String {
    match value.abs() {
        100.0.. => format!("{value:.0}"),
        10.0.. => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// Text that no table or Markdown takes for its own.
fn plain(text: &str) -> String {
    text.replace('|', "\\|").replace('<', "\\<").replace('*', "\\*").replace('_', "\\_")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::built_in;

    const BEGIN: &str = "<!-- generated from benches/results/experiments: cargo xtask docs --bless -->\n";
    const END: &str = "<!-- end of the table -->";

    fn repository(path: &str) -> std::path::PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
    }

    fn kept() -> Vec<Kept> {
        Kept::read_all(&repository("benches/results/experiments")).unwrap_or_else(|error| panic!("{error}"))
    }

    #[test]
    fn the_table_of_the_documents_is_made_of_what_is_kept() {
        let path = repository("docs/experiments.md");
        let document = std::fs::read_to_string(&path).expect("it is there");
        let (before, rest) = document.split_once(BEGIN).expect("it has a place for the table");
        let (old, after) = rest.split_once(END).expect("the table has an end");
        let new = format!("\n{}\n", table(&kept()));
        if std::env::var_os("TIDEGATE_BLESS").is_some() {
            std::fs::write(&path, [before, BEGIN, &new, END, after].concat()).expect("it can be written");
        } else {
            assert!(old == new, "docs/experiments.md is behind what is kept: cargo xtask docs --bless");
        }
    }

    /// Bounds and marks of the files are those of the results that are shown.
    #[test]
    fn what_is_kept_is_of_the_scenarios_as_they_are() {
        for kept in kept() {
            let scenario = built_in::find(&kept.id).unwrap_or_else(|error| panic!("{error}"));
            let scenario = if kept.mode == "live" { scenario.for_live().unwrap() } else { scenario.for_simulation() };
            let mut wanted: Vec<Vec<(String, Option<Mark>, String)>> = Vec::new();
            for point in scenario.points().unwrap() {
                let scenario = &point.scenario;
                let checks = scenario.arms.iter().flat_map(|arm| {
                    arm.expectations(scenario).map(|expect| (arm.name.clone(), expect.mark, expect.bound()))
                });
                wanted.push(checks.collect());
            }
            let found = kept.points.iter().map(|point| {
                let check = |check: &KeptCheck| (check.arm.clone(), check.mark, check.bound.clone());
                point.checks.iter().map(check).collect::<Vec<_>>()
            });
            // Folders of a sweep are in the order of their names, `10` before `2`.
            let (mut found, mut wanted) = (found.collect::<Vec<_>>(), wanted);
            found.sort();
            wanted.sort();
            assert_eq!(found, wanted, "{}: run it again, and `tidegate experiment report --keep`", kept.file());
        }
    }

    fn check(arm: &str, mark: Mark, claim: &str, pass: bool) -> KeptCheck {
        KeptCheck {
            arm: arm.into(),
            mark: Some(mark),
            what: "held".into(),
            claim: claim.into(),
            because: if mark == Mark::Finding { "it is slower here".into() } else { String::new() },
            measure: "p90 of all, 0s..1s".into(),
            bound: "<= 1".into(),
            mean: Some(0.5),
            interval: Some([0.4, 0.6]),
            pass,
        }
    }

    #[test]
    fn a_row_says_of_a_claim_what_each_policy_did() {
        let checks = vec![
            check("paper", Mark::Finding, "figure 7", true),
            check("ours", Mark::Ours, "figure 7", true),
            check("paper", Mark::Paper, "figure 8", false),
            check("extra", Mark::Ours, "", true),
        ];
        let point = KeptPoint { title: "t".into(), checks };
        let kept = Kept { id: "W1".into(), mode: "simulated".into(), seeds: 10, points: vec![point] };
        let table = table(&[kept]);
        for part in [
            "| W1 | figure 7 | `paper`: held: **0.50 (0.40 to 0.60)**, wanted \\<= 1 | `ours`: held:",
            "misses; ours holds or is shown beside it. it is slower here |",
            "| W1 | figure 8 | ",
            "✖ 1 check not as wanted",
            "| W1 | *beyond the paper* |  | `extra`",
            "| V3 | no results kept yet |",
        ] {
            assert!(table.contains(part), "{part}\n{table}");
        }
    }
}
