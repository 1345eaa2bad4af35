//! The answers that end at once.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::Value;
use tidegate_engine::Timestamp;

use super::{Admin, view};
use crate::board::Board;
use crate::counters::Counters;
use crate::metrics;

type Shared = State<Arc<Admin>>;

/// OpenMetrics for whoever accepts it, else the text format from before it.
pub(super) async fn metrics(State(admin): Shared, headers: HeaderMap) -> Response {
    let text = metrics::render(&admin.board);
    let accepted = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    if accepted.into_iter().any(|value| value.contains("application/openmetrics-text")) {
        ([(header::CONTENT_TYPE, metrics::CONTENT_TYPE)], text).into_response()
    } else {
        ([(header::CONTENT_TYPE, metrics::plain::CONTENT_TYPE)], metrics::plain::plain(&text)).into_response()
    }
}

/// A worker that has not looked after its connections for so long is stuck. It does four times in the shortest
/// time-out, once a second at least.
const STUCK: Duration = Duration::from_secs(10);

/// Alive while every worker is.
pub(super) async fn healthz(State(admin): Shared) -> Response {
    let apps = admin.board.applications();
    match apps.iter().find_map(|app| stuck(&app.counters, app.now())) {
        Some(worker) => (StatusCode::SERVICE_UNAVAILABLE, format!("worker {worker} is stuck\n")).into_response(),
        None => "alive\n".into_response(),
    }
}

/// The worker that is stuck at `now`, if one is.
pub(crate) fn stuck(counters: &Counters, now: Timestamp) -> Option<usize> {
    counters.last_beat().filter(|(_, seen)| now.since(*seen) > STUCK).map(|(worker, _)| worker)
}

/// Ready while it takes requests. Whether servers are up is theirs: all sentries would leave service at once.
pub(super) async fn readyz(State(admin): Shared) -> Response {
    match not_ready(&admin.board) {
        None => "ready\n".into_response(),
        Some(why) => (StatusCode::SERVICE_UNAVAILABLE, format!("not ready: {why}\n")).into_response(),
    }
}

/// Why it takes no requests, if it does not.
pub(super) fn not_ready(board: &Board) -> Option<String> {
    if board.draining() {
        return Some("draining".to_owned());
    }
    let apps = board.applications();
    let draining = apps.iter().find(|app| app.draining());
    draining.map(|app| format!("application \"{}\" is draining", app.name()))
}

/// Everything there is to see.
pub(super) async fn state(State(admin): Shared) -> Json<Value> {
    let board = &admin.board;
    let applications = board.applications();
    let applications = applications.iter().map(|app| view::application(&admin.board, app, &app.snapshot()));
    let mut state = view::process(board);
    state["applications"] = applications.collect();
    state["control"] = board.control().map_or(Value::Null, |view| view.to_json());
    state["sources"] = board.names().map_or(Value::Null, |view| view.to_json());
    state["peers"] = board.peers().map_or(Value::Null, |view| view.to_json());
    state["reports"] = board.reports().map_or(Value::Null, |view| view.to_json());
    Json(state)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Since {
    application: String,
    /// Seconds since the process began; everything kept when left out.
    since: Option<f64>,
}

/// The last hour of an application, second by second.
pub(super) async fn history(State(admin): Shared, Query(wanted): Query<Since>) -> Response {
    match admin.recorder.columns(&wanted.application, wanted.since.unwrap_or(0.0)) {
        Some(columns) => Json(columns).into_response(),
        None => no_application(&wanted.application),
    }
}

/// The answer about an application that is not there.
pub(super) fn no_application(name: &str) -> Response {
    (StatusCode::NOT_FOUND, format!("no application \"{name}\"\n")).into_response()
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
