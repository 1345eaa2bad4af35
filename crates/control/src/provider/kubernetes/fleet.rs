//! Assignment of pods to the places of the pool. Pure.
//!
//! *Intuition.* A deployment says how many pods there are, and chooses itself which. A place that is in use is given a
//! pod that has no place yet, and keeps it as long as it is there.
//!
//! *Awkward cases.* A pod that ends by itself, or is evicted or rolled over, is replaced by the deployment: its place
//! gets the replacement, and has no address meanwhile. A place that is given up names its pod as the one to go; when
//! the deployment lets another one go all the same, that one's place gets the pod that stayed. For that, the pod that
//! was to go waits without a place: until another one's place has lost its pod and there are no more pods than places,
//! so that none is to go any more; or for a while. After a restart, pods are known again by what is on record.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use tidegate_kubernetes::Pod;

use crate::plane::Process;
use crate::provider::Presence;

/// A pod that was to go and is still there after so long may be used again.
const LEAVES: Duration = Duration::from_secs(60);

/// Every place and every pod.
#[derive(Debug)]
pub(super) struct Fleet {
    deployments: Vec<Members>,
}

/// A deployment's.
#[derive(Debug, Default)]
struct Members {
    places: BTreeMap<usize, Place>,
    pods: BTreeMap<String, Pod>,
    /// Pods that were to go, and since when.
    leaving: BTreeMap<String, Instant>,
}

#[derive(Debug, Default)]
struct Place {
    pod: Option<String>,
    /// The pod that it had in an earlier life of the daemon.
    on_record: Option<u64>,
}

impl Fleet {
    pub(super) fn new(deployments: usize) -> Fleet {
        Fleet { deployments: (0..deployments).map(|_| Members::default()).collect() }
    }

    /// A place was in use when this daemon began.
    pub(super) fn adopt(&mut self, deployment: usize, server: usize, process: Option<Process>) {
        let on_record = process.map(|process| process.started).filter(|mark| *mark != 0);
        if let Some(members) = self.deployments.get_mut(deployment) {
            members.places.insert(server, Place { pod: None, on_record });
        }
    }

    /// A place comes into use.
    pub(super) fn start(&mut self, now: Instant, deployment: usize, server: usize) {
        let same = self.deployments.get(deployment).is_some_and(|members| members.places.contains_key(&server));
        if !same {
            // It may have been another one's, if a daemon was killed in between.
            let _ = self.stop(now, server);
        }
        if let Some(members) = self.deployments.get_mut(deployment) {
            members.places.entry(server).or_default();
            members.settle(now);
        }
    }

    /// A place goes out of use: whose it was.
    pub(super) fn stop(&mut self, now: Instant, server: usize) -> Option<usize> {
        let (at, members) =
            self.deployments.iter_mut().enumerate().find(|(_, members)| members.places.contains_key(&server))?;
        if let Some(pod) = members.places.remove(&server).and_then(|place| place.pod) {
            members.leaving.insert(pod, now);
        }
        Some(at)
    }

    /// A service's pods are these.
    pub(super) fn see(&mut self, now: Instant, deployment: usize, pods: Vec<Pod>) {
        if let Some(members) = self.deployments.get_mut(deployment) {
            members.pods = pods.into_iter().map(|pod| (pod.uid.clone(), pod)).collect();
            members.settle(now);
        }
    }

    /// Places in use: as many pods there must be.
    pub(super) fn wanted(&self, deployment: usize) -> usize {
        self.deployments.get(deployment).map_or(0, |members| members.places.len())
    }

    /// Pods that no place has, by name: they are to go first.
    pub(super) fn spare(&self, deployment: usize) -> Vec<String> {
        let Some(members) = self.deployments.get(deployment) else { return Vec::new() };
        let used = members.used();
        let spare = members.pods.values().filter(|pod| !pod.is_terminating && !used.contains(pod.uid.as_str()));
        spare.filter_map(|pod| pod.name.clone()).collect()
    }

    /// How a place is.
    pub(super) fn look(&self, server: usize) -> Presence {
        match self.place(server) {
            None => Presence::Absent,
            Some((_, Some(pod))) if pod.is_ready => Presence::Serving,
            Some(_) => Presence::Silent,
        }
    }

    /// Where a place's pod listens.
    pub(super) fn address(&self, server: usize) -> Option<String> {
        self.place(server)?.1.map(|pod| pod.address.to_string())
    }

    /// What a place's pod is called.
    pub(super) fn name(&self, server: usize) -> Option<String> {
        self.place(server)?.1.and_then(|pod| pod.name.clone())
    }

    /// What is put on record of a place's pod; 0 while it has none.
    pub(super) fn mark(&self, server: usize) -> u64 {
        self.place(server).and_then(|(_, pod)| pod).map_or(0, |pod| mark(&pod.uid))
    }

    fn place(&self, server: usize) -> Option<(&Place, Option<&Pod>)> {
        let (members, place) =
            self.deployments.iter().find_map(|members| Some((members, members.places.get(&server)?)))?;
        Some((place, place.pod.as_ref().and_then(|uid| members.pods.get(uid))))
    }
}

impl Members {
    /// Pods that are gone leave their places, and places without a pod get those that have none.
    fn settle(&mut self, now: Instant) {
        let pods = &self.pods;
        let stays = |uid: &String| pods.get(uid).is_some_and(|pod| !pod.is_terminating);
        let mut is_bereft = false;
        for place in self.places.values_mut() {
            is_bereft |= place.pod.as_ref().is_some_and(|uid| !stays(uid));
            place.pod = place.pod.take().filter(stays);
        }
        self.leaving.retain(|uid, since| stays(uid) && now.saturating_duration_since(*since) < LEAVES);
        if is_bereft && pods.values().filter(|pod| !pod.is_terminating).count() <= self.places.len() {
            // Another one went in its stead.
            self.leaving.clear();
        }
        let used: BTreeSet<String> = self.used().into_iter().map(str::to_owned).collect();
        let free = |pod: &&Pod| !pod.is_terminating && !used.contains(&pod.uid) && !self.leaving.contains_key(&pod.uid);
        let mut free: Vec<Pod> = self.pods.values().filter(free).cloned().collect();
        for place in self.places.values_mut().filter(|place| place.pod.is_none()) {
            let recorded = place.on_record.and_then(|record| free.iter().position(|pod| mark(&pod.uid) == record));
            if let Some(at) = recorded {
                place.pod = Some(free.swap_remove(at).uid);
            }
        }
        // The ready ones first, each time in the same order; taken from the end.
        free.sort_by(|a, b| (a.is_ready, &b.uid).cmp(&(b.is_ready, &a.uid)));
        for place in self.places.values_mut().filter(|place| place.pod.is_none()) {
            place.pod = free.pop().map(|pod| pod.uid);
            place.on_record = place.on_record.filter(|_| place.pod.is_none());
        }
    }

    fn used(&self) -> BTreeSet<&str> {
        self.places.values().filter_map(|place| place.pod.as_deref()).collect()
    }
}

/// A pod's mark on record: FNV-1a of its identity, which is random.
fn mark(uid: &str) -> u64 {
    uid.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(uid: &str, is_ready: bool) -> Pod {
        let (name, address) = (Some(format!("pod-{uid}")), ([10, 0, 0, 1], 8000 + u16::from(uid.as_bytes()[0])).into());
        Pod { uid: uid.to_owned(), name, address, is_ready, is_terminating: false }
    }

    fn fleet(places: &[usize], pods: &[&str]) -> (Fleet, Instant) {
        let (mut fleet, now) = (Fleet::new(2), Instant::now());
        places.iter().for_each(|server| fleet.start(now, 0, *server));
        fleet.see(now, 0, pods.iter().map(|uid| pod(uid, true)).collect());
        (fleet, now)
    }

    /// The pods at places 0 to 3, `-` for none.
    fn at(fleet: &Fleet) -> String {
        let uid = |server| match fleet.place(server) {
            Some((place, _)) => place.pod.clone().unwrap_or_else(|| String::from("?")),
            None => String::from("-"),
        };
        (0..4).map(uid).collect()
    }

    #[test]
    fn a_place_gets_a_pod_and_keeps_it() {
        let (mut fleet, now) = fleet(&[0, 2], &[]);
        assert_eq!(
            (at(&fleet), fleet.look(0), fleet.look(1)),
            (String::from("?-?-"), Presence::Silent, Presence::Absent)
        );
        assert_eq!((fleet.wanted(0), fleet.wanted(1), fleet.mark(0)), (2, 0, 0));
        fleet.see(now, 0, vec![pod("b", false)]);
        assert_eq!((at(&fleet), fleet.look(0)), (String::from("b-?-"), Presence::Silent));
        fleet.see(now, 0, vec![pod("a", true), pod("b", true), pod("c", true)]);
        assert_eq!((at(&fleet), fleet.look(0)), (String::from("b-a-"), Presence::Serving));
        assert_eq!(fleet.address(2), Some(String::from("10.0.0.1:8097")));
        assert_eq!(fleet.spare(0), ["pod-c"]);
        fleet.start(now, 0, 3);
        assert_eq!(at(&fleet), "b-ac", "one that was there already");
    }

    #[test]
    fn a_pod_that_ends_by_itself_is_replaced() {
        let (mut fleet, now) = fleet(&[0, 1], &["a", "b"]);
        let ending = Pod { is_terminating: true, ..pod("a", true) };
        fleet.see(now, 0, vec![ending, pod("b", true)]);
        assert_eq!((at(&fleet), fleet.look(0), fleet.address(0)), (String::from("?b--"), Presence::Silent, None));
        fleet.see(now, 0, vec![pod("b", true), pod("c", true)]);
        assert_eq!(at(&fleet), "cb--");
    }

    #[test]
    fn when_another_one_goes_its_place_gets_the_one_that_stayed() {
        let (mut fleet, now) = fleet(&[0, 1], &["a", "b"]);
        assert_eq!(fleet.stop(now, 0), Some(0));
        assert_eq!((at(&fleet), fleet.spare(0)), (String::from("-b--"), vec![String::from("pod-a")]));
        // It waits: the deployment is about to let it go.
        fleet.start(now, 0, 2);
        assert_eq!(at(&fleet), "-b?-");
        assert_eq!(fleet.stop(now, 2), Some(0));
        fleet.see(now, 0, vec![pod("a", true)]);
        assert_eq!(at(&fleet), "-a--");
        assert_eq!(fleet.stop(now, 7), None);
    }

    #[test]
    fn one_that_was_to_go_waits_while_there_is_one_too_many() {
        let (mut fleet, now) = fleet(&[0, 1], &["a", "b", "c"]);
        assert_eq!(fleet.stop(now, 0), Some(0));
        // One ends by itself, and the deployment may still let another one go.
        let ending = Pod { is_terminating: true, ..pod("b", true) };
        fleet.see(now, 0, vec![pod("a", true), ending, pod("c", false)]);
        assert_eq!(at(&fleet), "-c--", "not the one that was to go, though it is ready");
        fleet.see(now + LEAVES, 0, vec![pod("a", true)]);
        assert_eq!(at(&fleet), "-a--");
    }

    #[test]
    fn after_a_restart_pods_are_known_again() {
        let (before, now) = fleet(&[0, 1, 2], &["a", "b", "c"]);
        let mut fleet = Fleet::new(2);
        for server in [2, 0, 1] {
            let process = Process { pid: 0, started: before.mark(server), step: 1 };
            fleet.adopt(0, server, Some(process));
        }
        fleet.see(now, 0, vec![pod("b", true), pod("d", true), pod("c", true)]);
        let again: Vec<char> =
            at(&fleet).chars().zip(at(&before).chars()).map(|(a, b)| if b == 'a' { a } else { b }).collect();
        assert_eq!(at(&fleet), again.iter().collect::<String>(), "the others are where they were");
        assert!(at(&fleet).contains('d') && fleet.wanted(0) == 3);
    }

    #[test]
    fn a_place_is_of_one_deployment() {
        let (mut fleet, now) = fleet(&[0], &["a"]);
        fleet.start(now, 1, 0);
        assert_eq!((fleet.wanted(0), fleet.wanted(1), fleet.stop(now, 0)), (0, 1, Some(1)));
    }
}
