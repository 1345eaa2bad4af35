//! The bodies of the fuzz targets: functions of bytes that panic on a finding.
//!
//! To add a target: a function here with its entry in [`TARGETS`] and its name in `campaign.rs`,
//! `fuzz_targets/<name>.rs`, its `[[bin]]` in `Cargo.toml`, and a few inputs under `corpus/<name>/`. Every test run
//! replays the corpus and feeds some thousand mutants of it ([`campaign`]); `cargo xtask fuzz` does it for longer, by
//! cargo-fuzz where that is installed.

#![forbid(unsafe_code)]

pub mod campaign;
pub mod mutate;
mod words;

use std::path::Path;

use tidegate_classify::Paths;
use tidegate_sentry::fuzz::HeadLimits;

#[path = "../../crates/engine/tests/support/mod.rs"]
mod support;

use support::operation::Operation;

/// What is fuzzed, and with what.
#[derive(Debug)]
pub struct Target {
    /// That of its function, its binary and its folder of the corpus.
    pub name: &'static str,
    /// Panics on a finding.
    pub body: fn(&[u8]),
    /// Pieces of its language.
    pub words: fn() -> Vec<Vec<u8>>,
    /// Mutants are at most so long, in bytes.
    pub longest: usize,
    /// How many mutants a test run feeds: seconds of them, without optimisation.
    pub mutants: u64,
}

/// Every target.
pub const TARGETS: &[Target] = &[
    Target { name: "classifier", body: classifier, words: words::none, longest: 1024, mutants: 100_000 },
    Target { name: "controller", body: controller, words: words::none, longest: 256, mutants: 1_000 },
    Target { name: "config", body: config, words: words::configuration, longest: 4096, mutants: 20_000 },
    Target { name: "headers", body: headers, words: words::http, longest: 4096, mutants: 100_000 },
    Target { name: "gate", body: gate, words: words::http, longest: 4096, mutants: 100_000 },
    Target { name: "connection", body: connection, words: words::http, longest: 4096, mutants: 2_000 },
    Target { name: "datagrams", body: datagrams, words: words::none, longest: 2048, mutants: 100_000 },
    Target { name: "doorstep", body: doorstep, words: words::none, longest: 1024, mutants: 100_000 },
];

impl Target {
    /// The target of a name.
    ///
    /// # Panics
    /// When there is none.
    pub fn named(name: &str) -> &'static Target {
        TARGETS.iter().find(|target| target.name == name).unwrap_or_else(|| panic!("no target is called {name}"))
    }
}

/// What comes before requests: PROXY headers and the beginnings of TLS handshakes, whole and in part.
///
/// # Panics
/// When what is read of a part contradicts the whole.
pub fn doorstep(data: &[u8]) {
    tidegate_sentry::fuzz::doorstep(data);
}

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
    if let Some(finding) = tidegate_sentry::fuzz::disagreement(data, &gate_limits()) {
        panic!("{finding}");
    }
}

fn gate_limits() -> HeadLimits {
    HeadLimits { bytes: 16 * 1024, headers: 100, body: None, paths: Paths::AsIs }
}

/// Any bytes as a client's connection, through the real gate and hyper to a server: both frame the same requests, rules
/// and server read the same, each answer belongs to its request, and nothing is left.
///
/// # Panics
/// When it does not hold.
pub fn connection(data: &[u8]) {
    tidegate_sentry::fuzz::connection(data);
}

/// Any bytes as datagrams, forged and authentic: nothing forged is believed, nothing is taken twice.
///
/// # Panics
/// When it is.
pub fn datagrams(data: &[u8]) {
    tidegate_wire::fuzz::datagrams(data);
}

/// The committed inputs of a target, in the order of their names.
///
/// # Panics
/// When there is none, or one cannot be read.
pub fn corpus(target: &Target) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target.name);
    let entries = std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut paths: Vec<_> = entries.map(|entry| entry.expect("a readable folder").path()).collect();
    assert!(!paths.is_empty(), "{}: its corpus is empty", target.name);
    paths.sort();
    let read =
        |path: &std::path::PathBuf| std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    paths.iter().map(read).collect()
}

/// The committed corpus of every target, as plain tests.
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_input_of_the_corpus_passes() {
        for target in TARGETS {
            for input in corpus(target) {
                println!("{}: {}", target.name, input.escape_ascii());
                (target.body)(&input);
            }
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
        let names: Vec<&str> = TARGETS.iter().map(|target| target.name).collect();
        assert_eq!(binaries, names);
    }
}
