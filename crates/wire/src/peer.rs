//! What sentries before the same servers tell each other: one datagram for each application and each other sentry, a
//! few times a second.
//!
//! ```text
//! nonce:u64  application:name  classes:u64
//! in_service:f32 completed:f32 guaranteed:f32 waiting:f32
//! places:u8 (now:f32 most:f32 beyond:f32)?                 0: none, 1: not known for sure, 2: known
//! count:u8 (offered:f32 needs:f32)*                        by class
//! count:u8 (in_service:f32 requests:f32 ln:f32 square:f32)*  times at the servers
//! ```
//!
//! A farewell ends after the nonce. The header's boot id names the sentry process; its sequence counts the datagrams
//! to one receiver.
//!
//! # Replay
//!
//! Each of two sentries draws a nonce for the other and puts it into what it sends there; what comes back must carry it
//! as its token. So what was recorded before either was started is worth nothing, and within a session a number that
//! came already is not taken again. When the other is a new process, or was silent, the nonce is drawn anew, so that
//! nothing of before is taken any more. A nonce is believed of one that is fresh, or while nobody fresh is there: two
//! that begin need a datagram each.

use crate::datagram::{HEADER, Header, Kind, MAC, open, seal};
use crate::key::{Key, Keys};
use crate::rejected::Rejected;
use crate::report::{Reader, Writer};
use crate::{MAX_DATAGRAM, random_u64};

/// What a sentry says of an application.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Said {
    /// Requests in service for it, and what completed since it said so last, in requests of average cost.
    pub in_service: f64,
    /// See there.
    pub completed: f64,
    /// Processors that its guaranteed requests need.
    pub guaranteed: f64,
    /// Requests that wait at it.
    pub waiting: f64,
    /// Places of a server: now, worth their time, how likely there are more; and whether that is known.
    pub places: Option<([f64; 3], bool)>,
    /// By class: requests per second, and the processors that they need.
    pub classes: Vec<[f64; 2]>,
    /// Times at the servers: among how many, of how many requests, and the sums of their logarithm and its square.
    pub times: Vec<[f64; 4]>,
}

/// A datagram that was opened and makes sense.
#[derive(Clone, Debug, PartialEq)]
pub struct PeerMessage<'d> {
    /// Whose it is, and which.
    pub header: Header,
    /// What the sender wants to be answered with.
    pub nonce: u64,
    /// The application, what tells its list of classes from others, and what is said; `None`: the sender leaves.
    pub about: Option<(&'d str, u64, Said)>,
}

impl<'d> PeerMessage<'d> {
    /// Opens a datagram and reads it.
    ///
    /// # Errors
    /// Why it must be ignored.
    pub fn read(keys: &Keys, datagram: &'d [u8]) -> Result<PeerMessage<'d>, Rejected> {
        let (header, body, key) = open(keys, datagram)?;
        if key.is_own() {
            // A server's own key says nothing of sentries.
            return Err(Rejected::Forged);
        }
        let mut reader = Reader(body);
        let parsed = (|| {
            let nonce = u64::from_le_bytes(reader.array()?);
            let about = match header.kind {
                Kind::Summary => {
                    let (application, classes) = (reader.name()?, u64::from_le_bytes(reader.array()?));
                    Some((application, classes, Said::read(&mut reader)?))
                }
                Kind::Farewell => None,
                _ => return None,
            };
            reader.0.is_empty().then_some(PeerMessage { header, nonce, about })
        })();
        parsed.ok_or(Rejected::Malformed)
    }

    /// Writes a datagram. Returns its length. Of classes and times as many as fit.
    pub fn write(&self, key: &Key, buffer: &mut [u8; MAX_DATAGRAM]) -> usize {
        let mut writer = Writer { buffer, at: HEADER };
        writer.put(&self.nonce.to_le_bytes());
        if let Some((application, classes, said)) = &self.about {
            writer.name(application);
            writer.put(&classes.to_le_bytes());
            said.write(&mut writer);
        }
        let body = writer.at - HEADER;
        seal(key, &self.header, buffer, body)
    }
}

impl Said {
    fn read(reader: &mut Reader<'_>) -> Option<Said> {
        let [in_service, completed, guaranteed, waiting] = amounts(reader)?;
        let places = match reader.u8()? {
            0 => None,
            known @ (1 | 2) => Some((amounts(reader)?, known == 2)),
            _ => return None,
        };
        let classes = (0..reader.u8()?).map(|_| amounts(reader)).collect::<Option<_>>()?;
        let times = (0..reader.u8()?).map(|_| {
            let [in_service, requests] = amounts(reader)?;
            let ln = f32::from_le_bytes(reader.array()?);
            let [square] = amounts(reader)?;
            ln.is_finite().then_some([in_service, requests, ln.into(), square])
        });
        let times = times.collect::<Option<_>>()?;
        Some(Said { in_service, completed, guaranteed, waiting, places, classes, times })
    }

    fn write(&self, writer: &mut Writer<'_>) {
        let mut put = |values: &[f64]| values.iter().for_each(|value| writer.put(&number(*value).to_le_bytes()));
        put(&[self.in_service, self.completed, self.guaranteed, self.waiting]);
        match &self.places {
            None => writer.put(&[0]),
            Some((places, is_known)) => {
                writer.put(&[1 + u8::from(*is_known)]);
                places.iter().for_each(|value| writer.put(&number(*value).to_le_bytes()));
            }
        }
        // The count of times comes after.
        write_list(writer, &self.classes, 1);
        write_list(writer, &self.times, 0);
    }
}

/// A list's count, and as many of its entries as leave room for so many bytes more.
fn write_list<const N: usize>(writer: &mut Writer<'_>, list: &[[f64; N]], after: usize) {
    let room = MAX_DATAGRAM.saturating_sub(writer.at + 1 + after + MAC) / (4 * N);
    let count = list.len().min(room).min(usize::from(u8::MAX));
    writer.put(&[count as u8]);
    list[..count].iter().flatten().for_each(|value| writer.put(&number(*value).to_le_bytes()));
}

fn amounts<const N: usize>(reader: &mut Reader<'_>) -> Option<[f64; N]> {
    let mut amounts = [0.0; N];
    for amount in &mut amounts {
        *amount = reader.gauge()?.into();
    }
    Some(amounts)
}

/// What is no number is none.
fn number(value: f64) -> f32 {
    let value = value as f32;
    if value.is_finite() { value } else { 0.0 }
}

/// What one sentry knows of its exchange with another.
#[derive(Clone, Copy, Debug)]
pub struct PeerSession {
    /// Drawn for the other, and by the other for this one; 0: none yet.
    nonce: u64,
    token: u64,
    /// The other's process, and the last number of it that came; `None`: nobody fresh was heard.
    heard: Option<(u64, u64)>,
    sent: u64,
}

impl PeerSession {
    /// Nothing was heard.
    ///
    /// # Panics
    /// When the system has no random numbers.
    pub fn new() -> PeerSession {
        PeerSession { nonce: draw(), token: 0, heard: None, sent: 0 }
    }

    /// The header of the next datagram to the other of the process `boot`, and the nonce that goes with it.
    pub fn next(&mut self, boot: u64, kind: Kind) -> (Header, u64) {
        self.sent += 1;
        (Header { kind, boot, sequence: self.sent, token: self.token }, self.nonce)
    }

    /// A datagram of the other's came. The id of its process, where that is a new one: what was known of it by another
    /// id is no longer true.
    ///
    /// # Errors
    /// When it is not fresh: it may be a recording.
    ///
    /// # Panics
    /// When the system has no random numbers.
    pub fn hear(&mut self, message: &PeerMessage<'_>) -> Result<Option<u64>, Rejected> {
        let Header { boot, sequence, token, .. } = message.header;
        if token != self.nonce {
            if self.heard.is_none() {
                self.token = message.nonce;
            }
            return Err(Rejected::Stale);
        }
        let before = self.heard.map(|(boot, _)| boot);
        match self.heard {
            Some((same, last)) if same == boot && sequence <= last => return Err(Rejected::Replayed),
            Some((other, _)) if other != boot => self.nonce = draw(),
            _ => {}
        }
        (self.heard, self.token) = (Some((boot, sequence)), message.nonce);
        Ok(before.filter(|before| *before != boot))
    }

    /// Nothing came for so long that another process may be there. As the numbers of this one no longer count, the
    /// nonce is drawn anew: what was recorded of it must not bring it back.
    ///
    /// # Panics
    /// When the system has no random numbers.
    pub fn forget(&mut self) {
        (self.heard, self.nonce) = (None, draw());
    }

    /// The other's process, if it was heard of late.
    pub fn process(&self) -> Option<u64> {
        self.heard.map(|(boot, _)| boot)
    }
}

impl Default for PeerSession {
    fn default() -> Self {
        PeerSession::new()
    }
}

fn draw() -> u64 {
    random_u64().max(1)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use proptest::prelude::*;

    use super::*;
    use crate::key::{Owner, own_line};

    fn keys() -> Keys {
        Keys::derive(b"a secret of the tests")
    }

    fn said() -> Said {
        Said {
            in_service: 3.5,
            completed: 12.0,
            guaranteed: 0.25,
            waiting: 7.0,
            places: Some(([4.5, 4.0, 0.125], true)),
            classes: vec![[10.0, 0.5], [200.0, 8.0]],
            times: vec![[2.0, 3.0, -9.5, 31.0]],
        }
    }

    fn sent(session: &mut PeerSession, boot: u64) -> Vec<u8> {
        let (header, nonce) = session.next(boot, Kind::Summary);
        let mut buffer = [0; MAX_DATAGRAM];
        let message = PeerMessage { header, nonce, about: Some(("shop", 42, said())) };
        let length = message.write(&keys().first(), &mut buffer);
        buffer[..length].to_vec()
    }

    fn heard(session: &mut PeerSession, datagram: &[u8]) -> Result<Option<u64>, Rejected> {
        session.hear(&PeerMessage::read(&keys(), datagram).expect("sound"))
    }

    #[test]
    fn what_is_said_comes_back_as_it_was() {
        let mut session = PeerSession::new();
        let datagram = sent(&mut session, 5);
        let message = PeerMessage::read(&keys(), &datagram).expect("sound");
        assert_eq!(message.about, Some(("shop", 42, said())));
        assert_eq!((message.header.boot, message.header.sequence), (5, 1));
        let (header, nonce) = session.next(5, Kind::Farewell);
        let mut buffer = [0; MAX_DATAGRAM];
        let length = PeerMessage { header, nonce, about: None }.write(&keys().first(), &mut buffer);
        assert_eq!(PeerMessage::read(&keys(), &buffer[..length]).expect("sound").about, None);
    }

    #[test]
    fn more_than_fits_is_left_out() {
        let said = Said { classes: vec![[1.0, 2.0]; 64], times: vec![[1.0; 4]; 500], ..said() };
        let header = Header { kind: Kind::Summary, boot: 1, sequence: 1, token: 0 };
        let name = "n".repeat(500);
        let mut buffer = [0; MAX_DATAGRAM];
        let length =
            PeerMessage { header, nonce: 1, about: Some((&name, 1, said)) }.write(&keys().first(), &mut buffer);
        let message = PeerMessage::read(&keys(), &buffer[..length]).expect("sound");
        let (_, _, said) = message.about.expect("a summary");
        assert!(said.classes.len() == 64 && said.times.len() > 20 && length <= MAX_DATAGRAM);
    }

    #[test]
    fn two_that_begin_need_a_datagram_each_and_recordings_are_worth_nothing() {
        let (mut one, mut other) = (PeerSession::new(), PeerSession::new());
        let first = sent(&mut one, 1);
        assert_eq!(heard(&mut other, &first), Err(Rejected::Stale));
        assert_eq!(heard(&mut one, &sent(&mut other, 2)), Ok(None));
        let good = sent(&mut one, 1);
        assert_eq!(heard(&mut other, &good), Ok(None));
        assert_eq!(heard(&mut other, &good), Err(Rejected::Replayed));
        assert_eq!(heard(&mut other, &first), Err(Rejected::Stale));
        // The first is started again: what the other sends it is not for it, but tells it the nonce.
        let mut again = PeerSession::new();
        assert_eq!(heard(&mut other, &sent(&mut again, 3)), Err(Rejected::Stale));
        assert_eq!(heard(&mut again, &sent(&mut other, 2)), Err(Rejected::Stale), "meant for the one before");
        assert_eq!(heard(&mut other, &sent(&mut again, 3)), Ok(Some(1)));
        assert_eq!(heard(&mut other, &good), Err(Rejected::Stale), "of the one before");
        assert_eq!(heard(&mut again, &sent(&mut other, 2)), Ok(None));
        assert_eq!(heard(&mut other, &sent(&mut again, 3)), Ok(None));
        // And a process that takes over at once, by what its predecessor knew, ends what was recorded of that.
        let late = sent(&mut again, 3);
        let mut successor = again;
        assert_eq!(heard(&mut other, &sent(&mut successor, 4)), Ok(Some(3)));
        assert_eq!(heard(&mut other, &late), Err(Rejected::Stale));
    }

    #[test]
    fn what_was_recorded_is_worth_nothing_when_its_sender_falls_silent() {
        let (mut one, mut other) = (PeerSession::new(), PeerSession::new());
        let _ = heard(&mut one, &sent(&mut other, 2));
        assert_eq!(heard(&mut other, &sent(&mut one, 1)), Ok(None));
        let good = sent(&mut one, 1);
        assert_eq!(heard(&mut other, &good), Ok(None));
        other.forget();
        assert_eq!(heard(&mut other, &good), Err(Rejected::Stale));
        // Both are still there: the one learns the new nonce from the other's next, and is heard again.
        assert_eq!(heard(&mut one, &sent(&mut other, 2)), Ok(None));
        assert_eq!(heard(&mut other, &sent(&mut one, 1)), Ok(None));
        // So do two of which neither heard the other.
        one.forget();
        other.forget();
        assert_eq!(heard(&mut other, &sent(&mut one, 1)), Err(Rejected::Stale));
        assert_eq!(heard(&mut one, &sent(&mut other, 2)), Ok(None));
        assert_eq!(heard(&mut other, &sent(&mut one, 1)), Ok(None));
    }

    #[test]
    fn who_has_a_server_s_own_key_is_no_sentry() {
        // A nonce whose bytes are a server's name, so that the server's own key is tried.
        let line = own_line("a secret of the tests", Owner::Nucleus, "web");
        let own = Keys::of("web", line.as_bytes(), Path::new("key")).expect("its own");
        let nonce = u64::from_le_bytes(*b"\x03web\0\0\0\0");
        let header = Header { kind: Kind::Farewell, boot: 1, sequence: 1, token: 0 };
        let message = PeerMessage { header, nonce, about: None };
        let mut buffer = [0; MAX_DATAGRAM];
        let secret = Keys::derive(b"a secret of the tests");
        let length = message.write(&secret.first(), &mut buffer);
        assert_eq!(PeerMessage::read(&secret, &buffer[..length]), Ok(message.clone()));
        let length = message.write(&own.first(), &mut buffer);
        assert!(open(&secret, &buffer[..length]).is_ok(), "the key is right");
        assert_eq!(PeerMessage::read(&secret, &buffer[..length]), Err(Rejected::Forged));
    }

    #[test]
    fn a_report_is_no_summary() {
        let header = Header { kind: Kind::Report, boot: 1, sequence: 1, token: 0 };
        let mut buffer = [0; MAX_DATAGRAM];
        let length = PeerMessage { header, nonce: 1, about: None }.write(&keys().first(), &mut buffer);
        assert_eq!(PeerMessage::read(&keys(), &buffer[..length]), Err(Rejected::Malformed));
    }

    proptest! {
        #[test]
        fn any_authentic_body_does_no_harm(body in prop::collection::vec(any::<u8>(), 0..1300), farewell: bool) {
            let kind = if farewell { Kind::Farewell } else { Kind::Summary };
            let mut buffer = [0; MAX_DATAGRAM];
            buffer[HEADER..HEADER + body.len()].copy_from_slice(&body);
            let length = seal(&keys().first(), &Header { kind, boot: 1, sequence: 1, token: 0 }, &mut buffer, body.len());
            if let Ok(message) = PeerMessage::read(&keys(), &buffer[..length]) {
                let said = message.about.map(|(_, _, said)| said).unwrap_or_default();
                prop_assert!(said.classes.iter().flatten().all(|value| value.is_finite() && *value >= 0.0));
                prop_assert!(said.times.iter().flatten().all(|value| value.is_finite()));
            }
        }
    }
}
