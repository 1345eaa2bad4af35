//! What survives: the journal of inputs, a state from time to time, and the audit log.
//!
//! *Intuition.* An input is written, and on the disk, before it takes effect. A state is written every few hundred
//! inputs and the journal before it dropped. Records are numbered by the input they came of, so that those of an input
//! that is replayed replace themselves.
//!
//! | file | question |
//! |---|---|
//! | `file.rs` | a file of this machine, one control plane |
//! | `kubernetes.rs`, `kubernetes/` | ConfigMaps of a cluster, and several of them |

mod file;
#[cfg(feature = "kubernetes")]
mod kubernetes;
mod packed;

use std::path::{Path, PathBuf};

use serde_json::Value;
use thiserror::Error;
use tidegate_engine::provision::{ProvisionError, RestoreError, Site};

use crate::config::Place;
#[cfg(feature = "kubernetes")]
use crate::election::KubernetesSeat;
use crate::election::{Leader, Leadership, Lease, Seat, Tenure};
#[cfg(feature = "kubernetes")]
use crate::kubernetes::{ApiError, ApiServer};
use crate::plane::{Input, Plane, Record};

#[cfg(feature = "kubernetes")]
pub(crate) use kubernetes::{MANAGED_BY, MANAGER, term_in_cluster};

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
    #[cfg(feature = "kubernetes")]
    Kubernetes(Box<kubernetes::ClusterStore>),
}

/// Asks whichever store it is.
macro_rules! each {
    ($kind:expr, $store:ident => $what:expr) => {
        match $kind {
            Kind::File($store) => $what,
            #[cfg(feature = "kubernetes")]
            Kind::Kubernetes($store) => $what,
        }
    };
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
        leader: Option<Box<Leader>>,
    },
    /// One control plane is to wait for another one, and this store is one's alone.
    #[error("{place}: this store is one control plane's; for several give [kubernetes]")]
    Alone {
        /// Where.
        place: String,
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

fn by(leader: &Option<Box<Leader>>) -> String {
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

    /// What is below `prefix`, where this one was elected, to write to as the leader. `wall` is the time, nanoseconds
    /// since 1970.
    ///
    /// # Errors
    /// When the store does not answer, or this one does not lead any more.
    pub fn lead(leadership: Leadership, prefix: &str, wall: u64) -> Result<Store, StoreError> {
        Ok(Store(match leadership.0 {
            #[cfg(feature = "kubernetes")]
            Seat::Kubernetes(seat) => Kind::Kubernetes(Box::new(kubernetes::ClusterStore::lead(seat, prefix, wall))),
        }))
    }

    /// What is in the ConfigMaps that begin with `prefix`, only to look.
    ///
    /// # Errors
    /// When the API server does not answer, or has nothing there.
    #[cfg(feature = "kubernetes")]
    pub fn look_in_cluster(server: &ApiServer, prefix: &str) -> Result<Store, StoreError> {
        Ok(Store(Kind::Kubernetes(Box::new(kubernetes::ClusterStore::look(server, prefix)?))))
    }

    /// What is there, only to look, wherever it is.
    ///
    /// # Errors
    /// When it cannot be reached or read, or there is nothing.
    pub fn look_at(place: &Place) -> Result<Store, StoreError> {
        let failed = |problem: String| StoreError::Failed { place: place.to_string(), problem };
        match place {
            Place::File(path) => Store::look(path),
            #[cfg(feature = "kubernetes")]
            Place::Kubernetes(cluster) => {
                let way = ApiServer::find(cluster.kubeconfig.clone(), cluster.namespace.clone()).map_err(failed)?;
                Store::look_in_cluster(&way, &cluster.prefix)
            }
            #[cfg(not(feature = "kubernetes"))]
            Place::Kubernetes(_) => Err(failed(String::from(crate::config::NOT_BUILT))),
        }
    }

    /// The plane that the store tells of; a new one in an empty store.
    ///
    /// # Errors
    /// When it cannot be read, or is not of this site.
    pub fn plane(&mut self, site: Site) -> Result<Plane, StoreError> {
        each!(&mut self.0, store => store.plane(site))
    }

    /// Writes an input, so that it survives when this returns, and then lets it take effect.
    ///
    /// # Errors
    /// When it cannot be written; then nothing has taken effect. After [`StoreError::Away`] the same input is to be
    /// given again first.
    pub fn handle(&mut self, plane: &mut Plane, input: &Input) -> Result<Vec<Value>, StoreError> {
        each!(&mut self.0, store => store.handle(plane, input))
    }

    /// Writes the plane's state and drops the journal before it.
    ///
    /// # Errors
    /// When it cannot be written; then the journal is still there.
    pub fn keep_state(&mut self, plane: &Plane) -> Result<(), StoreError> {
        each!(&mut self.0, store => store.keep_state(plane))
    }

    /// Records after number `after`, oldest first, at most `most`.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub fn audit(&self, after: u64, most: usize) -> Result<Vec<Value>, StoreError> {
        let Some(from) = after.checked_add(1) else { return Ok(Vec::new()) };
        each!(&self.0, store => store.audit(from, most))
    }

    /// Whether this control plane surely is the one that decides now.
    pub fn leads(&self) -> bool {
        self.lease().holds()
    }

    /// The same, for later.
    pub fn lease(&self) -> Lease {
        self.tenure().map_or(Lease::NONE_NEEDED, Tenure::lease)
    }

    /// Why nothing can be written now, while that is so.
    pub fn away(&self) -> Option<String> {
        self.tenure().and_then(Tenure::away)
    }

    /// Why a service does not lead to this one by its pod's label, while that is so.
    pub fn label_problem(&self) -> Option<String> {
        self.tenure().and_then(Tenure::label_problem)
    }

    /// Leaves it to another control plane at once, where there can be one.
    pub fn resign(&self) {
        match &self.0 {
            Kind::File(_) => {}
            #[cfg(feature = "kubernetes")]
            Kind::Kubernetes(cluster) => cluster.seat().map_or((), KubernetesSeat::resign),
        }
    }

    /// Counts up with every control plane that takes over.
    pub fn term(&self) -> u64 {
        match &self.0 {
            Kind::File(file) => file.term(),
            _ => self.tenure().map_or(0, Tenure::term),
        }
    }

    /// Marks what belongs to this store.
    pub fn id(&self) -> u64 {
        each!(&self.0, store => store.id())
    }

    /// Wall time at the plane's origin, nanoseconds since 1970.
    pub fn origin(&self) -> u64 {
        each!(&self.0, store => store.origin())
    }

    /// `None`: it needs none, for there is one control plane only, or it is only looked.
    fn tenure(&self) -> Option<&Tenure> {
        match &self.0 {
            Kind::File(_) => None,
            #[cfg(feature = "kubernetes")]
            Kind::Kubernetes(cluster) => cluster.seat().map(KubernetesSeat::tenure),
        }
    }
}

/// The seat of one that leads, as far as it knows; whoever only looks has none.
fn in_office<S>(seat: Option<&S>, tenure: impl Fn(&S) -> &Tenure) -> Result<&S, StoreError> {
    let seat = seat.ok_or(StoreError::Deposed { leader: None })?;
    if tenure(seat).has_ended() {
        return Err(StoreError::Deposed { leader: None });
    }
    match tenure(seat).away() {
        // Until the lease could be renewed, asking takes long and leads nowhere.
        Some(why) => Err(StoreError::Away(why)),
        None => Ok(seat),
    }
}

#[cfg(feature = "kubernetes")]
impl From<ApiError> for StoreError {
    fn from(error: ApiError) -> StoreError {
        match error {
            ApiError::Away(_) => StoreError::Away(error.to_string()),
            other => StoreError::Failed { place: String::from("Kubernetes"), problem: other.to_string() },
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
