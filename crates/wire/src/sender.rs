//! A nucleus's side of one session: what it puts into headers, and which challenges it takes.

use crate::datagram::{Header, Kind};
use crate::rejected::Rejected;
use crate::report::Message;

/// A challenge answers one of this many last datagrams, or it is a recording.
const RECENT: u64 = 64;

/// The state of a nucleus toward one sentry.
#[derive(Clone, Copy, Debug)]
pub struct Sender {
    boot: u64,
    sequence: u64,
    token: u64,
    /// The datagram that the last challenge answered.
    challenged: u64,
}

impl Sender {
    /// A sender that was never heard. `boot` is random, and the same toward every sentry.
    pub fn new(boot: u64) -> Sender {
        Sender { boot, sequence: 0, token: 0, challenged: 0 }
    }

    /// The header of the next datagram.
    pub fn next(&mut self, kind: Kind) -> Header {
        self.sequence += 1;
        Header { kind, boot: self.boot, sequence: self.sequence, token: self.token }
    }

    /// A message came from the sentry about `server`.
    ///
    /// # Errors
    /// When it is no challenge to this sender, or an old one.
    pub fn hear(&mut self, message: &Message<'_>, server: &str) -> Result<(), Rejected> {
        let Header { kind, boot, sequence, token } = message.header;
        if kind != Kind::Challenge || boot != self.boot || message.server != server || token == 0 {
            return Err(Rejected::Malformed);
        }
        if sequence <= self.challenged || sequence > self.sequence || self.sequence - sequence > RECENT {
            return Err(Rejected::Replayed);
        }
        (self.challenged, self.token) = (sequence, token);
        Ok(())
    }

    /// Whether a sentry has answered at all.
    pub fn was_heard(&self) -> bool {
        self.token != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn challenge(boot: u64, sequence: u64, token: u64) -> Message<'static> {
        Message { header: Header { kind: Kind::Challenge, boot, sequence, token }, server: "web", report: None }
    }

    #[test]
    fn a_challenge_gives_the_token_once() {
        let mut sender = Sender::new(5);
        assert_eq!(sender.next(Kind::Report).token, 0);
        assert_eq!(sender.hear(&challenge(5, 1, 99), "web"), Ok(()));
        let header = sender.next(Kind::Report);
        assert_eq!((header.sequence, header.token), (2, 99));
        assert_eq!(sender.hear(&challenge(5, 1, 98), "web"), Err(Rejected::Replayed));
        assert_eq!(sender.hear(&challenge(5, 3, 98), "web"), Err(Rejected::Replayed), "never sent");
        assert_eq!(sender.hear(&challenge(6, 2, 98), "web"), Err(Rejected::Malformed), "of another boot");
        assert_eq!(sender.hear(&challenge(5, 2, 98), "other"), Err(Rejected::Malformed));
        assert_eq!(sender.next(Kind::Report).token, 99);
    }
}
