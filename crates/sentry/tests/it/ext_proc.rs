//! Envoy asks whether it may send a request on, by `ext_proc`.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use h2::client::SendRequest;
use tidegate_sentry::config::Asker;
use tidegate_sentry::counters::Counter;

use crate::grpc::Told;
use crate::http2::{ask, whole, with_client};
use crate::support::envoy::{Call, GO_ON, GO_ON_WITH_ANSWER, IMMEDIATE, RESPONSE_HEADERS, RESPONSE_TRAILERS, Said};
use crate::support::{RawServer, Running, application, behind, ok, refuse_all, until, with_one_place};

/// A request that is let through, without a change.
async fn admitted(sender: &SendRequest<Bytes>) -> Call {
    let mut call = Call::asking(sender, &[]).await;
    assert_eq!(call.said().await, Said { what: GO_ON, ..Said::default() });
    call
}

/// The whole answer to it has a head only.
async fn answer(mut call: Call, fields: &[(&str, &str)]) -> Said {
    call.tell(RESPONSE_HEADERS, fields, true);
    let said = call.said().await;
    assert_eq!((said.what, call.end().await), (GO_ON_WITH_ANSWER, 0));
    said
}

const FINE: [(&str, &str); 2] = [(":status", "200"), ("x-envoy-upstream-service-time", "3")];

#[test]
fn a_request_holds_a_place_from_the_decision_to_the_end_of_its_answer() {
    let sentry = Running::start(with_one_place(behind(Asker::Envoy)));
    let app = sentry.app().clone();
    let in_flight = move || app.snapshot().classes[0].in_flight;
    let waiting = {
        let app = sentry.app().clone();
        move || app.snapshot().classes[0].waiting
    };
    with_client(sentry.address, |sender| async move {
        let first = admitted(&sender).await;
        assert_eq!(in_flight(), 1);
        let mut second = Call::asking(&sender, &[]).await;
        let mut third = Call::asking(&sender, &[]).await;
        while waiting() < 2 {
            tokio::task::yield_now().await;
        }
        answer(first, &FINE).await;
        assert_eq!(second.said().await.what, GO_ON);
        // A body follows, and trailers: the answer ends with them.
        second.tell(RESPONSE_HEADERS, &FINE, false);
        assert_eq!(second.said().await.what, GO_ON_WITH_ANSWER);
        assert_eq!((in_flight(), waiting()), (1, 1));
        second.tell(RESPONSE_TRAILERS, &[], true);
        assert_eq!(second.said().await.what, 6);
        assert_eq!((third.said().await.what, second.end().await), (GO_ON, 0));
        answer(third, &FINE).await;
    });
    sentry.assert_quiet();
    let class = sentry.app().snapshot().classes[0].clone();
    assert_eq!((class.offered, class.completed, class.failed), (3, 3, 0));
}

#[test]
fn a_refusal_is_said_by_envoy_as_the_sentry_would() {
    let told = Arc::new(Told::default());
    let mut app = behind(Asker::Envoy);
    app.setup.admission = refuse_all();
    let sentry = Running::with_records(app, 1, told.clone());
    with_client(sentry.address, |sender| async move {
        let mut call = Call::asking(&sender, &[("accept", "application/json")]).await;
        let said = call.said().await;
        assert_eq!((said.what, said.status, said.grpc_status), (IMMEDIATE, 503, None));
        assert_eq!(said.field("retry-after"), Some("1"));
        assert_eq!(said.field("content-type"), Some("application/json"));
        assert!(said.field("tidegate-decision").is_some_and(|text| text.starts_with("rejected; reason=")));
        assert!(said.body.starts_with("{\"class\":"), "{said:?}");
        assert_eq!(call.end().await, 0);

        let mut call = Call::asking(&sender, &[(":method", "POST"), ("content-type", "application/grpc")]).await;
        let said = call.said().await;
        assert_eq!((said.what, said.status, said.grpc_status), (IMMEDIATE, 503, Some(14)));
        assert!(said.field("grpc-retry-pushback-ms").is_some() && said.field("content-type").is_none(), "{said:?}");
        assert!(!said.body.is_empty() && !said.set.iter().any(|(name, _)| name == "grpc-status"), "{said:?}");
    });
    sentry.assert_quiet();
    assert_eq!((sentry.count(Counter::RefusedByGate), sentry.app().snapshot().classes[0].offered), (2, 2));
    until("both are told of", || told.0.lock().expect("no panic").len() == 2);
    assert_eq!(told.0.lock().expect("no panic").iter().map(|(_, status, _)| *status).collect::<Vec<_>>(), [503, 503]);
}

#[test]
fn who_leaves_gives_its_place_or_its_turn_to_the_next() {
    let sentry = Running::start(with_one_place(behind(Asker::Envoy)));
    let app = sentry.app().clone();
    let waiting = move |number| {
        let app = app.clone();
        async move {
            while app.snapshot().classes[0].waiting != number {
                tokio::task::yield_now().await;
            }
        }
    };
    with_client(sentry.address, |sender| async move {
        let first = admitted(&sender).await;
        let second = Call::asking(&sender, &[]).await;
        waiting(1).await;
        let mut third = Call::asking(&sender, &[]).await;
        waiting(2).await;
        second.reset();
        waiting(1).await;
        first.reset();
        assert_eq!(third.said().await.what, GO_ON);
        // Of an answer that had begun, the end is the call's: Envoy lets go of it when all is said.
        third.tell(RESPONSE_HEADERS, &FINE, false);
        assert_eq!(third.said().await.what, GO_ON_WITH_ANSWER);
        third.half_close();
        assert_eq!(third.end().await, 0);
    });
    sentry.assert_quiet();
    let class = sentry.app().snapshot().classes[0].clone();
    assert_eq!((class.completed, class.cancelled, sentry.count(Counter::ClientGone)), (1, 2, 2));
}

#[test]
fn the_head_that_envoy_tells_is_counted_while_it_is_held() {
    let sentry = Running::start(with_one_place(behind(Asker::Envoy)));
    let app = sentry.app().clone();
    let becomes = async |holds: &dyn Fn() -> bool| {
        while !holds() {
            tokio::task::yield_now().await;
        }
    };
    with_client(sentry.address, |sender| async move {
        let first = admitted(&sender).await;
        let small = Call::asking(&sender, &[]).await;
        becomes(&|| app.waiting() == 1).await;
        let usual = app.counters.streams_take();
        small.reset();
        becomes(&|| app.waiting() == 0 && app.counters.streams_take() < usual).await;
        let mut large = Call::asking(&sender, &[("x-large", &"a".repeat(10_000))]).await;
        becomes(&|| app.waiting() == 1).await;
        assert!(app.counters.streams_take() >= usual + 20_000, "it is there twice");
        answer(first, &FINE).await;
        assert_eq!(large.said().await.what, GO_ON);
        becomes(&|| app.counters.streams_take() < usual).await;
        answer(large, &FINE).await;
    });
    sentry.assert_quiet();
}

#[test]
fn a_server_works_on_for_who_left_so_the_place_is_kept() {
    let mut app = with_one_place(behind(Asker::Envoy));
    app.setup.default_cost = Some(Duration::from_secs(20));
    let sentry = Running::start(app);
    let app = sentry.app().clone();
    with_client(sentry.address, |sender| async move {
        admitted(&sender).await.reset();
        while app.snapshot().ghosts == 0 {
            tokio::task::yield_now().await;
        }
        let _next = Call::asking(&sender, &[]).await;
        while app.waiting() == 0 {
            tokio::task::yield_now().await;
        }
    });
}

#[test]
fn what_is_open_holds_no_place() {
    let sentry = Running::start(with_one_place(behind(Asker::Envoy)));
    let app = sentry.app().clone();
    let open = move || {
        let class = &app.snapshot().classes[0];
        (class.in_flight, class.streams, class.tunnels)
    };
    with_client(sentry.address, |sender| async move {
        let mut socket = admitted(&sender).await;
        socket.tell(RESPONSE_HEADERS, &[(":status", "101"), FINE[1]], false);
        assert_eq!(socket.said().await.what, GO_ON_WITH_ANSWER);
        let mut events = admitted(&sender).await;
        events.tell(RESPONSE_HEADERS, &[FINE[0], FINE[1], ("content-type", "text/event-stream")], false);
        assert_eq!(events.said().await.what, GO_ON_WITH_ANSWER);
        assert_eq!(open(), (0, 1, 1));
        answer(admitted(&sender).await, &FINE).await;
        events.reset();
        socket.reset();
    });
    sentry.assert_quiet();
    assert_eq!(sentry.app().snapshot().classes[0].completed, 3);
}

#[test]
fn what_envoy_answers_itself_is_a_failure_and_what_a_server_says_is_an_answer() {
    let told = Arc::new(Told::default());
    let sentry = Running::with_records(behind(Asker::Envoy), 1, told.clone());
    with_client(sentry.address, |sender| async move {
        answer(admitted(&sender).await, &[(":status", "503")]).await;
        answer(admitted(&sender).await, &[(":status", "503"), FINE[1]]).await;
        answer(admitted(&sender).await, &[FINE[0], FINE[1], ("grpc-status", "14")]).await;
        let said = answer(admitted(&sender).await, &[FINE[0], FINE[1], ("tidegate-cost", "cpu=0.5")]).await;
        assert_eq!(said.removed, ["tidegate-cost"], "it is no affair of the client's");
    });
    sentry.assert_quiet();
    let class = sentry.app().snapshot().classes[0].clone();
    assert_eq!((class.completed, class.failed), (2, 2));
    until("all are told of", || told.0.lock().expect("no panic").len() == 4);
    let told = told.0.lock().expect("no panic").clone();
    assert_eq!(told.iter().map(|(_, status, _)| *status).collect::<Vec<_>>(), [503, 503, 200, 200]);
}

#[test]
fn what_a_service_further_down_refused_is_told_by_the_answer_s_fields() {
    let refused = ("tidegate-decision", "rejected; reason=queue-full; policy=waiting; class=rest");
    let mut app = behind(Asker::Envoy);
    app.refused_below = vec![420];
    let sentry = Running::start(app);
    with_client(sentry.address, |sender| async move {
        let below = Some("rejected; reason=refused-below; class=default");
        for (fields, told) in [
            (&[(":status", "503"), FINE[1], refused][..], below),
            (&[(":status", "420"), FINE[1]], below),
            (&[FINE[0], FINE[1], ("grpc-status", "14"), refused], below),
            (&[FINE[0], FINE[1], refused], None),
        ] {
            let said = answer(admitted(&sender).await, fields).await;
            assert_eq!(said.field(refused.0), told, "{fields:?}");
        }
        let mut call = admitted(&sender).await;
        call.tell(RESPONSE_HEADERS, &FINE, false);
        assert_eq!(call.said().await.what, GO_ON_WITH_ANSWER);
        call.tell(RESPONSE_TRAILERS, &[("grpc-status", "8"), refused], true);
        assert_eq!((call.said().await.what, call.end().await), (6, 0));
    });
    sentry.assert_quiet();
    let class = sentry.app().snapshot().classes[0].clone();
    assert_eq!((class.completed, class.failed, class.refused_below), (1, 4, 4));
}

#[test]
fn servers_get_the_path_that_rules_have_read_and_no_quality_that_a_client_made_up() {
    let sentry = Running::start(behind(Asker::Envoy));
    with_client(sentry.address, |sender| async move {
        let mut call = Call::asking(&sender, &[(":path", "/%61?b"), ("tidegate-quality", "0.10")]).await;
        let said = call.said().await;
        assert_eq!((said.what, &*said.removed), (GO_ON, &[String::from("tidegate-quality")][..]));
        assert_eq!(said.set, [(String::from(":path"), String::from("/a?b"))]);
        answer(call, &FINE).await;
        // What the gate would refuse, Envoy is to refuse, too.
        let mut call = Call::asking(&sender, &[(":path", "/a%2f../b")]).await;
        let said = call.said().await;
        assert_eq!((said.what, said.status), (IMMEDIATE, 400));
    });
    sentry.assert_quiet();
}

#[test]
fn nobody_else_asks_what_envoy_asks_for_and_envoy_asks_for_nobody_else() {
    let sentry = Running::start(behind(Asker::Envoy));
    assert_eq!(sentry.ask("GET / HTTP/1.1\r\nHost: t\r\n\r\n").status, 404);
    with_client(sentry.address, |sender| async move {
        let request = http::Request::builder().uri("http://test/").body(()).expect("a request");
        assert_eq!(whole(ask(&sender, request).await).await.0.status(), 404);
        for (message, status) in [(&[0x12, 9][..], 3), (&[0x1a, 0], 3)] {
            let mut call = Call::begin(&sender).await;
            call.send(message);
            assert_eq!(call.end().await, status, "{message:?}");
        }
        let mut call = Call::begin(&sender).await;
        call.send(&vec![0; 1 << 20]);
        assert_eq!(call.end().await, 8, "a head has its limits");
    });
    sentry.assert_quiet();
    let server = RawServer::answering(|asked| ok(&asked.target));
    let sentry = Running::start(application(&[server.address]));
    with_client(sentry.address, |sender| async move {
        let request = http::Request::builder().method("POST").uri(crate::support::envoy::PROCESS);
        let (head, text, _) = whole(ask(&sender, request.body(()).expect("a request")).await).await;
        let path = "/envoy.service.ext_proc.v3.ExternalProcessor/Process";
        assert_eq!((head.status().as_u16(), &*text), (200, path), "a server may have that path");
    });
    sentry.assert_quiet();
}
