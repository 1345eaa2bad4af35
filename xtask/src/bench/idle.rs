//! Many client connections that have sent one request each and then stay open without a word.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};

use anyhow::{Context, Result, bail};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::client::{Client, PATIENCE};

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

    /// The same by HTTP/2 in clear text. With `streams`, each asks for `path` so many times at once, and gives no
    /// answer's body room: when this returns, all have their heads, and the bodies wait.
    ///
    /// # Errors
    /// When a connection fails, or does not get as far.
    pub fn open_http2(address: SocketAddr, path: &str, count: usize, streams: Option<u32>) -> Result<Self> {
        let open =
            |number| open_http2(address, path, streams).with_context(|| format!("connection {number} of {count}"));
        Ok(Self { streams: (0..count).map(open).collect::<Result<_>>()? })
    }

    /// How many the other side has not closed.
    pub fn still_open(&self) -> usize {
        let is_open = |mut stream: &TcpStream| {
            loop {
                match stream.read(&mut [0; 1024]) {
                    // Frames that ask for nothing.
                    Ok(1..) => {}
                    Ok(0) => return false,
                    Err(error) => return error.kind() == ErrorKind::WouldBlock,
                }
            }
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

/// The kinds of frames that are sent or waited for here.
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const ACKNOWLEDGED: u8 = 1;

fn open_http2(address: SocketAddr, path: &str, streams: Option<u32>) -> Result<TcpStream> {
    let mut socket = TcpStream::connect_timeout(&address, PATIENCE)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    let no_room: &[u8] = if streams.is_some() { &[0, 4, 0, 0, 0, 0] } else { &[] };
    let mut bytes = [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", &frame(SETTINGS, 0, 0, no_room)[..]].concat();
    // `GET` and `http` are in the table; path and authority follow, neither Huffman-coded nor remembered.
    let length = u8::try_from(path.len()).ok().filter(|length| *length < 127).context("the path is too long")?;
    let fields = [&[0x82, 0x86, 0x04, length], path.as_bytes(), &[0x01, 1, b'a']].concat();
    let asked = streams.unwrap_or(1);
    let (mut heads, mut bodies) = (0, 0);
    // One after the other: a rush on a proxy that has seen nothing yet may be refused.
    for number in 0..asked {
        bytes.extend(frame(HEADERS, END_HEADERS | END_STREAM, 2 * number + 1, &fields));
        socket.write_all(&std::mem::take(&mut bytes))?;
        while heads <= number || (streams.is_none() && bodies <= number) {
            let mut head = [0; 9];
            socket.read_exact(&mut head).with_context(|| format!("{heads} of {asked} streams are answered"))?;
            let [a, b, c, kind, flags, ..] = head;
            let mut payload = vec![0; usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c)];
            socket.read_exact(&mut payload)?;
            match kind {
                // 0x88 is the status 200.
                HEADERS if !payload.contains(&0x88) => bail!("an answer is not a 200: {payload:?}"),
                HEADERS => heads += 1,
                DATA if flags & END_STREAM != 0 => bodies += 1,
                SETTINGS if flags & ACKNOWLEDGED == 0 => socket.write_all(&frame(SETTINGS, ACKNOWLEDGED, 0, &[]))?,
                DATA | SETTINGS | 6 | 8 => {}
                _ => bail!("a frame of kind {kind} comes"),
            }
        }
    }
    Ok(socket)
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = payload.len() as u32;
    [&length.to_be_bytes()[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;
    use std::time::Instant;

    use super::*;

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

    #[test]
    fn streams_count_when_all_are_answered_with_200() {
        let answered = |status: u8, streams: u32| {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let address = listener.local_addr().unwrap();
            let server = thread::spawn(move || {
                let (mut socket, _) = listener.accept().unwrap();
                let heads = (0..streams).map(|number| frame(HEADERS, END_HEADERS, 2 * number + 1, &[status]));
                socket.write_all(&[frame(SETTINGS, 0, 0, &[]), heads.flatten().collect()].concat()).unwrap();
                // What is sent too little is seen when it closes. Who saw a wrong answer has left by then.
                let _ = socket.shutdown(std::net::Shutdown::Write);
                let _ = std::io::copy(&mut socket, &mut std::io::sink());
            });
            let opened = Idle::open_http2(address, "/", 1, Some(3)).map(drop).map_err(|error| format!("{error:#}"));
            server.join().unwrap();
            opened
        };
        assert_eq!(answered(0x88, 3), Ok(()));
        assert!(answered(0x88, 2).unwrap_err().contains("2 of 3 streams are answered"));
        assert!(answered(0x8d, 3).unwrap_err().contains("not a 200"));
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
