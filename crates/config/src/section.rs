//! The reader: a TOML tree, key by key, so that every mistake is found in one go and each knows its line.
//!
//! A derived `Deserialize` stops at the first mistake. Here every key is read by itself: what cannot be read is
//! reported and left out, and what nobody asked for is reported with the nearest known key.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::nearest::suggestion;
use crate::report::Report;

/// A table in the file.
pub type Table<'i> = DeTable<'i>;

/// A value in the file.
pub type Value<'i> = Spanned<DeValue<'i>>;

/// Something read, and where it stands.
#[derive(Clone, Debug, PartialEq)]
pub struct At<T> {
    /// What was read.
    pub value: T,
    /// Its bytes in the file; `0..0` for what was typed elsewhere.
    pub span: Range<usize>,
}

/// What can be read from a value. A failure is reported, not returned.
pub trait Read: Sized {
    /// What is wanted, for the reference.
    const KIND: Kind;

    /// Reads the value of `key`. `None` when it cannot be read, and then it was reported.
    fn read(value: &Value<'_>, key: &str, report: &mut Report<'_>) -> Option<Self>;
}

/// What a key wants, as the reference tells it.
pub enum Kind {
    /// A value, in words.
    Value(&'static str),
    /// A list of what is inside; a single one will do.
    List(&'static Kind),
    /// A table with keys of its own.
    Table(&'static Section),
}

/// A table of the file as it was declared: what the reference is made of.
pub struct Section {
    /// What it is called in messages.
    pub place: &'static str,
    /// Its keys, as they were declared.
    pub keys: &'static [Key],
}

/// A key of the file as it was declared.
pub struct Key {
    /// Its name as Rust has it: `match` is `r#match`.
    pub raw_name: &'static str,
    /// What it wants.
    pub kind: &'static Kind,
    /// What it means. It ends with `Default: ...` or `Required.`, or is about a table.
    pub doc: &'static str,
}

impl Key {
    /// Its name in the file.
    pub fn name(&self) -> &'static str {
        self.raw_name.strip_prefix("r#").unwrap_or(self.raw_name)
    }
}

/// The keys of one table, being read.
pub struct Fields<'a, 'i, 'r, 't> {
    table: &'a DeTable<'i>,
    place: &'static str,
    known: Vec<&'static str>,
    report: &'r mut Report<'t>,
}

impl<'a, 'i, 'r, 't> Fields<'a, 'i, 'r, 't> {
    /// The keys of a table that messages call `place`.
    pub fn new(table: &'a DeTable<'i>, place: &'static str, report: &'r mut Report<'t>) -> Self {
        Fields { table, place, known: Vec::new(), report }
    }

    /// Reads one key. `None` when it is not there, or cannot be read.
    pub fn take<T: Read>(&mut self, key: &'static str) -> Option<At<T>> {
        let key = key.strip_prefix("r#").unwrap_or(key);
        self.known.push(key);
        let value = self.table.get(key)?;
        T::read(value, key, self.report).map(|read| At { value: read, span: value.span() })
    }

    /// Reports the keys that nobody asked for.
    pub fn finish(self) {
        for (key, _) in self.table.iter() {
            if !self.known.contains(&key.get_ref().as_ref()) {
                let hint = suggestion(key.get_ref(), &self.known);
                self.report.error(&key.span(), format!("unknown key \"{}\" {}{hint}", key.get_ref(), self.place));
            }
        }
    }
}

/// Declares a table of the file once: its keys, what they mean, their types, and what it is called in messages.
///
/// ```
/// use tidegate_config::{Report, Time, parse_document, section};
///
/// section! {
///     struct RawPool ("in [pool]") {
///         /// How long a connection is kept. Default: `"30s"`.
///         idle: Time,
///         /// How many. Default: `256`.
///         most: u64,
///     }
/// }
///
/// let text = "idel = \"1s\"\nmost = \"many\"";
/// let mut report = Report::new(text);
/// let document = parse_document(text, &mut report).expect("TOML");
/// let pool = RawPool::read_table(document.get_ref(), &mut report);
/// assert!(pool.idle.is_none() && pool.most.is_none());
/// let told: Vec<String> = report.finish().0.iter().map(|problem| problem.at("pool.toml")).collect();
/// assert_eq!(told[0], "pool.toml:1: unknown key \"idel\" in [pool]; did you mean \"idle\"?");
/// assert_eq!(told[1], "pool.toml:2: \"most\" must be a whole number, 0 or more; found a string");
/// ```
#[macro_export]
macro_rules! section {
    ($(#[$meta:meta])* $vis:vis struct $name:ident ($place:literal) {
        $($(#[doc = $doc:literal])+ $key:ident: $type:ty,)*
    }) => {
        $(#[$meta])*
        #[derive(Clone, Debug, Default)]
        $vis struct $name {
            $($(#[doc = $doc])+ $vis $key: Option<$crate::At<$type>>,)*
        }

        #[allow(dead_code, reason = "a table may be read only as a whole file, or only below others")]
        impl $name {
            /// What was declared.
            $vis const SECTION: $crate::Section = $crate::Section {
                place: $place,
                keys: &[$($crate::Key {
                    raw_name: stringify!($key),
                    kind: &<$type as $crate::Read>::KIND,
                    doc: concat!($($doc),+),
                }),*],
            };

            /// Reads a table; mistakes are reported.
            $vis fn read_table(table: &$crate::Table<'_>, report: &mut $crate::Report<'_>) -> Self {
                let mut fields = $crate::Fields::new(table, $place, report);
                let read = $name { $($key: fields.take(stringify!($key)),)* };
                fields.finish();
                read
            }
        }

        impl $crate::Read for $name {
            const KIND: $crate::Kind = $crate::Kind::Table(&$name::SECTION);

            fn read(value: &$crate::Value<'_>, key: &str, report: &mut $crate::Report<'_>) -> Option<Self> {
                match value.get_ref().as_table() {
                    Some(table) => Some($name::read_table(table, report)),
                    None => $crate::wrong(value, key, concat!("a table, ", $place), report),
                }
            }
        }
    };
}

/// Reports a value of the wrong kind: what was `wanted`, in words that follow "must be".
pub fn wrong<T>(value: &Value<'_>, key: &str, wanted: &str, report: &mut Report<'_>) -> Option<T> {
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
pub struct List<T>(pub Vec<At<T>>);

impl<T: Read> Read for List<T> {
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
