//! The table of all settings, and the same as raw data.

use std::fmt::{self, Display, Formatter, Write as _};

use serde_json::{Value, json};

use super::{Row, Sample};
use crate::bench::figure::Figure;
use crate::bench::report::{Section, spread};

const HEAD: &str = "| setting | CPU us/request (range) | ratio to the first, same round | without what it takes at rest | \
    responses/s | p99 ms | core at rest | start ms | PSS MiB |\n|---|---|---|---|---|---|---|---|---|\n";

/// A row for each setting.
pub fn section(rows: &[Row]) -> Section {
    let mut text = String::from(HEAD);
    for row in rows {
        let of = |digits: usize, what: fn(&Sample) -> f64| spread(row.samples.iter().map(what), digits);
        let (all, net) = (row.ratios(&rows[0], Sample::cpu), row.ratios(&rows[0], Sample::net));
        let p99 = spread(row.samples.iter().filter_map(|sample| sample.counted.p99_us).map(|us| us / 1e3), 1);
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} | {p99} | {} % | {} | {} |",
            row.setting.title,
            of(2, Sample::cpu),
            spread(all.into_iter(), 2),
            spread(net.into_iter(), 2),
            of(0, |sample| sample.counted.per_second),
            of(1, |sample| sample.at_rest * 100.0),
            of(0, |sample| sample.start_ms),
            of(1, Sample::mib),
        );
    }
    Section { title: "Settings", text, data: rows.iter().map(Row::json).collect() }
}

/// Of each setting what the table has.
pub fn figures(rows: &[Row]) -> Vec<Figure> {
    let of = |(at, row): (usize, &Row)| {
        let name = |what: &str| format!("{}: {what}", row.setting.name);
        let absolute = |what: &str, unit: &str, value: fn(&Sample) -> f64| {
            Figure::absolute(name(what), unit, row.samples.iter().map(value))
        };
        let ratio = |what: &str, value: fn(&Sample) -> f64| {
            let by = name(&format!("{what} by that of {}", rows[0].setting.name));
            Figure::ratio(by, row.ratios(&rows[0], value).into_iter()).filter(|_| at > 0)
        };
        let figures = [
            absolute("CPU", "us/request", Sample::cpu),
            ratio("CPU", Sample::cpu),
            ratio("CPU without what it takes at rest", Sample::net),
            absolute("core at rest", "%", |sample| sample.at_rest * 100.0),
            absolute("start", "ms", |sample| sample.start_ms),
            absolute("PSS", "MiB", Sample::mib),
            ratio("PSS", Sample::mib),
        ];
        figures.into_iter().flatten().collect::<Vec<_>>()
    };
    rows.iter().enumerate().flat_map(of).collect()
}

impl Row {
    fn ratios(&self, base: &Row, value: fn(&Sample) -> f64) -> Vec<f64> {
        self.samples.iter().zip(&base.samples).map(|(ours, base)| value(ours) / value(base)).collect()
    }

    fn json(&self) -> Value {
        let samples: Vec<_> = self.samples.iter().map(Sample::json).collect();
        json!({ "setting": self.setting.name, "rounds": samples })
    }
}

impl Sample {
    /// Microseconds for a response.
    fn cpu(&self) -> f64 {
        self.cpu_us / self.counted.responses as f64
    }

    /// The same without what it would have taken anyway.
    fn net(&self) -> f64 {
        (self.cpu_us - self.at_rest * self.seconds * 1e6) / self.counted.responses as f64
    }

    fn mib(&self) -> f64 {
        self.pss as f64 / f64::from(1 << 20)
    }

    fn json(&self) -> Value {
        json!({
            "cpu_us": self.cpu_us, "responses": self.counted.responses, "p99_us": self.counted.p99_us,
            "responses_per_second": self.counted.per_second, "core_at_rest": self.at_rest,
            "start_ms": self.start_ms, "pss_bytes": self.pss, "seconds": self.seconds,
        })
    }
}

impl Display for Sample {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let (cpu, rest, start, mib) = (self.cpu(), self.at_rest * 100.0, self.start_ms, self.mib());
        write!(f, "{cpu:6.2} us/request, {rest:4.1} % of a core at rest, start {start:.0} ms, {mib:.1} MiB")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::load::Counted;
    use crate::bench::scale::setting::SETTINGS;

    fn row(at: usize, cpu_us: f64) -> Row {
        let counted =
            Counted { responses: 1000, refused: 0, per_second: 500.0, p99_us: Some(2500.0), socket_errors: 0 };
        let sample = Sample { start_ms: 20.0, pss: 3 << 20, at_rest: 0.01, cpu_us, seconds: 2.0, counted };
        Row { setting: &SETTINGS[at], samples: vec![sample; 3] }
    }

    #[test]
    fn ratios_are_to_the_first_with_and_without_what_is_taken_at_rest() {
        let rows = [row(0, 30_000.0), row(1, 60_000.0)];
        let section = section(&rows);
        let wanted = format!(
            "| {} | 60.00 (60.00–60.00) | 2.00 (2.00–2.00) | 4.00 (4.00–4.00) | 500 (500–500) | 2.5 (2.5–2.5) | 1.0 \
             (1.0–1.0) % | 20 (20–20) | 3.0 (3.0–3.0) |",
            SETTINGS[1].title
        );
        assert!(section.text.contains(&wanted), "{}", section.text);
        let names: Vec<_> = figures(&rows).into_iter().map(|figure| figure.name).collect();
        assert_eq!(names.len(), 4 + 7, "{names:?}");
        assert_eq!(names[5], "rules-100: CPU by that of plain");
    }
}
