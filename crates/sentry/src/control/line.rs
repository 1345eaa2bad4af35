//! A connection to a control plane: messages in and out of an encrypted stream.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use tidegate_wire::control::{Channel, ControlKeys, FromControl, FromSentry};

use super::{Over, PATIENCE, STUCK};

/// A connection with its channel.
pub(super) struct Line {
    stream: TcpStream,
    channel: Channel,
    buffer: Vec<u8>,
}

impl Line {
    pub(super) fn open(connect: &str, keys: &ControlKeys) -> Result<Line, Over> {
        let mut last = io::Error::from(io::ErrorKind::NotFound);
        for address in connect.to_socket_addrs()? {
            match TcpStream::connect_timeout(&address, PATIENCE) {
                Ok(stream) => {
                    stream.set_write_timeout(Some(STUCK))?;
                    stream.set_nodelay(true)?;
                    return Ok(Line { stream, channel: Channel::connecting(keys), buffer: vec![0; 16 * 1024] });
                }
                Err(error) => last = error,
            }
        }
        Err(last.into())
    }

    pub(super) fn send(&mut self, message: &FromSentry) -> Result<(), Over> {
        self.channel.send(message);
        self.flush()
    }

    fn flush(&mut self) -> Result<(), Over> {
        while let Some(bytes) = self.channel.poll_bytes() {
            self.stream.write_all(&bytes)?;
        }
        Ok(())
    }

    /// The next message, if one comes within `patience`.
    pub(super) fn receive(&mut self, patience: Duration) -> Result<Option<FromControl>, Over> {
        if let Some(message) = self.channel.poll_message()? {
            return Ok(Some(message));
        }
        // Zero would mean for ever.
        self.stream.set_read_timeout(Some(patience.max(Duration::from_millis(1))))?;
        match self.stream.read(&mut self.buffer) {
            Ok(0) if self.channel.is_open() => Err(Over::Lost(String::from("it closed the connection"))),
            Ok(0) => Err(Over::Lost(String::from("it closed the connection; is the key the same on both sides?"))),
            Ok(read) => {
                self.channel.handle_bytes(&self.buffer[..read])?;
                self.flush()?;
                Ok(self.channel.poll_message()?)
            }
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}
