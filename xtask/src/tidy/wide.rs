//! State that does something is in parts: a struct of many fields lets every step touch all of them.

use std::collections::BTreeSet;

use super::source::{Source, braces, line_of, words};
use super::tree::{Finding, Tree};

/// As many fields may a struct have whose methods change it.
const MOST: usize = 20;

/// Structs that have more, and why.
const EXCEPTIONS: &[(&str, &str, &str)] = &[(
    "crates/experiment",
    "Scenario",
    "a file's tables as they are typed; what changes it makes a run of it shorter",
)];

/// No struct that has a method with `&mut self` has more than [`MOST`] fields.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let changed: BTreeSet<(&str, String)> = tree
        .rust()
        .flat_map(|(file, source)| changed(source).into_iter().map(|name| (file.path.as_str(), name)))
        .collect();
    let mut findings = Vec::new();
    for (file, source) in tree.rust() {
        let folder = file.path.rsplit_once('/').map_or("", |(folder, _)| folder);
        // Of several of one name in a crate: methods lie in the struct's folder or below.
        let changes = |name: &str| changed.iter().any(|(path, of)| of == name && path.starts_with(folder));
        let excepted =
            |name: &str| EXCEPTIONS.iter().any(|(of, except, _)| file.path.starts_with(of) && *except == name);
        for Struct { name, line, fields } in structs(source) {
            if fields > MOST && !source.is_test(line) && changes(&name) && !excepted(&name) {
                let what = format!("`{name}` changes itself and has {fields} fields, the limit is {MOST}");
                findings.push(Finding::at(&file.path, line, what + "; split its state by question"));
            }
        }
    }
    findings
}

/// A struct of one field too many.
macro_rules! wide {
    () => {
        concat!(
            "pub struct Wide<'w> {\n    pub a: u8,\n    /// B.\n    #[serde(default)]\n    pub(crate) b: Vec<(u8, u8)>,\n",
            "    c: u8,\n    d: u8,\n    e: u8,\n    f: u8,\n    g: u8,\n    h: u8,\n    i: u8,\n    j: u8,\n    k: u8,\n",
            "    l: u8,\n    m: u8,\n    n: u8,\n    o: u8,\n    p: u8,\n    q: u8,\n    r: u8,\n    s: u8,\n    t: u8,\n",
            "    u: std::marker::PhantomData<&'w u8>,\n}\n"
        )
    };
}

/// Canaries of [`check`].
pub const CANARIES: &[&[(&str, &str)]] = &[
    &[("crates/a/src/a.rs", concat!(wide!(), "impl Wide {\n    fn go(&mut self) {}\n}\n"))],
    &[
        ("crates/a/src/a.rs", wide!()),
        ("crates/a/src/b.rs", "impl<'w> Go<'w> for super::Wide<'w> {\n    fn go(&mut self) {}\n}\n"),
    ],
];

struct Struct {
    name: String,
    line: usize,
    fields: usize,
}

/// Structs with named fields.
fn structs(source: &Source) -> Vec<Struct> {
    let code = source.code();
    let found = words(code, "struct").filter_map(|at| {
        let rest = &code[at + "struct".len()..];
        let name = first_word(rest)?;
        let open = rest.find(['{', ';'])?;
        let body = braces(code, at + "struct".len() + open)?;
        let fields = body.lines().filter(|line| is_field(line)).count();
        rest[open..].starts_with('{').then(|| Struct { name, line: line_of(code, at), fields })
    });
    found.collect()
}

/// Whether a formatted line begins a field.
fn is_field(line: &str) -> bool {
    let line = line.trim_start();
    let line = match line.strip_prefix("pub") {
        Some(rest) if rest.starts_with('(') => rest.split_once(')').map_or("", |(_, rest)| rest),
        Some(rest) if rest.starts_with(' ') => rest,
        _ => line,
    };
    let Some(name) = first_word(line) else { return false };
    line.trim_start().strip_prefix(name.as_str()).is_some_and(|rest| rest.starts_with(": "))
}

/// Types that have a method with `&mut self`.
fn changed(source: &Source) -> Vec<String> {
    let code = source.code();
    let found = words(code, "impl").filter_map(|at| {
        let rest = &code[at + "impl".len()..];
        let open = rest.find('{')?;
        // `-> impl Iterator` ends before its brace.
        let head = rest[..open].split(" where").next()?;
        let of = head.rsplit_once(" for ").map_or_else(|| after_generics(head), |(_, of)| of);
        let path = of.trim().split('<').next()?;
        let name = first_word(path.rsplit("::").next()?)?;
        let body = braces(code, at + "impl".len() + open)?;
        body.contains("&mut self").then_some(name)
    });
    found.collect()
}

/// What follows the parameters of an `impl`.
fn after_generics(head: &str) -> &str {
    let mut depth = 0usize;
    for (at, c) in head.char_indices() {
        match c {
            '<' => depth += 1,
            '>' => depth = depth.saturating_sub(1),
            c if depth == 0 && !c.is_whitespace() => return &head[at..],
            _ => {}
        }
    }
    ""
}

fn first_word(text: &str) -> Option<String> {
    let word: String = text.trim_start().chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
    (!word.is_empty()).then_some(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_may_be_wide_and_what_changes_may_have_twenty_fields() {
        let findings = |text: &str| check(&Tree::from_texts(&[("crates/a/src/a.rs", text)])).len();
        let change = "impl Wide<'_> {\n    fn go(&mut self) {}\n}\n";
        assert_eq!(findings(wide!()), 0);
        assert_eq!(findings(&[wide!(), "impl Wide<'_> {\n    fn look(&self) {}\n}\n"].concat()), 0);
        assert_eq!(findings(&[wide!(), change].concat()), 1);
        let fewer = wide!().replace("    c: u8,\n", "");
        assert_eq!(findings(&[fewer.as_str(), change].concat()), 0);
    }

    #[test]
    fn another_folders_struct_of_that_name_is_another() {
        let tree = Tree::from_texts(&[
            ("crates/a/src/a.rs", wide!()),
            ("crates/b/src/a.rs", "impl Wide {\n    fn go(&mut self) {}\n}\n"),
        ]);
        assert_eq!(check(&tree), []);
    }
}
