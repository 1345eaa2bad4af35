//! The documents keep up with the source: every crate is in ARCHITECTURE.md, and every link of ours leads somewhere.

use super::tree::{File, Finding, Tree};

const ARCHITECTURE: &str = "ARCHITECTURE.md";

/// Every crate is named in ARCHITECTURE.md by its folder.
pub fn check_architecture(tree: &Tree) -> Vec<Finding> {
    let Some(document) = tree.get(ARCHITECTURE) else {
        return vec![Finding::at(ARCHITECTURE, 1, "missing; write down the path of a request and every crate")];
    };
    let folders = tree.files.iter().filter_map(|file| file.path.strip_suffix("/Cargo.toml"));
    let unnamed = folders.filter(|folder| !names(&document.text, folder));
    unnamed.map(|folder| Finding::at(ARCHITECTURE, 1, format!("`{folder}` is not named; say what it is for"))).collect()
}

/// Canaries of [`check_architecture`].
pub const ARCHITECTURE_CANARIES: &[&[(&str, &str)]] = &[
    &[],
    &[(ARCHITECTURE, "Nothing.\n"), ("crates/engine/Cargo.toml", "")],
    &[(ARCHITECTURE, "See crates/simulator.\n"), ("crates/sim/Cargo.toml", "")],
];

/// Every relative link in Markdown leads to a file of the tree, and its `#part` to a heading.
pub fn check_links(tree: &Tree) -> Vec<Finding> {
    let documents = tree.files.iter().filter(|file| file.path.ends_with(".md"));
    documents.flat_map(|file| check_document(tree, file)).collect()
}

/// Canaries of [`check_links`].
pub const LINK_CANARIES: &[&[(&str, &str)]] = &[
    &[("README.md", "See [that](docs/gone.md).\n")],
    &[("docs/a.md", "See [up](../../outside.md).\n")],
    &[("docs/a.md", "# Title\n[here](#title-two)\n")],
    &[("docs/a.md", "[there](b.md#nothing)\n"), ("docs/b.md", "# Something\n")],
    &[("docs/a.md", "![picture](gone.svg)\n")],
];

/// Whether the text names the folder, and not only a longer name that begins so.
fn names(text: &str, folder: &str) -> bool {
    text.match_indices(folder).any(|(at, _)| {
        let after = text[at + folder.len()..].chars().next();
        after.is_none_or(|c| !c.is_alphanumeric() && c != '_' && c != '-')
    })
}

fn check_document(tree: &Tree, file: &File) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (at, line) in prose(&file.text) {
        for target in links(&line).into_iter().filter(|target| is_ours(target)) {
            if let Some(what) = problem(tree, file, &target) {
                findings.push(Finding::at(&file.path, at, format!("the link `{target}` {what}; correct it")));
            }
        }
    }
    findings
}

fn problem(tree: &Tree, file: &File, target: &str) -> Option<String> {
    let (path, part) = target.split_once('#').map_or((target, None), |(path, part)| (path, Some(part)));
    let path = if path.is_empty() { Some(file.path.clone()) } else { resolve(&file.path, path) };
    let Some(path) = path else { return Some("leads out of the repository".to_owned()) };
    if !path.is_empty() && !tree.contains(&path) {
        return Some(format!("leads to {path}, which does not exist"));
    }
    let part = part?;
    let document = tree.get(&path).filter(|document| document.path.ends_with(".md"))?;
    let found = prose(&document.text).iter().any(|(_, line)| line.starts_with('#') && anchor(line) == part);
    (!found).then(|| format!("leads to a heading that {path} does not have"))
}

/// The lines outside fenced blocks, counted from 1.
fn prose(text: &str) -> Vec<(usize, String)> {
    let mut fenced = false;
    let mut lines = Vec::new();
    for (index, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        } else if !fenced {
            lines.push((index + 1, line.to_owned()));
        }
    }
    lines
}

/// The targets of `[text](target)` and `[name]: target`, outside inline code.
fn links(line: &str) -> Vec<String> {
    let plain: String = line.split('`').step_by(2).collect::<Vec<_>>().join("`");
    let inline = plain.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(target, _)| target);
    let defined = plain.strip_prefix('[').and_then(|rest| Some(rest.split_once("]: ")?.1));
    let targets = inline.chain(defined).filter_map(|target| target.split_whitespace().next());
    targets.map(|target| target.trim_matches(['<', '>']).to_owned()).collect()
}

pub fn is_ours(target: &str) -> bool {
    !target.contains("://") && !target.starts_with("mailto:")
}

/// A path relative to a document, from the root; none when it leads out.
pub fn resolve(document: &str, path: &str) -> Option<String> {
    let mut parts: Vec<&str> = document.split('/').collect();
    parts.pop();
    if path.starts_with('/') {
        parts.clear();
    }
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            name => parts.push(name),
        }
    }
    Some(parts.join("/"))
}

/// A heading's anchor, as the usual hosts make it.
pub fn anchor(heading: &str) -> String {
    let title = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = title.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_that_lead_somewhere_are_left_alone() {
        let text = "# The `code` title, 2\n[a](#the-code-title-2) [b](../README.md) [c](https://example.net/x)\n\
            ```\n[d](gone.md)\n```\n`[e](gone.md)` [f](sub/) [g](/README.md \"title\")\n[h]: sub/x.md\n";
        let tree = Tree::from_texts(&[("docs/a.md", text), ("README.md", ""), ("docs/sub/x.md", "")]);
        assert_eq!(check_links(&tree), []);
    }

    #[test]
    fn paths_are_resolved_from_the_document() {
        assert_eq!(resolve("docs/a.md", "./b/../c.md").as_deref(), Some("docs/c.md"));
        assert_eq!(resolve("a.md", "docs/").as_deref(), Some("docs"));
        assert_eq!(resolve("a.md", "../x.md"), None);
    }
}
