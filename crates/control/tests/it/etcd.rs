//! The state in a real etcd: nothing is lost, and who was deposed writes nothing.

use std::thread;
use std::time::{Duration, Instant};

use tidegate_control::election::{Candidate, Leader, Leadership, Turn};
use tidegate_control::etcd::{Etcd, Txn};
use tidegate_control::plane::{Input, Plane};
use tidegate_control::store::{Store, StoreError};
use tidegate_engine::Timestamp;
use tidegate_engine::units::Seconds;
use tidegate_provision::{ApplicationReport, FollowConfig, Pool, ProvisionConfig, SentryRule, Site};

use crate::support::application::application;
use crate::support::etcd_server::{Between, EtcdServer, etcd_is_present};
use crate::support::{PATIENCE, answer, give, until, was_late};

const PREFIX: &str = "/test";
/// One whose end is waited for.
const LEASE: Duration = Duration::from_secs(3);
/// Does not end while a test runs, however slow the machine is.
const LONG: Duration = Duration::from_secs(300);

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

fn candidate(lease: Duration, address: &str, name: &str) -> Candidate {
    let me = Leader { name: name.to_owned(), ..Leader::default() };
    Candidate::new(way(address), PREFIX, lease, me)
}

fn way(address: &str) -> Etcd {
    Etcd::new(&[address.to_owned()]).expect("a thread")
}

/// Stands for election once.
fn stand(candidate: &Candidate) -> Turn {
    answer(|| candidate.stand(1))
}

#[track_caller]
fn elected(candidate: &Candidate) -> Leadership {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match stand(candidate) {
            Turn::Mine(leadership) => return leadership,
            Turn::Others(leader) => assert!(Instant::now() < deadline, "{} leads for ever", leader.name),
        }
        thread::park_timeout(Duration::from_millis(50));
    }
}

#[track_caller]
fn lead(candidate: &Candidate) -> (Store, Plane) {
    loop {
        let store = Store::lead(elected(candidate), PREFIX, 1);
        match store.and_then(|mut store| Ok((store.plane(site())?, store))) {
            Ok((plane, store)) => return (store, plane),
            Err(error) => assert!(was_late(&error), "{error}"),
        }
    }
}

fn period(second: u64) -> Input {
    let rate = if second % 60 < 30 { 20 } else { 90 };
    let report = ApplicationReport { offered: vec![rate], ..ApplicationReport::default() };
    Input::Period { now: Timestamp::from_millis(second * 1000), reports: vec![Some(report)], sentries: Vec::new() }
}

/// The plane to which so many periods have happened.
fn after(seconds: u64) -> Plane {
    let mut plane = Plane::new(site()).expect("a site");
    (1..=seconds).for_each(|second| plane.handle(&period(second)));
    plane
}

/// Writes an input.
#[track_caller]
fn write(store: &mut Store, plane: &mut Plane, second: u64) {
    give(store, plane, &period(second), |why| was_late(&why)).expect("is written");
}

/// Gives an input until it is written, whatever is lost on purpose: how often etcd was away.
fn until_written(candidate: &Candidate, store: &mut Store, plane: &mut Plane, second: u64) -> u32 {
    let mut away = 0;
    loop {
        match give(store, plane, &period(second), |_| true) {
            Ok(times) => return away + times,
            // For a whole lease nothing came through. It is elected anew, and gives again what is not written yet.
            Err(StoreError::Deposed { .. }) => (*store, *plane) = lead(candidate),
            Err(error) => panic!("{error}"),
        }
        away += 1;
        if text(plane) == text(&after(second)) {
            return away;
        }
        assert_eq!(text(plane), text(&after(second - 1)), "nothing is lost");
    }
}

fn text(plane: &Plane) -> String {
    serde_json::to_string(&plane.state()).expect("text")
}

/// Takes the leader's key away, as if it had stood still for longer than its lease.
fn depose(address: &str) {
    let key = format!("{PREFIX}/leader");
    let gone = Txn::default().delete(&key, &format!("{key}~"));
    assert!(answer(|| way(address).commit(&gone)).done);
}

#[test]
fn the_next_leader_goes_on_where_the_one_before_it_was() {
    if !etcd_is_present() {
        return;
    }
    let etcd = EtcdServer::start();
    let address = etcd.address();
    let (one, other) = (candidate(LONG, &address, "one"), candidate(LONG, &address, "other"));
    let (mut store, mut plane) = lead(&one);
    let mut second = 0;
    // Beyond several states, so that the journal is cut; ended at some place within it.
    for (ends, name, next) in [(650, "one", &other), (40, "other", &one), (10, "one", &other)] {
        for _ in 0..ends {
            second += 1;
            write(&mut store, &mut plane, second);
        }
        let (id, origin, term, before) = (store.id(), store.origin(), store.term(), text(&plane));
        let records = answer(|| store.audit(0, 100_000));
        // As a kill -9 does: nothing is given back.
        drop(store);
        assert!(matches!(stand(next), Turn::Others(leader) if leader.name == name));
        depose(&address);
        (store, plane) = lead(next);
        assert_eq!((store.id(), store.origin()), (id, origin), "the same store");
        assert!(store.term() > term);
        assert_eq!(text(&plane), before, "nothing is lost");
        assert_eq!(answer(|| store.audit(0, 100_000)), records, "nor doubled");
        let half = records.len() / 2;
        let after = records[half]["number"].as_u64().expect("a number");
        assert_eq!(answer(|| store.audit(after, 3)), records[half + 1..half + 4]);
    }
    assert_eq!(answer(|| store.audit(u64::MAX, 10)).len(), 0);
    let mut seen = answer(|| Store::look_in_etcd(&way(&address), PREFIX));
    assert_eq!(text(&answer(|| seen.plane(site()))), text(&plane), "who only looks sees the same");
    assert!(matches!(seen.handle(&mut plane, &period(9999)), Err(StoreError::Deposed { .. })));
}

#[test]
fn when_the_lease_of_one_that_is_gone_ends_the_next_one_leads() {
    if !etcd_is_present() {
        return;
    }
    let etcd = EtcdServer::start();
    let (one, other) = (candidate(LEASE, &etcd.address(), "one"), candidate(LONG, &etcd.address(), "other"));
    let (mut store, mut plane) = lead(&one);
    // It may end before it is written: then it is the other one's to write.
    let written = give(&mut store, &mut plane, &period(1), |_| true).is_ok();
    let (id, term, before) = (store.id(), store.term(), text(&plane));
    drop((store, one));
    let (store, plane) = lead(&other);
    assert!(store.id() == id && store.term() > term);
    assert!(!written || text(&plane) == before, "nothing is lost");
}

#[test]
fn who_was_deposed_writes_nothing() {
    if !etcd_is_present() {
        return;
    }
    let etcd = EtcdServer::start();
    let (one, other) = (candidate(LONG, &etcd.address(), "one"), candidate(LONG, &etcd.address(), "other"));
    let (mut store, mut plane) = lead(&one);
    write(&mut store, &mut plane, 1);
    let before = text(&plane);
    // It does not know.
    depose(&etcd.address());
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
    write(&mut new, &mut its_plane, 2);
    // Resigned, another one leads at once: long before the lease would have ended.
    new.resign();
    assert!(matches!(stand(&one), Turn::Mine(_)));
    assert!(matches!(new.handle(&mut its_plane, &period(3)), Err(StoreError::Deposed { .. })));
}

#[test]
fn an_answer_that_was_lost_doubles_nothing() {
    if !etcd_is_present() {
        return;
    }
    let etcd = EtcdServer::start();
    let between = Between::start(&etcd.address());
    // After each answer that was lost the next renewal is waited for.
    let one = candidate(Duration::from_millis(500), &between.address, "one");
    let (mut store, mut plane) = lead(&one);
    let mut away = 0;
    for second in 1..=120 {
        if second % 5 == 0 {
            between.lose(1 + u32::from(second % 2 == 0) * 2);
        }
        away += until_written(&one, &mut store, &mut plane, second);
    }
    println!("away {away} times");
    until("every answer that was to be lost is", || between.left_to_lose() == 0);
    assert_eq!(text(&plane), text(&after(120)), "each took effect once");
    let mut seen = answer(|| Store::look_in_etcd(&way(&etcd.address()), PREFIX));
    assert_eq!(text(&answer(|| seen.plane(site()))), text(&after(120)), "each was written once");
}

#[test]
fn while_etcd_is_away_nothing_is_written_and_then_it_goes_on() {
    if !etcd_is_present() {
        return;
    }
    let mut etcd = EtcdServer::start();
    let one = candidate(LEASE, &etcd.address(), "one");
    let (mut store, mut plane) = lead(&one);
    write(&mut store, &mut plane, 1);
    etcd.kill();
    let before = text(&plane);
    assert!(matches!(store.handle(&mut plane, &period(2)), Err(StoreError::Away(_))));
    assert!(store.away().is_some(), "it says so");
    assert!(matches!(store.handle(&mut plane, &period(2)), Err(StoreError::Away(_))));
    assert_eq!(text(&plane), before);
    until("the lease ends by this machine's clock, too", || !store.leads());
    etcd.begin();
    until("etcd is back", || store.handle(&mut plane, &period(2)).is_ok());
    until("it leads again", || store.leads() && store.away().is_none());
    assert_eq!(text(&plane), text(&after(2)));
}
