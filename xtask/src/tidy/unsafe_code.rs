//! Unsafe code stands in few files, and a crate without any forbids it.
//!
//! The compiler holds the rest: under `forbid` there is none, under `deny` each function that has some says why
//! (`#[expect(unsafe_code, reason = "...")]`).

use super::source::words;
use super::tree::{Finding, Tree};

/// The files that may have unsafe code. Their crates deny it, all others forbid it.
const FILES: &[&str] = &[
    "crates/experiment/src/service/apache.rs",
    "crates/ffi/src/abi.rs",
    "crates/kernel/src/lib.rs",
    "crates/kernel/src/netlink.rs",
    "crates/loadgen/src/timer.rs",
    "crates/nucleus/src/lean.rs",
    "crates/nucleus/src/nucleus.rs",
    "crates/nucleus/src/workers.rs",
    "crates/sentry/src/accept.rs",
    "crates/sentry/src/gate/reader.rs",
    "crates/sentry/src/gate/wire.rs",
    "crates/sentry/src/heap.rs",
    "crates/sentry/src/reports/port.rs",
    "crates/sentry/src/sockets/environment.rs",
    "crates/tidegate/src/cmd/nucleus.rs",
    "xtask/src/bench/service.rs",
];

/// Every crate forbids or denies unsafe code, as [`FILES`] has none or some of it, and no other file has any.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let crates = || tree.files.iter().filter_map(|file| file.path.strip_suffix("/Cargo.toml"));
    let roots = crates().flat_map(|folder| ["lib.rs", "main.rs"].map(|name| (folder, format!("{folder}/src/{name}"))));
    let mut findings: Vec<Finding> = roots.filter_map(|(folder, root)| check_root(tree, folder, &root)).collect();
    for (file, source) in tree.rust().filter(|(file, _)| is_shipped(&file.path)) {
        let has = source.code_lines().find(|(_, line)| words(line, "unsafe").next().is_some());
        match (has, FILES.contains(&file.path.as_str())) {
            (Some((at, _)), false) => {
                let what = "unsafe code; do without, or enter the file in xtask/src/tidy/unsafe_code.rs";
                findings.push(Finding::at(&file.path, at, what));
            }
            (None, true) => findings.push(Finding::at(&file.path, 1, GONE)),
            _ => {}
        }
    }
    let missing = FILES.iter().filter(|path| tree.get(path).is_none());
    let missing = missing.filter(|path| crates().any(|folder| is_below(path, folder)));
    findings.extend(missing.map(|path| Finding::at(path, 1, GONE)));
    findings
}

/// Canaries of [`check`].
pub const CANARIES: &[&[(&str, &str)]] = &[
    &[("crates/engine/Cargo.toml", ""), ("crates/engine/src/lib.rs", "//! The engine.\n")],
    &[("crates/engine/Cargo.toml", ""), ("crates/engine/src/lib.rs", "#![deny(unsafe_code)]\n")],
    &[("crates/kernel/Cargo.toml", ""), ("crates/kernel/src/lib.rs", "//! None is denied.\n")],
    &[("apps/mail/Cargo.toml", ""), ("apps/mail/src/main.rs", "// #![forbid(unsafe_code)]\nfn main() {}\n")],
    &[("crates/kernel/src/new.rs", "fn f() {\n    unsafe { g() }\n}\n")],
    &[("crates/kernel/src/netlink.rs", "fn f() {}\n")],
    &[("crates/loadgen/Cargo.toml", "")],
];

const GONE: &str = "has no unsafe code any more; take it out of xtask/src/tidy/unsafe_code.rs";

fn check_root(tree: &Tree, folder: &str, root: &str) -> Option<Finding> {
    let source = tree.get(root)?.source.as_ref()?;
    let level = if FILES.iter().any(|path| is_below(path, folder)) { "deny" } else { "forbid" };
    let attribute = format!("#![{level}(unsafe_code)]");
    let has = source.code_lines().any(|(_, line)| line.trim() == attribute);
    (!has).then(|| Finding::at(root, 1, format!("the crate does not say `{attribute}`; add it")))
}

fn is_below(path: &str, folder: &str) -> bool {
    path.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'))
}

/// Whether the file is a part of a library or a program, and not of its tests or benchmarks.
fn is_shipped(path: &str) -> bool {
    path.contains("/src/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_words_and_a_lint_s_name_are_no_unsafe_code() {
        let tree = Tree::from_texts(&[
            ("crates/engine/Cargo.toml", ""),
            ("crates/engine/src/lib.rs", "//! No unsafe code.\n#![forbid(unsafe_code)]\nconst A: &str = \"unsafe\";\n"),
            ("crates/engine/tests/it/counting.rs", "unsafe impl GlobalAlloc for Counting {}\n"),
        ]);
        assert_eq!(check(&tree), []);
    }

    #[test]
    fn a_crate_with_some_denies_it() {
        let tree = Tree::from_texts(&[
            ("crates/loadgen/Cargo.toml", ""),
            ("crates/loadgen/src/lib.rs", "#![deny(unsafe_code)]\n"),
            ("crates/loadgen/src/timer.rs", "fn f() {\n    unsafe { g() }\n}\n"),
        ]);
        assert_eq!(check(&tree), []);
    }
}
