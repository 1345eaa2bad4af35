//! A whole state, the audit log before it, and what may be deleted after it.
//!
//! *Intuition.* Pieces and books are written under names of their own and never change; the one write of the state's
//! object makes them valid, and what they replace garbage. It names the version that was read: of two that would be the
//! next, one is.
//!
//! *Awkward cases.* That write may be carried out after its time was up. So it is neither taken for done nor for
//! failed: the very same one is given again before anything else is written. Garbage is deleted beside the work, as far
//! as that goes. What a crash left behind, the next who takes over deletes, but only of terms before its own: one that
//! was deposed meanwhile and does not know can delete nothing of those after it.

use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::Value;
use tracing::warn;

use super::layout::{Book, Meta, Names, Writer, meta_text, packed_bytes, term_of};
use super::packed::{inflate, pack, squeeze};
use super::{ClusterStore, TRIES};
use crate::backend::{FORMAT, StoreError};
use crate::kubernetes::{ApiError, ApiServer, Calls};
use crate::plane::Plane;

/// Bytes of a piece of a state: below what an object may have, 1 MiB.
const PIECE: usize = 768 * 1024;
/// Bytes of a book's text, which is packed, and how many books are kept.
const BOOK: usize = 512 * 1024;
const BOOKS: usize = 32;

impl ClusterStore {
    /// What the state's object says, and its version.
    pub(super) fn read_meta(&self) -> Result<Option<(Meta, String)>, StoreError> {
        let object: Option<ConfigMap> = self.server.get(&self.names.state()).map_err(|error| self.unheard(error))?;
        let Some(object) = object else { return Ok(None) };
        let value: Value = serde_json::from_str(meta_text(&object)).map_err(|error| self.failed(error))?;
        let found = value["format"].as_u64().unwrap_or_default();
        if found != FORMAT {
            return Err(StoreError::Format { place: self.place(), found });
        }
        let meta = serde_json::from_value(value).map_err(|error| self.failed(error))?;
        Ok(Some((meta, object.metadata.resource_version.unwrap_or_default())))
    }

    /// A state, packed; `None`: a piece is not there.
    pub(super) fn read_pieces(&self, meta: &Meta) -> Result<Option<Vec<u8>>, StoreError> {
        let mut packed = Vec::new();
        for piece in 0..meta.pieces {
            let Some(bytes) = self.read_packed(&self.names.piece(meta, piece))? else { return Ok(None) };
            packed.extend(bytes);
        }
        Ok(Some(packed))
    }

    /// The lines of a book; none when it is not there any more.
    pub(super) fn read_book(&self, book: &Book) -> Result<String, StoreError> {
        let Some(bytes) = self.read_packed(&book.name)? else { return Ok(String::new()) };
        let text = inflate(&bytes).map_err(|error| self.failed(error))?;
        String::from_utf8(text).map_err(|error| self.failed(error))
    }

    /// Writes pieces and books, and what would make them valid.
    pub(super) fn write_state(&mut self, plane: &Plane) -> Result<Meta, StoreError> {
        let packed = pack(&plane.state()).map_err(|error| self.failed(error))?;
        let pieces = packed.len().div_ceil(PIECE);
        let mut after = Meta { writer: self.writer, since: self.next, pieces, ..self.meta.clone() };
        for (at, piece) in packed.chunks(PIECE).enumerate() {
            self.write_whole(self.names.piece(&after, at), after.writer, piece.to_vec())?;
        }
        self.write_books(&mut after)?;
        Ok(after)
    }

    /// Makes a state valid, and forgets what was before it. `false`: another one has done so.
    pub(super) fn flip(&mut self, after: Meta) -> Result<bool, StoreError> {
        self.guard()?;
        for _ in 0..TRIES {
            match self.put(&after.object(&self.names, self.version.as_ref())) {
                Ok(version) => {
                    self.follows(after, version);
                    return Ok(true);
                }
                Err(ApiError::Conflict(_)) => match self.read_meta()? {
                    Some((there, version)) if there == after => {
                        self.follows(after, version);
                        return Ok(true);
                    }
                    // Somebody put a label on it.
                    Some((there, version)) if self.version.is_some() && there == self.meta => {
                        self.version = Some(version);
                    }
                    _ => return Ok(false),
                },
                Err(ApiError::Missing(_)) => return Err(self.gone(&self.names.state())),
                Err(error) => return Err(self.unheard(error)),
            }
        }
        Err(StoreError::Away(format!("{} changes all the time", self.names.state())))
    }

    /// Deletes what crashed leaders left.
    pub(super) fn sweep(&self) {
        let (calls, names, needed) = (self.server.calls(), self.names.clone(), self.names.of(&self.meta));
        let term = self.meta.writer.term;
        self.server.spawn(async move {
            // The next one tries it again.
            let all = match calls.list::<ConfigMap>(&names.selector()).await {
                Ok(all) => all,
                Err(error) => return stays(&error),
            };
            let garbage = all.into_iter().filter(|metadata| term_of(metadata).is_some_and(|made| made < term));
            let garbage = garbage.filter_map(|metadata| metadata.name).filter(|name| !needed.contains(name));
            delete_all(&calls, garbage).await;
        });
    }

    /// From now on this is the state.
    fn follows(&mut self, after: Meta, version: String) {
        let needed = self.names.of(&after);
        let mut garbage = self.names.of(&self.meta);
        garbage.append(&mut self.chapters);
        garbage.append(&mut self.unused);
        garbage.retain(|name| !needed.contains(name));
        // What was before a takeover is swept.
        if self.meta.writer == after.writer {
            let calls = self.server.calls();
            // Else it is left to the next one that takes over.
            self.server.spawn(async move { delete_all(&calls, garbage.into_iter()).await });
        }
        (self.meta, self.version, self.chapter, self.journal_bytes) = (after, Some(version), None, 0);
        self.unsaved.clear();
    }

    /// The records that are not written yet go behind the last book, and what is too much begins the next.
    fn write_books(&mut self, after: &mut Meta) -> Result<(), StoreError> {
        if self.unsaved.is_empty() {
            return Ok(());
        }
        let mut text = match after.books.pop() {
            Some(last) => {
                let text = self.read_book(&last)?;
                if text.len() >= BOOK {
                    after.books.push(last);
                    String::new()
                } else {
                    text
                }
            }
            None => String::new(),
        };
        let mut written = 0;
        let unsaved = std::mem::take(&mut self.unsaved);
        let mut records = unsaved.iter().peekable();
        let outcome = loop {
            let Some(record) = records.next() else { break Ok(()) };
            text.push_str(&record.to_string());
            text.push('\n');
            if text.len() >= BOOK || records.peek().is_none() {
                let book = Book { name: self.names.book(after, written), last: number(record) };
                let packed = squeeze(text.as_bytes()).map_err(|error| self.failed(error));
                let done = packed.and_then(|packed| self.write_whole(book.name.clone(), after.writer, packed));
                if let Err(error) = done {
                    break Err(error);
                }
                after.books.push(book);
                (text, written) = (String::new(), written + 1);
            }
        };
        self.unsaved = unsaved;
        after.books.drain(..after.books.len().saturating_sub(BOOKS));
        outcome
    }

    /// Writes an object that nothing leads to yet.
    fn write_whole(&mut self, name: String, writer: Writer, bytes: Vec<u8>) -> Result<(), StoreError> {
        self.guard()?;
        self.unused.push(name.clone());
        let mut object = self.names.packed(name.clone(), writer, bytes);
        for _ in 0..TRIES {
            match self.put(&object) {
                Ok(_) => return Ok(()),
                // Of a try that broke off.
                Err(ApiError::Conflict(_) | ApiError::Missing(_)) => {
                    let there: Option<ConfigMap> = self.server.get(&name).map_err(|error| self.unheard(error))?;
                    object.metadata.resource_version = there.and_then(|there| there.metadata.resource_version);
                }
                Err(error) => return Err(self.unheard(error)),
            }
        }
        Err(StoreError::Away(format!("{name} changes all the time")))
    }

    fn read_packed(&self, name: &str) -> Result<Option<Vec<u8>>, StoreError> {
        let object: Option<ConfigMap> = self.server.get(name).map_err(|error| self.unheard(error))?;
        Ok(object.map(packed_bytes))
    }
}

/// Deletes what is of no use any more, as far as that goes.
async fn delete_all(calls: &Calls, garbage: impl Iterator<Item = String>) {
    for name in garbage {
        if let Err(error) = calls.delete::<ConfigMap>(&name).await
            && is_refused(&error)
        {
            // The others would be, too.
            return stays(&error);
        }
    }
}

/// Whether it will be so the next time, too.
fn is_refused(error: &ApiError) -> bool {
    matches!(error, ApiError::Answer(_))
}

/// Says what is lasting: nothing hangs on what stays, but a quota may count it, and nobody else would notice.
fn stays(error: &ApiError) {
    if is_refused(error) {
        warn!("litter: {error}; ConfigMaps that are of no use any more stay, and more and more of them");
    }
}

/// The last term of a store below `prefix`; 0: there is none.
pub(in crate::backend::kubernetes) fn term_in_cluster(server: &ApiServer, prefix: &str) -> Result<u64, ApiError> {
    let names = Names { prefix: prefix.to_owned() };
    let object: Option<ConfigMap> = server.get(&names.state())?;
    Ok(object.and_then(|object| term_of(&object.metadata)).unwrap_or(0))
}

pub(super) fn number(record: &Value) -> u64 {
    record["number"].as_u64().unwrap_or_default()
}
