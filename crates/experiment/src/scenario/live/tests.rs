//! The live form of a scenario.

use std::time::Duration;

use tidegate_config::ConfigErrors;

use super::super::tests::GOOD;
use super::super::{On, Scenario};
use crate::service;

/// [`GOOD`] with a `[live]` table.
fn good_with_live(live: &str) -> Result<Scenario, ConfigErrors> {
    Scenario::parse(&GOOD.replacen("[short]", &format!("{live}\n[short]"), 1), "rush.toml")
}

#[test]
fn the_live_form_sets_values_then_scales_time() {
    let live = r#"[live]
on = "mail"
time_scale = 0.1
arms = ["sentry"]
set = { "load.crawler.rate" = "5/s", timeout = "7s" }
sweep = { "servers.count" = [1, 3] }
mail = { smallest = 10 }"#;
    let scenario = good_with_live(live).unwrap();
    let form = scenario.for_live().unwrap();
    assert_eq!((form.duration, form.timeout), (Duration::from_secs(18), Duration::from_secs(7)));
    assert_eq!(form.loads[1].rate.rate_at(Duration::ZERO).per_second(), 5.0);
    assert_eq!(form.arms.iter().map(|arm| &arm.name[..]).collect::<Vec<_>>(), ["sentry"]);
    assert_eq!(
        (form.expects[0].over.from, &form.expects[0].arms[..]),
        (Duration::from_secs(6), &["sentry".into()][..])
    );
    assert_eq!(form.points().unwrap().len(), 2);
    assert_eq!(form.points().unwrap()[1].scenario.servers.count, 3);
    let On::Mail(mail) = form.on() else { panic!("{:?}", form.on()) };
    assert_eq!((mail.smallest, mail.accounts), (10, 16));
    assert_eq!(form.points().unwrap()[1].scenario.on(), form.on(), "each point knows the service");
    assert_eq!(service::of(&form.on()).cannot_do(&form), ["load"], "the service has users");
    assert_eq!(scenario.for_simulation().duration, scenario.duration);
    assert_eq!(Scenario::parse(&scenario.to_toml(), "again").unwrap(), scenario);
}

#[test]
fn what_is_spoken_is_read_and_fits_its_service() {
    let spoken = |live: &str| good_with_live(live).map(|scenario| scenario.for_live().unwrap().spoken());
    let said = |live: &str| spoken(live).map(|of| (of.protocol.name(), of.scheme())).unwrap();
    assert_eq!(said("[live]"), ("h1", ""));
    assert_eq!(said("[live]\nprotocol = \"h2\""), ("h2", ""));
    assert_eq!(said("[live]\nprotocol = \"h2\"\nserver_protocol = \"h2\""), ("h2", "h2c://"));
    assert_eq!(said("[live]\nprotocol = \"grpc\""), ("grpc", "h2c://"));
    let both = good_with_live("[live]\nprotocol = \"grpc\"\nserver_protocol = \"h2\"").unwrap();
    assert_eq!(Scenario::parse(&both.to_toml(), "again").unwrap(), both);
    for (keys, line, part) in [
        ("protocol = \"h3\"", 2, "h3"),
        ("protocoll = \"h2\"", 2, "protocol"),
        ("protocol = \"h2\"\nserver_protocol = \"grpc\"", 3, "grpc"),
        ("on = \"mail\"\nprotocol = \"h2\"", 3, "only for on = \"emulated\" or \"apache\""),
        ("on = \"apache\"\nprotocol = \"grpc\"", 3, "only emulated servers"),
        ("on = \"apache\"\nserver_protocol = \"h2\"", 3, "only for on = \"emulated\""),
        ("protocol = \"grpc\"\nserver_protocol = \"h1\"", 3, "where clients speak gRPC"),
    ] {
        let error = spoken(&format!("[live]\n{keys}")).unwrap_err();
        let begin = GOOD.lines().position(|line| line == "[short]").unwrap();
        let problem = &error.problems[0];
        let text = format!("{} {}", problem.key, problem.message);
        assert_eq!(problem.line, Some(begin + line), "{keys}: {error}");
        assert!(text.contains(part), "{keys}: {error}");
    }
}

#[test]
fn at_half_the_pace_as_much_is_in_flight() {
    let scenario = good_with_live("[live]\npace = 0.5\nnuclei = [\"sentry\"]").unwrap();
    let form = scenario.for_live().unwrap();
    let rate = |of: &Scenario| of.loads[0].rate.rate_at(Duration::ZERO).per_second();
    assert_eq!((form.duration, rate(&form)), (scenario.duration, rate(&scenario) / 2.0));
    assert_eq!(form.target(0.0), scenario.target(0.0) * 2);
    assert_eq!(form.requests[0].service.mean(), scenario.requests[0].service.mean() * 2.0);
    assert_eq!(form.timeout, scenario.timeout * 2);
    let bounds = |of: &Scenario| of.expects.iter().map(|e| (e.metric, e.at_least, e.at_most)).collect::<Vec<_>>();
    for (before, after) in bounds(&scenario).into_iter().zip(bounds(&form)) {
        let factor = match before.0 {
            metric if metric.is_time() => 2.0,
            metric if metric.is_rate() => 0.5,
            _ => 1.0,
        };
        assert_eq!((before.1.map(|b| b * factor), before.2.map(|b| b * factor)), (after.1, after.2));
    }
    assert!(form.on().has_nuclei("sentry") && !form.on().has_nuclei("batch"));
    assert!(matches!(form.on(), On::Emulated { .. }));
}

#[test]
fn without_a_live_table_the_live_form_is_the_scenario() {
    let scenario = Scenario::parse(GOOD, "rush.toml").unwrap();
    assert_eq!(scenario.for_live().unwrap(), scenario);
    assert_eq!(scenario.for_simulation(), scenario);
}

#[test]
fn expectations_may_hold_in_one_place_only() {
    let with = |only: &str| {
        let text = GOOD.replacen("what = \"it holds\"", &format!("what = \"it holds\"\nonly = \"{only}\""), 1);
        Scenario::parse(&text, "rush.toml").unwrap()
    };
    let all = Scenario::parse(GOOD, "rush.toml").unwrap().expects.len();
    let counts = |only| (with(only).for_simulation().expects.len(), with(only).for_live().unwrap().expects.len());
    assert_eq!(counts("live"), (all - 1, all));
    assert_eq!(counts("simulated"), (all, all - 1));
}

#[test]
fn arms_are_compared_with_arms_that_are_there() {
    let with = |more: &str| {
        let text = GOOD.replacen("what = \"it holds\"", &format!("what = \"it holds\"\n{more}"), 1);
        Scenario::parse(&text, "rush.toml")
    };
    let mut scenario = with("relative_to_arm = \"none\"").unwrap();
    let expected = |scenario: &Scenario| scenario.arms[0].expectations(scenario).count();
    let all = expected(&scenario);
    scenario.arms.retain(|arm| arm.name == "sentry");
    assert_eq!(expected(&scenario), all - 1);
    let error = with("relative_to_arm = \"nobody\"").unwrap_err().to_string();
    assert!(error.contains("there is no arm \"nobody\""), "{error}");
}

#[test]
fn a_live_table_that_makes_no_sense_is_refused_with_its_place() {
    for (live, wanted) in [
        ("[live]\ntime_scale = 0", "live.time_scale: must be more than 0"),
        ("[live]\narms = [\"nobody\"]", "there is no arm \"nobody\""),
        ("[live]\nnuclei = [\"nobody\"]", "there is no arm \"nobody\""),
        ("[live]\npace = 1.5", "live.pace: must be more than 0"),
        ("[live]\non = \"mail\"\npace = 0.5\nmail = { smallest = 10 }", "not for the mail service"),
        ("[live]\non = \"apache\"\nmail = { smallest = 10 }", "`mail` is only for on = \"mail\""),
        ("[live]\nset = { \"servers.cuont\" = 3 }", "live"),
        ("[live]\nset = { \"servers.count\" = 0 }", "must be 1 to 1000"),
        ("[live]\nsweep = { \"servers.count\" = [0] }", "must be 1 to 1000"),
        ("[live]\non = \"mail\"\nmail = { smallest = 30, largest = 20 }", "at most its `largest`"),
        ("[live]\non = \"mail\"\nmail = { acounts = 3 }", "accounts"),
        ("[live]\non = \"mail\"\nmail = { processors = 0 }", "at least 1"),
        ("[live]\non = \"control\"", "live.control: is for a scenario with `provision`"),
        ("[live]\non = \"control\"\nnuclei = [\"sentry\"]", "`nuclei` is only for on = \"emulated\" or \"apache\""),
        ("[live]\non = \"namespaces\"\nnamespaces = { alone = [\"nobody\"] }", "names of arms"),
        ("[live]\non = \"namespaces\"\nnamespaces = { link = \"100mb\" }", "such as \"100mbit\""),
        ("[live]\non = \"aapche\"", "aapche"),
        ("[live]\non = \"control\"\ncontrol = { sentry_full = \"0/s\" }", "more than 0"),
    ] {
        let error = good_with_live(live).unwrap_err().to_string();
        assert!(error.contains(wanted), "{live}: {error}");
    }
}
