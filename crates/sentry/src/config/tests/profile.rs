//! What a configuration includes from a profile, and what happens when the two disagree.

use std::time::Duration;

use tidegate_engine::{DispatchConfig, MaxConn};

use super::{Profiled, parse, parse_in};
use crate::config::{Application, Checked, ConfigErrors};

/// As `tidegate profile` writes it; the lines are counted below.
const PROFILE: &str = "target = \"500ms\"
default_cost = \"31ms\"

[[max_conn]]
name = \"page\"
within_target = 85
most = 120

[[max_conn]]
name = \"search\"
within_target = 18
most = 26

[softscale]
n_app = 12
peak = \"600/s\"
steps = [{ below = 0.8, n_data = 2, cores = 1 }]

[measured]
target = 0.5
";

const TYPES: &str = "\n[[application.request_type]]\nname = \"page\"\nmatch = { path = \"/page\" }\n\
                     [[application.request_type]]\nname = \"search\"\nmatch = { path = \"/search\" }\n";

fn checked(keys: &str, rest: &str, profile: &'static str) -> Result<Checked, ConfigErrors> {
    let file = format!("[[application]]\nservers = \"a:1\"\nprofile = \"shop.profile.toml\"\n{keys}{rest}");
    parse_in(&file, "shop.toml", None, &Profiled(profile))
}

fn accepted(keys: &str, rest: &str, profile: &'static str) -> Application {
    let checked = checked(keys, rest, profile).unwrap_or_else(|errors| panic!("{errors}"));
    checked.config.applications.into_iter().next().expect("an application")
}

fn kind(name: &str, within_target: f64, most: f64) -> MaxConn {
    MaxConn { name: name.into(), request_types: Vec::new(), within_target, most }
}

#[test]
fn what_the_file_leaves_open_the_profile_says() {
    let checked = checked("admission = \"switch\"\npartition = \"dynamic\"\n", TYPES, PROFILE).expect("valid");
    assert_eq!(checked.warnings, []);
    let app = &checked.config.applications[0];
    assert_eq!(app.setup.max_conn, [kind("page", 85.0, 120.0), kind("search", 18.0, 26.0)]);
    assert_eq!(app.setup.sla.target(1.0), Duration::from_millis(500));
    assert_eq!(app.setup.default_cost, Some(Duration::from_millis(31)));
    // The rendering stands alone.
    let again = parse(&checked.config.to_toml()).unwrap_or_else(|errors| panic!("{errors}")).config;
    assert_eq!(again.applications[0].setup.max_conn, app.setup.max_conn);
    assert_eq!(again.applications[0].setup.sla, app.setup.sla);
}

#[test]
fn the_same_said_twice_is_no_contradiction_and_more_may_be_said() {
    let keys =
        "sla = { steps = [{ below = \"9/s\", target = \"500ms\" }, { target = \"2s\" }] }\ndefault_cost = 0.031\n";
    let rest = "[[application.max_conn]]\nname = \"search\"\nwithin_target = 18\nmost = 26\n\
                [[application.max_conn]]\nname = \"rest\"\nrequest_types = [\"default\"]\nwithin_target = 7\nmost = 9\n";
    let app = accepted(keys, &format!("{TYPES}{rest}"), PROFILE);
    let names: Vec<&str> = app.setup.max_conn.iter().map(|kind| kind.name.as_str()).collect();
    assert_eq!(names, ["search", "rest", "page"]);
    assert_eq!(app.setup.sla.steps().len(), 2);
}

#[test]
fn a_profile_of_all_requests_is_one_kind_of_all_types() {
    const ALL: &str = "[[max_conn]]\nname = \"all\"\nwithin_target = 40\nmost = 64\n";
    let app = accepted("", TYPES, ALL);
    assert_eq!(app.setup.max_conn[0].request_types, ["default", "page", "search"]);
    assert_eq!(accepted("", "", ALL).setup.max_conn[0].request_types, ["default"]);
}

#[test]
fn stealing_takes_its_table_too() {
    let app = accepted("dispatch = \"softscale\"\n", TYPES, PROFILE);
    let DispatchConfig::Softscale(profile) = &app.setup.dispatch else { panic!("another policy") };
    assert_eq!((profile.n_app, profile.peak), (12, 600.0));
}

#[test]
fn a_contradiction_names_both_places_and_both_values() {
    let told = |keys: &str, rest: &str, profile| match checked(keys, rest, profile) {
        Ok(checked) => format!("accepted, with {:?}", checked.warnings),
        Err(errors) => errors.to_string(),
    };
    let entry = |within: u32, most: u32| {
        format!("{TYPES}[[application.max_conn]]\nname = \"search\"\nwithin_target = {within}\nmost = {most}\n")
    };
    const HIGH: &str = "target = \"500ms\"\n[[max_conn]]\nname = \"page\"\nwithin_target = 85\nmost = 12\n";
    const UNKNOWN: &str = "target = \"500ms\"\nmax_con = []\n";
    const TWO: &str = "target = \"5\"\nsoftscal = {}\n";
    const NOT_A_TIME: &str = "\ntarget = \"500\"\n";
    const MISSING: &str = "[[max_conn]]\nname = \"page\"\nwithin_target = 85\n";
    for (told, expected) in [
        (
            told("target = \"1s\"\n", TYPES, PROFILE),
            "shop.toml:4: target is 1s here, but 500ms in profile \"shop.profile.toml\", line 1",
        ),
        (
            told("sla = { statistic = \"p99\", target = \"500ms\" }\n", TYPES, PROFILE),
            "shop.toml:4: sla bounds the p99 here, but target in profile \"shop.profile.toml\", line 1, is of the p95",
        ),
        (
            told("default_cost = \"20ms\"\n", TYPES, PROFILE),
            "shop.toml:4: default_cost is 20ms here, but 31ms in profile \"shop.profile.toml\", line 2",
        ),
        (
            told("", &entry(20, 26), PROFILE),
            "shop.toml:13: within_target of max_conn \"search\" is 20 here, but 18 in profile \"shop.profile.toml\", line 11",
        ),
        (
            told("", &entry(18, 30), PROFILE),
            "shop.toml:14: most of max_conn \"search\" is 30 here, but 26 in profile \"shop.profile.toml\", line 12",
        ),
        (
            told("", &format!("{}request_types = [\"page\"]\n", entry(18, 26)), PROFILE),
            "request_types of max_conn \"search\" is [\"page\"] here, but [\"search\"] in profile \"shop.profile.toml\", line 10",
        ),
        (
            told("", "", PROFILE),
            "shop.toml:3: the application has no request type \"page\", but max_conn of profile \"shop.profile.toml\", line 5, \
             counts it",
        ),
        (
            told("dispatch = { policy = \"softscale\", n_app = 9 }\n", TYPES, PROFILE),
            "shop.toml:4: n_app of dispatch policy \"softscale\" is 9 here, but 12 in profile \"shop.profile.toml\", line 14",
        ),
        (told("", TYPES, HIGH), "shop.toml:3: max_conn \"page\": most must be at least within_target"),
        (told("", TYPES, HIGH), "(profile \"shop.profile.toml\", line 3)"),
        (
            told("", TYPES, UNKNOWN),
            "shop.toml:3: profile \"shop.profile.toml\": line 2: unknown key \"max_con\"; did you mean \"max_conn\"?",
        ),
        (
            told("", TYPES, TWO),
            "shop.toml:3: profile \"shop.profile.toml\": line 1: \"5\" has no unit; write for example \"5ms\" or \"5s\"\n\
             shop.toml:3: profile \"shop.profile.toml\": line 2: unknown key \"softscal\"; did you mean \"softscale\"?",
        ),
        (told("", TYPES, NOT_A_TIME), "shop.toml:3: profile \"shop.profile.toml\": line 2: \"500\" has no unit"),
        (told("", TYPES, MISSING), "profile \"shop.profile.toml\": line 1: missing field `most`"),
    ] {
        assert!(told.contains(expected), "expected: {expected}\n told: {told}");
    }
}

#[test]
fn a_server_that_may_not_hold_what_was_measured_is_named() {
    let file = "[[application]]\nprofile = \"shop.profile.toml\"\nservers = [\n\"b:1\",\n\
                { address = \"a:1\", weight = 2, max_connections = 30 },\n]\n";
    let errors = parse_in(&format!("{file}{TYPES}"), "shop.toml", None, &Profiled(PROFILE)).expect_err("a limit");
    let text = errors.to_string();
    let expected = "shop.toml:5: max_connections of server \"a:1\" is 30 here, but by profile \"shop.profile.toml\", line 6, \
                    it holds 170 (within_target 85, weight 2)";
    assert!(text.contains(expected), "{text}");
}

#[test]
fn a_profile_that_cannot_be_read_is_named() {
    let file = "[[application]]\nservers = \"a:1\"\nprofile = \"gone.toml\"\n";
    let errors = parse_in(file, "shop.toml", None, &Profiled(PROFILE)).expect_err("no such file").to_string();
    assert!(errors.starts_with("shop.toml:3: profile \"gone.toml\": cannot be read"), "{errors}");
}
