//! Status of the daemon, for the admin API.

use serde_json::{Value, json};
use tidegate_provision::Place;
use tracing::error;

use super::{Daemon, Question, address, name};
use crate::desk::Known;
use crate::plane::Unit;

impl Daemon {
    pub(super) fn answer(&self, question: Question) -> Value {
        match question {
            Question::Status => self.status(),
            Question::Metrics => self.metrics(),
            Question::State => self.state(),
            Question::Plan => json!(self.ledger.plane().plan()),
            // Who asks must not be able to end it.
            Question::Audit(after) => self.ledger.audit(after).map_or_else(
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
            "term": self.ledger.term(),
            "store_away": self.ledger.why_away(),
            "label_problem": self.ledger.label_problem(),
        })
    }

    /// What is counted: no more work than reading it.
    fn metrics(&self) -> Value {
        let sentry = |(_, known): (&String, &Known)| json!({ "connected": known.connection.is_some() });
        json!({
            "role": "leads",
            "term": self.ledger.term(),
            "store_away": self.ledger.why_away(),
            "applications": self.ledger.plane().numbers(),
            "sentries": self.sentries.desk.sentries().map(sentry).collect::<Vec<_>>(),
            "posts": self.ledger.plane().posts(),
            "pending": self.ledger.plane().pending().count(),
            "counts": self.counts(),
        })
    }

    /// What is counted since the start.
    fn counts(&self) -> Value {
        let ((steps, failures), (reports, refused)) = (self.steps.counts(), self.sentries.counts());
        let mut counts = json!({
            "inputs": self.ledger.inputs(),
            "steps": steps,
            "provider_failures": failures,
            "reports": reports,
            "sentries_refused": refused,
        });
        if let Some((truncated, dropped)) = self.names.limited() {
            counts["dns_truncated"] = json!(truncated);
            counts["dns_dropped"] = json!(dropped);
        }
        counts
    }

    pub(super) fn state(&self) -> Value {
        let server = |(at, place): (usize, &Place)| {
            json!({
                "server": name(at),
                "address": address(&self.config, &**self.providers.of(Unit::Server), at),
                "place": place,
                "process": self.ledger.plane().process(Unit::Server, at),
            })
        };
        let post = |(at, place): (usize, &Place)| {
            json!({
                "sentry": self.providers.of(Unit::Sentry).name(at),
                "place": place,
                "process": self.ledger.plane().process(Unit::Sentry, at),
            })
        };
        let now = self.ledger.now();
        let sentry = |(name, known): (&String, &Known)| {
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
            "term": self.ledger.term(),
            "store_away": self.ledger.why_away(),
            "revision": self.sentries.revision,
            "applications": self.ledger.plane().plan(),
            "servers": self.ledger.plane().places().iter().enumerate().map(server).collect::<Vec<_>>(),
            "posts": self.ledger.plane().posts().iter().enumerate().map(post).collect::<Vec<_>>(),
            "sentries": self.sentries.desk.sentries().map(sentry).collect::<Vec<_>>(),
            "names": self.names.shown(&self.ledger, &self.sentries.desk),
            "pending": self.ledger.plane().pending().collect::<Vec<_>>(),
            "counts": self.counts(),
        })
    }
}
