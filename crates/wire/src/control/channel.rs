//! The encrypted, authenticated channel between a sentry and the control plane.
//!
//! ```text
//! "TGC" version:u8                     once, in both directions, in the clear
//! length:u16 handshake name            once, in both directions; a name only from a sentry that has its own key
//! length:u16 sealed(more:u8 text...)   then always; a long message is several of these, all but the last with more = 1
//! ```
//!
//! *Intuition.* Noise `NNpsk0`: both sides draw keys for this connection and mix the shared secret in, so that only who
//! holds the secret can open or make anything, and who learns it later can read nothing of what was said before. A
//! recorded connection is worth nothing, for the other side's half is new each time.
//!
//! A control plane that holds several secrets tries each of them on the first message, and on that of a sentry with its
//! own key what follows from each for the name that it says. So a key can be changed while all of them are connected.
//!
//! *Why not TLS.* There is no name to prove, only a secret to share: with TLS an operator would have to make and renew
//! certificates for the same result, and everybody would build a library several times the size.
//!
//! *Awkward cases.* Before the handshake is through nobody is believed: its messages are short, and longer ones end the
//! connection. A message may be as long as the server set of a large site, and no longer.

use serde::Serialize;
use serde::de::DeserializeOwned;
use snow::{Builder, HandshakeState, TransportState};
use thiserror::Error;

use super::keys::{ControlKey, ControlKeys};

/// The version spoken here.
pub const VERSION: u8 = 1;

/// The most bytes of a message.
pub const MAX_MESSAGE: usize = 16 << 20;

const PATTERN: &str = "Noise_NNpsk0_25519_ChaChaPoly_BLAKE2s";
const MAGIC: [u8; 3] = *b"TGC";
/// What each side says first, in clear text.
const PREFACE: [u8; 4] = [MAGIC[0], MAGIC[1], MAGIC[2], VERSION];
/// Both handshake messages are so many bytes.
const HANDSHAKE: usize = 48;
/// The most bytes of a sentry's name behind the first.
const MAX_NAME: usize = 255;
/// Of what Noise can seal at once.
const CHUNK: usize = 60_000;
const TAG: usize = 16;

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
    /// What it was opened with; at first, of the side that connects, what it is to be opened with.
    key: Option<ControlKey>,
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
    /// The other side is to connect, with one of these.
    Waiting(ControlKeys),
    Opening(Box<HandshakeState>),
    Open(Box<TransportState>),
}

impl std::fmt::Debug for Channel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Channel").field("open", &self.is_open()).finish_non_exhaustive()
    }
}

impl Channel {
    /// The side that connects. Has bytes to send at once.
    ///
    /// # Panics
    /// When its own key is of a name that is longer than 255 bytes.
    pub fn connecting(keys: &ControlKeys) -> Channel {
        let key = keys.first();
        let mut noise = builder(&key).build_initiator().expect("the pattern needs a shared key only");
        let name = key.owner().unwrap_or_default();
        assert!(name.len() <= MAX_NAME, "a sentry's name of {} bytes", name.len());
        let mut frame = write_handshake(&mut noise).expect("the first message of this pattern needs nothing of others");
        frame.extend_from_slice(name.as_bytes());
        let mut channel = Channel::new(State::Opening(Box::new(noise)), Some(key));
        push(&mut channel.outbound, &frame);
        channel
    }

    /// The side that is connected to.
    pub fn answering(keys: &ControlKeys) -> Channel {
        Channel::new(State::Waiting(keys.clone()), None)
    }

    fn new(state: State, key: Option<ControlKey>) -> Channel {
        Channel {
            state,
            key,
            greeted: false,
            inbound: Vec::new(),
            message: Vec::new(),
            ready: std::collections::VecDeque::new(),
            held: Vec::new(),
            outbound: PREFACE.to_vec(),
        }
    }

    /// What it was opened with, once it is open.
    pub fn key(&self) -> Option<&ControlKey> {
        self.key.as_ref().filter(|_| self.is_open())
    }

    /// Takes bytes that came.
    ///
    /// # Errors
    /// Why the connection is to end; what [`Channel::poll_bytes`] has is to be sent before.
    pub fn handle_bytes(&mut self, bytes: &[u8]) -> Result<(), ChannelError> {
        self.inbound.extend_from_slice(bytes);
        if !self.greeted {
            if self.inbound.len() < PREFACE.len() {
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
            self.inbound.drain(..PREFACE.len());
            self.greeted = true;
        }
        let mut at = 0;
        while let Some(length) =
            self.inbound.get(at..at + 2).map(|two| usize::from(u16::from_be_bytes([two[0], two[1]])))
        {
            if !self.is_open() && length > HANDSHAKE + MAX_NAME {
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
            State::Open(_) => self.seal(&text),
            State::Waiting(_) | State::Opening(_) => self.held.push(text),
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
        match &mut self.state {
            State::Waiting(keys) => {
                let (key, mut noise) = answer(keys, frame).ok_or(ChannelError::Key)?;
                push(&mut self.outbound, &write_handshake(&mut noise)?);
                self.key = Some(key);
                self.open(noise)
            }
            State::Opening(noise) => {
                noise.read_message(frame, &mut [0; HANDSHAKE + MAX_NAME]).map_err(|_| ChannelError::Key)?;
                let noise = std::mem::replace(noise, noise_of_nobody());
                self.open(*noise)
            }
            State::Open(noise) => {
                let mut buffer = vec![0; frame.len()];
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

    /// Both halves of the handshake are through.
    fn open(&mut self, noise: HandshakeState) -> Result<(), ChannelError> {
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

/// Reads the first message of a handshake with the key that it was made with, if it is among these.
fn answer(keys: &ControlKeys, frame: &[u8]) -> Option<(ControlKey, HandshakeState)> {
    let (handshake, name) = frame.split_at_checked(HANDSHAKE)?;
    let owner = std::str::from_utf8(name).ok()?;
    keys.of_owner((!owner.is_empty()).then_some(owner)).find_map(|key| {
        let mut noise = builder(&key).build_responder().expect("the pattern needs a shared key only");
        noise.read_message(handshake, &mut [0; HANDSHAKE]).ok()?;
        Some((key, noise))
    })
}

/// This side's half of the handshake.
fn write_handshake(noise: &mut HandshakeState) -> Result<Vec<u8>, ChannelError> {
    let mut buffer = [0; HANDSHAKE];
    let length = noise.write_message(&[], &mut buffer).map_err(|_| ChannelError::Key)?;
    Ok(buffer[..length].to_vec())
}

fn builder(key: &ControlKey) -> Builder<'_> {
    let builder = Builder::new(PATTERN.parse().expect("a known pattern"));
    let builder = builder.psk(0, key.bytes()).and_then(|builder| builder.prologue(&PREFACE));
    builder.expect("a key and a prologue are set once")
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
    use std::path::Path;

    use super::*;
    use crate::key::{Owner, own_line};
    use proptest::prelude::*;

    fn keys(text: &str) -> ControlKeys {
        ControlKeys::derive(text.as_bytes())
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
        let (mut sentry, mut control) = (Channel::connecting(&keys("k")), Channel::answering(&keys("k")));
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
        let (mut sentry, mut control) = (Channel::connecting(&keys("k")), Channel::answering(&keys("other")));
        assert_eq!(carry(&mut sentry, &mut control, 1000), Err(ChannelError::Key));
        assert_eq!(Channel::answering(&keys("k")).handle_bytes(b"TGC\x07"), Err(ChannelError::Version { theirs: 7 }));
        assert_eq!(Channel::answering(&keys("k")).handle_bytes(b"GET / HTTP/1.1"), Err(ChannelError::Stranger));
        assert_eq!(Channel::answering(&keys("k")).handle_bytes(b"TG"), Ok(()));
        let long = [b"TGC\x01".as_slice(), &u16::MAX.to_be_bytes()].concat();
        assert!(matches!(Channel::answering(&keys("k")).handle_bytes(&long), Err(ChannelError::Nonsense(_))));
    }

    #[test]
    fn a_sentry_with_its_own_key_is_itself_and_nobody_else() {
        let path = Path::new("key");
        let line = own_line("the old secret, long enough", Owner::Sentry, "one");
        let own = ControlKeys::of("one", line.as_bytes(), path).expect("its own");
        let both = b"the new secret, long enough\nthe old secret, long enough";
        let both = ControlKeys::from_secrets(both, path).expect("two secrets");
        let (mut sentry, mut control) = (Channel::connecting(&own), Channel::answering(&both));
        assert_eq!(control.key(), None, "nobody has shown anything");
        carry(&mut sentry, &mut control, 3).expect("opens");
        let key = control.key().expect("open").clone();
        assert_eq!((key.owner(), both.hold(&key)), (Some("one"), true));
        assert!(!ControlKeys::derive(b"the new secret, long enough").hold(&key), "the old one was taken out");
        // In another's name, and with the shared secret's place.
        for line in [line.replace(" one ", " two "), line.replace(" one ", " on ")] {
            let name = line.split(' ').nth(1).expect("a name");
            let (mut sentry, mut control) = (
                Channel::connecting(&ControlKeys::of(name, line.as_bytes(), path).expect("it says so")),
                Channel::answering(&both),
            );
            assert_eq!(carry(&mut sentry, &mut control, 1000), Err(ChannelError::Key), "{name}");
        }
        let (mut sentry, mut control) =
            (Channel::connecting(&keys("the old secret, long enough")), Channel::answering(&both));
        carry(&mut sentry, &mut control, 1000).expect("each of the secrets opens");
        assert_eq!(control.key().expect("open").owner(), None);
    }

    #[test]
    fn a_recorded_beginning_opens_nothing() {
        let (mut sentry, mut control) = (Channel::connecting(&keys("k")), Channel::answering(&keys("k")));
        sentry.send(&1);
        let hello = sentry.poll_bytes().expect("bytes");
        control.handle_bytes(&hello).expect("is taken");
        sentry.handle_bytes(&control.poll_bytes().expect("bytes")).expect("opens");
        let message = sentry.poll_bytes().expect("bytes");
        let mut later = Channel::answering(&keys("k"));
        later.handle_bytes(&hello).expect("the beginning can be repeated");
        assert_eq!(later.handle_bytes(&message), Err(ChannelError::Key), "but what follows cannot");
    }

    proptest! {
        #[test]
        fn long_messages_arrive_whole(length in 0usize..300_000, piece in 1usize..70_000) {
            let (mut sentry, mut control) = (Channel::connecting(&keys("k")), Channel::answering(&keys("k")));
            let text = "x".repeat(length);
            sentry.send(&text);
            carry(&mut sentry, &mut control, piece).unwrap();
            prop_assert_eq!(control.poll_message::<String>(), Ok(Some(text)));
        }

        #[test]
        fn any_bytes_are_refused_or_waited_for(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            let mut control = Channel::answering(&keys("k"));
            let _ = control.handle_bytes(&bytes);
            let _ = control.handle_bytes(&[b"TGC\x01".as_slice(), &bytes].concat());
            prop_assert!(!control.is_open());
        }
    }
}
