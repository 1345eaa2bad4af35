//! Servers that do as they are told, by closures.

use std::collections::HashMap;
use std::io::{self, Write};
use std::net::{Shutdown as Half, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use super::{Client, find};

/// A server whose connections are handled by a closure, each on a thread of its own.
pub struct RawServer {
    pub address: SocketAddr,
    stop: Arc<AtomicBool>,
    pub connections: Arc<AtomicUsize>,
    streams: Arc<Mutex<HashMap<usize, TcpStream>>>,
}

impl RawServer {
    pub fn start(handle: impl Fn(Peer) + Send + Sync + 'static) -> Self {
        RawServer::start_on(TcpListener::bind(("127.0.0.1", 0)).expect("a port"), handle)
    }

    pub fn start_on(listener: TcpListener, handle: impl Fn(Peer) + Send + Sync + 'static) -> Self {
        let address = listener.local_addr().expect("an address");
        let (stop, connections) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let streams = Arc::new(Mutex::new(HashMap::new()));
        let handle = Arc::new(handle);
        let (stopped, count, kept) = (stop.clone(), connections.clone(), streams.clone());
        thread::spawn(move || {
            for stream in listener.incoming() {
                // Without descriptors for the moment: whoever was served gives some back.
                let Ok(stream) = stream else {
                    thread::park_timeout(Duration::from_millis(1));
                    continue;
                };
                let mut streams = kept.lock().expect("a lock");
                // With the lock: who is killed keeps no connection that comes at the same moment.
                if stopped.load(Ordering::SeqCst) {
                    return;
                }
                let id = count.fetch_add(1, Ordering::SeqCst);
                if let Ok(clone) = stream.try_clone() {
                    streams.insert(id, clone);
                }
                drop(streams);
                let (handle, kept) = (handle.clone(), kept.clone());
                thread::spawn(move || {
                    handle(Peer::new(stream));
                    // The last handle: the connection ends here, in good order or not.
                    kept.lock().expect("a lock").remove(&id);
                });
            }
        });
        RawServer { address, stop, connections, streams }
    }

    /// Answers every request with what `answer` makes of it: head and body as text.
    pub fn answering(answer: impl Fn(&Asked) -> String + Send + Sync + 'static) -> Self {
        RawServer::start(move |mut peer| {
            while let Some(asked) = peer.request() {
                if !peer.send(answer(&asked)) {
                    return;
                }
            }
        })
    }

    /// Answers 200 with the request's target.
    pub fn echo() -> Self {
        RawServer::answering(|asked| ok(&asked.target))
    }

    /// An application: for each request it calls `service` with the same target, and answers with the status that it
    /// got, and with those fields of the answer that are `passed_on`.
    pub fn calling(service: SocketAddr, passed_on: &'static [&'static str]) -> Self {
        RawServer::start(move |mut peer| {
            let mut calls = Client::connect(service);
            while let Some(asked) = peer.request() {
                calls.send(format!("GET {} HTTP/1.1\r\nhost: service\r\n\r\n", asked.target));
                let Ok(got) = calls.try_answer(false) else { return };
                let field = |name: &&str| got.field(name).map(|value| format!("{name}: {value}\r\n"));
                let fields: String = passed_on.iter().filter_map(field).collect();
                let length = got.body.len();
                let head = format!("HTTP/1.1 {} X\r\n{fields}content-length: {length}\r\n\r\n", got.status);
                if !peer.send([head.as_bytes(), &got.body].concat()) {
                    return;
                }
            }
        })
    }

    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    /// Connections that are open now.
    pub fn open(&self) -> usize {
        self.streams.lock().expect("a lock").len()
    }

    /// Stops listening and breaks every connection.
    pub fn kill(&self) {
        {
            let mut streams = self.streams.lock().expect("a lock");
            self.stop.store(true, Ordering::SeqCst);
            for (_, stream) in streams.drain() {
                let _ = stream.shutdown(Half::Both);
            }
        }
        let _ = TcpStream::connect(self.address);
    }
}

impl Drop for RawServer {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A 200 with a body.
pub fn ok(body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len())
}

/// A connection as a server sees it.
pub struct Peer {
    client: Client,
}

/// A request as a server sees it.
#[derive(Clone, Debug)]
pub struct Asked {
    pub method: String,
    pub target: String,
    pub head: String,
    pub body: Vec<u8>,
}

impl Asked {
    pub fn field(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().filter_map(|line| line.split_once(':'));
        lines.find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
    }
}

impl Peer {
    pub fn new(io: TcpStream) -> Self {
        let _ = io.set_nodelay(true);
        Peer { client: Client { io, read: Vec::new() } }
    }

    /// The next request's head, as a string.
    pub fn head(&mut self) -> Option<String> {
        let end = loop {
            if let Some(at) = find(&self.client.read, b"\r\n\r\n") {
                break at + 4;
            }
            self.client.more().ok()?;
        };
        let head = String::from_utf8_lossy(&self.client.read[..end]).into_owned();
        self.client.read.drain(..end);
        Some(head)
    }

    /// The next request with its body.
    pub fn request(&mut self) -> Option<Asked> {
        let head = self.head()?;
        let mut words = head.split(' ');
        let (method, target) = (words.next()?.to_owned(), words.next()?.to_owned());
        let mut asked = Asked { method, target, head, body: Vec::new() };
        asked.body = if asked.field("transfer-encoding").is_some() {
            self.client.chunks().ok()?
        } else {
            let length = asked.field("content-length").and_then(|l| l.parse().ok()).unwrap_or(0);
            self.client.exactly(length).ok()?
        };
        Some(asked)
    }

    pub fn exactly(&mut self, length: usize) -> io::Result<Vec<u8>> {
        self.client.exactly(length)
    }

    pub fn send(&mut self, bytes: impl AsRef<[u8]>) -> bool {
        self.client.io.write_all(bytes.as_ref()).is_ok()
    }

    /// Sends its last bytes in one packet with its end, so that whoever reads them knows of both.
    pub fn end_with(mut self, bytes: impl AsRef<[u8]>) {
        rustix::net::sockopt::set_tcp_cork(&self.client.io, true).expect("an option of the socket");
        self.send(bytes);
    }

    /// Closes with a reset instead of a good end.
    pub fn reset(self) {
        let _ = socket2::SockRef::from(&self.client.io).set_linger(Some(Duration::ZERO));
    }
}
