//! What every benchmark gives in one form, so that two runs can be compared: a figure with its spread.

use anyhow::{Context, Result};
use serde_json::{Value, json};

/// What a figure may be compared with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Basis {
    /// To something in the same run: with that of any other machine.
    Ratio,
    /// Of instructions: with one of the same compiler.
    Count,
    /// Times, rates and sizes: with one of the same machine.
    Absolute,
}

/// One number that a benchmark found.
#[derive(Debug, Clone, PartialEq)]
pub struct Figure {
    /// The same in every run.
    pub name: String,
    /// Of the three numbers; empty for a ratio.
    pub unit: String,
    /// Over rounds, or as its benchmark found it.
    pub median: f64,
    /// The range, in which the median lies.
    pub least: f64,
    /// See `least`.
    pub most: f64,
    /// How many values these are of: one has no range, whatever it would be another time.
    pub values: u64,
    /// What it may be compared with.
    pub basis: Basis,
    /// Otherwise less is.
    pub more_is_better: bool,
}

const BASES: [(Basis, &str); 3] = [(Basis::Ratio, "ratio"), (Basis::Count, "count"), (Basis::Absolute, "absolute")];

impl Basis {
    /// As in raw data.
    pub fn name(self) -> &'static str {
        BASES.iter().find(|(basis, _)| *basis == self).map_or("", |(_, name)| name)
    }
}

impl Figure {
    /// Of the rounds' values; nothing when there are none, or one is no number.
    fn of(name: String, unit: &str, basis: Basis, values: impl Iterator<Item = f64>) -> Option<Self> {
        let values: Vec<f64> = values.collect();
        let median = super::report::median(values.iter().copied())?;
        let least = values.iter().copied().fold(f64::INFINITY, f64::min);
        let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let is_whole = values.iter().all(|value| value.is_finite());
        let (unit, count) = (unit.to_owned(), values.len() as u64);
        is_whole.then_some(Self { name, unit, median, least, most, values: count, basis, more_is_better: false })
    }

    /// A time, a rate or a size, of which less is better.
    pub fn absolute(name: impl Into<String>, unit: &str, values: impl Iterator<Item = f64>) -> Option<Self> {
        Self::of(name.into(), unit, Basis::Absolute, values)
    }

    /// To something in the same run; less is better.
    pub fn ratio(name: impl Into<String>, values: impl Iterator<Item = f64>) -> Option<Self> {
        Self::of(name.into(), "", Basis::Ratio, values)
    }

    /// Of instructions.
    pub fn count(name: impl Into<String>, unit: &str, values: impl Iterator<Item = f64>) -> Option<Self> {
        Self::of(name.into(), unit, Basis::Count, values)
    }

    /// The same, but of what more is better.
    pub fn more_is_better(self) -> Self {
        Self { more_is_better: true, ..self }
    }

    /// As raw data.
    pub fn json(&self) -> Value {
        json!({
            "name": self.name, "unit": self.unit, "median": self.median, "least": self.least, "most": self.most,
            "values": self.values, "basis": self.basis.name(), "more_is_better": self.more_is_better,
        })
    }

    /// From raw data.
    ///
    /// # Errors
    /// When something is missing.
    pub fn read(value: &Value) -> Result<Self> {
        let text = |key: &str| value[key].as_str().with_context(|| format!("a figure has no {key}: {value}"));
        let number = |key: &str| value[key].as_f64().with_context(|| format!("a figure has no {key}: {value}"));
        let basis = BASES.iter().find(|(_, name)| value["basis"] == *name).map(|(basis, _)| *basis);
        Ok(Self {
            name: text("name")?.to_owned(),
            unit: text("unit")?.to_owned(),
            median: number("median")?,
            least: number("least")?,
            most: number("most")?,
            values: value["values"].as_u64().unwrap_or(1),
            basis: basis.with_context(|| format!("a figure has no basis: {value}"))?,
            more_is_better: value["more_is_better"] == true,
        })
    }

    /// `median (least–most)`, with as many digits as make sense.
    pub fn shown(&self) -> String {
        let digits = match self.median.abs() {
            large if large >= 1000.0 => 0,
            middle if middle >= 10.0 => 1,
            _ => 3,
        };
        format!("{:.digits$} ({:.digits$}–{:.digits$})", self.median, self.least, self.most)
    }
}

/// The rows of the tables in a text of Markdown: the heading before, and the cells.
pub fn rows(text: &str) -> Vec<(&str, Vec<&str>)> {
    let (mut heading, mut found) = ("", Vec::new());
    for line in text.lines().map(str::trim) {
        if let Some(title) = line.strip_prefix("## ") {
            heading = title.trim();
        } else if let Some(cells) = line.strip_prefix('|') {
            found.push((heading, cells.trim_end_matches('|').split('|').map(str::trim).collect()));
        }
    }
    found
}

/// The rows `| what | median | least | most | ...` that a crate's benchmark prints, nanoseconds, and from further
/// cells `median (least to most)` the ratios that it took itself.
pub fn timed(text: &str) -> Vec<Figure> {
    let mut figures = Vec::new();
    for (heading, cells) in rows(text) {
        let [what, median, least, most, further @ ..] = &cells[..] else { continue };
        let name = if heading.is_empty() { (*what).to_owned() } else { format!("{heading}: {what}") };
        figures
            .extend(three([median, least, most]).and_then(|found| Figure::absolute(&*name, "ns", found.into_iter())));
        figures.extend(further.iter().find_map(|cell| {
            let (median, range) = cell.strip_suffix(')')?.split_once(" (")?;
            let (least, most) = range.split_once(" to ")?;
            Figure::ratio(format!("{name}, ratio"), three([median, least, most])?.into_iter())
        }));
    }
    figures
}

/// Median, least and most: as the values of three rounds, of which they are the same.
fn three(cells: [&str; 3]) -> Option<[f64; 3]> {
    let [Ok(median), Ok(least), Ok(most)] = cells.map(str::parse) else { return None };
    Some([median, least, most])
}

#[cfg(test)]
mod tests {
    use super::*;

    type Found = (&'static str, f64, f64, f64);

    #[test]
    fn what_a_benchmark_prints_becomes_figures() {
        let cases: &[(&str, &[Found])] = &[
            ("| what | median ns | fastest | slowest | bar |\n|---|---|---|---|---|", &[]),
            ("| batch: tick | 9.9 | 9.0 | 12.0 | 40 held |", &[("batch: tick", 9.9, 9.0, 12.0)]),
            ("| classify | 90.9 | 89.8 | 118.3 |  |", &[("classify", 90.9, 89.8, 118.3)]),
            ("| 1000 | 1.0 | 70 |", &[]),
            ("| it | 1 | 2 | nothing |", &[]),
            (
                "## With a clock\n\n| hop | 4.0 | 3.0 | 6.0 | 1.39 (1.38 to 1.41) | 1.5 held |",
                &[("With a clock: hop", 4.0, 3.0, 6.0), ("With a clock: hop, ratio", 1.39, 1.38, 1.41)],
            ),
            ("| three | 1.0 | 1.0 | 1.0 | 9.72 million/s | held |", &[("three", 1.0, 1.0, 1.0)]),
            ("running 0 tests\n\ntest result: ok.", &[]),
        ];
        for (text, wanted) in cases {
            let found = timed(text);
            let found: Vec<_> = found.iter().map(|it| (it.name.as_str(), it.median, it.least, it.most)).collect();
            assert_eq!(found, *wanted, "{text}");
        }
    }

    #[test]
    fn a_figure_is_read_as_it_was_written() {
        let figures = [
            Figure::absolute("a", "us", [3.0, 1.0, 2.0].into_iter()),
            Figure::ratio("b", [0.5].into_iter()).map(Figure::more_is_better),
            Figure::count("c", "instructions", [7.0].into_iter()),
        ];
        for figure in figures {
            let figure = figure.unwrap();
            assert_eq!(Figure::read(&figure.json()).unwrap(), figure);
        }
        assert!(Figure::read(&json!({ "name": "a" })).is_err());
        assert_eq!(Figure::ratio("d", [].into_iter()), None);
        assert_eq!(Figure::ratio("d", [1.0, f64::NAN].into_iter()), None);
    }
}
