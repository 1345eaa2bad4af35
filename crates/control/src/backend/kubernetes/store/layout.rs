//! Layout of the objects in a cluster. Pure functions.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::core::ObjectMeta;
use serde::{Deserialize, Serialize};

use crate::backend::Leader;
use crate::backend::kubernetes::{MANAGED_BY, MANAGER, said};

/// The label of what belongs to one store.
const INSTANCE: &str = "app.kubernetes.io/instance";
/// The label with the term in which an object was made.
const TERM: &str = "tidegate/term";

/// Inputs of a chapter, at most.
const INPUTS: usize = 16;
/// A chapter with so many bytes is full: with the longest input below what an object may have, 1 MiB.
const FULL: usize = 256 * 1024;

const META: &str = "meta";
const PACKED: &str = "packed";
const ENDS: &str = "ends";
const SEALED_BY: &str = "sealed-by";

/// What the state's object says.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub(super) struct Meta {
    pub(super) format: u64,
    pub(super) id: u64,
    /// Wall time at the plane's origin, nanoseconds since 1970.
    pub(super) origin: u64,
    /// Whose journal follows.
    pub(super) writer: Writer,
    /// The number of the first input after the state.
    pub(super) since: u64,
    /// Its pieces; 0: there is no state yet.
    pub(super) pieces: usize,
    /// The audit log, oldest first.
    pub(super) books: Vec<Book>,
}

/// Who writes: a leader's term, and a mark in case that two had the same one, because somebody deleted the Lease.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub(super) struct Writer {
    pub(super) term: u64,
    pub(super) mark: u32,
}

/// Records.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub(super) struct Book {
    pub(super) name: String,
    /// The number of its last one.
    pub(super) last: u64,
}

/// Inputs that follow each other, in one object.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Chapter {
    /// The number of the first.
    pub(super) first: u64,
    pub(super) inputs: Vec<String>,
    pub(super) ends: Option<Ends>,
    /// The version that was read or written; `None`: it is not there yet.
    pub(super) version: Option<String>,
}

/// Why nothing more is added to a chapter.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Ends {
    /// The next one goes on.
    Full,
    /// There is no next one: this control plane took over.
    Sealed(Leader),
}

/// How a store's objects are called.
#[derive(Clone, Debug)]
pub(super) struct Names {
    pub(super) prefix: String,
}

impl Names {
    pub(super) fn state(&self) -> String {
        format!("{}-state", self.prefix)
    }

    pub(super) fn chapter(&self, writer: Writer, first: u64) -> String {
        self.name("journal", writer, first)
    }

    pub(super) fn piece(&self, meta: &Meta, piece: usize) -> String {
        format!("{}-{piece:03}", self.name("state", meta.writer, meta.since))
    }

    pub(super) fn book(&self, meta: &Meta, book: usize) -> String {
        format!("{}-{book:03}", self.name("audit", meta.writer, meta.since))
    }

    /// Everything that a state's object leads to, but for the journal.
    pub(super) fn of(&self, meta: &Meta) -> Vec<String> {
        let pieces = (0..meta.pieces).map(|piece| self.piece(meta, piece));
        pieces.chain(meta.books.iter().map(|book| book.name.clone())).collect()
    }

    /// Selects every object of this store.
    pub(super) fn selector(&self) -> String {
        format!("{MANAGED_BY}={MANAGER},{INSTANCE}={}", self.prefix)
    }

    fn name(&self, what: &str, writer: Writer, first: u64) -> String {
        format!("{}-{what}-{}-{:08x}-{first:012}", self.prefix, writer.term, writer.mark)
    }

    fn object(&self, name: String, writer: Writer, version: Option<&String>) -> ConfigMap {
        let label = |key: &str, value: String| (key.to_owned(), value);
        let labels = [
            label(MANAGED_BY, MANAGER.to_owned()),
            label(INSTANCE, self.prefix.clone()),
            label(TERM, writer.term.to_string()),
        ];
        let metadata = ObjectMeta {
            name: Some(name),
            labels: Some(labels.into()),
            resource_version: version.cloned(),
            ..ObjectMeta::default()
        };
        ConfigMap { metadata, ..ConfigMap::default() }
    }

    /// An object of bytes.
    pub(super) fn packed(&self, name: String, writer: Writer, bytes: Vec<u8>) -> ConfigMap {
        let binary_data = Some([(PACKED.to_owned(), ByteString(bytes))].into());
        ConfigMap { binary_data, ..self.object(name, writer, None) }
    }
}

impl Meta {
    pub(super) fn object(&self, names: &Names, version: Option<&String>) -> ConfigMap {
        let text = serde_json::to_string(self).unwrap_or_default();
        ConfigMap { data: Some([(META.to_owned(), text)].into()), ..names.object(names.state(), self.writer, version) }
    }
}

impl Chapter {
    /// One that begins with input number `first`.
    pub(super) fn new(first: u64) -> Chapter {
        Chapter { first, inputs: Vec::new(), ends: None, version: None }
    }

    /// As an object has it.
    pub(super) fn read(object: ConfigMap) -> Result<Chapter, String> {
        let name = object.metadata.name.unwrap_or_default();
        let mut data = object.data.unwrap_or_default();
        let sealed_by = data.remove(SEALED_BY);
        let ends = match data.remove(ENDS).as_deref() {
            None => None,
            Some("full") => Some(Ends::Full),
            Some(_) => Some(Ends::Sealed(said(sealed_by.unwrap_or_default().as_bytes()))),
        };
        let first = name.rsplit('-').next().and_then(|digits| digits.parse().ok());
        let first: u64 = first.ok_or_else(|| format!("{name} has no number"))?;
        // Keys are in the order of their numbers: these are equally long.
        let follows = data.keys().zip(first..).all(|(key, number)| *key == key_of(number));
        match follows {
            true => {
                let inputs = data.into_values().collect();
                Ok(Chapter { first, inputs, ends, version: object.metadata.resource_version })
            }
            false => Err(format!("{name}: an input is missing")),
        }
    }

    /// With another input.
    pub(super) fn with(&self, text: String) -> Chapter {
        let mut after = self.clone();
        after.inputs.push(text);
        let bytes: usize = after.inputs.iter().map(String::len).sum();
        // Said in the object, so that who seals the journal need not know these numbers.
        after.ends = (after.inputs.len() >= INPUTS || bytes >= FULL).then_some(Ends::Full);
        after
    }

    /// With nothing to follow.
    pub(super) fn sealed(self, by: &Leader) -> Chapter {
        Chapter { ends: Some(Ends::Sealed(by.clone())), ..self }
    }

    pub(super) fn is_sealed(&self) -> bool {
        matches!(self.ends, Some(Ends::Sealed(_)))
    }

    /// The number of the input after its last.
    pub(super) fn next(&self) -> u64 {
        self.first + self.inputs.len() as u64
    }

    pub(super) fn object(&self, names: &Names, writer: Writer) -> ConfigMap {
        let inputs = self.inputs.iter().zip(self.first..);
        let mut data: BTreeMap<String, String> = inputs.map(|(text, number)| (key_of(number), text.clone())).collect();
        match &self.ends {
            None => {}
            Some(Ends::Full) => drop(data.insert(ENDS.to_owned(), String::from("full"))),
            Some(Ends::Sealed(by)) => {
                data.insert(ENDS.to_owned(), String::from("sealed"));
                data.insert(SEALED_BY.to_owned(), serde_json::to_string(by).unwrap_or_default());
            }
        }
        ConfigMap { data: Some(data), ..names.object(names.chapter(writer, self.first), writer, self.version.as_ref()) }
    }
}

/// The text of a state's object.
pub(super) fn meta_text(object: &ConfigMap) -> &str {
    object.data.as_ref().and_then(|data| data.get(META)).map_or("", String::as_str)
}

/// The bytes of an object that has some.
pub(super) fn packed_bytes(object: ConfigMap) -> Vec<u8> {
    object.binary_data.and_then(|mut data| data.remove(PACKED)).unwrap_or_default().0
}

/// The term in which an object was made.
pub(super) fn term_of(metadata: &ObjectMeta) -> Option<u64> {
    metadata.labels.as_ref()?.get(TERM)?.parse().ok()
}

fn key_of(number: u64) -> String {
    format!("{number:020}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> Names {
        Names { prefix: String::from("site") }
    }

    #[test]
    fn a_chapter_is_read_as_it_was_written() {
        let mut chapter = Chapter::new(99);
        for at in 0..3 {
            chapter = chapter.with(format!("{{\"input\":{at}}}"));
        }
        let object = |chapter: &Chapter| chapter.object(&names(), Writer { term: 7, mark: 255 });
        assert_eq!(object(&chapter).metadata.name.as_deref(), Some("site-journal-7-000000ff-000000000099"));
        assert_eq!(Chapter::read(object(&chapter)), Ok(chapter.clone()));
        assert_eq!((chapter.next(), chapter.is_sealed()), (102, false));
        let sealed = chapter.sealed(&Leader { name: String::from("two"), ..Leader::default() });
        assert_eq!(Chapter::read(object(&sealed)), Ok(sealed.clone()));
        assert!(sealed.is_sealed());
        let mut torn = object(&sealed);
        torn.data.as_mut().expect("inputs").remove(&key_of(100));
        assert!(Chapter::read(torn).expect_err("torn").contains("an input is missing"));
    }

    #[test]
    fn a_chapter_is_full_by_number_or_by_size() {
        let mut chapter = Chapter::new(1);
        for _ in 1..INPUTS {
            chapter = chapter.with(String::from("{}"));
            assert_eq!(chapter.ends, None);
        }
        assert_eq!(chapter.with(String::from("{}")).ends, Some(Ends::Full));
        assert_eq!(Chapter::new(1).with("x".repeat(FULL)).ends, Some(Ends::Full));
    }
}
