//! Several control planes on an API server: nothing is lost, and who was deposed writes nothing, whatever comes
//! between.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::json;
use tidegate_control::backend::{StoreError, Turn};
use tidegate_control::plane::{Input, Plane};
use tidegate_engine::Timestamp;

use crate::support::home::{
    Home, LONG, PREFIX, SHORT, elected, lead, numbers, period, site, stand, text, until_written, write,
};
use crate::support::{answer, give, until, was_late};

#[test]
fn the_next_leader_goes_on_where_the_one_before_it_was() {
    let home = Home::start();
    let (one, other) = (home.candidate("one", SHORT), home.candidate("other", SHORT));
    let (mut store, mut plane) = elected(&one);
    let mut second = 0;
    // Beyond several states, so that the journal is cut; ended at some place within it.
    for (ends, next) in [(650, &other), (40, &one), (10, &other)] {
        write(&mut store, &mut plane, second + 1..=second + ends);
        second += ends;
        let looks = Instant::now();
        assert!(matches!(answer(|| stand(next)), Turn::Others(leader) if leader.term == store.term()));
        let (id, origin, term, before) = (store.id(), store.origin(), store.term(), text(&plane));
        let records = answer(|| store.audit(0, 100_000));
        assert!(records.len() > 20, "{} records", records.len());
        // As a kill -9 does: nothing is given back.
        drop(store);
        (store, plane) = elected(next);
        // tidy-allow(measured-time): a lower bound, which holds on any machine
        assert!(looks.elapsed() >= SHORT, "it does not wait for the lease");
        assert_eq!((store.id(), store.origin()), (id, origin), "the same store");
        assert!(store.term() > term);
        until("it leads", || store.leads());
        assert_eq!(text(&plane), before, "nothing is lost");
        assert_eq!(answer(|| store.audit(0, 100_000)), records, "nor doubled");
        let half = records.len() / 2;
        let after = records[half]["number"].as_u64().expect("a number");
        assert_eq!(answer(|| store.audit(after, 3)), records[half + 1..half + 4]);
    }
    write(&mut store, &mut plane, [second + 1]);
    let mut seen = answer(|| home.look());
    assert_eq!(text(&answer(|| seen.plane(site()))), text(&plane), "who only looks sees the same");
    assert_eq!(answer(|| seen.audit(0, 100_000)), answer(|| store.audit(0, 100_000)));
    assert!(matches!(seen.handle(&mut plane, &period(9999)), Err(StoreError::Deposed { .. })));
    let lease = home.api.object("leases", PREFIX);
    assert_eq!((&lease["spec"]["leaseTransitions"], &lease["spec"]["leaseDurationSeconds"]), (&json!(3), &json!(1)));
    assert!(lease["spec"]["holderIdentity"].as_str().is_some_and(|holder| holder.starts_with("other_")));
}

#[test]
fn a_clean_stop_hands_over_at_once_and_leaves_no_garbage() {
    let home = Home::start();
    let (one, other) = (home.candidate("one", LONG), home.candidate("other", LONG));
    let (mut store, mut plane) = elected(&one);
    write(&mut store, &mut plane, 1..=50);
    answer(|| store.keep_state(&plane));
    assert!(matches!(answer(|| stand(&other)), Turn::Others(_)));
    store.resign();
    assert!(!store.leads());
    assert!(matches!(store.handle(&mut plane, &period(51)), Err(StoreError::Deposed { .. })));
    let (mut store, mut plane) = lead(&other);
    write(&mut store, &mut plane, 51..=400);
    answer(|| store.keep_state(&plane));
    let all = || home.api.names("configmaps");
    until("only what is valid is left", || all().len() == 3);
    assert!(all().iter().any(|name| *name == format!("{PREFIX}-state")), "{:?}", all());
    let labels = &home.api.object("configmaps", &all()[0])["metadata"]["labels"];
    assert_eq!(labels["app.kubernetes.io/managed-by"], "tidegate-control");
}

#[test]
fn who_was_deposed_writes_nothing() {
    let home = Home::start();
    let (mut store, mut plane) = lead(&home.candidate("one", LONG));
    write(&mut store, &mut plane, [1]);
    let before = text(&plane);
    // As if it had stood still for longer than its lease.
    home.api.delete("leases", PREFIX);
    let (mut new, mut its_plane) = lead(&home.candidate("other", LONG));
    assert_eq!(text(&its_plane), before);
    assert!(store.leads(), "it does not know");
    match give(&mut store, &mut plane, &period(2), |why| was_late(&why)) {
        // Who leads is in the seal, until what is of no use any more is swept away.
        Err(StoreError::Deposed { leader }) => assert!(leader.is_none_or(|leader| leader.name == "other")),
        other => panic!("{other:?}"),
    }
    assert!(matches!(store.keep_state(&plane), Err(StoreError::Deposed { .. })));
    assert!(!store.leads(), "nor does it begin anything outside of the store");
    assert_eq!(text(&plane), before, "what was not written has not taken effect");
    write(&mut new, &mut its_plane, [2]);
}

#[test]
fn what_was_deposed_in_the_midst_of_an_append_is_either_taken_over_or_refused() {
    // Between each two requests of a takeover the one before writes, and between each two of a write it is taken over.
    for written in [0, 3, 15, 16, 17] {
        for (is_takeover, with_state) in [(true, true), (true, false), (false, true), (false, false)] {
            let mut cut = 0;
            while interleaved(written, is_takeover, with_state, cut) {
                cut += 1;
            }
            assert!(cut > 0, "nothing came between");
        }
    }
}

/// One writes its input number `written` + 1, and perhaps a whole state, while the other takes over: one of them is
/// done before the other's request number `cut`. Whether there was such a request.
fn interleaved(written: u64, is_takeover: bool, with_state: bool, cut: usize) -> bool {
    let home = Home::start();
    let (mut store, mut plane) = lead(&home.candidate("one", LONG));
    write(&mut store, &mut plane, 1..=written);
    let before = text(&plane);
    // As if it had stood still for long.
    home.api.delete("leases", PREFIX);
    assert!(store.leads(), "it believes that it leads");
    let other = home.candidate("other", LONG);
    let old = Arc::new(Mutex::new((store, plane, None)));
    let new = Arc::new(Mutex::new(None));
    let append = {
        let old = old.clone();
        move || {
            let (store, plane, outcome) = &mut *old.lock().expect("a lock");
            *outcome = Some(give(store, plane, &period(written + 1), |why| was_late(&why)));
            if with_state {
                // The journal goes on elsewhere after it. It is refused, or it is what was written.
                let _ = store.keep_state(plane);
            }
        }
    };
    let take_over = {
        let (new, api) = (new.clone(), home.api.clone());
        let of_old = format!("{PREFIX}-journal-{}-", old.lock().expect("a lock").0.term());
        move || {
            *new.lock().expect("a lock") = Some(lead(&other));
            // Also the mark of its end.
            if !is_takeover {
                until("the old journal is gone", || {
                    !api.names("configmaps").iter().any(|name| name.starts_with(&of_old))
                });
            }
        }
    };
    let came_between = if is_takeover {
        home.api.before("configmaps", cut, append.clone());
        take_over();
        !home.api.forget_before()
    } else {
        home.api.before("configmaps", cut, take_over);
        append.clone()();
        !home.api.forget_before()
    };
    if !came_between {
        return false;
    }
    // What takes longer than a call may is not waited for by who called.
    until("both have tried", || new.lock().expect("a lock").is_some() && old.lock().expect("a lock").2.is_some());
    let (mut store, mut plane) = new.lock().expect("a lock").take().expect("it has taken over");
    let (old_store, old_plane, outcome) = &mut *old.lock().expect("a lock");
    match outcome.take().expect("it has tried") {
        Ok(_) => assert_eq!(text(&plane), text(old_plane), "what was written is taken over"),
        // It may be written all the same: then whoever takes over has it, and the one before does not go on.
        Err(StoreError::Deposed { .. }) if text(&plane) != before => {
            old_plane.handle(&period(written + 1));
            assert_eq!(text(&plane), text(old_plane), "it is nothing else");
        }
        Err(StoreError::Deposed { .. }) => {}
        Err(error) => panic!("{error}"),
    }
    let again = give(old_store, old_plane, &period(written + 2), |why| was_late(&why));
    assert!(matches!(again, Err(StoreError::Deposed { .. })), "{again:?}");
    assert!(!old_store.leads(), "now it knows");
    assert!(matches!(old_store.keep_state(old_plane), Err(StoreError::Deposed { .. })));
    let before = text(&plane);
    write(&mut store, &mut plane, [written + 5]);
    assert_ne!(text(&plane), before);
    home.api.delete("leases", PREFIX);
    drop(store);
    let (_, again) = lead(&home.candidate("third", LONG));
    assert_eq!(text(&again), text(&plane), "the old one has spoilt nothing");
    true
}

#[test]
fn of_two_that_take_over_at_once_one_does() {
    for cut in 0..40 {
        let home = Home::start();
        let (mut store, mut plane) = lead(&home.candidate("one", LONG));
        write(&mut store, &mut plane, 1..=20);
        home.api.delete("leases", PREFIX);
        let (two, three) = (home.candidate("two", LONG), home.candidate("three", LONG));
        let Turn::Mine(mut late) = answer(|| stand(&two)) else { panic!("nobody leads") };
        let term = late.term();
        home.api.delete("leases", PREFIX);
        let third = Arc::new(Mutex::new(None));
        let its = third.clone();
        home.api.before("configmaps", cut, move || *its.lock().expect("a lock") = Some(lead(&three)));
        let outcome = late.plane(site());
        let came_between = !home.api.forget_before();
        // What takes longer than a call may is not waited for by who called.
        until("it has taken over, too", || !came_between || third.lock().expect("a lock").is_some());
        match third.lock().expect("a lock").take() {
            Some((mut leads, mut its_plane)) => {
                assert!(leads.term() >= term);
                assert_eq!(text(&its_plane), text(&plane), "nothing is lost");
                // The same or an earlier term: what it does not get is refused.
                let hear = |why: &str| was_late(&why);
                let ours = outcome.map(|mut plane| give(&mut late, &mut plane, &period(21), hear));
                let its = give(&mut leads, &mut its_plane, &period(21), hear);
                assert!(its.is_ok() != matches!(ours, Ok(Ok(_))), "{cut}: {ours:?} {its:?}");
            }
            None => assert!(!came_between && outcome.is_ok()),
        }
        if !came_between {
            assert!(cut > 5);
            return;
        }
    }
    panic!("it asks for more and more");
}

#[test]
fn an_answer_that_was_lost_doubles_nothing() {
    let home = Home::start();
    // Renewed often: after each answer that was lost that is waited for.
    let (mut store, mut plane) = lead(&home.candidate("one", Duration::from_millis(400)));
    let kinds = ["PUT /api", "POST /api", "GET /api", "PUT /apis", "journal", "state", "audit"];
    let mut away = 0;
    for second in 1..=350 {
        if second % 5 == 0 {
            home.api.lose(1 + usize::from(second % 2 == 0), kinds[second as usize / 5 % kinds.len()]);
        }
        if second % 50 == 7 {
            // It is valid, and nobody said so.
            home.api.lose_none();
            home.api.lose(1, "PUT /api/v1/namespaces/home/configmaps/test-state");
            until("its answer is lost", || match store.keep_state(&plane) {
                Ok(()) => panic!("nothing was lost"),
                Err(StoreError::Away(why)) => why.contains("writing ConfigMap test-state: 500"),
                Err(error) => panic!("{error}"),
            });
        }
        away += until_written(&mut store, &mut plane, &period(second));
    }
    assert!(away > 10, "away {away} times");
    home.api.lose_none();
    let mut alone = Plane::new(site()).expect("a site");
    (1..=350).for_each(|second| alone.handle(&period(second)));
    assert_eq!(text(&plane), text(&alone), "each took effect once");
    let mut seen = answer(|| home.look());
    assert_eq!(text(&answer(|| seen.plane(site()))), text(&alone), "each was written once");
    let mut sorted = numbers(&seen);
    sorted.dedup();
    assert_eq!(sorted, numbers(&store), "each has its records once");
}

#[test]
fn a_write_that_is_carried_out_after_its_time_loses_and_doubles_nothing() {
    let mut alone = Plane::new(site()).expect("a site");
    (1..=20).for_each(|second| alone.handle(&period(second)));
    // Six inputs, a piece, a book, and what makes them valid.
    for write in 0..9 {
        for after in [0, 1, 2, 4] {
            let home = Home::start();
            let (mut store, mut plane) = lead(&home.candidate("one", Duration::from_millis(500)));
            for second in 1..=14 {
                until_written(&mut store, &mut plane, &period(second));
            }
            // Of inputs, where a chapter is full, of a state, and of what follows it.
            home.api.delay(write, after);
            for second in 15..=20 {
                until_written(&mut store, &mut plane, &period(second));
                if second == 17 {
                    // Perhaps it is valid already, or will be: what follows takes care of it.
                    let _ = store.keep_state(&plane);
                }
            }
            assert_eq!(text(&plane), text(&alone), "write {write}, carried out {after} later");
            let records = numbers(&store);
            drop(store);
            home.api.delete("leases", PREFIX);
            let (store, plane) = lead(&home.candidate("other", LONG));
            assert_eq!(text(&plane), text(&alone), "write {write}, carried out {after} later");
            assert_eq!(numbers(&store), records);
        }
    }
}

#[test]
fn while_the_api_server_is_away_nothing_is_written_and_then_it_goes_on() {
    let home = Home::start();
    let (one, other) = (home.candidate("one", SHORT), home.candidate("other", LONG));
    let (mut store, mut plane) = lead(&one);
    write(&mut store, &mut plane, [1]);
    home.api.gone_after(Some(0));
    let before = text(&plane);
    assert!(matches!(store.handle(&mut plane, &period(2)), Err(StoreError::Away(_))));
    assert!(store.away().is_some(), "it says so");
    let asked = home.api.asked("configmaps");
    assert!(matches!(store.handle(&mut plane, &period(2)), Err(StoreError::Away(_))));
    assert_eq!(home.api.asked("configmaps"), asked, "it is known, and not asked for each time");
    assert!(stand(&other).is_err());
    assert_eq!(text(&plane), before);
    until("the lease ends by this machine's clock, too", || !store.leads());
    home.api.gone_after(None);
    until_written(&mut store, &mut plane, &period(2));
    until("it leads again", || store.leads() && store.away().is_none());
    let mut alone = Plane::new(site()).expect("a site");
    [period(1), period(2)].iter().for_each(|input| alone.handle(input));
    assert_eq!(text(&plane), text(&alone));
}

#[test]
fn somebody_who_touches_the_objects_does_no_harm_and_who_deletes_the_lease_deposes() {
    let home = Home::start();
    let (mut store, mut plane) = lead(&home.candidate("one", 3 * SHORT));
    for second in 1..=320 {
        let all = home.api.names("configmaps");
        home.api.touch("configmaps", &all[second as usize % all.len()]);
        home.api.touch("leases", PREFIX);
        // Who renews it may be too late each time, and gives up until the next time.
        until_written(&mut store, &mut plane, &period(second));
    }
    let renewed = |at: &str| home.api.object("leases", PREFIX)["spec"]["renewTime"] != at;
    let before = home.api.object("leases", PREFIX)["spec"]["renewTime"].as_str().expect("a time").to_owned();
    until("it is renewed, and leads", || renewed(&before) && store.leads());
    home.api.delete("leases", PREFIX);
    until("it is noticed", || {
        matches!(store.handle(&mut plane, &period(321)), Err(StoreError::Deposed { leader: None }))
    });
    assert!(!store.leads());
}

#[test]
fn a_state_of_several_pieces_is_read_as_it_was_and_a_store_without_one_is_no_store() {
    let home = Home::start();
    assert!(matches!(home.look(), Err(StoreError::Missing { .. })));
    let (mut store, mut plane) = lead(&home.candidate("one", LONG));
    let mut seed = 1_u64;
    let mut letters = |count: usize| -> String {
        let mut letter = || {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            char::from(b'!' + (seed >> 33) as u8 % 90)
        };
        (0..count).map(|_| letter()).filter(|letter| !"\"\\".contains(*letter)).collect()
    };
    for application in 0..2 {
        let names = (0..100).map(|_| letters(5000)).collect();
        let input = Input::Sentries { now: Timestamp::from_millis(1), application, names };
        give(&mut store, &mut plane, &input, |why| was_late(&why)).expect("is written");
    }
    answer(|| store.keep_state(&plane));
    let pieces = home.api.names("configmaps").iter().filter(|name| name.contains("-state-")).count();
    assert!(pieces >= 2, "{pieces} pieces");
    for name in home.api.names("configmaps") {
        let bytes = home.api.object("configmaps", &name).to_string().len();
        assert!(bytes < 1_400_000, "{name} has {bytes} bytes in base64");
    }
    home.api.delete("leases", PREFIX);
    let (_, again) = lead(&home.candidate("other", LONG));
    assert!(text(&again) == text(&plane), "read otherwise than it was written");
    let long = Input::Sentries { now: Timestamp::from_millis(2), application: 0, names: vec!["x".repeat(700_000)] };
    let error = store.handle(&mut plane, &long).expect_err("too long").to_string();
    assert!(error.contains("more than an object may have"), "{error}");
    let pieces = home.api.names("configmaps").into_iter().filter(|name| name.contains("-state-"));
    pieces.for_each(|piece| home.api.delete("configmaps", &piece));
    let mut seen = answer(|| home.look());
    let error = seen.plane(site()).map(drop).expect_err("torn").to_string();
    assert!(error.contains("a piece of the state is missing"), "{error}");
}
