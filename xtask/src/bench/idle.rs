//! Many client connections that have sent one request each and then stay open without a word.

use std::io::{ErrorKind, Read as _};
use std::net::{SocketAddr, TcpStream};

use anyhow::{Context, Result, bail};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::client::Client;

/// Idle connections; they close when dropped.
#[derive(Debug)]
pub struct Idle {
    streams: Vec<TcpStream>,
}

impl Idle {
    /// Opens `count` connections; each sends one request for `path` and reads the whole answer.
    ///
    /// # Errors
    /// When a connection fails or an answer is not a plain 200 with a length.
    pub fn open(address: SocketAddr, path: &str, count: usize) -> Result<Self> {
        let mut streams = Vec::with_capacity(count);
        for number in 0..count {
            let stream = open_one(address, path).with_context(|| format!("connection {number} of {count}"))?;
            streams.push(stream);
        }
        Ok(Self { streams })
    }

    /// How many the other side has not closed.
    pub fn still_open(&self) -> usize {
        let is_open = |mut stream: &TcpStream| {
            let read = stream.read(&mut [0]);
            matches!(read, Err(error) if error.kind() == ErrorKind::WouldBlock)
        };
        self.streams.iter().filter(|stream| stream.set_nonblocking(true).is_ok() && is_open(stream)).count()
    }
}

/// Lets this process and its children have as many files open as they may, at least `needed`.
///
/// # Errors
/// When the hard limit is lower.
pub fn raise_file_limit(needed: u64) -> Result<()> {
    let now = getrlimit(Resource::Nofile);
    if let Some(maximum) = now.maximum.filter(|maximum| *maximum < needed) {
        bail!("{needed} files must be open at once, the hard limit is {maximum}; raise it (ulimit -Hn)");
    }
    let raised = Rlimit { current: now.maximum, maximum: now.maximum };
    setrlimit(Resource::Nofile, raised).context("cannot raise the limit of open files")
}

/// A connection that has been answered once.
fn open_one(address: SocketAddr, path: &str) -> Result<TcpStream> {
    let mut client = Client::open(address)?;
    client.ask(path, 200)?;
    Ok(client.into_stream())
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::net::TcpListener;
    use std::thread;
    use std::time::Instant;

    use super::*;
    use crate::bench::client::PATIENCE;

    #[test]
    fn connections_the_server_closed_are_not_counted() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = thread::spawn(move || {
            let serve = |stream: std::io::Result<TcpStream>| {
                let mut stream = stream.unwrap();
                let read = stream.read(&mut [0; 256]).unwrap();
                assert!(read > 0);
                stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx").unwrap();
                stream
            };
            let mut streams: Vec<_> = listener.incoming().take(3).map(serve).collect();
            streams.truncate(2);
            streams
        });
        let idle = Idle::open(address, "/", 3).unwrap();
        let kept = server.join().unwrap();
        wait_for(&idle, 2);
        drop(kept);
        wait_for(&idle, 0);
    }

    /// A close reaches the other side a moment later: a process another test forks may hold the socket until its exec.
    fn wait_for(idle: &Idle, open: usize) {
        let deadline = Instant::now() + PATIENCE;
        while idle.still_open() != open {
            assert!(Instant::now() < deadline, "{} are open, not {open}", idle.still_open());
            thread::yield_now();
        }
    }
}
