//! The state in a real etcd: nothing is lost, and who was deposed writes nothing.

#[path = "support/application.rs"]
mod application;
mod etcd_server;

use std::thread;
use std::time::{Duration, Instant};

use application::application;
use etcd_server::{Between, EtcdServer, etcd_is_present};
use tidegate_control::election::{Candidate, Leader, Leadership, Turn};
use tidegate_control::etcd::Etcd;
use tidegate_control::plane::{Input, Plane};
use tidegate_control::store::{Store, StoreError};
use tidegate_engine::Timestamp;
use tidegate_engine::provision::{ApplicationReport, FollowConfig, Pool, ProvisionConfig, SentryRule, Site};
use tidegate_engine::units::Seconds;

const PREFIX: &str = "/test";
const LEASE: Duration = Duration::from_secs(2);
const PATIENCE: Duration = Duration::from_secs(60);

fn site() -> Site {
    let follow = FollowConfig { every: Seconds(1.0), smooth: Seconds(3.0), ..FollowConfig::default() };
    Site {
        servers: 8,
        pool: Pool::default(),
        applications: vec![application("shop")],
        policy: ProvisionConfig::Follow(follow),
        sentries: SentryRule::default(),
    }
}

fn candidate(address: &str, name: &str) -> Candidate {
    candidate_for(LEASE, address, name)
}

fn candidate_for(lease: Duration, address: &str, name: &str) -> Candidate {
    let me = Leader { name: name.to_owned(), ..Leader::default() };
    Candidate::new(Etcd::new(&[address.to_owned()]).expect("a thread"), PREFIX, lease, me)
}

#[track_caller]
fn elected(candidate: &Candidate) -> Leadership {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match candidate.stand(1).expect("etcd answers") {
            Turn::Mine(leadership) => return leadership,
            Turn::Others(leader) => assert!(Instant::now() < deadline, "{} leads for ever", leader.name),
        }
        thread::park_timeout(Duration::from_millis(50));
    }
}

fn lead(candidate: &Candidate) -> (Store, Plane) {
    let mut store = Store::lead(elected(candidate), PREFIX, 1).expect("reads");
    let plane = store.plane(site()).expect("reads");
    (store, plane)
}

fn period(second: u64) -> Input {
    let rate = if second % 60 < 30 { 20 } else { 90 };
    let report = ApplicationReport { offered: vec![rate], ..ApplicationReport::default() };
    Input::Period { now: Timestamp::from_millis(second * 1000), reports: vec![Some(report)], sentries: Vec::new() }
}

fn text(plane: &Plane) -> String {
    serde_json::to_string(&plane.state()).expect("text")
}

#[test]
fn the_next_leader_goes_on_where_the_one_before_it_was() {
    if !etcd_is_present() {
        return;
    }
    let etcd = EtcdServer::start("next");
    let (one, other) = (candidate(&etcd.address(), "one"), candidate(&etcd.address(), "other"));
    let (mut store, mut plane) = lead(&one);
    let mut second = 0;
    // Beyond several states, so that the journal is cut; ended at some place within it.
    for ends in [650, 40, 10] {
        for _ in 0..ends {
            second += 1;
            store.handle(&mut plane, &period(second)).expect("is written");
        }
        let (id, origin, term, before) = (store.id(), store.origin(), store.term(), text(&plane));
        let records = store.audit(0, 100_000).expect("reads");
        // As a kill -9 does: nothing is given back.
        drop(store);
        assert!(matches!(other.stand(1), Ok(Turn::Others(leader)) if leader.name == "one" || leader.name == "other"));
        (store, plane) = lead(&other);
        assert_eq!((store.id(), store.origin()), (id, origin), "the same store");
        assert!(store.term() > term);
        assert_eq!(text(&plane), before, "nothing is lost");
        assert_eq!(store.audit(0, 100_000).expect("reads"), records, "nor doubled");
        let half = records.len() / 2;
        let after = records[half]["number"].as_u64().expect("a number");
        assert_eq!(store.audit(after, 3).expect("reads"), records[half + 1..half + 4]);
    }
    assert_eq!(store.audit(u64::MAX, 10).expect("reads").len(), 0);
    let mut seen = Store::look_in_etcd(&Etcd::new(&[etcd.address()]).expect("a thread"), PREFIX).expect("reads");
    assert_eq!(text(&seen.plane(site()).expect("reads")), text(&plane), "who only looks sees the same");
    assert!(matches!(seen.handle(&mut plane, &period(9999)), Err(StoreError::Deposed { .. })));
}

#[test]
fn who_was_deposed_writes_nothing() {
    if !etcd_is_present() {
        return;
    }
    let etcd = EtcdServer::start("deposed");
    let one = candidate(&etcd.address(), "one");
    let other = candidate_for(30 * LEASE, &etcd.address(), "other");
    let (mut store, mut plane) = lead(&one);
    store.handle(&mut plane, &period(1)).expect("is written");
    let before = text(&plane);
    // As if it had stood still: its key is gone, and it does not know.
    let way = Etcd::new(&[etcd.address()]).expect("a thread");
    let key = format!("{PREFIX}/leader");
    let gone = tidegate_control::etcd::Txn::default().delete(&key, &format!("{key}~"));
    assert!(way.commit(&gone).expect("etcd answers").done);
    assert!(store.leads(), "it believes that it leads");
    assert!(matches!(store.handle(&mut plane, &period(2)), Err(StoreError::Deposed { leader: None })));
    let (mut new, mut its_plane) = lead(&other);
    assert_eq!(text(&its_plane), before);
    match store.handle(&mut plane, &period(2)) {
        Err(StoreError::Deposed { leader: Some(leader) }) => assert_eq!(leader.name, "other"),
        other => panic!("{other:?}"),
    }
    assert!(matches!(store.keep_state(&plane), Err(StoreError::Deposed { .. })));
    assert_eq!(text(&plane), before, "what was not written has not taken effect");
    new.handle(&mut its_plane, &period(2)).expect("the new one writes");
    // Resigned, another one leads at once: well before the lease would have ended.
    let began = Instant::now();
    new.resign();
    assert!(matches!(one.stand(1), Ok(Turn::Mine(_))));
    assert!(began.elapsed() < 30 * LEASE);
    assert!(matches!(new.handle(&mut its_plane, &period(3)), Err(StoreError::Deposed { .. })));
}

#[test]
fn an_answer_that_was_lost_doubles_nothing() {
    if !etcd_is_present() {
        return;
    }
    let etcd = EtcdServer::start("lost");
    let between = Between::start(&etcd.address());
    let one = candidate(&between.address, "one");
    let (mut store, mut plane) = lead(&one);
    let mut away = 0;
    for second in 1..=120 {
        if second % 5 == 0 {
            between.lose(1 + u32::from(second % 2 == 0) * 2);
        }
        let deadline = Instant::now() + PATIENCE;
        loop {
            match store.handle(&mut plane, &period(second)) {
                Ok(_) => break,
                // The same is given again when the lease could be renewed.
                Err(StoreError::Away(_)) => away += 1,
                Err(error) => panic!("{error}"),
            }
            assert!(Instant::now() < deadline, "etcd does not come back");
            thread::park_timeout(Duration::from_millis(20));
        }
    }
    println!("away {away} times");
    assert_eq!(between.left_to_lose(), 0);
    let mut alone = Plane::new(site()).expect("a site");
    for second in 1..=120 {
        alone.handle(&period(second));
    }
    assert_eq!(text(&plane), text(&alone), "each took effect once");
    let way = Etcd::new(&[etcd.address()]).expect("a thread");
    let mut seen = Store::look_in_etcd(&way, PREFIX).expect("reads");
    assert_eq!(text(&seen.plane(site()).expect("reads")), text(&alone), "each was written once");
}

#[test]
fn while_etcd_is_away_nothing_is_written_and_then_it_goes_on() {
    if !etcd_is_present() {
        return;
    }
    let mut etcd = EtcdServer::start("away");
    let one = candidate(&etcd.address(), "one");
    let (mut store, mut plane) = lead(&one);
    store.handle(&mut plane, &period(1)).expect("is written");
    etcd.kill();
    let before = text(&plane);
    assert!(matches!(store.handle(&mut plane, &period(2)), Err(StoreError::Away(_))));
    assert!(store.away().is_some(), "it says so");
    assert!(matches!(store.handle(&mut plane, &period(2)), Err(StoreError::Away(_))));
    assert_eq!(text(&plane), before);
    let deadline = Instant::now() + PATIENCE;
    while store.leads() {
        assert!(Instant::now() < deadline, "the lease ends by this machine's clock, too");
        thread::park_timeout(Duration::from_millis(20));
    }
    etcd.begin();
    while store.handle(&mut plane, &period(2)).is_err() {
        assert!(Instant::now() < deadline, "etcd does not come back");
        thread::park_timeout(Duration::from_millis(20));
    }
    assert!(store.leads() && store.away().is_none());
    let mut alone = Plane::new(site()).expect("a site");
    [period(1), period(2)].iter().for_each(|input| alone.handle(input));
    assert_eq!(text(&plane), text(&alone));
}
