//! Two whole control planes on an API server: one leads and the other waits, and what follows when one ends.

use std::time::{Duration, Instant};

use tidegate_control::Question;

use crate::support::home::{Home, PREFIX};
use crate::support::running::Running;
use crate::support::until;

/// Some of them, by their names: the one that leads comes first.
struct Members<'h> {
    home: &'h Home,
    lease: &'static str,
    all: Vec<(&'static str, Running)>,
}

impl<'h> Members<'h> {
    /// One that leads and one that follows it, with leases of so long.
    fn start(home: &'h Home, lease: &'static str) -> Members<'h> {
        let mut members = Members { home, lease, all: Vec::new() };
        members.begin("one");
        members.begin("two");
        members
    }

    /// Starts one that leads, or follows who does.
    fn begin(&mut self, name: &'static str) {
        self.all.push((name, Running::start(self.home, name, self.lease)));
        until("one leads, and all others follow it", || {
            // On a machine that stands still for long the lead goes from one to the other.
            let at = self.all.iter().position(|(_, member)| member.leads()).unwrap_or(0);
            self.all.swap(0, at);
            let (name, leader) = self.leader();
            leader.leads() && leader.began() > 0 && self.all[1..].iter().all(|(_, other)| other.follows(name))
        });
    }

    /// Ends the one that leads, and waits until another one does and has decided something: who it was.
    fn end_leader(&mut self, end: fn(Running)) -> &'static str {
        let (name, gone) = self.all.remove(0);
        let (before, began) = (gone.audit(), gone.began());
        end(gone);
        let (_, next) = self.leader();
        until("the next one leads", || next.leads() && next.began() > began);
        assert_eq!(next.audit()[..before.len()], before, "with all that was decided before");
        name
    }

    fn leader(&self) -> &(&'static str, Running) {
        &self.all[0]
    }

    /// The leader's pod has the label, and no other.
    fn is_labelled(&self) -> bool {
        let leader = self.all.iter().find(|(_, member)| member.leads());
        leader.is_some_and(|(name, _)| labelled(self.home) == [*name])
    }
}

#[test]
fn one_leads_and_the_other_follows_it_when_it_is_killed_or_stops() {
    let home = Home::start();
    let mut members = Members::start(&home, "3s");
    // The more the machine has to do, the less often they ask.
    let (since, asked) = (Instant::now(), home.api.asked("leases"));
    until("the Lease was asked for several times", || home.api.asked("leases") >= asked + 8);
    // tidy-allow(measured-time): a lower bound, which holds on any machine
    let took = since.elapsed();
    assert!(took > Duration::from_millis(8000 / 6), "6 requests/s and more for the Lease: 8 in {took:?}");
    let gone = members.end_leader(Running::kill);
    members.begin(gone);
    members.end_leader(Running::stop);
    let (_, one) = members.all.remove(0);
    home.api.gone_after(Some(0));
    until("it says that the store is away", || one.ask(Question::Status)["store_away"].is_string());
    assert!(one.leads(), "it leads on: nobody else can");
    home.api.gone_after(None);
    until("it goes on", || one.audit().iter().any(|record| record["kind"] == "store-away"));
    let began = one.began();
    home.api.delete("leases", PREFIX);
    until("it is elected anew", || one.leads() && one.began() > began);
    one.stop();
}

/// Whose pods a service would lead to.
fn labelled(home: &Home) -> Vec<&'static str> {
    let label = |name: &&str| {
        home.api.object("pods", &format!("pod-{name}"))["metadata"]["labels"]["tidegate.io/role"] == "leader"
    };
    ["one", "two", "three"].into_iter().filter(label).collect()
}

fn with_pods() -> Home {
    let home = Home::start();
    ["pod-one", "pod-two"].iter().for_each(|pod| home.api.make("pods", pod));
    home
}

#[test]
fn the_label_goes_with_the_lead() {
    let home = with_pods();
    let mut members = Members::start(&home, "2s");
    until("the leader's pod has the label", || members.is_labelled());
    // It says nothing any more, and its pod is there still.
    let gone = members.end_leader(Running::kill);
    until("the next one takes it", || members.is_labelled());
    // Its container starts again.
    members.begin(gone);
    members.end_leader(Running::stop);
    until("it goes back", || members.is_labelled());
    members.all.remove(0).1.stop();
    assert!(labelled(&home).is_empty(), "a clean stop takes it away: nobody else can have done it");
    // One that died in office, whose pod is gone, holds up nobody; nor is an end of its own without an answer.
    let gone = Running::start(&home, "three", "2s");
    until("it leads without a pod", || gone.leads() && gone.label_problem().is_some_and(|why| why.contains("404")));
    gone.kill();
    let two = Running::start(&home, "two", "2s");
    until("it leads with one", || two.leads() && labelled(&home) == ["two"]);
    until("all is well", || two.label_problem().is_none());
    home.api.gone_after(Some(0));
    two.stop();
}

#[test]
fn a_label_that_is_wrong_is_put_right() {
    let home = with_pods();
    let members = Members::start(&home, "2s");
    until("the leader's pod has the label", || members.is_labelled());
    let (right, wrong) = (members.leader().0, members.all[1].0);
    // As by a write of an earlier term that came late.
    home.api.label(&format!("pod-{wrong}"), Some("leader"));
    home.api.label(&format!("pod-{right}"), None);
    until("all is as it was", || members.is_labelled());
    // The Lease is another's: who led takes its own label away.
    let began = || members.all.iter().map(|(_, member)| member.began()).max();
    let before = began();
    home.api.delete("leases", PREFIX);
    until("one leads, and its pod has the label", || began() > before && members.is_labelled());
}

#[test]
fn one_that_may_not_label_its_pod_leads_all_the_same_and_says_so() {
    let home = with_pods();
    home.api.fail(10_000, "PATCH /api/v1/namespaces/home/pods", 403, None);
    let one = Running::start(&home, "one", "2s");
    until("it leads and decides", || one.leads() && one.began() == 1);
    until("it says so", || {
        one.label_problem().is_some_and(|why| why.contains("403") && why.contains("give its role this permission"))
    });
    assert!(labelled(&home).is_empty());
    home.api.fail_none();
    until("it is tried again", || labelled(&home) == ["one"] && one.label_problem().is_none());
    assert_eq!(one.began(), 1, "nobody was elected anew");
    one.stop();
}
