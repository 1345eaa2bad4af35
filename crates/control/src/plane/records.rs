//! Records of inputs for the audit log: names, and notes of every kind.

use super::{Plane, Record, Step, Unit, What};
use crate::names::Roll;

/// The kind of a record that a step to start something was decided.
pub(super) const START: &str = "start";

impl Plane {
    /// Whom an application's name stands for.
    pub fn names(&self, application: usize) -> &Roll {
        &self.names[application]
    }

    pub(super) fn named(&mut self, application: usize, roll: &Roll) {
        let Some(names) = self.names.get_mut(application) else { return };
        names.clone_from(roll);
        let addresses: Vec<String> = roll.iter().flat_map(|(_, all)| all).map(ToString::to_string).collect();
        self.record("names", Some(application), None, format!("stands for {}", addresses.join(", ")), false);
    }

    pub(super) fn note(&mut self, kind: &str, text: String) {
        self.record(kind, None, None, text, false);
    }

    pub(super) fn record(
        &mut self,
        kind: &str,
        application: Option<usize>,
        server: Option<usize>,
        text: String,
        with_inputs: bool,
    ) {
        let inputs = application.filter(|_| with_inputs).map(|at| self.provisioner.measured(self.now, at));
        self.records.push(Record {
            at: self.now,
            kind: kind.to_owned(),
            application: application.map(|at| self.site.applications[at].name.clone()),
            server,
            post: None,
            text,
            inputs,
            step: None,
        });
    }

    /// What becomes of a step.
    pub(super) fn record_step(&mut self, kind: &str, step: &Step, text: String) {
        let application = match step.what {
            What::Start { application } if kind == START => Some(self.site.applications[application].name.clone()),
            _ => None,
        };
        let of = |unit: Unit| (step.unit == unit).then_some(step.place);
        let (server, post) = (of(Unit::Server), of(Unit::Sentry));
        let (at, kind, step) = (self.now, kind.to_owned(), Some(step.number));
        self.records.push(Record { at, kind, application, server, post, text, inputs: None, step });
    }

    /// What happened at a post.
    pub(super) fn record_post(&mut self, kind: &str, application: Option<usize>, post: usize, text: String) {
        let application = application.map(|at| self.site.applications[at].name.clone());
        let (at, kind, post) = (self.now, kind.to_owned(), Some(post));
        self.records.push(Record { at, kind, application, server: None, post, text, inputs: None, step: None });
    }
}
