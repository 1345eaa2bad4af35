//! By a key in etcd that lives as long as its lease is kept alive.
//!
//! *Intuition.* Who leads has made the key; everything it writes is written only if that very key is still there
//! ([`Seat::guard`]). A control plane that stood still while its lease ended finds another key, or none, and its write
//! is refused by etcd: it need not know the time for that.

use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use serde_json::json;

use super::{Held, Leader, Leadership, RENEW, Tenure, Turn, lock, term_after};
use crate::etcd::{Entry, Etcd, EtcdError, Txn, number};

/// Between two looks at who leads.
pub(super) const LOOK: Duration = Duration::from_millis(200);

/// One that would lead.
#[derive(Clone, Debug)]
pub(super) struct Candidate {
    etcd: Etcd,
    prefix: String,
    lease: Duration,
    me: Leader,
}

/// Being the leader.
#[derive(Debug)]
pub(crate) struct Seat {
    etcd: Etcd,
    key: String,
    created: i64,
    lease: i64,
    tenure: Tenure,
}

impl Candidate {
    pub(super) fn new(etcd: Etcd, prefix: &str, lease: Duration, me: Leader) -> Candidate {
        Candidate { etcd, prefix: prefix.to_owned(), lease, me }
    }

    pub(super) fn stand(&self, wall: u64) -> Result<Turn, EtcdError> {
        let key = leader_key(&self.prefix);
        if let Some(there) = self.etcd.get(&key)? {
            return Ok(Turn::Others(said(&there.value)));
        }
        let term_key = format!("{}/term", self.prefix);
        let before = self.etcd.get(&term_key)?;
        let last = before.as_ref().map_or(0, |entry| term_of(&entry.value));
        let term = term_after(last, wall);
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
        let tenure = Tenure::new(term, sent + self.lease);
        self.etcd.spawn(renew(self.etcd.clone(), lease, self.lease, Arc::downgrade(&tenure.held)));
        let seat = Seat { etcd: self.etcd.clone(), key, created: outcome.revision, lease, tenure };
        Ok(Turn::Mine(Leadership(super::Seat::Etcd(seat))))
    }
}

impl Seat {
    /// A transaction that is carried out only while this one leads; else it tells who does.
    pub(crate) fn guard(&self) -> Txn {
        Txn::default().if_created(&self.key, self.created).or_read(&self.key)
    }

    /// Whether the leader's key that a guarded transaction found is still this one's.
    pub(crate) fn is_mine(&self, found: Option<&Entry>) -> bool {
        found.is_some_and(|entry| entry.created == self.created)
    }

    /// Where it writes.
    pub(crate) fn etcd(&self) -> &Etcd {
        &self.etcd
    }

    pub(crate) fn tenure(&self) -> &Tenure {
        &self.tenure
    }

    /// Leaves it to another one at once.
    pub(crate) fn resign(&self) {
        self.tenure.end();
        // Else the lease ends by itself.
        let _ = self.etcd.revoke(self.lease);
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
