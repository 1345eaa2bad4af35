//! The engine, the classifier and the provisioner decide and do nothing else: no standard library, no clock, no I/O,
//! no hidden randomness.

use super::source::words;
use super::tree::{Finding, Tree};

/// Where pure code lies.
const PURE: &[&str] = &["crates/engine/src/", "crates/classify/src/", "crates/provision/src/"];

/// What must not stand in pure code, and what to do instead.
const BANNED: &[(&str, &str)] = &[
    ("std", "use core or alloc"),
    ("Instant", "take `now: Timestamp` as an argument"),
    ("SystemTime", "take `now: Timestamp` as an argument"),
    ("RandomState", "use the engine's own seeded generator"),
    ("getrandom", "use the engine's own seeded generator"),
    ("thread_rng", "use the engine's own seeded generator"),
    ("thread_local", "keep state in the controller"),
    ("tokio", "the drivers own the runtime"),
    ("println", "send an event to the sink"),
    ("eprintln", "send an event to the sink"),
];

/// Pure code is `no_std` and names nothing of [`BANNED`] outside its tests.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for lib in PURE.iter().map(|folder| format!("{folder}lib.rs")) {
        if tree.get(&lib).is_some_and(|lib| !lib.text.contains("#![no_std]")) {
            findings.push(Finding::at(&lib, 1, "this crate must be `#![no_std]`; add it"));
        }
    }
    let is_pure = |path: &str| PURE.iter().any(|folder| path.starts_with(folder));
    for (file, source) in tree.rust().filter(|(file, _)| is_pure(&file.path)) {
        for (at, line) in source.code_lines().filter(|(at, _)| !source.is_test(*at)) {
            for (word, remedy) in BANNED.iter().filter(|(word, _)| words(line, word).next().is_some()) {
                findings.push(Finding::at(&file.path, at, format!("`{word}` in pure code; {remedy}")));
            }
        }
    }
    findings
}

/// Canaries of [`check`].
pub const CANARIES: &[&[(&str, &str)]] = &[
    &[("crates/engine/src/lib.rs", "//! The engine.\n")],
    &[("crates/classify/src/lib.rs", "//! Rules.\n")],
    &[("crates/engine/src/lib.rs", "#![no_std]\nextern crate std;\n")],
    &[("crates/engine/src/a.rs", "use std::time::Duration;\n")],
    &[("crates/engine/src/a.rs", "fn now() -> Instant {\n    Instant::now()\n}\n")],
    &[("crates/engine/src/a.rs", "type Map = HashMap<u8, u8, RandomState>;\n")],
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_and_words_about_std_are_allowed() {
        let text = "#![no_std]\n//! No std here.\n#[cfg(test)]\nmod tests {\n    extern crate std;\n}\n";
        assert_eq!(check(&Tree::from_texts(&[("crates/engine/src/lib.rs", text)])), []);
        assert_eq!(check(&Tree::from_texts(&[("crates/sentry/src/a.rs", "use std::io;\n")])), []);
    }
}
