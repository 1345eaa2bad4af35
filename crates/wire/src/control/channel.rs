//! The encrypted, authenticated channel between a sentry and the control plane.
//!
//! ```text
//! "TGC" version:u8                     once, in both directions, in the clear
//! length:u16 handshake                 once, in both directions
//! length:u16 sealed(more:u8 text...)   then always; a long message is several of these, all but the last with more = 1
//! ```
//!
//! *Intuition.* Noise `NNpsk0`: both sides draw keys for this connection and mix the shared secret in, so that only who
//! holds the secret can open or make anything, and who learns it later can read nothing of what was said before. A
//! recorded connection is worth nothing, for the other side's half is new each time.
//!
//! *Why not TLS.* There is no name to prove, only a secret to share: with TLS an operator would have to make and renew
//! certificates for the same result, and everybody would build a library several times the size.
//!
//! *Awkward cases.* Before the handshake is through nobody is believed: its messages are short, and longer ones end the
//! connection. A message may be as long as the server set of a large site, and no longer.

use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;
use snow::{Builder, HandshakeState, TransportState};
use thiserror::Error;

use crate::key::{KeyError, long_enough, read};

/// The version spoken here.
pub const VERSION: u8 = 1;

/// The most bytes of a message.
pub const MAX_MESSAGE: usize = 16 << 20;

const PATTERN: &str = "Noise_NNpsk0_25519_ChaChaPoly_BLAKE2s";
/// Separates these keys from whatever else the same secret may be used for.
const CONTEXT: &str = "tidegate 2026 control v1 channel";
const MAGIC: [u8; 3] = *b"TGC";
const PREFACE: usize = 4;
/// Both handshake messages are 48 bytes.
const MAX_HANDSHAKE: usize = 128;
/// Of what Noise can seal at once.
const CHUNK: usize = 60_000;
const TAG: usize = 16;

/// The secret that sentries and the control plane share. Its text form shows nothing.
#[derive(Clone, PartialEq, Eq)]
pub struct ControlKey([u8; 32]);

/// Why a connection ends.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ChannelError {
    /// The other side is something else.
    #[error("the other side does not speak tidegate's control protocol; check the address")]
    Stranger,
    /// The other side is of another version.
    #[error(
        "the other side speaks version {theirs} of the control protocol, this one {VERSION}; update the older of the two"
    )]
    Version {
        /// Protocol version of the other side.
        theirs: u8,
    },
    /// The other side has another key, or something between changed the bytes.
    #[error("the other side has another key, or the connection was tampered with; both sides need the same key file")]
    Key,
    /// It says what cannot be.
    #[error("the other side sent an invalid message: {0}")]
    Nonsense(String),
}

/// One side of a connection. Takes and gives bytes; whoever drives it moves them.
pub struct Channel {
    state: State,
    answers: bool,
    greeted: bool,
    /// Bytes that came and make no whole frame yet.
    inbound: Vec<u8>,
    /// The message that is coming, as far as it came.
    message: Vec<u8>,
    ready: std::collections::VecDeque<Vec<u8>>,
    /// Messages that wait for the handshake.
    held: Vec<Vec<u8>>,
    outbound: Vec<u8>,
}

enum State {
    Opening(Box<HandshakeState>),
    Open(Box<TransportState>),
}

impl ControlKey {
    /// The key that follows from a secret. White space around it does not count.
    pub fn derive(secret: &[u8]) -> ControlKey {
        ControlKey(blake3::derive_key(CONTEXT, secret.trim_ascii()))
    }

    /// Reads the secret from a file: 16 bytes or more, of any kind.
    ///
    /// # Errors
    /// When it cannot be read, or is too short.
    pub fn load(path: &Path) -> Result<ControlKey, KeyError> {
        ControlKey::from_secret(&read(path)?, path)
    }

    /// The key of a secret that was read from `path`.
    ///
    /// # Errors
    /// When it is too short.
    pub fn from_secret(secret: &[u8], path: &Path) -> Result<ControlKey, KeyError> {
        Ok(ControlKey::derive(long_enough(secret, path)?))
    }
}

impl std::fmt::Debug for ControlKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ControlKey(hidden)")
    }
}

impl std::fmt::Debug for Channel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Channel").field("open", &self.is_open()).finish_non_exhaustive()
    }
}

impl Channel {
    /// The side that connects. Has bytes to send at once.
    pub fn connecting(key: &ControlKey) -> Channel {
        let mut channel = Channel::new(key, false);
        // The first message of this pattern needs nothing from the other side.
        channel.shake().expect("a handshake begins");
        channel
    }

    /// The side that is connected to.
    pub fn answering(key: &ControlKey) -> Channel {
        Channel::new(key, true)
    }

    fn new(key: &ControlKey, answers: bool) -> Channel {
        let pattern = PATTERN.parse().expect("a known pattern");
        let prologue = preface();
        let builder = Builder::new(pattern).psk(0, &key.0).and_then(|builder| builder.prologue(&prologue));
        let builder = builder.expect("a key and a prologue are set once");
        let state = if answers { builder.build_responder() } else { builder.build_initiator() };
        Channel {
            state: State::Opening(Box::new(state.expect("the pattern needs a shared key only"))),
            answers,
            greeted: false,
            inbound: Vec::new(),
            message: Vec::new(),
            ready: std::collections::VecDeque::new(),
            held: Vec::new(),
            outbound: preface().to_vec(),
        }
    }

    /// Takes bytes that came.
    ///
    /// # Errors
    /// Why the connection is to end; what [`Channel::poll_bytes`] has is to be sent before.
    pub fn handle_bytes(&mut self, bytes: &[u8]) -> Result<(), ChannelError> {
        self.inbound.extend_from_slice(bytes);
        if !self.greeted {
            if self.inbound.len() < PREFACE {
                return if MAGIC.starts_with(&self.inbound[..self.inbound.len().min(3)]) {
                    Ok(())
                } else {
                    Err(ChannelError::Stranger)
                };
            }
            let (magic, theirs) = (&self.inbound[..3], self.inbound[3]);
            if magic != MAGIC {
                return Err(ChannelError::Stranger);
            }
            if theirs != VERSION {
                return Err(ChannelError::Version { theirs });
            }
            self.inbound.drain(..PREFACE);
            self.greeted = true;
        }
        let mut at = 0;
        while let Some(length) =
            self.inbound.get(at..at + 2).map(|two| usize::from(u16::from_be_bytes([two[0], two[1]])))
        {
            if !self.is_open() && length > MAX_HANDSHAKE {
                return Err(ChannelError::Nonsense(format!("a handshake of {length} bytes")));
            }
            let Some(frame) = self.inbound.get(at + 2..at + 2 + length).map(<[u8]>::to_vec) else { break };
            at += 2 + length;
            self.frame(&frame)?;
        }
        self.inbound.drain(..at);
        Ok(())
    }

    /// Sends a message, as soon as the handshake is through.
    ///
    /// # Panics
    /// When the message cannot be written as text, or is longer than [`MAX_MESSAGE`]: mistakes of this program.
    pub fn send(&mut self, message: &impl Serialize) {
        let text = serde_json::to_vec(message).expect("messages have a text form");
        assert!(text.len() <= MAX_MESSAGE, "a message of {} bytes", text.len());
        match self.state {
            State::Opening(_) => self.held.push(text),
            State::Open(_) => self.seal(&text),
        }
    }

    /// The next message that came.
    ///
    /// # Errors
    /// When it is none of this kind.
    pub fn poll_message<M: DeserializeOwned>(&mut self) -> Result<Option<M>, ChannelError> {
        let Some(text) = self.ready.pop_front() else { return Ok(None) };
        serde_json::from_slice(&text).map(Some).map_err(|error| ChannelError::Nonsense(error.to_string()))
    }

    /// Bytes to send to the other side.
    pub fn poll_bytes(&mut self) -> Option<Vec<u8>> {
        (!self.outbound.is_empty()).then(|| std::mem::take(&mut self.outbound))
    }

    /// Whether the other side has shown that it holds the key.
    pub fn is_open(&self) -> bool {
        matches!(self.state, State::Open(_))
    }

    fn frame(&mut self, frame: &[u8]) -> Result<(), ChannelError> {
        let mut buffer = vec![0; frame.len().max(MAX_HANDSHAKE)];
        match &mut self.state {
            State::Opening(noise) => {
                noise.read_message(frame, &mut buffer).map_err(|_| ChannelError::Key)?;
                if self.answers {
                    self.shake()?;
                }
                self.open()
            }
            State::Open(noise) => {
                let length = noise.read_message(frame, &mut buffer).map_err(|_| ChannelError::Key)?;
                let Some((more, text)) = buffer[..length].split_first() else {
                    return Err(ChannelError::Nonsense(String::from("an empty frame")));
                };
                if self.message.len() + text.len() > MAX_MESSAGE {
                    return Err(ChannelError::Nonsense(format!("a message of more than {MAX_MESSAGE} bytes")));
                }
                self.message.extend_from_slice(text);
                if *more == 0 {
                    self.ready.push_back(std::mem::take(&mut self.message));
                }
                Ok(())
            }
        }
    }

    /// Writes this side's half of the handshake.
    fn shake(&mut self) -> Result<(), ChannelError> {
        let State::Opening(noise) = &mut self.state else { return Ok(()) };
        let mut buffer = [0; MAX_HANDSHAKE];
        let length = noise.write_message(&[], &mut buffer).map_err(|_| ChannelError::Key)?;
        push(&mut self.outbound, &buffer[..length]);
        Ok(())
    }

    fn open(&mut self) -> Result<(), ChannelError> {
        let State::Opening(noise) = &self.state else { return Ok(()) };
        if !noise.is_handshake_finished() {
            return Ok(());
        }
        let placeholder = State::Opening(noise_of_nobody());
        let State::Opening(noise) = std::mem::replace(&mut self.state, placeholder) else { return Ok(()) };
        self.state = State::Open(Box::new(noise.into_transport_mode().map_err(|_| ChannelError::Key)?));
        for text in std::mem::take(&mut self.held) {
            self.seal(&text);
        }
        Ok(())
    }

    fn seal(&mut self, text: &[u8]) {
        let State::Open(noise) = &mut self.state else { return };
        let mut chunks = text.chunks(CHUNK).peekable();
        let mut buffer = vec![0; CHUNK + 1 + TAG];
        while let Some(chunk) = chunks.next() {
            let mut plain = Vec::with_capacity(chunk.len() + 1);
            plain.push(u8::from(chunks.peek().is_some()));
            plain.extend_from_slice(chunk);
            let length = noise.write_message(&plain, &mut buffer).expect("there is room, and keys for 2^64 frames");
            push(&mut self.outbound, &buffer[..length]);
        }
    }
}

fn preface() -> [u8; PREFACE] {
    [MAGIC[0], MAGIC[1], MAGIC[2], VERSION]
}

/// Stands in for a moment where a state is moved out.
fn noise_of_nobody() -> Box<HandshakeState> {
    let builder = Builder::new(PATTERN.parse().expect("a known pattern")).psk(0, &[0; 32]);
    Box::new(builder.and_then(Builder::build_initiator).expect("the pattern needs a shared key only"))
}

fn push(outbound: &mut Vec<u8>, frame: &[u8]) {
    let length = u16::try_from(frame.len()).expect("frames are short");
    outbound.extend_from_slice(&length.to_be_bytes());
    outbound.extend_from_slice(frame);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn key(text: &str) -> ControlKey {
        ControlKey::derive(text.as_bytes())
    }

    /// Moves bytes in pieces until neither side has any.
    fn carry(one: &mut Channel, other: &mut Channel, piece: usize) -> Result<(), ChannelError> {
        loop {
            let (there, back) = (one.poll_bytes(), other.poll_bytes());
            if there.is_none() && back.is_none() {
                return Ok(());
            }
            for bytes in there.unwrap_or_default().chunks(piece) {
                other.handle_bytes(bytes)?;
            }
            for bytes in back.unwrap_or_default().chunks(piece) {
                one.handle_bytes(bytes)?;
            }
        }
    }

    #[test]
    fn messages_pass_both_ways_and_cannot_be_read_between() {
        let (mut sentry, mut control) = (Channel::connecting(&key("k")), Channel::answering(&key("k")));
        sentry.send(&"what nobody may see");
        carry(&mut sentry, &mut control, 7).expect("opens");
        assert!(sentry.is_open() && control.is_open());
        assert_eq!(control.poll_message::<String>(), Ok(Some(String::from("what nobody may see"))));
        control.send(&"what nobody may see");
        let bytes = control.poll_bytes().expect("bytes");
        assert!(!bytes.windows(6).any(|window| window == b"nobody"));
        sentry.handle_bytes(&bytes).expect("is taken");
        assert_eq!(sentry.poll_message::<String>().map(|m| m.is_some()), Ok(true));
        // Said twice by somebody between: not taken twice.
        assert_eq!(sentry.handle_bytes(&bytes), Err(ChannelError::Key));
    }

    #[test]
    fn another_key_another_version_and_another_program_are_told_apart() {
        let (mut sentry, mut control) = (Channel::connecting(&key("k")), Channel::answering(&key("other")));
        assert_eq!(carry(&mut sentry, &mut control, 1000), Err(ChannelError::Key));
        assert_eq!(Channel::answering(&key("k")).handle_bytes(b"TGC\x07"), Err(ChannelError::Version { theirs: 7 }));
        assert_eq!(Channel::answering(&key("k")).handle_bytes(b"GET / HTTP/1.1"), Err(ChannelError::Stranger));
        assert_eq!(Channel::answering(&key("k")).handle_bytes(b"TG"), Ok(()));
        let long = [b"TGC\x01".as_slice(), &u16::MAX.to_be_bytes()].concat();
        assert!(matches!(Channel::answering(&key("k")).handle_bytes(&long), Err(ChannelError::Nonsense(_))));
    }

    #[test]
    fn a_recorded_beginning_opens_nothing() {
        let (mut sentry, mut control) = (Channel::connecting(&key("k")), Channel::answering(&key("k")));
        sentry.send(&1);
        let hello = sentry.poll_bytes().expect("bytes");
        control.handle_bytes(&hello).expect("is taken");
        sentry.handle_bytes(&control.poll_bytes().expect("bytes")).expect("opens");
        let message = sentry.poll_bytes().expect("bytes");
        let mut later = Channel::answering(&key("k"));
        later.handle_bytes(&hello).expect("the beginning can be repeated");
        assert_eq!(later.handle_bytes(&message), Err(ChannelError::Key), "but what follows cannot");
    }

    proptest! {
        #[test]
        fn long_messages_arrive_whole(length in 0usize..300_000, piece in 1usize..70_000) {
            let (mut sentry, mut control) = (Channel::connecting(&key("k")), Channel::answering(&key("k")));
            let text = "x".repeat(length);
            sentry.send(&text);
            carry(&mut sentry, &mut control, piece).unwrap();
            prop_assert_eq!(control.poll_message::<String>(), Ok(Some(text)));
        }

        #[test]
        fn any_bytes_are_refused_or_waited_for(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            let mut control = Channel::answering(&key("k"));
            let _ = control.handle_bytes(&bytes);
            let _ = control.handle_bytes(&[b"TGC\x01".as_slice(), &bytes].concat());
            prop_assert!(!control.is_open());
        }
    }
}
