//! Many client connections that have sent one request each and then stay open without a word.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

const PATIENCE: Duration = Duration::from_secs(10);

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

fn open_one(address: SocketAddr, path: &str) -> Result<TcpStream> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    // In one write: `write!` on a socket would send its pieces one by one.
    stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: bench\r\n\r\n").as_bytes())?;
    let mut answer = Vec::with_capacity(4096);
    let mut piece = [0; 4096];
    loop {
        let read = stream.read(&mut piece)?;
        if read == 0 {
            bail!("closed before the end of the answer");
        }
        answer.extend_from_slice(&piece[..read]);
        if is_complete(&answer)? {
            return Ok(stream);
        }
    }
}

fn is_complete(answer: &[u8]) -> Result<bool> {
    let Some(end) = answer.windows(4).position(|four| four == b"\r\n\r\n") else { return Ok(false) };
    let head = std::str::from_utf8(&answer[..end])?.to_ascii_lowercase();
    if !head.starts_with("http/1.1 200") {
        bail!("unexpected answer: {}", head.lines().next().unwrap_or_default());
    }
    let length = head.lines().find_map(|line| line.strip_prefix("content-length:"));
    let length: usize = length.context("an answer without a length")?.trim().parse()?;
    Ok(answer.len() >= end + 4 + length)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;
    use std::time::Instant;

    use super::*;

    #[test]
    fn an_answer_is_complete_with_its_last_byte() {
        let whole = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc";
        assert!(is_complete(whole).unwrap());
        assert!(!is_complete(&whole[..whole.len() - 1]).unwrap());
        assert!(!is_complete(b"HTTP/1.1 200 OK\r\n").unwrap());
        assert!(is_complete(b"HTTP/1.1 503 No\r\n\r\n").is_err());
    }

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
