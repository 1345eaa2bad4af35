//! The pods of a service of Kubernetes: those that are ready, as its endpoint slices say.
//!
//! *Intuition.* They are watched, so that news of a pod is here as soon as the API server has it. What is believed of
//! it, and for how long, is decided as for names (`course.rs`): while nothing is known, the last pods stay; that none
//! is ready is believed when it has been so for a while.
//!
//! *Awkward cases.* A pod that is to go gets no new requests from then on, and ends those that it has. A service
//! without pods and one that does not exist look the same.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use tokio::task::JoinHandle;

use super::course::Answer;
use crate::config::Pods;

/// A service, and which of its ports.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Service {
    name: String,
    /// `None`: the one where this sentry is at home.
    namespace: Option<String>,
    /// Name or number; `None`: the first one.
    port: Option<String>,
}

/// One that is followed. Dropped, it is not any more.
#[derive(Debug)]
pub(super) struct Followed {
    latest: Arc<Mutex<Latest>>,
    task: JoinHandle<()>,
}

/// What was heard.
#[derive(Debug, Default)]
struct Latest {
    /// What nobody has taken yet, in this order: that nothing is known any more takes back nothing.
    news: Vec<Answer>,
    last: Option<Answer>,
}

impl Latest {
    fn hear(&mut self, answer: Answer) {
        match (&answer, self.news.last()) {
            (Answer::Failed(_), Some(Answer::Failed(_))) => drop(self.news.pop()),
            (Answer::Failed(_), _) => {}
            _ => self.news.clear(),
        }
        self.news.push(answer.clone());
        self.last = Some(answer);
    }

    /// What is new, or else what was heard last, if it is to be heard `again`.
    fn take(&mut self, again: bool) -> Vec<Answer> {
        let news = std::mem::take(&mut self.news);
        if news.is_empty() && again { self.last.iter().cloned().collect() } else { news }
    }
}

impl Service {
    pub(super) fn new(pods: Pods<'_>) -> Service {
        let owned = |text: Option<&str>| text.map(str::to_owned);
        Service { name: pods.service.to_owned(), namespace: owned(pods.namespace), port: owned(pods.port) }
    }

    /// Its name in the cluster's DNS.
    pub(crate) fn host(&self) -> String {
        match &self.namespace {
            Some(namespace) => format!("{}.{namespace}.svc", self.name),
            None => self.name.clone(),
        }
    }
}

impl fmt::Display for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "kubernetes:{}", self.name)?;
        if let Some(namespace) = &self.namespace {
            write!(f, ".{namespace}")?;
        }
        self.port.as_ref().map_or(Ok(()), |port| write!(f, ":{port}"))
    }
}

impl Followed {
    /// Begins to follow `service`; `bell` is rung whenever there is news. In a runtime.
    pub(super) fn start(service: Service, bell: Arc<Notify>) -> Followed {
        let latest = Arc::new(Mutex::default());
        let told = latest.clone();
        let task = tokio::spawn(async move {
            let tell = |answer| {
                lock(&told).hear(answer);
                bell.notify_one();
                true
            };
            follow(&service, tell).await;
        });
        Followed { latest, task }
    }

    /// What is new, or else what was heard last, if it is to be heard `again`.
    pub(super) fn take(&self, again: bool) -> Vec<Answer> {
        lock(&self.latest).take(again)
    }
}

impl Drop for Followed {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn lock(latest: &Mutex<Latest>) -> MutexGuard<'_, Latest> {
    latest.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Which pods it has now.
pub(super) async fn look_up(service: &Service) -> Answer {
    let mut first = None;
    let keep = |answer| {
        first = Some(answer);
        false
    };
    follow(service, keep).await;
    first.unwrap_or_else(|| Answer::Failed(String::from("nothing was heard of it")))
}

/// Tells of a service's pods as long as `tell` wants to hear more.
#[cfg(feature = "kubernetes")]
async fn follow(service: &Service, mut tell: impl FnMut(Answer) -> bool) {
    use tidegate_kubernetes::{Access, Endpoints, Pause};

    let mut pause = Pause::default();
    let access = loop {
        match Access::find(None, service.namespace.clone()).await {
            Ok(access) => break Arc::new(access),
            Err(why) if !tell(Answer::Failed(format!("how to reach the API server is not known: {why}"))) => return,
            Err(_) => tokio::time::sleep(pause.longer()).await,
        }
    };
    let namespace = access.namespace().to_owned();
    let mut endpoints = Endpoints::new(access, &service.name, service.port.as_deref());
    loop {
        let answer = match endpoints.next().await {
            Ok(pods) => answer(&pods, &service.name, &namespace),
            Err(trouble) => Answer::Failed(trouble.text),
        };
        if !tell(answer) {
            return;
        }
    }
}

#[cfg(feature = "kubernetes")]
fn answer(pods: &[tidegate_kubernetes::Pod], service: &str, namespace: &str) -> Answer {
    use super::course::{Good, LONGEST, Member};

    let ready = pods.iter().filter(|pod| pod.is_ready);
    let members: Vec<_> = ready.map(|pod| Member { address: pod.address, weight: 1.0 }).collect();
    match (members.is_empty(), pods.len()) {
        (false, _) => Answer::Found(Good { members, ttl: LONGEST, ..Good::default() }),
        (true, 0) => {
            Answer::Nothing(format!("service \"{service}\" of namespace \"{namespace}\" has no pods at this port"))
        }
        (true, pods) => Answer::Nothing(format!(
            "none of {pods} pods of service \"{service}\" of namespace \"{namespace}\" is ready"
        )),
    }
}

/// Says that it cannot.
#[cfg(not(feature = "kubernetes"))]
async fn follow(_service: &Service, mut tell: impl FnMut(Answer) -> bool) {
    tell(Answer::Failed(crate::config::NOT_BUILT.to_owned()));
}

#[cfg(test)]
mod tests {
    use super::super::course::Good;
    use super::*;

    #[test]
    fn what_is_known_is_not_lost_when_nothing_is_known_right_after() {
        let failed = |why: &str| Answer::Failed(why.to_owned());
        let found = Answer::Found(Good::default());
        let mut latest = Latest::default();
        assert_eq!(latest.take(true), []);
        latest.hear(failed("first"));
        latest.hear(found.clone());
        latest.hear(failed("second"));
        latest.hear(failed("third"));
        assert_eq!(latest.take(false), [found, failed("third")]);
        assert_eq!(latest.take(false), []);
        assert_eq!(latest.take(true), [failed("third")]);
    }
}
