//! Reading types that serde knows, with every mistake at once.
//!
//! A derived `Deserialize` stops at the first mistake. So what it stumbled over is noted and taken out of the document,
//! and the rest is read again, until nothing is wrong any more. *Awkward case:* what is taken out may be missed
//! afterwards. So nothing counts as missing in a table from which a key was taken, and no table or list is judged as a
//! whole when something was taken out of it or from below; it is taken out in its turn. What is silenced so shows when
//! the mistake below is mended.

use std::ops::Range;

use serde::de::DeserializeOwned;
use toml::Spanned;
use toml::de::{DeTable, Deserializer, Error};

use crate::error::{ConfigErrors, Problem};
use crate::nearest::suggestion;
use crate::place::{Node, Step, line_of, remove, value_at, way, way_to_key, written};

/// So many mistakes are told at once; more are seldom read, and each costs a reading of the rest.
const MOST: usize = 100;

/// Reads a text; `source` is the file's name in messages.
///
/// # Errors
/// Everything that is wrong, with line and key. Unknown keys and values come with the nearest known one.
pub fn parse<T: DeserializeOwned>(text: &str, source: &str) -> Result<T, ConfigErrors> {
    let (document, errors) = DeTable::parse_recoverable(text);
    let mut found = Findings { text, problems: Vec::new() };
    if !errors.is_empty() {
        // What a broken document seems to say is not worth judging.
        errors.iter().for_each(|error| found.add(error.span(), &[], one_line(error)));
        return Err(found.errors(source));
    }
    match read(&document, &mut found) {
        Some(value) if found.problems.is_empty() => Ok(value),
        _ => Err(found.errors(source)),
    }
}

/// Takes serde's sentence about an unknown field apart: the field, and the known ones.
pub fn unknown_field(message: &str) -> Option<(&str, Vec<&str>)> {
    named(message, "unknown field ")
}

fn read<T: DeserializeOwned>(document: &Spanned<DeTable<'_>>, found: &mut Findings<'_>) -> Option<T> {
    let mut rest = document.clone();
    let mut taken = Taken::default();
    loop {
        let error = match T::deserialize(Deserializer::from(rest.clone())) {
            Ok(value) => return Some(value),
            Err(error) => error,
        };
        let way = blamed(document, &error);
        if !taken.explains(&way, &error) {
            let steps: Vec<Step<'_>> = way.iter().map(|node| node.step).collect();
            let key = way.last().filter(|_| unknown_field(error.message()).is_some());
            let span = key.map(|key| key.at.clone()).or_else(|| error.span());
            found.add(span, &steps, in_our_words(&one_line(&error)));
        }
        let last = way.last()?;
        // Without progress there would be no end.
        if found.problems.len() >= MOST || !remove(rest.get_mut(), &last.at) {
            return None;
        }
        taken.note(&way);
    }
}

/// What was taken out of the document.
#[derive(Default)]
struct Taken {
    /// Tables and lists that lost a key or an item of their own; `None` is the document.
    directly: Vec<Option<Range<usize>>>,
    /// Those that lost something below.
    below: Vec<Option<Range<usize>>>,
}

impl Taken {
    fn note(&mut self, way: &[Node<'_>]) {
        let above = way.split_last().map_or(way, |(_, above)| above);
        self.directly.push(above.last().map(|node| node.at.clone()));
        self.below.push(None);
        self.below.extend(above.iter().map(|node| Some(node.at.clone())));
    }

    /// Whether an error about the end of `way` may follow from what was taken.
    fn explains(&self, way: &[Node<'_>], error: &Error) -> bool {
        let at = way.last().map(|node| node.at.clone());
        let is_missing = error.message().starts_with("missing field ");
        if is_missing { self.directly.contains(&at) } else { self.below.contains(&at) }
    }
}

/// What an error is about. An unknown key that serde met late, when it had forgotten the place, is looked for.
fn blamed<'d>(document: &'d Spanned<DeTable<'_>>, error: &Error) -> Vec<Node<'d>> {
    let narrow = error.span().filter(|span| *span != document.span());
    let document = document.get_ref();
    let mut way = narrow.map_or_else(Vec::new, |span| way(document, &span));
    if let Some((field, _)) = unknown_field(error.message())
        && way.last().is_some_and(|last| last.step != Step::Key(field))
        && let Some(below) = value_at(document, &way).and_then(|value| way_to_key(value, field))
    {
        way.extend(below);
    }
    way
}

/// The library's sentences may span lines; one problem is one line.
fn one_line(error: &Error) -> String {
    error.message().split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Puts serde's sentence about an unknown field or variant into our words, with the nearest known one.
fn in_our_words(message: &str) -> String {
    let told = |kind: &str, (given, known): (&str, Vec<&str>)| {
        format!("unknown {kind} \"{given}\"{}", suggestion(given, &known))
    };
    let key = unknown_field(message).map(|names| told("key", names));
    let value = || named(message, "unknown variant ").map(|names| told("value", names));
    key.or_else(value).unwrap_or_else(|| message.to_owned())
}

/// What stands in backquotes behind the beginning of a sentence: the first such name, and the others.
fn named<'m>(message: &'m str, beginning: &str) -> Option<(&'m str, Vec<&'m str>)> {
    let mut quoted = message.strip_prefix(beginning)?.split('`').skip(1).step_by(2);
    Some((quoted.next()?, quoted.collect()))
}

/// What was found so far, each with the place where it stands.
struct Findings<'t> {
    text: &'t str,
    /// With their first bytes.
    problems: Vec<(usize, Problem)>,
}

impl Findings<'_> {
    fn add(&mut self, span: Option<Range<usize>>, place: &[Step<'_>], message: String) {
        let start = span.map(|span| span.start);
        let line = start.map(|start| line_of(self.text, start));
        self.problems.push((start.unwrap_or(0), Problem { line, key: written(place), message }));
    }

    fn errors(mut self, source: &str) -> ConfigErrors {
        self.problems.sort_by_key(|(start, _)| *start);
        let problems = self.problems.into_iter().map(|(_, problem)| problem).collect();
        ConfigErrors { source: source.to_owned(), problems }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde::Deserialize;
    use tidegate_engine::Seconds;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Shop {
        name: String,
        target: Seconds,
        #[serde(default)]
        class: Vec<Class>,
        limits: Option<Limits>,
    }

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Class {
        name: String,
        revenue: f64,
        #[serde(default)]
        delays: Vec<Seconds>,
    }

    #[derive(Debug, Deserialize)]
    #[serde(rename_all = "lowercase", tag = "by")]
    enum Limits {
        Count(Count),
        None,
    }

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Count {
        most: u32,
    }

    fn told(text: &str) -> Vec<String> {
        let errors = parse::<Shop>(text, "shop.toml").expect_err("wrong");
        errors.to_string().lines().map(str::to_owned).collect()
    }

    const GOOD: &str = "name = \"a\"\ntarget = \"1d\"\nlimits = { by = \"count\", most = 3 }\n\
        [[class]]\nname = \"gold\"\nrevenue = 1\ndelays = [\"1s\"]\n";

    proptest! {
        /// What differs from a good file in a few places is read, or there is something to say about it, line by line.
        #[test]
        fn nothing_is_refused_without_a_word(changes in prop::collection::vec((0..GOOD.len(), "[ -~\\n]{0,3}"), 1..6)) {
            let mut text = GOOD.to_owned();
            for (at, to) in changes {
                let at = at.min(text.len() - 1);
                text.replace_range(at..=at, &to);
                text.push('\n');
            }
            if let Err(errors) = parse::<Shop>(&text, "shop.toml") {
                prop_assert!(!errors.problems.is_empty(), "{text}");
                let lines = text.lines().count();
                let is_there = |line: usize| (1..=lines + 1).contains(&line);
                prop_assert!(errors.problems.iter().all(|problem| problem.line.is_none_or(is_there)), "{text}\n{errors}");
            }
        }
    }

    #[test]
    fn a_good_file_is_read() {
        let shop: Shop = parse(GOOD, "shop.toml").unwrap_or_else(|errors| panic!("{errors}"));
        assert_eq!((shop.name.as_str(), shop.target), ("a", Seconds(86_400.0)));
        assert_eq!((shop.class[0].name.as_str(), shop.class[0].revenue), ("gold", 1.0));
        assert_eq!(shop.class[0].delays, [Seconds(1.0)]);
        assert!(matches!(shop.limits, Some(Limits::Count(Count { most: 3 }))));
        assert!(matches!(parse::<Limits>("by = \"none\"", "x"), Ok(Limits::None)));
    }

    #[test]
    fn all_mistakes_are_told_at_once_in_the_order_of_the_file() {
        let text = "nmae = \"a\"\ntarget = \"500\"\nlimits = { by = \"count\", mots = 3, most = 1 }\n\
            [[class]]\nnam = \"gold\"\nrevenue = 1.0\n[[class]]\nname = \"rest\"\nrevenue = \"much\"\n\
            delays = [\"1s\", \"x\", \"y\"]\n";
        assert_eq!(
            told(text),
            [
                "shop.toml:1: nmae: unknown key \"nmae\"; did you mean \"name\"?",
                "shop.toml:2: target: \"500\" has no unit; write for example \"500ms\" or \"500s\"",
                "shop.toml:3: limits.mots: unknown key \"mots\"; did you mean \"most\"?",
                "shop.toml:5: class[0].nam: unknown key \"nam\"; did you mean \"name\"?",
                "shop.toml:9: class[1].revenue: invalid type: string \"much\", expected f64",
                "shop.toml:10: class[1].delays[1]: \"x\" is not a time; write it like \"500ms\", \"2s\" or \"5m\"",
                "shop.toml:10: class[1].delays[2]: \"y\" is not a time; write it like \"500ms\", \"2s\" or \"5m\"",
            ]
        );
    }

    #[test]
    fn what_is_missing_is_told_where_nothing_was_taken_out() {
        let text = "name = \"a\"\n[[class]]\nname = \"gold\"\n[[class]]\nrevenu = 1\nrevenue = 1\n[[class]]\n";
        assert_eq!(
            told(text),
            [
                "shop.toml:1: missing field `target`",
                "shop.toml:2: class[0]: missing field `revenue`",
                "shop.toml:5: class[1].revenu: unknown key \"revenu\"; did you mean \"revenue\"?",
                "shop.toml:7: class[2]: missing field `name`",
            ]
        );
        assert_eq!(told("name = \"a\"\n"), ["shop.toml:1: missing field `target`"]);
    }

    #[test]
    fn every_break_of_the_grammar_is_told() {
        assert_eq!(told("name = \ntarget = \n").len(), 2);
    }
}
