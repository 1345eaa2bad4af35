//! All reports on one page: HTML that needs no other file and no network.

use std::fmt::Write;

use crate::scenario::Mark;

use super::saved::{Arm, Check, Experiment, Run, SavedReport, Total};

/// The page. Equal reports give equal bytes.
pub fn page(reports: &[SavedReport]) -> String {
    let failed = reports.iter().filter(|report| !report.experiment.pass).count();
    let verdict = match (reports.len(), failed) {
        (0, _) => "<p>There is no report here.</p>".to_owned(),
        (all, 0) => format!("<p class=\"pass\">All {all} pass every check.</p>"),
        (all, failed) => format!("<p class=\"fail\">{failed} of {all} miss a check.</p>"),
    };
    let sections: String = reports.iter().map(section).collect();
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>tidegate: experiments</title>\n\
         <style>\n{}</style>\n<h1>tidegate: experiments</h1>\n{verdict}\n{}{sections}</html>\n",
        include_str!("page.css"),
        contents(reports)
    )
}

/// One line an experiment.
fn contents(reports: &[SavedReport]) -> String {
    let line = |report: &SavedReport| {
        let experiment = &report.experiment;
        format!(
            "<tr><td><a href=\"#{}\">{}</a></td><td class=\"words\">{}</td><td>{}</td><td>{}</td><td>{}</td></tr>\n",
            escape(&anchor(report)),
            escape(&experiment.id),
            escape(&experiment.title),
            form(experiment),
            experiment.arms.len(),
            word(experiment.pass)
        )
    };
    table(&["", "what", "how", "arms", "checks"], &reports.iter().map(line).collect::<String>())
}

fn section(report: &SavedReport) -> String {
    let experiment = &report.experiment;
    let mut html = format!(
        "<h2 id=\"{}\">{}: {}</h2>\n<p class=\"soft\">{}{}, {} s of load. {}</p>\n",
        escape(&anchor(report)),
        escape(&experiment.id),
        escape(&experiment.title),
        if experiment.source.is_empty() { String::new() } else { format!("After {}; ", escape(&experiment.source)) },
        form(experiment),
        experiment.duration_s,
        word(experiment.pass)
    );
    html += &comparison(experiment);
    for arm in &experiment.arms {
        let _ = write!(html, "<h3>{} {}</h3>\n{}", escape(&arm.name), word(arm.pass), checks(arm));
        html += &warnings(arm);
        if let Some((_, svg)) = report.figures.iter().find(|(name, _)| *name == arm.name) {
            let _ = writeln!(html, "<figure>{}</figure>", svg.trim());
        }
    }
    html
}

/// The arms side by side: a row for each arm and class, means over the runs.
fn comparison(experiment: &Experiment) -> String {
    let mut rows = String::new();
    for arm in &experiment.arms {
        let Some(first) = arm.runs.first() else { continue };
        for (at, group) in first.totals.iter().enumerate() {
            let all: Vec<&Total> = arm.runs.iter().filter_map(|run| run.totals.get(at)).collect();
            let mean = |value: &dyn Fn(&Total) -> f64| all.iter().map(|t| value(t)).sum::<f64>() / all.len() as f64;
            let rate = |value: &dyn Fn(&Total) -> f64| format!("{:.1}", mean(value) / experiment.duration_s);
            let time = |value: &dyn Fn(&Total) -> Option<f64>| match mean(&|t| value(t).unwrap_or(f64::NAN)) {
                seconds if seconds.is_nan() => "-".to_owned(),
                seconds => format!("{:.0} ms", seconds * 1e3),
            };
            let _ = writeln!(
                rows,
                "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{:.1} %</td>\
                 <td>{}</td><td>{}</td></tr>",
                if at == 0 { escape(&arm.name) } else { String::new() },
                escape(&group.name),
                rate(&|t| t.offered),
                rate(&|t| t.admitted),
                rate(&|t| t.refused),
                rate(&|t| t.failed),
                rate(&|t| t.good),
                100.0 * mean(&|t| t.admitted) / mean(&|t| t.offered).max(1.0),
                time(&|t| t.p50),
                time(&|t| t.p95)
            );
        }
    }
    let header =
        ["arm", "class", "offered/s", "admitted/s", "refused/s", "failed/s", "good/s", "admitted", "p50", "p95"];
    table(&header, &rows)
}

/// Each check of an arm: of several runs, the range that was measured and how many passed.
fn checks(arm: &Arm) -> String {
    let Some(first) = arm.runs.first().filter(|run| !run.checks.is_empty()) else {
        return "<p class=\"soft\">Nothing is expected of this arm; it is there to compare with.</p>\n".to_owned();
    };
    let row = |at: usize| {
        let all: Vec<&Check> = arm.runs.iter().filter_map(|run| run.checks.get(at)).collect();
        let passed = all.iter().filter(|check| check.pass).count();
        let check = all[0];
        format!(
            "<tr><td>{}{}</td><td>{}</td><td class=\"words\">{}{}</td><td>{} of {}</td><td>{}</td><td>{}</td><td>{}</td></tr>\n",
            word(passed == all.len()),
            if all.len() > 1 { format!(" {passed}/{}", all.len()) } else { String::new() },
            check.mark.map_or("", Mark::words),
            escape(&check.what),
            grounds(check),
            escape(&check.metric),
            escape(&check.subject),
            escape(&check.over),
            escape(&check.bound),
            measured(&all)
        )
    };
    let rows: String = (0..first.checks.len()).map(row).collect();
    table(&["", "evidence", "what it must show", "measure", "over", "wanted", "measured"], &rows)
}

/// The paper's words, and why the bounds are others, below what a check shows.
fn grounds(check: &Check) -> String {
    let line = |text: &String| format!("<br><span class=\"soft\">{}</span>", escape(text));
    [&check.claim, &check.because].into_iter().filter(|text| !text.is_empty()).map(line).collect()
}

fn measured(checks: &[&Check]) -> String {
    let values: Vec<f64> = checks.iter().filter_map(|check| check.measured).collect();
    if values.len() < checks.len() {
        return "nothing".to_owned();
    }
    let least = values.iter().copied().fold(f64::MAX, f64::min);
    let most = values.iter().copied().fold(f64::MIN, f64::max);
    let digits = |value: f64| if value >= 100.0 { format!("{value:.1}") } else { format!("{value:.4}") };
    if let Some([low, high]) = checks.first().and_then(|check| check.interval) {
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        return format!("{} ({} to {})", digits(mean), digits(low), digits(high));
    }
    if values.len() == 1 { digits(least) } else { format!("{} to {}", digits(least), digits(most)) }
}

fn warnings(arm: &Arm) -> String {
    let line = |run: &Run| {
        let seed = run.seed;
        let one = move |text: &String| format!("<p class=\"fail\">Warning (seed {seed}): {}</p>\n", escape(text));
        run.warnings.iter().map(one).collect::<String>()
    };
    arm.runs.iter().map(line).collect()
}

fn table(header: &[&str], rows: &str) -> String {
    let header: String = header.iter().map(|name| format!("<th>{name}</th>")).collect();
    format!("<div class=\"scroll\"><table><thead><tr>{header}</tr></thead>\n<tbody>\n{rows}</tbody></table></div>\n")
}

fn word(pass: bool) -> &'static str {
    if pass { "<span class=\"pass\">pass</span>" } else { "<span class=\"fail\">FAIL</span>" }
}

/// How it was run, and with how many seeds.
fn form(experiment: &Experiment) -> String {
    let seeds = experiment.arms.iter().map(|arm| arm.runs.len()).max().unwrap_or(0);
    let seeds = if seeds == 1 { String::new() } else { format!(", {seeds} seeds") };
    format!("{}{}{seeds}", escape(&experiment.mode), if experiment.short { ", short form" } else { "" })
}

/// The folder's name: an experiment may have been run in several ways.
fn anchor(report: &SavedReport) -> String {
    report.folder.file_name().map_or_else(|| report.experiment.id.clone(), |name| name.to_string_lossy().into_owned())
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(pass: bool) -> SavedReport {
        let experiment = serde_json::json!({
            "id": "T<1>", "title": "a & b", "source": "", "mode": "simulated", "short": false, "duration_s": 10.0, "pass": pass,
            "arms": [{ "name": "sentry", "pass": pass, "runs": [{
                "seed": 7, "warnings": ["the generator was late"],
                "checks": [{ "what": "x", "subject": "gold", "metric": "p95", "over": "0s..1s", "bound": "<= 1",
                             "measured": 0.25, "pass": pass }],
                "totals": [{ "name": "gold", "offered": 100, "admitted": 50, "refused": 50, "failed": 0, "good": 50,
                             "p50": null, "p95": 0.5 }],
            }] }],
        });
        SavedReport {
            folder: "out/T1-live".into(),
            experiment: serde_json::from_value(experiment).expect("it is written as a report is"),
            figures: vec![("sentry".to_owned(), "<svg></svg>".to_owned())],
        }
    }

    #[test]
    fn it_says_what_failed_and_quotes_what_is_not_ours() {
        let html = page(&[report(true), report(false)]);
        for part in ["1 of 2 miss a check", "T&lt;1&gt;", "a &amp; b", "id=\"T1-live\"", "<figure><svg></svg>"] {
            assert!(html.contains(part), "{part}");
        }
        assert!(html.contains("<td>10.0</td><td>5.0</td><td>5.0</td>"), "rates per second");
        assert!(
            html.contains("Warning (seed 7): the generator was late") && html.contains("<td>-</td><td>500 ms</td>")
        );
        assert!(!html.contains("T<1>"));
    }

    #[test]
    fn nothing_is_fetched() {
        let html = page(&[report(true)]);
        assert!(html.contains("All 1 pass every check"));
        assert!(!html.contains("http://") && !html.contains("https://") && !html.contains("<script"));
    }
}
