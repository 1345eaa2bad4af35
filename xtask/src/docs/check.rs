//! Every link within the site leads to a page, and its `#part` to a heading there.

use std::collections::BTreeSet;

use super::book::Page;
use super::page::Rendered;

/// What is wrong with the links between these pages.
pub fn links(pages: &[(&Page, Rendered)]) -> Vec<String> {
    let mut known = BTreeSet::new();
    for (page, rendered) in pages {
        known.insert(page.file.clone());
        known.extend(rendered.headings.iter().map(|heading| format!("{}#{}", page.file, heading.anchor)));
    }
    let mut problems = Vec::new();
    for (page, rendered) in pages {
        for link in rendered.links.iter().filter(|link| !known.contains(*link)) {
            problems.push(format!("{}: the link `{link}` leads to no heading", page.source));
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::docs::page::Heading;

    #[test]
    fn a_link_to_no_heading_is_found() {
        let page = Page { title: "A".into(), source: "docs/a.md".into(), file: "a.html".into() };
        let rendered = Rendered {
            headings: vec![Heading { level: 1, anchor: "a".into(), text: "A".into() }],
            links: ["a.html", "a.html#a", "a.html#b"].map(String::from).to_vec(),
            ..Rendered::default()
        };
        let problems = links(&[(&page, rendered)]);
        assert_eq!(problems.len(), 1);
        assert!(problems[0].contains("a.html#b"), "{problems:?}");
    }
}
