//! The state as JSON: what the engine shows, and what only the sentry knows.

use std::collections::HashMap;

use serde_json::{Value, json};
use tidegate_classify::network_of;
use tidegate_engine::Snapshot;

use crate::acme;
use crate::app::App;
use crate::board::Board;
use crate::need::servers_needed;

/// How many of the clients are shown that left most requests behind.
const LEAVERS: usize = 10;

/// The process, without its applications.
pub(super) fn process(board: &Board) -> Value {
    let (reloads, reload_failures) = board.reload_counts();
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "uptime": board.uptime().as_secs_f64(),
        "draining": board.draining(),
        "cpus_busy": board.cpu(),
        "reloads": reloads,
        "reload_failures": reload_failures,
        "access_log_dropped": board.dropped_records(),
    })
}

/// An application: its snapshot, the guarantees in force, where its servers are and when their nuclei reported last.
pub(super) fn application(board: &Board, app: &App, snapshot: &Snapshot) -> Value {
    let live = app.live();
    let mut value = serde_json::to_value(snapshot).unwrap_or_default();
    value["draining"] = app.draining().into();
    value["servers_needed"] = servers_needed(snapshot, &live.config.setup.sla).into();
    value["connections"] = connections(app);
    value["cancels"] = serde_json::to_value(app.leavers(LEAVERS)).unwrap_or_default();
    for (shown, tenant) in value["tenants"].as_array_mut().into_iter().flatten().zip(&snapshot.tenants) {
        shown["network"] = network_of(tenant.tenant).map(|network| network.to_string()).into();
    }
    let rates: HashMap<&str, f64> =
        live.config.setup.classes.iter().map(|class| (class.name.as_str(), class.min_rate)).collect();
    each(&mut value["classes"], |name| ("min_rate", rates.get(name).copied().into()));
    let addresses: HashMap<&str, &str> =
        live.servers().map(|server| (server.name.as_str(), server.address.as_str())).collect();
    each(&mut value["servers"], |name| ("address", addresses.get(name).copied().into()));
    value["acme"] = live.config.tls.as_ref().and_then(|tls| tls.acme.as_ref()).map(acme::shown).into();
    let checks: HashMap<&str, Value> =
        live.servers().map(|server| (server.name.as_str(), server.checks.shown(app.now()))).collect();
    each(&mut value["servers"], |name| ("checks", checks.get(name).cloned().into()));
    if let Some(reports) = board.reports() {
        let nuclei: HashMap<String, Value> = reports
            .nuclei()
            .into_iter()
            .map(|(address, state, age)| (address, json!({ "state": state.name(), "age": age })))
            .collect();
        each(&mut value["servers"], |name| {
            ("nucleus", addresses.get(name).and_then(|at| nuclei.get(*at)).cloned().into())
        });
    }
    value
}

/// What turns new connections away and why, at which rate, and how many were.
fn connections(app: &App) -> Value {
    let in_force = app.syn.in_force();
    json!({
        "mechanism": in_force.mechanism,
        "why": in_force.why,
        "rate": app.syn.rate(),
        "classes": app.syn.counts(),
        "rate_changes": app.syn.changes(),
        "last_change_seconds": app.syn.change_took().map(|took| took.as_secs_f64()),
    })
}

/// Adds to each named object of a list.
fn each(list: &mut Value, more: impl Fn(&str) -> (&'static str, Value)) {
    for object in list.as_array_mut().into_iter().flatten() {
        let (key, value) = more(object["name"].as_str().unwrap_or_default());
        object[key] = value;
    }
}
