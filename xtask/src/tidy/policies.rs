//! A policy is one file and one entry in its table: neither stands without the other.

use super::source::{braces, line_of, words};
use super::tree::{File, Finding, Tree};

/// A table of policies.
struct Family {
    /// The file with the table; the policies lie in the folder of the same name.
    table: &'static str,
    /// What a policy implements.
    implements: &'static str,
}

/// The macro that holds a table.
const MACRO: &str = "policies";

const FAMILIES: &[Family] = &[
    Family { table: "crates/engine/src/admission.rs", implements: "AdmissionPolicy" },
    Family { table: "crates/engine/src/dispatch.rs", implements: "DispatchPolicy" },
    Family { table: "crates/engine/src/partition.rs", implements: "PartitionPolicy" },
];

/// Every file that implements a policy is in its table, and every module the table names has a file.
pub fn check(tree: &Tree) -> Vec<Finding> {
    FAMILIES.iter().flat_map(|family| family.check(tree)).collect()
}

/// Canaries of [`check`].
pub const CANARIES: &[&[(&str, &str)]] = &[
    &[
        (
            "crates/engine/src/admission.rs",
            "policies! {\n    None(\"none\") => none,\n    Gone(\"gone\") => gone,\n}\n",
        ),
        ("crates/engine/src/admission/none.rs", "impl AdmissionPolicy for None {}\n"),
    ],
    &[
        ("crates/engine/src/admission.rs", "policies! {\n    None(\"none\") => none,\n}\n"),
        ("crates/engine/src/admission/none.rs", "impl AdmissionPolicy for None {}\n"),
        ("crates/engine/src/admission/new.rs", "impl AdmissionPolicy for New {}\n"),
    ],
    &[("crates/engine/src/dispatch/jsq.rs", "impl<T> DispatchPolicy for Jsq<T> {}\n")],
    &[("crates/engine/src/dispatch.rs", "policies! {\n    Jsq(\"jsq\") => jsq::Jsq,\n}\n")],
];

impl Family {
    fn check(&self, tree: &Tree) -> Vec<Finding> {
        let table = tree.get(self.table).and_then(|file| self.body(file));
        let (line, body) = table.unwrap_or((1, ""));
        let entries = modules(body);
        let folder = self.table.trim_end_matches(".rs");
        let mut findings = Vec::new();
        for (file, source) in tree.rust() {
            let Some(module) = file.path.strip_prefix(folder).and_then(module_name) else { continue };
            if self.is_policy(source.code()) && !entries.contains(&module) {
                let what = format!("not in the table `{MACRO}!` of {}; add its entry", self.table);
                findings.push(Finding::at(&file.path, 1, what));
            }
        }
        for module in entries {
            let path = format!("{folder}/{module}.rs");
            if !tree.contains(&path) && !tree.contains(&format!("{folder}/{module}")) {
                let what = format!("`{MACRO}!` names `{module}`, but there is no {path}; add it or drop the entry");
                findings.push(Finding::at(self.table, line, what));
            }
        }
        findings
    }

    /// The table's line and what stands between its braces, as code.
    fn body<'a>(&self, file: &'a File) -> Option<(usize, &'a str)> {
        let code = file.source.as_ref()?.code();
        let mut uses = words(code, MACRO).filter(|at| code[at + MACRO.len()..].starts_with('!'));
        let at = uses.next()?;
        let open = at + code[at..].find('{')?;
        Some((line_of(code, at), braces(code, open)?))
    }

    fn is_policy(&self, code: &str) -> bool {
        let implemented = code.lines().filter(|line| line.trim_start().starts_with("impl"));
        let head = format!("{} for ", self.implements);
        implemented.into_iter().any(|line| line.contains(&head))
    }
}

/// `none` for `/none.rs`; none for a deeper path.
fn module_name(rest: &str) -> Option<&str> {
    let name = rest.strip_prefix('/')?.strip_suffix(".rs")?;
    (!name.contains('/')).then_some(name)
}

/// The modules a table names: what stands after each arrow, up to the first `::`.
fn modules(body: &str) -> Vec<&str> {
    let part = |c: char| c.is_alphanumeric() || c == '_';
    let right_sides = body.split("=>").skip(1).map(str::trim_start);
    let names = right_sides.map(|side| &side[..side.find(|c| !part(c)).unwrap_or(side.len())]);
    names.filter(|name| !name.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn helpers_beside_the_policies_need_no_entry() {
        let tree = Tree::from_texts(&[
            ("crates/engine/src/admission.rs", "policies! {\n    None(\"none\") => none,\n}\n"),
            ("crates/engine/src/admission/none.rs", "impl AdmissionPolicy for None {}\n"),
            ("crates/engine/src/admission/window.rs", "pub struct Window;\n"),
        ]);
        assert_eq!(check(&tree), []);
    }

    #[test]
    fn modules_stand_after_the_arrows() {
        assert_eq!(modules("{ pub enum E for T { A(   ) => a, B( ) => b_c::B, } }"), ["a", "b_c"]);
    }

    #[test]
    fn no_engine_yet_is_no_finding() {
        assert_eq!(check(&Tree::default()), []);
    }
}
