use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;

use super::*;
use crate::app::App;
use crate::config::Config;
use crate::record::NoRecords;
use tidegate_engine::{ServerId, Status};

const FILE: &str = "[[application]]\nname = \"sh\\\"op\"\nservers = \"127.0.0.1:1\"\n\
                    [[application.class]]\nname = \"gold\"\nmatch = { path = \"/gold\" }\n\
                    [[application.class]]\nname = \"rest\"\n";

fn board() -> Arc<Board> {
    let config = Config::parse(FILE, Path::new("test.toml")).expect("valid").config;
    let app = App::new(config.applications[0].clone(), 1, 7, Arc::new(NoRecords)).expect("an application");
    Arc::new(Board::new(config, vec![Arc::new(app)], Arc::default()))
}

fn start(token: Option<&str>) -> (AdminServer, Arc<Board>) {
    let board = board();
    let admin = config::Admin { listen: None, token: token.map(str::to_owned) };
    let listen = SocketAddr::from(([127, 0, 0, 1], 0));
    (AdminServer::start(listen, &admin, board.clone()).expect("starts"), board)
}

/// Sends a request on a connection of its own; the stream is read with a time limit, so that a mistake fails the test.
fn send(server: &AdminServer, head: &str, body: &str) -> TcpStream {
    let mut stream = TcpStream::connect(server.address()).expect("connects");
    stream.set_read_timeout(Some(Duration::from_secs(10))).expect("a time limit");
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
fn readiness_follows_the_servers_and_the_drain() {
    let (server, board) = start(None);
    let app = board.applications()[0].clone();
    assert_eq!(get(&server, "/healthz"), (200, "alive\n".to_owned()));
    assert_eq!(get(&server, "/readyz"), (200, "ready\n".to_owned()));
    app.set_status(ServerId(0), Status::Down);
    let why = "not ready: application \"sh\"op\" has no server that is up\n".to_owned();
    assert_eq!(get(&server, "/readyz"), (503, why));
    app.set_status(ServerId(0), Status::Up);
    board.drain();
    assert_eq!(get(&server, "/readyz"), (503, "not ready: draining\n".to_owned()));
    assert_eq!(get(&server, "/healthz").0, 200, "alive until the end");
}

#[test]
fn metrics_are_open_metrics() {
    let (server, board) = start(None);
    board.applications()[0].counters.lane(0).add(crate::counters::Counter::Status2xx, 3);
    board.reload_failed("test");
    let (status, text) = get(&server, "/metrics");
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
            let suffix = match kind {
                "counter" => "_total",
                "info" => "_info",
                _ => "",
            };
            let name = sample.split('{').next().expect("a name");
            assert_eq!(name, format!("{family}{suffix}"), "{line}");
            assert!(series.insert(sample), "{sample} is there twice");
            assert!(value.parse::<f64>().is_ok(), "{line}");
        }
    }
    assert!(families.len() > 40, "{} families", families.len());
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

#[test]
fn shadow_mode_is_switched_by_post() {
    let (server, board) = start(None);
    let post = |name: &str, body: &str| {
        let head = format!("POST /api/applications/{name}/shadow HTTP/1.1\r\ncontent-type: application/json");
        ask(&server, &head, body).0
    };
    let shadow = || board.applications()[0].snapshot().shadow;
    assert_eq!((post("sh%22op", r#"{"shadow":true}"#), shadow()), (200, true));
    assert_eq!((post("sh%22op", r#"{"shadow":false}"#), shadow()), (200, false));
    assert_eq!(post("other", r#"{"shadow":true}"#), 404);
    assert_eq!(post("sh%22op", r#"{"shadwo":true}"#), 422);
    assert_eq!(
        ask(&server, "POST /api/applications/sh%22op/shadow HTTP/1.1", r#"{"shadow":true}"#).0,
        415,
        "a web form"
    );
    assert!(!shadow());
}

#[test]
fn a_token_guards_everything_but_health() {
    let (server, _board) = start(Some("0123456789abcdef"));
    for path in ["/", "/metrics", "/api/state", "/api/config", "/api/events"] {
        assert_eq!(get(&server, path).0, 401, "{path}");
    }
    assert_eq!((get(&server, "/healthz").0, get(&server, "/readyz").0), (200, 200));
    let authorised = "GET /api/state HTTP/1.1\r\nauthorization: Bearer 0123456789abcdef";
    assert_eq!(ask(&server, authorised, "").0, 200);
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
