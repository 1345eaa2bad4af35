//! The label on the leader's pod, by which a service leads to it.
//!
//! *Intuition.* Each control plane says of its own pod what it is, at every change and again from time to time: with
//! the label while it leads, without it otherwise. So a write that came late, or somebody's hand, is put right. Who is
//! elected also takes the label from the pods of those that led before it: one of them may hang.
//!
//! *Awkward cases.* Nothing hangs on the label but the way to the leader: who leads is the Lease's to say, and neither
//! a term nor the end of one is held up by a pod. While it is not sure who leads, labels stay as they are. What is
//! refused is said once, and tried again as often as the Lease is renewed. A container that starts again has the pod of
//! the one before it, with its label: it is taken away first of all.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio::time::timeout;
use tracing::warn;

use super::RENEW;
use crate::backend::WeakTenure;
use crate::kubernetes::{ApiError, ApiServer, Calls};

/// What the leader's pod has.
const KEY: &str = "tidegate.io/role";
const LEADER: &str = "leader";
/// What a pod is to have is said again after so many times of a lease.
const AGAIN: u32 = 3;

/// The label of this one's own pod. Dropped, it is left as it is.
#[derive(Debug)]
pub(super) struct Label(watch::Sender<Order>);

#[derive(Clone, Debug, Default)]
struct Order {
    /// Of the last term in office; gone or ended: this one waits.
    tenure: WeakTenure,
    /// Pods that are to have the label no more.
    former: Vec<String>,
    /// Is told when the order was carried out, or was refused.
    done: Option<SyncSender<()>>,
}

/// What is done, on the thread that speaks with the API server.
struct Work {
    calls: Arc<Calls>,
    pod: String,
    /// What this pod was last given, and when.
    given: Option<(bool, Instant)>,
    is_said: bool,
}

impl Label {
    /// Of the pod of this name, for leases of so long.
    pub(super) fn start(server: &ApiServer, pod: &str, lease: Duration) -> Label {
        let (sender, orders) = watch::channel(Order::default());
        let work = Work { calls: server.calls(), pod: pod.to_owned(), given: None, is_said: false };
        server.spawn(work.run(orders, lease));
        Label(sender)
    }

    /// This one leads by now, and these pods did before it.
    pub(super) fn give(&self, tenure: WeakTenure, former: &[String]) {
        drop(self.0.send_replace(Order { tenure, former: former.to_vec(), done: None }));
    }

    /// This one leads no more. What is received: that it was done, or refused.
    pub(super) fn take_away(&self) -> Receiver<()> {
        let (done, waits) = sync_channel(1);
        drop(self.0.send_replace(Order { done: Some(done), ..Order::default() }));
        waits
    }
}

impl Work {
    async fn run(mut self, mut orders: watch::Receiver<Order>, lease: Duration) {
        loop {
            let mut order = orders.borrow_and_update().clone();
            loop {
                self.carry_out(&mut order, lease).await;
                if let Some(done) = order.done.take() {
                    // Who waited for it may have given up.
                    let _ = done.try_send(());
                }
                match timeout(lease / RENEW, orders.changed()).await {
                    Ok(Ok(())) => break,
                    // Nobody wants it any more.
                    Ok(Err(_)) => return,
                    Err(_) => {}
                }
            }
        }
    }

    async fn carry_out(&mut self, order: &mut Order, lease: Duration) {
        let Some(leads) = order.tenure.leads() else { return };
        let mut trouble = None;
        if self.given.is_none_or(|(given, at)| given != leads || at.elapsed() > lease * AGAIN) {
            let (calls, pod) = (&self.calls, &self.pod);
            match calls.label_pod(pod, KEY, leads.then_some(LEADER)).await {
                Ok(()) => self.given = Some((leads, Instant::now())),
                // It may have been carried out, or be so later.
                Err(error) => (self.given, trouble) = (None, Some(error)),
            }
        }
        if leads && let Err(error) = self.take_from(&mut order.former).await {
            trouble = Some(error);
        }
        let problem = trouble.map(|error| error.to_string());
        if let Some(problem) = problem.as_ref().filter(|_| !self.is_said) {
            warn!(
                pod = self.pod,
                "label: {problem}; a service that selects by {KEY} may miss the leader; it is tried again"
            );
        }
        self.is_said = problem.is_some();
        order.tenure.note_label(problem);
    }

    /// Takes the label from these pods; those where it was taken from are left out.
    async fn take_from(&self, former: &mut Vec<String>) -> Result<(), ApiError> {
        let mut outcome = Ok(());
        for pod in std::mem::take(former) {
            match self.calls.label_pod(&pod, KEY, None).await {
                Ok(()) | Err(ApiError::Missing(_)) => {}
                Err(error) => {
                    outcome = Err(error);
                    former.push(pod);
                }
            }
        }
        outcome
    }
}
