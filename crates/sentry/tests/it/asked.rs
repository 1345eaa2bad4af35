//! nginx asks whether it may send a request on, and tells of its end by a line of its access log.

use std::sync::Arc;
use std::time::Duration;

use tidegate_sentry::config::Asker;
use tidegate_sentry::counters::Counter;

use crate::grpc::Told;
use crate::support::{Answer, Client, Running, behind, refuse_all, until, with_one_place};

/// What nginx asks.
fn question(id: &str) -> String {
    format!("GET /a HTTP/1.1\r\nHost: shop\r\nX-Request-ID: {id}\r\n\r\n")
}

/// Whether it is told to send the request on.
fn goes_on(answer: &Answer) -> bool {
    answer.status == 200 && answer.field("x-accel-redirect") == Some("@admitted") && answer.body.is_empty()
}

/// A request that is let through at once.
fn admitted(sentry: &Running, id: &str) -> Client {
    let mut nginx = sentry.client();
    nginx.send(question(id));
    let answer = nginx.answer();
    assert!(goes_on(&answer), "{answer:?}");
    nginx
}

/// Tells of an end.
fn tell(sentry: &Running, fields: &str) {
    sentry.tell_end("tidegate", fields);
}

const FINE: &str = "status=200 bytes=9 done=OK head=[0.001 : 0.020] whole=[0.001 : 0.030]";

#[test]
fn a_request_holds_a_place_from_the_decision_until_its_end_is_told() {
    let sentry = Running::start(with_one_place(behind(Asker::Nginx)));
    let mut first = admitted(&sentry, "1");
    // The connection is for others now: its next request waits for the place.
    first.send(question("2"));
    until("it waits", || sentry.app().waiting() == 1);
    assert_eq!(sentry.app().in_flight(), 1);
    tell(&sentry, &format!("id=other {FINE}"));
    tell(&sentry, "no such line");
    tell(&sentry, &format!("id=1 {FINE}"));
    assert!(goes_on(&first.answer()));
    assert_eq!(sentry.app().in_flight(), 1);
    drop(first);
    tell(&sentry, &format!("id=2 {FINE}"));
    sentry.assert_quiet();
    let class = sentry.app().snapshot().classes[0].clone();
    assert_eq!((class.offered, class.completed, class.failed, class.cancelled), (2, 2, 0, 0));
    assert_eq!(sentry.count(Counter::BytesOut), 18);
}

#[test]
fn a_refusal_is_the_clients_as_it_stands() {
    let mut app = behind(Asker::Nginx);
    app.setup.admission = refuse_all();
    let sentry = Running::start(app);
    let answer = sentry.ask(&question("1"));
    assert_eq!((answer.status, answer.field("retry-after")), (503, Some("1")));
    assert!(answer.field("tidegate-decision").is_some() && answer.field("x-accel-redirect").is_none());
    sentry.assert_quiet();
}

#[test]
fn who_leaves_gives_its_place_or_its_turn_to_the_next() {
    let sentry = Running::start(with_one_place(behind(Asker::Nginx)));
    let _first = admitted(&sentry, "1");
    let mut second = sentry.client();
    second.send(question("2"));
    until("it waits", || sentry.app().waiting() == 1);
    let mut third = sentry.client();
    third.send(question("3"));
    until("it waits", || sentry.app().waiting() == 2);
    drop(second);
    until("it left", || sentry.app().waiting() == 1);
    tell(&sentry, "id=1 status=499 bytes=0 done= head=[0.001 : -] whole=[0.001 : 0.500]");
    assert!(goes_on(&third.answer()));
    tell(&sentry, &format!("id=3 {FINE}"));
    sentry.assert_quiet();
    let class = sentry.app().snapshot().classes[0].clone();
    assert_eq!((class.completed, class.cancelled, sentry.count(Counter::ClientGone)), (1, 2, 2));
}

#[test]
fn a_server_works_on_for_who_left_so_the_place_is_kept() {
    let mut app = with_one_place(behind(Asker::Nginx));
    app.setup.default_cost = Some(Duration::from_secs(20));
    let sentry = Running::start(app);
    let mut nginx = admitted(&sentry, "1");
    tell(&sentry, "id=1 status=499 bytes=0 done= head=[0.001 : -] whole=[0.001 : 0.500]");
    until("nobody waits for it", || sentry.app().snapshot().ghosts == 1);
    nginx.send(question("2"));
    until("it waits", || sentry.app().waiting() == 1);
    assert_eq!(sentry.app().in_flight(), 1);
}

#[test]
fn what_no_server_answered_is_a_failure_and_what_none_was_asked_for_is_nothing() {
    let told = Arc::new(Told::default());
    let sentry = Running::with_records(behind(Asker::Nginx), 2, told.clone());
    let ends = [
        "status=502 bytes=0 done=OK head=[0.001 : -] whole=[0.001 : 0.000]",
        "status=503 bytes=0 done=OK head=[0.001 : 0.002] whole=[0.001 : 0.002]",
        "status=200 bytes=0 done=OK head=[0.001] whole=[0.001]",
        FINE,
    ];
    for (id, end) in ends.iter().enumerate() {
        let _nginx = admitted(&sentry, &format!("{id:032x}"));
        tell(&sentry, &format!("id={id:032x} {end}"));
        sentry.assert_quiet();
    }
    let class = sentry.app().snapshot().classes[0].clone();
    assert_eq!((class.completed, class.failed, class.cancelled), (1, 2, 1));
    until("all are told of", || told.0.lock().expect("no panic").len() == 4);
    let told = told.0.lock().expect("no panic").clone();
    assert_eq!(told.iter().map(|(_, status, _)| *status).collect::<Vec<_>>(), [502, 503, 200, 200]);
}

/// No field of its answer is told of.
#[test]
fn by_its_status_it_may_be_told_that_a_service_further_down_refused_it() {
    let mut app = behind(Asker::Nginx);
    app.refused_below = vec![503];
    let sentry = Running::start(app);
    for (id, status) in ["503", "500", "200"].iter().enumerate() {
        let _nginx = admitted(&sentry, &id.to_string());
        let times = "head=[0.001 : 0.002] whole=[0.001 : 0.002]";
        tell(&sentry, &format!("id={id} status={status} bytes=0 done=OK {times}"));
        sentry.assert_quiet();
    }
    let class = sentry.app().snapshot().classes[0].clone();
    assert_eq!((class.completed, class.failed, class.refused_below), (1, 2, 1));
}

#[test]
fn a_place_of_whose_end_nobody_tells_is_given_up() {
    let sentry = Running::start(with_one_place(behind(Asker::Nginx)));
    let mut nginx = admitted(&sentry, "1");
    nginx.send(question("2"));
    assert!(goes_on(&nginx.answer()), "after two targets");
    tell(&sentry, &format!("id=2 {FINE}"));
    sentry.assert_quiet();
    let class = sentry.app().snapshot().classes[0].clone();
    assert_eq!((class.completed, class.cancelled, sentry.count(Counter::EndsMissing)), (1, 1, 1));
}

#[test]
fn what_is_open_holds_no_place() {
    let sentry = Running::start(with_one_place(behind(Asker::Nginx)));
    let mut nginx = sentry.client();
    nginx.send("GET /a HTTP/1.1\r\nHost: shop\r\nUpgrade: websocket\r\nX-Request-ID: 1\r\n\r\n");
    assert!(goes_on(&nginx.answer()));
    let class = sentry.app().snapshot().classes[0].clone();
    assert_eq!((class.in_flight, class.tunnels), (0, 1));
    admitted(&sentry, "2");
    tell(&sentry, "id=1 status=101 bytes=70 done=OK head=[0.001 : 0.002] whole=[0.001 : 60.000]");
    tell(&sentry, &format!("id=2 {FINE}"));
    sentry.assert_quiet();
    until("it is closed", || sentry.app().snapshot().classes[0].tunnels == 0);
    assert_eq!(sentry.app().snapshot().classes[0].completed, 2);
}

#[test]
fn without_an_id_no_end_could_be_told() {
    let sentry = Running::start(behind(Asker::Nginx));
    let answer = sentry.ask("GET / HTTP/1.1\r\nHost: shop\r\n\r\n");
    assert_eq!(answer.status, 500);
    assert!(answer.text().contains("no-request-id"), "{answer:?}");
    sentry.assert_quiet();
}
