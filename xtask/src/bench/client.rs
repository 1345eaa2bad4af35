//! Clients that ask for so many answers, one at a time. Each answer is here before the next request is sent: what a
//! proxy does for one request is then the same every time, however busy the machine, and no count depends on how many
//! requests it happened to find at once.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

/// How long an answer may take.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// A kept connection.
#[derive(Debug)]
pub struct Client {
    stream: TcpStream,
    answer: Vec<u8>,
}

impl Client {
    /// Connects.
    ///
    /// # Errors
    /// When nobody listens.
    pub fn open(address: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect(address).with_context(|| format!("cannot connect to {address}"))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Self { stream, answer: vec![0; 128 * 1024] })
    }

    /// Asks for a path and takes the whole answer.
    ///
    /// # Errors
    /// When there is none within [`PATIENCE`], or it has another status.
    pub fn ask(&mut self, path: &str, status: u16) -> Result<()> {
        self.send(path, "")?;
        let mut read = 0;
        let length = loop {
            read += self.read(read)?;
            if let Some(length) = length(&self.answer[..read], status)? {
                break length;
            }
        };
        ensure!(length <= self.answer.len(), "an answer of {length} bytes is too long");
        while read < length {
            read += self.read(read)?;
        }
        ensure!(read == length, "the answer goes on after its end");
        Ok(())
    }

    /// The connection, which nothing more is asked of.
    pub fn into_stream(self) -> TcpStream {
        self.stream
    }

    /// Asks for a path on a connection of its own, and waits until the other side closes it.
    ///
    /// # Errors
    /// As [`ask`](Self::ask).
    pub fn ask_once(address: SocketAddr, path: &str, status: u16) -> Result<()> {
        let mut client = Self::open(address)?;
        client.send(path, "Connection: close\r\n")?;
        let mut answer = Vec::new();
        client.stream.read_to_end(&mut answer).context("no whole answer")?;
        let length = length(&answer, status)?;
        ensure!(length == Some(answer.len()), "an answer of {} bytes, not of {length:?}", answer.len());
        Ok(())
    }

    fn send(&mut self, path: &str, fields: &str) -> Result<()> {
        // In one write: `write!` on a socket would send its pieces one by one.
        let request = format!("GET {path} HTTP/1.1\r\nHost: bench\r\n{fields}\r\n");
        self.stream.write_all(request.as_bytes()).context("cannot send")
    }

    fn read(&mut self, from: usize) -> Result<usize> {
        let read = self.stream.read(&mut self.answer[from..]).context("no whole answer")?;
        ensure!(read > 0, "the connection was closed before the end of an answer");
        Ok(read)
    }
}

/// The length of an answer with its head; none as long as the head is not complete.
fn length(answer: &[u8], status: u16) -> Result<Option<usize>> {
    let Some(end) = answer.windows(4).position(|four| four == b"\r\n\r\n") else { return Ok(None) };
    let head = std::str::from_utf8(&answer[..end])?.to_ascii_lowercase();
    let first = head.lines().next().unwrap_or_default();
    ensure!(first.starts_with(&format!("http/1.1 {status}")), "the answer is `{first}`, not {status}");
    let length = head.lines().find_map(|line| line.strip_prefix("content-length:"));
    let length: usize = length.context("an answer without a length")?.trim().parse()?;
    Ok(Some(end + 4 + length))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    #[test]
    fn an_answer_has_a_length_and_the_status_that_is_asked_for() {
        let whole = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 3\r\n\r\nabc";
        assert_eq!(length(whole, 503).unwrap(), Some(whole.len()));
        assert_eq!(length(&whole[..whole.len() - 1], 503).unwrap(), Some(whole.len()), "a byte is still to come");
        assert_eq!(length(&whole[..20], 503).unwrap(), None);
        assert!(length(whole, 200).is_err());
        assert!(length(b"HTTP/1.1 200 OK\r\n\r\n", 200).is_err());
    }

    #[test]
    fn answers_are_taken_to_their_end_on_both_kinds_of_connections() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = thread::spawn(move || {
            for (answers, connection) in [2, 1].into_iter().zip(listener.incoming()) {
                let mut connection = connection.unwrap();
                for _ in 0..answers {
                    assert!(connection.read(&mut [0; 256]).unwrap() > 0);
                    for part in ["HTTP/1.1 200 OK\r\nContent-", "Length: 4\r\n\r\nab", "cd"] {
                        connection.write_all(part.as_bytes()).unwrap();
                    }
                }
            }
        });
        let mut client = Client::open(address).unwrap();
        client.ask("/", 200).unwrap();
        client.ask("/", 200).unwrap();
        assert!(client.ask("/", 200).is_err(), "it is closed");
        Client::ask_once(address, "/", 200).unwrap();
        server.join().unwrap();
    }
}
