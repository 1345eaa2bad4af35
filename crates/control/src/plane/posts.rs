//! Sentries that the control plane starts and stops itself.
//!
//! *Intuition.* A post is to a sentry what a place in the pool is to a server; see [`tidegate_provision::Posts`]. Who
//! stands at a post is known by the name that it speaks under.
//!
//! *Awkward cases.* One that leaves is in no DNS answer any more, but clients that remember its address still come: it
//! shares the servers of all others until it is stopped, for it has none to itself. One that failed is still registered
//! for a while: it is nobody else's, or its successor would not be started. Of somebody else's only those count that
//! speak: a dead one would keep its successor from being started.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tidegate_provision::{Place, ProvisionAction, ServerNews, repartition};

use super::{Plane, Process, Unit, What};

/// Who begins waits so long for the sentries that are there to speak, before it starts or stops any; the second where
/// some are known, which try again every five seconds.
pub(super) const SPEAK: [Duration; 2] = [Duration::from_secs(3), Duration::from_secs(6)];

impl Plane {
    /// Who stands at every post.
    pub fn posts(&self) -> &[Place] {
        self.provisioner.posts()
    }

    /// States of the places of a unit.
    pub fn places_of(&self, unit: Unit) -> &[Place] {
        match unit {
            Unit::Server => self.places(),
            Unit::Sentry => self.posts(),
        }
    }

    /// The name of the sentry that stands at a post, once it has spoken.
    pub fn stands(&self, post: usize) -> Option<&str> {
        self.stands.get(&post).map(String::as_str)
    }

    /// Whether a sentry is to go, or has gone, so that no more clients are to come to it.
    pub fn is_leaving(&self, sentry: &str) -> bool {
        let has_gone = |post: &usize| match self.posts().get(*post) {
            Some(Place::Coming { .. } | Place::Serving { .. }) => false,
            Some(Place::Draining { .. } | Place::Failed { .. } | Place::Free) | None => true,
        };
        self.post_of(sentry).is_some_and(|post| has_gone(&post)) || self.stood.contains(sentry)
    }

    /// Sentries that are cut off, as the plane was told last.
    pub fn silent(&self) -> &BTreeSet<String> {
        &self.silent
    }

    fn post_of(&self, sentry: &str) -> Option<usize> {
        self.stands.iter().find(|(_, name)| *name == sentry).map(|(post, _)| *post)
    }

    /// Processes of a unit, by place.
    pub(super) fn processes_of(&self, unit: Unit) -> BTreeMap<usize, Process> {
        let of = self.processes.iter().filter(|((of, _), _)| *of == unit);
        of.map(|((_, place), process)| (*place, *process)).collect()
    }

    /// News of the sentry at a post.
    pub(super) fn post(&mut self, post: usize, news: ServerNews, name: Option<&str>, reason: &str) {
        let Some(place) = self.posts().get(post).copied() else { return };
        if let (ServerNews::Up, Some(name)) = (news, name) {
            let before = self.stands.insert(post, name.to_owned());
            self.stood.extend(before.filter(|before| before != name));
        }
        self.provisioner.handle_post(self.now, post, news);
        if self.posts()[post] == place {
            return self.count_others();
        }
        let application = application_of(&place);
        let kind = match news {
            ServerNews::Up => "sentry-up",
            ServerNews::Drained => "sentry-left",
            ServerNews::Failed => "sentry-failed",
        };
        self.record_post(kind, application, post, reason.to_owned());
        if news == ServerNews::Failed {
            // Whatever is left of it must not stand in the way of the next one.
            self.step(Unit::Sentry, post, What::Stop);
        }
        self.count_others();
    }

    /// What is to be done at posts.
    pub(super) fn follow_post(&mut self, action: &ProvisionAction) {
        match *action {
            ProvisionAction::Start { server: post, application } => {
                self.step(Unit::Sentry, post, What::Start { application });
            }
            ProvisionAction::Stop { server: post } => {
                if matches!(self.posts()[post], Place::Failed { .. }) {
                    let text = String::from("it has not spoken in time; another one is started");
                    self.record_post("sentry-failed", None, post, text);
                }
                self.step(Unit::Sentry, post, What::Stop);
            }
            ProvisionAction::Drain { server: post, application } => {
                let text = String::from("no DNS answer names it any more; it is stopped when clients know");
                self.record_post("sentry-leaves", Some(application), post, text);
            }
            ProvisionAction::Resume { server: post, application } => {
                self.record_post("sentry-stays", Some(application), post, String::from("it is wanted again"));
            }
            // Posts have neither.
            ProvisionAction::SetCeiling { .. } | ProvisionAction::Partition { .. } => {}
        }
    }

    /// Tells the provisioner which sentries somebody else has started.
    pub(super) fn count_others(&mut self) {
        if self.posts().is_empty() && self.stood.is_empty() {
            // Nobody asks.
            return;
        }
        let registered: BTreeSet<&String> = self.sentries.iter().flatten().collect();
        self.stood.retain(|name| registered.contains(name));
        // Once for all names; of two posts of one name the first counts, as in `post_of`.
        let stands =
            self.stands.iter().rev().filter_map(|(post, name)| Some((name, self.provisioner.posts().get(*post)?)));
        let stands: BTreeMap<&String, &Place> = stands.collect();
        let others = |(application, names): (usize, &Vec<String>)| {
            let is_others = |name: &&String| match stands.get(*name) {
                // One that is at a post for another application works for this one, too. Both must not count on the
                // other's: the one further up does not.
                Some(Place::Coming { application: of, .. } | Place::Serving { application: of, .. }) => {
                    *of < application
                }
                Some(Place::Draining { .. } | Place::Failed { .. } | Place::Free) => false,
                None => !self.stood.contains(*name),
            };
            let speaks = |name: &&String| !self.silent.contains(*name);
            names.iter().filter(speaks).filter(is_others).count() as u32
        };
        let others: Vec<u32> = self.sentries.iter().enumerate().map(others).collect();
        for (application, count) in others.into_iter().enumerate() {
            self.provisioner.handle_others(application, count);
        }
    }

    /// An application's servers, divided anew among those of its sentries that stay; who leaves shares them all.
    pub(super) fn repartitioned(&self, application: usize, members: &[usize], serving: &[usize]) -> Vec<Vec<usize>> {
        let names = &self.sentries[application];
        let stay: Vec<bool> = names.iter().map(|name| !self.is_leaving(name)).collect();
        let before = self.parts[application].iter().zip(&stay);
        let before: Vec<Vec<usize>> = before.filter(|(_, stays)| **stays).map(|(part, _)| part.clone()).collect();
        let count = stay.iter().filter(|stays| **stays).count();
        let mut parts = repartition(&before, members, count as u32).into_iter();
        let part = |stays: &bool| if *stays { parts.next() } else { None };
        stay.iter().map(part).map(|part| part.unwrap_or_else(|| serving.to_vec())).collect()
    }
}

/// Whose a place is, as long as something stands there.
pub(super) fn application_of(place: &Place) -> Option<usize> {
    match *place {
        Place::Coming { application, .. }
        | Place::Serving { application, .. }
        | Place::Draining { application, .. } => Some(application),
        Place::Free | Place::Failed { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plane::Input;
    use tidegate_engine::{Sla, Statistic, Timestamp};
    use tidegate_provision::{ApplicationSetup, Pool, Posts, ProvisionConfig, SentryRule, Site};

    fn plane(posts: u32) -> Plane {
        let application = ApplicationSetup {
            name: String::from("shop"),
            sla: Sla::constant(Statistic::P95, Duration::from_secs(1)).expect("a target"),
            revenues: vec![1.0],
            min_servers: 2,
            max_servers: 2,
            servers: 2,
            max_sentries: posts.max(1),
            replica: None,
        };
        let site = Site {
            servers: 2,
            pool: Pool::default(),
            applications: vec![application],
            policy: ProvisionConfig::default(),
            sentries: SentryRule::default(),
            posts: Posts { count: posts, ..Posts::default() },
        };
        let mut plane = Plane::new(site).expect("makes sense");
        plane.handle(&Input::Began { now: at(0) });
        plane
    }

    fn at(second: u64) -> Timestamp {
        Timestamp::from_millis(second * 1000)
    }

    /// A period in which each sentry was so busy.
    fn period(plane: &mut Plane, second: u64, cpu: f64) {
        let sentries = (0..plane.sentries(0).len()).map(|sentry| (0, sentry, cpu)).collect();
        plane.handle(&Input::Period { now: at(second), reports: vec![None], sentries });
    }

    fn registered(plane: &mut Plane, second: u64, names: &[&str]) {
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        plane.handle(&Input::Sentries { now: at(second), application: 0, names });
    }

    fn up(plane: &mut Plane, second: u64, post: usize, name: &str) {
        let (news, reason) = (ServerNews::Up, String::new());
        plane.handle(&Input::Post { now: at(second), post, news, name: Some(name.to_owned()), reason });
    }

    /// Steps for posts that are not done: the post, and whether its sentry is to be started. They count as done then.
    fn steps(plane: &mut Plane) -> Vec<(usize, bool)> {
        let steps: Vec<_> = plane.pending().filter(|step| step.unit == Unit::Sentry).cloned().collect();
        for step in &steps {
            plane.handle(&Input::Done { now: plane.now(), step: step.number, process: None });
        }
        steps.iter().map(|step| (step.place, matches!(step.what, What::Start { .. }))).collect()
    }

    #[test]
    fn what_somebody_else_has_started_is_not_started_again() {
        let mut alone = plane(2);
        period(&mut alone, 1, 0.0);
        assert_eq!(steps(&mut alone), [], "it waits for those that are there");
        period(&mut alone, 4, 0.0);
        assert_eq!(steps(&mut alone), [(0, true)]);

        let mut beside = plane(2);
        registered(&mut beside, 1, &["somebody's"]);
        period(&mut beside, 4, 0.0);
        assert_eq!(steps(&mut beside), []);
        // It is busy, and asks for another one.
        (5..40).for_each(|second| period(&mut beside, second, 0.9));
        assert_eq!(steps(&mut beside), [(0, true)]);
        // Without posts somebody else is told, and nobody is started.
        let mut without = plane(0);
        (5..40).for_each(|second| period(&mut without, second, 0.9));
        assert_eq!(steps(&mut without), []);
    }

    #[test]
    fn one_that_leaves_shares_all_servers_and_then_goes() {
        let mut plane = plane(2);
        for server in 0..2 {
            let (news, reason) = (ServerNews::Up, String::new());
            plane.handle(&Input::Server { now: at(1), server, news, reason });
        }
        period(&mut plane, 4, 0.0);
        steps(&mut plane);
        up(&mut plane, 5, 0, "sentry-a");
        registered(&mut plane, 5, &["sentry-a"]);
        (6..45).for_each(|second| period(&mut plane, second, 0.9));
        assert_eq!(steps(&mut plane), [(1, true)]);
        up(&mut plane, 46, 1, "sentry-b");
        registered(&mut plane, 46, &["sentry-a", "sentry-b"]);
        let of = |plane: &Plane, name: &str| plane.servers_of(0, name).len();
        assert_eq!((of(&plane, "sentry-a"), of(&plane, "sentry-b")), (1, 1));

        let leaves = (47..100).find(|&second| {
            period(&mut plane, second, 0.1);
            plane.is_leaving("sentry-b")
        });
        let leaves = leaves.expect("one is too many");
        assert_eq!((of(&plane, "sentry-a"), of(&plane, "sentry-b")), (2, 2), "clients still come to it");
        assert_eq!(steps(&mut plane), [], "and it is not stopped yet");
        (leaves..leaves + 12).for_each(|second| period(&mut plane, second, 0.1));
        assert_eq!(steps(&mut plane), [(1, false)]);
        // Until it has said goodbye it is nobody else's: the other one would be stopped.
        (leaves + 12..leaves + 20).for_each(|second| period(&mut plane, second, 0.1));
        assert_eq!((steps(&mut plane), plane.is_leaving("sentry-a")), (vec![], false));
    }

    #[test]
    fn one_that_failed_is_replaced_though_it_is_still_registered() {
        let mut plane = plane(2);
        period(&mut plane, 4, 0.0);
        steps(&mut plane);
        up(&mut plane, 5, 0, "pod-1");
        registered(&mut plane, 5, &["pod-1"]);
        let (news, reason) = (ServerNews::Failed, String::from("its process has ended"));
        plane.handle(&Input::Post { now: at(6), post: 0, news, name: None, reason });
        period(&mut plane, 7, 0.0);
        assert_eq!(steps(&mut plane), [(0, false), (1, true)], "what is left of it, and its successor");
        up(&mut plane, 8, 1, "pod-2");
        registered(&mut plane, 8, &["pod-1", "pod-2"]);
        period(&mut plane, 9, 0.0);
        assert_eq!((steps(&mut plane), plane.is_leaving("pod-1"), plane.is_leaving("pod-2")), (vec![], true, false));
        // A pod that a deployment has replaced has another name.
        up(&mut plane, 10, 1, "pod-3");
        registered(&mut plane, 10, &["pod-2", "pod-3"]);
        period(&mut plane, 11, 0.0);
        assert_eq!((steps(&mut plane), plane.is_leaving("pod-2")), (vec![], true));
    }

    #[test]
    fn one_that_serves_two_applications_is_counted_for_the_other_once() {
        let mut site = plane(3).site.clone();
        (site.applications[0].min_servers, site.applications[0].servers) = (1, 1);
        let second = ApplicationSetup { name: String::from("mail"), ..site.applications[0].clone() };
        site.applications.push(second);
        let mut plane = Plane::new(site).expect("makes sense");
        plane.handle(&Input::Began { now: at(0) });
        let both = |plane: &mut Plane, second: u64, names: &[&str]| {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            for application in 0..2 {
                plane.handle(&Input::Sentries { now: at(second), application, names: names.clone() });
            }
        };
        let quiet = |plane: &mut Plane, second: u64| {
            plane.handle(&Input::Period { now: at(second), reports: vec![None, None], sentries: Vec::new() });
        };
        quiet(&mut plane, 4);
        assert_eq!(steps(&mut plane), [(0, true), (1, true)], "one for each, as nobody knows what they serve");
        up(&mut plane, 5, 0, "a");
        up(&mut plane, 5, 1, "b");
        both(&mut plane, 5, &["a", "b"]);
        (6..40).for_each(|second| quiet(&mut plane, second));
        assert_eq!((plane.is_leaving("a"), plane.is_leaving("b")), (false, true), "one is enough for both, and stays");
        steps(&mut plane);
        both(&mut plane, 40, &["a"]);
        (41..90).for_each(|second| quiet(&mut plane, second));
        assert_eq!((steps(&mut plane), plane.is_leaving("a")), (vec![], false));
    }

    #[test]
    fn one_of_somebody_else_that_is_dead_is_replaced_at_once() {
        let mut plane = plane(2);
        registered(&mut plane, 1, &["somebody's"]);
        period(&mut plane, 7, 0.0);
        assert_eq!(steps(&mut plane), []);
        plane.handle(&Input::Silent { now: at(8), names: vec![String::from("somebody's")] });
        period(&mut plane, 9, 0.0);
        assert_eq!(steps(&mut plane), [(0, true)]);
    }

    #[test]
    fn with_fewer_posts_who_stood_there_is_somebody_elses() {
        let mut plane = plane(2);
        period(&mut plane, 4, 0.0);
        steps(&mut plane);
        up(&mut plane, 5, 0, "sentry-a");
        registered(&mut plane, 5, &["sentry-a"]);
        let mut site = plane.site.clone();
        site.posts.count = 0;
        let mut fewer = Plane::restore(site, plane.state()).expect("fits");
        fewer.handle(&Input::Began { now: at(6) });
        registered(&mut fewer, 7, &["sentry-a", "somebody's"]);
        (13..20).for_each(|second| period(&mut fewer, second, 0.0));
        assert_eq!((steps(&mut fewer), fewer.is_leaving("sentry-a")), (vec![], false));
    }

    #[test]
    fn a_state_goes_on_as_it_was() {
        let mut plane = plane(2);
        period(&mut plane, 4, 0.0);
        up(&mut plane, 5, 0, "sentry-a");
        registered(&mut plane, 5, &["sentry-a"]);
        let text = serde_json::to_string(&plane.state()).expect("text");
        let state = serde_json::from_str(&text).expect("a state");
        let mut again = Plane::restore(plane.site.clone(), state).expect("fits");
        for plane in [&mut plane, &mut again] {
            (6..60).for_each(|second| period(plane, second, 0.9));
        }
        let text = |plane: &Plane| serde_json::to_string(&plane.state()).expect("text");
        assert_eq!(text(&plane), text(&again));
        assert_eq!(again.stands(0), Some("sentry-a"));
    }
}
