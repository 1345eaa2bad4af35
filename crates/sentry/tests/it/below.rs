//! Services that call services: what one further down would refuse is refused at the door, and no server is blamed for
//! it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;

use http::{HeaderMap, Request};
use serde_json::json;
use tidegate_classify::due::DeadlineBy;
use tidegate_engine::{ClassSnapshot, Status};
use tidegate_sentry::config::{Application, Health};
use tidegate_sentry::counters::Counter;
use tidegate_sentry::record::{RecordEnd, RecordSink, RequestRecord};

use crate::http2::{whole, with_client};
use crate::support::{Answer, PATIENCE, RawServer, Running, admission, application, config, refuse_all, until};

/// What an application passes on so that its sentry learns who refused.
const FIELD: &[&str] = &["tidegate-decision"];

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nhost: t\r\n\r\n")
}

fn class(sentry: &Running) -> ClassSnapshot {
    sentry.app().snapshot().classes[0].clone()
}

/// How many were refused at the door for what is refused below.
fn at_the_door(class: &ClassSnapshot) -> u64 {
    class.rejected.iter().find(|(reason, _)| *reason == "refused-below").map_or(0, |(_, count)| *count)
}

/// A sentry that refuses all.
fn closed() -> Running {
    let mut app = application(&[([127, 0, 0, 1], 1).into()]);
    app.setup.admission = refuse_all();
    Running::start(app)
}

/// An application whose servers are easily blamed: whoever asks, for whatever.
fn touchy(mut app: Application) -> Application {
    app.health.passive_errors = 3;
    app.forwarded.trust = vec!["127.0.0.0/8".parse().expect("a network")];
    app
}

/// Time, counted in requests of clients: it goes as fast as the machine does.
#[derive(Clone, Default)]
struct Clock(Arc<(Mutex<(u64, bool)>, Condvar)>);

impl Clock {
    fn tick(&self) {
        self.0.0.lock().expect("a lock").0 += 1;
        self.0.1.notify_all();
    }

    fn stop(&self) {
        self.0.0.lock().expect("a lock").1 = true;
        self.0.1.notify_all();
    }

    fn wait(&self, ticks: u64) {
        let (time, bell) = &*self.0;
        let time = time.lock().expect("a lock");
        let end = time.0 + ticks;
        drop(bell.wait_timeout_while(time, PATIENCE, |(now, is_over)| *now < end && !*is_over));
    }
}

/// Keeps `clients` asking, until `test` is done.
fn under_load(sentry: &Running, clock: &Clock, clients: usize, test: impl FnOnce()) {
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        for client in 0..clients {
            let (is_over, path) = (&is_over, ["/a", "/b"][client % 2]);
            scope.spawn(move || {
                let mut client = sentry.client();
                while !is_over.load(Ordering::SeqCst) {
                    clock.tick();
                    client.send(get(path));
                    client.answer();
                }
            });
        }
        let over = std::panic::catch_unwind(std::panic::AssertUnwindSafe(test));
        is_over.store(true, Ordering::SeqCst);
        clock.stop();
        if let Err(panic) = over {
            std::panic::resume_unwind(panic);
        }
    });
}

/// The service has five places, and each request takes the time of ten arrivals: half of them fit.
#[test]
fn what_the_service_of_a_service_refuses_is_refused_at_the_door() {
    let clock = Clock::default();
    let works = clock.clone();
    let service = RawServer::answering(move |_| {
        works.wait(10);
        crate::support::ok("done")
    });
    let mut below = application(&[service.address]);
    below.setup.admission = admission(json!({"policy": "concurrency", "limit": 5, "queue": 0}));
    let below = Running::start(below);
    let servers = [(); 2].map(|()| RawServer::calling(below.address, FIELD));
    let above = Running::start(touchy(application(&servers.each_ref().map(|server| server.address))));
    under_load(&above, &clock, 12, || {
        until("the door is narrow", || at_the_door(&class(&above)) > 1000);
        let mut before = class(&above);
        until("nearly all that is let in passes", || {
            let now = class(&above);
            let (let_in, refused) = (now.admitted - before.admitted, now.refused_below - before.refused_below);
            if let_in < 2000 {
                return false;
            }
            before = now;
            refused * 10 <= let_in
        });
        // With more places all clients might be there at once, and time would stand still.
        clock.stop();
        let mut open = config(below.app().live().config.clone(), 1);
        open.applications[0].setup.admission = admission(json!({"policy": "none"}));
        below.handle.reload(open).expect("a reload");
        let mut before = class(&above);
        until("the door is open again", || {
            let now = class(&above);
            if now.offered - before.offered < 2000 {
                return false;
            }
            let is_open = at_the_door(&now) == at_the_door(&before);
            before = now;
            is_open
        });
    });
    above.assert_quiet();
    let class = class(&above);
    assert!(class.refused_below > 0 && class.completed > 0, "{class:?}");
    assert_eq!(class.failed, class.refused_below, "nothing else fails");
    assert_eq!(above.count(Counter::Ejections), 0);
}

/// Sends until the door is closed for what is refused below, or a number of requests was sent.
fn ask(sentry: &Running, most: usize) -> bool {
    let mut client = sentry.client();
    for _ in 0..most {
        client.send(get("/a"));
        client.answer();
        if at_the_door(&class(sentry)) > 0 {
            return true;
        }
    }
    false
}

#[test]
fn a_status_says_the_same_without_the_field_where_it_is_listed() {
    let below = closed();
    let server = RawServer::calling(below.address, &[]);
    let above = Running::start(application(&[server.address]));
    assert!(!ask(&above, 300));
    let before = class(&above);
    assert_eq!((before.failed, before.refused_below), (300, 0), "503 is a failure like any other");
    let mut listed = config(above.app().live().config.clone(), 1);
    listed.applications[0].refused_below = vec![503];
    above.handle.reload(listed).expect("a reload");
    until("the door is closed", || ask(&above, 100));
    let class = class(&above);
    assert_eq!(class.refused_below, class.failed - before.failed);
    above.assert_quiet();
}

/// How requests ended, as the log is told.
#[derive(Debug, Default)]
struct Ends(Mutex<Vec<(u16, RecordEnd)>>);

impl RecordSink for Ends {
    fn enabled(&self) -> bool {
        true
    }

    fn record(&self, _app: &str, _class: &str, record: &RequestRecord<'_>) {
        self.0.lock().expect("a lock").push((record.status, record.end));
    }
}

fn decision(answer: &Answer) -> Option<&str> {
    answer.field("tidegate-decision")
}

#[test]
fn sentries_in_a_row_tell_each_other() {
    let (below, ends) = (closed(), Arc::new(Ends::default()));
    let middle = Running::start(application(&[below.address]));
    let above = Running::with_records(application(&[middle.address]), 1, ends.clone());
    let (first, answer) = (below.ask(&get("/")), above.ask(&get("/")));
    assert_eq!(decision(&answer), Some("rejected; reason=refused-below; class=default"));
    assert_eq!((answer.status, &answer.body, answer.field("retry-after")), (503, &first.body, Some("1")));
    until("both have heard", || [&middle, &above].iter().all(|sentry| class(sentry).refused_below == 1));
    until("it is in the log", || !ends.0.lock().expect("a lock").is_empty());
    assert_eq!(*ends.0.lock().expect("a lock"), [(503, RecordEnd::RefusedBelow)]);
    until("the first door is closed", || ask(&above, 100));
    let before = class(&middle).offered;
    until("hardly any goes on", || {
        let door = at_the_door(&class(&above));
        let mut client = above.client();
        for _ in 0..200 {
            client.send(get("/a"));
            assert_eq!(client.answer().status, 503);
        }
        at_the_door(&class(&above)) >= door + 180
    });
    assert!(class(&middle).offered > before, "some do, to find out when it is over");
    above.assert_quiet();
}

#[test]
fn clients_are_not_told_where_the_outermost_sentry_hides_it() {
    let below = closed();
    let mut app = application(&[below.address]);
    app.rejection.details = false;
    let above = Running::start(app);
    let answer = above.ask(&get("/"));
    assert_eq!((answer.status, decision(&answer)), (503, None));
    until("it has heard nevertheless", || class(&above).refused_below == 1);
}

/// A client that leaves no time keeps nobody else out.
#[test]
fn a_refusal_for_a_request_s_own_sake_says_nothing_of_others() {
    let server = RawServer::echo();
    let below = Running::start(application(&[server.address]));
    let mut app = touchy(application(&[below.address, server.address]));
    app.classifier.deadline = DeadlineBy { well_known: false, own: None };
    let above = Running::start(app);
    let late = "GET /a HTTP/1.1\r\nhost: t\r\ngrpc-timeout: 0m\r\n\r\n";
    until("often enough", || {
        let answer = above.ask(late);
        if answer.status == 504 {
            assert_eq!(decision(&answer), Some("rejected; reason=deadline; class=default"));
        }
        class(&above).failed >= 200
    });
    let class = class(&above);
    assert_eq!((class.refused_below, at_the_door(&class), above.count(Counter::Ejections)), (0, 0, 0));
}

/// Answers with the status that the path is, and the field.
fn telling(field: &'static str) -> RawServer {
    RawServer::answering(move |asked| {
        format!("HTTP/1.1 {} X\r\n{field}content-length: 0\r\n\r\n", asked.target.trim_start_matches('/'))
    })
}

const REFUSED: &str = "tidegate-decision: rejected; reason=sla-target; policy=waiting; class=rest\r\n";

#[test]
fn an_answer_that_is_no_failure_is_an_answer_and_a_failure_without_the_field_is_one() {
    for (field, statuses, completed, failed, refused_below) in [
        (REFUSED, &[200, 404, 403, 302][..], 4, 0, 0),
        ("", &[200, 404, 429], 3, 0, 0),
        ("", &[503, 500], 0, 2, 0),
        ("tidegate-decision: admitted\r\n", &[503], 0, 1, 0),
        ("tidegate-decision: rejected; reason=no-server\r\n", &[503], 0, 1, 0),
        (REFUSED, &[503, 500, 429], 0, 3, 3),
    ] {
        let server = telling(field);
        let sentry = Running::start(application(&[server.address]));
        for status in statuses {
            let answer = sentry.ask(&get(&format!("/{status}")));
            let told = (refused_below > 0).then_some("rejected; reason=refused-below; class=default");
            assert_eq!((answer.status, decision(&answer)), (*status, told), "{field}");
        }
        sentry.assert_quiet();
        let class = class(&sentry);
        let seen = (class.completed, class.failed, class.refused_below);
        assert_eq!(seen, (completed, failed, refused_below), "{field} {statuses:?}");
    }
}

#[test]
fn who_is_refused_below_is_no_outlier() {
    let well = telling("");
    let ejected = |field: &'static str| {
        let server = RawServer::answering(move |_| format!("HTTP/1.1 503 X\r\n{field}content-length: 0\r\n\r\n"));
        let sentry = Running::start(touchy(application(&[server.address, well.address])));
        for number in 0..100 {
            sentry.ask(&get(["/200", "/201"][number / 2 % 2]));
        }
        sentry.count(Counter::Ejections)
    };
    assert_eq!(ejected(""), 1);
    assert_eq!(ejected(REFUSED), 0);
}

#[test]
fn a_check_that_a_sentry_refuses_finds_a_server_that_is_there() {
    let quick = Duration::from_millis(5);
    let becomes = |field: &'static str, status: Status| {
        let server = telling(field);
        let mut app = application(&[server.address]);
        app.health = Health { interval: quick, path: Some(String::from("/503")), fall: 2, ..app.health };
        let sentry = Running::start(app);
        let app = sentry.app().clone();
        until("several checks", || server.connections() > 5);
        until("it is seen so", || app.live().servers().all(|server| server.status() == status));
    };
    becomes("", Status::Down);
    becomes(REFUSED, Status::Up);
}

/// A call of gRPC, and its trailers.
async fn call(sender: &h2::client::SendRequest<bytes::Bytes>, path: &str) -> (HeaderMap, Option<HeaderMap>) {
    let request = Request::builder().method("POST").uri(format!("http://t{path}"));
    let request = request.header("content-type", "application/grpc").header("te", "trailers").body(()).expect("a call");
    let mut sender = sender.clone().ready().await.expect("room for a stream");
    let (head, _, trailers) = whole(sender.send_request(request, true).expect("a stream").0).await;
    (head.headers().clone(), trailers)
}

#[test]
fn of_grpc_head_and_trailers_tell() {
    let below = closed();
    let mut app = application(&[below.address]);
    app.servers[0].address = format!("h2c://{}", below.address);
    let above = Running::start(app);
    with_client(above.address, |sender| async move {
        let (head, _) = call(&sender, "/s/m").await;
        assert_eq!((&head["grpc-status"], &head["tidegate-decision"]), (&"14".parse().unwrap(), &told()));
    });
    until("it has heard", || class(&above).refused_below == 1);
}

fn told() -> http::HeaderValue {
    http::HeaderValue::from_static("rejected; reason=refused-below; class=default")
}

#[test]
fn of_grpc_the_field_may_come_before_the_status_or_with_it() {
    let server = RawServer::answering(|asked| {
        let (head, trailers) = match &*asked.target {
            "/before" => (REFUSED, "grpc-status: 8\r\n"),
            "/with" => ("", "grpc-status: 14\r\ntidegate-decision: rejected; reason=queue-full\r\n"),
            "/without" => ("", "grpc-status: 14\r\n"),
            _ => (REFUSED, "grpc-status: 0\r\n"),
        };
        format!(
            "HTTP/1.1 200 OK\r\ncontent-type: application/grpc\r\n{head}transfer-encoding: chunked\r\n\r\n\
             1\r\nx\r\n0\r\n{trailers}\r\n"
        )
    });
    let sentry = Running::start(application(&[server.address]));
    with_client(sentry.address, |sender| async move {
        for (path, says) in [("/before", Some(told())), ("/with", Some(told())), ("/without", None), ("/well", None)] {
            let (head, trailers) = call(&sender, path).await;
            assert!(!head.contains_key("tidegate-decision"), "{path}");
            assert_eq!(trailers.expect("trailers").get("tidegate-decision"), says.as_ref(), "{path}");
        }
    });
    sentry.assert_quiet();
    let class = class(&sentry);
    assert_eq!((class.completed, class.failed, class.refused_below), (1, 3, 2));
}
