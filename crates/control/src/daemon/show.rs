//! What the daemon shows of itself.

use serde_json::{Value, json};
use tidegate_engine::provision::Place;
use tracing::error;

use super::{Daemon, Question, name};

/// The most records of one answer.
const PAGE: usize = 1000;

impl Daemon {
    pub(super) fn answer(&self, question: Question) -> Value {
        match question {
            Question::Status => self.status(),
            Question::Metrics => self.metrics(),
            Question::State => self.state(),
            Question::Plan => json!(self.plane.plan()),
            // Who asks must not be able to end it.
            Question::Audit(after) => self.store.audit(after, PAGE).map_or_else(
                |error| {
                    error!("the audit log cannot be read: {error}");
                    Value::Null
                },
                Value::Array,
            ),
        }
    }

    fn status(&self) -> Value {
        json!({
            "role": "leads",
            "dry_run": self.dry_run,
            "term": self.store.term(),
            "store_away": self.away.as_ref().map(|away| &away.why),
            "label_problem": self.store.label_problem(),
        })
    }

    /// What is counted: no more work than reading it.
    fn metrics(&self) -> Value {
        let sentry = |(_, known): (&String, &crate::desk::Known)| json!({ "connected": known.connection.is_some() });
        json!({
            "role": "leads",
            "term": self.store.term(),
            "store_away": self.away.as_ref().map(|away| &away.why),
            "applications": self.plane.numbers(),
            "sentries": self.desk.sentries().map(sentry).collect::<Vec<_>>(),
            "pending": self.plane.pending().count(),
            "counts": self.counts(),
        })
    }

    fn counts(&self) -> Value {
        json!({
            "inputs": self.counts.inputs,
            "steps": self.counts.steps,
            "provider_failures": self.counts.failures,
            "reports": self.counts.reports,
            "sentries_refused": self.counts.refused,
        })
    }

    pub(super) fn state(&self) -> Value {
        let server = |(at, place): (usize, &Place)| {
            json!({
                "server": name(at),
                "address": self.server_address(at),
                "place": place,
                "process": self.plane.process(at),
            })
        };
        let now = self.clock.now();
        let sentry = |(name, known): (&String, &crate::desk::Known)| {
            json!({
                "name": name,
                "connected": known.connection.is_some(),
                "heard_seconds_ago": now.seconds_since(known.heard),
                "applied": known.report.as_ref().map(|report| report.applied),
                "told": known.told.as_ref().map(|(number, _)| number),
            })
        };
        json!({
            "role": "leads",
            "dry_run": self.dry_run,
            "term": self.store.term(),
            "store_away": self.away.as_ref().map(|away| &away.why),
            "revision": self.revision,
            "applications": self.plane.plan(),
            "servers": self.plane.places().iter().enumerate().map(server).collect::<Vec<_>>(),
            "sentries": self.desk.sentries().map(sentry).collect::<Vec<_>>(),
            "names": self.names_shown(),
            "pending": self.plane.pending().collect::<Vec<_>>(),
            "counts": self.counts(),
        })
    }
}
