//! What is wrong with a file, in words that say where and what to do.

use std::fmt;
use std::path::Path;

use crate::environment;

/// One thing wrong, or doubtful, in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The line, from 1; `None` when it is about the file as a whole.
    pub line: Option<usize>,
    /// The key with its place, such as `class[0].name`, where the message does not name it; else empty.
    pub key: String,
    /// What is wrong and what to write.
    pub message: String,
}

/// Everything wrong with a file. Displays one line per problem: `shop.toml:14: ...`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigErrors {
    /// The file, or what stands for one.
    pub source: String,
    /// The problems, by line. Never empty.
    pub problems: Vec<Problem>,
}

impl ConfigErrors {
    /// One problem with the file as a whole.
    pub fn whole(source: &str, message: String) -> Self {
        let problem = Problem { line: None, key: String::new(), message };
        ConfigErrors { source: source.to_owned(), problems: vec![problem] }
    }
}

impl Problem {
    /// The problem with its place in front.
    pub fn at(&self, source: &str) -> String {
        let line = self.line.map_or_else(String::new, |line| format!("{line}:"));
        let key = if self.key.is_empty() { String::new() } else { format!(" {}:", self.key) };
        format!("{source}:{line}{key} {}", self.message)
    }
}

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<String> = self.problems.iter().map(|problem| problem.at(&self.source)).collect();
        f.write_str(&lines.join("\n"))
    }
}

impl std::error::Error for ConfigErrors {}

/// Reads the text of a file, with values of the environment in the places of `${NAME}`.
///
/// # Errors
/// When it cannot be read, is not text, or names a variable that is not set or cannot be a part of a value.
pub fn load(path: &Path) -> Result<String, ConfigErrors> {
    let source = path.display().to_string();
    let wrong = |message: String| ConfigErrors::whole(&source, message);
    let bytes = std::fs::read(path).map_err(|error| wrong(format!("cannot be read: {error}")))?;
    let text = String::from_utf8(bytes).map_err(|_| wrong("is not UTF-8 text; a configuration is TOML".to_owned()))?;
    environment::fill(&text, &source, |name| std::env::var(name).ok())
}
