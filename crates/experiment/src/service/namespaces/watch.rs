//! What a sentry's controllers do while a load runs, once a second.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::NamespacesError;
use super::spaces::{Space, Spaces};
use crate::outcome::{Connections, Control};
use crate::service::processes::get;

/// Looks at a sentry once a second, from its namespace. Dropped, it ends.
#[derive(Debug)]
pub(super) struct Watch {
    thread: Option<JoinHandle<Result<Seen, NamespacesError>>>,
    stop: Arc<AtomicBool>,
}

/// What was seen.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// What controllers let in, `syn` that of connections.
    pub(super) controls: Vec<Control>,
    /// What became of new connections.
    pub(super) connections: Vec<Connections>,
}

impl Watch {
    /// Begins now: this is second 0.
    ///
    /// # Errors
    /// When there is no thread for it.
    pub(super) fn start(spaces: &Spaces, admin: SocketAddr) -> Result<Watch, NamespacesError> {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = spaces.spawn(Space::Server, move || look(admin, &stopped))?;
        Ok(Watch { thread: Some(thread), stop })
    }

    /// Ends it.
    pub(super) fn finish(mut self) -> Seen {
        self.stop.store(true, Relaxed);
        let seen = self.thread.take().and_then(|thread| thread.join().ok());
        seen.and_then(Result::ok).unwrap_or_default()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
    }
}

fn look(admin: SocketAddr, stop: &AtomicBool) -> Seen {
    let (begin, mut seen) = (Instant::now(), Seen::default());
    let mut due = begin;
    while !stop.load(Relaxed) {
        // A sentry too busy to answer leaves a gap, no more.
        if let Some(state) = get(admin, "/api/state") {
            seen.add(begin.elapsed().as_secs(), &state["applications"][0]);
        }
        due += Duration::from_secs(1);
        while !stop.load(Relaxed) && Instant::now() < due {
            thread::sleep(Duration::from_millis(20));
        }
    }
    seen
}

impl Seen {
    fn add(&mut self, second: u64, state: &Value) {
        let list = |list: &Value| list.as_array().cloned().unwrap_or_default();
        self.controls.extend(list(&state["policy"]["resources"]).iter().map(|resource| Control {
            second,
            request: resource["resource"].as_str().unwrap_or_default().to_owned(),
            class: "all".to_owned(),
            rate: resource["rate"].as_f64(),
            percentile: None,
            quality: 1.0,
        }));
        let connections = &state["connections"];
        self.connections.push(Connections {
            second,
            turned_away: list(&connections["classes"]).iter().filter_map(|class| class["refused"].as_f64()).sum(),
            change: connections["last_change_seconds"].as_f64(),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_state_is_rates_and_connections() {
        let mut seen = Seen::default();
        let resource = |name: &str, rate: Option<f64>| json!({ "resource": name, "rate": rate, "why": "kept" });
        seen.add(
            3,
            &json!({
                "policy": { "resources": [resource("cpu", Some(74.0)), resource("syn", None)] },
                "connections": { "classes": [{ "refused": 2 }, { "refused": 5 }], "last_change_seconds": 4e-5 },
            }),
        );
        let rates: Vec<_> = seen.controls.iter().map(|at| (at.second, at.request.as_str(), at.rate)).collect();
        assert_eq!(rates, [(3, "cpu", Some(74.0)), (3, "syn", None)]);
        assert_eq!(seen.connections, [Connections { second: 3, turned_away: 7.0, change: Some(4e-5) }]);
        seen.add(4, &Value::Null);
        assert_eq!(seen.connections[1], Connections { second: 4, ..Connections::default() });
    }
}
