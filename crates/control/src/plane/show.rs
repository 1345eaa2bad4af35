//! Snapshot of a plane: its servers, and what it would do now.

use serde::Serialize;
use tidegate_provision::{ApplicationSetup, Measured, ProvisionEvent, Provisioner};

use super::Plane;

/// How many servers an application has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Numbers {
    /// Name of the application.
    pub application: String,
    /// Servers that serve.
    pub serving: u32,
    /// Servers that were asked for and are not there yet.
    pub coming: u32,
    /// Servers wanted at the last decision.
    pub wanted: u32,
}

/// What would be done now, for one application.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Planned {
    /// Name of the application.
    pub application: String,
    /// Servers that serve.
    pub serving: u32,
    /// Servers that were asked for and are not there yet.
    pub coming: u32,
    /// Servers wanted at the last decision.
    pub wanted: u32,
    /// Servers that would be wanted if it were decided now.
    pub would_want: u32,
    /// Reason of the number.
    pub reason: String,
    /// The most its target may relax to, seconds.
    pub ceiling: f64,
    /// Sentries that are there.
    pub sentries: usize,
    /// Sentries that it is to have.
    pub sentries_wanted: u32,
    /// What that stands on.
    pub inputs: Measured,
}

impl Plane {
    /// How many servers each application has; nothing is planned for it.
    pub fn numbers(&self) -> Vec<Numbers> {
        let numbers = |(at, setup): (usize, &ApplicationSetup)| Numbers {
            application: setup.name.clone(),
            serving: self.provisioner.serving(at),
            coming: self.provisioner.coming(at),
            wanted: self.provisioner.wanted(at),
        };
        self.site.applications.iter().enumerate().map(numbers).collect()
    }

    /// What would be done if it were decided now. Nothing changes by it.
    pub fn plan(&self) -> Vec<Planned> {
        let mut copy = match Provisioner::restore(self.site.clone(), self.provisioner.snapshot()) {
            Ok(copy) => copy,
            Err(_) => return Vec::new(),
        };
        let next = copy.poll_timeout(self.now).0.max(self.now);
        copy.handle_timeout(next);
        let mut reasons = vec![String::new(); self.site.applications.len()];
        while let Some((_, event)) = copy.poll_event() {
            if let ProvisionEvent::ServersWanted { application, reason, .. } = event {
                reasons[application] = reason;
            }
        }
        let planned = |(at, setup): (usize, &ApplicationSetup)| {
            let inputs = self.provisioner.measured(self.now, at);
            let kept = || match inputs.offered {
                Some(rate) => format!("{rate:.0}/s need no other number"),
                None => String::from("nothing was reported lately: everything stays as it is"),
            };
            Planned {
                application: setup.name.clone(),
                serving: self.provisioner.serving(at),
                coming: self.provisioner.coming(at),
                wanted: self.provisioner.wanted(at),
                would_want: copy.wanted(at),
                reason: if reasons[at].is_empty() { kept() } else { reasons[at].clone() },
                ceiling: self.provisioner.ceiling(at).as_secs_f64(),
                sentries: self.sentries[at].len(),
                sentries_wanted: self.provisioner.sentries(at),
                inputs,
            }
        };
        self.site.applications.iter().enumerate().map(planned).collect()
    }
}
