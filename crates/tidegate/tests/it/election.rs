//! Two control planes on an API server, their servers and a sentry as real processes: leaders are killed, and the API
//! server goes away or stands still.

use rustix::process::Signal;
use serde_json::Value;

use crate::support::api::Api;
use crate::support::pair::Pair;
use crate::support::{get, signal, until};

/// Load runs, and servers come for it.
pub fn until_servers_come(pair: &Pair, leader: usize) {
    until("more are asked for, or serve", || {
        let plan = pair.members[leader].json("/api/plan");
        plan[0]["coming"].as_u64().unwrap_or(0) > 0 || plan[0]["serving"].as_u64().unwrap_or(0) > 1
    });
}

#[test]
fn a_leader_that_is_killed_under_load_is_followed_at_once_and_nothing_is_doubled() {
    let mut pair = Pair::start(&Api::start());
    let load = pair.load();
    for _ in 0..2 {
        let first = pair.one_that_leads();
        let next = 1 - first;
        until_servers_come(&pair, first);
        let (term, offered) = (pair.sentry_term(), pair.offered());
        drop(pair.members[first].process.take());
        until("the next one decides", || pair.members[next].leads() && pair.members[next].inputs() > 0);
        until("the sentry follows it", || pair.sentry_term() > term);
        until("the sentry serves meanwhile", || pair.offered() > offered);
        pair.members[first].start();
        until("who was killed waits", || pair.members[first].waits());
    }
    let leader = pair.one_that_leads();
    until("servers come", || pair.members[leader].serving() >= 4);
    until("nothing is doubled or lost", || pair.nothing_is_doubled_or_lost());
    let requests = load.end();
    assert!(requests > 300, "{requests} requests");
    let (plan, told) = pair.output(1 - leader, &["plan"]);
    assert!(
        plan.starts_with("shop: ") && told.contains("leads"),
        "who waits shows what is in the store: {plan} {told}"
    );
    let (audit, _) = pair.output(1 - leader, &["audit"]);
    let numbers: Vec<u64> = audit
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).expect("JSON")["number"].as_u64().expect("a number"))
        .collect();
    assert!(numbers.windows(2).all(|pair| pair[0] < pair[1]), "in order, and none twice");
    assert!(audit.matches("\"kind\":\"began\"").count() >= 3);
}

#[test]
fn without_its_store_the_last_state_is_served_and_with_it_it_goes_on() {
    let server = Api::start();
    let pair = Pair::start(&server);
    let leader = pair.one_that_leads();
    let available = |member: usize| pair.members[member].metric("tidegate_control_store_available ");
    until("the sentry has orders", || pair.sentry_term() > 0);
    let (running, term) = (pair.pool.servers(), pair.sentry_term());
    server.gone_after(Some(0));
    until("it says so", || available(leader) == Some(0));
    assert_eq!(pair.members[leader].metric("tidegate_control_leads "), Some(1));
    let (plan, told) = pair.output(leader, &["plan"]);
    assert!(plan.starts_with("shop: ") && told.contains("nothing is changed now: the API server"), "{plan} {told}");
    // Load that needs more servers, for longer than the lease.
    let (load, offered) = (pair.load(), pair.offered());
    until("many have asked", || pair.offered() > offered + 300);
    let requests = load.end();
    assert!(requests > 300, "{requests} requests");
    assert_eq!(pair.pool.servers(), running, "nothing was started that could not be written down");
    assert_eq!(pair.sentry_term(), term, "the sentry is still spoken to");
    assert!(get(pair.listen, "/").is_some());
    server.gone_after(None);
    until("it is back", || pair.leader().is_some_and(|leader| available(leader) == Some(1)));
    let load = pair.load();
    until("servers come again", || pair.leader().is_some_and(|leader| pair.members[leader].serving() >= 3));
    until("nothing is doubled or lost", || pair.nothing_is_doubled_or_lost());
    load.end();
    let (audit, _) = pair.output(leader, &["audit"]);
    assert!(
        audit.contains("nothing was changed meanwhile") || audit.matches("\"kind\":\"began\"").count() > 1,
        "{audit}"
    );
}

#[test]
fn a_leader_that_stood_still_gives_way() {
    let server = Api::start();
    let pair = Pair::start(&server);
    let (first, next) = gives_way(&pair);
    // The API server stands still, for longer than the lease.
    server.stand_still(true);
    let available = |member: usize| pair.members[member].metric("tidegate_control_store_available ");
    until("both say so", || available(first) == Some(0) && available(next) == Some(0));
    server.stand_still(false);
    until("one leads", || pair.leader().is_some_and(|leader| available(leader) == Some(1)));
    until("nothing is doubled or lost", || pair.nothing_is_doubled_or_lost());
    until("it serves", || get(pair.listen, "/").is_some());
}

/// The leader stands still until the other one leads: which one it was, and which one that.
fn gives_way(pair: &Pair) -> (usize, usize) {
    let first = pair.one_that_leads();
    let next = 1 - first;
    until("the sentry has orders", || pair.sentry_term() > 0);
    let term = pair.sentry_term();
    signal(pair.members[first].pid(), Signal::STOP).expect("it runs");
    until("the next one leads", || pair.members[next].leads());
    until("the sentry follows it already", || pair.sentry_term() > term);
    let written = pair.members[next].inputs();
    signal(pair.members[first].pid(), Signal::CONT).expect("it runs");
    until("the first one waits", || pair.members[first].waits());
    until("the next one goes on", || pair.members[next].leads() && pair.members[next].inputs() > written + 5);
    until("nothing is doubled or lost", || pair.nothing_is_doubled_or_lost());
    let (audit, _) = pair.output(next, &["audit"]);
    let began = audit.lines().filter(|line| line.contains("\"kind\":\"began\"")).count();
    assert_eq!(began, 2, "the first one did not lead again");
    (first, next)
}
