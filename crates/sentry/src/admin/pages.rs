//! The answers that end at once.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, Query, State};
use axum::http::{StatusCode, header};
use axum::response::{Html, IntoResponse, Response};
use serde::Deserialize;
use serde_json::{Value, json};
use tidegate_engine::{Snapshot, Status};

use super::Admin;
use crate::board::Board;
use crate::metrics;

type Shared = State<Arc<Admin>>;

/// What there is to ask for.
pub(super) async fn index() -> Html<&'static str> {
    Html(INDEX)
}

const INDEX: &str = r#"<!doctype html>
<html lang="en"><meta charset="utf-8"><title>tidegate</title>
<h1>tidegate</h1>
<ul>
<li><a href="/metrics">/metrics</a>: OpenMetrics
<li><a href="/healthz">/healthz</a>: the process is alive
<li><a href="/readyz">/readyz</a>: it takes requests, and every application has a server
<li><a href="/api/state">/api/state</a>: everything there is to see, as JSON
<li><a href="/api/config">/api/config</a>: the configuration in force, as JSON
<li><a href="/api/config?format=toml">/api/config?format=toml</a>: the same as TOML
<li><a href="/api/events">/api/events</a>: recent events, then live ones (server-sent events)
<li>POST /api/applications/NAME/shadow {"shadow": true}: decide and count, but refuse nothing
</ul>
</html>
"#;

pub(super) async fn metrics(State(admin): Shared) -> Response {
    ([(header::CONTENT_TYPE, metrics::CONTENT_TYPE)], metrics::render(&admin.board)).into_response()
}

pub(super) async fn healthz() -> &'static str {
    "alive\n"
}

/// Ready while it takes requests and every application has a server that is up.
pub(super) async fn readyz(State(admin): Shared) -> Response {
    match not_ready(&admin.board) {
        None => "ready\n".into_response(),
        Some(why) => (StatusCode::SERVICE_UNAVAILABLE, format!("not ready: {why}\n")).into_response(),
    }
}

fn not_ready(board: &Board) -> Option<String> {
    if board.draining() {
        return Some("draining".to_owned());
    }
    let apps = board.applications();
    if let Some(app) = apps.iter().find(|app| app.draining()) {
        return Some(format!("application \"{}\" is draining", app.name()));
    }
    let down = apps.iter().find(|app| !app.live().servers().any(|server| server.status() == Status::Up));
    down.map(|app| format!("application \"{}\" has no server that is up", app.name()))
}

/// Everything there is to see.
pub(super) async fn state(State(admin): Shared) -> Json<Value> {
    let board = &admin.board;
    let applications: Vec<Snapshot> = board.applications().iter().map(|app| app.snapshot()).collect();
    let (reloads, reload_failures) = board.reload_counts();
    Json(json!({
        "version": env!("CARGO_PKG_VERSION"),
        "uptime": board.uptime().as_secs_f64(),
        "draining": board.draining(),
        "cpus_busy": board.cpu(),
        "reloads": reloads,
        "reload_failures": reload_failures,
        "access_log_dropped": board.dropped_records(),
        "applications": applications,
        "reports": board.reports().map(|view| view.to_json()),
    }))
}

#[derive(Deserialize)]
pub(super) struct Format {
    format: Option<String>,
}

/// The configuration in force, its token hidden.
pub(super) async fn config(State(admin): Shared, Query(wanted): Query<Format>) -> Response {
    let config = admin.board.config();
    match wanted.format.as_deref() {
        None | Some("json") => Json(config.to_json()).into_response(),
        Some("toml") => ([(header::CONTENT_TYPE, "application/toml")], config.to_masked_toml()).into_response(),
        Some(_) => (StatusCode::BAD_REQUEST, "format is json or toml\n").into_response(),
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Shadow {
    shadow: bool,
}

/// Switches shadow mode until the next reload, which brings the file's setting back.
pub(super) async fn shadow(State(admin): Shared, Path(name): Path<String>, Json(wanted): Json<Shadow>) -> Response {
    let Some(app) = admin.board.application(&name) else {
        return (StatusCode::NOT_FOUND, format!("no application \"{name}\"\n")).into_response();
    };
    app.set_shadow(wanted.shadow);
    Json(json!({ "application": name, "shadow": wanted.shadow })).into_response()
}
