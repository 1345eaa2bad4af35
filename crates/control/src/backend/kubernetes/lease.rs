//! Leader election by a Lease of a cluster's API server, as `kubectl` shows it and client-go's programs use it.
//!
//! *Intuition.* The Lease names who leads, and that one writes to it again and again. It is taken when nobody is named,
//! or when it was seen to stay the same for as long as it says: seen by this machine's monotonic clock, so that the
//! times in it, which are another machine's, are only shown and never compared. Every write names the version of the
//! Lease that was read before: of two that would take it, one does.
//!
//! *Awkward cases.* A Lease stands still when its holder stood still; it does not go away, so that what the store takes
//! does not hang on it: who takes over seals the journal first (`store.rs`). Of a write
//! that was not answered the next look tells whether it was carried out: a name is used by one candidate only, and
//! whoever finds its own goes on in a new term. Somebody may have deleted the Lease: then who led by it leads no more,
//! and the next term is above that of the state.
//!
//! *Source.* client-go, `tools/leaderelection`.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use k8s_openapi::api::coordination::v1::{Lease as Object, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::core::ObjectMeta;
use serde_json::json;
use tokio::time::sleep;

use super::label::Label;
use super::store::term_in_cluster;
use super::{MANAGED_BY, MANAGER, RENEW, said};
use crate::backend::{Contact, Leader, Tenure, WeakTenure, term_after};
use crate::clock::wall;
use crate::config::ClusterConfig;
use crate::kubernetes::{ApiError, ApiServer, Calls};
use crate::worker::PATIENCE;

/// What who leads says of itself.
const LEADER: &str = "tidegate/leader";
/// From so many pods of those before it a leader takes the label: more than one, for the next one may have died before
/// it did.
const FORMER: usize = 4;
/// A Lease that changed meanwhile is read and written again so often.
const TRIES: usize = 5;

/// One that would lead.
#[derive(Debug)]
pub(super) struct Candidate {
    server: ApiServer,
    /// That of the Lease.
    name: String,
    lease: Duration,
    /// What it says of itself, but for where it is reached.
    me: Leader,
    /// The holder's name: this candidate's alone.
    identity: String,
    /// What the Lease said, and since when it has.
    seen: Mutex<Option<(LeaseSpec, Instant)>>,
    /// Begun when it stands first; `None`: it has no pod.
    label: OnceLock<Option<Arc<Label>>>,
}

/// What came of standing for election.
#[derive(Debug)]
pub(super) enum Vote {
    /// This control plane leads.
    Mine(Seat),
    /// Another control plane leads.
    Others(Leader),
}

/// Being the leader. Dropped, the Lease is not renewed any more.
#[derive(Debug)]
pub(super) struct Seat {
    server: ApiServer,
    holder: Holder,
    me: Leader,
    tenure: Tenure,
    label: Option<Arc<Label>>,
}

/// Who holds which Lease, in which term.
#[derive(Clone, Debug)]
struct Holder {
    name: String,
    identity: String,
    term: u64,
}

impl Candidate {
    pub(super) fn new(server: ApiServer, config: &ClusterConfig) -> Candidate {
        Candidate {
            server,
            name: config.prefix.clone(),
            lease: config.lease,
            me: Leader { name: config.name.clone(), pod: config.pod.clone(), ..Leader::default() },
            identity: format!("{}_{:016x}", config.name, tidegate_wire::random_u64()),
            seen: Mutex::default(),
            label: OnceLock::new(),
        }
    }

    pub(super) fn stand(&self, contact: &Contact, wall: u64) -> Result<Vote, ApiError> {
        let label = self.label.get_or_init(|| self.start_label());
        let asked = Instant::now();
        let there: Option<Object> = self.server.get(&self.name)?;
        if let Some(there) = there.as_ref().filter(|there| self.is_taken(there, asked)) {
            return Ok(Vote::Others(leader_of(there)));
        }
        let before = there.as_ref().map(leader_of).unwrap_or_default();
        let term = term_after(before.term.max(term_in_cluster(&self.server, &self.name)?), wall);
        let Contact { listen, admin } = contact.clone();
        let me = Leader { listen, admin, term, former_pods: self.former_pods(before), ..self.me.clone() };
        let object = self.mine(there.as_ref(), &me, wall);
        let sent = Instant::now();
        let written = match there {
            Some(_) => self.server.replace(&object),
            None => self.server.create(&object),
        };
        let object = match written {
            Ok(object) => object,
            // Another one took it first, or deleted it: the next look tells.
            Err(ApiError::Conflict(_) | ApiError::Missing(_)) => {
                let there: Option<Object> = self.server.get(&self.name)?;
                return Ok(Vote::Others(there.as_ref().map(leader_of).unwrap_or_default()));
            }
            Err(error) => return Err(error),
        };
        let holder = Holder { name: self.name.clone(), identity: self.identity.clone(), term };
        let tenure = Tenure::new(term, sent + self.lease);
        self.server.spawn(renew(self.server.calls(), holder.clone(), object, self.lease, tenure.downgrade()));
        if let Some(label) = label {
            label.give(tenure.downgrade(), &me.former_pods);
        }
        Ok(Vote::Mine(Seat { server: self.server.clone(), holder, me, tenure, label: label.clone() }))
    }

    fn start_label(&self) -> Option<Arc<Label>> {
        let pod = self.me.pod.as_ref()?;
        Some(Arc::new(Label::start(&self.server, pod, self.lease)))
    }

    /// The pods of those that led before this one.
    fn former_pods(&self, before: Leader) -> Vec<String> {
        let mut pods: Vec<String> = Vec::new();
        for pod in before.pod.into_iter().chain(before.former_pods) {
            if self.me.pod.as_ref() != Some(&pod) && !pods.contains(&pod) && pods.len() < FORMER {
                pods.push(pod);
            }
        }
        pods
    }

    /// Whether another one holds it, and may still do so. `asked` is before it was read.
    fn is_taken(&self, there: &Object, asked: Instant) -> bool {
        let spec = there.spec.clone().unwrap_or_default();
        let is_others = holder_of(there).is_some_and(|holder| *holder != self.identity);
        let lasts = spec.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok());
        let lasts = lasts.map_or(self.lease, Duration::from_secs);
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let since = match &*seen {
            Some((before, since)) if *before == spec => *since,
            _ => {
                let now = Instant::now();
                *seen = Some((spec, now));
                now
            }
        };
        is_others && asked.saturating_duration_since(since) < lasts
    }

    /// The Lease as it is when this one holds it.
    fn mine(&self, there: Option<&Object>, me: &Leader, wall: u64) -> Object {
        let mut object = there.cloned().unwrap_or_else(|| {
            let labels = [(MANAGED_BY.to_owned(), MANAGER.to_owned())].into();
            let metadata = ObjectMeta { name: Some(self.name.clone()), labels: Some(labels), ..ObjectMeta::default() };
            Object { metadata, spec: None }
        });
        object.metadata.annotations.get_or_insert_default().insert(LEADER.to_owned(), json!(me).to_string());
        let before = object.spec.take().unwrap_or_default();
        object.spec = Some(LeaseSpec {
            holder_identity: Some(self.identity.clone()),
            lease_duration_seconds: i32::try_from(self.lease.as_secs().max(1)).ok(),
            acquire_time: Some(time(wall)),
            renew_time: Some(time(wall)),
            lease_transitions: Some(before.lease_transitions.map_or(0, |count| count.saturating_add(1))),
            ..before
        });
        object
    }
}

impl Seat {
    /// Where it writes.
    pub(super) fn server(&self) -> &ApiServer {
        &self.server
    }

    /// Who this one is.
    pub(super) fn me(&self) -> &Leader {
        &self.me
    }

    /// Its term in office.
    pub(super) fn tenure(&self) -> &Tenure {
        &self.tenure
    }

    /// Leaves it to another one at once; the label of its pod goes at the same time, and is waited for last.
    pub(super) fn resign(&self) {
        self.tenure.end();
        let taken_away = self.label.as_ref().map(|label| label.take_away());
        self.give_back();
        if let Some(taken_away) = taken_away {
            // Else the next one takes it.
            let _ = taken_away.recv_timeout(PATIENCE);
        }
    }

    fn give_back(&self) {
        for _ in 0..TRIES {
            // Else it ends by itself.
            let Ok(Some(mut object)) = self.server.get::<Object>(&self.holder.name) else { return };
            if !self.holder.has(&object) {
                return;
            }
            let spec = object.spec.get_or_insert_default();
            (spec.holder_identity, spec.lease_duration_seconds) = (None, Some(1));
            spec.renew_time = Some(time(wall()));
            match self.server.replace(&object) {
                // It was renewed at the same time.
                Err(ApiError::Conflict(_)) => {}
                _ => return,
            }
        }
    }
}

impl Holder {
    fn has(&self, object: &Object) -> bool {
        holder_of(object) == Some(&self.identity) && leader_of(object).term == self.term
    }
}

/// Renews the Lease until nobody wants it any more, or another one has it.
async fn renew(calls: Arc<Calls>, holder: Holder, mut object: Object, lasts: Duration, tenure: WeakTenure) {
    loop {
        sleep(lasts / RENEW).await;
        let sent = Instant::now();
        if tenure.is_over() {
            return;
        }
        match renew_once(&calls, &holder, &mut object, lasts / 2).await {
            Ok(true) => tenure.renewed(sent + lasts),
            Ok(false) => return tenure.lost(),
            Err(error) => tenure.missed(&error.to_string()),
        }
    }
}

/// Whether it could be; `false`: another one has the Lease, or there is none.
async fn renew_once(calls: &Calls, holder: &Holder, object: &mut Object, patience: Duration) -> Result<bool, ApiError> {
    for _ in 0..TRIES {
        object.spec.get_or_insert_default().renew_time = Some(time(wall()));
        match calls.replace(object, patience).await {
            Ok(written) => {
                *object = written;
                return Ok(true);
            }
            // Perhaps by a renewal that was not answered, or somebody who put a label on it.
            Err(ApiError::Conflict(_)) => match calls.get(&holder.name, patience).await? {
                Some(there) if holder.has(&there) => *object = there,
                _ => return Ok(false),
            },
            Err(ApiError::Missing(_)) => return Ok(false),
            Err(error) => return Err(error),
        }
    }
    Err(ApiError::Away(format!("Lease {} changes all the time", holder.name)))
}

fn holder_of(object: &Object) -> Option<&String> {
    object.spec.as_ref()?.holder_identity.as_ref().filter(|holder| !holder.is_empty())
}

/// What its holder says of itself; one that is no control plane says nothing.
fn leader_of(object: &Object) -> Leader {
    let said_of = object.metadata.annotations.as_ref().and_then(|annotations| annotations.get(LEADER));
    let leader = said_of.map(|text| said(text.as_bytes())).unwrap_or_default();
    match holder_of(object) {
        Some(holder) if leader.name.is_empty() => Leader { name: holder.clone(), ..leader },
        _ => leader,
    }
}

fn time(wall: u64) -> MicroTime {
    MicroTime(Timestamp::from_nanosecond(i128::from(wall)).unwrap_or(Timestamp::UNIX_EPOCH))
}
