use tidegate_sim::Provision;

use super::*;
use crate::outcome::Provisioned;

const SCENARIO: &str = r#"
    id = "two"
    title = "two runs"
    duration = "3s"
    sla = { target = "300ms" }
    servers = { count = 1 }
    class = [{ name = "gold" }]
    request = [{ name = "page", service = { distribution = "constant", value = "10ms" } }]
    load = [{ class = "gold", requests = { page = 1 }, rate = "40/s" }]
    arm = [{ name = "sentry" }]
    expect = [
        { what = "a server comes", metric = "servers", over = "2s..3s", at_least = 2 },
        { what = "one sentry is enough", metric = "sentries", over = "0s..3s", at_most = 1 },
    ]
"#;

/// A run in which there is one server, and at last as many as that.
fn run(scenario: &Scenario, seed: u64, servers: f64) -> RunReport {
    let had = |servers| Provision { servers, sentries: 1.0, ceiling: 0.3, sentry_cpu: 0.25, ..Provision::default() };
    let seconds = vec![had(1.0), had(1.0), had(servers)];
    let provisioned = vec![Provisioned { name: "two".into(), seconds }];
    RunReport::new(scenario, &scenario.arms[0], seed, Outcome { provisioned, ..Outcome::default() })
}

fn report(last: &[f64]) -> ExperimentReport {
    let scenario = Scenario::parse(SCENARIO, "two.toml").expect("it makes sense");
    let runs = (1..).zip(last).map(|(seed, servers)| run(&scenario, seed, *servers)).collect();
    let arms = vec![ArmReport { name: "sentry".into(), runs }];
    ExperimentReport { scenario, mode: Mode::Live, short: false, arms }
}

#[test]
fn of_several_runs_it_says_how_many_failed() {
    let text = report(&[2.0, 1.0, 2.0]).text();
    assert!(text.contains("FAIL in 1 of 3  a server comes: servers of all over 2s..3s is 1.0000..2.0000"), "{text}");
    assert!(text.contains("PASS in 3 of 3  one sentry is enough"), "{text}");
    assert!(text.contains("two FAIL: 1 of 6 checks missed"), "{text}");
    let text = report(&[1.0]).text();
    assert!(text.contains("FAIL  a server comes"), "of one run there is nothing to count: {text}");
}

#[test]
fn servers_that_come_are_written_down_and_drawn() {
    let folder = std::env::temp_dir().join(format!("tidegate-report-{}", std::process::id()));
    let (moves, stays) = (report(&[2.0]), report(&[1.0]));
    let files = moves.write(&folder).expect("written");
    let names: Vec<_> = files.iter().filter_map(|path| path.file_name()?.to_str()).collect();
    assert_eq!(names, ["report.json", "seconds.csv", "provisioned.csv", "sentry.svg"]);
    let csv = fs::read_to_string(folder.join("provisioned.csv")).expect("a file");
    let mut lines = csv.lines();
    let head = "arm,seed,second,application,servers,sentries,ceiling_s,sentry_cpu,sentry_spread";
    assert_eq!(lines.next(), Some(head));
    assert_eq!(lines.next(), Some("sentry,1,0,two,1,1,0.3,0.2500,0.0000"));
    assert_eq!(lines.next_back(), Some("sentry,1,2,two,2,1,0.3,0.2500,0.0000"));
    let figure = |report: &ExperimentReport| report.figure(&report.arms[0], &report.arms[0].runs[0]).expect("drawn");
    assert!(figure(&moves).contains("most that the target relaxes to"));
    assert!(!figure(&moves).contains("processor of the first sentry"), "there was one sentry all the time");
    assert!(!figure(&stays).contains("most that the target relaxes to"), "nothing came or went");
    // The folder is temporary: leaving it harms nobody.
    let _ = fs::remove_dir_all(&folder);
}
