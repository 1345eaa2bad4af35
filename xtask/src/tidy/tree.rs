//! The files that tidy reads, and what it finds in them.

use std::fmt;
use std::fs;
use std::process::Command;

use anyhow::Result;

use super::source::Source;
use crate::command;

/// Every file that git tracks or would track.
#[derive(Debug, Default)]
pub struct Tree {
    /// In order of path.
    pub files: Vec<File>,
}

/// One file; `text` is empty for one that is not text.
#[derive(Debug)]
pub struct File {
    /// From the root, with `/`.
    pub path: String,
    /// The whole text.
    pub text: String,
    /// Its code and comments apart; only for Rust.
    pub source: Option<Source>,
}

/// One broken rule.
#[derive(Debug, PartialEq, Eq)]
pub struct Finding {
    path: String,
    line: usize,
    what: String,
}

impl Finding {
    /// A finding on a line, counted from 1; `what` says what is wrong and what to do.
    pub fn at(path: &str, line: usize, what: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line, what: what.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.what)
    }
}

impl Tree {
    /// Reads the checkout in the current directory.
    ///
    /// # Errors
    /// When git cannot list the files or one cannot be read.
    pub fn read() -> Result<Self> {
        let mut git = Command::new("git");
        git.args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]);
        let listed = command::output(&mut git)?;
        let mut paths: Vec<&str> = listed.split('\0').filter(|path| !path.is_empty()).collect();
        paths.sort_unstable();
        paths.dedup();
        let mut files = Vec::with_capacity(paths.len());
        for path in paths {
            match fs::read(path) {
                Ok(bytes) => files.push(File::new(path, String::from_utf8(bytes).unwrap_or_default())),
                // Deleted and not yet committed.
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                Err(error) => return Err(anyhow::Error::new(error).context(format!("cannot read {path}"))),
            }
        }
        Ok(Self { files })
    }

    /// A tree of the given paths and texts.
    #[cfg(test)]
    pub fn from_texts(texts: &[(&str, &str)]) -> Self {
        Self { files: texts.iter().map(|(path, text)| File::new(path, (*text).to_owned())).collect() }
    }

    /// The file at a path.
    pub fn get(&self, path: &str) -> Option<&File> {
        self.files.iter().find(|file| file.path == path)
    }

    /// Whether a file or directory is in the tree.
    pub fn contains(&self, path: &str) -> bool {
        let directory = format!("{path}/");
        self.files.iter().any(|file| file.path == path || file.path.starts_with(&directory))
    }

    /// The Rust files.
    pub fn rust(&self) -> impl Iterator<Item = (&File, &Source)> {
        self.files.iter().filter_map(|file| Some((file, file.source.as_ref()?)))
    }

    /// Whether the line, or the one before it, says `tidy-allow(rule): reason`.
    pub fn excuses(&self, rule: &str, finding: &Finding) -> bool {
        let Some(file) = self.get(&finding.path) else { return false };
        let mark = format!("tidy-allow({rule}):");
        let lines = file.lines().filter(|(at, _)| *at == finding.line || *at + 1 == finding.line);
        let mut reasons = lines.filter_map(|(_, line)| Some(line.split_once(&mark)?.1));
        reasons.any(|reason| !reason.trim().is_empty())
    }
}

impl File {
    fn new(path: &str, text: String) -> Self {
        let source = path.ends_with(".rs").then(|| Source::new(path, &text));
        Self { path: path.to_owned(), text, source }
    }

    /// The lines, counted from 1.
    pub fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        self.text.lines().enumerate().map(|(index, line)| (index + 1, line))
    }
}
