//! The history as JSON: one array for each number, which is what charts take and half the size of objects.

use serde_json::{Map, Value, json};
use tidegate_engine::Reason;

use super::{ClassSecond, History, Second};

impl History {
    /// What is kept of the time after `since`, seconds since the process began; oldest first.
    pub fn columns(&self, since: f64) -> Value {
        let from = self.seconds.partition_point(|second| second.at_ms as f64 / 1000.0 <= since);
        self.columns_from(from)
    }

    /// The newest second alone, in the same form; arrays are empty while there is none.
    pub fn newest(&self) -> Value {
        self.columns_from(self.seconds.len().saturating_sub(1))
    }

    fn columns_from(&self, from: usize) -> Value {
        let column = |of: &dyn Fn(&Second) -> Value| -> Value { self.seconds.range(from..).map(of).collect() };
        json!({
            "at": column(&|second| (second.at_ms as f64 / 1000.0).into()),
            "span": column(&|second| (f64::from(second.span_ms) / 1000.0).into()),
            "target": column(&|second| measured(second.target)),
            "shadow": column(&|second| u8::from(second.shadow).into()),
            "in_flight": column(&|second| second.in_flight.into()),
            "waiting": column(&|second| second.waiting.into()),
            "rejected": self.reasons_from(from),
            "controller": self.gauges_from(from),
            "classes": (0..self.classes.len()).map(|class| self.class_from(from, class)).collect::<Value>(),
        })
    }

    /// By reason; only reasons that occurred.
    fn reasons_from(&self, from: usize) -> Value {
        let mut out = Map::new();
        for (index, reason) in Reason::ALL.iter().enumerate() {
            let column = || self.seconds.range(from..).map(|second| second.reasons[index]);
            if column().any(|count| count > 0) {
                out.insert(reason.name().to_owned(), column().collect());
            }
        }
        out.into()
    }

    fn gauges_from(&self, from: usize) -> Value {
        let mut out = Map::new();
        for (slot, gauge) in self.gauges.iter().enumerate() {
            let column = || self.seconds.range(from..).map(|second| second.gauges[slot]);
            if column().any(|value| !value.is_nan()) {
                out.insert(gauge.name.clone(), column().map(measured).collect());
            }
        }
        out.into()
    }

    fn class_from(&self, from: usize, class: usize) -> Value {
        let width = self.classes.len();
        let column = |of: &dyn Fn(&ClassSecond) -> Value| -> Value {
            (from..self.seconds.len()).map(|second| of(&self.by_class[second * width + class])).collect()
        };
        json!({
            "name": self.classes[class].name,
            "offered": column(&|second| second.offered.into()),
            "admitted": column(&|second| second.admitted.into()),
            "rejected": column(&|second| second.rejected.into()),
            "completed": column(&|second| second.completed.into()),
            "in_target": column(&|second| second.in_target.into()),
            "failed": column(&|second| second.failed.into()),
            "in_flight": column(&|second| second.in_flight.into()),
            "waiting": column(&|second| second.waiting.into()),
            "p50": column(&|second| measured(second.p50)),
            "p95": column(&|second| measured(second.p95)),
            "p99": column(&|second| measured(second.p99)),
            "statistic": column(&|second| measured(second.statistic)),
        })
    }
}

/// Four digits: more is noise. `null` for what was not measured.
fn measured(value: f32) -> Value {
    if !value.is_finite() {
        return Value::Null;
    }
    let value = f64::from(value);
    let scale = 10f64.powi(3 - value.abs().max(1e-9).log10().floor() as i32);
    json!((value * scale).round() / scale)
}
