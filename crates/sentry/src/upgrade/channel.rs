//! A Unix socket over which messages and file descriptors go.

use std::collections::VecDeque;
use std::io::{self, IoSlice, IoSliceMut, Write};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg,
};

use super::message::Message;

/// Descriptors of one message: the kernel takes no more than 253.
pub(super) const MOST_SOCKETS: usize = 200;

/// A longer message is no message.
const LONGEST: usize = 1 << 20;

/// Bytes before each message: its length, and how many descriptors are its own.
const HEADER: usize = 8;

/// The other end takes what it is told within this time, or is gone.
const PATIENCE: Duration = Duration::from_secs(5);

/// One end.
#[derive(Debug)]
pub(super) struct Channel {
    stream: UnixStream,
    /// What came and is no whole message yet.
    bytes: Vec<u8>,
    sockets: VecDeque<OwnedFd>,
}

impl Channel {
    pub(super) fn new(stream: UnixStream) -> io::Result<Channel> {
        stream.set_nonblocking(false)?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Channel { stream, bytes: Vec::new(), sockets: VecDeque::new() })
    }

    /// Says something, and passes descriptors with it, at most [`MOST_SOCKETS`].
    pub(super) fn send(&mut self, message: &Message, sockets: &[BorrowedFd<'_>]) -> io::Result<()> {
        let text = serde_json::to_vec(message).map_err(io::Error::other)?;
        let mut bytes = Vec::with_capacity(HEADER + text.len());
        bytes.extend((text.len() as u32).to_le_bytes());
        bytes.extend((sockets.len() as u32).to_le_bytes());
        bytes.extend(text);
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_SOCKETS))];
        let mut with = SendAncillaryBuffer::new(&mut space);
        if !sockets.is_empty() && !with.push(SendAncillaryMessage::ScmRights(sockets)) {
            return Err(io::Error::other("too many sockets for one message"));
        }
        let sent = sendmsg(&self.stream, &[IoSlice::new(&bytes)], &mut with, SendFlags::NOSIGNAL)?;
        // Descriptors go with the first byte.
        self.stream.write_all(&bytes[sent..])
    }

    /// The next message with its descriptors; `None`: the other end is closed.
    ///
    /// # Errors
    /// [`io::ErrorKind::TimedOut`] when nothing came in time: it may be asked again. Otherwise what comes is no
    /// message.
    pub(super) fn receive(&mut self, deadline: Instant) -> io::Result<Option<(Message, Vec<OwnedFd>)>> {
        loop {
            if let Some(message) = self.take()? {
                return Ok(Some(message));
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            self.stream.set_read_timeout(Some(left))?;
            match self.read() {
                Ok(0) => return Ok(None),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Err(io::ErrorKind::TimedOut.into()),
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(None),
                Err(error) => return Err(error),
            }
        }
    }

    fn read(&mut self) -> io::Result<usize> {
        let mut buffer = [0; 16 * 1024];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_SOCKETS))];
        let mut with = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::CMSG_CLOEXEC;
        let read = recvmsg(&self.stream, &mut [IoSliceMut::new(&mut buffer)], &mut with, flags)?.bytes;
        for message in with.drain() {
            if let RecvAncillaryMessage::ScmRights(sockets) = message {
                self.sockets.extend(sockets);
            }
        }
        self.bytes.extend_from_slice(&buffer[..read]);
        Ok(read)
    }

    /// A message that is here.
    fn take(&mut self) -> io::Result<Option<(Message, Vec<OwnedFd>)>> {
        let number = |at: usize| {
            let bytes = self.bytes.get(at..at + 4)?;
            Some(u32::from_le_bytes(bytes.try_into().ok()?) as usize)
        };
        let (Some(length), Some(count)) = (number(0), number(4)) else { return Ok(None) };
        if length > LONGEST || count > MOST_SOCKETS {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "what came is no message of a tidegate"));
        }
        if self.bytes.len() < HEADER + length {
            return Ok(None);
        }
        if self.sockets.len() < count {
            let what = "the system did not pass every socket: too many files are open";
            return Err(io::Error::new(io::ErrorKind::InvalidData, what));
        }
        let message = serde_json::from_slice(&self.bytes[HEADER..HEADER + length])?;
        self.bytes.drain(..HEADER + length);
        Ok(Some((message, self.sockets.drain(..count).collect())))
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(60)
    }

    fn pair() -> (Channel, UnixStream) {
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        (Channel::new(ours).expect("a channel"), theirs)
    }

    #[test]
    fn messages_and_their_descriptors_arrive_together_and_in_order() {
        let (mut ours, theirs) = pair();
        let mut theirs = Channel::new(theirs).expect("a channel");
        let (a, b) = UnixStream::pair().expect("a pair");
        ours.send(&Message::Upgrade, &[]).expect("it is taken");
        ours.send(&Message::Sockets { names: vec!["a".into(), "b".into()] }, &[a.as_fd(), b.as_fd()])
            .expect("it is taken");
        ours.send(&Message::Learned, &[a.as_fd()]).expect("it is taken");
        let mut next = || {
            let (message, sockets) = theirs.receive(soon()).expect("a message").expect("it is open");
            (message, sockets.len())
        };
        assert_eq!(next(), (Message::Upgrade, 0));
        assert_eq!(next(), (Message::Sockets { names: vec!["a".into(), "b".into()] }, 2));
        assert_eq!(next(), (Message::Learned, 1));
        drop(ours);
        assert!(theirs.receive(soon()).expect("it is closed in order").is_none());
    }

    #[test]
    fn what_is_no_message_is_an_error_and_what_is_not_whole_is_waited_for() {
        let (mut ours, mut theirs) = pair();
        theirs.write_all(&[2, 0, 0, 0, 0, 0]).expect("it is taken");
        let late = ours.receive(Instant::now()).expect_err("nothing is whole");
        assert_eq!(late.kind(), io::ErrorKind::TimedOut);
        theirs.write_all(&[0, 0, b'{', b'}']).expect("it is taken");
        assert_eq!(ours.receive(soon()).expect_err("it says nothing").kind(), io::ErrorKind::InvalidData);
        for header in [[0, 0, 0, 1, 0, 0, 0, 0], [2, 0, 0, 0, 255, 0, 0, 0], [2, 0, 0, 0, 1, 0, 0, 0]] {
            let (mut ours, mut theirs) = pair();
            theirs.write_all(&header).expect("it is taken");
            theirs.write_all(b"{}").expect("it is taken");
            assert_eq!(ours.receive(soon()).expect_err("no message").kind(), io::ErrorKind::InvalidData);
        }
    }

    #[test]
    fn what_a_later_version_says_is_understood_as_something_else() {
        let (mut ours, mut theirs) = pair();
        let text = br#"{"say":"sing","loud":true}"#;
        let length = u8::try_from(text.len()).expect("short");
        theirs.write_all(&[length, 0, 0, 0, 0, 0, 0, 0]).expect("it is taken");
        theirs.write_all(text).expect("it is taken");
        assert_eq!(ours.receive(soon()).expect("a message").expect("it is open").0, Message::Other);
    }
}
