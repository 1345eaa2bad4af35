//! The bill of the program as it is today, and what the format asks for.

use std::collections::BTreeSet;

use super::*;

fn of_today(features: &str) -> (String, Value) {
    std::env::set_current_dir(crate::command::root()).unwrap();
    let text = write(&host().unwrap(), features).unwrap();
    let bill = serde_json::from_str(&text).unwrap();
    (text, bill)
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_else(|| panic!("{key} of {value}"))
}

fn components(bill: &Value) -> &Vec<Value> {
    bill["components"].as_array().unwrap()
}

/// What the schema of CycloneDX 1.5 requires of the parts that we use, and lets stand there.
#[test]
fn the_bill_of_today_has_the_form_of_the_format() {
    let (_, bill) = of_today("");
    let keys: Vec<&str> = bill.as_object().unwrap().keys().map(String::as_str).collect();
    let expected = ["bomFormat", "components", "dependencies", "metadata", "specVersion", "version"];
    assert_eq!(keys.into_iter().collect::<BTreeSet<_>>(), BTreeSet::from(expected));
    assert_eq!((text(&bill, "bomFormat"), text(&bill, "specVersion")), ("CycloneDX", "1.5"));
    assert_eq!(bill["version"], 1);
    assert_eq!(text(&bill["metadata"]["component"], "type"), "application");
    let known = [
        "type",
        "bom-ref",
        "name",
        "version",
        "scope",
        "purl",
        "hashes",
        "licenses",
        "externalReferences",
        "properties",
    ];
    for one in components(&bill) {
        assert!(one.as_object().unwrap().keys().all(|key| known.contains(&key.as_str())), "{one}");
        assert_eq!((text(one, "type"), text(one, "scope")), ("library", "required"), "{one}");
        assert!(!text(one, "name").is_empty() && !text(one, "version").is_empty(), "{one}");
        assert!(!text(&one["licenses"][0], "expression").is_empty(), "{one}");
        if text(one, "name").starts_with("tidegate-") {
            assert!(one.get("purl").is_none(), "no registry has {one}");
            continue;
        }
        assert!(text(one, "purl").starts_with("pkg:cargo/"), "{one}");
        let hash = text(&one["hashes"][0], "content");
        assert!(hash.len() == 64 && hash.bytes().all(|byte| byte.is_ascii_hexdigit()), "{one}");
    }
}

#[test]
fn each_component_is_there_once_and_reached_from_the_program() {
    let (_, bill) = of_today("");
    let program = text(&bill["metadata"]["component"], "bom-ref");
    let named: Vec<&str> = components(&bill).iter().map(|one| text(one, "bom-ref")).chain([program]).collect();
    let all: BTreeSet<&str> = named.iter().copied().collect();
    assert_eq!(all.len(), named.len(), "a reference is there twice");
    let dependencies = bill["dependencies"].as_array().unwrap();
    let (mut open, mut reached) = (vec![program], BTreeSet::new());
    while let Some(next) = open.pop() {
        if reached.insert(next) {
            let entry = dependencies.iter().find(|entry| text(entry, "ref") == next).unwrap();
            open.extend(entry["dependsOn"].as_array().unwrap().iter().filter_map(Value::as_str));
        }
    }
    assert_eq!(reached, all);
    assert_eq!(dependencies.len(), all.len());
}

#[test]
fn it_holds_what_is_linked_and_nothing_else() {
    let (_, plain) = of_today("");
    let (_, otel) = of_today("otel");
    let has = |bill: &Value, name: &str| components(bill).iter().any(|one| text(one, "name") == name);
    for linked in ["hyper", "tokio", "snow", "libmimalloc-sys", "tidegate-sentry", "tidegate-engine"] {
        assert!(has(&plain, linked), "{linked} is linked");
    }
    for other in ["proptest", "serde_derive", "cc", "insta", "xtask", "tidegate-fuzz", "opentelemetry_sdk"] {
        assert!(!has(&plain, other), "{other} is not linked");
    }
    assert!(has(&otel, "opentelemetry_sdk"), "with the feature it is");
    let tokio = components(&plain).iter().find(|one| text(one, "name") == "tokio").unwrap();
    let features: Vec<&str> = text(&tokio["properties"][0], "value").split(',').collect();
    assert!(features.contains(&"net") && !features.contains(&"test-util"), "{features:?}");
}

#[test]
fn the_same_sources_give_the_same_bytes_and_no_path() {
    let (first, _) = of_today("");
    let (second, _) = of_today("");
    assert!(first == second, "two bills of the same sources differ");
    let root = crate::command::root();
    assert!(!first.contains(root.to_str().unwrap()), "a folder of this machine is in it");
}

#[test]
fn a_crate_of_the_registry_needs_its_hash() {
    let tree = Tree::read("0|tidegate v0.1.0 (/x)|MIT||\n1|a v1.0.0+b|MIT/Apache-2.0||\n").unwrap();
    let ours = Locked { name: "tidegate".into(), version: "0.1.0".into(), ..Locked::default() };
    let source = Some("registry+r".to_owned());
    let other = Locked { name: "a".into(), version: "1.0.0+b".into(), source, checksum: None };
    let locked = |other: &Locked| [ours.clone(), other.clone()];
    assert!(bill(&tree, &locked(&other), "t", "").unwrap_err().to_string().contains("no hash"));
    assert!(bill(&tree, &locked(&ours), "t", "").unwrap_err().to_string().contains("not in Cargo.lock"));
    let hashed = Locked { checksum: Some("ab".into()), ..other };
    let bill = bill(&tree, &locked(&hashed), "t", "").unwrap();
    assert_eq!(bill["components"][0]["purl"], "pkg:cargo/a@1.0.0%2Bb");
    assert_eq!(bill["components"][0]["licenses"][0]["expression"], "MIT OR Apache-2.0");
}
