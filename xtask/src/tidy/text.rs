//! Rules about single lines: what is unfinished, too wide, untidy, or true on one machine only.

use super::source::{line_of, words};
use super::tree::{File, Finding, Tree};

/// The widest comment, in characters.
const WIDTH: usize = 120;
/// The widest line of code: rustfmt breaks what it can at 120 and leaves strings and macros alone.
const CODE_WIDTH: usize = 150;

/// Nothing unfinished outside tests: no `todo!`, `unimplemented!`, `dbg!`, and no mark of that kind in a comment.
pub fn check_unfinished(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (file, source) in tree.rust() {
        for (at, line) in source.code_lines().filter(|(at, _)| !source.is_test(*at)) {
            for name in ["todo", "unimplemented", "dbg"] {
                if words(line, name).any(|start| line[start + name.len()..].starts_with('!')) {
                    findings.push(Finding::at(&file.path, at, format!("{name}! is unfinished work; finish it")));
                }
            }
        }
        for (at, line) in source.comment_lines().filter(|(at, _)| !source.is_test(*at)) {
            for mark in ["FIXME", "XXX"] {
                if words(line, mark).next().is_some() {
                    let what = format!("{mark} marks unfinished work; finish it, or open an issue and say it plainly");
                    findings.push(Finding::at(&file.path, at, what));
                }
            }
        }
    }
    findings
}

/// Canaries of [`check_unfinished`].
pub const UNFINISHED_CANARIES: &[&[(&str, &str)]] = &[
    &[("crates/sentry/src/a.rs", "fn a() {\n    todo!(\"later\")\n}\n")],
    &[("crates/sentry/src/a.rs", "fn a() {\n    unimplemented!()\n}\n")],
    &[("crates/sentry/src/a.rs", "fn a() {\n    dbg!(1);\n}\n")],
    &[("crates/sentry/src/a.rs", "// FIXME: wrong\n")],
    &[("crates/sentry/src/a.rs", "/* XXX */\n")],
];

/// An exception to a lint, `#[allow(…)]` or `#[expect(…)]`, gives its reason.
pub fn check_reasons(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (file, source) in tree.rust() {
        let code = source.code();
        for start in ["[allow(", "[expect("] {
            for (at, _) in code.match_indices(start).filter(|(at, _)| code[..*at].ends_with(['#', '!'])) {
                let attribute = code[at..].split(']').next().unwrap_or_default();
                if words(attribute, "reason").next().is_none() {
                    let what = "an exception to a lint without a reason; add `reason = \"…\"`, or mend what it hides";
                    findings.push(Finding::at(&file.path, line_of(code, at), what));
                }
            }
        }
    }
    findings
}

/// Canaries of [`check_reasons`].
pub const REASON_CANARIES: &[&[(&str, &str)]] = &[
    &[("crates/sentry/src/a.rs", "#[allow(dead_code)]\nfn a() {}\n")],
    &[("crates/sentry/src/a.rs", "#![allow(missing_docs)] // reason = none\n")],
    &[("crates/sentry/src/a.rs", "#[expect(\n    clippy::all\n)]\nfn a() {}\n")],
];

/// No comment is wider than [`WIDTH`], no other line of Rust wider than [`CODE_WIDTH`].
pub fn check_width(tree: &Tree) -> Vec<Finding> {
    let limit = |line: &str| if line.trim_start().starts_with("//") { WIDTH } else { CODE_WIDTH };
    let lines = tree.rust().flat_map(|(file, _)| file.lines().map(move |line| (file, line)));
    let wide = lines.map(|(file, (at, line))| (file, at, line.chars().count(), limit(line)));
    wide.filter(|wide| wide.2 > wide.3)
        .map(|(file, at, width, limit)| {
            Finding::at(&file.path, at, format!("{width} characters wide, the limit is {limit}; break the line"))
        })
        .collect()
}

/// Canaries of [`check_width`]; the line has 121 characters.
pub const WIDTH_CANARIES: &[&[(&str, &str)]] = &[&[(
    "crates/sentry/src/a.rs",
    "// 3456789 123456789 123456789 123456789 123456789 123456789 123456789 123456789 123456789 \
     123456789 123456789 123456789 1\n",
)]];

/// No trailing white space, no tabs in Rust, a line end at the end of the file.
pub fn check_space(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.files.iter().filter(|file| is_written_by_hand(file)) {
        for (at, line) in file.lines() {
            if line.ends_with([' ', '\t', '\r']) {
                findings.push(Finding::at(&file.path, at, "white space at the end of the line; remove it"));
            }
            if file.source.is_some() && line.contains('\t') {
                findings.push(Finding::at(&file.path, at, "a tab; use spaces, or \\t in a string"));
            }
        }
        if !file.text.is_empty() && !file.text.ends_with('\n') {
            let last = file.lines().count();
            findings.push(Finding::at(&file.path, last, "no line end at the end of the file; add it"));
        }
    }
    findings
}

/// Canaries of [`check_space`].
pub const SPACE_CANARIES: &[&[(&str, &str)]] = &[
    &[("README.md", "a line \nand one\n")],
    &[("crates/sentry/src/a.rs", "fn a() {\n\tb()\n}\n")],
    &[("clippy.toml", "a = 1")],
];

/// No paths of one machine, and no package registry's address: what is committed must work on another machine.
pub fn check_local_names(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in &tree.files {
        for (at, line) in file.lines() {
            for folder in FOLDERS.iter().filter(|folder| names_folder(line, folder)) {
                let what = format!("{folder} is a path of one machine; use a relative or temporary path");
                findings.push(Finding::at(&file.path, at, what));
            }
            for host in REGISTRIES.iter().filter(|host| line.contains(**host)) {
                let what = format!("{host} is a package registry; leave the choice to the machine's configuration");
                findings.push(Finding::at(&file.path, at, what));
            }
            if file.path.ends_with("Cargo.lock") && is_foreign_source(line) {
                let what = "a package from another source than crates.io; take it from there";
                findings.push(Finding::at(&file.path, at, what));
            }
        }
    }
    findings
}

/// Canaries of [`check_local_names`].
pub const LOCAL_NAME_CANARIES: &[&[(&str, &str)]] = &[
    &[("README.md", concat!("Look in /ho", "me/me/notes.\n"))],
    &[("crates/sentry/src/a.rs", concat!("const A: &str = \"/ro", "ot/a\";\n"))],
    &[("docs/a.toml", concat!("file = \"/wo", "rk/a\"\n"))],
    &[("a.snap", concat!("source: ../../wo", "rk/a\n"))],
    &[("a.sh", concat!("curl https://static.crates", ".io/x\n"))],
    &[("Cargo.lock", "source = \"registry+https://example.net/index\"\n")],
];

// In two parts, so that this file passes its own check.
const FOLDERS: &[&str] = &[concat!("/ho", "me/"), concat!("/ro", "ot/"), concat!("/wo", "rk/"), concat!("/Us", "ers/")];
const REGISTRIES: &[&str] = &[
    concat!("index.crates", ".io"),
    concat!("static.crates", ".io"),
    concat!("registry.npmjs", ".org"),
    concat!("pypi", ".org"),
    concat!("proxy.golang", ".org"),
    concat!("deb.debian", ".org"),
];

/// Whether the line names the folder as an absolute path, or climbs up to it, not as a part of a longer path or an
/// address.
fn names_folder(line: &str, folder: &str) -> bool {
    line.match_indices(folder).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        line[..at].ends_with("..") || before.is_none_or(|c| !c.is_alphanumeric() && !"._-~*}/>".contains(c))
    })
}

fn is_foreign_source(line: &str) -> bool {
    line.strip_prefix("source = ").is_some_and(|source| !source.contains("github.com/rust-lang/crates.io-index"))
}

fn is_written_by_hand(file: &File) -> bool {
    // Golden files and drawings are written by programs, licences by lawyers.
    let made = [".snap", ".svg", ".json", ".csv"].iter().any(|end| file.path.ends_with(end));
    !made && !file.path.starts_with("LICENSE")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unfinished_words_in_strings_and_tests_are_allowed() {
        let text =
            "const A: &str = \"todo!(FIXME)\";\n#[cfg(test)]\nmod tests {\n    // XXX\n    fn a() { todo!() }\n}\n";
        assert_eq!(check_unfinished(&Tree::from_texts(&[("crates/a/src/a.rs", text)])), []);
    }

    #[test]
    fn addresses_and_longer_paths_are_no_machine_paths() {
        let text = concat!("https://example.net/ho", "me/ and `var/wo", "rk/` and $PREFIX/x\n");
        assert_eq!(check_local_names(&Tree::from_texts(&[("README.md", text)])), []);
    }

    #[test]
    fn an_exception_with_a_reason_is_allowed() {
        let text =
            "#[expect(\n    dead_code,\n    reason = \"[used] by a macro\"\n)]\nfn a(v: &[u8]) { v[allow(1)] }\n";
        assert_eq!(check_reasons(&Tree::from_texts(&[("crates/a/src/a.rs", text)])), []);
    }

    #[test]
    fn width_counts_characters_and_not_bytes() {
        let line = "é".repeat(WIDTH) + "\n";
        assert_eq!(check_width(&Tree::from_texts(&[("crates/a/src/a.rs", &line)])), []);
    }

    #[test]
    fn golden_files_may_end_as_they_like() {
        assert_eq!(check_space(&Tree::from_texts(&[("crates/a/a.snap", "x  \ny")])), []);
    }
}
