//! Requests that servers do not work on, and the rate of all of them.

use std::time::Duration;

use tidegate_engine::Outcome;

use crate::support::cases::{self, Case};
use crate::support::check;
use crate::support::driver::Driver;
use crate::support::operation::Operation;

/// One server of one core, that holds as many as come.
fn case() -> Case {
    let mut case = cases::of(cases::admission(r#"{ "policy": "concurrency", "limit": 100 }"#));
    case.setup.classes.iter_mut().for_each(|class| class.min_rate = 0.0);
    case.setup.servers.truncate(1);
    case.setup.servers[0].max_connections = None;
    case.setup.servers[0].cores = Some(1.0);
    case
}

/// So many requests, each answered in 10 ms, while those that are in flight stay there.
fn answer_others(driver: &mut Driver, count: u8) {
    for _ in 0..count {
        driver.arrive(0, 0, 1);
        let newest = *driver.flying().last().expect("everybody is admitted");
        driver.advance(Duration::from_millis(10));
        driver.complete(newest, Outcome::answered());
    }
}

/// How many are in flight, and how many of them hang.
fn hanging(driver: &Driver) -> (usize, usize) {
    let shown = &driver.last().after.snapshot;
    (shown.in_flight, shown.hanging)
}

#[test]
fn who_is_overtaken_again_and_again_hangs_until_it_ends_and_is_no_lesson_for_costs() {
    let case = case();
    let mut driver = Driver::new(&case, 3);
    answer_others(&mut driver, 200);
    let before = driver.last().after.snapshot.mean_cost.expect("learned");
    driver.arrive(0, 0, 1);
    let first = *driver.flying().last().expect("admitted");
    answer_others(&mut driver, 10);
    assert_eq!(hanging(&driver), (1, 0), "sixteen have to overtake it");
    answer_others(&mut driver, 40);
    assert_eq!(hanging(&driver), (1, 1));
    driver.complete(first, Outcome::answered());
    assert_eq!(hanging(&driver), (0, 0));
    let after = driver.last().after.snapshot.mean_cost.expect("learned");
    assert!((0.8..1.25).contains(&(after / before)), "{before} s before, {after} s after");
    check(&case, &driver.trace).unwrap();
}

#[test]
fn who_hangs_and_is_sent_to_another_server_hangs_no_more() {
    let mut case = case();
    let mut other = case.setup.servers[0].clone();
    other.name = "other".into();
    case.setup.servers.push(other);
    let mut driver = Driver::new(&case, 3);
    answer_others(&mut driver, 200);
    driver.arrive(0, 0, 1);
    answer_others(&mut driver, 80);
    assert_eq!(hanging(&driver), (1, 1));
    driver.play(&Operation::Redispatch { which: 0 });
    assert_eq!(hanging(&driver), (1, 0));
    check(&case, &driver.trace).unwrap();
}

#[test]
fn who_hangs_takes_nobodys_place_where_others_wait() {
    let mut case = case();
    case.setup.admission = cases::admission(r#"{ "policy": "waiting" }"#);
    let mut driver = Driver::new(&case, 3);
    answer_others(&mut driver, 200);
    (0..7).for_each(|_| driver.arrive(0, 0, 1));
    answer_others(&mut driver, 80);
    assert_eq!(hanging(&driver), (7, 7));
    (0..40).for_each(|_| driver.arrive(0, 0, 1));
    let places = driver.last().after.snapshot.policy.limit.expect("it has places") as usize;
    assert!(places > 7, "no more than work are set aside: {places}");
    assert_eq!(driver.flying().len(), 7 + places);
    check(&case, &driver.trace).unwrap();
}

#[test]
fn the_lasting_rate_is_known_after_a_quarter_of_a_minute_and_forgets_after_some() {
    let case = case();
    let mut driver = Driver::new(&case, 3);
    let rate = |driver: &Driver| driver.last().after.snapshot.offered_rate;
    (0..5).for_each(|_| answer_others(&mut driver, 250));
    assert_eq!(rate(&driver), None, "12.5 s");
    (0..4).for_each(|_| answer_others(&mut driver, 250));
    let full = rate(&driver).expect("22.5 s");
    assert!((95.0..105.0).contains(&full), "{full}");
    driver.advance(Duration::from_secs(30));
    let faded = rate(&driver).expect("still");
    assert!((0.2..0.55).contains(&(faded / full)), "{faded}");
}
