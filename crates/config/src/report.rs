//! What was found in a file so far: errors, and warnings beside them.

use std::ops::Range;

use toml::Spanned;
use toml::de::DeTable;

use crate::error::{ConfigErrors, Problem};
use crate::place::line_of;

/// Reads a text as TOML. Where it is none, every break of the grammar is reported, and `None` comes back: what a broken
/// document seems to say is not worth judging.
pub fn parse_document<'i>(text: &'i str, report: &mut Report<'_>) -> Option<Spanned<DeTable<'i>>> {
    let (document, errors) = DeTable::parse_recoverable(text);
    for error in &errors {
        // The library's sentences may span lines; one problem is one line.
        let message = error.message().split_whitespace().collect::<Vec<_>>().join(" ");
        report.error(&error.span().unwrap_or(0..0), format!("this is not TOML: {message}"));
    }
    errors.is_empty().then_some(document)
}

/// The problems and warnings found so far.
pub struct Report<'t> {
    text: &'t str,
    errors: Vec<(usize, Problem)>,
    warnings: Vec<(usize, Problem)>,
}

impl<'t> Report<'t> {
    /// Nothing found yet. `text` is the file's; empty for what was typed elsewhere, which has no lines.
    pub fn new(text: &'t str) -> Self {
        Report { text, errors: Vec::new(), warnings: Vec::new() }
    }

    /// Something wrong.
    pub fn error(&mut self, span: &Range<usize>, message: impl Into<String>) {
        let problem = self.problem(span, message.into());
        self.errors.push((span.start, problem));
    }

    /// Something doubtful.
    pub fn warn(&mut self, span: &Range<usize>, message: impl Into<String>) {
        let problem = self.problem(span, message.into());
        self.warnings.push((span.start, problem));
    }

    /// The line on which something stands; `None`: it was typed elsewhere.
    pub fn line(&self, span: &Range<usize>) -> Option<usize> {
        (!self.text.is_empty()).then(|| line_of(self.text, span.start))
    }

    /// How many errors were reported.
    pub fn errors(&self) -> usize {
        self.errors.len()
    }

    /// Whether an error was reported.
    pub fn has_errors(&self) -> bool {
        !self.errors.is_empty()
    }

    /// Errors and warnings, each in the order of the file.
    pub fn finish(self) -> (Vec<Problem>, Vec<Problem>) {
        let sorted = |mut list: Vec<(usize, Problem)>| {
            list.sort_by_key(|(offset, _)| *offset);
            list.into_iter().map(|(_, problem)| problem).collect()
        };
        (sorted(self.errors), sorted(self.warnings))
    }

    /// The errors, as those of the file `source`.
    pub fn failure(self, source: &str) -> ConfigErrors {
        ConfigErrors { source: source.to_owned(), problems: self.finish().0 }
    }

    fn problem(&self, span: &Range<usize>, message: String) -> Problem {
        Problem { line: self.line(span), key: String::new(), message }
    }
}
