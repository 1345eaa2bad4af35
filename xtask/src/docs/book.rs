//! The contents: which pages there are, in which order, and where they go.

use anyhow::{Result, bail};

use crate::tidy::documents::resolve;

/// The document that lists the others.
pub const SUMMARY: &str = "docs/SUMMARY.md";

/// Every page, in parts.
#[derive(Debug)]
pub struct Book {
    pub parts: Vec<Part>,
}

/// A part of the contents.
#[derive(Debug)]
pub struct Part {
    pub title: String,
    pub pages: Vec<Page>,
}

/// A document, and the file it becomes.
#[derive(Debug, PartialEq, Eq)]
pub struct Page {
    pub title: String,
    /// From the root of the repository.
    pub source: String,
    /// Its name in the site.
    pub file: String,
}

impl Book {
    /// Reads the contents: headings are parts, list items with a link are pages.
    ///
    /// # Errors
    /// When there is a page before the first part, two become one file, or there is none.
    pub fn read(text: &str) -> Result<Self> {
        let mut parts: Vec<Part> = Vec::new();
        for line in text.lines() {
            if let Some(title) = line.strip_prefix("## ") {
                parts.push(Part { title: title.to_owned(), pages: Vec::new() });
            } else if let Some((title, target)) = line.strip_prefix("- [").and_then(|rest| rest.split_once("](")) {
                let source = resolve(SUMMARY, target.trim_end_matches(')'));
                let (Some(source), Some(part)) = (source, parts.last_mut()) else {
                    bail!("{SUMMARY}: `{line}` leads out of the repository or stands before the first part");
                };
                part.pages.push(Page { title: title.to_owned(), file: file_of(&source), source });
            }
        }
        let book = Book { parts };
        let mut files: Vec<_> = book.pages().map(|page| &page.file).collect();
        files.sort_unstable();
        if files.is_empty() || files.windows(2).any(|pair| pair[0] == pair[1]) {
            bail!("{SUMMARY} names no page, or two that become the same file: {files:?}");
        }
        Ok(book)
    }

    /// Every page in order.
    pub fn pages(&self) -> impl Iterator<Item = &Page> {
        self.parts.iter().flat_map(|part| &part.pages)
    }

    /// The page that a document becomes.
    pub fn page_of(&self, source: &str) -> Option<&Page> {
        self.pages().find(|page| page.source == source)
    }
}

/// `README.md` is the front page; `docs/a.md` is `a.html`; `deploy/README.md` is `deploy.html`.
fn file_of(source: &str) -> String {
    let stem = source.trim_end_matches(".md").trim_start_matches("docs/").to_lowercase();
    match stem.strip_suffix("readme").map(|folder| folder.trim_end_matches('/').replace('/', "-")) {
        Some(folder) if folder.is_empty() => "index.html".to_owned(),
        Some(folder) => folder + ".html",
        None => stem.replace('/', "-") + ".html",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contents_become_pages() {
        let book = Book::read("# C\n\n## A\n\n- [Top](../README.md)\n- [X](x.md)\n## B\n- [D](../deploy/README.md)\n");
        let book = book.expect("contents");
        let files: Vec<_> = book.pages().map(|page| (page.source.as_str(), page.file.as_str())).collect();
        let wanted = [("README.md", "index.html"), ("docs/x.md", "x.html"), ("deploy/README.md", "deploy.html")];
        assert_eq!(files, wanted);
        assert_eq!(book.parts.len(), 2);
    }

    #[test]
    fn contents_that_make_no_sense_are_errors() {
        assert!(Book::read("- [early](x.md)\n").is_err());
        assert!(Book::read("## A\n").is_err());
        assert!(Book::read("## A\n- [a](x.md)\n- [b](x.md)\n").is_err());
        assert!(Book::read("## A\n- [a](../../x.md)\n").is_err());
    }
}
