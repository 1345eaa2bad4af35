//! Values that the engine has no word for: what one policy shows of itself, and what it says in events.
//!
//! Whoever writes them down needs to know nothing of the policy: they serialise as a struct with these fields would,
//! and their debug form is that of one. Servers and classes stay recognisable, so that they can be given their names.

use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use serde::ser::{Serialize, SerializeMap, Serializer};

use crate::request::{ClassId, ServerId};

/// Named values, in order.
#[derive(Clone, Default, PartialEq)]
pub struct Facts {
    name: &'static str,
    fields: Vec<(&'static str, Fact)>,
}

/// A value that a policy publishes.
#[derive(Clone, PartialEq)]
#[non_exhaustive]
pub enum Fact {
    /// A truth value, yes or no.
    Flag(bool),
    /// A number of things.
    Count(u64),
    /// A quantity, in the unit that its key names.
    Number(f64),
    /// A word, or more.
    Text(Cow<'static, str>),
    /// A server.
    Server(ServerId),
    /// A class.
    Class(ClassId),
    /// Something that may be missing.
    Maybe(Option<Box<Fact>>),
    /// Several values of one kind.
    List(Vec<Fact>),
    /// Values within the value.
    Facts(Facts),
}

impl Facts {
    /// None yet; `name` in lower case, with hyphens.
    pub const fn new(name: &'static str) -> Facts {
        Facts { name, fields: Vec::new() }
    }

    /// These, and one more.
    pub fn with(mut self, key: &'static str, value: impl Into<Fact>) -> Facts {
        self.fields.push((key, value.into()));
        self
    }

    /// Gives every server its name; `None`: it is known no more, and the value is missing.
    pub(crate) fn name_servers(&mut self, name: &dyn Fn(ServerId) -> Option<String>) {
        self.fields.iter_mut().for_each(|(_, fact)| fact.name_servers(name));
    }

    /// What they are about.
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.fields.is_empty()
    }

    /// Every value with its key.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, &Fact)> {
        self.fields.iter().map(|(key, fact)| (*key, fact))
    }

    /// The value of a key; `None`: there is no such key, or the value is missing.
    pub fn get(&self, key: &str) -> Option<&Fact> {
        let (_, fact) = self.fields.iter().find(|(name, _)| *name == key)?;
        fact.present()
    }

    /// A number or a count.
    pub fn number(&self, key: &str) -> Option<f64> {
        match self.get(key)? {
            Fact::Number(number) => Some(*number),
            Fact::Count(count) => Some(*count as f64),
            _ => None,
        }
    }

    /// A count.
    pub fn count(&self, key: &str) -> Option<u64> {
        match self.get(key)? {
            Fact::Count(count) => Some(*count),
            _ => None,
        }
    }

    /// A text.
    pub fn text(&self, key: &str) -> Option<&str> {
        match self.get(key)? {
            Fact::Text(text) => Some(text),
            _ => None,
        }
    }

    /// Whether a flag is there and set.
    pub fn is_set(&self, key: &str) -> bool {
        matches!(self.get(key), Some(Fact::Flag(true)))
    }

    /// Values within a value.
    pub fn facts(&self, key: &str) -> Option<&Facts> {
        match self.get(key)? {
            Fact::Facts(facts) => Some(facts),
            _ => None,
        }
    }

    /// A list of such; empty where there is none.
    pub fn list(&self, key: &str) -> impl Iterator<Item = &Facts> {
        let list = match self.get(key) {
            Some(Fact::List(list)) => list.as_slice(),
            _ => &[],
        };
        list.iter().filter_map(|fact| match fact {
            Fact::Facts(facts) => Some(facts),
            _ => None,
        })
    }
}

impl Fact {
    /// The value itself, where it may be missing and is not.
    pub fn present(&self) -> Option<&Fact> {
        match self {
            Fact::Maybe(fact) => fact.as_deref()?.present(),
            fact => Some(fact),
        }
    }

    fn name_servers(&mut self, name: &dyn Fn(ServerId) -> Option<String>) {
        match self {
            Fact::Server(id) => *self = name(*id).map_or(Fact::Maybe(None), Fact::from),
            Fact::Maybe(Some(fact)) => {
                fact.name_servers(name);
                if matches!(**fact, Fact::Maybe(None)) {
                    *self = Fact::Maybe(None);
                }
            }
            Fact::List(list) => list.iter_mut().for_each(|fact| fact.name_servers(name)),
            Fact::Facts(facts) => facts.name_servers(name),
            _ => {}
        }
    }
}

macro_rules! from {
    ($($from:ty, $value:ident => $fact:expr;)+) => {
        $(impl From<$from> for Fact {
            fn from($value: $from) -> Fact {
                $fact
            }
        })+
    };
}

from! {
    bool, flag => Fact::Flag(flag);
    u32, count => Fact::Count(count.into());
    u64, count => Fact::Count(count);
    f64, number => Fact::Number(number);
    &'static str, text => Fact::Text(Cow::Borrowed(text));
    String, text => Fact::Text(Cow::Owned(text));
    ServerId, server => Fact::Server(server);
    ClassId, class => Fact::Class(class);
    Facts, facts => Fact::Facts(facts);
}

impl<T: Into<Fact>> From<Option<T>> for Fact {
    fn from(value: Option<T>) -> Fact {
        Fact::Maybe(value.map(|value| Box::new(value.into())))
    }
}

impl<T: Into<Fact>> From<Vec<T>> for Fact {
    fn from(values: Vec<T>) -> Fact {
        Fact::List(values.into_iter().map(Into::into).collect())
    }
}

impl Serialize for Facts {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.fields.len()))?;
        self.iter().try_for_each(|(key, fact)| map.serialize_entry(key, fact))?;
        map.end()
    }
}

impl Serialize for Fact {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Fact::Flag(flag) => flag.serialize(serializer),
            Fact::Count(count) => count.serialize(serializer),
            Fact::Number(number) => number.serialize(serializer),
            Fact::Text(text) => text.serialize(serializer),
            Fact::Server(server) => server.0.serialize(serializer),
            Fact::Class(class) => class.0.serialize(serializer),
            Fact::Maybe(fact) => fact.serialize(serializer),
            Fact::List(list) => list.serialize(serializer),
            Fact::Facts(facts) => facts.serialize(serializer),
        }
    }
}

impl fmt::Debug for Facts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct(&type_name(self.name));
        self.iter().for_each(|(key, fact)| _ = shown.field(key, fact));
        shown.finish()
    }
}

impl fmt::Debug for Fact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown: &dyn fmt::Debug = match self {
            Fact::Flag(flag) => flag,
            Fact::Count(count) => count,
            Fact::Number(number) => number,
            Fact::Text(text) => text,
            Fact::Server(server) => server,
            Fact::Class(class) => class,
            Fact::Maybe(fact) => fact,
            Fact::List(list) => list,
            Fact::Facts(facts) => facts,
        };
        shown.fmt(f)
    }
}

/// `policy-switched` as the name of a type: `PolicySwitched`.
fn type_name(name: &str) -> String {
    let mut upper = true;
    let mut out = String::with_capacity(name.len());
    for c in name.chars() {
        match c {
            '-' => upper = true,
            c if core::mem::take(&mut upper) => out.push(c.to_ascii_uppercase()),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use alloc::format;
    use alloc::string::ToString;

    use super::*;

    fn facts() -> Facts {
        Facts::new("server-judged")
            .with("server", Some(ServerId(3)))
            .with("rate", Some(10.0))
            .with("input", None::<f64>)
            .with("why", "at-least")
            .with("parts", alloc::vec![1.0, 2.5])
            .with("classes", alloc::vec![Facts::new("part").with("class", ClassId(1)).with("count", 7u64)])
    }

    #[test]
    fn they_are_written_as_a_struct_of_these_fields() {
        let debug = "ServerJudged { server: Some(ServerId(3)), rate: Some(10.0), input: None, why: \"at-least\", \
                     parts: [1.0, 2.5], classes: [Part { class: ClassId(1), count: 7 }] }";
        assert_eq!(format!("{:?}", facts()), debug);
        let json = r#"{"server":3,"rate":10.0,"input":null,"why":"at-least","parts":[1.0,2.5],"classes":[{"class":1,"count":7}]}"#;
        assert_eq!(serde_json::to_string(&facts()).expect("JSON"), json);
    }

    #[test]
    fn values_are_read_by_key() {
        let facts = facts();
        assert_eq!((facts.number("rate"), facts.number("input"), facts.number("rote")), (Some(10.0), None, None));
        assert_eq!((facts.text("why"), facts.text("rate")), (Some("at-least"), None));
        assert_eq!(facts.list("classes").map(|class| class.number("count")).collect::<Vec<_>>(), [Some(7.0)]);
        assert_eq!(facts.list("why").count(), 0);
    }

    #[test]
    fn servers_get_their_names_or_are_missing() {
        let (mut known, mut gone) = (facts(), facts());
        known.name_servers(&|id| Some(id.0.to_string()));
        gone.name_servers(&|_| None);
        assert_eq!((known.text("server"), gone.get("server")), (Some("3"), None));
        assert!(format!("{known:?}").starts_with("ServerJudged { server: Some(\"3\")"), "{known:?}");
        assert!(format!("{gone:?}").starts_with("ServerJudged { server: None"), "{gone:?}");
    }
}
