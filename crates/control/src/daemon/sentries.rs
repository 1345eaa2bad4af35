//! Sentries that speak, come and go, and what follows.

use tidegate_wire::control::{FromControl, FromSentry};

use super::{Daemon, DaemonError};
use crate::desk::Connection;
use crate::plane::Input;

impl Daemon {
    pub(super) fn said(&mut self, connection: Connection, said: FromSentry) -> Result<(), DaemonError> {
        let now = self.clock.now();
        match said {
            FromSentry::Hello(hello) => match self.desk.hello(now, connection, &hello) {
                Ok(before) => {
                    if let Some(before) = before {
                        self.links.remove(&before);
                    }
                    let period_ms = self.config.period.as_millis() as u64;
                    self.send(connection, FromControl::Welcome { period_ms });
                    self.arrived.push(hello.sentry);
                }
                Err(why) => {
                    self.counts.refused += 1;
                    self.note("sentry-refused", format!("{}: {why}", hello.sentry))?;
                    self.send(connection, FromControl::Refused { why, waits: false });
                    self.links.remove(&connection);
                    // It may have spoken for another one.
                    self.closed(connection, "it was refused");
                }
            },
            FromSentry::Report(report) => {
                self.counts.reports += 1;
                self.desk.report(now, connection, report);
            }
            FromSentry::Goodbye => {
                if let Some(name) = self.desk.goodbye(connection) {
                    self.note_later("sentry-left", format!("{name} stops on purpose"));
                    self.left = true;
                }
                self.links.remove(&connection);
            }
        }
        Ok(())
    }

    /// What follows when sentries came and left.
    pub(super) fn settle(&mut self) -> Result<(), DaemonError> {
        self.write_batch()?;
        if self.arrived.is_empty() && !std::mem::take(&mut self.left) {
            return Ok(());
        }
        let arrived = std::mem::take(&mut self.arrived);
        if let Some((last, others)) = arrived.split_last() {
            let who =
                if others.is_empty() { format!("{last} speaks") } else { format!("{} speak", arrived.join(", ")) };
            self.note("sentry-registered", who)?;
        }
        self.follow_sentries()?;
        self.tell();
        Ok(())
    }

    pub(super) fn closed(&mut self, connection: Connection, why: &str) {
        self.links.remove(&connection);
        if let Some(name) = self.desk.lost(connection) {
            let kept = self.config.forget_after;
            self.note_later(
                "sentry-cut-off",
                format!("{name}: {why}; its last report counts on, for at most {kept:?}"),
            );
            // Names follow who is there.
            self.left = true;
        }
    }

    /// The plane learns who the sentries are when that changes.
    pub(super) fn follow_sentries(&mut self) -> Result<(), DaemonError> {
        for application in 0..self.config.site.applications.len() {
            let names = self.desk.names(application);
            if names != self.plane.sentries(application) {
                let now = self.clock.now();
                self.batch.push(Input::Sentries { now, application, names });
            }
        }
        self.write_batch()?;
        self.follow_names()
    }

    pub(super) fn watch_for_sentries(&mut self, application: usize) -> Result<(), DaemonError> {
        let name = &self.config.site.applications[application].name;
        match (self.desk.names(application).is_empty(), self.without_sentries.contains(&application)) {
            (true, false) => {
                let text =
                    format!("{name} has no sentries: nothing is known of its load, and everything stays as it is");
                self.without_sentries.insert(application);
                self.note("no-sentries", text)
            }
            (false, true) => {
                self.without_sentries.remove(&application);
                Ok(())
            }
            _ => Ok(()),
        }
    }
}
