//! A nucleus's side of one session: what it puts into headers, and which challenges and commands it takes.

use crate::datagram::{Header, Kind};
use crate::rejected::Rejected;
use crate::report::{Command, Message};

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
    /// The last command of this session.
    commanded: u64,
}

impl Sender {
    /// A sender that was never heard. `boot` is random, and the same toward every sentry.
    pub fn new(boot: u64) -> Sender {
        Sender { boot, sequence: 0, token: 0, challenged: 0, commanded: 0 }
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
        if token != self.token {
            self.commanded = 0;
        }
        (self.challenged, self.token) = (sequence, token);
        Ok(())
    }

    /// A command came from the sentry about `server`: what is to be done. Only the newest command of the session in
    /// force counts, so a recording is worth nothing, neither within a session nor after a restart of either side.
    ///
    /// # Errors
    /// When it is no command to this sender, of another session, or not newer than the last.
    pub fn obey(&mut self, message: &Message<'_>, server: &str) -> Result<Command, Rejected> {
        let Header { boot, sequence, token, .. } = message.header;
        let command = message.command.filter(|_| boot == self.boot && message.server == server);
        let command = command.ok_or(Rejected::Malformed)?;
        if token == 0 || token != self.token {
            return Err(Rejected::Stale);
        }
        if sequence <= self.commanded {
            return Err(Rejected::Replayed);
        }
        self.commanded = sequence;
        Ok(command)
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
        let header = Header { kind: Kind::Challenge, boot, sequence, token };
        Message { header, server: "web", report: None, command: None }
    }

    fn command(boot: u64, sequence: u64, token: u64) -> Message<'static> {
        let header = Header { kind: Kind::Command, boot, sequence, token };
        Message { header, server: "web", report: None, command: Some(Command { cores: 2 }) }
    }

    #[test]
    fn commands_count_once_and_of_this_session_only() {
        let mut sender = Sender::new(5);
        sender.next(Kind::Report);
        assert_eq!(sender.obey(&command(5, 1, 0), "web"), Err(Rejected::Stale), "there is no session yet");
        sender.hear(&challenge(5, 1, 99), "web").expect("a challenge");
        assert_eq!(sender.obey(&command(5, 4, 99), "web"), Ok(Command { cores: 2 }));
        assert_eq!(sender.obey(&command(5, 4, 99), "web"), Err(Rejected::Replayed));
        assert_eq!(sender.obey(&command(5, 3, 99), "web"), Err(Rejected::Replayed), "late");
        assert_eq!(sender.obey(&command(5, 5, 98), "web"), Err(Rejected::Stale), "of another sentry process");
        assert_eq!(sender.obey(&command(6, 5, 99), "web"), Err(Rejected::Malformed), "to another nucleus");
        assert_eq!(sender.obey(&command(5, 5, 99), "db"), Err(Rejected::Malformed), "about another server");
        assert_eq!(sender.obey(&challenge(5, 5, 99), "web"), Err(Rejected::Malformed));
        sender.next(Kind::Report);
        sender.hear(&challenge(5, 2, 77), "web").expect("the sentry was restarted");
        assert_eq!(sender.obey(&command(5, 5, 99), "web"), Err(Rejected::Stale), "a recording of the old session");
        assert_eq!(sender.obey(&command(5, 1, 77), "web"), Ok(Command { cores: 2 }));
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
