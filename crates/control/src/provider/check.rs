//! Whether a server serves: a connection opens, or a request is answered below 400.

use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(1);

/// Whether `address` answers; to a request for `path`, where there is one.
pub(super) fn answers(address: &str, path: Option<&str>) -> bool {
    let Some(to) = address.to_socket_addrs().ok().and_then(|mut all| all.next()) else { return false };
    let Ok(mut stream) = TcpStream::connect_timeout(&to, PATIENCE) else { return false };
    let Some(path) = path else { return true };
    let timed = stream.set_read_timeout(Some(PATIENCE)).and_then(|()| stream.set_write_timeout(Some(PATIENCE)));
    let head =
        format!("GET {path} HTTP/1.1\r\nhost: {address}\r\nuser-agent: tidegate-control\r\nconnection: close\r\n\r\n");
    let mut line = [0; 12];
    let asked = timed.and_then(|()| stream.write_all(head.as_bytes())).and_then(|()| stream.read_exact(&mut line));
    asked.is_ok() && line.starts_with(b"HTTP/1.") && matches!(line[9], b'2' | b'3')
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use std::time::Instant;

    fn serve(answer: &'static str) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address").to_string();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.expect("a connection");
                let mut bytes = [0; 1024];
                // A mere connection says nothing.
                let _ = stream.read(&mut bytes);
                let _ = stream.write_all(answer.as_bytes());
            }
        });
        address
    }

    /// A machine that has much to do may be late with an answer.
    #[track_caller]
    fn answers_at_last(address: &str, path: Option<&str>) {
        let deadline = Instant::now() + Duration::from_secs(60);
        while !answers(address, path) {
            assert!(Instant::now() < deadline, "{address} does not answer");
        }
    }

    #[test]
    fn an_answer_below_400_and_a_mere_connection() {
        let good = serve("HTTP/1.1 204 No Content\r\n\r\n");
        answers_at_last(&good, Some("/"));
        answers_at_last(&good, None);
        let bad = serve("HTTP/1.1 503 Service Unavailable\r\n\r\n");
        assert!(!answers(&bad, Some("/")));
        answers_at_last(&bad, None);
        // A port that is a client's, so that nobody listens there, and nobody else gets it.
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let client = TcpStream::connect(listener.local_addr().expect("an address")).expect("a connection");
        let gone = client.local_addr().expect("an address");
        assert!(!answers(&gone.to_string(), None));
        assert!(!answers("nonsense", None));
    }
}
