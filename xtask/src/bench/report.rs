//! The results of the comparison as tables and as raw data.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::figure::Figure;
use super::load::Counted;
use super::machine;
use super::proc_fs::Memory;

/// Everything measured.
#[derive(Debug, Default)]
pub struct Report {
    /// The end of its files' names.
    pub name: &'static str,
    /// Its heading.
    pub title: &'static str,
    /// The machine and the versions, as names and values.
    pub facts: Vec<(String, String)>,
    /// Rounds and their length, in words.
    pub method: String,
    /// CPU per request, case by case.
    pub cases: Vec<CaseReport>,
    /// Memory with clients that do nothing.
    pub memory: Vec<MemoryReport>,
    /// What it has beside its cases to compare with another run.
    pub figures: Vec<Figure>,
    /// Anything else.
    pub sections: Vec<Section>,
}

/// A part of a report that is no table of cases.
#[derive(Debug)]
pub struct Section {
    /// Its heading.
    pub title: &'static str,
    /// What it says.
    pub text: String,
    /// The same as raw data.
    pub data: Value,
}

/// One case.
#[derive(Debug)]
pub struct CaseReport {
    /// Its name in `--cases`.
    pub name: String,
    /// Its name for people.
    pub title: String,
    /// One row for each contender.
    pub rows: Vec<Row>,
}

/// One contender in one case; the samples of all rows stand in the order of rounds.
#[derive(Debug)]
pub struct Row {
    /// The contender.
    pub name: String,
    /// One for each round.
    pub samples: Vec<Sample>,
}

/// One contender in one round of a case.
#[derive(Debug, Clone, Copy)]
pub struct Sample {
    /// CPU time of the proxy, all its processes, in the round, in microseconds.
    pub cpu_us: f64,
    /// What wrk counted.
    pub counted: Counted,
}

/// A case of memory, and what every contender took in it.
#[derive(Debug)]
pub struct MemoryReport {
    /// Short name, as on the command line.
    pub name: String,
    /// What it is, in words.
    pub title: String,
    /// What is counted, and how many of it there are.
    pub unit: (&'static str, usize),
    /// The contenders.
    pub rows: Vec<MemoryRow>,
}

/// One contender with clients that do nothing.
#[derive(Debug)]
pub struct MemoryRow {
    /// The contender.
    pub name: String,
    /// One for each round: without clients, and with them.
    pub samples: Vec<(Memory, Memory)>,
}

impl Report {
    /// Prints the tables; writes them with the raw data into `folder`, when one is given. Gives what can be compared
    /// with another run.
    ///
    /// # Errors
    /// When the folder or a file cannot be written.
    pub fn publish(&self, folder: Option<&Path>) -> Result<Vec<Figure>> {
        println!("{}", self.markdown());
        match folder {
            Some(folder) => println!("written to {}", self.write(&machine::today(), folder)?.display()),
            None => println!("not written anywhere; --record keeps a result"),
        }
        Ok(self.figures())
    }

    /// Writes `<date>-<name>.md` and `<date>-<name>.json`; a second one of a day gets a number.
    ///
    /// # Errors
    /// When the directory or a file cannot be written.
    pub fn write(&self, date: &str, dir: &Path) -> Result<PathBuf> {
        write_pair(&format!("{date}-{}", self.name), dir, &self.markdown(), &self.json())
    }

    /// The tables.
    pub fn markdown(&self) -> String {
        let mut text = format!("# {}\n\n{}\n", self.title, self.method);
        text.push_str("\n| what | value |\n|---|---|\n");
        for (name, value) in &self.facts {
            let _ = writeln!(text, "| {name} | {} |", value.trim());
        }
        for case in &self.cases {
            case.write(&mut text);
        }
        for case in &self.memory {
            case.write(&mut text);
        }
        for section in &self.sections {
            let _ = writeln!(text, "\n## {}\n\n{}", section.title, section.text.trim_end());
        }
        text
    }

    fn figures(&self) -> Vec<Figure> {
        let cases = self.cases.iter().flat_map(CaseReport::figures);
        cases.chain(self.memory.iter().flat_map(MemoryReport::figures)).chain(self.figures.iter().cloned()).collect()
    }

    fn json(&self) -> Value {
        let figures: Vec<_> = self.figures().iter().map(Figure::json).collect();
        let facts: serde_json::Map<_, _> =
            self.facts.iter().map(|(name, value)| (name.clone(), json!(value))).collect();
        let cases: Vec<_> = self.cases.iter().map(CaseReport::json).collect();
        let memory: Vec<_> = self.memory.iter().map(MemoryReport::json).collect();
        let sections: serde_json::Map<_, _> =
            self.sections.iter().map(|section| (section.title.to_owned(), section.data.clone())).collect();
        json!({
            "facts": facts, "method": self.method, "cases": cases, "memory": memory, "sections": sections,
            "figures": figures,
        })
    }
}

/// Writes `<name>.md` and `<name>.json`, or with a number behind the name when there is one already, and says where.
///
/// # Errors
/// When the directory or a file cannot be written.
pub fn write_pair(name: &str, dir: &Path, markdown: &str, data: &Value) -> Result<PathBuf> {
    fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
    let names = std::iter::once(name.to_owned()).chain((2..).map(|number| format!("{name}-{number}")));
    let mut free = names.filter(|name| !dir.join(format!("{name}.md")).exists());
    let name = free.next().unwrap_or_default();
    fs::write(dir.join(format!("{name}.json")), serde_json::to_string_pretty(data)? + "\n")?;
    let path = dir.join(format!("{name}.md"));
    fs::write(&path, markdown).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path)
}

impl CaseReport {
    fn write(&self, text: &mut String) {
        let _ = writeln!(text, "\n## {}\n", self.title);
        text.push_str(
            "| contender | proxy CPU us/request (range) | ratio to the first, same round | responses/s | core busy | p99 us |\n",
        );
        text.push_str("|---|---|---|---|---|---|\n");
        let Some(base) = self.rows.first() else { return };
        for row in &self.rows {
            let rate = median(row.samples.iter().map(|sample| sample.counted.per_second));
            let slow = median(row.samples.iter().filter_map(|sample| sample.counted.p99_us));
            let cpu = spread(row.samples.iter().map(Sample::cpu_per_request), 2);
            let ratio = spread(row.ratios(base), 2);
            let slow = slow.map_or("-".to_owned(), |slow| format!("{slow:.0}"));
            let (rate, busy) = (rate.unwrap_or(0.0), median(row.samples.iter().map(Sample::busy)).unwrap_or(0.0));
            let _ = writeln!(text, "| {} | {cpu} | {ratio} | {rate:.0} | {:.0} % | {slow} |", row.name, busy * 100.0);
        }
    }

    fn figures(&self) -> Vec<Figure> {
        let Some(base) = self.rows.first() else { return Vec::new() };
        let of = |(at, row): (usize, &Row)| {
            let name = |what: &str| format!("{}, {}: {what}", self.name, row.name);
            let cpu = Figure::absolute(name("CPU"), "us/request", row.samples.iter().map(Sample::cpu_per_request));
            let rates = row.samples.iter().map(|sample| sample.counted.per_second);
            let rate = Figure::absolute(name("rate"), "responses/s", rates).map(Figure::more_is_better);
            let ratio = Figure::ratio(name(&format!("CPU by that of {}", base.name)), row.ratios(base));
            [cpu, rate, ratio.filter(|_| at > 0)].into_iter().flatten()
        };
        self.rows.iter().enumerate().flat_map(of).collect()
    }

    fn json(&self) -> Value {
        let rows = self.rows.iter().map(|row| {
            let samples: Vec<_> = row.samples.iter().map(Sample::json).collect();
            json!({ "contender": row.name, "rounds": samples })
        });
        json!({ "case": self.name, "title": self.title, "rows": rows.collect::<Vec<_>>() })
    }
}

impl Row {
    fn ratios<'a>(&'a self, base: &'a Row) -> impl Iterator<Item = f64> + 'a {
        let rounds = self.samples.iter().zip(&base.samples);
        rounds.map(|(sample, base)| sample.cpu_per_request() / base.cpu_per_request())
    }
}

impl Sample {
    /// Microseconds.
    pub fn cpu_per_request(&self) -> f64 {
        self.cpu_us / self.counted.responses as f64
    }

    /// Share of the round in which the proxy had its core.
    fn busy(&self) -> f64 {
        self.cpu_per_request() * self.counted.per_second / 1e6
    }

    fn json(&self) -> Value {
        json!({
            "proxy_cpu_us": self.cpu_us,
            "responses": self.counted.responses,
            "refused": self.counted.refused,
            "responses_per_second": self.counted.per_second,
            "p99_us": self.counted.p99_us,
            "socket_errors": self.counted.socket_errors,
        })
    }
}

impl MemoryReport {
    fn figures(&self) -> Vec<Figure> {
        let Some(base) = self.rows.first() else { return Vec::new() };
        let of = |(at, row): (usize, &MemoryRow)| {
            let name = |what: &str| format!("{}, {}: {what}", self.name, row.name);
            let pss = |row: &MemoryRow| row.samples.iter().map(|(_, with)| with.pss as f64).collect::<Vec<_>>();
            let (ours, theirs) = (pss(row), pss(base));
            let ratios = ours.iter().zip(&theirs).map(|(ours, theirs)| ours / theirs);
            let ratio = Figure::ratio(name(&format!("PSS by that of {}", base.name)), ratios);
            let mib = ours.iter().map(|bytes| bytes / f64::from(1 << 20));
            [Figure::absolute(name("PSS"), "MiB", mib), ratio.filter(|_| at > 0)].into_iter().flatten()
        };
        self.rows.iter().enumerate().flat_map(of).collect()
    }

    fn json(&self) -> Value {
        let bytes = |memory: &Memory| json!({ "rss_bytes": memory.rss, "pss_bytes": memory.pss });
        let round = |(without, with): &(Memory, Memory)| json!({ "without": bytes(without), "with": bytes(with) });
        let row = |row: &MemoryRow| json!({ "contender": row.name, "rounds": row.samples.iter().map(round).collect::<Vec<_>>() });
        let rows: Vec<_> = self.rows.iter().map(row).collect();
        json!({ "name": self.name, "title": self.title, "of": self.unit.0, "count": self.unit.1, "rows": rows })
    }

    fn write(&self, text: &mut String) {
        let rows = &self.rows;
        let (unit, count) = self.unit;
        let _ = writeln!(text, "\n## {}\n", self.title);
        text.push_str(MEMORY_METHOD);
        text.push_str("| contender | PSS MiB (range) | ratio to the first (range) | RSS MiB | ratio to the first ");
        let _ = writeln!(text, "| PSS without clients MiB | bytes per {unit} |");
        text.push_str("|---|---|---|---|---|---|---|\n");
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        let Some(base) = rows.first() else { return };
        for row in rows {
            let with = spread(row.samples.iter().map(|(_, with)| mib(with.pss)), 1);
            let rss = median(row.samples.iter().map(|(_, with)| mib(with.rss))).unwrap_or(0.0);
            let pairs = || row.samples.iter().zip(&base.samples).map(|((_, with), (_, base))| (with, base));
            let ratio = spread(pairs().map(|(with, base)| with.pss as f64 / base.pss as f64), 2);
            let rss_ratio = median(pairs().map(|(with, base)| with.rss as f64 / base.rss as f64)).unwrap_or(0.0);
            let without = median(row.samples.iter().map(|(without, _)| mib(without.pss))).unwrap_or(0.0);
            let each = row.samples.iter().map(|(without, with)| with.pss.saturating_sub(without.pss) as f64);
            let each = median(each).unwrap_or(0.0) / count.max(1) as f64;
            let _ = writeln!(
                text,
                "| {} | {with} | {ratio} | {rss:.1} | {rss_ratio:.2} | {without:.1} | {each:.0} |",
                row.name
            );
        }
    }
}

const MEMORY_METHOD: &str = "\
PSS and RSS of the whole process (`/proc/PID/smaps_rollup`; with a master, the sum), at once after the last client did \
what the title says. PSS counts a page that processes share once, RSS in each. The ratios are of these totals; \
what the process takes without clients is not subtracted, but in the last column. Memory of the kernel, the same for \
all, is not counted.

";

/// `median (least–most)`.
pub fn spread(values: impl Iterator<Item = f64>, digits: usize) -> String {
    let values: Vec<f64> = values.collect();
    let Some(middle) = median(values.iter().copied()) else { return "-".to_owned() };
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    format!("{middle:.digits$} ({least:.digits$}–{most:.digits$})")
}

/// The value in the middle, or between the two there; `None` of none.
pub fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => None,
        count if count % 2 == 1 => Some(values[middle]),
        _ => Some(f64::midpoint(values[middle - 1], values[middle])),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str, cpu: &[f64]) -> Row {
        let counted = Counted { responses: 100, refused: 0, per_second: 5000.0, p99_us: None, socket_errors: 0 };
        Row { name: name.into(), samples: cpu.iter().map(|&us| Sample { cpu_us: us * 100.0, counted }).collect() }
    }

    #[test]
    fn ratios_are_taken_within_a_round() {
        let rows = vec![row("nginx", &[10.0, 20.0, 30.0]), row("ours", &[9.0, 10.0, 33.0])];
        let report =
            Report { cases: vec![CaseReport { name: "a".into(), title: "A case".into(), rows }], ..Report::default() };
        let text = report.markdown();
        assert!(text.contains("| nginx | 20.00 (10.00–30.00) | 1.00 (1.00–1.00) | 5000 | 10 % | - |"), "{text}");
        assert!(text.contains("| ours | 10.00 (9.00–33.00) | 0.90 (0.50–1.10) | 5000 | 5 % | - |"), "{text}");
        let names: Vec<_> = report.figures().into_iter().map(|figure| (figure.name, figure.median)).collect();
        assert!(names.contains(&("a, ours: CPU by that of nginx".to_owned(), 0.9)), "{names:?}");
        assert_eq!(report.json()["figures"].as_array().unwrap().len(), 5);
        assert_eq!(report.json()["cases"][0]["rows"][1]["rounds"][2]["proxy_cpu_us"], 3300.0);
    }

    #[test]
    fn medians() {
        assert_eq!(median([].into_iter()), None);
        assert_eq!(median([3.0, 1.0, 2.0].into_iter()), Some(2.0));
        assert_eq!(median([4.0, 1.0, 2.0, 3.0].into_iter()), Some(2.5));
    }

    #[test]
    fn a_second_report_of_a_day_does_not_replace_the_first() {
        let dir = std::env::temp_dir().join(format!("tidegate-xtask-report-{}", std::process::id()));
        let first = Report::default().write("2000-01-01", &dir).unwrap();
        let second = Report::default().write("2000-01-01", &dir).unwrap();
        assert_ne!(first, second);
        assert!(first.with_extension("json").exists() && second.with_extension("json").exists());
        fs::remove_dir_all(&dir).unwrap();
    }
}
