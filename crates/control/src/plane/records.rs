//! Records of inputs for the audit log: names, and notes of every kind.

use super::{Plane, Record};
use crate::names::Roll;

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
            text,
            inputs,
            step: None,
        });
    }

    /// What becomes of a step, by its number.
    pub(super) fn record_step(
        &mut self,
        kind: &str,
        application: Option<usize>,
        step: u64,
        server: usize,
        text: String,
    ) {
        let application = application.map(|at| self.site.applications[at].name.clone());
        let (at, kind) = (self.now, kind.to_owned());
        self.records.push(Record { at, kind, application, server: Some(server), text, inputs: None, step: Some(step) });
    }
}
