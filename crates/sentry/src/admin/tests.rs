mod calls;
mod end;
mod urls;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;

use super::*;
use crate::app::App;
use crate::config::Config;
use crate::record::NoRecords;
use tidegate_engine::{Decision, Outcome, ServerId, Status, Timestamp};

const FILE: &str = "[[application]]\nname = \"sh\\\"op\"\nservers = \"127.0.0.1:1\"\n\
                    [[application.class]]\nname = \"gold\"\nmatch = { path = \"/gold\" }\n\
                    [[application.class]]\nname = \"rest\"\n";

fn board() -> Arc<Board> {
    let config = Config::parse(FILE, Path::new("test.toml")).expect("valid").config;
    let app = App::new(config.applications[0].clone(), 1, 7, Arc::new(NoRecords)).expect("an application");
    Arc::new(Board::new(config, vec![Arc::new(app)], Arc::default()))
}

fn start(token: Option<&str>) -> (AdminServer, Arc<Board>) {
    start_as(&config::Admin { token: token.map(str::to_owned), ..config::Admin::default() })
}

fn start_as(admin: &config::Admin) -> (AdminServer, Arc<Board>) {
    let board = board();
    let listen = SocketAddr::from(([127, 0, 0, 1], 0));
    (AdminServer::start(listen, admin, board.clone(), &mut Sockets::default()).expect("starts"), board)
}

/// A connection that is read with a time limit, so that a mistake fails the test.
fn connect(server: &AdminServer) -> TcpStream {
    let stream = TcpStream::connect(server.address()).expect("connects");
    stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a time limit");
    stream
}

/// Sends a request on a connection of its own.
fn send(server: &AdminServer, head: &str, body: &str) -> TcpStream {
    let mut stream = connect(server);
    let length = body.len();
    let request = format!("{head}\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}");
    stream.write_all(request.as_bytes()).expect("sends");
    stream
}

fn ask(server: &AdminServer, head: &str, body: &str) -> (u16, String) {
    let mut answer = String::new();
    send(server, head, body).read_to_string(&mut answer).expect("an answer");
    let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    (status, answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or_default())
}

fn get(server: &AdminServer, path: &str) -> (u16, String) {
    ask(server, &format!("GET {path} HTTP/1.1"), "")
}

#[test]
fn readiness_is_the_sentry_s_own() {
    let (server, board) = start(None);
    let app = board.applications()[0].clone();
    assert_eq!(get(&server, "/healthz"), (200, "alive\n".to_owned()));
    assert_eq!(get(&server, "/readyz"), (200, "ready\n".to_owned()));
    app.set_status(ServerId(0), Status::Down);
    assert_eq!(get(&server, "/readyz").0, 200, "servers that are down are no reason for all sentries to leave");
    app.set_status(ServerId(0), Status::Up);
    board.drain();
    assert_eq!(get(&server, "/readyz"), (503, "not ready: draining\n".to_owned()));
    assert_eq!(get(&server, "/healthz").0, 200, "alive until the end");
}

#[test]
fn a_stuck_worker_is_seen() {
    let board = board();
    let app = board.applications()[0].clone();
    let later = |seconds: u64| Timestamp::from_nanos(seconds * 1_000_000_000);
    assert_eq!(pages::stuck(&app.counters, later(60)), None, "it has not begun");
    app.counters.lane(0).beat(later(1));
    assert_eq!(pages::stuck(&app.counters, later(5)), None);
    assert_eq!(pages::stuck(&app.counters, later(12)), Some(0));
}

#[test]
fn metrics_are_open_metrics() {
    let (server, board) = start(None);
    board.applications()[0].counters.lane(0).add(crate::counters::Counter::Status2xx, 3);
    board.reload_failed("test");
    let accept = "GET /metrics HTTP/1.1\r\naccept: application/openmetrics-text; version=1.0.0,text/plain;q=0.5";
    let (status, text) = ask(&server, accept, "");
    assert_eq!(status, 200);
    for line in [
        "# TYPE tidegate_requests_offered counter",
        "tidegate_requests_offered_total{application=\"sh\\\"op\",class=\"gold\"} 0",
        "tidegate_requests_rejected_total{application=\"sh\\\"op\",class=\"rest\",reason=\"threshold\"} 0",
        "# UNIT tidegate_target_seconds seconds",
        "tidegate_target_seconds{application=\"sh\\\"op\"} 1.0",
        "tidegate_server_up{application=\"sh\\\"op\",server=\"127.0.0.1:1\"} 1.0",
        "tidegate_responses_total{application=\"sh\\\"op\",code=\"2xx\"} 3",
        "tidegate_bad_requests_total{application=\"sh\\\"op\",reason=\"both-lengths\"} 0",
        "tidegate_config_reload_failures_total 1",
        "tidegate_build_info{version=\"0.1.0\"} 1",
    ] {
        assert!(text.lines().any(|found| found == line), "{line}\nis not in\n{text}");
    }
    assert!(text.ends_with("# EOF\n"));
    well_formed(&text);
    let (status, plain) = get(&server, "/metrics");
    assert!(status == 200 && plain.contains("# TYPE tidegate_requests_offered_total counter\n"), "{plain}");
    assert!(!plain.contains("# UNIT") && !plain.contains("# EOF"), "the format that everybody reads");
}

#[test]
fn what_the_target_bounds_is_a_metric() {
    let board = board();
    let app = board.applications()[0].clone();
    let sla = FILE.replace("servers", "sla = { statistic = \"mean\", target = \"1s\" }\nservers");
    let by_mean = Config::parse(&sla, Path::new("test.toml")).expect("valid").config.applications.remove(0);
    app.reconfigure(by_mean).expect("the same servers");
    app.set_status(ServerId(0), Status::Up);
    let live = app.live();
    // The mean is 0.1 s, the 95th percentile 1 s.
    for (second, millis) in (1u64..).zip([0; 9].into_iter().chain([1000])) {
        let mut core = app.lock();
        let (at, took) = (Timestamp::from_secs_f64(second as f64 * 2.0), Duration::from_millis(millis));
        let request = live.classifier.classify(&urls::Asked { path: "/gold".into(), agent: "host".into() });
        let Decision::Admit { ticket, .. } = core.controller.handle_arrival(at, request) else { panic!("refused") };
        core.controller.handle_completion(at + took, ticket, Outcome::answered());
    }
    let text = crate::metrics::render(&board);
    let name = "tidegate_sla_response_time_seconds{application=\"sh\\\"op\",class=\"gold\",statistic=\"mean\"} ";
    let value = text.lines().find_map(|line| line.strip_prefix(name)).expect("there").parse::<f64>().expect("a number");
    assert!((0.05..0.2).contains(&value), "{value}");
}

/// The rules of the format that a scraper trips over: one TYPE per family, samples under their family and nowhere
/// else, no series twice, counters ending in `_total`.
fn well_formed(text: &str) {
    let (mut families, mut series) = (std::collections::HashSet::new(), std::collections::HashSet::new());
    let (mut family, mut kind) = ("", "");
    for line in text.lines().take_while(|line| *line != "# EOF") {
        if let Some(declared) = line.strip_prefix("# TYPE ") {
            (family, kind) = declared.split_once(' ').expect("a name and a type");
            assert!(families.insert(family), "{family} is declared twice");
        } else if !line.starts_with('#') {
            let (sample, value) = line.rsplit_once(' ').expect("a value");
            let suffixes: &[&str] = match kind {
                "counter" => &["_total"],
                "info" => &["_info"],
                "histogram" => &["_sum", "_count", "_bucket"],
                _ => &[""],
            };
            let name = sample.split('{').next().expect("a name");
            assert!(suffixes.iter().any(|suffix| name == format!("{family}{suffix}")), "{line}");
            assert!(series.insert(sample), "{sample} is there twice");
            assert!(value.parse::<f64>().is_ok(), "{line}");
        }
    }
    assert!(families.len() > 40, "{} families", families.len());
}

#[test]
fn a_bucket_names_a_request_that_fell_into_it() {
    let board = board();
    let live = board.applications()[0].live();
    let times = live.times(tidegate_engine::ClassId(0)).expect("a class");
    times.observe(Duration::from_millis(30), Some([("trace_id", "0af7651916cd43dd8448eb211c80319c".to_owned())]));
    times.observe(Duration::from_millis(31), None);
    let text = crate::metrics::render(&board);
    let bucket = |bound: &str| {
        let begin = format!(
            "tidegate_response_duration_seconds_bucket{{le=\"{bound}\",application=\"sh\\\"op\",class=\"gold\"}}"
        );
        text.lines()
            .find_map(|line| line.strip_prefix(&begin))
            .unwrap_or_else(|| panic!("{begin} is not in\n{text}"))
            .trim()
    };
    let exemplar = bucket("0.05").strip_prefix("2 # {trace_id=\"0af7651916cd43dd8448eb211c80319c\"} 0.03 ");
    assert!(exemplar.is_some_and(|at| at.parse::<f64>().is_ok()), "{}", bucket("0.05"));
    assert_eq!((bucket("0.025"), bucket("0.1"), bucket("+Inf")), ("0", "2", "2"));
}

#[test]
fn the_documentation_lists_every_family() {
    let text = crate::metrics::render(&board());
    let documented = include_str!("../../../../docs/metrics.md");
    for line in text.lines() {
        if let Some((name, _)) = line.strip_prefix("# TYPE ").and_then(|line| line.split_once(' ')) {
            assert!(documented.contains(&format!("`{name}`")), "{name} is not in docs/metrics.md");
        }
    }
}

#[test]
fn who_leaves_most_is_shown_and_makes_no_series() {
    let (server, board) = start(None);
    let app = board.applications()[0].clone();
    for (client, times) in [("192.0.2.7", 3), ("2001:db8::5", 5)] {
        (0..times).for_each(|_| app.count_cancel(app.now(), client.parse().expect("an address")));
    }
    let state: serde_json::Value = serde_json::from_str(&get(&server, "/api/state").1).expect("JSON");
    let shown = state["applications"][0]["cancels"].as_array().expect("a list").clone();
    let clients: Vec<&str> = shown.iter().filter_map(|leaver| leaver["client"].as_str()).collect();
    assert_eq!(clients, ["2001:db8::", "192.0.2.7"]);
    assert!(shown[0]["recent"].as_f64().is_some_and(|recent| (4.0..=5.0).contains(&recent)), "{shown:?}");
    let metrics = get(&server, "/metrics").1;
    assert!(!metrics.contains("192.0.2.7") && metrics.contains("tidegate_cancels_by_rank"), "{metrics}");
    assert_eq!(metrics.matches("\ntidegate_cancels_by_rank{").count(), 2);
}

#[test]
fn state_and_configuration_are_json() {
    let (server, _board) = start(None);
    let json = |path: &str| -> serde_json::Value { serde_json::from_str(&get(&server, path).1).expect("JSON") };
    assert_eq!(json("/api/state")["applications"][0]["application"], "sh\"op");
    assert_eq!(json("/api/config")["application"][0]["sla"]["steps"][0]["target"], "1s");
    let (status, toml) = get(&server, "/api/config?format=toml");
    assert_eq!(status, 200);
    Config::parse(&toml, Path::new("again.toml")).expect("what is shown is valid");
    assert_eq!(get(&server, "/api/config?format=yaml").0, 400);
    assert_eq!(get(&server, "/nowhere").0, 404);
    assert_eq!(get(&server, "/").0, 200);
}

const TOKEN: &str = "0123456789abcdef";

/// Asks for a change with the token; the status and what is said.
fn post(server: &AdminServer, path: &str, body: &str) -> (u16, String) {
    let kind = "content-type: application/json";
    ask(server, &format!("POST {path} HTTP/1.1\r\nauthorization: Bearer {TOKEN}\r\n{kind}"), body)
}

#[test]
fn changes_need_a_token_even_where_none_is_configured() {
    let (open, board) = start(None);
    let kind = "content-type: application/json";
    for path in ["shadow", "servers/127.0.0.1:1", "classes/gold"] {
        let head = format!("POST /api/applications/sh%22op/{path} HTTP/1.1\r\n{kind}");
        let (status, why) = ask(&open, &head, r#"{"shadow":true}"#);
        assert!(status == 403 && why.contains("token_file in [admin]"), "{path}: {status} {why}");
        let (guarded, _board) = start(Some(TOKEN));
        assert_eq!(ask(&guarded, &head, r#"{"shadow":true}"#).0, 401, "{path}");
    }
    assert!(!board.applications()[0].snapshot().shadow);
}

#[test]
fn shadow_mode_is_switched_by_post() {
    let (server, board) = start(Some(TOKEN));
    let shadow_of = |name: &str, body: &str| post(&server, &format!("/api/applications/{name}/shadow"), body);
    let shadow = || board.applications()[0].snapshot().shadow;
    assert_eq!((shadow_of("sh%22op", r#"{"shadow":true}"#).0, shadow()), (200, true));
    assert_eq!((shadow_of("sh%22op", r#"{"shadow":false}"#).0, shadow()), (200, false));
    assert_eq!(shadow_of("other", r#"{"shadow":true}"#), (404, "no application \"other\"\n".to_owned()));
    for (body, status, why) in [
        (r#"{"shadwo":true}"#, 422, "unknown field `shadwo`, expected `shadow` at line 1 column 9"),
        (r#"{"shadow":"yes"}"#, 422, "shadow: invalid type: string \"yes\", expected a boolean at line 1 column 15"),
        ("{}", 422, "missing field `shadow`"),
        (r#"{"shadow":true"#, 400, "EOF while parsing an object at line 1 column 14"),
    ] {
        let (found, said) = shadow_of("sh%22op", body);
        assert!(found == status && said.contains(why), "{body}: {found} {said}");
    }
    let form = format!("POST /api/applications/sh%22op/shadow HTTP/1.1\r\nauthorization: Bearer {TOKEN}");
    assert_eq!(ask(&server, &form, r#"{"shadow":true}"#).0, 415, "a web form");
    assert!(!shadow());
    let notices: Vec<String> = board.notices().into_iter().map(|notice| notice.text).collect();
    assert_eq!(notices, ["sh\"op: shadow mode, nothing is refused", "sh\"op: refusals are enforced"]);
}

#[test]
fn a_server_drains_and_comes_back_unless_it_is_the_last() {
    let (server, board) = start(Some(TOKEN));
    let drain = |name: &str, drain: bool| {
        let path = format!("/api/applications/sh%22op/servers/{name}");
        post(&server, &path, &format!("{{\"drain\":{drain}}}"))
    };
    assert_eq!(drain("nobody", true).0, 404);
    let (status, why) = drain("127.0.0.1:1", true);
    assert!(status == 409 && why.contains("no other server"), "{status} {why}");
    let app = board.applications()[0].clone();
    app.reconfigure(two_servers()).expect("two servers");
    assert_eq!(drain("127.0.0.1:1", true).0, 200);
    let statuses = || app.snapshot().servers.iter().map(|server| server.status).collect::<Vec<_>>();
    assert_eq!(statuses(), [Status::Draining, Status::Up]);
    let guarantee = post(&server, "/api/applications/sh%22op/classes/gold", r#"{"min_rate":"7/s"}"#);
    assert_eq!((guarantee.0, statuses()), (200, vec![Status::Draining, Status::Up]), "it drains on");
    assert_eq!(drain("127.0.0.1:2", true).0, 409);
    assert_eq!((drain("127.0.0.1:1", false).0, statuses()), (200, vec![Status::Up, Status::Up]));
}

fn two_servers() -> config::Application {
    let text = FILE.replace("\"127.0.0.1:1\"", "[\"127.0.0.1:1\", \"127.0.0.1:2\"]");
    Config::parse(&text, Path::new("test.toml")).expect("valid").config.applications.remove(0)
}

#[test]
fn a_guarantee_is_changed_and_nothing_else() {
    let (server, board) = start(Some(TOKEN));
    let app = board.applications()[0].clone();
    app.set_shadow(true);
    let change = |class: &str, body: &str| post(&server, &format!("/api/applications/sh%22op/classes/{class}"), body);
    let rate = || app.live().config.setup.classes[0].min_rate;
    assert_eq!((change("gold", r#"{"min_rate":"120/min"}"#).0, rate()), (200, 2.0));
    assert_eq!((change("gold", r#"{"min_rate":12.5}"#).0, rate()), (200, 12.5));
    assert!(app.snapshot().shadow, "shadow mode stays on");
    for (body, why) in [
        (r#"{"min_rate":-1}"#, "min_rate = -1 must be from 0 to 1000000000 requests per second"),
        (r#"{"min_rate":1e300}"#, "must be from 0 to"),
        (r#"{"min_rate":"fast"}"#, "\"20/s\""),
        (r#"{"min_rate":null}"#, "min_rate must be a rate such as \"20/s\", or a number"),
        (r#"{"rate":1}"#, "unknown field `rate`, expected `min_rate`"),
    ] {
        let (status, said) = change("gold", body);
        assert!(status == 422 && said.contains(why), "{body}: {status} {said}");
    }
    assert_eq!((change("lead", r#"{"min_rate":1}"#).0, rate()), (404, 12.5));
    let large = format!("{{\"min_rate\":\"{}\"}}", "9".repeat(20_000));
    assert_eq!(change("gold", &large).0, 413);
}

#[test]
fn a_token_guards_everything_but_health_and_the_empty_page() {
    let (server, _board) = start(Some(TOKEN));
    for path in ["/metrics", "/api/state", "/api/config", "/api/events", "/api/stream", "/api/history?application=x"] {
        assert_eq!(get(&server, path).0, 401, "{path}");
    }
    for path in ["/", "/dashboard/main.js", "/healthz", "/readyz"] {
        assert_eq!(get(&server, path).0, 200, "{path}");
    }
    let authorised = format!("GET /api/state HTTP/1.1\r\nauthorization: Bearer {TOKEN}");
    assert_eq!(ask(&server, &authorised, "").0, 200);
}

#[test]
fn pages_may_only_run_what_was_built_in() {
    let (server, _board) = start(None);
    let mut answer = String::new();
    send(&server, "GET / HTTP/1.1", "").read_to_string(&mut answer).expect("an answer");
    let head = answer.split("\r\n\r\n").next().expect("a head").to_lowercase();
    for part in
        ["default-src 'none'", "script-src 'self';", "require-trusted-types-for 'script'", "frame-ancestors 'none'"]
    {
        assert!(head.contains(part), "{part} is not in\n{head}");
    }
    assert!(!head.contains("unsafe"), "{head}");
    assert!(head.contains("x-content-type-options: nosniff"), "{head}");
}

#[test]
fn the_stream_says_hello_then_a_second_each_second_and_every_event() {
    let (server, board) = start(None);
    let mut lines = BufReader::new(send(&server, "GET /api/stream HTTP/1.1", "")).lines();
    let json = |data: &str| -> serde_json::Value { serde_json::from_str(data).expect("JSON") };
    let (_, name, data) = event(&mut lines);
    assert_eq!((name.as_str(), &json(&data)["changes"]), ("hello", &false.into()));
    board.applications()[0].set_status(ServerId(0), Status::Down);
    let (mut seconds, mut events) = (Vec::new(), Vec::new());
    while seconds.len() < 2 || events.is_empty() {
        match event(&mut lines) {
            // A viewer that comes before the first second is over is told of none.
            (_, name, data) if name == "second" && !data.contains("\"at\":[]") => seconds.push(json(&data)),
            (_, name, _) if name == "second" => {}
            (_, name, _) => events.push(name),
        }
    }
    assert_eq!(events, ["server-changed"]);
    let app = &seconds[1]["applications"][0];
    assert_eq!((&app["application"], &app["classes"][0]["min_rate"]), (&"sh\"op".into(), &0.0.into()));
    assert_eq!(app["latest"]["classes"][1]["name"], "rest");
    assert_eq!(app["latest"]["at"].as_array().map(Vec::len), Some(1));
    assert_eq!(app["servers"][0]["address"], "127.0.0.1:1");
    let (status, history) = get(&server, "/api/history?application=sh%22op");
    assert!(status == 200 && !json(&history)["at"].as_array().expect("times").is_empty(), "{history}");
    assert_eq!(get(&server, "/api/history?application=other").0, 404);
    assert_eq!(get(&server, "/api/history").0, 400);
}

#[test]
fn a_viewer_that_does_not_follow_is_cut_off_and_nobody_waits_for_it() {
    let board = board();
    let recorder = Recorder::new();
    let mut slow = recorder.subscribe();
    (0..60).for_each(|_| recorder.record(&board));
    let lagged = slow.try_recv().expect_err("it lagged");
    assert!(matches!(lagged, tokio::sync::broadcast::error::TryRecvError::Lagged(n) if n > 40), "{lagged}");
}

/// Reads one event: its id, name and data.
fn event(lines: &mut impl Iterator<Item = std::io::Result<String>>) -> (String, String, String) {
    let (mut id, mut name, mut data) = <(String, String, String)>::default();
    loop {
        let line = lines.next().expect("more").expect("in time");
        let field = |name: &str| line.strip_prefix(name).map(|rest| rest.trim().to_owned());
        id = field("id:").unwrap_or(id);
        name = field("event:").unwrap_or(name);
        data = field("data:").unwrap_or(data);
        if line.is_empty() && !data.is_empty() {
            return (id, name, data);
        }
    }
}

#[test]
fn events_are_kept_then_live_and_resumed_where_a_viewer_left() {
    let (server, board) = start(None);
    board.reload_failed("one \"quoted\"\nline");
    let app = board.applications()[0].clone();
    let mut lines = BufReader::new(send(&server, "GET /api/events HTTP/1.1", "")).lines();
    let (first_id, name, data) = event(&mut lines);
    assert_eq!(name, "config-reload-failed");
    assert_eq!(serde_json::from_str::<serde_json::Value>(&data).expect("JSON")["text"], "one \"quoted\"\nline");
    app.set_status(ServerId(0), Status::Down);
    let (_, name, data) = event(&mut lines);
    let data: serde_json::Value = serde_json::from_str(&data).expect("JSON");
    assert_eq!(
        (name.as_str(), &data["server"], &data["status"]),
        ("server-changed", &"127.0.0.1:1".into(), &"down".into())
    );
    drop(lines);

    let resume = format!("GET /api/events HTTP/1.1\r\nlast-event-id: {first_id}");
    let mut lines = BufReader::new(send(&server, &resume, "")).lines();
    assert_eq!(event(&mut lines).1, "server-changed", "the first event is not sent again");
    board.drain();
    assert_eq!(event(&mut lines).1, "draining");
}

#[test]
fn stopping_does_not_wait_for_viewers() {
    let (server, _board) = start(None);
    let mut viewer = send(&server, "GET /api/events HTTP/1.1", "");
    viewer.read_exact(&mut [0; 12]).expect("the head of the answer");
    drop(server);
    let mut rest = Vec::new();
    // An end or a reset: either way the viewer is told.
    let _ = viewer.read_to_end(&mut rest);
}
