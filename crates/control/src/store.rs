//! What survives: the journal of inputs, a state from time to time, and the audit log.
//!
//! *Intuition.* An input is written, and on the disk, before it takes effect. A state is written every few hundred
//! inputs and the journal before it dropped, in one transaction. Records are numbered by the input they came of, so
//! that those of an input that is replayed replace themselves.
//!
//! *Source.* redb: an embedded store in Rust, transactions, a file that another process cannot open meanwhile.

use std::path::{Path, PathBuf};

use redb::{Database, DatabaseError, Durability, ReadableDatabase, ReadableTable, TableDefinition};
use serde_json::Value;
use thiserror::Error;
use tidegate_engine::provision::{ProvisionError, RestoreError, Site};

use crate::plane::{Input, Plane, PlaneState};

const META: TableDefinition<&str, &[u8]> = TableDefinition::new("meta");
const JOURNAL: TableDefinition<u64, &[u8]> = TableDefinition::new("journal");
const AUDIT: TableDefinition<u64, &[u8]> = TableDefinition::new("audit");

/// What is written is read by this version only.
const FORMAT: u64 = 1;
/// A state is written after so many inputs.
const EVERY: u64 = 300;
/// Records of one input, at most; numbers of records are multiples of it.
const RECORDS: u64 = 4096;
/// Inputs whose records are kept: some months of a quiet site.
const KEPT_INPUTS: u64 = 8_000_000;

/// A store, held by this process alone.
#[derive(Debug)]
pub struct Store {
    path: PathBuf,
    database: Database,
    /// The number of the next input.
    next: u64,
    /// The number of the first input after the last state.
    since: u64,
    /// Counts up with every start.
    term: u64,
    /// Drawn when the store was made: marks what belongs to it.
    id: u64,
    /// Wall time at the plane's origin, nanoseconds since 1970.
    origin: u64,
}

/// Why a store cannot be used.
#[derive(Debug, Error)]
pub enum StoreError {
    /// Another process has it.
    #[error("{path}: another control plane has this store open; stop it, or give this one a store of its own")]
    Held {
        /// The file.
        path: PathBuf,
    },
    /// It is of another version.
    #[error("{path}: the store has format {found}, and this version reads {FORMAT}; use the version that wrote it")]
    Format {
        /// The file.
        path: PathBuf,
        /// What was found.
        found: u64,
    },
    /// It cannot be read or written.
    #[error("{path}: {problem}")]
    Failed {
        /// The file.
        path: PathBuf,
        /// What went wrong.
        problem: String,
    },
    /// The site makes no sense.
    #[error(transparent)]
    Site(#[from] ProvisionError),
    /// What is in it is not of this site.
    #[error("{path}: {source}")]
    Restore {
        /// The file.
        path: PathBuf,
        /// What does not fit.
        source: RestoreError,
    },
}

impl Store {
    /// Opens a store, or makes one. `wall` is the time, nanoseconds since 1970.
    ///
    /// # Errors
    /// When another process has it, or it cannot be read.
    pub fn open(path: &Path, wall: u64) -> Result<Store, StoreError> {
        let failed = |problem: String| StoreError::Failed { path: path.to_owned(), problem };
        let database = Database::create(path).map_err(|error| match error {
            DatabaseError::DatabaseAlreadyOpen => StoreError::Held { path: path.to_owned() },
            other => failed(other.to_string()),
        })?;
        let mut store = Store { path: path.to_owned(), database, next: 1, since: 1, term: 1, id: 0, origin: 0 };
        store.begin(wall)?;
        Ok(store)
    }

    /// The plane that the store tells of; a new one in an empty store.
    ///
    /// # Errors
    /// When it cannot be read, or is not of this site.
    pub fn plane(&mut self, site: Site) -> Result<Plane, StoreError> {
        let read = self.database.begin_read().map_err(|error| self.failed(error))?;
        let meta = read.open_table(META).map_err(|error| self.failed(error))?;
        let kept = meta.get("state").map_err(|error| self.failed(error))?;
        let mut plane = match kept {
            Some(bytes) => {
                let state: PlaneState = serde_json::from_slice(bytes.value()).map_err(|error| self.failed(error))?;
                Plane::restore(site, state).map_err(|source| StoreError::Restore { path: self.path.clone(), source })?
            }
            None => Plane::new(site)?,
        };
        let journal = read.open_table(JOURNAL).map_err(|error| self.failed(error))?;
        for entry in journal.range(self.since..).map_err(|error| self.failed(error))? {
            let (number, bytes) = entry.map_err(|error| self.failed(error))?;
            let input: Input = serde_json::from_slice(bytes.value()).map_err(|error| self.failed(error))?;
            plane.handle(&input);
            let records = plane.take_records();
            self.next = number.value() + 1;
            self.keep_records(number.value(), &records)?;
        }
        Ok(plane)
    }

    /// Writes an input, so that it is on the disk when this returns, and then lets it take effect.
    ///
    /// # Errors
    /// When it cannot be written; then nothing has happened.
    pub fn handle(&mut self, plane: &mut Plane, input: &Input) -> Result<Vec<Value>, StoreError> {
        let number = self.next;
        let text = serde_json::to_vec(input).map_err(|error| self.failed(error))?;
        self.write(Durability::Immediate, |write| {
            write.open_table(JOURNAL)?.insert(number, text.as_slice())?;
            Ok(())
        })?;
        self.next += 1;
        plane.handle(input);
        let records = plane.take_records();
        let kept = self.keep_records(number, &records)?;
        if self.next - self.since >= EVERY {
            self.keep_state(plane)?;
        }
        Ok(kept)
    }

    /// Writes the plane's state and drops the journal before it.
    ///
    /// # Errors
    /// When it cannot be written; then the journal is still there.
    pub fn keep_state(&mut self, plane: &Plane) -> Result<(), StoreError> {
        let text = serde_json::to_vec(&plane.state()).map_err(|error| self.failed(error))?;
        let next = self.next;
        self.write(Durability::Immediate, |write| {
            let mut meta = write.open_table(META)?;
            meta.insert("state", text.as_slice())?;
            meta.insert("since", next.to_le_bytes().as_slice())?;
            write.open_table(JOURNAL)?.retain(|number, _| number >= next)?;
            let oldest = next.saturating_sub(KEPT_INPUTS) * RECORDS;
            write.open_table(AUDIT)?.retain_in(..oldest, |_, _| false)?;
            Ok(())
        })?;
        self.since = next;
        Ok(())
    }

    /// Records after number `after`, oldest first, at most `most`.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub fn audit(&self, after: u64, most: usize) -> Result<Vec<Value>, StoreError> {
        let read = self.database.begin_read().map_err(|error| self.failed(error))?;
        let table = read.open_table(AUDIT).map_err(|error| self.failed(error))?;
        let range = table.range(after + 1..).map_err(|error| self.failed(error))?;
        let value = |entry: Result<(redb::AccessGuard<'_, u64>, redb::AccessGuard<'_, &[u8]>), redb::StorageError>| {
            let (_, bytes) = entry.map_err(|error| self.failed(error))?;
            serde_json::from_slice(bytes.value()).map_err(|error| self.failed(error))
        };
        range.take(most).map(value).collect()
    }

    /// Counts up with every start of a control plane on this store.
    pub fn term(&self) -> u64 {
        self.term
    }

    /// Marks what belongs to this store.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Wall time at the plane's origin, nanoseconds since 1970.
    pub fn origin(&self) -> u64 {
        self.origin
    }

    fn begin(&mut self, wall: u64) -> Result<(), StoreError> {
        let write = self.database.begin_write().map_err(|error| self.failed(error))?;
        let fresh = tidegate_wire::random_u64();
        let path = self.path.clone();
        let (format, term, id, origin, since) = (|| -> Result<_, redb::Error> {
            let mut meta = write.open_table(META)?;
            write.open_table(JOURNAL)?;
            write.open_table(AUDIT)?;
            let mut number = |key: &str, first: u64, add: u64| -> Result<u64, redb::Error> {
                let known = meta.get(key)?.map(|bytes| number_of(bytes.value()));
                let value = known.map_or(first, |known| known + add);
                meta.insert(key, value.to_le_bytes().as_slice())?;
                Ok(value)
            };
            // Not below the time: a store that is made anew begins above the one before it.
            let least = wall / 1_000_000_000;
            let term = number("term", 1, 1)?.max(least);
            let numbers = (
                number("format", FORMAT, 0)?,
                term,
                number("id", fresh, 0)?,
                number("origin", wall, 0)?,
                number("since", 1, 0)?,
            );
            meta.insert("term", term.to_le_bytes().as_slice())?;
            Ok(numbers)
        })()
        .map_err(|error| StoreError::Failed { path, problem: error.to_string() })?;
        if format != FORMAT {
            return Err(StoreError::Format { path: self.path.clone(), found: format });
        }
        write.commit().map_err(|error| self.failed(error))?;
        (self.term, self.id, self.origin, self.since, self.next) = (term, id, origin, since, since);
        Ok(())
    }

    /// Not forced to the disk: they can be made again from the journal.
    fn keep_records(&self, input: u64, records: &[crate::plane::Record]) -> Result<Vec<Value>, StoreError> {
        if records.is_empty() {
            return Ok(Vec::new());
        }
        let mut kept = Vec::new();
        for (at, record) in (0..RECORDS).zip(records) {
            let mut value = serde_json::to_value(record).map_err(|error| self.failed(error))?;
            value["number"] = (input * RECORDS + at).into();
            // Milliseconds since 1970, for people.
            value["at"] = ((self.origin + record.at.as_nanos()) / 1_000_000).into();
            kept.push(value);
        }
        self.write(Durability::None, |write| {
            let mut audit = write.open_table(AUDIT)?;
            for value in &kept {
                let text = serde_json::to_vec(value).unwrap_or_default();
                audit.insert(value["number"].as_u64().unwrap_or_default(), text.as_slice())?;
            }
            Ok(())
        })?;
        Ok(kept)
    }

    fn write(
        &self,
        durability: Durability,
        change: impl FnOnce(&redb::WriteTransaction) -> Result<(), redb::Error>,
    ) -> Result<(), StoreError> {
        let mut write = self.database.begin_write().map_err(|error| self.failed(error))?;
        write.set_durability(durability).map_err(|error| self.failed(error))?;
        change(&write).map_err(|error| self.failed(error))?;
        write.commit().map_err(|error| self.failed(error))
    }

    fn failed(&self, error: impl std::fmt::Display) -> StoreError {
        StoreError::Failed { path: self.path.clone(), problem: error.to_string() }
    }
}

fn number_of(bytes: &[u8]) -> u64 {
    bytes.try_into().map_or(0, u64::from_le_bytes)
}
