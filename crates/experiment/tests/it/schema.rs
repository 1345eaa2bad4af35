//! `docs/scenarios.md` names every key of a scenario file, and no other.

use std::collections::{BTreeMap, BTreeSet};

use tidegate_experiment::scenario::Scenario;

/// Each heading's keys: the first column of its table.
fn documented() -> BTreeMap<String, BTreeSet<String>> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/scenarios.md");
    let text = std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let mut tables: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut heading = String::new();
    for line in text.lines() {
        if let Some(name) = line.strip_prefix("## ") {
            heading = name.trim_matches('`').to_owned();
        }
        if let Some((key, _)) = line.strip_prefix("| `").and_then(|rest| rest.split_once("` |")) {
            tables.entry(heading.clone()).or_default().insert(key.to_owned());
        }
    }
    tables
}

/// The keys that the reader knows at a place, as it says itself when it meets one that it does not know.
fn known(place: &str) -> BTreeSet<String> {
    const NEEDED: &str = "id = \"x\"\ntitle = \"x\"\nduration = \"1s\"\n";
    const STRANGER: &str = "zzzzzzzzz = 1\n";
    let text = match place {
        "The file" => format!("{STRANGER}{NEEDED}"),
        "[tier.lends]" | "[tier.sentry]" => format!("{NEEDED}[[tier]]\n{place}\n{STRANGER}"),
        "[load.retry]" | "[load.tenants]" => format!("{NEEDED}[[load]]\n{place}\n{STRANGER}"),
        "[request.lasts]" => format!("{NEEDED}[[request]]\n{place}\n{STRANGER}"),
        "[[request.step]]" => format!("{NEEDED}[[request]]\n[[request.step]]\n{STRANGER}"),
        "[[servers.resource]]" => format!("{NEEDED}[servers]\n[[servers.resource]]\n{STRANGER}"),
        place => format!("{NEEDED}{place}\n{STRANGER}"),
    };
    let error = Scenario::parse(&text, "x").expect_err(place).to_string();
    let (_, list) = error.split_once("known here: ").unwrap_or_else(|| panic!("{place}: {error}"));
    list.trim().split(", ").map(str::to_owned).collect()
}

#[test]
fn the_page_and_the_reader_agree() {
    let documented = documented();
    // Whatever keys a sweep has, they are not of the schema.
    let tables: Vec<&String> = documented.keys().filter(|heading| *heading != "[sweep]").collect();
    assert_eq!(tables.len(), 33, "{tables:?}");
    for table in tables {
        assert_eq!(documented[table], known(table), "{table}");
    }
}
