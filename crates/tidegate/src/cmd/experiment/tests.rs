//! The commands as they are typed.

use tidegate_experiment::service::Played;

use super::*;
use clap::Parser;

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    args: Args,
}

/// A scenario that takes milliseconds: two servers of 50/s, twice that offered in the middle.
const TINY: &str = r#"
    id = "tiny"
    title = "a short rush"
    duration = "30s"
    sla = { target = "500ms" }
    servers = { count = 2 }
    class = [{ name = "gold" }, { name = "rest" }]
    request = [{ name = "page", service = { distribution = "exponential", mean = "20ms" }, urls = 3 }]
    load = [
        { class = "gold", requests = { page = 1 }, rate = "20/s" },
        { class = "rest", requests = { page = 1 }, rate = "0s:20/s, 10s:180/s, 20s:20/s" },
    ]
    arm = [{ name = "sentry" }, { name = "none", admission = { policy = "none" } }]
"#;
const HOLDS: &str =
    r#"expect = [{ what = "gold is whole", class = "gold", metric = "offered_rate", over = "0s..30s", at_least = 5 }]"#;
const CANARY: &str = r#"expect = [{ what = "a flood passes", arms = ["sentry"], metric = "refused_share", over = "10s..20s", at_most = 0.0 }]"#;

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Folder {
        Folder(tempfile::tempdir().unwrap())
    }

    fn file(&self, name: &str, text: &str) -> String {
        let path = self.0.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    }
}

fn experiment(line: &[&str]) -> ExitCode {
    let line = ["experiment"].iter().chain(line);
    run(Cli::try_parse_from(line).unwrap().args).unwrap()
}

fn same(a: ExitCode, b: ExitCode) -> bool {
    // An exit code cannot be compared, only shown.
    format!("{a:?}") == format!("{b:?}")
}

#[test]
fn built_in_scenarios_are_sound_and_their_names_are_their_files() {
    for scenario in built_in::all().unwrap_or_else(|error| panic!("{error}")) {
        let id = scenario.id.clone();
        let file = format!("{}/../../scenarios/{}.toml", env!("CARGO_MANIFEST_DIR"), id.to_lowercase());
        assert!(std::path::Path::new(&file).exists(), "{file}");
        for form in [scenario.shortened(), scenario] {
            assert!(!form.expects.is_empty() || form.space.is_some(), "{id}");
            form.arms.iter().for_each(|arm| drop(Played::new(&form, arm).unwrap()));
        }
    }
}

#[test]
fn same_seed_same_bytes_whatever_the_jobs() {
    let folder = Folder::new();
    let file = folder.file("tiny.toml", &format!("{TINY}{HOLDS}"));
    let written = |out: &str, more: &[&str]| {
        let out = folder.0.path().join(out);
        let line = [&["run", &file, "--seeds", "3", "--out", out.to_str().unwrap()], more].concat();
        assert!(same(experiment(&line), ExitCode::SUCCESS));
        ["report.json", "seconds.csv", "sentry.svg", "none.svg"]
            .map(|name| std::fs::read(out.join("tiny").join(name)).unwrap())
    };
    let first = written("a", &["--jobs", "1"]);
    assert!(first == written("b", &["--jobs", "3"]));
    assert!(first != written("c", &["--seed", "9"]));
}

#[test]
fn the_canary_fails() {
    let folder = Folder::new();
    let file = folder.file("canary.toml", &format!("{TINY}{CANARY}"));
    let out = folder.0.path().join("out");
    assert!(same(experiment(&["run", &file, "--out", out.to_str().unwrap()]), ExitCode::FAILURE));
    let json: serde_json::Value =
        serde_json::from_slice(&std::fs::read(out.join("tiny/report.json")).unwrap()).unwrap();
    assert_eq!(
        (&json["pass"], &json["arms"][0]["pass"], &json["arms"][1]["pass"]),
        (&false.into(), &false.into(), &true.into())
    );
}

#[test]
fn nonsense_is_status_2_and_nothing_is_written() {
    let folder = Folder::new();
    let good = folder.file("good.toml", &format!("{TINY}{HOLDS}"));
    let bad_key = folder.file("bad.toml", &TINY.replace("duration", "duratoin"));
    let bad_policy = folder.file("policy.toml", &TINY.replace("policy = \"none\"", "policy = \"nun\""));
    let out = folder.0.path().join("out");
    for last in [&bad_key, &bad_policy, "C99", "missing.toml"] {
        let status = experiment(&["run", &good, last, "--out", out.to_str().unwrap()]);
        assert!(same(status, ExitCode::from(2)), "{last}");
        assert!(!out.exists(), "{last}");
    }
    assert!(same(experiment(&["run", &good, "--arm", "x", "--out", out.to_str().unwrap()]), ExitCode::from(2)));
}

#[test]
fn wrong_policies_name_the_arm_and_what_is_known() {
    let scenario = Scenario::parse(&TINY.replace("policy = \"none\"", "policy = \"nun\""), "t").unwrap();
    let error = Played::new(&scenario, &scenario.arms[1]).unwrap_err().to_string();
    assert!(error.contains("arm \"none\": admission") && error.contains("nun") && error.contains("batch"), "{error}");
}

#[test]
fn what_was_run_is_on_one_page() {
    let folder = Folder::new();
    let out = folder.0.path().join("out");
    let out = out.to_str().unwrap();
    // Nothing there yet: not a page without results.
    assert!(same(experiment(&["report", "--in", out]), ExitCode::from(2)));
    let good = folder.file("good.toml", &format!("{TINY}{HOLDS}"));
    assert!(same(experiment(&["run", &good, "--out", out]), ExitCode::SUCCESS));
    let by_run = std::fs::read_to_string(folder.0.path().join("out/report.html")).unwrap();
    assert!(by_run.contains("tiny: a short rush") && by_run.matches("<figure>").count() == 2);
    let other = folder.0.path().join("other.html");
    assert!(same(experiment(&["report", "--in", out, "--out", other.to_str().unwrap()]), ExitCode::SUCCESS));
    assert_eq!(std::fs::read_to_string(other).unwrap(), by_run);
}

#[test]
fn without_a_refusing_arm_there_is_nothing_to_compare() {
    let folder = Folder::new();
    let file = folder.file("none.toml", &TINY.replace("{ name = \"sentry\" }, ", ""));
    assert!(same(
        experiment(&["agree", &file, "--out", folder.0.path().join("out").to_str().unwrap()]),
        ExitCode::from(2)
    ));
}

#[test]
fn a_sweep_runs_every_combination_and_sums_up() {
    let folder = Folder::new();
    let sweep = "sweep = { \"servers.count\" = [2, 4], \"sla.target\" = [\"250ms\", \"500ms\"] }";
    let file = folder.file("sweep.toml", &format!("{TINY}{sweep}"));
    let out = folder.0.path().join("out");
    assert!(same(experiment(&["run", &file, "--arm", "sentry", "--out", out.to_str().unwrap()]), ExitCode::SUCCESS));
    let table = std::fs::read_to_string(out.join("tiny.sweep.csv")).unwrap();
    let lines: Vec<Vec<&str>> = table.lines().map(|line| line.split(',').collect()).collect();
    assert_eq!(lines.len(), 5, "{table}");
    let good = |line: &[&str]| line[7].parse::<f64>().unwrap();
    assert!(good(&lines[4]) > 1.3 * good(&lines[2]), "twice the servers answer more\n{table}");
    assert!(
        std::fs::read_to_string(out.join("report.html")).unwrap().contains("(servers.count = 4, sla.target = 500ms)")
    );
}

#[test]
fn what_only_the_simulator_can_do_is_not_run_live() {
    let folder = Folder::new();
    let file =
        folder.file("limit.toml", &TINY.replace("servers = { count = 2 }", "servers = { count = 2, limit = 4 }"));
    let out = folder.0.path().join("out");
    assert!(same(experiment(&["run", &file, "--live", "--out", out.to_str().unwrap()]), ExitCode::from(2)));
    assert!(!out.exists());
}
