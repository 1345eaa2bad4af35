//! For fuzzing: any bytes as datagrams, forged and authentic.

use crate::{
    Header, Keys, Kind, MAX_DATAGRAM, Message, PeerMessage, PeerSession, Rejected, Secret, Sender, Session, seal,
};

/// Feeds bytes to the reader as they are, and again as an authentic body from whoever has the key; what is understood
/// then runs through a session. Byte 0 picks kind, boot id, sequence number and the time.
///
/// # Panics
/// On a finding: a forged datagram that is believed, a number taken twice, a list that is longer than it says.
pub fn datagrams(data: &[u8]) {
    let key = Keys::derive(b"the key of the fuzz target");
    assert!(Message::read(&key, data).is_err(), "a forged datagram is believed");
    let secret = Secret::new([1, 2, 3, 4]);
    let mut session = Session::default();
    let mut sender = Sender::new(1);
    let mut obeyed = 0;
    let (mut now, mut token, mut taken) = (0u64, 0u64, Vec::new());
    let mut peer = PeerSession::new();
    for (at, part) in data.chunks(64).enumerate() {
        let [what, body @ ..] = part else { return };
        let kind = Kind::ALL[usize::from(what & 3)];
        let header =
            Header { kind, boot: u64::from(what >> 2 & 1), sequence: u64::from(what >> 3) + at as u64 / 4, token };
        let mut buffer = [0; MAX_DATAGRAM];
        buffer[32..32 + body.len()].copy_from_slice(body);
        let length = seal(&key.first(), &header, &mut buffer, body.len());
        match Message::read(&key, &buffer[..length]) {
            Err(why) => assert_eq!(why, Rejected::Malformed),
            Ok(message) => {
                if let Some(report) = message.report {
                    assert!(report.active().count() + report.connections().count() <= 510);
                    assert!(report.gauges.iter().all(|(_, value)| value >= 0.0 && value.is_finite()));
                }
                assert_eq!(message.command.is_some(), kind == Kind::Command);
                sender.next(Kind::Report);
                let before = sender;
                match kind {
                    Kind::Command if sender.obey(&message, "s").is_ok() => {
                        assert!(token != 0 && header.sequence > obeyed, "a command is obeyed twice");
                        obeyed = header.sequence;
                    }
                    Kind::Challenge if sender.hear(&message, "s").is_ok() => obeyed = 0,
                    _ => assert_eq!(format!("{before:?}"), format!("{sender:?}"), "what is refused changes nothing"),
                }
            }
        }
        say_to_peer(&key, &header, body, &mut peer);
        now += u64::from(*what) * 20_000_000;
        let generation = session.generation();
        match session.admit(&secret, "s", &header, now, 300_000_000) {
            Ok(()) => {
                if session.generation() != generation {
                    taken.clear();
                }
                assert!(taken.iter().all(|&before| before < header.sequence), "taken twice, or late");
                taken.push(header.sequence);
            }
            Err(refused) => token = refused.challenge.unwrap_or(token),
        }
    }
}

/// The same body as another sentry's: with the nonce that it should carry, and without.
fn say_to_peer(key: &Keys, header: &Header, body: &[u8], peer: &mut PeerSession) {
    assert!(PeerMessage::read(key, body).is_err(), "a forged datagram is believed");
    let kind = if body.len() == 8 { Kind::Farewell } else { Kind::Summary };
    let (_, nonce) = peer.next(0, kind);
    for token in [header.token, nonce] {
        let mut buffer = [0; MAX_DATAGRAM];
        buffer[32..32 + body.len()].copy_from_slice(body);
        let length = seal(&key.first(), &Header { kind, token, ..*header }, &mut buffer, body.len());
        match PeerMessage::read(key, &buffer[..length]) {
            Err(why) => assert_eq!(why, Rejected::Malformed),
            Ok(message) => {
                let is_fresh = peer.hear(&message).is_ok();
                assert!(!is_fresh || token == nonce, "one without the nonce is taken");
                assert!(!is_fresh || peer.hear(&message) != Ok(None), "a number is taken twice");
            }
        }
    }
}
