//! Functions and files stay short. Today's exceptions are listed with their sizes in a ratchet file: they may shrink,
//! not grow, and an entry that is no longer needed goes.

use std::collections::BTreeMap;
use std::fs;

use anyhow::{Context, Result};

use super::tree::{Finding, Tree};

const FUNCTION_LINES: usize = 80;
const FILE_LINES: usize = 450;
const RATCHET: &str = "xtask/ratchet.txt";
const HEAD: &str = "\
# Functions over 80 lines and files over 450, with their sizes. They may shrink, not grow.
# `cargo xtask tidy --bless` writes this file; a larger number in it needs a reason in the commit.
";

/// Nothing is over its limit but what the ratchet lists, and that has not grown.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let today = measure(tree);
    let text = tree.get(RATCHET).map_or("", |file| &file.text);
    let mut findings = Vec::new();
    let allowed = parse(text, &mut findings);
    for (what, size) in &today {
        let limit = allowed.get(&what.key()).copied().unwrap_or(what.limit());
        if size.lines > limit {
            findings.push(Finding::at(&what.path, size.at, what.too_long(size.lines, limit)));
        }
    }
    for key in allowed.keys().filter(|key| !today.keys().any(|what| what.key() == **key)) {
        let line = text.lines().position(|line| line.ends_with(key)).map_or(1, |index| index + 1);
        let note = format!("`{key}` is within its limit now; run `cargo xtask tidy --bless`");
        findings.push(Finding::at(RATCHET, line, note));
    }
    findings
}

/// Canaries of [`check`]; the long ones are made in the tests below.
pub const CANARIES: &[&[(&str, &str)]] =
    &[&[(RATCHET, "90 fn crates/gone/src/lib.rs gone\n")], &[(RATCHET, "many fn what is this\n")]];

/// Writes today's exceptions to the ratchet file and prints what grew.
///
/// # Errors
/// When the file cannot be written.
pub fn bless(tree: &Tree) -> Result<()> {
    let today = measure(tree);
    let before = tree.get(RATCHET).map_or_else(BTreeMap::new, |file| parse(&file.text, &mut Vec::new()));
    for (what, size) in &today {
        let old = before.get(&what.key()).copied().unwrap_or(what.limit());
        if size.lines > old {
            println!("grew from {old} to {} lines: {}; say why in the commit", size.lines, what.key());
        }
    }
    fs::write(RATCHET, write(&today)).with_context(|| format!("cannot write {RATCHET}"))
}

/// A function or a file over its limit.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Long {
    path: String,
    /// None for the file itself.
    function: Option<String>,
}

/// How long, and on which line it begins.
#[derive(Debug, PartialEq, Eq)]
struct Size {
    lines: usize,
    at: usize,
}

impl Long {
    fn key(&self) -> String {
        match &self.function {
            Some(name) => format!("fn {} {name}", self.path),
            None => format!("file {}", self.path),
        }
    }

    fn limit(&self) -> usize {
        if self.function.is_some() { FUNCTION_LINES } else { FILE_LINES }
    }

    fn too_long(&self, lines: usize, limit: usize) -> String {
        let name = self.function.as_ref().map_or("the file".to_owned(), |name| format!("`{name}`"));
        let grew = if limit > self.limit() { "grew to" } else { "has" };
        format!("{name} {grew} {lines} lines, the limit is {limit}; split it by question")
    }
}

fn measure(tree: &Tree) -> BTreeMap<Long, Size> {
    let mut sizes = BTreeMap::new();
    for (file, source) in tree.rust() {
        let lines = file.lines().count();
        if lines > FILE_LINES {
            sizes.insert(Long { path: file.path.clone(), function: None }, Size { lines, at: 1 });
        }
        for function in source.functions().into_iter().filter(|function| function.lines > FUNCTION_LINES) {
            let long = Long { path: file.path.clone(), function: Some(function.name) };
            let size = Size { lines: function.lines, at: function.line };
            // Two of one name in one file share an entry: the longer counts.
            let known = sizes.get(&long).map_or(0, |known: &Size| known.lines);
            if size.lines > known {
                sizes.insert(long, size);
            }
        }
    }
    sizes
}

fn write(sizes: &BTreeMap<Long, Size>) -> String {
    let lines = sizes.iter().map(|(what, size)| format!("{} {}\n", size.lines, what.key()));
    HEAD.to_owned() + &lines.collect::<String>()
}

fn parse(text: &str, findings: &mut Vec<Finding>) -> BTreeMap<String, usize> {
    let mut sizes = BTreeMap::new();
    for (index, line) in text.lines().enumerate().filter(|(_, line)| !line.starts_with('#') && !line.is_empty()) {
        let entry = line.split_once(' ').and_then(|(lines, key)| Some((key.to_owned(), lines.parse().ok()?)));
        match entry {
            Some((key, lines)) => {
                sizes.insert(key, lines);
            }
            None => findings.push(Finding::at(RATCHET, index + 1, "not `LINES KEY`; run `cargo xtask tidy --bless`")),
        }
    }
    sizes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn function(lines: usize) -> String {
        format!("fn long() {{\n{}}}\n", "    a();\n".repeat(lines - 2))
    }

    fn findings(text: &str, ratchet: &str) -> Vec<String> {
        let tree = Tree::from_texts(&[("crates/a/src/a.rs", text), (RATCHET, ratchet)]);
        check(&tree).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_long_function_and_a_long_file_are_found() {
        assert!(findings(&function(80), "").is_empty());
        let found = findings(&function(81), "");
        assert!(found[0].starts_with("crates/a/src/a.rs:1: `long` has 81 lines"), "{found:?}");
        assert!(findings(&"// a\n".repeat(450), "").is_empty());
        assert_eq!(findings(&"// a\n".repeat(451), "").len(), 1);
    }

    #[test]
    fn the_ratchet_turns_one_way() {
        let entry = "90 fn crates/a/src/a.rs long\n";
        assert!(findings(&function(90), entry).is_empty());
        assert!(findings(&function(85), entry).is_empty());
        assert!(findings(&function(91), entry)[0].contains("grew to 91 lines, the limit is 90"));
        assert!(findings(&function(80), entry)[0].starts_with("xtask/ratchet.txt:1: "));
    }

    #[test]
    fn what_is_written_is_read_back() {
        let text = function(99) + &"// a\n".repeat(400);
        let tree = Tree::from_texts(&[("crates/a/src/a.rs", &text)]);
        let written = write(&measure(&tree));
        assert!(findings(&text, &written).is_empty(), "{written}");
        assert_eq!(parse(&written, &mut Vec::new()).len(), 2);
    }
}
