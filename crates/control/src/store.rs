//! What survives: the journal of inputs, a state from time to time, and the audit log.
//!
//! *Intuition.* An input is written, and on the disk, before it takes effect. A state is written every few hundred
//! inputs and the journal before it dropped. Records are numbered by the input they came of, so that those of an input
//! that is replayed replace themselves.
//!
//! | file | question |
//! |---|---|
//! | `file.rs` | a file of this machine, one control plane |
//! | `etcd.rs` | etcd, and several of them |

mod etcd;
mod file;

use std::path::{Path, PathBuf};

use serde_json::Value;
use thiserror::Error;
use tidegate_engine::provision::{ProvisionError, RestoreError, Site};

use crate::election::{Leader, Leadership, Lease};
use crate::etcd::{Etcd, EtcdError};
use crate::plane::{Input, Plane, Record};

/// What is written is read by this version only.
const FORMAT: u64 = 1;
/// A state is written after so many inputs.
const EVERY: u64 = 300;
/// Records of one input, at most; numbers of records are multiples of it.
const RECORDS: u64 = 65_536;

/// Where everything is that must survive.
#[derive(Debug)]
pub struct Store(Kind);

#[derive(Debug)]
enum Kind {
    File(file::FileStore),
    Etcd(Box<etcd::EtcdStore>),
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
    /// It is only to be looked at, and a control plane has it.
    #[error(
        "{path}: a control plane runs on this store and cannot be asked; give both the same file with \
         admin = \"127.0.0.1:9911\", and start it anew"
    )]
    Busy {
        /// The file.
        path: PathBuf,
    },
    /// There is none.
    #[error("{place}: there is no store yet; a control plane that runs makes one")]
    Missing {
        /// Where.
        place: String,
    },
    /// It is of another version.
    #[error("{place}: the store has format {found}, and this version reads {FORMAT}; use the version that wrote it")]
    Format {
        /// Where.
        place: String,
        /// What was found.
        found: u64,
    },
    /// It cannot be read or written.
    #[error("{place}: {problem}")]
    Failed {
        /// Where.
        place: String,
        /// What went wrong.
        problem: String,
    },
    /// It does not answer now. Whether the last thing was written is not known: the same thing is to be written again
    /// before anything else.
    #[error("{0}")]
    Away(String),
    /// Another control plane leads, or none does: this one may write no more.
    #[error("this control plane does not lead any more{}", by(leader))]
    Deposed {
        /// Who does.
        leader: Option<Leader>,
    },
    /// The site makes no sense.
    #[error(transparent)]
    Site(#[from] ProvisionError),
    /// What is in it is not of this site.
    #[error("{place}: {source}")]
    Restore {
        /// Where.
        place: String,
        /// What does not fit.
        source: RestoreError,
    },
}

fn by(leader: &Option<Leader>) -> String {
    leader.as_ref().map_or(String::new(), |leader| format!("; {} does", leader.name))
}

impl Store {
    /// Opens a file, or makes one. `wall` is the time, nanoseconds since 1970.
    ///
    /// # Errors
    /// When another process has it, or it cannot be read.
    pub fn open(path: &Path, wall: u64) -> Result<Store, StoreError> {
        Ok(Store(Kind::File(file::FileStore::open(path, wall)?)))
    }

    /// Opens a file only to look: nothing in it changes.
    ///
    /// # Errors
    /// When there is none, a control plane has it, or it cannot be read.
    pub fn look(path: &Path) -> Result<Store, StoreError> {
        Ok(Store(Kind::File(file::FileStore::look(path)?)))
    }

    /// What is below `prefix` in etcd, to write to as the leader. `wall` is the time, nanoseconds since 1970.
    ///
    /// # Errors
    /// When etcd does not answer, or this one does not lead any more.
    pub fn lead(leadership: Leadership, prefix: &str, wall: u64) -> Result<Store, StoreError> {
        Ok(Store(Kind::Etcd(Box::new(etcd::EtcdStore::lead(leadership, prefix, wall)?))))
    }

    /// What is below `prefix` in etcd, only to look.
    ///
    /// # Errors
    /// When etcd does not answer, or has nothing there.
    pub fn look_in_etcd(etcd: &Etcd, prefix: &str) -> Result<Store, StoreError> {
        Ok(Store(Kind::Etcd(Box::new(etcd::EtcdStore::look(etcd, prefix)?))))
    }

    /// The plane that the store tells of; a new one in an empty store.
    ///
    /// # Errors
    /// When it cannot be read, or is not of this site.
    pub fn plane(&mut self, site: Site) -> Result<Plane, StoreError> {
        match &mut self.0 {
            Kind::File(file) => file.plane(site),
            Kind::Etcd(etcd) => etcd.plane(site),
        }
    }

    /// Writes an input, so that it survives when this returns, and then lets it take effect.
    ///
    /// # Errors
    /// When it cannot be written; then nothing has taken effect. After [`StoreError::Away`] the same input is to be
    /// given again first.
    pub fn handle(&mut self, plane: &mut Plane, input: &Input) -> Result<Vec<Value>, StoreError> {
        match &mut self.0 {
            Kind::File(file) => file.handle(plane, input),
            Kind::Etcd(etcd) => etcd.handle(plane, input),
        }
    }

    /// Writes the plane's state and drops the journal before it.
    ///
    /// # Errors
    /// When it cannot be written; then the journal is still there.
    pub fn keep_state(&mut self, plane: &Plane) -> Result<(), StoreError> {
        match &mut self.0 {
            Kind::File(file) => file.keep_state(plane),
            Kind::Etcd(etcd) => etcd.keep_state(plane),
        }
    }

    /// Records after number `after`, oldest first, at most `most`.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub fn audit(&self, after: u64, most: usize) -> Result<Vec<Value>, StoreError> {
        match (&self.0, after.checked_add(1)) {
            (_, None) => Ok(Vec::new()),
            (Kind::File(file), Some(from)) => file.audit(from, most),
            (Kind::Etcd(etcd), Some(from)) => etcd.audit(from, most),
        }
    }

    /// Whether this control plane surely is the one that decides now.
    pub fn leads(&self) -> bool {
        self.lease().holds()
    }

    /// The same, for later.
    pub fn lease(&self) -> Lease {
        match &self.0 {
            Kind::File(_) => Lease::NONE_NEEDED,
            Kind::Etcd(etcd) => etcd.lease(),
        }
    }

    /// Why nothing can be written now, while that is so.
    pub fn away(&self) -> Option<String> {
        match &self.0 {
            Kind::File(_) => None,
            Kind::Etcd(etcd) => etcd.away(),
        }
    }

    /// Leaves it to another control plane at once, where there can be one.
    pub fn resign(&self) {
        if let Kind::Etcd(etcd) = &self.0 {
            etcd.resign();
        }
    }

    /// Counts up with every control plane that takes over.
    pub fn term(&self) -> u64 {
        match &self.0 {
            Kind::File(file) => file.term(),
            Kind::Etcd(etcd) => etcd.term(),
        }
    }

    /// Marks what belongs to this store.
    pub fn id(&self) -> u64 {
        match &self.0 {
            Kind::File(file) => file.id(),
            Kind::Etcd(etcd) => etcd.id(),
        }
    }

    /// Wall time at the plane's origin, nanoseconds since 1970.
    pub fn origin(&self) -> u64 {
        match &self.0 {
            Kind::File(file) => file.origin(),
            Kind::Etcd(etcd) => etcd.origin(),
        }
    }
}

impl From<EtcdError> for StoreError {
    fn from(error: EtcdError) -> StoreError {
        match error {
            EtcdError::Away(_) => StoreError::Away(error.to_string()),
            EtcdError::Answer(problem) => StoreError::Failed { place: String::from("etcd"), problem },
        }
    }
}

/// The records of an input as they are kept, numbered. `origin` is the wall time of the plane's origin.
fn numbered(input: u64, records: &[Record], origin: u64) -> Result<Vec<Value>, serde_json::Error> {
    let value = |(at, record): (u64, &Record)| {
        let mut value = serde_json::to_value(record)?;
        value["number"] = (input * RECORDS + at).into();
        // Milliseconds since 1970, for people.
        value["at"] = ((origin + record.at.as_nanos()) / 1_000_000).into();
        Ok(value)
    };
    (0..RECORDS).zip(records).map(value).collect()
}
