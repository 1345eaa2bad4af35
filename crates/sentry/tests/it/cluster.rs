//! Partitions and affinity of a real sentry, from the file to the servers: who answers, and who does after a death.

use std::net::SocketAddr;
use std::path::Path;

use crate::support::{RawServer, Running, ok, until};
use tidegate_engine::Status;
use tidegate_sentry::config::{Application, Config};

/// Servers that answer with their number.
fn cluster(count: usize) -> Vec<RawServer> {
    (0..count).map(|number| RawServer::answering(move |_| ok(&number.to_string()))).collect()
}

fn configured(servers: &[RawServer], keys: &str) -> Application {
    let addresses: Vec<SocketAddr> = servers.iter().map(|server| server.address).collect();
    let list: Vec<String> = addresses.iter().map(|address| format!("\"{address}\"")).collect();
    let text = format!(
        r#"
        [[application]]
        name = "app"
        listen = "127.0.0.1:0"
        admission = "switch"
        servers = [{}]
        affinity = {{ cookie = "session" }}
        {keys}
        [application.health]
        interval = "20ms"
        timeout = "60s"
        fall = 2
        rise = 1
        [[application.max_conn]]
        name = "default"
        within_target = 18
        most = 26
        [[application.class]]
        name = "top"
        match = {{ cookie = {{ name = "tier", value = "gold" }} }}
        [[application.class]]
        name = "normal"
        "#,
        list.join(", ")
    );
    let checked = Config::parse(&text, Path::new("cluster.toml")).unwrap_or_else(|errors| panic!("{errors}"));
    checked.config.applications.into_iter().next().expect("one application")
}

/// No period ends during a test: then nothing moves because there is so little load.
const DYNAMIC: &str = r#"{ policy = "dynamic", shares = [0.2], period = "1h" }"#;

/// Where a session begins is drawn: with so many there is one at each server, but for once in a million runs.
const SESSIONS: usize = 24;

/// Which server answers a request with these cookies.
#[track_caller]
fn who(sentry: &Running, cookies: &str) -> usize {
    let answer = sentry.ask(&format!("GET / HTTP/1.1\r\nHost: t\r\nCookie: {cookies}\r\n\r\n"));
    assert_eq!(answer.status, 200, "{cookies}: {}", answer.head);
    answer.text().parse().expect("a server's number")
}

#[test]
fn sessions_stay_in_their_class_s_servers_and_outlive_them() {
    for partition in [r#"{ policy = "static", shares = [0.2] }"#, DYNAMIC] {
        let servers = cluster(4);
        let sentry = Running::start(configured(&servers, &format!("partition = {partition}")));
        // 0.2 * 4 + 3.2 * 8 / 26 = 1.8: two servers of four.
        let gold = |session: usize| format!("tier=gold; session=g{session}");
        let plain = |session: usize| format!("session=n{session}");
        let homes: Vec<usize> = (0..SESSIONS).map(|session| who(&sentry, &gold(session))).collect();
        assert!(homes.iter().all(|&home| home < 2) && homes.contains(&0) && homes.contains(&1), "{homes:?}");
        let others: Vec<usize> = (0..SESSIONS).map(|session| who(&sentry, &plain(session))).collect();
        assert!(others.iter().all(|&home| home >= 2), "{others:?}");
        for (session, (home, other)) in homes.iter().zip(&others).enumerate() {
            assert_eq!((who(&sentry, &gold(session)), who(&sentry, &plain(session))), (*home, *other));
        }

        // Its sessions go to the other one at once, before any health check has seen anything. When one has, on a slow
        // machine, the class may have been given a third one already.
        servers[0].kill();
        let is_noticed = || sentry.app().snapshot().servers[0].status == Status::Down;
        for session in 0..SESSIONS {
            let home = who(&sentry, &gold(session));
            assert!(home == 1 || home == 2 && is_noticed(), "{partition}: {home}");
        }
        until("the death is noticed", is_noticed);

        // With its last server gone the class gets one of the others', and only that one.
        servers[1].kill();
        until("both deaths are noticed", || sentry.app().snapshot().servers[1].status == Status::Down);
        let snapshot = sentry.app().snapshot();
        let sizes: Vec<usize> = snapshot.partitions.iter().map(|partition| partition.servers).collect();
        assert_eq!(sizes, [1, 1], "{partition}");
        let (of_gold, of_plain) = (who(&sentry, &gold(0)), who(&sentry, &plain(0)));
        assert!(of_gold >= 2 && of_plain >= 2 && of_gold != of_plain, "{of_gold}, {of_plain}");
        (0..SESSIONS).for_each(|session| assert_eq!(who(&sentry, &gold(session)), of_gold));
        (0..SESSIONS).for_each(|session| assert_eq!(who(&sentry, &plain(session)), of_plain));
        sentry.assert_quiet();
    }
}

#[test]
fn a_session_stays_with_the_server_whose_answer_began_it() {
    let server = |number: usize| {
        RawServer::answering(move |asked| match asked.target.strip_prefix("/login/") {
            Some(user) => format!(
                "HTTP/1.1 200 OK\r\nSet-Cookie: theme=dark\r\nSet-Cookie: session={user}; Path=/\r\n\
                 Content-Length: 1\r\n\r\n{number}"
            ),
            None => ok(&number.to_string()),
        })
    };
    let servers: Vec<RawServer> = (0..3).map(server).collect();
    let sentry = Running::start(configured(&servers, ""));
    let logins = (0..60).map(|user| sentry.ask(&format!("GET /login/{user} HTTP/1.1\r\nHost: t\r\n\r\n")).text());
    let homes: Vec<usize> = logins.map(|text| text.parse().expect("a server's number")).collect();
    assert!((0..3).all(|number| homes.contains(&number)), "{homes:?}");
    for _ in 0..2 {
        let now: Vec<usize> = (0..60).map(|user| who(&sentry, &format!("session={user}"))).collect();
        assert_eq!(now, homes, "from the first request that brings the cookie");
    }
    sentry.assert_quiet();
}

#[test]
fn a_session_by_header_is_one_server_s_and_requests_without_one_are_spread() {
    let servers = cluster(3);
    let mut app = configured(&servers, "");
    app.classifier.affinity = Some(tidegate_classify::AffinityBy::Header("x-session".into()));
    let sentry = Running::start(app);
    let ask = |field: &str| sentry.ask(&format!("GET / HTTP/1.1\r\nHost: t\r\n{field}\r\n")).text();
    let home = ask("X-Session: 7\r\n");
    (0..10).for_each(|_| assert_eq!(ask("X-Session: 7\r\n"), home));
    let spread: std::collections::BTreeSet<String> = (0..60).map(|_| ask("")).collect();
    assert_eq!(spread.len(), 3);
    sentry.assert_quiet();
}

/// What the admin API shows, and what is told of it.
#[test]
fn partitions_and_thresholds_are_shown() {
    let servers = cluster(4);
    let sentry = Running::start(configured(&servers, &format!("partition = {DYNAMIC}")));
    until("the partitions are told", || {
        let told = sentry.app().events.recent();
        told.iter().any(|stamped| stamped.event.name() == "partitions-set")
    });
    let shown = serde_json::to_value(sentry.app().snapshot()).expect("plain numbers and text");
    assert_eq!(shown["partition"], "dynamic");
    let top = &shown["partitions"][0];
    assert_eq!((&top["classes"][0], &top["servers"]), (&"top".into(), &2.into()));
    assert_eq!(top["held"][0]["kind"], "default");
    assert_eq!((&top["held"][0]["within_target"], &top["held"][0]["most"]), (&36.0.into(), &52.0.into()));
    assert_eq!(top["held"][0]["thresholds"], serde_json::json!([52.0]));
    assert_eq!(shown["partitions"][1]["held"][0]["thresholds"], serde_json::json!([36.0]));
    assert_eq!(shown["servers"][3]["partition"], 2);
}
