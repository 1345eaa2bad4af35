//! All policies of a namespace, again and again.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt, stream};
use tidegate_kubernetes::{Access, Objects};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use tracing::warn;

use crate::policy::OverloadPolicy;
use crate::reconcile::{Memory, Site};

/// Between two rounds of one that is not yet.
const SOON: Duration = Duration::from_secs(2);
/// Policies that are looked after at once.
const AT_ONCE: usize = 8;

/// Where an operator works, and with what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// How the API server is reached; `None`: as `kubectl` does it, or as a pod does.
    pub kubeconfig: Option<PathBuf>,
    /// The namespace whose policies it looks after; `None`: where it is at home.
    pub namespace: Option<String>,
    /// The image of sentries' containers.
    pub image: String,
    /// Between two rounds of a policy that is as it should be: what its sentries say is so old at most.
    pub every: Duration,
}

/// Looks after the policies of a namespace.
#[derive(Debug)]
pub struct Operator {
    site: Site,
    every: Duration,
}

/// A policy that is looked after.
#[derive(Debug)]
struct Kept {
    memory: Memory,
    generation: Option<i64>,
    due: Instant,
}

impl Operator {
    /// Reads where the API server is, and who this is there. Nothing is asked yet.
    ///
    /// # Errors
    /// What cannot be read, and why.
    pub async fn find(settings: Settings) -> Result<Operator, String> {
        let access = Arc::new(Access::find(settings.kubeconfig, settings.namespace).await?);
        Ok(Operator { site: Site { access, image: settings.image }, every: settings.every })
    }

    /// The namespace whose policies it looks after.
    pub fn namespace(&self) -> &str {
        self.site.access.namespace()
    }

    /// Looks after them. Never ends.
    pub async fn run(self) {
        let (tell, mut told) = watch::channel(Vec::new());
        let following = tokio::spawn(follow(self.site.access.clone(), tell));
        let mut kept = BTreeMap::<String, Kept>::new();
        loop {
            let policies = told.borrow_and_update().clone();
            self.rounds(&policies, &mut kept).await;
            let next = kept.values().map(|kept| kept.due).min().unwrap_or_else(|| Instant::now() + self.every);
            tokio::select! {
                () = sleep_until(next) => {}
                changed = told.changed() => if changed.is_err() {
                    // It panicked, and said so.
                    following.abort();
                    return;
                },
            }
        }
    }

    /// A round of each policy that is new, was changed, or whose time has come.
    async fn rounds(&self, policies: &[OverloadPolicy], kept: &mut BTreeMap<String, Kept>) {
        let now = Instant::now();
        let uid = |policy: &OverloadPolicy| policy.metadata.uid.clone().unwrap_or_default();
        kept.retain(|known, _| policies.iter().any(|policy| uid(policy) == *known));
        let mut due = Vec::new();
        for policy in policies.iter().filter(|policy| policy.metadata.deletion_timestamp.is_none()) {
            let new = || Kept { memory: Memory::default(), generation: None, due: now };
            let mut known = kept.remove(&uid(policy)).unwrap_or_else(new);
            let is_due = known.due <= now || known.generation != policy.metadata.generation;
            known.generation = policy.metadata.generation;
            match is_due {
                true => due.push((policy, known)),
                false => drop(kept.insert(uid(policy), known)),
            }
        }
        let rounds = due.into_iter().map(|(policy, mut known)| async move {
            let is_well = self.site.round(policy, older(policies, policy), &mut known.memory).await;
            known.due = Instant::now() + if is_well { self.every } else { SOON.min(self.every) };
            (uid(policy), known)
        });
        let done: Vec<_> = stream::iter(rounds).buffer_unordered(AT_ONCE).collect().await;
        kept.extend(done);
    }
}

/// Tells of all policies whenever there are others.
async fn follow(access: Arc<Access>, tell: watch::Sender<Vec<OverloadPolicy>>) {
    let mut policies = Objects::<OverloadPolicy>::new(access, "overload policies", None);
    while !tell.is_closed() {
        match policies.next().await {
            Ok(()) => drop(tell.send_replace(policies.all().cloned().collect())),
            Err(trouble) => warn!("{}; the policies known last hold", trouble.text),
        }
    }
}

/// Another policy of the same service that was there before it.
fn older<'a>(policies: &'a [OverloadPolicy], policy: &OverloadPolicy) -> Option<&'a str> {
    let age = |policy: &OverloadPolicy| {
        (policy.metadata.creation_timestamp.clone().map(|time| time.0), policy.name().to_owned())
    };
    let same = policies.iter().filter(|other| other.spec.target_ref.name == policy.spec.target_ref.name);
    same.filter(|other| age(other) < age(policy)).min_by_key(|other| age(other)).map(OverloadPolicy::name)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn of_two_policies_of_a_service_the_older_one_counts() {
        let policy = |name: &str, service: &str, second: &str| -> OverloadPolicy {
            let metadata = json!({ "name": name, "creationTimestamp": format!("2026-01-01T00:00:{second}Z") });
            let spec = json!({ "targetRef": { "kind": "Service", "name": service } });
            serde_json::from_value(json!({ "metadata": metadata, "spec": spec })).expect("a policy")
        };
        let all = [
            policy("b", "shop", "01"),
            policy("a", "shop", "02"),
            policy("c", "shop", "01"),
            policy("d", "else", "03"),
        ];
        let found: Vec<_> = all.iter().map(|policy| older(&all, policy)).collect();
        assert_eq!(found, [None, Some("b"), Some("b"), None]);
    }
}
