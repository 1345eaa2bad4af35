//! A client that sends bytes as it is told.

use std::io::{self, Read, Write};
use std::net::{Shutdown as Half, SocketAddr, TcpStream};

use super::PATIENCE;

/// A raw client.
pub struct Client {
    pub io: TcpStream,
    pub(super) read: Vec<u8>,
}

/// What a client got.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    pub status: u16,
    pub head: String,
    pub body: Vec<u8>,
}

impl Answer {
    /// A field's value.
    pub fn field(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().filter_map(|line| line.split_once(':'));
        lines.find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

impl Client {
    pub fn connect(address: SocketAddr) -> Self {
        let io = TcpStream::connect(address).expect("a connection");
        io.set_read_timeout(Some(PATIENCE)).expect("a time-out");
        io.set_nodelay(true).expect("no delay");
        Client { io, read: Vec::new() }
    }

    /// A client on a connection that is open.
    pub fn over(io: TcpStream) -> Self {
        io.set_read_timeout(Some(PATIENCE)).expect("a time-out");
        Client { io, read: Vec::new() }
    }

    /// A client at another address of this machine.
    pub fn connect_from(own: std::net::IpAddr, address: SocketAddr) -> Self {
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).expect("a socket");
        socket.bind(&SocketAddr::new(own, 0).into()).expect("an address");
        socket.connect(&address.into()).expect("a connection");
        let io = TcpStream::from(socket);
        io.set_read_timeout(Some(PATIENCE)).expect("a time-out");
        Client { io, read: Vec::new() }
    }

    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.io.write_all(bytes.as_ref()).expect("a write");
    }

    pub fn close_sending(&self) {
        self.io.shutdown(Half::Write).expect("half a close");
    }

    /// The next answer to a request with a body.
    #[track_caller]
    pub fn answer(&mut self) -> Answer {
        self.try_answer(false).expect("an answer")
    }

    /// The next answer to a HEAD request.
    #[track_caller]
    pub fn head_answer(&mut self) -> Answer {
        self.try_answer(true).expect("an answer")
    }

    /// The next answer, or how the connection ended instead.
    pub fn try_answer(&mut self, head_only: bool) -> io::Result<Answer> {
        let end = loop {
            if let Some(at) = find(&self.read, b"\r\n\r\n") {
                break at + 4;
            }
            self.more()?;
        };
        let head = String::from_utf8_lossy(&self.read[..end]).into_owned();
        self.read.drain(..end);
        let status = head.split(' ').nth(1).and_then(|s| s.parse().ok()).unwrap_or(0);
        let mut answer = Answer { status, head, body: Vec::new() };
        if head_only || status / 100 == 1 || status == 204 || status == 304 {
            return Ok(answer);
        }
        answer.body = if answer.field("transfer-encoding").is_some() {
            self.chunks()?
        } else if let Some(length) = answer.field("content-length").and_then(|l| l.parse().ok()) {
            self.exactly(length)?
        } else {
            while self.more().is_ok() {}
            std::mem::take(&mut self.read)
        };
        Ok(answer)
    }

    /// Everything up to the end of the connection.
    #[track_caller]
    pub fn rest(&mut self) -> Vec<u8> {
        loop {
            match self.more() {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => panic!("the connection stays open"),
                Err(_) => return std::mem::take(&mut self.read),
            }
        }
    }

    /// Whether the other end has closed, with nothing more to read.
    #[track_caller]
    pub fn assert_closed(&mut self) {
        let rest = self.rest();
        assert!(rest.is_empty(), "unexpected: {:?}", String::from_utf8_lossy(&rest));
    }

    pub fn exactly(&mut self, length: usize) -> io::Result<Vec<u8>> {
        while self.read.len() < length {
            self.more()?;
        }
        Ok(self.read.drain(..length).collect())
    }

    pub(super) fn chunks(&mut self) -> io::Result<Vec<u8>> {
        let mut body = Vec::new();
        loop {
            let line = self.line()?;
            let size = usize::from_str_radix(line.split(';').next().unwrap_or("").trim(), 16);
            let size = size.map_err(|_| io::Error::other(format!("bad chunk size {line:?}")))?;
            if size == 0 {
                while !self.line()?.is_empty() {}
                return Ok(body);
            }
            body.extend(self.exactly(size)?);
            self.line()?;
        }
    }

    fn line(&mut self) -> io::Result<String> {
        loop {
            if let Some(at) = find(&self.read, b"\r\n") {
                let line = String::from_utf8_lossy(&self.read[..at]).into_owned();
                self.read.drain(..at + 2);
                return Ok(line);
            }
            self.more()?;
        }
    }

    pub(super) fn more(&mut self) -> io::Result<()> {
        let mut buffer = [0; 16 * 1024];
        match self.io.read(&mut buffer) {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(n) => {
                self.read.extend_from_slice(&buffer[..n]);
                Ok(())
            }
            // A process that was stopped for a while.
            Err(error) if error.kind() == io::ErrorKind::Interrupted => self.more(),
            Err(error) => Err(error),
        }
    }
}

pub fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack.windows(needle.len()).position(|window| window == needle)
}
