//! What the controller wants done, on its way to who does it.

use tidegate_engine::{Action, Ticket, Timestamp};
use tokio::sync::oneshot;

use super::{Core, Woken};

impl Core {
    /// Takes every action the controller has ready.
    pub(super) fn drain(&mut self, now: Timestamp, woken: &mut Vec<Delivery>) {
        while let Some(action) = self.controller.poll_action() {
            let (ticket, message) = match action {
                Action::Start { ticket, server } => (ticket, Woken::Start(server)),
                Action::Refuse { ticket, rejection } => (ticket, Woken::Refuse(rejection)),
                Action::Isolate { server, cores } => {
                    self.divisions.push((server, cores));
                    continue;
                }
                Action::Cancel { ticket } => {
                    self.runaways.push(ticket);
                    continue;
                }
                Action::SynRate { rate, depth } => {
                    self.syn.want(now, rate, depth);
                    continue;
                }
                _ => continue,
            };
            woken.push(Delivery { ticket, message, to: self.waiters.remove(&ticket) });
        }
    }

    /// Whether the controller's next deadline is now before what the timer task sleeps for.
    pub(super) fn rearm(&mut self) -> bool {
        match self.controller.poll_timeout() {
            Some((at, _)) if at < self.armed => {
                self.armed = at;
                true
            }
            _ => false,
        }
    }
}

/// A message to a waiting request.
pub(super) struct Delivery {
    ticket: Ticket,
    message: Woken,
    to: Option<oneshot::Sender<Woken>>,
}

impl Delivery {
    /// Delivers; the ticket when a start found nobody to take it.
    pub(super) fn deliver(self) -> Option<Ticket> {
        let undelivered = match self.to {
            Some(to) => to.send(self.message).err(),
            None => Some(self.message),
        };
        undelivered.filter(|message| matches!(message, Woken::Start(_))).map(|_| self.ticket)
    }
}
