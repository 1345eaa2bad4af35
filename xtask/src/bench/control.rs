//! `cargo xtask bench control`: a control plane with 1,000 sentries and 10,000 servers: CPU, memory, time to react.
//!
//! The example `many` of `tidegate-control` starts the daemon as a process of its own, is all the sentries, and prints
//! what it measured; this makes the report of it.

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::figure::Figure;
use super::report::{Report, Section};
use super::{machine, record_folder};
use crate::args::Args;
use crate::command::{cargo, output};

/// The bars: cores, and megabytes.
const CORES: f64 = 1.0;
const MEGABYTES: f64 = 1024.0;
/// A server is asked for within one reporting period.
const PERIOD_MS: f64 = 1000.0;

/// Runs it.
///
/// # Errors
/// When it does not build, or sentries are missing.
pub fn run(mut args: Args) -> Result<Vec<Figure>> {
    let short = args.switch("--short");
    let sentries: usize = args.option("--sentries")?.unwrap_or(if short { 100 } else { 1000 });
    let servers: usize = args.option("--servers")?.unwrap_or(10 * sentries);
    let applications: usize = args.option("--applications")?.unwrap_or(sentries.div_ceil(10));
    let windows: usize = args.option("--rounds")?.unwrap_or(if short { 2 } else { 6 });
    let seconds: u64 = args.option("--seconds")?.unwrap_or(if short { 3 } else { 10 });
    let folder = record_folder(&mut args)?;
    args.finish()?;
    if windows == 0 || seconds == 0 {
        bail!("--rounds and --seconds must be at least 1");
    }
    let mut command = cargo(["run", "--quiet", "--release", "--locked", "-p", "tidegate-control", "--example", "many"]);
    command.arg("--");
    let numbers = [
        ("--sentries", sentries.to_string()),
        ("--servers", servers.to_string()),
        ("--applications", applications.to_string()),
        ("--windows", windows.to_string()),
        ("--seconds", seconds.to_string()),
    ];
    for (key, value) in &numbers {
        command.arg(key).arg(value);
    }
    let result: Value = serde_json::from_str(&output(&mut command)?).context("the example prints no JSON")?;
    let report = Report {
        name: "control",
        title: "A control plane with many sentries",
        method: format!(
            "`cargo xtask bench control`: {sentries} sentries of {applications} applications, {servers} servers; all sentries are \
             one process on loopback. Each reports once a second what was offered and how its servers are; what nuclei say is \
             in it. The store is a file. {windows} windows of {seconds} s after all had their servers. Deciding alone: a plane in \
             memory, told the same; the load rises fivefold, and the time is that of the call that asks for servers."
        ),
        facts: machine::facts().into_iter().map(|(name, value)| (name.to_owned(), value)).collect(),
        figures: figures(&result),
        sections: vec![Section { title: "Windows", text: table(&result), data: result }],
        ..Report::default()
    };
    report.publish(folder.as_deref())
}

fn figures(result: &Value) -> Vec<Figure> {
    let windows = result["windows"].as_array().map(Vec::as_slice).unwrap_or_default();
    let of = |name: &str, unit: &str, key: &str| {
        Figure::absolute(name, unit, windows.iter().filter_map(|window| window[key].as_f64()))
    };
    let reaction = result["deciding"]["reaction_ms"].as_f64();
    let reaction = Figure::absolute("reaction to a load that rises", "ms", reaction.into_iter());
    [of("the daemon", "cores", "cores"), of("resident", "MB", "resident_mb"), reaction].into_iter().flatten().collect()
}

fn table(result: &Value) -> String {
    let mut table = String::from("| reports/s | the daemon, cores | resident, MB |\n|---|---|---|\n");
    let windows = result["windows"].as_array().cloned().unwrap_or_default();
    let number = |value: &Value| value.as_f64().unwrap_or(f64::NAN);
    for window in &windows {
        let (reports, cores) = (number(&window["reports_per_s"]), number(&window["cores"]));
        table.push_str(&format!("| {reports:.0} | {cores:.3} | {:.0} |\n", number(&window["resident_mb"])));
    }
    let most = windows.iter().map(|window| number(&window["cores"])).fold(0.0, f64::max);
    let complete = windows.iter().all(|window| window["complete"] == true) && !windows.is_empty();
    let peak = number(&result["peak_mb"]);
    let verdict = if complete && most < CORES && peak < MEGABYTES { "met" } else { "missed" };
    table.push_str(&format!(
        "\nAll were registered after {:.1} s and had their servers after {:.1} s, with {:.1} s of CPU time; {} connections were \
         lost. At most {most:.3} cores, and {peak:.0} MB at the peak: the bar of {CORES} core and {MEGABYTES} MB is {verdict}.\n",
        number(&result["registered_after_s"]),
        number(&result["complete_after_s"]),
        number(&result["cpu_until_complete_s"]),
        result["lost"]
    ));
    let deciding = &result["deciding"];
    let reaction = number(&deciding["reaction_ms"]);
    table.push_str(&format!(
        "\nDeciding alone: {} servers were brought up in {:.2} s. A note takes {:.0} us, a period at most {:.1} ms. From the report \
         that shows the load risen to the requests for servers: {reaction:.1} ms; the bar of one period, 1 s, is {}.\n",
        deciding["servers_up"],
        number(&deciding["all_up_s"]),
        number(&deciding["note_us"]),
        number(&deciding["longest_period_ms"]),
        if reaction < PERIOD_MS { "met" } else { "missed" }
    ));
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_window_above_the_bar_and_a_sentry_that_is_missing_miss_it() {
        let result = |cores: f64, complete: bool| {
            let window = json!({ "reports_per_s": 1000.0, "cores": cores, "resident_mb": 90.0, "complete": complete });
            json!({ "windows": [window], "peak_mb": 99.0, "lost": 0 })
        };
        let load = |cores, complete| table(&result(cores, complete)).contains("1024 MB is met");
        assert!(load(0.4, true) && !load(1.4, true) && !load(0.4, false));
        assert!(table(&json!({})).contains("1024 MB is missed"));
    }

    #[test]
    fn a_reaction_longer_than_a_period_misses_the_bar() {
        let react = |time: f64| table(&json!({ "deciding": { "reaction_ms": time } })).contains("1 s, is met");
        assert!(react(3.0) && !react(1000.0));
        assert!(table(&json!({})).contains("1 s, is missed"), "nothing was measured");
    }
}
