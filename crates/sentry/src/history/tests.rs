use super::*;
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;

use crate::app::App;
use crate::config::Config;
use crate::record::NoRecords;

/// A snapshot of an application with these classes, nothing having happened.
fn snapshot(classes: &[&str]) -> Snapshot {
    let mut text = String::from("[[application]]\nservers = \"127.0.0.1:1\"\n");
    for (index, name) in classes.iter().enumerate() {
        text.push_str(&format!("[[application.class]]\nname = \"{name}\"\n"));
        if index + 1 < classes.len() {
            text.push_str(&format!("match = {{ path = \"/{name}\" }}\n"));
        }
    }
    let config = Config::parse(&text, Path::new("test.toml")).expect("valid").config;
    let app = App::new(config.applications[0].clone(), 1, 7, Arc::new(NoRecords)).expect("an application");
    app.snapshot()
}

fn at(second: u64) -> Duration {
    Duration::from_secs(second)
}

#[test]
fn counts_become_what_each_second_added() {
    let mut history = History::default();
    let mut now = snapshot(&["gold", "rest"]);
    now.classes[0].offered = 1000;
    history.sample(at(10), &now);
    assert_eq!(history.len(), 0, "what was before the first look belongs to no second");
    now.classes[0].offered = 1007;
    now.classes[0].rejected = vec![("threshold", 3)];
    now.classes[1].rejected = vec![("threshold", 4), ("no-server", 1)];
    now.classes[1].p95 = Some(0.123_456);
    history.sample(at(11), &now);
    now.classes[0].offered = 1009;
    history.sample(Duration::from_millis(12_500), &now);
    let columns = history.columns(0.0);
    assert_eq!(columns["at"], json!([11.0, 12.5]));
    assert_eq!(columns["span"], json!([1.0, 1.5]));
    assert_eq!(columns["classes"][0]["offered"], json!([7, 2]));
    assert_eq!(columns["classes"][1]["rejected"], json!([5, 0]));
    assert_eq!(columns["classes"][1]["p95"], json!([0.1235, 0.1235]));
    assert_eq!(columns["classes"][0]["p95"], json!([null, null]));
    assert_eq!(columns["rejected"], json!({ "threshold": [7, 0], "no-server": [1, 0] }));
    assert_eq!(history.columns(11.0)["at"], json!([12.5]));
    assert_eq!(history.newest()["classes"][0]["offered"], json!([2]));
    assert_eq!(history.columns(99.0)["at"], json!([]));
}

#[test]
fn an_hour_is_kept_and_no_more() {
    let mut history = History::default();
    let mut now = snapshot(&["gold", "rest"]);
    for second in 0..KEPT as u64 + 100 {
        now.classes[1].offered = second * second;
        history.sample(at(second), &now);
    }
    assert_eq!((history.len(), history.by_class.len()), (KEPT, 2 * KEPT));
    let columns = history.columns(0.0);
    assert_eq!(columns["at"][0], json!(100.0));
    assert_eq!(columns["classes"][1]["offered"][0], json!(100 * 100 - 99 * 99));
    assert_eq!(columns["classes"][1]["offered"].as_array().map(Vec::len), Some(KEPT));
}

#[test]
fn a_second_is_as_small_as_the_documentation_says() {
    assert_eq!(size_of::<Second>(), 192);
    assert_eq!(size_of::<ClassSecond>(), 48);
}

#[test]
fn what_is_kept_follows_the_names_of_classes() {
    let mut history = History::default();
    let mut now = snapshot(&["gold", "rest"]);
    history.sample(at(0), &now);
    now.classes[0].offered = 5;
    now.classes[1].offered = 6;
    history.sample(at(1), &now);
    let mut other = snapshot(&["new", "gold", "silver"]);
    other.classes[1].offered = 7;
    history.sample(at(2), &other);
    let columns = history.columns(0.0);
    let offered =
        |class: usize| (columns["classes"][class]["name"].clone(), columns["classes"][class]["offered"].clone());
    assert_eq!(offered(0), (json!("new"), json!([0, 0])));
    assert_eq!(offered(1), (json!("gold"), json!([5, 2])));
    assert_eq!(offered(2), (json!("silver"), json!([0, 0])));
}

#[test]
fn numbers_of_any_policy_are_kept_by_name() {
    let mut history = History::default();
    let mut now = snapshot(&["only"]);
    now.policy.delays = vec![0.01];
    history.sample(at(0), &now);
    for second in 1..60 {
        now.policy.more = vec![(format!("number {second}"), second as f64)];
        history.sample(at(second), &now);
    }
    let columns = history.columns(0.0);
    let kept = columns["controller"].as_object().expect("by name");
    assert_eq!(kept["delay only_s"][0], json!(0.01));
    assert_eq!(kept["number 59"].as_array().and_then(|column| column.last()), Some(&json!(59.0)));
    assert!(kept.len() <= GAUGES, "{} numbers", kept.len());
    assert!(!kept.contains_key("number 2"), "old names give way");
    let newest = history.newest();
    let column: Option<&Value> = newest["controller"].get("number 59");
    assert_eq!(column, Some(&json!([59.0])));
    assert!(newest["controller"].get("number 58").is_none(), "what is no longer shown is not made up");
}
