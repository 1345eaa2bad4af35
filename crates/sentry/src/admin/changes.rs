//! What can be changed by hand. Every change lasts until the next reload, which brings the file's settings back, and is
//! an event.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};
use tidegate_engine::units::parse_rate;
use tidegate_engine::{ClassId, Status};

use super::Admin;
use super::pages::no_application;

type Shared = State<Arc<Admin>>;

/// More than any guarantee means, and far below what arithmetic bears.
const HIGHEST_RATE: f64 = 1e9;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Shadow {
    shadow: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Server {
    drain: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Class {
    #[serde(deserialize_with = "rate")]
    min_rate: f64,
}

/// Decides and counts without refusing, or enforces.
pub(super) async fn shadow(State(admin): Shared, Path(name): Path<String>, Json(wanted): Json<Shadow>) -> Response {
    let Some(app) = admin.board.application(&name) else { return no_application(&name) };
    app.set_shadow(wanted.shadow);
    admin.board.changed(match wanted.shadow {
        true => format!("{name}: shadow mode, nothing is refused"),
        false => format!("{name}: refusals are enforced"),
    });
    Json(json!({ "application": name, "shadow": wanted.shadow })).into_response()
}

/// Lets a server finish what it has and gives it nothing new, or takes it back.
pub(super) async fn server(
    State(admin): Shared,
    Path((name, server)): Path<(String, String)>,
    Json(wanted): Json<Server>,
) -> Response {
    let Some(app) = admin.board.application(&name) else { return no_application(&name) };
    let live = app.live();
    let configured = |name: &str| live.config.servers.iter().any(|server| server.name == name);
    let Some(found) = live.servers().find(|found| found.name == server && configured(&found.name)) else {
        return refuse(StatusCode::NOT_FOUND, format!("application \"{name}\" has no server \"{server}\""));
    };
    let others_up = live.servers().any(|other| other.id != found.id && other.status() == Status::Up);
    match (wanted.drain, found.status()) {
        (true, Status::Draining) => {}
        (true, _) if !others_up => {
            let why = format!("\"{server}\" stays: no other server of \"{name}\" is up to take its requests");
            return refuse(StatusCode::CONFLICT, why);
        }
        (true, _) => {
            app.set_status(found.id, Status::Draining);
            admin.board.changed(format!("{name}: server {server} drains"));
        }
        // Health checks take it down again if it does not answer.
        (false, Status::Draining) => {
            app.set_status(found.id, Status::Up);
            admin.board.changed(format!("{name}: server {server} takes requests again"));
        }
        (false, _) => {}
    }
    Json(json!({ "application": name, "server": server, "status": found.status() })).into_response()
}

/// Changes a class's guaranteed rate.
pub(super) async fn class(
    State(admin): Shared,
    Path((name, class)): Path<(String, String)>,
    Json(wanted): Json<Class>,
) -> Response {
    let Some(app) = admin.board.application(&name) else { return no_application(&name) };
    let position = app.live().config.setup.classes.iter().position(|candidate| candidate.name == class);
    let Some(position) = position else {
        return refuse(StatusCode::NOT_FOUND, format!("application \"{name}\" has no class \"{class}\""));
    };
    if let Err(error) = app.set_guarantee(ClassId(position as u8), wanted.min_rate) {
        return refuse(StatusCode::UNPROCESSABLE_ENTITY, error.to_string());
    }
    admin.board.changed(format!("{name}: class {class} is guaranteed {}/s", wanted.min_rate));
    Json(json!({ "application": name, "class": class, "min_rate": wanted.min_rate })).into_response()
}

fn refuse(status: StatusCode, why: String) -> Response {
    (status, why + "\n").into_response()
}

/// Requests per second: `"20/s"`, or a number.
fn rate<'de, D: Deserializer<'de>>(given: D) -> Result<f64, D::Error> {
    use serde::de::Error as _;
    let rate = match Value::deserialize(given)? {
        Value::Number(number) => number.as_f64().unwrap_or(f64::INFINITY),
        Value::String(text) => parse_rate(&text).map_err(D::Error::custom)?,
        _ => return Err(D::Error::custom("min_rate must be a rate such as \"20/s\", or a number")),
    };
    match (0.0..=HIGHEST_RATE).contains(&rate) {
        true => Ok(rate),
        false => {
            Err(D::Error::custom(format!("min_rate = {rate} must be from 0 to {HIGHEST_RATE} requests per second")))
        }
    }
}
