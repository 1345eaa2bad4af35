//! Deadlines, first tries before retries, and runaways.

use std::time::Duration;

use proptest::prelude::*;
use tidegate_engine::{
    AbandonedBy, Action, Cancel, ClassSetup, Decision, Event, Outcome, Reason, Rejection, Ticket, Timestamp, Watch,
};

use crate::support::cases::{self, Case};
use crate::support::check;
use crate::support::driver::{Driver, Output};
use crate::support::operation::Operation;

/// One server of one core; classes without guarantees.
pub(crate) fn case(policy: &str) -> Case {
    let mut case = cases::of(cases::admission(policy));
    case.setup.classes.iter_mut().for_each(|class| class.min_rate = 0.0);
    case.setup.servers.truncate(1);
    case.setup.servers[0].max_connections = None;
    case.setup.servers[0].cores = Some(1.0);
    case
}

fn decision(driver: &Driver) -> Decision {
    match driver.last().output {
        Output::Decision(decision) => decision,
        ref other => panic!("the last step was no arrival: {other:?}"),
    }
}

fn refused_for(driver: &Driver) -> Option<Reason> {
    match decision(driver) {
        Decision::Reject(rejection) => Some(rejection.reason),
        _ => None,
    }
}

/// A request of the least important class, with so long to go.
fn with_deadline(driver: &mut Driver, url: u8, left: Duration) {
    let deadline = driver.now + left;
    driver.arrive_as(2, 0, url, Some(deadline), false);
}

/// The server has answered this URL in `time` so often that its cost is known.
fn teach(driver: &mut Driver, url: u8, time: Duration, count: u32) {
    for _ in 0..count {
        driver.arrive(2, 0, url);
        let ticket = *driver.flying().last().expect("an idle server");
        driver.advance(time);
        driver.complete(ticket, Outcome::answered());
    }
}

const MS: Duration = Duration::from_millis(1);

#[test]
fn what_cannot_be_in_time_is_refused_at_an_idle_server_too() {
    for policy in ["none", "concurrency", "sentry", "vegas"] {
        let case = case(&format!(r#"{{ "policy": "{policy}" }}"#));
        let mut driver = Driver::new(&case, 3);
        with_deadline(&mut driver, 1, MS);
        assert_eq!(refused_for(&driver), None, "{policy}: nothing is known yet");
        driver.advance(100 * MS);
        driver.complete(driver.flying()[0], Outcome::answered());
        teach(&mut driver, 1, 100 * MS, 60);
        with_deadline(&mut driver, 1, 20 * MS);
        assert_eq!(refused_for(&driver), Some(Reason::Deadline), "{policy}");
        let Decision::Reject(Rejection { predicted, .. }) = decision(&driver) else { panic!("it was refused") };
        assert!(predicted.is_some_and(|time| time > 50 * MS && time < 150 * MS), "{policy}: {predicted:?}");
        with_deadline(&mut driver, 1, 200 * MS);
        assert_eq!(refused_for(&driver), None, "{policy}: that is enough");
        check(&case, &driver.trace).unwrap();
    }
}

#[test]
fn a_deadline_that_has_passed_refuses_whatever_is_known() {
    let mut case = case(r#"{ "policy": "none" }"#);
    case.setup.classes[2].min_rate = 10.0;
    let mut driver = Driver::new(&case, 3);
    with_deadline(&mut driver, 1, Duration::ZERO);
    assert_eq!(refused_for(&driver), Some(Reason::Deadline), "a guarantee does not help either");
    check(&case, &driver.trace).unwrap();
}

/// Else nobody would ever learn that the server has become faster.
#[test]
fn now_and_then_one_is_let_in_to_see_whether_it_is_still_so() {
    let case = case(r#"{ "policy": "none" }"#);
    let mut driver = Driver::new(&case, 3);
    teach(&mut driver, 1, 100 * MS, 60);
    let mut admitted = 0;
    for _ in 0..2000 {
        with_deadline(&mut driver, 1, 20 * MS);
        if let Decision::Admit { ticket, .. } = decision(&driver) {
            admitted += 1;
            driver.advance(5 * MS);
            driver.complete(ticket, Outcome::answered());
        }
        driver.advance(10 * MS);
    }
    assert!((20..2000).contains(&admitted), "{admitted}");
    with_deadline(&mut driver, 1, 20 * MS);
    assert_eq!(refused_for(&driver), None, "it answers in 5 ms now");
    check(&case, &driver.trace).unwrap();
}

#[test]
fn under_load_what_is_more_likely_late_than_not_is_refused() {
    let case = case(r#"{ "policy": "none" }"#);
    let mut driver = Driver::new(&case, 3);
    teach(&mut driver, 1, 20 * MS, 60);
    with_deadline(&mut driver, 1, 50 * MS);
    assert_eq!(refused_for(&driver), None, "alone it takes 20 ms");
    (0..4).for_each(|_| driver.arrive(2, 0, 1));
    with_deadline(&mut driver, 1, 50 * MS);
    assert_eq!(refused_for(&driver), Some(Reason::Deadline), "with five others it takes 120 ms");
    check(&case, &driver.trace).unwrap();
}

/// A full server and a queue.
const QUEUE: &str = r#"{ "policy": "concurrency", "limit": 1, "queue": 100, "queue_timeout": "10s" }"#;

fn actions(driver: &Driver) -> Vec<Action> {
    driver.trace.iter().flat_map(|step| step.actions.clone()).collect()
}

#[test]
fn what_waits_beyond_its_deadline_leaves_the_queue_then() {
    let case = case(QUEUE);
    let mut driver = Driver::new(&case, 3);
    driver.arrive(2, 0, 1);
    with_deadline(&mut driver, 1, 40 * MS);
    driver.arrive(2, 0, 1);
    driver.advance(39 * MS);
    assert_eq!(driver.waiting().len(), 2);
    driver.advance(MS);
    assert_eq!(driver.waiting().len(), 1, "exactly then, and only the one");
    let reasons: Vec<Reason> = actions(&driver)
        .into_iter()
        .map(|action| match action {
            Action::Refuse { rejection, .. } => rejection.reason,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(reasons, [Reason::Deadline]);
    assert_eq!(driver.last().after.snapshot.classes[2].rejected, [("deadline", 1)]);
    check(&case, &driver.trace).unwrap();
}

/// The place that was meant for it goes to the next at once.
#[test]
fn a_place_that_comes_too_late_for_one_is_the_next_ones() {
    let case = case(QUEUE);
    let mut driver = Driver::new(&case, 3);
    teach(&mut driver, 1, 20 * MS, 60);
    driver.arrive(2, 0, 1);
    with_deadline(&mut driver, 1, 60 * MS);
    driver.arrive(2, 0, 2);
    let next = driver.waiting()[1];
    // The driver was busy, and 5 ms are left when the place is free.
    driver.play(&Operation::Stall { millis: 55 });
    driver.complete(driver.flying()[0], Outcome::answered());
    assert_eq!((driver.waiting().len(), driver.flying()), (0, &[next][..]));
    check(&case, &driver.trace).unwrap();
}

/// Of this URL's answers two of five take 20 ms, the others 40 ms. Who has 28 ms left when a place is free may still be
/// in time, and has it unless somebody else waits.
#[test]
fn a_place_that_is_wanted_goes_to_who_is_more_likely_in_time_than_not() {
    for is_wanted in [false, true] {
        let case = case(QUEUE);
        let mut driver = Driver::new(&case, 3);
        for _ in 0..60 {
            [20, 40, 40, 20, 40].into_iter().for_each(|time| teach(&mut driver, 1, time * MS, 1));
        }
        driver.arrive(2, 0, 1);
        with_deadline(&mut driver, 1, 100 * MS);
        let hurried = driver.waiting()[0];
        if is_wanted {
            driver.arrive(2, 0, 1);
        }
        let last = *driver.waiting().last().expect("somebody waits");
        driver.advance(72 * MS);
        assert_eq!(driver.waiting()[0], hurried, "it may still be in time");
        driver.complete(driver.flying()[0], Outcome::answered());
        assert_eq!((driver.waiting().len(), driver.flying()), (0, &[last][..]));
        check(&case, &driver.trace).unwrap();
    }
}

/// Whatever the policy makes of it.
#[test]
fn what_is_learned_of_patience_shows() {
    let case = case(QUEUE);
    let mut driver = Driver::new(&case, 3);
    let mut round = |waits: Duration, do_leave: bool| {
        (0..41).for_each(|_| driver.arrive(2, 0, 1));
        driver.advance(waits);
        if do_leave {
            let leavers = driver.waiting().to_vec();
            leavers.into_iter().for_each(|ticket| driver.abandon(ticket, AbandonedBy::Client, Watch::Nobody));
        }
        while let Some(ticket) = driver.flying().first().copied() {
            driver.complete(ticket, Outcome::answered());
        }
        driver.advance(1000 * MS);
        driver.last().after.snapshot.classes.iter().map(|class| class.patience).collect::<Vec<_>>()
    };
    assert_eq!(round(200 * MS, false), [None; 3], "everybody stayed");
    let learned = (0..3).map(|_| round(200 * MS, true)).last().expect("three rounds");
    assert!(learned[2].is_some_and(|age| (0.2..0.25).contains(&age)), "{learned:?}");
    assert_eq!(learned[..2], [None; 2], "nobody of these came");
    check(&case, &driver.trace).unwrap();
}

#[test]
fn a_deadline_is_no_way_to_jump_the_queue() {
    let case = case(QUEUE);
    let mut driver = Driver::new(&case, 3);
    driver.arrive(2, 0, 1);
    driver.arrive(2, 0, 1);
    let first = driver.waiting()[0];
    with_deadline(&mut driver, 1, 500 * MS);
    driver.advance(10 * MS);
    driver.complete(driver.flying()[0], Outcome::answered());
    assert_eq!(driver.flying(), [first]);
    check(&case, &driver.trace).unwrap();
}

#[test]
fn first_tries_go_before_retries_in_the_queue() {
    for policy in [QUEUE, r#"{ "policy": "codel", "limit": 1, "interval": "10s" }"#] {
        let case = case(policy);
        let mut driver = Driver::new(&case, 3);
        driver.arrive(1, 0, 1);
        driver.arrive_as(1, 0, 1, None, true);
        let retry = driver.waiting()[0];
        driver.advance(MS);
        driver.arrive(1, 0, 1);
        let first_try = driver.waiting()[1];
        driver.complete(driver.flying()[0], Outcome::answered());
        assert_eq!(driver.flying(), [first_try], "{policy}");
        driver.complete(first_try, Outcome::answered());
        assert_eq!(driver.flying(), [retry], "{policy}");
        check(&case, &driver.trace).unwrap();
    }
}

/// As many first tries as retries at four times what a limit takes: under every kind of policy first tries get what
/// they would alone.
#[test]
fn under_contention_first_tries_have_what_there_is() {
    for policy in [
        r#"{ "policy": "concurrency", "limit": 4 }"#,
        r#"{ "policy": "vegas", "initial_limit": 4, "max_limit": 4 }"#,
        r#"{ "policy": "threshold", "fixed": 0.25 }"#,
        r#"{ "policy": "sentry" }"#,
    ] {
        let case = case(policy);
        let mut driver = Driver::new(&case, 3);
        let (mut admitted, mut last) = ([0u32; 2], Vec::<(Timestamp, Ticket)>::new());
        for i in 0..4000u32 {
            driver.advance(2 * MS);
            let is_retry = i % 2 == 1;
            driver.arrive_as(0, 0, 1, None, is_retry);
            if let Decision::Admit { ticket, .. } = decision(&driver) {
                last.push((driver.now, ticket));
                // The first second is for learning.
                admitted[usize::from(is_retry)] += u32::from(i > 500);
            }
            // Each takes 32 ms.
            while let Some(&(since, ticket)) = last.first().filter(|(since, _)| driver.now.since(*since) >= 32 * MS) {
                let _ = since;
                last.remove(0);
                driver.complete(ticket, Outcome::answered());
            }
        }
        let [first_tries, retries] = admitted;
        // Of 1,749 after the first second.
        let is_rush = first_tries < 1_714;
        assert!(first_tries > 200 && (!is_rush || retries * 20 < first_tries), "{policy}: {first_tries}, {retries}");
        assert_eq!(is_rush, !policy.contains("sentry"), "{policy}: {first_tries}, {retries}");
        assert_eq!(driver.last().after.snapshot.classes[0].retries, 2000);
        check(&case, &driver.trace).unwrap();
    }
}

#[test]
fn without_contention_a_retry_is_as_good_as_any() {
    let case = case(r#"{ "policy": "sentry" }"#);
    let mut driver = Driver::new(&case, 3);
    for _ in 0..50 {
        driver.arrive_as(0, 0, 1, None, true);
        assert_eq!(refused_for(&driver), None);
        driver.advance(10 * MS);
        driver.complete(driver.flying()[0], Outcome::answered());
    }
    check(&case, &driver.trace).unwrap();
}

#[test]
fn a_more_important_retry_goes_before_a_less_important_first_try() {
    let case = case(QUEUE);
    let mut driver = Driver::new(&case, 3);
    driver.arrive(2, 0, 1);
    driver.arrive(2, 0, 1);
    driver.arrive_as(0, 0, 1, None, true);
    let gold = driver.waiting()[1];
    driver.complete(driver.flying()[0], Outcome::answered());
    assert_eq!(driver.flying(), [gold]);
    check(&case, &driver.trace).unwrap();
}

/// Gold's answers take 20 ms each on one core with room for two, one of which a bronze request has had for a long time.
fn with_a_runaway(cancel: Cancel, answers: u32) -> (Case, Driver, Ticket) {
    let mut case = case(r#"{ "policy": "concurrency", "limit": 2 }"#);
    case.setup.cancel = cancel;
    let mut driver = Driver::new(&case, 3);
    teach(&mut driver, 1, 20 * MS, answers);
    driver.arrive(2, 0, 1);
    let runaway = driver.flying()[0];
    for _ in 0..200 {
        driver.arrive(0, 0, 1);
        driver.arrive(0, 0, 1);
        driver.advance(20 * MS);
        let gold = driver.flying().iter().copied().find(|ticket| *ticket != runaway);
        gold.into_iter().for_each(|ticket| driver.complete(ticket, Outcome::answered()));
    }
    (case, driver, runaway)
}

fn cancelled(driver: &Driver) -> Vec<Ticket> {
    let ticket = |action| match action {
        Action::Cancel { ticket } => Some(ticket),
        _ => None,
    };
    actions(driver).into_iter().filter_map(ticket).collect()
}

#[test]
fn a_runaway_is_cancelled_once_while_more_important_requests_are_refused() {
    let (case, driver, runaway) = with_a_runaway(Cancel::Runaways, 150);
    assert_eq!(cancelled(&driver), [runaway]);
    let bronze = &driver.last().after.snapshot.classes[2];
    assert_eq!((bronze.runaways, bronze.failed, bronze.ghosts), (1, 1, 1), "its server works on, so it is a ghost");
    let said = driver.trace.iter().flat_map(|step| &step.events).find_map(|(_, event)| match event {
        Event::RunawayCancelled { used, predicted, .. } => Some((*used, *predicted)),
        _ => None,
    });
    let (used, predicted) = said.expect("it is told");
    assert!(used >= 4.0 * predicted && (0.01..0.04).contains(&predicted), "{used} of {predicted}");
    check(&case, &driver.trace).unwrap();
}

#[test]
fn nothing_is_cancelled_unless_asked_for_or_before_a_hundred_answers_or_without_need() {
    assert_eq!(cancelled(&with_a_runaway(Cancel::Off, 150).1), []);
    // 200 rounds bring answers too, but gold's are counted: with these it is 90 at the end.
    let (_, early, _) = with_a_runaway(Cancel::Runaways, 0);
    let first = early.trace.iter().position(|step| step.actions.iter().any(|a| matches!(a, Action::Cancel { .. })));
    let answers = |at: usize| early.trace[at].after.snapshot.classes.iter().map(|class| class.completed).sum::<u64>();
    assert!(first.is_none_or(|at| answers(at) >= 100), "{first:?}");
    // The same runaway, and nobody who is refused or late.
    let case = case(r#"{ "policy": "concurrency", "limit": 100 }"#);
    let mut driver = Driver::new(&case, 3);
    teach(&mut driver, 1, 20 * MS, 150);
    driver.arrive(2, 0, 1);
    driver.advance(Duration::from_secs(60));
    assert_eq!(cancelled(&driver), []);
}

#[test]
fn the_most_important_class_is_never_cancelled() {
    let mut case = case(r#"{ "policy": "concurrency", "limit": 1 }"#);
    case.setup.classes = vec![ClassSetup { min_rate: 0.0, ..ClassSetup::new("only") }];
    let mut driver = Driver::new(&case, 3);
    teach(&mut driver, 1, 20 * MS, 300);
    driver.arrive(0, 0, 1);
    for _ in 0..200 {
        driver.arrive(0, 0, 1);
        driver.advance(20 * MS);
    }
    assert!(driver.last().after.snapshot.classes[0].rejected_total() > 100);
    assert_eq!(cancelled(&driver), []);
}

proptest! {
    /// Whatever arrives and however long it takes: at most one cancellation for a hundred answers, one a server in a
    /// target, never of the most important class (the model's part), and nobody waits beyond a deadline.
    #[test]
    fn cancellations_are_rare_and_apart(
        acts in prop::collection::vec((0u8..3, any::<u8>(), any::<bool>(), 0u64..40), 200..600),
    ) {
        let case = case(r#"{ "policy": "concurrency", "limit": 3, "queue": 4 }"#);
        let mut driver = Driver::new(&case, 3);
        teach(&mut driver, 1, 5 * MS, 250);
        for (class, which, again, wait) in acts {
            let deadline = (which % 4 == 0).then(|| driver.now + u32::from(which) * MS);
            driver.arrive_as(class, 0, 1, deadline, again);
            driver.advance(wait as u32 * MS);
            // The first of those in flight stays for long.
            if let Some(&ticket) = driver.flying().get(1 + usize::from(which) % 3) {
                driver.complete(ticket, Outcome::answered());
            } else if which > 250 && let Some(&ticket) = driver.flying().first() {
                driver.abandon(ticket, AbandonedBy::Client, Watch::Driver);
                driver.cancel(ticket);
            }
        }
        check(&case, &driver.trace).map_err(TestCaseError::fail)?;
        let cancels = |step: &&crate::support::driver::Step| {
            step.actions.iter().any(|action| matches!(action, Action::Cancel { .. }))
        };
        let times: Vec<Timestamp> = driver.trace.iter().filter(cancels).map(|step| step.now).collect();
        let target = Duration::from_millis(300);
        prop_assert!(times.windows(2).all(|pair| pair[1].since(pair[0]) >= target), "{times:?}");
    }
}
