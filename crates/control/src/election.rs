//! Which of several control planes leads: a key in etcd that lives as long as its lease is kept alive.
//!
//! *Intuition.* Who leads has made the key; everything it writes is written only if that very key is still there
//! ([`Leadership::guard`]). A control plane that stood still while its lease ended finds another key, or none, and its
//! write is refused by etcd: it need not know the time for that.
//!
//! *Awkward cases.* What is done outside of etcd, starting a server for example, cannot be guarded so: it is done only
//! while the lease surely holds by this machine's monotonic clock, counted from before it was renewed. When etcd is
//! away that is over after a lease's time, and comes back with etcd if nobody else could be elected meanwhile.

use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::etcd::{Etcd, EtcdError, Txn, number};

/// Of a lease's time, after so much of it it is renewed.
const RENEW: u32 = 5;

/// One that would lead.
#[derive(Clone, Debug)]
pub struct Candidate {
    etcd: Etcd,
    prefix: String,
    lease: Duration,
    me: Leader,
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
pub struct Leadership {
    etcd: Etcd,
    key: String,
    created: i64,
    lease: i64,
    term: u64,
    held: Arc<Mutex<Held>>,
}

/// Whether one surely leads, for those who do what cannot be guarded by a transaction.
#[derive(Clone, Debug)]
pub struct Lease(Option<Arc<Mutex<Held>>>);

#[derive(Debug)]
struct Held {
    /// Until when the lease surely holds.
    until: Instant,
    /// Why etcd is not heard, since it is not.
    away: Option<String>,
    /// The lease has ended.
    ended: bool,
}

impl Candidate {
    /// One that stands for election below `prefix`. A lease has whole seconds, as etcd counts them.
    pub fn new(etcd: Etcd, prefix: &str, lease: Duration, me: Leader) -> Candidate {
        Candidate { etcd, prefix: prefix.to_owned(), lease, me }
    }

    /// Stands for election once. `wall` is the time, nanoseconds since 1970.
    ///
    /// # Errors
    /// When etcd does not answer, or does not want to.
    pub fn stand(&self, wall: u64) -> Result<Turn, EtcdError> {
        let key = leader_key(&self.prefix);
        if let Some(there) = self.etcd.get(&key)? {
            return Ok(Turn::Others(said(&there.value)));
        }
        let term_key = format!("{}/term", self.prefix);
        let before = self.etcd.get(&term_key)?;
        let last = before.as_ref().map_or(0, |entry| term_of(&entry.value));
        // Not below the time: one that is made anew begins above the one before it.
        let term = (last + 1).max(wall / 1_000_000_000);
        let sent = Instant::now();
        let lease = self.etcd.grant(self.lease)?;
        let me = json!(Leader { term, ..self.me.clone() }).to_string();
        let txn = Txn::default()
            .if_created(&key, 0)
            .if_written(&term_key, before.map_or(0, |entry| entry.written))
            .put_with(&key, me.as_bytes(), lease)
            .put(&term_key, term.to_string().as_bytes())
            .or_read(&key);
        let outcome = self.etcd.commit(&txn)?;
        if !outcome.done {
            // Else it ends by itself.
            let _ = self.etcd.revoke(lease);
            let leader = outcome.found.into_iter().flatten().next();
            return Ok(Turn::Others(leader.map(|entry| said(&entry.value)).unwrap_or_default()));
        }
        let held = Held { until: sent + self.lease, away: None, ended: false };
        let held = Arc::new(Mutex::new(held));
        self.etcd.spawn(renew(self.etcd.clone(), lease, self.lease, Arc::downgrade(&held)));
        Ok(Turn::Mine(Leadership { etcd: self.etcd.clone(), key, created: outcome.revision, lease, term, held }))
    }
}

impl Leadership {
    /// A transaction that is carried out only while this one leads; else it tells who does.
    pub fn guard(&self) -> Txn {
        Txn::default().if_created(&self.key, self.created).or_read(&self.key)
    }

    /// Whether the leader's key that a guarded transaction found is still this one's.
    pub fn is_mine(&self, found: Option<&crate::etcd::Entry>) -> bool {
        found.is_some_and(|entry| entry.created == self.created)
    }

    /// Where it writes.
    pub fn etcd(&self) -> &Etcd {
        &self.etcd
    }

    /// Counts up with every election.
    pub fn term(&self) -> u64 {
        self.term
    }

    /// Whether it surely leads, now and later.
    pub fn lease(&self) -> Lease {
        Lease(Some(self.held.clone()))
    }

    /// Whether the lease is known to have ended.
    pub fn has_ended(&self) -> bool {
        lock(&self.held).ended
    }

    /// Why etcd is not heard, while it is not.
    pub fn away(&self) -> Option<String> {
        lock(&self.held).away.clone()
    }

    /// Notes that a call was not answered, until the lease is renewed.
    pub fn missed(&self, why: &str) {
        lock(&self.held).away = Some(why.to_owned());
    }

    /// Leaves it to another one at once.
    pub fn resign(&self) {
        lock(&self.held).ended = true;
        // Else the lease ends by itself.
        let _ = self.etcd.revoke(self.lease);
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

/// Who leads below `prefix`, as far as anybody does.
///
/// # Errors
/// When etcd does not answer, or does not want to.
pub fn leader(etcd: &Etcd, prefix: &str) -> Result<Option<Leader>, EtcdError> {
    Ok(etcd.get(&leader_key(prefix))?.map(|entry| said(&entry.value)))
}

/// What a leader says of itself.
pub(crate) fn said(value: &[u8]) -> Leader {
    serde_json::from_slice(value).unwrap_or_default()
}

fn leader_key(prefix: &str) -> String {
    format!("{prefix}/leader")
}

fn term_of(value: &[u8]) -> u64 {
    std::str::from_utf8(value).ok().and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// Keeps the lease alive until nobody wants it any more, or it has ended.
async fn renew(etcd: Etcd, lease: i64, time: Duration, held: Weak<Mutex<Held>>) {
    let client = etcd.client();
    // The thread must end when the daemon does.
    drop(etcd);
    let body = json!({ "ID": lease.to_string() });
    loop {
        tokio::time::sleep(time / RENEW).await;
        let sent = Instant::now();
        if held.strong_count() == 0 {
            return;
        }
        let answer = client.call("/v3/lease/keepalive", &body, time / 2).await;
        let Some(held) = held.upgrade() else { return };
        let mut held = lock(&held);
        match answer {
            Ok(answer) if number(&answer["result"]["TTL"]) > 0 => {
                (held.until, held.away) = (sent + time, None);
            }
            Ok(_) | Err(EtcdError::Answer(_)) => {
                (held.ended, held.away) = (true, None);
                return;
            }
            Err(error @ EtcdError::Away(_)) => held.away = Some(error.to_string()),
        }
    }
}

fn lock(held: &Mutex<Held>) -> std::sync::MutexGuard<'_, Held> {
    held.lock().unwrap_or_else(PoisonError::into_inner)
}
