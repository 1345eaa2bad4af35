//! Which of several control planes leads.
//!
//! | file | question |
//! |---|---|
//! | `kubernetes.rs` | by a Lease of a cluster's API server |
//! | `label.rs` | the label on the leader's pod there |
//!
//! *Awkward cases.* What a leader writes to its store, the store itself refuses once another one leads. What is done
//! outside of it, starting a server for example, cannot be guarded so: it is done only while the lease surely holds by
//! this machine's monotonic clock, counted from before it was renewed. When the store is away that is over after a
//! lease's time, and comes back with it if nobody else could be elected meanwhile.

#[cfg(feature = "kubernetes")]
mod kubernetes;
#[cfg(feature = "kubernetes")]
mod label;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use thiserror::Error;

#[cfg(feature = "kubernetes")]
use crate::kubernetes::{ApiError, ApiServer};

#[cfg(feature = "kubernetes")]
pub(crate) use kubernetes::Seat as KubernetesSeat;

/// Of a lease's time, after so much of it it is renewed.
const RENEW: u32 = 5;

/// One that would lead.
#[derive(Clone, Debug)]
pub struct Candidate(Stands);

#[derive(Clone, Debug)]
enum Stands {
    #[cfg(feature = "kubernetes")]
    Kubernetes(kubernetes::Candidate),
}

/// Who leads, as it says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct Leader {
    /// Its name.
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

/// What came of standing for election.
#[derive(Debug)]
pub enum Turn {
    /// This one leads.
    Mine(Leadership),
    /// Another one does.
    Others(Leader),
}

/// Being the leader. Dropped, the lease is not renewed any more.
#[derive(Debug)]
pub struct Leadership(pub(crate) Seat);

#[derive(Debug)]
pub(crate) enum Seat {
    #[cfg(feature = "kubernetes")]
    Kubernetes(KubernetesSeat),
}

/// A term in office, and how sure it is.
#[derive(Debug)]
pub(crate) struct Tenure {
    term: u64,
    held: Arc<Mutex<Held>>,
}

/// Whether one surely leads, for those who do what cannot be guarded by the store.
#[derive(Clone, Debug)]
pub struct Lease(Option<Arc<Mutex<Held>>>);

#[derive(Debug)]
struct Held {
    /// Until when the lease surely holds.
    until: Instant,
    /// Why the store is not heard, since it is not.
    away: Option<String>,
    /// The lease has ended.
    ended: bool,
    /// Why the leader's pod is not labelled as it is to be, while it is not.
    label_problem: Option<String>,
}

/// Why it is not known who leads.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ElectionError {
    /// As the API server says.
    #[cfg(feature = "kubernetes")]
    #[error(transparent)]
    Kubernetes(#[from] ApiError),
}

impl Candidate {
    /// One that stands for election by the Lease `prefix` of a cluster; it has whole seconds.
    #[cfg(feature = "kubernetes")]
    pub fn in_cluster(server: ApiServer, prefix: &str, lease: Duration, me: Leader) -> Candidate {
        Candidate(Stands::Kubernetes(kubernetes::Candidate::new(server, prefix, lease, me)))
    }

    /// Stands for election once. `wall` is the time, nanoseconds since 1970.
    ///
    /// # Errors
    /// When who counts the votes does not answer, or does not want to.
    pub fn stand(&self, wall: u64) -> Result<Turn, ElectionError> {
        match &self.0 {
            #[cfg(feature = "kubernetes")]
            Stands::Kubernetes(candidate) => Ok(candidate.stand(wall)?),
        }
    }

    /// How long to wait between two looks at who leads.
    pub fn look_every(&self) -> Duration {
        match &self.0 {
            #[cfg(feature = "kubernetes")]
            Stands::Kubernetes(_) => kubernetes::LOOK,
        }
    }
}

impl Leadership {
    /// Counts up with every election.
    pub fn term(&self) -> u64 {
        match &self.0 {
            #[cfg(feature = "kubernetes")]
            Seat::Kubernetes(seat) => seat.tenure().term(),
        }
    }
}

impl Tenure {
    fn new(term: u64, until: Instant) -> Tenure {
        Tenure { term, held: Arc::new(Mutex::new(Held { until, away: None, ended: false, label_problem: None })) }
    }

    pub(crate) fn term(&self) -> u64 {
        self.term
    }

    /// Whether it surely leads, now and later.
    pub(crate) fn lease(&self) -> Lease {
        Lease(Some(self.held.clone()))
    }

    /// Whether the lease is known to have ended.
    pub(crate) fn has_ended(&self) -> bool {
        lock(&self.held).ended
    }

    /// Why the store is not heard, while it is not.
    pub(crate) fn away(&self) -> Option<String> {
        lock(&self.held).away.clone()
    }

    /// Why a service does not lead to this one by its pod's label, while that is so.
    pub(crate) fn label_problem(&self) -> Option<String> {
        lock(&self.held).label_problem.clone()
    }

    /// Notes that a call was not answered, until the lease is renewed.
    pub(crate) fn missed(&self, why: &str) {
        lock(&self.held).away = Some(why.to_owned());
    }

    /// Notes that another one leads.
    pub(crate) fn end(&self) {
        lock(&self.held).ended = true;
    }
}

impl Lease {
    /// Of one that needs none.
    pub const NONE_NEEDED: Lease = Lease(None);

    /// Whether it surely leads now, by the monotonic clock.
    pub fn holds(&self) -> bool {
        self.0.as_ref().is_none_or(|held| {
            let held = lock(held);
            !held.ended && Instant::now() < held.until
        })
    }
}

/// The term after `last`. Not below the time: a store that is made anew begins above the one before it.
fn term_after(last: u64, wall: u64) -> u64 {
    (last + 1).max(wall / 1_000_000_000)
}

/// What a leader says of itself.
#[cfg(feature = "kubernetes")]
pub(crate) fn said(value: &[u8]) -> Leader {
    serde_json::from_slice(value).unwrap_or_default()
}

fn lock(held: &Mutex<Held>) -> MutexGuard<'_, Held> {
    held.lock().unwrap_or_else(PoisonError::into_inner)
}
