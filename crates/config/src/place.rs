//! Places in a document: how they are written in messages, and on which line they stand.

use std::ops::Range;

use toml::de::{DeTable, DeValue};

use crate::error::{ConfigErrors, Problem};

/// One step on the way to a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step<'d> {
    /// Into a table.
    Key(&'d str),
    /// Into a list; the first item is 0.
    Index(usize),
}

/// The way to a place from the top of the file.
pub type Place = Vec<Step<'static>>;

/// Something wrong, and where it stands in the document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Where.
    pub place: Place,
    /// What is wrong and what to write.
    pub problem: String,
}

impl ConfigErrors {
    /// What checks found in the file of this text, in the order of the file.
    pub fn of_checks(source: &str, text: &str, found: Vec<Found>) -> ConfigErrors {
        let document = DeTable::parse(text).ok();
        let line = |place: &[Step<'_>]| {
            let document = document.as_ref()?;
            Some(line_of(text, locate(document.get_ref(), place)?.start))
        };
        let problem =
            |found: Found| Problem { line: line(&found.place), key: written(&found.place), message: found.problem };
        let mut problems: Vec<Problem> = found.into_iter().map(problem).collect();
        problems.sort_by_key(|problem| problem.line);
        ConfigErrors { source: source.to_owned(), problems }
    }
}

/// A place as messages write it: `class[0].name`.
pub(crate) fn written(place: &[Step<'_>]) -> String {
    place.iter().fold(String::new(), |text, step| match step {
        Step::Key(key) if text.is_empty() => (*key).to_owned(),
        Step::Key(key) => format!("{text}.{key}"),
        Step::Index(index) => format!("{text}[{index}]"),
    })
}

/// The line of a byte, from 1.
pub(crate) fn line_of(text: &str, at: usize) -> usize {
    1 + text.bytes().take(at).filter(|byte| *byte == b'\n').count()
}

/// The place as far as the document has it: a missing key is shown at the table that should have it.
fn locate(document: &DeTable<'_>, place: &[Step<'_>]) -> Option<Range<usize>> {
    let Some(Step::Key(first)) = place.first() else { return None };
    let (key, value) = document.iter().find(|(key, _)| key.get_ref() == first)?;
    let mut span = if value.get_ref().is_table() || value.get_ref().is_array() { value.span() } else { key.span() };
    let mut at = value;
    for step in &place[1..] {
        let next = match (step, at.get_ref()) {
            (Step::Key(name), DeValue::Table(table)) => {
                table.iter().find(|(key, _)| key.get_ref() == name).map(|entry| entry.1)
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

/// A key or an item of a list, as the last step of a way.
#[derive(Clone, Debug)]
pub(crate) struct Node<'d> {
    pub(crate) step: Step<'d>,
    /// The span of the key's name, or of the item: what no other key or item has.
    pub(crate) at: Range<usize>,
}

/// The way to the narrowest key or item whose name or value a span lies in. Empty where that is the whole document.
pub(crate) fn way<'d>(document: &'d DeTable<'_>, span: &Range<usize>) -> Vec<Node<'d>> {
    let mut way = Vec::new();
    descend(document, span, &mut way);
    way
}

/// The way from a value to the first key of that name, in it or below.
pub(crate) fn way_to_key<'d>(value: &'d DeValue<'_>, name: &str) -> Option<Vec<Node<'d>>> {
    let DeValue::Table(table) = value else { return None };
    let node = |key: &'d toml::Spanned<toml::de::DeString<'_>>| Node { step: Step::Key(key.get_ref()), at: key.span() };
    if let Some((key, _)) = table.iter().find(|(key, _)| key.get_ref() == name) {
        return Some(vec![node(key)]);
    }
    table.iter().find_map(|(key, value)| {
        let below = way_to_key(value.get_ref(), name)?;
        Some([vec![node(key)], below].concat())
    })
}

/// What stands at the end of a way.
pub(crate) fn value_at<'d, 'i>(document: &'d DeTable<'i>, way: &[Node<'_>]) -> Option<&'d DeValue<'i>> {
    let (first, rest) = way.split_first()?;
    let Step::Key(name) = first.step else { return None };
    let first = document.get(name)?.get_ref();
    rest.iter().try_fold(first, |value, node| match (node.step, value) {
        (Step::Key(name), DeValue::Table(table)) => table.get(name).map(toml::Spanned::get_ref),
        (Step::Index(index), DeValue::Array(items)) => items.get(index).map(toml::Spanned::get_ref),
        _ => None,
    })
}

/// Takes a key or an item out. Returns whether it was there.
pub(crate) fn remove(table: &mut DeTable<'_>, at: &Range<usize>) -> bool {
    let here = table.keys().find(|key| key.span() == *at).map(|key| key.get_ref().to_string());
    match here {
        Some(key) => table.remove(key.as_str()).is_some(),
        None => table.iter_mut().any(|(_, value)| remove_below(value.get_mut(), at)),
    }
}

fn remove_below(value: &mut DeValue<'_>, at: &Range<usize>) -> bool {
    match value {
        DeValue::Table(table) => remove(table, at),
        DeValue::Array(items) if items.iter().any(|item| item.span() == *at) => {
            *items = items.iter().filter(|item| item.span() != *at).cloned().collect();
            true
        }
        DeValue::Array(items) => items.iter_mut().any(|item| remove_below(item.get_mut(), at)),
        _ => false,
    }
}

fn descend<'d>(table: &'d DeTable<'_>, span: &Range<usize>, way: &mut Vec<Node<'d>>) {
    for (key, value) in table.iter() {
        let node = || Node { step: Step::Key(key.get_ref()), at: key.span() };
        match value.get_ref() {
            DeValue::Array(items) => {
                for (index, item) in items.iter().enumerate() {
                    if within(&item.span(), span) || item.get_ref().as_table().is_some_and(|t| holds(t, span)) {
                        way.extend([node(), Node { step: Step::Index(index), at: item.span() }]);
                        if let Some(below) = item.get_ref().as_table() {
                            descend(below, span, way);
                        }
                        return;
                    }
                }
            }
            DeValue::Table(below) if within(&value.span(), span) || holds(below, span) => {
                way.push(node());
                return descend(below, span, way);
            }
            _ => {}
        }
        if within(&key.span(), span) || within(&value.span(), span) {
            return way.push(node());
        }
    }
}

/// Whether the span is about a key in this table: the span of a `[table]` is only that of its header.
fn holds(table: &DeTable<'_>, span: &Range<usize>) -> bool {
    table.iter().any(|(key, value)| {
        within(&key.span(), span)
            || within(&value.span(), span)
            || value.get_ref().as_table().is_some_and(|table| holds(table, span))
    })
}

fn within(outer: &Range<usize>, span: &Range<usize>) -> bool {
    outer.start <= span.start && span.end <= outer.end
}
