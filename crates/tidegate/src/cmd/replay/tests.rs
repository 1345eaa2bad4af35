use clap::Parser;

use super::*;

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    args: Args,
}

/// A folder of its own, removed at the end.
struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Folder {
        Folder(tempfile::tempdir().unwrap())
    }

    /// Lives as long as the tests do, so that it can stand among the literals of a command line.
    fn file(&self, name: &str, text: &str) -> &'static str {
        let path = self.0.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string().leak()
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.0.path().join(name)).unwrap()
    }
}

fn args(line: &[&str]) -> Args {
    Cli::try_parse_from(["replay"].iter().chain(line)).unwrap_or_else(|error| panic!("{error}")).args
}

fn report(line: &[&str]) -> Result<Report> {
    let plan = Plan::new(&args(line))?;
    let tallies = play_all(&plan, 2)?;
    Ok(Report::new(&plan, tallies))
}

fn said(line: &[&str]) -> String {
    format!("{:#}", report(line).unwrap_err())
}

/// Calm, ten minutes of five times as much, calm; a line each ten seconds.
fn rush() -> String {
    let rate = |at: u32| if (60..120).contains(&at) { 1000 } else { 200 };
    let lines: String = (0..180).map(|at| format!("{},{}\n", at * 10, rate(at))).collect();
    format!("time,count\n{lines}")
}

fn all<'r>(report: &'r Report, policy: &str) -> &'r report::Group {
    &report.policies.iter().find(|found| found.policy == policy).unwrap().groups[0]
}

#[test]
fn without_a_policy_one_server_is_the_queue_of_theory() {
    let folder = Folder::new();
    let trace = folder.file(
        "steady.csv",
        &format!("time,count\n{}", (0..400).map(|at| format!("{},250\n", at * 10)).collect::<String>()),
    );
    let line =
        [trace, "--policy", "none", "--servers", "1", "--service", "20ms", "--discipline", "fifo", "--timeout", "1h"];
    let found = report(&line).unwrap();
    // M/M/1 at half load: response times are exponential with mean 1 / (50 - 25) s.
    let whole = &all(&found, "none").whole;
    let (p50, p95) = (whole.p50_s.unwrap(), whole.p95_s.unwrap());
    assert!(
        (p50 / (0.04 * 2f64.ln()) - 1.0).abs() < 0.04 && (p95 / (0.04 * 20f64.ln()) - 1.0).abs() < 0.04,
        "{p50} {p95}"
    );
    assert!((whole.offered_per_s - 25.0).abs() < 0.3, "{}", whole.offered_per_s);
    assert_eq!((whole.refused, whole.failed, whole.admitted), (0, 0, whole.offered));
}

#[test]
fn in_a_rush_a_policy_keeps_what_none_loses() {
    let folder = Folder::new();
    let trace = folder.file("rush.csv", &rush());
    let (json, csv) = (folder.0.path().join("r.json"), folder.0.path().join("r.csv"));
    let line = [
        trace,
        "--policy",
        "none",
        "--policy",
        "sentry",
        "--policy",
        "concurrency:{ limit = 8 }",
        "--servers",
        "2",
        "--service",
        "20ms",
        "--overload",
        "2",
        "--target",
        "500ms",
        "--class",
        "gold=0.2",
        "--class",
        "rest",
        "--seeds",
        "2",
    ];
    let found = report(&line).unwrap();
    assert!((found.peak_load - 2.0).abs() < 1e-9 && (found.capacity_per_s - 100.0).abs() < 1e-9);
    assert_eq!(found.overloaded_stretches, 10);
    let rush = |policy: &str| all(&found, policy).in_overload.as_ref().unwrap();
    assert!((rush("none").offered_per_s - 200.0).abs() < 5.0);
    assert!(rush("none").goodput_per_s < 30.0, "{:?}", rush("none"));
    assert!(rush("sentry").goodput_per_s > 75.0 && rush("sentry").p95_s.unwrap() < 0.5, "{:?}", rush("sentry"));
    let gold = &found.policies[1].groups[1];
    assert!(gold.class == "gold" && gold.in_overload.as_ref().unwrap().refused_share < 0.1, "{gold:?}");
    for policy in &found.policies {
        let whole = &policy.groups[0].whole;
        assert_eq!(whole.offered, found.policies[0].groups[0].whole.offered, "every policy sees the same requests");
        assert_eq!(whole.offered, whole.admitted + whole.refused + whole.failed, "{policy:?}");
        assert_eq!(policy.goodput_per_s_by_seed.len(), 2);
    }
    // The same again, by the command: the same bytes.
    let (json_arg, csv_arg) = (json.display().to_string(), csv.display().to_string());
    let with_files = [&line[..], &["--json", &json_arg, "--csv", &csv_arg]].concat();
    assert_eq!(run(&args(&with_files)).unwrap(), ExitCode::SUCCESS);
    assert_eq!(folder.read("r.csv"), found.csv());
    assert_eq!(folder.read("r.json"), serde_json::to_string_pretty(&found).unwrap() + "\n");
    assert!(found.csv().contains("\nconcurrency:{ limit = 8 },gold,overload,"), "{}", found.csv());
    assert!(found.to_string().contains("goodput of all, by seed"), "{found}");
}

#[test]
fn sizes_are_the_work_in_their_order() {
    let folder = Folder::new();
    let lines: String = (0..50).map(|at| format!("{at},{},{}\n", 10 * (at % 5), at % 3)).collect();
    let trace = folder.file("sizes.csv", &format!("time,in,out\n{lines}"));
    let line = [
        trace,
        "--cost-per-unit",
        "in=1ms",
        "--cost-per-unit",
        "out=100ms",
        "--cost-base",
        "5ms",
        "--policy",
        "none",
        "--servers",
        "1",
    ];
    let plan = Plan::new(&args(&line)).unwrap();
    // A second lies between two requests and none takes more than half of it: nobody waits.
    let tally = plan.play(&plan.policies[0], 1, |_| {}).unwrap();
    let work: f64 = (0..50).map(|at| 0.005 + f64::from(10 * (at % 5)) * 1e-3 + f64::from(at % 3) * 0.1).sum();
    assert!((tally.work.iter().sum::<f64>() - work).abs() < 1e-9);
    let total = tally.classes[0].total();
    assert!((total.responses.mean().unwrap() - work / 50.0).abs() < 1e-6);
    assert_eq!(all(&report(&line).unwrap(), "none").whole.admitted, 50);
}

#[test]
fn classes_come_from_a_column_or_a_path() {
    let folder = Folder::new();
    let lines: String = (0..30).map(|at| format!("{at},{},1\n", if at % 3 == 0 { "gold" } else { "rest" })).collect();
    let trace = folder.file("tiers.csv", &format!("time,tier,size\n{lines}"));
    let base = [trace, "--service", "1ms", "--policy", "none", "--class-column", "tier", "--class"];
    let offered =
        |report: &Report| report.policies[0].groups.iter().map(|group| group.whole.offered).collect::<Vec<_>>();
    assert_eq!(offered(&report(&[&base[..], &["gold", "--class", "rest"]].concat()).unwrap()), [30, 10, 20]);
    let unknown = said(&[&base[..], &["rest"]].concat());
    assert!(unknown.contains("tiers.csv:2: \"gold\" is the class of none"), "{unknown}");

    let hit = |at: u32| {
        format!(
            "h - - [10/Oct/2000:13:55:{at:02} +0000] \"GET {}/{at} HTTP/1.1\" 200 9\n",
            if at.is_multiple_of(2) { "/buy" } else { "" }
        )
    };
    let log = folder.file("access.log", &(0..40).map(hit).collect::<String>());
    let line = [log, "--service", "1ms", "--policy", "none", "--class", "shop=/buy", "--class", "rest"];
    assert_eq!(offered(&report(&line).unwrap()), [40, 20, 20]);
}

#[test]
fn windows_and_the_day_of_the_peak() {
    let folder = Folder::new();
    let count = |hour: u32| if hour == 30 { 500 } else { 50 };
    let line = |hour: u32| format!("1998-07-{:02} {:02}:00:00,{}\n", 6 + hour / 24, hour % 24, count(hour));
    let trace = folder.file("days.csv", &format!("time,count\n{}", (0..72).map(line).collect::<String>()));
    let window = |more: &[&str]| {
        let plan = Plan::new(&args(&[&[trace, "--service", "10ms"], more].concat())).unwrap();
        (plan.scan.first.to_string(), plan.scan.last.to_string(), plan.scan.requests)
    };
    let day = ("1998-07-07 00:00:00".to_owned(), "1998-07-08 00:00:00".to_owned(), 23 * 50 + 500);
    assert_eq!(window(&["--day", "peak"]), day);
    assert_eq!(window(&["--day", "1998-07-07"]), day);
    assert_eq!(window(&["--from", "1998-07-07", "--to", "1998-07-08 00:00"]), day);
    assert_eq!(window(&["--from", "24h", "--to", "48h"]), day);
    assert_eq!(window(&["--from", "24h", "--to", "48h", "--speed", "60", "--rate-scale", "0.5"]), day);
}

#[test]
fn mistakes_say_what_to_do_and_write_nothing() {
    let folder = Folder::new();
    let trace = folder.file("rush.csv", &rush());
    let sizes = folder.file("sizes.csv", "time,in,out\n0,1,2\n1,3,4\n");
    let bad = folder.file("bad.csv", &(rush() + "2000,1\n1990,1\n"));
    for (line, part) in [
        (&[trace][..], "Give --service"),
        (&[sizes], "--cost-per-unit COLUMN=TIME for: in, out"),
        (&[sizes, "--cost-per-unit", "1ms"], "which of the columns in, out"),
        (&[sizes, "--cost-per-unit", "inn=1ms"], "no column of sizes \"inn\""),
        (&[trace, "--cost-per-unit", "1ms"], "has no sizes"),
        (&[trace, "--service", "1ms", "--class", "a=0.7", "--class", "b=0.7"], "add up to 1.4, more than 1"),
        (&[trace, "--service", "1ms", "--class", "a=0.7", "--class", "b=0.1"], "add a class without one"),
        (&[trace, "--service", "1ms", "--class", "a=/x", "--class", "b"], "needs an access log"),
        (&[trace, "--service", "1ms", "--class", "a", "--class", "a=0.2"], "given twice"),
        (&[trace, "--service", "1ms", "--from", "2h", "--to", "1h"], "is not before"),
        (&[trace, "--service", "1ms", "--from", "9h"], "there is no request in it"),
        (&[trace, "--service", "1ms", "--overload", "0"], "--overload 0: must be a number above 0"),
        (&[trace, "--service", "1ms", "--speed", "0"], "--speed 0"),
        (&[trace, "--service", "1ms", "--speed", "0.000001"], "more than thirty years"),
        (&[sizes, "--service", "1ms", "--rate-scale", "1e9"], "that is no replay"),
        (&[bad, "--service", "1ms"], "bad.csv:183: 1990 s comes after 2000 s"),
    ] {
        let found = said(line);
        assert!(found.contains(part), "{line:?}: {found}");
    }
    let json = folder.0.path().join("out.json").display().to_string();
    assert_eq!(run(&args(&[bad, "--service", "1ms", "--json", &json])).unwrap(), ExitCode::from(2));
    assert!(!folder.0.path().join("out.json").exists());
    let lenient = report(&[bad, "--service", "1ms", "--lenient", "--policy", "none"]).unwrap();
    assert_eq!(lenient.lines_left_out, 1);
    assert!(Cli::try_parse_from(["replay", trace, "--policy", "magic"]).is_err());
}
