//! `cargo xtask tidy`: the rules that CONTRIBUTING.md states, checked by reading the source.
//!
//! Each rule is one row of [`RULES`] with canaries: small trees that it must reject. A line that has a good reason to
//! break a line rule says so on that line or the one before: `// tidy-allow(rule): reason`.

pub mod documents;
mod engine;
mod foreign;
mod imports;
mod kinds;
mod policies;
mod size;
mod sleep;
mod source;

mod text;
mod tree;
mod unsafe_code;
mod wide;

use std::process::ExitCode;

use anyhow::{Result, bail};

use crate::args::Args;
use tree::{Finding, Tree};

/// One rule: its name in CONTRIBUTING.md, its check, and trees that the check must reject.
struct Rule {
    name: &'static str,
    check: fn(&Tree) -> Vec<Finding>,
    #[cfg_attr(not(test), expect(dead_code, reason = "only the rules' own tests read it"))]
    canaries: &'static [&'static [(&'static str, &'static str)]],
}

/// Every rule.
const RULES: &[Rule] = &[
    Rule { name: "imports", check: imports::check, canaries: imports::CANARIES },
    Rule { name: "workspace-lints", check: imports::check_lints, canaries: imports::LINT_CANARIES },
    Rule { name: "pure-engine", check: engine::check, canaries: engine::CANARIES },
    Rule { name: "unsafe-code", check: unsafe_code::check, canaries: unsafe_code::CANARIES },
    Rule { name: "policy-tables", check: policies::check, canaries: policies::CANARIES },
    Rule { name: "foreign-policies", check: foreign::check, canaries: foreign::CANARIES },
    Rule { name: "wide-structs", check: wide::check, canaries: wide::CANARIES },
    Rule { name: "unfinished", check: text::check_unfinished, canaries: text::UNFINISHED_CANARIES },
    Rule { name: "sleeping-tests", check: sleep::check_sleep, canaries: sleep::SLEEP_CANARIES },
    Rule { name: "ignored-tests", check: kinds::check_ignore, canaries: kinds::IGNORE_CANARIES },
    Rule { name: "one-test-binary", check: kinds::check_binaries, canaries: kinds::BINARY_CANARIES },
    Rule { name: "measured-time", check: kinds::check_time, canaries: kinds::TIME_CANARIES },
    Rule { name: "reasons", check: text::check_reasons, canaries: text::REASON_CANARIES },
    Rule { name: "line-width", check: text::check_width, canaries: text::WIDTH_CANARIES },
    Rule { name: "white-space", check: text::check_space, canaries: text::SPACE_CANARIES },
    Rule { name: "size", check: size::check, canaries: size::CANARIES },
    Rule { name: "local-names", check: text::check_local_names, canaries: text::LOCAL_NAME_CANARIES },
    Rule { name: "lock-file", check: imports::check_lock, canaries: imports::LOCK_CANARIES },
    Rule { name: "architecture", check: documents::check_architecture, canaries: documents::ARCHITECTURE_CANARIES },
    Rule { name: "links", check: documents::check_links, canaries: documents::LINK_CANARIES },
    Rule { name: "contributing", check: check_contributing, canaries: CONTRIBUTING_CANARIES },
];

/// Checks every rule; with `--bless` writes today's sizes to `xtask/ratchet.txt` first.
///
/// # Errors
/// When a rule is broken, an argument is unknown or the tree cannot be read.
pub fn run(mut args: Args) -> Result<ExitCode> {
    let bless = args.switch("--bless");
    args.finish()?;
    if bless {
        size::bless(&Tree::read()?)?;
    }
    check()?;
    println!("tidy: {} rules hold", RULES.len());
    Ok(ExitCode::SUCCESS)
}

/// Checks every rule and prints each finding as `file:line: what; what to do`.
///
/// # Errors
/// When a rule is broken or the tree cannot be read.
pub fn check() -> Result<()> {
    let tree = Tree::read()?;
    let mut count = 0;
    for rule in RULES {
        for finding in unexcused(rule, &tree) {
            println!("{finding} [{}]", rule.name);
            count += 1;
        }
    }
    if count > 0 {
        bail!("{count} findings; the rules are in CONTRIBUTING.md");
    }
    Ok(())
}

fn unexcused(rule: &Rule, tree: &Tree) -> Vec<Finding> {
    let mut findings = (rule.check)(tree);
    findings.retain(|finding| !tree.excuses(rule.name, finding));
    findings
}

/// CONTRIBUTING.md names every rule as `(tidy: name)`, and no other.
fn check_contributing(tree: &Tree) -> Vec<Finding> {
    let Some(file) = tree.get("CONTRIBUTING.md") else {
        return vec![Finding::at("CONTRIBUTING.md", 1, "missing; write the rules down")];
    };
    let stated: Vec<(usize, &str)> = file.lines().flat_map(|(at, line)| stated_rules(at, line)).collect();
    let unknown = stated.iter().filter(|(_, name)| !RULES.iter().any(|rule| rule.name == *name));
    let unknown = unknown.map(|(at, name)| {
        Finding::at(&file.path, *at, format!("no rule is called `{name}`; correct it, or write the check"))
    });
    let unstated = RULES.iter().filter(|rule| !stated.iter().any(|(_, name)| *name == rule.name));
    let unstated = unstated.map(|rule| {
        let what = format!("the rule `{}` is not stated; state it and add `(tidy: {})`", rule.name, rule.name);
        Finding::at(&file.path, 1, what)
    });
    unknown.chain(unstated).collect()
}

const CONTRIBUTING_CANARIES: &[&[(&str, &str)]] = &[
    &[],
    &[("CONTRIBUTING.md", "No rule is stated here.\n")],
    &[("CONTRIBUTING.md", "An invented one (tidy: be-nice).\n")],
];

fn stated_rules(at: usize, line: &str) -> impl Iterator<Item = (usize, &str)> {
    line.split("(tidy: ").skip(1).filter_map(move |rest| Some((at, rest.split_once(')')?.0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rule_rejects_its_canaries() {
        for rule in RULES {
            assert!(!rule.canaries.is_empty(), "{} has no canary", rule.name);
            for (number, canary) in rule.canaries.iter().enumerate() {
                let found = unexcused(rule, &Tree::from_texts(canary));
                assert!(!found.is_empty(), "{}: canary {number} sings on", rule.name);
            }
        }
    }

    #[test]
    fn a_small_clean_tree_breaks_no_rule() {
        let mut contributing = String::from("# Contributing\n");
        for rule in RULES {
            contributing.push_str(&format!("A rule (tidy: {}).\n", rule.name));
        }
        let lib = "//! The engine.\n#![forbid(unsafe_code)]\n#![no_std]\n\n/// Adds one.\npub fn add(a: u32) -> u32 {\n    a + 1\n}\n";
        let manifest =
            "[package]\nname = \"tidegate-engine\"\n[lints]\nworkspace = true\n[dependencies]\nlibm = \"1\"\n";
        let tree = Tree::from_texts(&[
            ("CONTRIBUTING.md", &contributing),
            ("ARCHITECTURE.md", "See `crates/engine`, [the rules](CONTRIBUTING.md#contributing).\n"),
            ("Cargo.lock", "version = 4\n"),
            ("crates/engine/Cargo.toml", manifest),
            ("crates/engine/src/lib.rs", lib),
        ]);
        for rule in RULES {
            let found: Vec<_> = unexcused(rule, &tree).iter().map(ToString::to_string).collect();
            assert!(found.is_empty(), "{}: {found:?}", rule.name);
        }
    }

    #[test]
    fn an_excuse_needs_the_rules_name_and_a_reason() {
        let rule = RULES.iter().find(|rule| rule.name == "sleeping-tests").unwrap();
        let count = |comment: &str| {
            let text = format!("fn t() {{\n    // {comment}\n    std::thread::sleep(SHORT);\n}}\n");
            unexcused(rule, &Tree::from_texts(&[("crates/sentry/tests/a.rs", &text)])).len()
        };
        assert_eq!(count("tidy-allow(sleeping-tests): polls a condition, with a deadline"), 0);
        assert_eq!(count("tidy-allow(sleeping-tests):"), 1);
        assert_eq!(count("tidy-allow(line-width): another rule"), 1);
    }

    #[test]
    fn findings_print_as_file_line_what() {
        let finding = Finding::at("a/b.rs", 7, "bad; mend it");
        assert_eq!(finding.to_string(), "a/b.rs:7: bad; mend it");
    }
}
