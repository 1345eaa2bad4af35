//! A file of this machine, for one control plane.
//!
//! *Source.* redb: an embedded store in Rust, transactions, a file that another process cannot open meanwhile.

use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::time::Duration;

use redb::{Database, DatabaseError, Durability, ReadableDatabase, ReadableTable, TableDefinition};
use serde_json::Value;
use tidegate_provision::Site;

use super::{Backend, Contact, EVERY, FORMAT, RECORDS, Store, StoreError, Turn, numbered, term_after};
use crate::plane::{Input, Plane, PlaneState, Record};

const META: TableDefinition<&str, &[u8]> = TableDefinition::new("meta");
const JOURNAL: TableDefinition<u64, &[u8]> = TableDefinition::new("journal");
const AUDIT: TableDefinition<u64, &[u8]> = TableDefinition::new("audit");

/// Inputs whose records are kept: some months of a quiet site.
const KEPT_INPUTS: u64 = 8_000_000;

/// Between two tries to open a file that another process may have.
const LOOK: Duration = Duration::from_secs(1);

/// A file, with or without a store in it.
#[derive(Clone, Debug)]
pub struct FileBackend {
    path: PathBuf,
}

impl FileBackend {
    /// The file at `path`.
    pub fn new(path: &Path) -> FileBackend {
        FileBackend { path: path.to_owned() }
    }

    /// Opens it, or makes one. `wall` is the time, nanoseconds since 1970.
    ///
    /// # Errors
    /// When another process has it, or it cannot be read.
    pub fn open(&self, wall: u64) -> Result<Box<dyn Store>, StoreError> {
        Ok(Box::new(FileStore::open(&self.path, wall)?))
    }
}

impl Backend for FileBackend {
    fn open_alone(&self, wall: u64) -> Result<Option<Box<dyn Store>>, StoreError> {
        self.open(wall).map(Some)
    }

    fn stand(&self, _contact: &Contact, wall: u64) -> Result<Turn, StoreError> {
        self.open(wall).map(Turn::Mine)
    }

    fn look_every(&self) -> Duration {
        LOOK
    }

    fn look(&self) -> Result<Box<dyn Store>, StoreError> {
        Ok(Box::new(FileStore::look(&self.path)?))
    }
}

/// A store, held by this process alone.
#[derive(Debug)]
struct FileStore {
    path: PathBuf,
    database: Database,
    /// Nothing is written.
    looks: bool,
    /// The number of the next input.
    next: u64,
    /// The number of the first input after the last state.
    since: u64,
    term: u64,
    id: u64,
    origin: u64,
}

impl FileStore {
    fn open(path: &Path, wall: u64) -> Result<FileStore, StoreError> {
        let mut store = FileStore::new(path, Database::create(path))?;
        store.begin(wall)?;
        Ok(store)
    }

    fn look(path: &Path) -> Result<FileStore, StoreError> {
        if !path.exists() {
            return Err(StoreError::Missing { place: path.display().to_string() });
        }
        // A file that was not closed is put in order by this: nothing that is in it changes.
        let mut store = FileStore::new(path, Database::open(path)).map_err(|error| match error {
            StoreError::Held { path } => StoreError::Busy { path },
            other => other,
        })?;
        store.looks = true;
        store.known()?;
        Ok(store)
    }

    fn new(path: &Path, opened: Result<Database, DatabaseError>) -> Result<FileStore, StoreError> {
        let database = opened.map_err(|error| match error {
            DatabaseError::DatabaseAlreadyOpen => StoreError::Held { path: path.to_owned() },
            other => StoreError::Failed { place: path.display().to_string(), problem: other.to_string() },
        })?;
        let path = path.to_owned();
        Ok(FileStore { path, database, looks: false, next: 1, since: 1, term: 1, id: 0, origin: 0 })
    }
}

impl Store for FileStore {
    fn plane(&mut self, site: Site) -> Result<Plane, StoreError> {
        let read = self.database.begin_read().map_err(|error| self.failed(error))?;
        let meta = read.open_table(META).map_err(|error| self.failed(error))?;
        let kept = meta.get("state").map_err(|error| self.failed(error))?;
        let mut plane = match kept {
            Some(bytes) => {
                let state: PlaneState = serde_json::from_slice(bytes.value()).map_err(|error| self.failed(error))?;
                Plane::restore(site, state).map_err(|source| StoreError::Restore { place: self.place(), source })?
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

    fn handle(&mut self, plane: &mut Plane, input: &Input) -> Result<Vec<Value>, StoreError> {
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

    fn keep_state(&mut self, plane: &Plane) -> Result<(), StoreError> {
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

    fn audit(&self, after: u64, most: usize) -> Result<Vec<Value>, StoreError> {
        let read = self.database.begin_read().map_err(|error| self.failed(error))?;
        let table = read.open_table(AUDIT).map_err(|error| self.failed(error))?;
        let range = table.range((Bound::Excluded(after), Bound::Unbounded)).map_err(|error| self.failed(error))?;
        let value = |entry: Result<(redb::AccessGuard<'_, u64>, redb::AccessGuard<'_, &[u8]>), redb::StorageError>| {
            let (_, bytes) = entry.map_err(|error| self.failed(error))?;
            serde_json::from_slice(bytes.value()).map_err(|error| self.failed(error))
        };
        range.take(most).map(value).collect()
    }

    fn term(&self) -> u64 {
        self.term
    }

    fn id(&self) -> u64 {
        self.id
    }

    fn origin(&self) -> u64 {
        self.origin
    }
}

impl FileStore {
    fn begin(&mut self, wall: u64) -> Result<(), StoreError> {
        let write = self.database.begin_write().map_err(|error| self.failed(error))?;
        let fresh = tidegate_wire::random_u64();
        let place = self.place();
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
            let term = term_after(number("term", 0, 0)?, wall);
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
        .map_err(|error| StoreError::Failed { place, problem: error.to_string() })?;
        if format != FORMAT {
            return Err(StoreError::Format { place: self.place(), found: format });
        }
        write.commit().map_err(|error| self.failed(error))?;
        (self.term, self.id, self.origin, self.since, self.next) = (term, id, origin, since, since);
        Ok(())
    }

    /// What a store that is only looked at says of itself.
    fn known(&mut self) -> Result<(), StoreError> {
        let read = self.database.begin_read().map_err(|error| self.failed(error))?;
        let meta = read.open_table(META).map_err(|error| self.failed(error))?;
        let number = |key: &str| -> Result<u64, StoreError> {
            let known = meta.get(key).map_err(|error| self.failed(error))?;
            Ok(known.map_or(0, |bytes| number_of(bytes.value())))
        };
        let (term, id, origin, since) = (number("term")?, number("id")?, number("origin")?, number("since")?);
        let format = number("format")?;
        if format != FORMAT {
            return Err(StoreError::Format { place: self.place(), found: format });
        }
        (self.term, self.id, self.origin, self.since, self.next) = (term, id, origin, since, since);
        Ok(())
    }

    /// Not forced to the disk: they can be made again from the journal.
    fn keep_records(&self, input: u64, records: &[Record]) -> Result<Vec<Value>, StoreError> {
        if records.is_empty() || self.looks {
            return Ok(Vec::new());
        }
        let kept = numbered(input, records, self.origin).map_err(|error| self.failed(error))?;
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
        StoreError::Failed { place: self.place(), problem: error.to_string() }
    }

    fn place(&self) -> String {
        self.path.display().to_string()
    }
}

fn number_of(bytes: &[u8]) -> u64 {
    bytes.try_into().map_or(0, u64::from_le_bytes)
}
