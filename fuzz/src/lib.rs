//! The bodies of the fuzz targets: functions of bytes that panic on a finding.
//!
//! To add a target: a function here with its line in [`TARGETS`], `fuzz_targets/<name>.rs`, its `[[bin]]` in
//! `Cargo.toml`, and a few inputs under `corpus/<name>/`. `cargo xtask fuzz` fuzzes each, or replays the corpus where
//! cargo-fuzz is missing.

#![forbid(unsafe_code)]

use std::path::Path;

use tidegate_classify::Paths;
use tidegate_sentry::fuzz::HeadLimits;

#[path = "../../crates/engine/tests/support/mod.rs"]
mod support;

use support::operation::Operation;

/// A target's name and its body.
pub type Target = (&'static str, fn(&[u8]));

/// Every target.
pub const TARGETS: &[Target] = &[
    ("classifier", classifier),
    ("controller", controller),
    ("config", config),
    ("headers", headers),
    ("gate", gate),
    ("datagrams", datagrams),
];

/// Rules and requests from bytes: the compiled classifier and a naive one agree.
///
/// # Panics
/// When they do not.
pub fn classifier(data: &[u8]) {
    tidegate_classify::testing::compare(data);
}

/// Byte 0 picks a policy of the table, byte 1 the seed, every four more are an operation: the conformance suite's model
/// holds.
///
/// # Panics
/// When it does not.
pub fn controller(data: &[u8]) {
    let [which, seed, operations @ ..] = data else { return };
    // So long that a run takes milliseconds: longer ones find nothing new.
    let operations = Operation::decode_all(&operations[..operations.len().min(2048)]);
    let cases = support::cases::all();
    let case = &cases[usize::from(*which) % cases.len()];
    if let Err(finding) = support::examine(case, u64::from(*seed), &operations) {
        panic!("{finding}");
    }
}

/// Any text as a configuration: no panic, and what is accepted means the same when it is printed and read again.
///
/// # Panics
/// When it does not.
pub fn config(data: &[u8]) {
    tidegate_sentry::fuzz::config(&String::from_utf8_lossy(data));
}

/// Any bytes as a request's head: what a server gets of it has no hop-by-hop field and names the client.
///
/// # Panics
/// When it does not hold.
pub fn headers(data: &[u8]) {
    tidegate_sentry::fuzz::headers(data);
}

/// Any bytes as a connection: wherever the gate would answer, hyper read the same request.
///
/// # Panics
/// When it did not.
pub fn gate(data: &[u8]) {
    let limits = HeadLimits { bytes: 16 * 1024, headers: 100, body: None, paths: Paths::AsIs };
    if let Some(finding) = tidegate_sentry::fuzz::disagreement(data, &limits) {
        panic!("{finding}");
    }
}

/// Any bytes as datagrams, forged and authentic: nothing forged is believed, nothing is taken twice.
///
/// # Panics
/// When it is.
pub fn datagrams(data: &[u8]) {
    tidegate_wire::fuzz::datagrams(data);
}

/// What a target's binary does in an ordinary build: it runs the files that are named.
///
/// # Panics
/// On a finding, or a file that cannot be read.
pub fn replay_arguments(target: fn(&[u8])) {
    for name in std::env::args().skip(1) {
        target(&std::fs::read(&name).unwrap_or_else(|error| panic!("{name}: {error}")));
    }
}

/// Runs every input of a target's corpus, and returns how many there were.
///
/// # Panics
/// On a finding, or a corpus that cannot be read.
pub fn replay_corpus((name, target): &Target) -> usize {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(name);
    let entries = std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut paths: Vec<_> = entries.map(|entry| entry.expect("a readable folder").path()).collect();
    paths.sort();
    for path in &paths {
        println!("{}", path.display());
        target(&std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display())));
    }
    paths.len()
}

/// The committed corpus of every target, as plain tests.
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_input_of_the_corpus_passes() {
        for target in TARGETS {
            assert!(replay_corpus(target) > 0, "{}: its corpus is empty", target.0);
        }
    }

    /// A target that is not a binary is never fuzzed, and a binary that is not in the table is never replayed.
    #[test]
    fn the_table_and_the_manifest_name_the_same_targets() {
        let manifest = include_str!("../Cargo.toml");
        let binaries: Vec<&str> = manifest
            .split("[[bin]]")
            .skip(1)
            .filter_map(|section| section.split("name = \"").nth(1)?.split('"').next())
            .collect();
        let names: Vec<&str> = TARGETS.iter().map(|(name, _)| *name).collect();
        assert_eq!(binaries, names);
    }
}
