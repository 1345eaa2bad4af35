//! A radix tree from path prefixes to rules: one walk along a path meets every prefix of it that has rules.

use alloc::boxed::Box;
use alloc::vec::Vec;

/// Edges carry one byte or more; no two children of a node begin with the same byte.
#[derive(Clone, Debug, Default)]
pub(super) struct Radix {
    label: Box<[u8]>,
    rules: Vec<u32>,
    children: Vec<Radix>,
}

impl Radix {
    /// Files `rule` under `prefix`. Rules must come in ascending order, and stay so in every list.
    pub(super) fn insert(&mut self, prefix: &[u8], rule: u32) {
        let Some(&first) = prefix.first() else {
            self.rules.push(rule);
            return;
        };
        match self.children.binary_search_by_key(&first, |child| child.label[0]) {
            Ok(at) => self.children[at].insert_below(prefix, rule),
            Err(at) => {
                let leaf = Radix { label: prefix.into(), rules: [rule].into(), children: Vec::new() };
                self.children.insert(at, leaf);
            }
        }
    }

    /// Files `rule` at or below this node, whose label shares at least one byte with `prefix`.
    fn insert_below(&mut self, prefix: &[u8], rule: u32) {
        let shared = self.label.iter().zip(prefix).take_while(|(a, b)| a == b).count();
        if shared < self.label.len() {
            self.split(shared);
        }
        self.insert(&prefix[shared..], rule);
    }

    /// Cuts this node's label after `at` bytes; what the node had moves below the cut.
    fn split(&mut self, at: usize) {
        let label = core::mem::take(&mut self.label);
        let lower = Radix {
            label: label[at..].into(),
            rules: core::mem::take(&mut self.rules),
            children: core::mem::take(&mut self.children),
        };
        self.label = label[..at].into();
        self.children.push(lower);
    }

    /// Gives `visit` the rules of every prefix of `path`, shortest prefix first.
    pub(super) fn walk(&self, path: &[u8], mut visit: impl FnMut(&[u32])) {
        let mut node = self;
        let mut rest = path;
        loop {
            if !node.rules.is_empty() {
                visit(&node.rules);
            }
            let Some(&first) = rest.first() else { return };
            let Ok(at) = node.children.binary_search_by_key(&first, |child| child.label[0]) else { return };
            node = &node.children[at];
            let Some(after) = rest.strip_prefix(&*node.label) else { return };
            rest = after;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn one_walk_meets_every_prefix() {
        let mut tree = Radix::default();
        for (rule, prefix) in ["/a", "/api/v1", "/api", "/api/v2", "", "/b", "/api"].iter().enumerate() {
            tree.insert(prefix.as_bytes(), rule as u32);
        }
        let met = |path: &str| {
            let mut met = vec![];
            tree.walk(path.as_bytes(), |rules| met.extend_from_slice(rules));
            met
        };
        assert_eq!(met("/api/v1/x"), [4, 0, 2, 6, 1]);
        assert_eq!(met("/api/v"), [4, 0, 2, 6]);
        assert_eq!(met("/ap"), [4, 0]);
        assert_eq!(met("/b"), [4, 5]);
        assert_eq!(met(""), [4]);
    }
}
