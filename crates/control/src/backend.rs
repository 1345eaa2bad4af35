//! Backends: durable storage of the state, and election of the leader.
//!
//! *Intuition.* A backend is chosen once, from the configuration. Who is elected gets the store from it, which has the
//! journal of inputs, a state from time to time, and the audit log. An input is written, and on the disk, before it
//! takes effect. A state is written every few hundred inputs and the journal before it dropped. Records are numbered by
//! the input they came of, so that those of an input that is replayed replace themselves.
//!
//! | file | question |
//! |---|---|
//! | `tenure.rs` | how sure it is that one leads |
//! | `error.rs` | why a store cannot be used |
//! | `file.rs` | a file of this machine, for one control plane |
//! | `kubernetes.rs`, `kubernetes/` | a Lease and ConfigMaps of a cluster, for several (feature `kubernetes`) |

mod error;
mod file;
#[cfg(feature = "kubernetes")]
mod kubernetes;
mod tenure;

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tidegate_provision::Site;

use crate::config::Place;
use crate::plane::{Input, Plane, Record};

pub use error::StoreError;
pub use file::FileBackend;
#[cfg(feature = "kubernetes")]
pub use kubernetes::ClusterBackend;
pub use tenure::{Lease, Tenure, WeakTenure};

/// What is written is read by this version only.
const FORMAT: u64 = 1;
/// A state is written after so many inputs.
const EVERY: u64 = 300;
/// Records of one input, at most; numbers of records are multiples of it.
const RECORDS: u64 = 65_536;

/// Where control planes keep what must survive, and agree which of them leads. Its methods block.
pub trait Backend: Debug + Send + Sync {
    /// The store at once, where there is no election because it is one control plane's alone; `None`: one is to stand.
    /// `wall` is the time, nanoseconds since 1970.
    ///
    /// # Errors
    /// When another process has it, or it cannot be read.
    fn open_alone(&self, _wall: u64) -> Result<Option<Box<dyn Store>>, StoreError> {
        Ok(None)
    }

    /// Stands for election once. `contact` is what this control plane says of itself, should it lead; `wall` is the
    /// time, nanoseconds since 1970.
    ///
    /// # Errors
    /// When it is not known who leads; it may be tried again.
    fn stand(&self, contact: &Contact, wall: u64) -> Result<Turn, StoreError>;

    /// How long to wait between two looks at who leads.
    fn look_every(&self) -> Duration;

    /// What is there, only to look: nothing in it changes.
    ///
    /// # Errors
    /// When there is nothing, it cannot be reached or read, or a control plane keeps it to itself.
    fn look(&self) -> Result<Box<dyn Store>, StoreError>;
}

/// Everything that must survive: that of a leader, or only looked at.
pub trait Store: Debug + Send + Sync {
    /// The plane that the store tells of; a new one in an empty store.
    ///
    /// # Errors
    /// When it cannot be read, or is not of this site.
    fn plane(&mut self, site: Site) -> Result<Plane, StoreError>;

    /// Writes an input, so that it survives when this returns, and then lets it take effect: the records that came of
    /// it.
    ///
    /// # Errors
    /// When it cannot be written; then nothing has taken effect. After [`StoreError::Away`] the same input is to be
    /// given again first.
    fn handle(&mut self, plane: &mut Plane, input: &Input) -> Result<Vec<Value>, StoreError>;

    /// Writes the plane's state and drops the journal before it.
    ///
    /// # Errors
    /// When it cannot be written; then the journal is still there.
    fn keep_state(&mut self, plane: &Plane) -> Result<(), StoreError>;

    /// Leaves it to another control plane at once, where there can be one.
    fn resign(&self) {}

    /// Records after number `after`, oldest first, at most `most`.
    ///
    /// # Errors
    /// When the store cannot be read.
    fn audit(&self, after: u64, most: usize) -> Result<Vec<Value>, StoreError>;

    /// Marks what belongs to this store.
    fn id(&self) -> u64;

    /// Wall time at the plane's origin, nanoseconds since 1970.
    fn origin(&self) -> u64;

    /// Counts up with every control plane that takes over.
    fn term(&self) -> u64 {
        self.tenure().map_or(0, Tenure::term)
    }

    /// The term in office; `None`: it needs none, for there is one control plane only, or it is only looked.
    fn tenure(&self) -> Option<&Tenure> {
        None
    }

    /// Whether this control plane surely is the one that decides now.
    fn leads(&self) -> bool {
        self.lease().holds()
    }

    /// The same, for later.
    fn lease(&self) -> Lease {
        self.tenure().map_or(Lease::NONE_NEEDED, Tenure::lease)
    }

    /// Why nothing can be written now, while that is so.
    fn away(&self) -> Option<String> {
        self.tenure().and_then(Tenure::away)
    }

    /// Why a service does not lead to this one by its pod's label, while that is so.
    fn label_problem(&self) -> Option<String> {
        self.tenure().and_then(Tenure::label_problem)
    }
}

/// What came of standing for election.
#[derive(Debug)]
pub enum Turn {
    /// This one leads, by this store. Dropped, its lease is not renewed any more.
    Mine(Box<dyn Store>),
    /// Another control plane leads.
    Others(Leader),
}

/// Where a control plane is reached.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Contact {
    /// Where sentries connect to.
    pub listen: String,
    /// Where its admin API is.
    pub admin: Option<String>,
}

/// Who leads, as it says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct Leader {
    /// Name of the leader.
    pub name: String,
    /// Where sentries connect to.
    pub listen: String,
    /// Where its admin API is.
    pub admin: Option<String>,
    /// Counts up with every election.
    pub term: u64,
    /// Its pod, where it runs in one; a service finds it by a label there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<String>,
    /// Pods of those that led before it, the last one first: they are to have that label no more.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub former_pods: Vec<String>,
}

/// The backend at a place that a configuration names. Nothing is opened or asked yet.
///
/// # Errors
/// When it is not known how it is reached.
pub fn at(place: &Place) -> Result<Arc<dyn Backend>, StoreError> {
    match place {
        Place::File(path) => Ok(Arc::new(FileBackend::new(path))),
        #[cfg(feature = "kubernetes")]
        Place::Kubernetes(cluster) => {
            let failed = |problem| StoreError::Failed { place: place.to_string(), problem };
            Ok(Arc::new(ClusterBackend::find(cluster).map_err(failed)?))
        }
        #[cfg(not(feature = "kubernetes"))]
        Place::Kubernetes(_) => {
            let problem = String::from(crate::config::kubernetes::NOT_BUILT);
            Err(StoreError::Failed { place: place.to_string(), problem })
        }
    }
}

/// The term after `last`. Not below the time: a store that is made anew begins above the one before it.
fn term_after(last: u64, wall: u64) -> u64 {
    (last + 1).max(wall / 1_000_000_000)
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
