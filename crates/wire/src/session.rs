//! A sentry's side: which nucleus speaks for a server, and whether a datagram of it is new.
//!
//! *Intuition.* A door that asks a stranger for today's password and then only counts. *Awkward cases.* Recordings of
//! an earlier life of either side; a nucleus that was killed and comes back at once; two that claim one server; a
//! claimant whose recorded claim is played back when the other falls silent (a token for a claim lives [`EPOCH`] or
//! two).

use crate::datagram::{Header, Kind};
use crate::rejected::Rejected;

/// A token that opens a session is good for as long as this, at most twice, nanoseconds.
const EPOCH: u64 = 10_000_000_000;

/// A secret of one sentry process, from which its tokens follow.
#[derive(Clone)]
pub struct Secret([u8; 32]);

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret(hidden)")
    }
}

impl Secret {
    /// A secret from random words.
    pub fn new(words: [u64; 4]) -> Secret {
        let mut bytes = [0; 32];
        bytes.as_chunks_mut::<8>().0.iter_mut().zip(words).for_each(|(to, word)| *to = word.to_le_bytes());
        Secret(bytes)
    }

    /// Draws a random secret from the system.
    pub fn random() -> Secret {
        Secret::new([(); 4].map(|()| crate::random_u64()))
    }

    fn token(&self, server: &str, boot: u64, generation: u64, epoch: u64) -> u64 {
        let mut hasher = blake3::Hasher::new_keyed(&self.0);
        for word in [boot, generation, epoch] {
            hasher.update(&word.to_le_bytes());
        }
        hasher.update(server.as_bytes());
        let hash = hasher.finalize();
        // Never 0: that stands for "none".
        u64::from_le_bytes(hash.as_bytes()[..8].try_into().unwrap_or_default()) | 1
    }
}

/// Why a datagram is ignored, and the token to challenge its sender with, if it should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Why the datagram was ignored.
    pub why: Rejected,
    /// The token of the challenge; `None`: no answer.
    pub challenge: Option<u64>,
}

impl From<Rejected> for Refused {
    fn from(why: Rejected) -> Self {
        Refused { why, challenge: None }
    }
}

/// The nucleus that speaks for one server.
#[derive(Clone, Copy, Debug, Default)]
pub struct Session {
    boot: u64,
    /// 0 before the first.
    token: u64,
    /// How often the nucleus has changed.
    generation: u64,
    window: Window,
    heard: u64,
    left: bool,
    /// Commands given in this session.
    commands: u64,
}

impl Session {
    /// A datagram about `server` came at `now` (nanoseconds on a clock that never goes back): whether it is the
    /// session's next. A nucleus that said nothing for `quiet` nanoseconds may be replaced by another.
    ///
    /// # Errors
    /// When it must be ignored.
    pub fn admit(
        &mut self,
        secret: &Secret,
        server: &str,
        header: &Header,
        now: u64,
        quiet: u64,
    ) -> Result<(), Refused> {
        if self.token != 0 && (header.boot, header.token) == (self.boot, self.token) {
            self.window.take(header.sequence)?;
            (self.heard, self.left) = (now, false);
            return Ok(());
        }
        if self.is_alive(now, quiet) && header.boot != self.boot {
            return Err(Rejected::Claimed.into());
        }
        let epoch = now / EPOCH;
        let token = |epoch| secret.token(server, header.boot, self.generation + 1, epoch);
        if header.token == 0 || ![epoch, epoch.wrapping_sub(1)].map(token).contains(&header.token) {
            return Err(Refused { why: Rejected::Stale, challenge: Some(token(epoch)) });
        }
        // First of all: what is refused must change nothing.
        let mut window = Window::default();
        window.take(header.sequence)?;
        *self = Session {
            boot: header.boot,
            token: header.token,
            generation: self.generation + 1,
            window,
            heard: now,
            left: false,
            commands: 0,
        };
        Ok(())
    }

    /// The nucleus says that it stops: another may take its place at once.
    pub fn leave(&mut self) {
        self.left = true;
    }

    /// The header of the next command to the nucleus; `None` before there was one, or after it left.
    pub fn command(&mut self) -> Option<Header> {
        if self.token == 0 || self.left {
            return None;
        }
        self.commands += 1;
        Some(Header { kind: Kind::Command, boot: self.boot, sequence: self.commands, token: self.token })
    }

    /// Its boot id; 0 before there was one.
    pub fn boot(&self) -> u64 {
        self.boot
    }

    /// How often the server's nucleus has changed; 0 before the first.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    fn is_alive(&self, now: u64, quiet: u64) -> bool {
        self.token != 0 && !self.left && now.saturating_sub(self.heard) < quiet
    }
}

/// Which sequence numbers were seen: the highest, and which of the 64 before it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Window {
    highest: u64,
    /// Bit `i`: `highest - 1 - i` was seen.
    seen: u64,
}

impl Window {
    /// Takes a sequence number if it is the highest so far.
    ///
    /// # Errors
    /// [`Rejected::Replayed`] when it was seen, or is too old to tell; [`Rejected::OutOfOrder`] when it is late.
    pub fn take(&mut self, sequence: u64) -> Result<(), Rejected> {
        if sequence > self.highest {
            let step = sequence - self.highest;
            self.seen = match step {
                1..64 => self.seen << step | 1 << (step - 1),
                64 => 1 << 63,
                _ => 0,
            };
            self.highest = sequence;
            return Ok(());
        }
        let back = self.highest - sequence;
        if back == 0 || back > 64 || self.seen >> (back - 1) & 1 == 1 {
            return Err(Rejected::Replayed);
        }
        self.seen |= 1 << (back - 1);
        Err(Rejected::OutOfOrder)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;
    use crate::Kind;

    const SECOND: u64 = 1_000_000_000;
    const QUIET: u64 = SECOND / 5;

    fn header(boot: u64, sequence: u64, token: u64) -> Header {
        Header { kind: Kind::Report, boot, sequence, token }
    }

    /// A server's session, and a clock.
    struct Door {
        secret: Secret,
        session: Session,
        now: u64,
    }

    impl Door {
        fn new(seed: u64) -> Door {
            Door { secret: Secret::new([seed; 4]), session: Session::default(), now: 77 * SECOND }
        }

        fn hear(&mut self, boot: u64, sequence: u64, token: u64) -> Result<(), Refused> {
            self.session.admit(&self.secret, "web", &header(boot, sequence, token), self.now, QUIET)
        }

        /// Opens a session as a nucleus does; its token.
        fn enter(&mut self, boot: u64, sequence: u64) -> u64 {
            let refused = self.hear(boot, sequence, 0).expect_err("challenged");
            assert_eq!(refused.why, Rejected::Stale);
            let token = refused.challenge.expect("a challenge");
            self.hear(boot, sequence + 1, token).expect("the challenge is answered");
            token
        }
    }

    #[test]
    fn a_nucleus_enters_by_its_challenge_and_then_counts() {
        let mut door = Door::new(1);
        let token = door.enter(10, 1);
        assert_eq!(door.hear(10, 3, token), Ok(()));
        assert_eq!(door.hear(10, 3, token), Err(Rejected::Replayed.into()));
        assert_eq!(door.hear(10, 9, token), Ok(()), "datagrams may be lost");
        assert_eq!(door.hear(10, 7, token), Err(Rejected::OutOfOrder.into()));
        assert_eq!(door.hear(10, 7, token), Err(Rejected::Replayed.into()));
        // The token lasts as long as the session, whatever the clock does meanwhile.
        door.now += 3600 * SECOND;
        assert_eq!(door.hear(10, 10, token), Ok(()));
    }

    #[test]
    fn a_restarted_nucleus_takes_over_and_its_past_is_worth_nothing() {
        let mut door = Door::new(1);
        let old = door.enter(10, 1);
        assert_eq!(door.hear(11, 1, 0), Err(Rejected::Claimed.into()), "the old one may still be there");
        door.now += QUIET;
        let new = door.enter(11, 2);
        assert_ne!(old, new);
        // A recording of the old one: with a higher sequence number than was ever sent, even.
        door.now += 10 * QUIET;
        for sequence in [3, 1 << 40] {
            assert_eq!(door.hear(10, sequence, old).expect_err("of another session").why, Rejected::Stale);
        }
        assert_eq!(door.hear(11, 9, new), Ok(()));
    }

    #[test]
    fn after_a_goodbye_the_next_need_not_wait() {
        let mut door = Door::new(1);
        door.enter(10, 1);
        door.session.leave();
        door.enter(11, 1);
        assert_eq!((door.session.boot(), door.session.generation()), (11, 2));
    }

    #[test]
    fn commands_count_within_the_session() {
        let mut door = Door::new(1);
        assert_eq!(door.session.command(), None, "there is nobody to command");
        let token = door.enter(10, 1);
        let header = |sequence, boot, token| Some(Header { kind: Kind::Command, boot, sequence, token });
        assert_eq!([door.session.command(), door.session.command()], [header(1, 10, token), header(2, 10, token)]);
        door.session.leave();
        assert_eq!(door.session.command(), None);
        let next = door.enter(11, 1);
        assert_eq!(door.session.command(), header(1, 11, next));
    }

    #[test]
    fn of_two_the_first_keeps_the_server_while_it_speaks() {
        let mut door = Door::new(1);
        let first = door.enter(10, 1);
        for sequence in 3..50 {
            door.now += QUIET / 2;
            assert_eq!(door.hear(10, sequence, first), Ok(()));
            assert_eq!(door.hear(11, sequence, 0), Err(Rejected::Claimed.into()));
        }
    }

    #[test]
    fn a_restarted_sentry_knows_nobody_and_lets_them_enter_again() {
        let mut before = Door::new(1);
        let token = before.enter(10, 1);
        let mut after = Door::new(2);
        assert_eq!(after.hear(10, 3, token).expect_err("another secret").why, Rejected::Stale);
        after.enter(10, 4);
    }

    /// A nucleus counts from 1: an answer to a challenge that says 0 opens no session.
    #[test]
    fn what_is_refused_changes_nothing() {
        let mut door = Door::new(1);
        door.enter(10, 1);
        door.now += QUIET;
        let claim = door.hear(11, 1, 0).expect_err("challenged").challenge.expect("a challenge");
        let before = format!("{:?}", door.session);
        assert_eq!(door.hear(11, 0, claim), Err(Rejected::Replayed.into()));
        assert_eq!(format!("{:?}", door.session), before);
        assert_eq!(door.hear(11, 2, claim), Ok(()), "the claim is still good");
    }

    #[test]
    fn a_claim_is_good_for_seconds_only() {
        let mut door = Door::new(1);
        let claim = door.hear(10, 1, 0).expect_err("challenged").challenge.expect("a challenge");
        door.now += 2 * EPOCH;
        assert_eq!(door.hear(10, 2, claim).expect_err("too late").why, Rejected::Stale);
    }

    proptest! {
        /// However datagrams are shuffled and repeated: each number is taken at most once, and only in rising order.
        #[test]
        fn the_window_takes_nothing_twice(numbers in prop::collection::vec(1u64..200, 1..400)) {
            let mut window = Window::default();
            let (mut taken, mut late) = (Vec::new(), HashSet::new());
            for number in numbers {
                match window.take(number) {
                    Ok(()) => taken.push(number),
                    Err(Rejected::OutOfOrder) => {
                        prop_assert!(late.insert(number) && !taken.contains(&number));
                    }
                    Err(why) => {
                        prop_assert_eq!(why, Rejected::Replayed);
                        let old = taken.last().is_some_and(|highest| highest - number > 64);
                        prop_assert!(old || taken.contains(&number) || late.contains(&number));
                    }
                }
            }
            prop_assert!(taken.is_sorted_by(|a, b| a < b));
        }
    }
}
