//! What is wrong with a scenario, in words that say where and what to do.

use std::fmt;
use std::ops::Range;

use toml::de::{DeTable, DeValue};

/// Everything wrong with a scenario. Displays one line per problem: `c1.toml:14: load[0].class: ...`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct ScenarioError {
    /// The file, or what stands for one.
    pub source_name: String,
    /// The problems, in the order of the file. Never empty.
    pub problems: Vec<Problem>,
}

/// One thing wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The line, from 1; `None` when it is about the file as a whole.
    pub line: Option<usize>,
    /// The key, with its place; empty when there is none.
    pub key: String,
    /// What is wrong and what to write.
    pub message: String,
}

/// Something wrong, and where it stands in the document.
#[derive(Debug, Clone)]
pub(super) struct Found {
    pub(super) place: Path,
    pub(super) problem: String,
}

/// A place in the document.
pub(super) type Path = Vec<Step>;

/// One step on the way to a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    Key(&'static str),
    Index(usize),
}

impl ScenarioError {
    /// One problem with the file as a whole.
    pub fn whole(source: &str, message: String) -> ScenarioError {
        let problem = Problem { line: None, key: String::new(), message };
        ScenarioError { source_name: source.to_owned(), problems: vec![problem] }
    }

    /// What the TOML reader stumbled over.
    pub(super) fn of_reader(source: &str, text: &str, error: &toml::de::Error) -> ScenarioError {
        let span = error.span();
        let message = error.message().split_whitespace().collect::<Vec<_>>().join(" ");
        let message = unknown_field(&message).unwrap_or(message);
        let key = span.clone().and_then(|span| key_at(text, span)).unwrap_or_default();
        let problem = Problem { line: span.map(|span| line_of(text, span.start)), key, message };
        ScenarioError { source_name: source.to_owned(), problems: vec![problem] }
    }

    /// What the checks found.
    pub(super) fn of_checks(source: &str, text: &str, found: Vec<Found>) -> ScenarioError {
        let document = DeTable::parse(text).ok();
        let line = |place: &Path| {
            let document = document.as_ref()?;
            Some(line_of(text, locate(document.get_ref(), place)?.start))
        };
        let problem =
            |found: Found| Problem { line: line(&found.place), key: written(&found.place), message: found.problem };
        let mut problems: Vec<Problem> = found.into_iter().map(problem).collect();
        problems.sort_by_key(|problem| problem.line);
        ScenarioError { source_name: source.to_owned(), problems }
    }
}

impl fmt::Display for ScenarioError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let line = |problem: &Problem| {
            let line = problem.line.map_or(String::new(), |line| format!("{line}:"));
            let key = if problem.key.is_empty() { String::new() } else { format!(" {}:", problem.key) };
            format!("{}:{line}{key} {}", self.source_name, problem.message)
        };
        f.write_str(&self.problems.iter().map(line).collect::<Vec<_>>().join("\n"))
    }
}

/// `; did you mean "x"?` when a known name is near, else the list of known names.
pub(super) fn suggestion(given: &str, known: &[&str]) -> String {
    let near = known.iter().map(|name| (distance(given, name), name)).min();
    match near {
        // A third of the letters may be wrong: enough for slips, too little for another word.
        Some((distance, name)) if distance <= given.chars().count().max(3) / 3 => format!("; did you mean \"{name}\"?"),
        Some(_) => format!("; known here: {}", known.join(", ")),
        None => String::new(),
    }
}

/// Puts the reader's sentence about an unknown field (or variant) into our words, with the nearest known one.
fn unknown_field(message: &str) -> Option<String> {
    let kinds = [("unknown field ", "unknown key"), ("unknown variant ", "unknown value")];
    let (rest, kind) = kinds.into_iter().find_map(|(start, kind)| Some((message.strip_prefix(start)?, kind)))?;
    let mut quoted = rest.split('`').skip(1).step_by(2);
    let given = quoted.next()?;
    let known: Vec<&str> = quoted.collect();
    Some(format!("{kind} \"{given}\"{}", suggestion(given, &known)))
}

/// The narrowest key whose name or value the span lies in.
fn key_at(text: &str, span: Range<usize>) -> Option<String> {
    let document = DeTable::parse(text).ok()?;
    let mut place = Vec::new();
    descend(document.get_ref(), &span, &mut place);
    (!place.is_empty()).then(|| place.join("."))
}

fn descend(table: &DeTable<'_>, span: &Range<usize>, place: &mut Vec<String>) {
    let within = |outer: &Range<usize>| outer.start <= span.start && span.end <= outer.end;
    for (key, value) in table.iter() {
        match value.get_ref() {
            DeValue::Array(items) => {
                for (at, item) in items.iter().enumerate() {
                    if within(&item.span()) || item.get_ref().as_table().is_some_and(|t| holds(t, span)) {
                        place.push(format!("{}[{at}]", key.get_ref()));
                        if let Some(below) = item.get_ref().as_table() {
                            descend(below, span, place);
                        }
                        return;
                    }
                }
            }
            DeValue::Table(below) if within(&value.span()) || holds(below, span) => {
                place.push(key.get_ref().to_string());
                return descend(below, span, place);
            }
            _ => {}
        }
        if within(&key.span()) || within(&value.span()) {
            return place.push(key.get_ref().to_string());
        }
    }
}

/// Whether the span is about a key in this table: the span of a `[table]` is only that of its header.
fn holds(table: &DeTable<'_>, span: &Range<usize>) -> bool {
    let within = |outer: &Range<usize>| outer.start <= span.start && span.end <= outer.end;
    table.iter().any(|(key, value)| {
        within(&key.span()) || within(&value.span()) || value.get_ref().as_table().is_some_and(|t| holds(t, span))
    })
}

/// The place as far as the document has it: a missing key is shown at the table that should have it.
fn locate(document: &DeTable<'_>, place: &Path) -> Option<Range<usize>> {
    let Some(Step::Key(first)) = place.first() else { return None };
    let (key, value) = document.iter().find(|(key, _)| key.get_ref() == first)?;
    let mut span = if value.get_ref().is_table() || value.get_ref().is_array() { value.span() } else { key.span() };
    let mut at = value;
    for step in &place[1..] {
        let next = match (step, at.get_ref()) {
            (Step::Key(name), DeValue::Table(table)) => {
                table.iter().find(|(key, _)| key.get_ref() == name).map(|e| e.1)
            }
            (Step::Index(index), DeValue::Array(items)) => items.get(*index),
            _ => None,
        };
        let Some(next) = next else { break };
        span = next.span();
        at = next;
    }
    Some(span)
}

fn written(place: &Path) -> String {
    place.iter().fold(String::new(), |text, step| match step {
        Step::Key(key) if text.is_empty() => (*key).to_owned(),
        Step::Key(key) => format!("{text}.{key}"),
        Step::Index(index) => format!("{text}[{index}]"),
    })
}

fn line_of(text: &str, at: usize) -> usize {
    text.bytes().take(at).filter(|byte| *byte == b'\n').count() + 1
}

/// Letters to insert, delete, replace or swap with a neighbour to get from one word to the other.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut rows: Vec<Vec<usize>> = vec![(0..=b.len()).collect()];
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let change = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut best = change.min(rows[i - 1][j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(rows[i - 2][j - 2] + 1);
            }
            row.push(best);
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
}
