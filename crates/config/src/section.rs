//! Reading a TOML tree key by key, so that every mistake is found in one go and each knows its line.
//!
//! A derived `Deserialize` stops at the first mistake. Here every key is read by itself: what cannot be read is
//! reported and left out, and what nobody asked for is reported with the nearest known key.

use std::ops::Range;
use std::time::Duration;

use tidegate_engine::units::{parse_duration, parse_rate, parse_size};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::error::{Problem, suggestion};

/// A value in the file.
pub(super) type Value<'i> = Spanned<DeValue<'i>>;

/// Something read, and where it stands.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct At<T> {
    pub(super) value: T,
    pub(super) span: Range<usize>,
}

/// What can be read from a value. A failure is reported, not returned.
pub(super) trait Read: Sized {
    /// What is wanted, for the reference.
    #[cfg(test)]
    const KIND: Kind;

    fn read(value: &Value<'_>, key: &str, report: &mut Report<'_>) -> Option<Self>;
}

/// What a key wants, as the reference tells it.
#[cfg(test)]
pub(super) enum Kind {
    /// A value, in words.
    Value(&'static str),
    /// A list of what is inside; a single one will do.
    List(&'static Kind),
    /// A table with keys of its own.
    Table(&'static Section),
}

/// A table of the file as it was declared: what the reference is made of.
#[cfg(test)]
pub(super) struct Section {
    /// What it is called in messages.
    pub(super) place: &'static str,
    pub(super) keys: &'static [Key],
}

/// A key of the file as it was declared.
#[cfg(test)]
pub(super) struct Key {
    pub(super) name: &'static str,
    pub(super) kind: &'static Kind,
    /// What it means. It ends with `Default: ...` or `Required.`, or is about a table.
    pub(super) doc: &'static str,
}

#[cfg(test)]
impl Key {
    pub(super) fn name(&self) -> &'static str {
        self.name.strip_prefix("r#").unwrap_or(self.name)
    }
}

/// The problems and warnings found so far.
pub(super) struct Report<'t> {
    text: &'t str,
    errors: Vec<(usize, Problem)>,
    warnings: Vec<(usize, Problem)>,
}

impl<'t> Report<'t> {
    pub(super) fn new(text: &'t str) -> Self {
        Report { text, errors: Vec::new(), warnings: Vec::new() }
    }

    pub(super) fn error(&mut self, span: &Range<usize>, message: impl Into<String>) {
        let problem = self.problem(span, message.into());
        self.errors.push((span.start, problem));
    }

    pub(super) fn warn(&mut self, span: &Range<usize>, message: impl Into<String>) {
        let problem = self.problem(span, message.into());
        self.warnings.push((span.start, problem));
    }

    /// How many errors were reported.
    pub(super) fn errors(&self) -> usize {
        self.errors.len()
    }

    pub(super) fn has_errors(&self) -> bool {
        !self.errors.is_empty()
    }

    /// Errors and warnings, each in the order of the file.
    pub(super) fn finish(self) -> (Vec<Problem>, Vec<Problem>) {
        let sorted = |mut list: Vec<(usize, Problem)>| {
            list.sort_by_key(|(offset, _)| *offset);
            list.into_iter().map(|(_, problem)| problem).collect()
        };
        (sorted(self.errors), sorted(self.warnings))
    }

    fn problem(&self, span: &Range<usize>, message: String) -> Problem {
        let before = self.text.as_bytes().get(..span.start).unwrap_or(self.text.as_bytes());
        let line = 1 + before.iter().filter(|&&b| b == b'\n').count();
        Problem { line: (!self.text.is_empty()).then_some(line), message }
    }
}

/// The keys of one table, being read.
pub(super) struct Fields<'a, 'i, 'r, 't> {
    table: &'a DeTable<'i>,
    place: &'static str,
    known: Vec<&'static str>,
    report: &'r mut Report<'t>,
}

impl<'a, 'i, 'r, 't> Fields<'a, 'i, 'r, 't> {
    pub(super) fn new(table: &'a DeTable<'i>, place: &'static str, report: &'r mut Report<'t>) -> Self {
        Fields { table, place, known: Vec::new(), report }
    }

    /// Reads one key. `None` when it is not there, or cannot be read.
    pub(super) fn take<T: Read>(&mut self, key: &'static str) -> Option<At<T>> {
        let key = key.strip_prefix("r#").unwrap_or(key);
        self.known.push(key);
        let value = self.table.get(key)?;
        T::read(value, key, self.report).map(|read| At { value: read, span: value.span() })
    }

    /// Reports the keys that nobody asked for.
    pub(super) fn finish(self) {
        for (key, _) in self.table.iter() {
            if !self.known.contains(&key.get_ref().as_ref()) {
                let hint = suggestion(key.get_ref(), &self.known);
                self.report.error(&key.span(), format!("unknown key \"{}\" {}{hint}", key.get_ref(), self.place));
            }
        }
    }
}

/// Declares a table of the file once: its keys, what they mean, their types, and what it is called in messages.
macro_rules! section {
    ($(#[$meta:meta])* struct $name:ident ($place:literal) { $($(#[doc = $doc:literal])+ $key:ident: $type:ty,)* }) => {
        $(#[$meta])*
        #[derive(Clone, Debug, Default)]
        pub(super) struct $name {
            $($(#[doc = $doc])+ pub(super) $key: Option<At<$type>>,)*
        }

        impl $name {
            #[cfg(test)]
            pub(super) const SECTION: Section = Section {
                place: $place,
                keys: &[$(Key {
                    name: stringify!($key),
                    kind: &<$type as Read>::KIND,
                    doc: concat!($($doc),+),
                }),*],
            };

            pub(super) fn read_table(table: &DeTable<'_>, report: &mut Report<'_>) -> Self {
                let mut fields = Fields::new(table, $place, report);
                let read = $name { $($key: fields.take(stringify!($key)),)* };
                fields.finish();
                read
            }
        }

        impl Read for $name {
            #[cfg(test)]
            const KIND: Kind = Kind::Table(&$name::SECTION);

            fn read(value: &Value<'_>, key: &str, report: &mut Report<'_>) -> Option<Self> {
                match value.get_ref().as_table() {
                    Some(table) => Some($name::read_table(table, report)),
                    None => wrong(value, key, concat!("a table, ", $place), report),
                }
            }
        }
    };
}
pub(super) use section;

/// Reports a value of the wrong kind.
pub(super) fn wrong<T>(value: &Value<'_>, key: &str, wanted: &str, report: &mut Report<'_>) -> Option<T> {
    let found = value.get_ref().type_str();
    report.error(&value.span(), format!("\"{key}\" must be {wanted}; found {}", with_article(found)));
    None
}

fn with_article(kind: &str) -> String {
    let article = if kind.starts_with(['a', 'e', 'i', 'o', 'u']) { "an" } else { "a" };
    format!("{article} {kind}")
}

/// A list, in which a single value stands for a list of one.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct List<T>(pub(super) Vec<At<T>>);

impl<T: Read> Read for List<T> {
    #[cfg(test)]
    const KIND: Kind = Kind::List(&T::KIND);

    fn read(value: &Value<'_>, key: &str, report: &mut Report<'_>) -> Option<Self> {
        let one = |item: &Value<'_>, report: &mut Report<'_>| {
            T::read(item, key, report).map(|read| At { value: read, span: item.span() })
        };
        Some(List(match value.get_ref().as_array() {
            Some(items) => items.iter().filter_map(|item| one(item, report)).collect(),
            None => one(value, report).into_iter().collect(),
        }))
    }
}

impl Read for String {
    #[cfg(test)]
    const KIND: Kind = Kind::Value("text");

    fn read(value: &Value<'_>, key: &str, report: &mut Report<'_>) -> Option<Self> {
        match value.get_ref().as_str() {
            Some(text) => Some(text.to_owned()),
            None => wrong(value, key, "text in quotes", report),
        }
    }
}

impl Read for bool {
    #[cfg(test)]
    const KIND: Kind = Kind::Value("`true` or `false`");

    fn read(value: &Value<'_>, key: &str, report: &mut Report<'_>) -> Option<Self> {
        value.get_ref().as_bool().or_else(|| wrong(value, key, "true or false", report))
    }
}

/// A whole number, 0 or more.
impl Read for u64 {
    #[cfg(test)]
    const KIND: Kind = Kind::Value("whole number");

    fn read(value: &Value<'_>, key: &str, report: &mut Report<'_>) -> Option<Self> {
        let number = value.get_ref().as_integer().and_then(|i| u64::from_str_radix(i.as_str(), i.radix()).ok());
        number.or_else(|| wrong_number(value, key, "a whole number, 0 or more", report))
    }
}

/// A number, whole or not.
impl Read for f64 {
    #[cfg(test)]
    const KIND: Kind = Kind::Value("number");

    fn read(value: &Value<'_>, key: &str, report: &mut Report<'_>) -> Option<Self> {
        number(value).or_else(|| wrong_number(value, key, "a number", report))
    }
}

/// A span of time: `"500ms"`, or a number of seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Time(pub(super) Duration);

impl Read for Time {
    #[cfg(test)]
    const KIND: Kind = Kind::Value("time");

    fn read(value: &Value<'_>, key: &str, report: &mut Report<'_>) -> Option<Self> {
        let seconds = |number: f64| Duration::try_from_secs_f64(number).map_err(|_| format!("{number} is not a time"));
        quantity(value, key, "a time such as \"500ms\"", report, parse_duration, seconds).map(Time)
    }
}

/// Requests per second: `"20/s"`, or a number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct PerSecond(pub(super) f64);

impl Read for PerSecond {
    #[cfg(test)]
    const KIND: Kind = Kind::Value("rate");

    fn read(value: &Value<'_>, key: &str, report: &mut Report<'_>) -> Option<Self> {
        let plain = |number: f64| {
            let fits = number.is_finite() && number >= 0.0;
            if fits { Ok(number) } else { Err(format!("{number} is not a rate; it must be 0 or more")) }
        };
        quantity(value, key, "a rate such as \"20/s\"", report, parse_rate, plain).map(PerSecond)
    }
}

/// Bytes: `"64KiB"`, or a number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Bytes(pub(super) u64);

impl Read for Bytes {
    #[cfg(test)]
    const KIND: Kind = Kind::Value("size");

    fn read(value: &Value<'_>, key: &str, report: &mut Report<'_>) -> Option<Self> {
        let plain = |number: f64| match number >= 0.0 && number.fract() == 0.0 {
            true => Ok(number as u64),
            false => Err(format!("{number} is not a size; it must be a whole number of bytes")),
        };
        quantity(value, key, "a size such as \"64KiB\"", report, parse_size, plain).map(Bytes)
    }
}

/// A share of a whole: `"20%"`, or a number from 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Share(pub(super) f64);

impl Read for Share {
    #[cfg(test)]
    const KIND: Kind = Kind::Value("share");

    fn read(value: &Value<'_>, key: &str, report: &mut Report<'_>) -> Option<Self> {
        let plain = |number: f64| match (0.0..=1.0).contains(&number) {
            true => Ok(number),
            false => Err(format!("{number} is not a share; write a number from 0 to 1, or \"20%\"")),
        };
        let percent = |text: &str| {
            let number = text.trim().strip_suffix('%').and_then(|n| n.trim().parse::<f64>().ok());
            number
                .map_or_else(|| Err(format!("\"{text}\" is not a share; write it like \"20%\"")), |n| plain(n / 100.0))
        };
        quantity(value, key, "a share such as \"20%\"", report, percent, plain).map(Share)
    }
}

/// Reads a quantity written as text with a unit, or as a plain number.
fn quantity<T>(
    value: &Value<'_>,
    key: &str,
    wanted: &str,
    report: &mut Report<'_>,
    text: impl Fn(&str) -> Result<T, String>,
    plain: impl Fn(f64) -> Result<T, String>,
) -> Option<T> {
    let read = match (value.get_ref().as_str(), number(value)) {
        (Some(written), _) => text(written),
        (None, Some(number)) => plain(number),
        (None, None) => return wrong(value, key, wanted, report),
    };
    read.map_err(|problem| report.error(&value.span(), format!("{key} = {problem}"))).ok()
}

fn number(value: &Value<'_>) -> Option<f64> {
    match value.get_ref() {
        DeValue::Integer(i) => i64::from_str_radix(i.as_str(), i.radix()).ok().map(|i| i as f64),
        DeValue::Float(f) => f.as_str().parse().ok(),
        _ => None,
    }
}

/// A number of the wrong range is shown; anything else is named by its kind.
fn wrong_number<T>(value: &Value<'_>, key: &str, wanted: &str, report: &mut Report<'_>) -> Option<T> {
    match number(value) {
        Some(number) => {
            report.error(&value.span(), format!("\"{key}\" must be {wanted}; found {number}"));
            None
        }
        None => wrong(value, key, wanted, report),
    }
}
