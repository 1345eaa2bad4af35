//! What is a policy's own stays in its own files: others hardly name it.
//!
//! A policy is added by writing its file and its entry in the table. How far that is true shows in how many other files
//! know it: by its module, its entry, its name where something is told apart by names, or what only it shows and says.

use super::source::words;
use super::tree::{File, Finding, Tree};

/// As many files beyond its own may name a policy, its table among them.
const MOST: usize = 8;

/// A policy whose own affairs reach far: it shows, says or does what no other does.
struct Policy {
    name: &'static str,
    /// Its entry in the table.
    entry: &'static str,
    /// Its file and folder, and its module.
    own: &'static str,
    module: &'static str,
    /// What else is its own: types, and texts with their quotes.
    also: &'static [&'static str],
}

const POLICIES: &[Policy] = &[
    Policy {
        name: "resource",
        entry: "AdmissionConfig::Resource",
        own: "crates/engine/src/admission/resource",
        module: "admission::resource",
        also: &["Protection", "list(\"resources\")", "list(\"uses\")", "\"resource-controlled\""],
    },
    Policy {
        name: "switch",
        entry: "AdmissionConfig::Switch",
        own: "crates/engine/src/admission/switch",
        module: "admission::switch",
        also: &[],
    },
    Policy {
        name: "aimd",
        entry: "AdmissionConfig::Aimd",
        own: "crates/engine/src/admission/aimd",
        module: "admission::aimd",
        also: &["list(\"controllers\")"],
    },
    Policy {
        name: "softscale",
        entry: "DispatchConfig::Softscale",
        own: "crates/engine/src/dispatch/softscale",
        module: "dispatch::softscale",
        also: &["\"softscale\"", "StealingProfile", "ProfileStep", "facts(\"stealing\")", "\"lending-changed\""],
    },
];

/// No policy of [`POLICIES`] is named in more than [`MOST`] production files that are not its own.
pub fn check(tree: &Tree) -> Vec<Finding> {
    POLICIES.iter().filter_map(|policy| policy.check(tree)).collect()
}

/// Canaries of [`check`]: one for each way of naming a policy.
pub const CANARIES: &[&[(&str, &str)]] = &[
    &many("fn f(policy: &AdmissionConfig) -> bool {\n    matches!(policy, AdmissionConfig::Resource(_))\n}\n"),
    &many("use crate::dispatch::softscale::Config;\n"),
    &many("fn f(setup: &Setup) -> bool {\n    setup.admission.name() == \"switch\"\n}\n"),
    &many("fn f(own: &Facts) -> usize {\n    own.list(\"controllers\").count()\n}\n"),
];

/// One file more than there may be, all of this text.
const fn many(text: &'static str) -> [(&'static str, &'static str); MOST + 1] {
    [
        ("crates/a/src/a.rs", text),
        ("crates/a/src/b.rs", text),
        ("crates/a/src/c.rs", text),
        ("crates/a/src/d.rs", text),
        ("crates/a/src/e.rs", text),
        ("crates/b/src/a.rs", text),
        ("crates/b/src/b.rs", text),
        ("crates/b/src/c.rs", text),
        ("crates/b/src/d.rs", text),
    ]
}

impl Policy {
    fn check(&self, tree: &Tree) -> Option<Finding> {
        let foreign = self.foreign(tree);
        let (path, line) = foreign.get(MOST)?;
        let what = format!(
            "the policy `{}` is named in {} files beside its own, at most {MOST} may: ask what it demands, shows or \
             does in general",
            self.name,
            foreign.len()
        );
        Some(Finding::at(path, *line, what))
    }

    /// The production files that name it, and where first.
    fn foreign<'t>(&self, tree: &'t Tree) -> Vec<(&'t str, usize)> {
        let crates = tree.files.iter().filter(|file| file.path.starts_with("crates/"));
        crates.filter_map(|file| Some((file.path.as_str(), self.named_in(file)?))).collect()
    }

    fn named_in(&self, file: &File) -> Option<usize> {
        let source = file.source.as_ref()?;
        let rest = file.path.strip_prefix(self.own);
        if rest.is_some_and(|rest| rest == ".rs" || rest.starts_with('/')) {
            return None;
        }
        let comments = source.comment_lines().map(|(_, comment)| comment);
        let lines = file.lines().zip(comments).filter(|((at, _), _)| !source.is_test(*at));
        let mut named = lines.filter(|((_, line), comment)| {
            // A comment is blank in the code, and the code in a comment.
            let code: String = line.chars().zip(comment.chars()).map(|(c, d)| if d == ' ' { c } else { ' ' }).collect();
            self.is_named(&file.path, &code)
        });
        named.next().map(|((at, _), _)| at)
    }

    /// Whether a line without its comments names it.
    fn is_named(&self, path: &str, line: &str) -> bool {
        let (family, module) = self.module.split_once("::").unwrap_or(("", self.module));
        let within = path.strip_prefix("crates/engine/src/").is_some_and(|rest| rest.starts_with(family));
        let near = [format!("mod {module}"), format!("super::{module}")];
        let compared = ["== ", "!= "].map(|sign| format!("{sign}\"{}\"", self.name));
        let mut everywhere = compared.iter().map(String::as_str).chain([self.entry, self.module]);
        let has = |text: &str| words(line, text).next().is_some();
        everywhere.any(has)
            || line.contains(&format!("\"{}\" =>", self.name))
            || (within && near.iter().any(|text| has(text)))
            || self.also.iter().any(|text| if text.contains('"') { line.contains(text) } else { has(text) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(files: &[(&str, &str)]) -> Vec<usize> {
        let tree = Tree::from_texts(files);
        POLICIES.iter().map(|policy| policy.foreign(&tree).len()).collect()
    }

    #[test]
    fn its_own_files_tests_and_comments_do_not_count() {
        let text = "use crate::dispatch::softscale::Config;\n";
        assert_eq!(count(&[("crates/engine/src/dispatch/softscale/pool.rs", text)]), [0; 4]);
        assert_eq!(count(&[("crates/sim/tests/it/a.rs", text)]), [0; 4]);
        assert_eq!(count(&[("crates/sim/src/a.rs", "// Like AdmissionConfig::Resource.\n")]), [0; 4]);
        assert_eq!(count(&[("crates/sim/src/a.rs", "let admission::aimd_limit = 1; // admission::aimd\n")]), [0; 4]);
    }

    #[test]
    fn the_table_counts() {
        let table = "mod resource;\nmod switch;\n";
        assert_eq!(count(&[("crates/engine/src/admission.rs", table)]), [1, 1, 0, 0]);
        assert_eq!(count(&[("crates/sentry/src/lib.rs", table)]), [0; 4], "another module of that name");
    }

    #[test]
    fn as_many_as_may_are_no_finding() {
        let all = many("use crate::dispatch::softscale::Config;\n");
        assert_eq!(check(&Tree::from_texts(&all[..MOST])), []);
        assert_eq!(check(&Tree::from_texts(&all)).len(), 1);
    }
}
