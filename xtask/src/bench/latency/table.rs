//! The tables of the comparison, and the same as raw data.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::{DIRECT, Measured, QUANTILES, Round, Row, Saturation, Step};
use crate::bench::figure::Figure;
use crate::bench::report::{Section, spread};

const NOT_REACHED: &str = "not reached";
const TWO_CORES: &str = "
With two workers a proxy is on both cores, the second beside load and origin. On a machine of two cores this measures
little: what the second worker gets is what the others leave, and it takes from them what they need.
";

impl Measured {
    /// One table for saturation, and one for each rate.
    pub fn sections(&self) -> Vec<Section> {
        let mut sections = vec![self.saturation()];
        if !self.steps.is_empty() {
            sections.push(Section {
                title: "At given rates",
                text: self.steps.iter().map(Step::text).collect::<String>().trim_start().to_owned(),
                data: self.steps.iter().map(Step::json).collect(),
            });
        }
        sections
    }

    /// For each contender its saturation, and for each rate what it adds, and its response times by the origin's own.
    pub fn figures(&self) -> Vec<Figure> {
        let mut figures = Vec::new();
        for (workers, rows) in &self.saturation {
            for (at, row) in rows.iter().enumerate() {
                let name = |what: &str| format!("workers {workers}, {}: saturation{what}", row.name);
                let rate = Figure::absolute(name(""), "responses/s", row.rounds.iter().copied());
                let by = name(&format!(" by that of {}", rows[0].name));
                let ratio = Figure::ratio(by, row.ratios(&rows[0])).filter(|_| at > 0);
                figures.extend([rate, ratio].into_iter().flatten().map(Figure::more_is_better));
            }
        }
        figures.extend(self.steps.iter().flat_map(Step::figures));
        figures
    }

    fn saturation(&self) -> Section {
        let mut text = String::from("| contender |");
        for (workers, _) in &self.saturation {
            let plural = if *workers == 1 { "" } else { "s" };
            let _ = write!(text, " {workers} worker{plural}, responses/s (range) | ratio to the first, same round |");
        }
        let _ = writeln!(text, "\n|---|{}", "---|---|".repeat(self.saturation.len()));
        let Some((_, first)) = self.saturation.first() else { return Section { title: "", text, data: Value::Null } };
        for (at, row) in first.iter().enumerate() {
            let _ = write!(text, "| {} |", row.name);
            for (_, rows) in &self.saturation {
                let rates = spread(rows[at].rounds.iter().copied(), 0);
                let _ = write!(text, " {rates} | {} |", spread(rows[at].ratios(&rows[0]), 2));
            }
            text.push('\n');
        }
        if self.saturation.len() > 1 {
            text.push_str(TWO_CORES);
        }
        let data = |(workers, rows): &(usize, Vec<Saturation>)| {
            let row = |row: &Saturation| json!({ "contender": row.name, "responses_per_second": row.rounds });
            json!({ "workers": workers, "rows": rows.iter().map(row).collect::<Vec<_>>() })
        };
        Section { title: "Saturation", text, data: self.saturation.iter().map(data).collect() }
    }
}

impl Saturation {
    pub fn ratios<'a>(&'a self, base: &'a Saturation) -> impl Iterator<Item = f64> + 'a {
        self.rounds.iter().zip(&base.rounds).map(|(rate, base)| rate / base)
    }
}

impl Step {
    fn text(&self) -> String {
        let mut text = format!("\n### {:.0} %: {:.0} requests/s\n\n", self.share * 100.0, self.rate);
        text.push_str("| contender | responses/s |");
        let titles = |text: &mut String, what: &str| {
            QUANTILES.iter().for_each(|(name, _)| {
                let _ = write!(text, " {what}{name} us |");
            });
        };
        titles(&mut text, "");
        titles(&mut text, "added ");
        let _ = writeln!(text, " load late us, p99 |\n|---|{}", "---|".repeat(2 + 2 * QUANTILES.len()));
        let direct = self.rows.iter().find(|row| row.name == DIRECT);
        for row in &self.rows {
            let rate = spread(row.rounds.iter().map(|round| round.reached), 0);
            let _ = write!(text, "| {} | {rate} |", row.name);
            for at in 0..QUANTILES.len() {
                let _ = write!(text, " {} |", row.cell(|row| spread(row.response_us(at), 0)));
            }
            for at in 0..QUANTILES.len() {
                let added = row.added_us(direct, at).map(|added| spread(added.into_iter(), 0));
                let _ = write!(text, " {} |", added.unwrap_or_else(|| "-".to_owned()));
            }
            let _ = writeln!(text, " {} |", spread(row.late_us(), 0));
        }
        text
    }

    fn figures(&self) -> Vec<Figure> {
        let Some(direct) = self.rows.iter().find(|row| row.name == DIRECT) else { return Vec::new() };
        let mut figures = Vec::new();
        for row in &self.rows {
            for (at, (quantile, _)) in QUANTILES.iter().enumerate() {
                let Some(added) = row.added_us(Some(direct), at) else { continue };
                let name = |what: &str| format!("{:.0} %, {}: {what}{quantile}", self.share * 100.0, row.name);
                figures.extend(Figure::absolute(name("added "), "us", added.into_iter()));
                let ratios = row.response_us(at).zip(direct.response_us(at)).map(|(ours, direct)| ours / direct);
                figures.extend(Figure::ratio(name("by the origin's own, "), ratios));
            }
        }
        figures
    }

    fn json(&self) -> Value {
        let rows = self.rows.iter().map(|row| {
            let rounds: Vec<_> = row.rounds.iter().map(Round::json).collect();
            json!({ "contender": row.name, "reached": row.is_reached(), "rounds": rounds })
        });
        json!({ "share": self.share, "requests_per_second": self.rate, "rows": rows.collect::<Vec<_>>() })
    }
}

impl Row {
    /// Whether it answered what it was asked for, every time.
    pub fn is_reached(&self) -> bool {
        self.rounds.iter().all(Round::is_reached)
    }

    fn cell(&self, say: impl Fn(&Row) -> String) -> String {
        if self.is_reached() { say(self) } else { NOT_REACHED.to_owned() }
    }

    fn response_us(&self, at: usize) -> impl Iterator<Item = f64> {
        self.rounds.iter().map(move |round| round.quantiles_us[at])
    }

    /// Nothing when requests always waited for a connection.
    fn late_us(&self) -> impl Iterator<Item = f64> {
        self.rounds.iter().map(|round| round.late_us).filter(|us| us.is_finite())
    }

    /// What a percentile has beyond the origin's own, round by round; nothing when either did not reach the rate.
    pub fn added_us(&self, direct: Option<&Row>, at: usize) -> Option<Vec<f64>> {
        let direct = direct.filter(|direct| self.name != DIRECT && self.is_reached() && direct.is_reached())?;
        Some(self.response_us(at).zip(direct.response_us(at)).map(|(ours, direct)| ours - direct).collect())
    }
}

impl Round {
    fn json(&self) -> Value {
        let quantiles: serde_json::Map<_, _> =
            QUANTILES.iter().zip(self.quantiles_us).map(|((name, _), us)| ((*name).to_owned(), json!(us))).collect();
        json!({
            "asked_per_second": self.asked, "reached_per_second": self.reached, "refused": self.refused,
            "unanswered": self.unanswered, "load_late_p99_us": self.late_us, "response_us": quantiles,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &'static str, reached: f64, us: &[f64]) -> Row {
        let round = |us: &f64| Round {
            asked: 100.0,
            reached,
            refused: 0,
            unanswered: 0,
            late_us: 2.0,
            quantiles_us: [*us, us + 1.0, us + 2.0, us + 3.0],
        };
        Row { name, rounds: us.iter().map(round).collect() }
    }

    #[test]
    fn what_is_added_is_taken_within_a_round_and_left_out_when_the_rate_was_not_reached() {
        let rows =
            vec![row(DIRECT, 100.0, &[50.0, 90.0, 70.0]), row("a", 99.0, &[60.0, 95.0, 100.0]), row("b", 80.0, &[1e6])];
        let step = Step { share: 0.5, rate: 100.0, rows };
        let names: Vec<_> = step.figures().into_iter().map(|figure| figure.name).collect();
        assert_eq!(names[..2], ["50 %, a: added p50", "50 %, a: by the origin's own, p50"].map(str::to_owned));
        assert_eq!(names.len(), 2 * QUANTILES.len(), "{names:?}");
        let text = step.text();
        assert!(text.contains("### 50 %: 100 requests/s"), "{text}");
        assert!(
            text.contains("| direct | 100 (100–100) | 70 (50–90) |") && text.contains("| - | - | - | - |"),
            "{text}"
        );
        assert!(text.contains("| a | 99 (99–99) | 95 (60–100) |") && text.contains("| 10 (5–30) |"), "{text}");
        assert!(text.contains("| b | 80 (80–80) | not reached |") && !text.contains("1000000"), "{text}");
    }

    #[test]
    fn saturation_has_a_ratio_to_the_first_for_each_number_of_workers() {
        let rows = |of: &[(&'static str, f64)]| {
            of.iter().map(|(name, rate)| Saturation { name, rounds: vec![*rate; 2] }).collect::<Vec<_>>()
        };
        let saturation = vec![(1, rows(&[("a", 100.0), ("b", 50.0)])), (2, rows(&[("a", 80.0), ("b", 120.0)]))];
        let section = Measured { saturation, steps: Vec::new() }.saturation();
        let wanted = "| b | 50 (50–50) | 0.50 (0.50–0.50) | 120 (120–120) | 1.50 (1.50–1.50) |";
        assert!(section.text.contains(wanted) && section.text.contains("measures\nlittle"), "{}", section.text);
    }
}
