//! Who finds nothing at work does not wait, however full it was a moment ago.

use std::time::Duration;

use tidegate_engine::{Decision, Outcome};

use crate::due::case;
use crate::support::driver::{Driver, Output};

/// Fills one server with requests of two classes, and lets it answer all that it took.
fn after_a_rush(policy: &str) -> Driver {
    let mut driver = Driver::new(&case(policy), 1);
    for _ in 0..200 {
        driver.arrive(0, 0, 0);
        (0..3).for_each(|_| driver.arrive(2, 0, 0));
        driver.advance(Duration::from_millis(10));
        if let Some(ticket) = driver.flying().first().copied() {
            driver.complete(ticket, Outcome::answered());
        }
    }
    while let Some(ticket) = driver.flying().first().copied() {
        driver.complete(ticket, Outcome::answered());
        driver.advance(Duration::from_millis(10));
    }
    driver
}

fn decision_for_the_last_class(driver: &mut Driver) -> Decision {
    driver.arrive(2, 0, 0);
    match driver.last().output {
        Output::Decision(decision) => decision,
        ref other => panic!("the last step was no arrival: {other:?}"),
    }
}

#[test]
fn an_idle_server_is_waited_for_by_nobody() {
    for policy in ["batch", "sentry"] {
        let mut driver = after_a_rush(&format!(r#"{{ "policy": "{policy}" }}"#));
        let delays = driver.controller.snapshot(driver.now).policy.delays;
        assert!(delays[2] > 0.0, "{policy}: the last class waits otherwise: {delays:?}");
        let decided = decision_for_the_last_class(&mut driver);
        assert!(matches!(decided, Decision::Admit { .. }), "{policy}: {decided:?}");
        let next = decision_for_the_last_class(&mut driver);
        assert!(matches!(next, Decision::Enqueue { .. }), "{policy}: there is one processor: {next:?}");
    }
    let mut paper = after_a_rush(r#"{ "policy": "cataclysm-batch" }"#);
    let decided = decision_for_the_last_class(&mut paper);
    assert!(matches!(decided, Decision::Enqueue { .. }), "in the paper all wait: {decided:?}");
}
