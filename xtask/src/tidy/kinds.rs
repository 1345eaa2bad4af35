//! Rules that keep the two kinds of tests apart: correctness, which no slow machine may fail, and measurements.

use std::ops::RangeInclusive;

use super::source::{Source, braces, line_of, words};
use super::tree::{File, Finding, Tree};

/// The module that measurements stand in.
const MODULE: &str = "measurements";

/// How a measurement says what it is.
const MEASUREMENT: &str = "#[ignore = \"a measurement: cargo xtask test runs it alone and watches the machine\"]";

/// How the reason of any other ignored test begins: it is a process that a test starts.
const HELPERS: &[&str] = &["#[ignore = \"run by ", "#[ignore = \"is the process that "];

/// Measurements are ignored by a plain `cargo test`, with one reason for all; nothing else is but helper processes.
pub fn check_ignore(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (file, source) in tree.rust() {
        let lines: Vec<&str> = file.text.lines().map(str::trim).collect();
        let inside = measurements(file, source);
        let is_inside = |at: usize| inside.iter().any(|range| range.contains(&at));
        for (at, code) in source.code_lines().map(|(at, code)| (at, code.trim())) {
            let is_helper = || HELPERS.iter().any(|begin| lines[at - 1].starts_with(begin));
            let what = if code.starts_with("#[ignore") && is_inside(at) && lines[at - 1] != MEASUREMENT {
                "a measurement gives another reason; copy the #[ignore = ...] of another measurement"
            } else if code.starts_with("#[ignore") && !is_inside(at) && !is_helper() {
                "an ignored test that is none of the helper processes (\"run by ...\"); a measurement belongs into a \
                 module `measurements`, any other test is run"
            } else if is_test(code) && is_inside(at) && !lines[at..].iter().take(2).any(|line| *line == MEASUREMENT) {
                "a measurement that a plain `cargo test` would run; copy the #[ignore = ...] of another measurement"
            } else {
                continue;
            };
            findings.push(Finding::at(&file.path, at, what));
        }
    }
    findings
}

/// Canaries of [`check_ignore`].
pub const IGNORE_CANARIES: &[&[(&str, &str)]] = &[
    &[("crates/a/src/a.rs", "#[cfg(test)]\nmod tests {\n    #[test]\n    #[ignore]\n    fn a() {}\n}\n")],
    &[("crates/a/tests/it/a.rs", "#[test]\n#[ignore = \"takes ten minutes\"]\nfn a() {}\n")],
    &[("crates/a/tests/it/measurements.rs", "#[test]\nfn a() {}\n")],
    &[("crates/a/tests/it/a.rs", "mod measurements {\n    #[test]\n    #[ignore = \"slow\"]\n    fn a() {}\n}\n")],
];

/// Integration tests of a crate are one binary, `tests/it/`: each more is linked, and compiled for itself.
pub fn check_binaries(tree: &Tree) -> Vec<Finding> {
    let is_binary = |path: &str| match path.split_once("/tests/") {
        Some((_, rest)) if rest.ends_with(".rs") => !rest.contains('/') || rest.ends_with("/main.rs"),
        _ => false,
    };
    let more = tree.files.iter().filter(|file| is_binary(&file.path) && !file.path.ends_with("/tests/it/main.rs"));
    let what = "a test binary of its own; make it a module of tests/it/main.rs";
    more.filter(|file| !file.path.contains("/src/")).map(|file| Finding::at(&file.path, 1, what)).collect()
}

/// Canaries of [`check_binaries`].
pub const BINARY_CANARIES: &[&[(&str, &str)]] =
    &[&[("crates/a/tests/load.rs", "\n")], &[("apps/a/tests/other/main.rs", "\n")]];

/// A test outside the measurements does not judge by a clock how long something took.
pub fn check_time(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (file, source) in tree.rust().filter(|(file, _)| !is_program(&file.path)) {
        let inside = measurements(file, source);
        let is_judged = |at: usize| source.is_test(at) && !inside.iter().any(|range| range.contains(&at));
        for (at, line) in source.code_lines().filter(|(at, _)| is_judged(*at)) {
            if line.contains(".elapsed()") {
                let what = "a test measures time; poll a condition with a deadline, use paused time, or move it into a \
                            module `measurements`";
                findings.push(Finding::at(&file.path, at, what));
            }
        }
    }
    findings
}

/// Canaries of [`check_time`].
pub const TIME_CANARIES: &[&[(&str, &str)]] = &[
    &[("crates/a/tests/it/a.rs", "#[test]\nfn a() {\n    assert!(began.elapsed() < SECOND);\n}\n")],
    &[("crates/a/src/a.rs", "#[cfg(test)]\nmod tests {\n    fn a() { let took = began.elapsed(); }\n}\n")],
];

/// Benchmarks and examples are no tests, though they lie where tests do.
fn is_program(path: &str) -> bool {
    ["/benches/", "/examples/"].iter().any(|folder| path.contains(folder)) || path.starts_with("fuzz/")
}

fn is_test(code: &str) -> bool {
    code == "#[test]" || code.starts_with("#[tokio::test")
}

/// The lines of a file that lie in a module of measurements.
fn measurements(file: &File, source: &Source) -> Vec<RangeInclusive<usize>> {
    if file.path.split('/').any(|part| part.strip_suffix(".rs").unwrap_or(part) == MODULE) {
        return vec![1..=usize::MAX];
    }
    let code = source.code();
    let modules = words(code, "mod").filter(|at| code[at + "mod".len()..].trim_start().starts_with(MODULE));
    let ranges = modules.filter_map(|at| {
        let open = at + code[at..].find(['{', ';'])?;
        let body = braces(code, open).filter(|_| code[open..].starts_with('{'))?;
        Some(line_of(code, at)..=line_of(code, open + body.len() - 1))
    });
    ranges.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ignored(path: &str, text: &str) -> usize {
        check_ignore(&Tree::from_texts(&[(path, text)])).len()
    }

    #[test]
    fn measurements_and_helper_processes_are_ignored_rightly() {
        let measurement = format!("#[test]\n{MEASUREMENT}\nfn a() -> Result<(), String> {{ Ok(()) }}\n");
        assert_eq!(ignored("crates/a/tests/it/measurements.rs", &measurement), 0);
        assert_eq!(ignored("crates/a/tests/it/measurements/load.rs", &measurement), 0);
        assert_eq!(ignored("crates/a/src/a.rs", &format!("mod measurements {{\n{measurement}}}\n")), 0);
        assert_eq!(ignored("crates/a/tests/it/load.rs", &measurement), 1, "it stands in another module");
        let helper = "#[test]\n#[ignore = \"run by a_test_of_mine, in a process of its own\"]\nfn a() {}\n";
        assert_eq!(ignored("crates/a/tests/it/load.rs", helper), 0);
    }

    #[test]
    fn modules_of_the_one_binary_are_no_binaries() {
        let paths = ["crates/a/tests/it/main.rs", "crates/a/tests/it/support/mod.rs", "crates/a/src/tests/b.rs"];
        assert_eq!(check_binaries(&Tree::from_texts(&paths.map(|path| (path, "\n")))), []);
    }

    #[test]
    fn measurements_and_benchmarks_may_look_at_a_clock() {
        let text = "fn a() {\n    let took = began.elapsed();\n}\n";
        let timed = |path: &str| check_time(&Tree::from_texts(&[(path, text)])).len();
        assert_eq!(timed("crates/a/tests/it/measurements.rs"), 0);
        assert_eq!(timed("crates/a/benches/a.rs"), 0);
        assert_eq!(timed("crates/a/src/a.rs"), 0);
        assert_eq!(timed("crates/a/tests/it/a.rs"), 1);
        let module = format!("mod measurements {{\n{text}}}\n{text}");
        let found = check_time(&Tree::from_texts(&[("crates/a/tests/it/a.rs", &module)]));
        assert_eq!(found.len(), 1, "{found:?}");
    }
}
