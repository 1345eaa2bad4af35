//! Tests of the registry, with valid and invalid messages.

use super::*;
use tidegate_wire::control::ServerSeen;

fn second(at: u64) -> Timestamp {
    Timestamp::from_millis(at * 1000)
}

fn desk(known: &[Vec<String>]) -> Desk {
    Desk::new(vec![(String::from("shop"), 1), (String::from("mail"), 2)], Duration::from_secs(60), known, second(0))
}

fn hello(name: &str, instance: u64) -> Hello {
    let applications = vec![(String::from("shop"), 1), (String::from("other"), 9)];
    Hello { sentry: name.into(), instance, addresses: Vec::new(), applications, asks: false }
}

fn report(offered: u64, revision: u64, in_flight: u32) -> Report {
    let servers = vec![ServerSeen { name: String::from("s1"), status: String::from("draining"), in_flight }];
    let seen = ApplicationSeen {
        name: String::from("shop"),
        offered: vec![offered],
        refused: offered / 10,
        busy: 0.5,
        servers,
        ..ApplicationSeen::default()
    };
    Report { seconds: 1.0, cpu: 0.2, applied: (1, revision), applications: vec![seen] }
}

#[test]
fn reports_are_summed_and_counted_once() {
    let mut desk = desk(&[]);
    desk.hello(second(1), 1, &hello("a", 7)).expect("is taken");
    desk.hello(second(1), 2, &hello("b", 8)).expect("is taken");
    assert_eq!(desk.take_report(0, 1.0), None, "nobody has said anything");
    desk.report(second(2), 1, report(100, 0, 0));
    assert_eq!(desk.take_report(0, 1.0), None, "one has not said anything");
    desk.report(second(2), 1, report(100, 0, 0));
    desk.report(second(2), 2, report(50, 0, 0));
    assert_eq!(desk.take_report(0, 1.0).map(|sum| (sum.offered, sum.refused)), Some((vec![150], 15)));
    assert_eq!(desk.take_report(0, 1.0).map(|sum| sum.offered), Some(vec![0]), "their next reports have it");
    assert_eq!(desk.take_report(1, 1.0), None, "an application with no sentries");
    assert_eq!(desk.names(0), ["a", "b"]);
}

#[test]
fn a_connection_speaks_for_one_sentry() {
    let mut desk = desk(&[]);
    desk.hello(second(1), 1, &hello("a", 7)).expect("is taken");
    let why = desk.hello(second(1), 1, &hello("b", 8)).expect_err("another name on the same connection");
    assert!(why.contains("\"a\"") && why.contains("connection of its own"), "{why}");
    assert_eq!(desk.names(0), ["a"]);
    assert_eq!(desk.lost(1).as_deref(), Some("a"));
    assert_eq!(desk.forget(second(99)), ["a"]);
    assert_eq!(desk.names(0), [""; 0], "none that nobody can ever forget");
    let mut twice = hello("c", 9);
    twice.applications.push((String::from("shop"), 1));
    desk.hello(second(1), 3, &twice).expect("is taken");
    assert_eq!(desk.sentry_mut("c").expect("known").applications(), [0], "once each");
}

#[test]
fn what_makes_no_sense_can_be_kept_and_read_again() {
    let mut desk = desk(&[]);
    for (connection, name) in [(1, "a"), (2, "b")] {
        desk.hello(second(1), connection, &hello(name, connection)).expect("is taken");
        let mut report = report(u64::MAX, 0, 0);
        (report.seconds, report.cpu) = (-1.0, f64::MAX);
        let seen = &mut report.applications[0];
        (seen.busy, seen.refused, seen.mean_service) = (f64::MAX, u64::MAX, Some(-f64::MAX));
        seen.servers.push(ServerSeen::default());
        desk.report(second(2), connection, report);
    }
    let sum = desk.take_report(0, 1.0).expect("both have spoken");
    assert_eq!((sum.offered[0], sum.busy), (u64::MAX, 1.0));
    let text = serde_json::to_string(&(&sum, desk.cpus(0))).expect("text");
    let again: (ApplicationReport, Vec<(String, f64)>) = serde_json::from_str(&text).expect("can be read again");
    assert_eq!(again, (sum, vec![(String::from("a"), 1.0), (String::from("b"), 1.0)]));
    desk.lost(1);
    assert_eq!(desk.take_report(0, f64::MAX).expect("goes on").offered, [u64::MAX]);
}

#[test]
fn one_that_is_cut_off_counts_on_until_it_is_forgotten() {
    let mut desk = desk(&[]);
    desk.hello(second(1), 1, &hello("a", 7)).expect("is taken");
    desk.report(second(2), 1, report(100, 0, 0));
    assert_eq!(desk.lost(1), Some(String::from("a")));
    drop(desk.take_report(0, 1.0));
    assert_eq!(desk.take_report(0, 2.0).map(|sum| sum.offered), Some(vec![200]));
    assert!(desk.forget(second(61)).is_empty());
    assert_eq!(desk.forget(second(63)), ["a"]);
    assert_eq!(desk.take_report(0, 1.0), None);
}

#[test]
fn who_was_known_before_is_waited_for() {
    let mut desk = desk(&[vec![String::from("a"), String::from("b")]]);
    desk.hello(second(1), 1, &hello("a", 7)).expect("is taken");
    desk.report(second(2), 1, report(100, 0, 0));
    assert_eq!(desk.take_report(0, 1.0), None, "b may have as much again");
    assert_eq!(desk.forget(second(100)), ["b"]);
    desk.report(second(100), 1, report(100, 0, 0));
    assert_eq!(desk.take_report(0, 1.0).map(|sum| sum.offered), Some(vec![100]));
}

#[test]
fn who_does_not_fit_is_turned_away_with_a_reason() {
    let mut desk = desk(&[]);
    desk.hello(second(1), 1, &hello("a", 7)).expect("is taken");
    assert!(desk.hello(second(1), 2, &hello("a", 8)).expect_err("taken").contains("a name of its own"));
    desk.hello(second(2), 3, &hello("a", 7)).expect("the same one, connected anew");
    assert_eq!(desk.lost(1), None, "the old connection is nobody's");
    desk.lost(3);
    desk.hello(second(2), 4, &hello("a", 8)).expect("one that was started again");
    let mut classes = hello("c", 1);
    classes.applications[0].1 = 3;
    assert!(desk.hello(second(1), 5, &classes).expect_err("classes").contains("3 classes at the sentry and 1"));
    classes.applications.remove(0);
    assert!(desk.hello(second(1), 5, &classes).expect_err("unknown").contains("known are: shop, mail"));
}

#[test]
fn what_does_not_come_into_force_is_said_again_and_ever_less_often() {
    let mut desk = desk(&[]);
    desk.hello(second(1), 1, &hello("a", 7)).expect("is taken");
    let mut revision = 5;
    desk.sentry_mut("a").expect("known").tell((1, revision), Vec::new());
    let mut again = Vec::new();
    for at in 0..40 {
        desk.report(second(2), 1, report(1, 3, 0));
        let known = desk.sentry_mut("a").expect("known");
        if known.is_behind() {
            revision += 1;
            known.tell((1, revision), Vec::new());
            again.push(at + 1);
        }
    }
    assert_eq!(again, [4, 12, 28]);
    desk.report(second(2), 1, report(1, revision, 0));
    assert!(!desk.sentry_mut("a").expect("known").is_behind());
}

#[test]
fn a_server_is_drained_when_all_have_said_so_by_their_newest_orders() {
    let mut desk = desk(&[]);
    assert!(desk.is_drained(0, "s1"), "nobody uses it");
    desk.hello(second(1), 1, &hello("a", 7)).expect("is taken");
    desk.sentry_mut("a").expect("known").tell((1, 5), Vec::new());
    desk.report(second(2), 1, report(1, 4, 0));
    assert!(!desk.is_drained(0, "s1"), "it has not heard yet");
    desk.report(second(2), 1, report(1, 5, 3));
    assert!(!desk.is_drained(0, "s1"), "it has three in flight");
    desk.report(second(2), 1, report(1, 5, 0));
    assert!(desk.is_drained(0, "s1"));
    desk.lost(1);
    assert!(!desk.is_drained(0, "s1"), "nobody knows");
}
