//! A sample: all measurements of one instant.

use serde_json::{Value, json};
use tidegate_wire::{Connection, Gauges};

/// Everything measured at an instant.
#[derive(Clone, Debug, Default)]
pub struct Sample {
    /// The measured values, by gauge.
    pub gauges: Gauges,
    /// Requests in service by request type, where the server tells.
    pub active: Vec<(String, f64)>,
    /// Processor time by connection, where that is measured.
    pub connections: Vec<Connection>,
}

impl Sample {
    /// The sample as JSON: what `tidegate nucleus --once` prints.
    pub fn to_json(&self, server: &str) -> Value {
        let gauges: serde_json::Map<String, Value> =
            self.gauges.iter().map(|(gauge, value)| (gauge.name().to_owned(), json!(value))).collect();
        let active: serde_json::Map<String, Value> =
            self.active.iter().map(|(name, count)| (name.clone(), json!(count))).collect();
        let connection = |connection: &Connection| json!({ "peer": connection.peer.to_string(), "cpu_seconds": connection.cpu_ns as f64 * 1e-9 });
        json!({
            "server": server,
            "measured": gauges,
            "active": active,
            "connections": self.connections.iter().map(connection).collect::<Vec<_>>(),
        })
    }
}
