//! docs/configuration.md has every key, and what it says about defaults is so.
//!
//! The tables of the page are made from the declarations in `raw.rs`. After a change there,
//! `cargo xtask docs --bless` (or this test with `TIDEGATE_BLESS=1`) writes them again.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

use tidegate_config::{Key, Kind, Section};

use super::super::raw::RawConfig;
use super::{accepted, parse};

const PAGE: &str = "../../docs/configuration.md";
const BEGIN: &str = "<!-- generated from the types: cargo xtask docs --bless -->\n";
const END: &str = "<!-- end of what is generated -->";

/// Sections without a default of their own: what stands before them so that a key can be tried out.
const BASE: &str = "[[application]]\nservers = \"127.0.0.1:9001\"\n";

#[test]
fn the_page_has_every_key() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(PAGE);
    let page = std::fs::read_to_string(&path).expect("the page");
    let (before, rest) = page.split_once(BEGIN).expect("the place where the tables begin");
    let (tables, after) = rest.split_once(END).expect("the place where they end");
    let wanted = reference();
    if tables == wanted {
        return;
    }
    if std::env::var_os("TIDEGATE_BLESS").is_some() {
        return std::fs::write(&path, [before, BEGIN, &wanted, END, after].concat()).expect("the page is ours");
    }
    let stale = wanted.lines().filter(|line| !tables.contains(line)).collect::<Vec<_>>().join("\n");
    panic!("docs/configuration.md is behind the types; run `cargo xtask docs --bless`. Missing there:\n{stale}");
}

/// Every key says what happens without it, unless it is a table of settings.
#[test]
fn every_key_has_a_default_or_is_required() {
    for section in sections() {
        for key in section.keys {
            let silent = !key.doc.contains("Default: ") && !key.doc.ends_with("Required.");
            assert!(!silent || matches!(key.kind, Kind::Table(_)), "{} {}: no default", key.name(), section.place);
            assert!(key.doc.ends_with('.'), "{} {}: not a sentence", key.name(), section.place);
        }
    }
}

/// A default that is written out changes nothing.
#[test]
fn defaults_are_what_the_page_says() {
    let mut tried = 0;
    for section in sections() {
        let Some(text) = with_all_defaults(section) else { continue };
        let empty = with_nothing(section).expect("the same section");
        let same = |text: &str| accepted(text).config.to_toml();
        assert_eq!(same(&text), same(&empty), "defaults {}:\n{text}", section.place);
        tried += section.keys.iter().filter(|key| literal(key).is_some()).count();
    }
    assert!(tried > 35, "{tried} defaults were tried: has the form of the texts changed?");
}

#[test]
fn a_wrong_default_would_be_found() {
    let of = |drain: &str| parse(&format!("[sentry]\ndrain = {drain}\n{BASE}")).expect("valid").config.to_toml();
    assert_ne!(of("\"30s\""), of("\"31s\""));
}

/// Whole configurations that documents show are ones.
#[test]
fn configurations_in_the_documents_are_valid() {
    let mut seen = 0;
    for document in ["README.md", "docs/start.md", "docs/qows.md", "docs/degradation.md"] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(document);
        let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{document}: {error}"));
        for block in text.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next()) {
            if block.contains("[[application]]") && block.contains("servers = ") {
                parse(block).unwrap_or_else(|errors| panic!("{document}: {errors}\n{block}"));
                seen += 1;
            }
        }
    }
    assert!(seen >= 2, "{seen} found: has the form of the documents changed?");
}

/// Every section of the file, in the order in which they are met.
fn sections() -> Vec<&'static Section> {
    let mut found = vec![&RawConfig::SECTION];
    let mut seen = BTreeSet::from([RawConfig::SECTION.place]);
    let mut next = 0;
    while next < found.len() {
        for below in found[next].keys.iter().filter_map(|key| below(key.kind)) {
            if seen.insert(below.place) {
                found.push(below);
            }
        }
        next += 1;
    }
    found
}

fn below(kind: &'static Kind) -> Option<&'static Section> {
    match kind {
        Kind::Value(_) => None,
        Kind::List(inside) => below(inside),
        Kind::Table(section) => Some(section),
    }
}

fn reference() -> String {
    let mut out = String::new();
    for section in sections() {
        let title = title(section);
        write!(out, "\n### {title}\n\n| key | kind | default | meaning |\n|---|---|---|---|\n").expect("memory");
        for key in section.keys {
            let (meaning, default) = parts(key);
            writeln!(out, "| `{}` | {} | {default} | {meaning} |", key.name(), kind(key.kind)).expect("memory");
        }
    }
    out.push('\n');
    out
}

/// What a section is called, as a heading.
fn title(section: &Section) -> String {
    let name = section.place.trim_start_matches("in ").trim_start_matches("at ");
    match name.split_once(" of [[") {
        None if name.starts_with('[') => format!("`{name}`"),
        None => name[..1].to_uppercase() + &name[1..],
        Some((key, table)) => format!("`{key}` of `[[{table}`"),
    }
}

fn kind(kind: &Kind) -> String {
    match kind {
        Kind::Value(what) => (*what).to_owned(),
        Kind::List(inside) => match inside {
            Kind::Table(section) => format!("[tables](#{})", anchor(&title(section))),
            inside => format!("{}, or a list", self::kind(inside)),
        },
        Kind::Table(section) => format!("[table](#{})", anchor(&title(section))),
    }
}

/// A heading's anchor, as the usual hosts make it.
fn anchor(title: &str) -> String {
    let kept = title.to_lowercase().replace(' ', "-");
    kept.chars().filter(|c| c.is_alphanumeric() || matches!(c, '-' | '_')).collect()
}

/// Meaning and default.
fn parts(key: &Key) -> (String, String) {
    let text = key.doc.trim();
    if let Some(meaning) = text.strip_suffix("Required.") {
        return (meaning.trim().to_owned(), "**required**".to_owned());
    }
    match text.split_once("Default: ") {
        Some((meaning, default)) => (meaning.trim().to_owned(), default.trim_end_matches('.').to_owned()),
        None => (text.to_owned(), String::new()),
    }
}

/// A default that can be typed.
fn literal(key: &Key) -> Option<String> {
    let (_, default) = parts(key);
    let typed = default.strip_prefix('`')?.strip_suffix('`')?;
    (!typed.contains('`')).then(|| typed.to_owned())
}

/// A file in which every key of a section has its default, written out. `None` where the section cannot be without
/// settings that have none.
fn with_all_defaults(section: &Section) -> Option<String> {
    let all: Vec<String> =
        section.keys.iter().filter_map(|key| Some(format!("{} = {}", key.name(), literal(key)?))).collect();
    around(section, &all.join("\n"))
}

fn with_nothing(section: &Section) -> Option<String> {
    around(section, "")
}

fn around(section: &Section, keys: &str) -> Option<String> {
    let place = section.place.strip_prefix("in ").unwrap_or(section.place);
    let inline = keys.replace('\n', ", ");
    Some(match place {
        "at the top level" => format!("{keys}\n{BASE}"),
        "[sentry]" | "[admin]" => format!("{place}\n{keys}\n{BASE}"),
        "[traces]" if cfg!(feature = "otel") => format!("{place}\n{keys}\n{BASE}"),
        "[[application]]" => format!("{BASE}{keys}\n"),
        "[[application.class]]" => format!("{BASE}{place}\nname = \"all\"\n{keys}\n"),
        "sla of [[application]]" => format!("{BASE}sla = {{ {inline} }}\n"),
        "tenants of [[application]]" => format!("{BASE}tenants = {{ {inline} }}\n"),
        "[[application.tenant]]" => {
            format!("{BASE}{place}\nname = \"acme\"\nnetwork = \"10.0.0.0/8\"\n{keys}\n")
        }
        "affinity of [[application]]" => format!("{BASE}affinity = {{ {} }}\n", join("cookie = \"a\"", &inline)),
        "deadline of [[application]]" => {
            format!("{BASE}deadline = {{ {} }}\n", join("header = \"x-patience\"", &inline))
        }
        "servers of [[application]]" => {
            let server = join("address = \"127.0.0.1:9001\"", &inline);
            format!("[[application]]\nservers = {{ {server} }}\n")
        }
        "[application.mirror]" => format!("{BASE}{place}\nto = \"127.0.0.1:9002\"\n{keys}\n"),
        "[application.tls.acme]" => {
            format!("{BASE}{place}\ndomains = \"a.example\"\ncache = \"/acme\"\n{keys}\n")
        }
        // It cannot be without a certificate.
        "[application.tls]" => return None,
        _ if place.starts_with("[application.") => format!("{BASE}{place}\n{keys}\n"),
        _ => return None,
    })
}

fn join(first: &str, more: &str) -> String {
    if more.is_empty() { first.to_owned() } else { format!("{first}, {more}") }
}
