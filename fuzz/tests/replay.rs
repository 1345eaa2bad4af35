//! The committed corpus of every target, as plain tests.

use tidegate_fuzz::{TARGETS, replay_corpus};

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
