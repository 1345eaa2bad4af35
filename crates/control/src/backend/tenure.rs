//! A term in office, and how sure it is.
//!
//! *Intuition.* What a leader writes to its store, the store itself refuses once another one leads. What is done
//! outside of it, starting a server for example, cannot be guarded so: it is done only while the lease surely holds by
//! this machine's monotonic clock, counted from before it was renewed.
//!
//! *Awkward cases.* When the store is away that is over after a lease's time, and comes back with it if nobody else
//! could be elected meanwhile.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Instant;

/// A term in office, as the leader's store has it. Dropped, the lease is not renewed any more.
#[derive(Debug)]
pub struct Tenure {
    term: u64,
    held: Arc<Mutex<Held>>,
}

/// The same, for what runs beside the store: the renewal of the lease, and the label of the leader's pod.
#[derive(Clone, Debug, Default)]
pub struct WeakTenure(Weak<Mutex<Held>>);

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

impl Tenure {
    /// A term whose lease holds until then.
    pub fn new(term: u64, until: Instant) -> Tenure {
        Tenure { term, held: Arc::new(Mutex::new(Held { until, away: None, ended: false, label_problem: None })) }
    }

    /// Notes that a call was not answered, until the lease is renewed.
    pub fn missed(&self, why: &str) {
        lock(&self.held).away = Some(why.to_owned());
    }

    /// Notes that another one leads.
    pub fn end(&self) {
        lock(&self.held).ended = true;
    }

    /// Counts up with every election.
    pub fn term(&self) -> u64 {
        self.term
    }

    /// Whether it surely leads, now and later.
    pub fn lease(&self) -> Lease {
        Lease(Some(self.held.clone()))
    }

    /// For what runs beside it, and ends with it.
    pub fn downgrade(&self) -> WeakTenure {
        WeakTenure(Arc::downgrade(&self.held))
    }

    /// Whether the lease is known to have ended.
    pub fn has_ended(&self) -> bool {
        lock(&self.held).ended
    }

    /// Why the store is not heard, while it is not.
    pub fn away(&self) -> Option<String> {
        lock(&self.held).away.clone()
    }

    /// Why a service does not lead to this one by its pod's label, while that is so.
    pub fn label_problem(&self) -> Option<String> {
        lock(&self.held).label_problem.clone()
    }
}

impl WeakTenure {
    /// Notes that the lease holds until then: the store is heard.
    pub fn renewed(&self, until: Instant) {
        self.note(|held| (held.until, held.away) = (until, None));
    }

    /// Notes that the lease could not be renewed now.
    pub fn missed(&self, why: &str) {
        self.note(|held| held.away = Some(why.to_owned()));
    }

    /// Notes that the lease is another one's, or nobody's.
    pub fn lost(&self) {
        self.note(|held| (held.ended, held.away) = (true, None));
    }

    /// Notes why the leader's pod is not labelled as it is to be; `None`: it is.
    pub fn note_label(&self, problem: Option<String>) {
        self.note(|held| held.label_problem = problem);
    }

    /// Whether nobody wants the lease any more, or it has ended.
    pub fn is_over(&self) -> bool {
        self.0.upgrade().is_none_or(|held| lock(&held).ended)
    }

    /// Whether it is in office; `None`: it is not sure.
    pub fn leads(&self) -> Option<bool> {
        let Some(held) = self.0.upgrade() else { return Some(false) };
        let held = lock(&held);
        match held.ended {
            true => Some(false),
            false => (Instant::now() < held.until).then_some(true),
        }
    }

    fn note(&self, change: impl FnOnce(&mut Held)) {
        if let Some(held) = self.0.upgrade() {
            change(&mut lock(&held));
        }
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

fn lock(held: &Mutex<Held>) -> MutexGuard<'_, Held> {
    held.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn it_leads_until_the_lease_ends_and_again_when_it_is_renewed() {
        let (now, long) = (Instant::now(), Duration::from_secs(3600));
        let tenure = Tenure::new(7, now);
        let (lease, renewal) = (tenure.lease(), tenure.downgrade());
        assert_eq!((lease.holds(), renewal.leads(), renewal.is_over()), (false, None, false));
        renewal.missed("why");
        assert_eq!(tenure.away().as_deref(), Some("why"));
        renewal.renewed(now + long);
        assert_eq!((lease.holds(), renewal.leads(), tenure.away()), (true, Some(true), None));
        renewal.lost();
        assert_eq!((lease.holds(), renewal.leads(), tenure.has_ended()), (false, Some(false), true));
        renewal.renewed(now + long);
        assert!(!lease.holds(), "what has ended does not come back");
    }

    #[test]
    fn nobody_is_in_office_once_the_store_is_dropped() {
        let tenure = Tenure::new(7, Instant::now() + Duration::from_secs(3600));
        let renewal = tenure.downgrade();
        drop(tenure);
        assert_eq!((renewal.is_over(), renewal.leads()), (true, Some(false)));
        assert!(Lease::NONE_NEEDED.holds());
    }
}
