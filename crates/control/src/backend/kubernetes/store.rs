//! Journal, state and audit log in ConfigMaps of a cluster.
//!
//! ```text
//! PREFIX                            the Lease (lease.rs)
//! PREFIX-state                      format, id, origin, writer, the first input after the state, its pieces, books
//! PREFIX-state-WRITER-FIRST-PIECE   a state, packed, in pieces that the API server takes
//! PREFIX-journal-WRITER-FIRST       inputs since, up to 16 in each
//! PREFIX-audit-WRITER-FIRST-BOOK    records, packed
//! ```
//!
//! | file | question |
//! |---|---|
//! | `store/layout.rs` | what the objects look like: pure |
//! | `store/journal.rs` | how an input is written, and how a journal ends |
//! | `store/state.rs` | how a state is written, and what is deleted after it |
//! | `store/packed.rs` | how it is made small |
//!
//! *Intuition.* The API server has no transactions, but a write can name the version that it was made for. The journal
//! is a chain in which each input has one place, and so has its end: who takes over first writes the end into the
//! journal of the one before it (the seal), then reads it, then writes a whole state under its own term; only then it
//! acts. A leader that stood still finds the seal where its next input would go, and writes nothing.
//!
//! *Awkward cases.* A write that was not answered may have been carried out, or may be later. It is given again, finds
//! its own text, and counts as written. The state of the one before may change while it is taken over: then the write
//! that would make the new one valid is refused, and all of it begins again.
//!
//! *Source.* Sealing the log of a deposed writer: Apache BookKeeper (`fencing`), and Balakrishnan et al., CORFU, 2012.

mod journal;
mod layout;
mod packed;
mod state;

use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::Value;
use tidegate_provision::Site;

use super::lease::Seat;
use crate::backend::{EVERY, FORMAT, Leader, Store, StoreError, Tenure, numbered};
use crate::kubernetes::{ApiError, ApiServer};
use crate::plane::{Input, Plane};
use layout::{Chapter, Meta, Names, Writer};
use packed::unpack;
use state::number;

pub(super) use state::term_in_cluster;

/// The most bytes of an input: with a chapter that is nearly full below what an object may have.
const INPUT: usize = 640 * 1024;
/// A state is written after so many bytes of inputs, too, or so many records.
const JOURNAL: usize = 8 << 20;
const RECORDS: usize = 20_000;
/// What changes meanwhile is read again so often.
const TRIES: usize = 8;

#[derive(Debug)]
pub(super) struct ClusterStore {
    server: ApiServer,
    names: Names,
    /// `None`: it is only looked.
    seat: Option<Seat>,
    /// This one, if it leads.
    writer: Writer,
    /// The number of the next input.
    next: u64,
    meta: Meta,
    /// That of the state's object; `None`: there is none.
    version: Option<String>,
    /// The chapter that the next input goes to; `None`: it begins one.
    chapter: Option<Chapter>,
    /// The names of those since the state, and the bytes in them.
    chapters: Vec<String>,
    journal_bytes: usize,
    /// A state of which it is not known whether it is valid.
    unsure: Option<Meta>,
    /// Objects of states that did not become valid.
    unused: Vec<String>,
    /// Records since the state, oldest first: until the next one they can be made again from the journal.
    unsaved: Vec<Value>,
}

impl ClusterStore {
    /// That of a leader; nothing is asked yet.
    pub(super) fn lead(seat: Seat, prefix: &str, wall: u64) -> ClusterStore {
        let mut store = ClusterStore::new(seat.server().clone(), prefix);
        store.writer = Writer { term: seat.tenure().term(), mark: tidegate_wire::random_u64() as u32 };
        (store.meta.id, store.meta.origin) = (tidegate_wire::random_u64(), wall);
        store.seat = Some(seat);
        store
    }

    /// Only to look at.
    ///
    /// # Errors
    /// When the API server does not answer, or has nothing there.
    pub(super) fn look(server: &ApiServer, prefix: &str) -> Result<ClusterStore, StoreError> {
        let mut store = ClusterStore::new(server.clone(), prefix);
        let Some((meta, version)) = store.read_meta()? else {
            return Err(StoreError::Missing { place: store.place() });
        };
        store.next = meta.since;
        (store.meta, store.version) = (meta, Some(version));
        Ok(store)
    }

    fn new(server: ApiServer, prefix: &str) -> ClusterStore {
        let writer = Writer::default();
        let meta = Meta { format: FORMAT, id: 0, origin: 0, writer, since: 1, pieces: 0, books: Vec::new() };
        ClusterStore {
            server,
            names: Names { prefix: prefix.to_owned() },
            seat: None,
            writer,
            next: 1,
            meta,
            version: None,
            chapter: None,
            chapters: Vec::new(),
            journal_bytes: 0,
            unsure: None,
            unused: Vec::new(),
            unsaved: Vec::new(),
        }
    }
}

impl Store for ClusterStore {
    fn plane(&mut self, site: Site) -> Result<Plane, StoreError> {
        for _ in 0..TRIES {
            if let Some(plane) = self.try_plane(&site)? {
                return Ok(plane);
            }
        }
        Err(StoreError::Away(format!("{} changes all the time", self.place())))
    }

    fn handle(&mut self, plane: &mut Plane, input: &Input) -> Result<Vec<Value>, StoreError> {
        self.settle()?;
        let text = serde_json::to_string(input).map_err(|error| self.failed(error))?;
        let bytes = text.len();
        if bytes > INPUT {
            return Err(self.failed(format!("an input of {bytes} bytes is more than an object may have")));
        }
        self.append(text)?;
        plane.handle(input);
        let records = plane.take_records();
        let kept = self.numbered(&records)?;
        self.unsaved.extend(kept.iter().cloned());
        self.next += 1;
        self.journal_bytes += bytes;
        let is_long = self.journal_bytes >= JOURNAL || self.unsaved.len() >= RECORDS;
        if is_long || self.next - self.meta.since >= EVERY {
            match self.keep_state(plane) {
                // The journal is still there; it is tried again with the next input.
                Ok(()) | Err(StoreError::Away(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(kept)
    }

    fn keep_state(&mut self, plane: &Plane) -> Result<(), StoreError> {
        self.settle()?;
        self.guard()?;
        if self.meta.since == self.next && self.meta.pieces > 0 {
            return Ok(());
        }
        let after = self.write_state(plane)?;
        self.flip_mine(after)
    }

    fn audit(&self, after: u64, most: usize) -> Result<Vec<Value>, StoreError> {
        let mut records: Vec<Value> = Vec::new();
        for book in self.meta.books.iter().filter(|book| book.last > after) {
            if records.len() >= most {
                break;
            }
            for line in self.read_book(book)?.lines() {
                let record: Value = serde_json::from_str(line).map_err(|error| self.failed(error))?;
                if number(&record) > after && records.len() < most {
                    records.push(record);
                }
            }
        }
        let room = most - records.len();
        records.extend(self.unsaved.iter().filter(|record| number(record) > after).take(room).cloned());
        Ok(records)
    }

    fn resign(&self) {
        if let Some(seat) = &self.seat {
            seat.resign();
        }
    }

    fn id(&self) -> u64 {
        self.meta.id
    }

    fn origin(&self) -> u64 {
        self.meta.origin
    }

    fn tenure(&self) -> Option<&Tenure> {
        self.seat.as_ref().map(Seat::tenure)
    }
}

impl ClusterStore {
    /// Reads everything once, and takes over if this one leads; `None`: it changed meanwhile.
    fn try_plane(&mut self, site: &Site) -> Result<Option<Plane>, StoreError> {
        let Some((meta, version)) = self.read_meta()? else { return self.begin(site) };
        let (me, mine) = match &self.seat {
            Some(_) if self.writer == meta.writer => (None, true),
            Some(seat) if self.writer.term > meta.writer.term => (Some(seat.me().clone()), false),
            Some(_) => return Err(self.deposed(None)),
            None => (None, false),
        };
        let chapters = self.journal(&meta, me.as_ref())?;
        let Some(plane) = self.restore(&meta, site)? else {
            let is_same = self.read_meta()?.is_some_and(|(_, now)| now == version);
            return if is_same { Err(self.failed("a piece of the state is missing")) } else { Ok(None) };
        };
        (self.next, self.meta, self.version) = (meta.since, meta, Some(version));
        (self.chapter, self.unsure) = (None, None);
        self.unsaved.clear();
        let plane = self.replay(plane, &chapters)?;
        if me.is_none() {
            let name = |chapter: &Chapter| self.names.chapter(self.meta.writer, chapter.first);
            self.chapters = chapters.iter().map(name).collect();
            self.chapter = chapters.into_iter().next_back().filter(|chapter| mine && chapter.ends.is_none());
            let is_same = self.read_meta()?.is_some_and(|(_, now)| Some(now) == self.version);
            return Ok(is_same.then_some(plane));
        }
        let after = self.write_state(&plane)?;
        if !self.flip(after)? {
            return Ok(None);
        }
        self.sweep();
        Ok(Some(plane))
    }

    /// The very first state.
    fn begin(&mut self, site: &Site) -> Result<Option<Plane>, StoreError> {
        self.guard()?;
        let plane = Plane::new(site.clone())?;
        let first = Meta { writer: self.writer, since: 1, pieces: 0, books: Vec::new(), ..self.meta.clone() };
        (self.next, self.version) = (1, None);
        Ok(self.flip(first)?.then_some(plane))
    }

    fn restore(&self, meta: &Meta, site: &Site) -> Result<Option<Plane>, StoreError> {
        if meta.pieces == 0 {
            return Ok(Some(Plane::new(site.clone())?));
        }
        let Some(packed) = self.read_pieces(meta)? else { return Ok(None) };
        let state = unpack(&packed).map_err(|error| self.failed(error))?;
        let plane = Plane::restore(site.clone(), state);
        plane.map(Some).map_err(|source| StoreError::Restore { place: self.place(), source })
    }

    fn replay(&mut self, mut plane: Plane, chapters: &[Chapter]) -> Result<Plane, StoreError> {
        for text in chapters.iter().flat_map(|chapter| &chapter.inputs) {
            let input: Input = serde_json::from_str(text).map_err(|error| self.failed(error))?;
            plane.handle(&input);
            let records = plane.take_records();
            self.unsaved.extend(self.numbered(&records)?);
            self.next += 1;
        }
        Ok(plane)
    }

    /// Gives a state again of which it is not known whether it is valid.
    fn settle(&mut self) -> Result<(), StoreError> {
        match self.unsure.take() {
            Some(after) => self.flip_mine(after),
            None => Ok(()),
        }
    }

    fn flip_mine(&mut self, after: Meta) -> Result<(), StoreError> {
        match self.flip(after.clone()) {
            Ok(true) => Ok(()),
            Ok(false) => Err(self.deposed(None)),
            Err(error) => {
                self.unsure = Some(after);
                Err(error)
            }
        }
    }

    /// That this one leads, as far as it knows.
    fn guard(&self) -> Result<(), StoreError> {
        let tenure = self.tenure().filter(|tenure| !tenure.has_ended());
        let tenure = tenure.ok_or(StoreError::Deposed { leader: None })?;
        match tenure.away() {
            // Until the lease could be renewed, asking takes long and leads nowhere.
            Some(why) => Err(StoreError::Away(why)),
            None => Ok(()),
        }
    }

    /// Makes an object, or writes it in the place of the version that it names: its version then.
    fn put(&self, object: &ConfigMap) -> Result<String, ApiError> {
        let written = match object.metadata.resource_version {
            Some(_) => self.server.replace(object)?,
            None => self.server.create(object)?,
        };
        Ok(written.metadata.resource_version.unwrap_or_default())
    }

    /// A call that came to nothing; notes when that was for want of an answer.
    fn unheard(&self, error: ApiError) -> StoreError {
        if let (ApiError::Away(_), Some(seat)) = (&error, &self.seat) {
            seat.tenure().missed(&error.to_string());
        }
        match StoreError::from(error) {
            StoreError::Failed { problem, .. } => self.failed(problem),
            other => other,
        }
    }

    /// Somebody else leads: what is begun outside of the store ends, too.
    fn deposed(&self, leader: Option<Leader>) -> StoreError {
        if let Some(seat) = &self.seat {
            seat.tenure().end();
        }
        StoreError::Deposed { leader: leader.map(Box::new) }
    }

    fn gone(&self, name: &str) -> StoreError {
        self.failed(format!("ConfigMap {name} is gone; its content is lost if it was deleted"))
    }

    fn numbered(&self, records: &[crate::plane::Record]) -> Result<Vec<Value>, StoreError> {
        numbered(self.next, records, self.meta.origin).map_err(|error| self.failed(error))
    }

    fn failed(&self, error: impl std::fmt::Display) -> StoreError {
        StoreError::Failed { place: self.place(), problem: error.to_string() }
    }

    fn place(&self) -> String {
        format!("Kubernetes, {}/{}", self.server.namespace(), self.names.prefix)
    }
}
