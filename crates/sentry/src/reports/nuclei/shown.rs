//! What is shown of nuclei: states, ages, last reports, divided cores.

use serde_json::{Value, json};
use tidegate_engine::ServerId;

use super::super::cores::Division;
use super::{Entry, Nuclei, NucleusState};

impl Nuclei {
    pub(in crate::reports) fn state(&self, server: &str) -> Option<NucleusState> {
        self.names.get(server).map(|&at| self.entries[at].state)
    }

    /// Server, state, and seconds since the last report.
    pub(in crate::reports) fn nuclei(&self) -> Vec<(String, NucleusState, Option<f64>)> {
        self.entries.iter().map(|entry| (entry.address.clone(), entry.state, self.age(entry))).collect()
    }

    /// Of every server whose cores are divided: its address, and how.
    pub(in crate::reports) fn divisions(&self) -> Vec<(String, Division)> {
        let shown = |entry: &Entry| Some((entry.address.clone(), entry.cores.show(self.now)?));
        self.entries.iter().filter_map(shown).collect()
    }

    pub(in crate::reports) fn to_json(&self) -> Value {
        self.entries.iter().map(|entry| self.show(entry)).collect()
    }

    fn show(&self, entry: &Entry) -> Value {
        let named = |(app, _, name): &(usize, ServerId, String)| json!({ "application": self.apps[*app].name(), "server": name });
        let gauges: serde_json::Map<String, Value> =
            entry.gauges.iter().map(|(gauge, value)| (gauge.name().to_owned(), json!(value))).collect();
        let active: serde_json::Map<String, Value> =
            entry.active.iter().map(|(name, count)| (name.clone(), json!(count))).collect();
        json!({
            "address": entry.address,
            "servers": entry.places.iter().map(named).collect::<Vec<_>>(),
            "state": entry.state.name(),
            "key": entry.key.as_ref().map(|key| json!({ "own": key.is_own(), "entry": key.entry() })),
            "excluded": self.excludes(entry),
            "age": self.age(entry),
            "reports": entry.reports,
            "restarts": entry.session.generation().saturating_sub(1),
            "last": gauges,
            "active": active,
            "connections": entry.connections,
            "isolation": entry.cores.show(self.now),
        })
    }

    pub(super) fn age(&self, entry: &Entry) -> Option<f64> {
        (entry.reports > 0).then(|| (self.now - entry.heard) as f64 * 1e-9)
    }
}
