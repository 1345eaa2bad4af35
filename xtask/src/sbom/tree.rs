//! What `cargo tree` prints, as a graph.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, ensure};

/// What cargo is to print of a crate, behind its depth: package, licence, repository, features.
pub const FORMAT: &str = "|{p}|{l}|{r}|{f}";

/// Behind a crate whose own dependencies were printed before.
const SEEN: &str = " (*)";

/// One crate in the program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Crate {
    pub name: String,
    pub version: String,
    /// As its manifest states it.
    pub licence: String,
    /// Where its source is developed; may be empty.
    pub repository: String,
    /// With commas between them.
    pub features: String,
}

/// The crates, the program first, and which needs which.
#[derive(Debug, Default)]
pub struct Tree {
    pub crates: Vec<Crate>,
    needs: BTreeSet<(usize, usize)>,
}

impl Tree {
    /// Reads what cargo printed with `--prefix depth` and [`FORMAT`].
    ///
    /// # Errors
    /// When a line is none of those, or no crate was printed.
    pub fn read(text: &str) -> Result<Self> {
        let mut tree = Self::default();
        let mut places = BTreeMap::new();
        // The crates above the one that is read.
        let mut above: Vec<usize> = Vec::new();
        for line in text.lines() {
            let (depth, one) = read_line(line).with_context(|| format!("cargo tree printed `{line}`"))?;
            ensure!(depth <= above.len(), "cargo tree left something out before `{line}`");
            above.truncate(depth);
            let at = *places.entry((one.name.clone(), one.version.clone())).or_insert(tree.crates.len());
            if at == tree.crates.len() {
                tree.crates.push(one);
            }
            if let Some(user) = above.last() {
                tree.needs.insert((*user, at));
            }
            above.push(at);
        }
        ensure!(!tree.crates.is_empty(), "cargo tree printed nothing");
        Ok(tree)
    }

    /// What the crate at a place needs.
    pub fn needs(&self, at: usize) -> impl Iterator<Item = usize> {
        self.needs.range((at, 0)..=(at, usize::MAX)).map(|(_, needed)| *needed)
    }
}

fn read_line(line: &str) -> Option<(usize, Crate)> {
    let mut parts = line.strip_suffix(SEEN).unwrap_or(line).splitn(5, '|');
    let depth = parts.next()?.parse().ok()?;
    // `name v1.2.3`, and behind it the folder of one that comes from no registry: that is this machine's affair.
    let mut package = parts.next()?.split(' ');
    let one = Crate {
        name: package.next()?.to_owned(),
        version: package.next()?.strip_prefix('v')?.to_owned(),
        licence: parts.next()?.to_owned(),
        repository: parts.next()?.to_owned(),
        features: parts.next()?.to_owned(),
    };
    Some((depth, one))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_is_read_with_what_was_printed_before() {
        let text = "0|top v0.1.0 (/folder/top)|MIT|https://a|\n1|left v1.0.0|MIT||std\n2|low v2.0.0|MIT||a,b\n\
            1|right v1.0.0|MIT||\n2|left v1.0.0|MIT||std (*)\n";
        let tree = Tree::read(text).unwrap();
        let names: Vec<&str> = tree.crates.iter().map(|one| one.name.as_str()).collect();
        assert_eq!(names, ["top", "left", "low", "right"]);
        assert_eq!(tree.crates[0].version, "0.1.0");
        assert_eq!(tree.crates[2].features, "a,b");
        assert_eq!(tree.crates[1].features, "std");
        let needs = |at| tree.needs(at).collect::<Vec<_>>();
        assert_eq!((needs(0), needs(1), needs(2), needs(3)), (vec![1, 3], vec![2], vec![], vec![1]));
    }

    #[test]
    fn what_is_no_tree_is_refused() {
        for wrong in ["", "top v0.1.0", "0|top|MIT||", "0|top v1|MIT||\n2|low v1|MIT||"] {
            assert!(Tree::read(wrong).is_err(), "{wrong}");
        }
    }
}
