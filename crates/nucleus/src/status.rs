//! Reader of the server's status page, once a second on a separate thread, so that a server too
//! busy to answer delays no report.
//!
//! Three forms are known by their look: Apache's `mod_status?auto`, nginx's `stub_status`, and JSON with any of
//! `in_service`, `active` (an object: request type to number), `queueing_delay` (seconds), `idle_workers`, `cpu` (in
//! use) and `cores`.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use serde::Deserialize;

const PERIOD: Duration = Duration::from_secs(1);
/// For the connection, and for the whole answer: a server that sends it byte by byte is not waited for.
const TIMEOUT: Duration = Duration::from_secs(1);
/// What was told is believed for so long.
const FRESH: Duration = Duration::from_secs(4);
/// No page is longer.
const MOST: usize = 64 * 1024;

/// What a server tells.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct Status {
    /// Requests in service, without the one that asks.
    pub(crate) in_service: Option<f64>,
    /// By request type.
    pub(crate) active: std::collections::BTreeMap<String, f64>,
    /// Seconds that a request waits inside the server.
    pub(crate) queueing_delay: Option<f64>,
    pub(crate) idle_workers: Option<f64>,
    /// Processors in use, and how many there are: where the server knows better than the machine.
    pub(crate) cpu: Option<f64>,
    pub(crate) cores: Option<f64>,
}

/// Asks again and again. Dropped, it stops asking.
#[derive(Debug)]
pub(crate) struct Watcher {
    last: Arc<Mutex<Option<(Instant, Status)>>>,
    stop: Arc<AtomicBool>,
    thread: thread::Thread,
}

impl Watcher {
    /// # Errors
    /// When no thread can be started.
    pub(crate) fn start(host: String, path: String) -> io::Result<Watcher> {
        let (last, stop) = (Arc::new(Mutex::new(None)), Arc::new(AtomicBool::new(false)));
        let (shared, stopped) = (last.clone(), stop.clone());
        let watch = move || {
            while !stopped.load(Relaxed) {
                if let Ok(Some(status)) = ask(&host, &path, TIMEOUT) {
                    *shared.lock().unwrap_or_else(PoisonError::into_inner) = Some((Instant::now(), status));
                }
                thread::park_timeout(PERIOD);
            }
        };
        let thread = thread::Builder::new().name("status".to_owned()).stack_size(256 * 1024).spawn(watch)?;
        Ok(Watcher { last, stop, thread: thread.thread().clone() })
    }

    /// What was told lately.
    pub(crate) fn status(&self) -> Option<Status> {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        last.as_ref().filter(|(at, _)| at.elapsed() < FRESH).map(|(_, status)| status.clone())
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        self.thread.unpark();
    }
}

/// Asks once; the answer may take so long, and so may connecting.
fn ask(host: &str, path: &str, timeout: Duration) -> io::Result<Option<Status>> {
    let address = host.to_socket_addrs()?.next().ok_or(io::ErrorKind::NotFound)?;
    let mut stream = TcpStream::connect_timeout(&address, timeout)?;
    stream.set_write_timeout(Some(timeout))?;
    // HTTP/1.0: the answer is neither chunked nor kept open.
    let request = format!("GET {path} HTTP/1.0\r\nHost: {host}\r\nUser-Agent: tidegate-nucleus\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    let answer = read(stream, Instant::now() + timeout)?;
    let mut fields = [httparse::EMPTY_HEADER; 64];
    let mut head = httparse::Response::new(&mut fields);
    let Ok(httparse::Status::Complete(length)) = head.parse(&answer) else { return Ok(None) };
    let body = std::str::from_utf8(&answer[length..]).ok();
    Ok(body.filter(|_| head.code == Some(200)).and_then(parse))
}

/// What comes until the end, or until a page is as long as it may be.
fn read(mut stream: TcpStream, until: Instant) -> io::Result<Vec<u8>> {
    let (mut answer, mut part) = (Vec::new(), [0; 4096]);
    while answer.len() < MOST {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut part) {
            Ok(0) => break,
            Ok(length) => answer.extend_from_slice(&part[..length]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(answer)
}

fn parse(text: &str) -> Option<Status> {
    let status = match text.trim_start().as_bytes().first()? {
        b'{' => serde_json::from_str(text).ok()?,
        _ if text.contains("Scoreboard: ") => apache(text)?,
        _ => nginx(text)?,
    };
    let sound = |value: &Option<f64>| value.is_none_or(|value| value >= 0.0 && value.is_finite());
    let Status { in_service, queueing_delay, idle_workers, cpu, cores, .. } = &status;
    let all = [in_service, queueing_delay, idle_workers, cpu, cores];
    (all.into_iter().all(sound) && status.active.values().all(|value| sound(&Some(*value)))).then_some(status)
}

/// Workers that read a request, work on it or send the answer; one of them is busy with this page.
fn apache(text: &str) -> Option<Status> {
    let value = |key: &str| text.lines().find_map(|line| line.strip_prefix(key));
    let board = value("Scoreboard: ")?;
    let count = |states: &str| board.chars().filter(|state| states.contains(*state)).count() as f64;
    let idle_workers = value("IdleWorkers: ").and_then(|text| text.trim().parse().ok());
    Some(Status { in_service: Some((count("RWLDI") - 1.0).max(0.0)), idle_workers, ..Status::default() })
}

/// `Reading: 6 Writing: 179 Waiting: 106`; one of the writing is this page.
fn nginx(text: &str) -> Option<Status> {
    let mut words = text.split_ascii_whitespace();
    words.find(|word| *word == "Writing:")?;
    let writing: f64 = words.next()?.parse().ok()?;
    Some(Status { in_service: Some((writing - 1.0).max(0.0)), ..Status::default() })
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use proptest::prelude::*;

    use super::*;

    /// Whatever else the machine does.
    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn each_form_is_known_by_its_look() {
        let status = parse("BusyWorkers: 3\nIdleWorkers: 5\nScoreboard: _WWK_R..G\n").expect("Apache");
        assert_eq!((status.in_service, status.idle_workers), (Some(2.0), Some(5.0)));
        let text = "Active connections: 9\nserver accepts\n 1 1 1\nReading: 1 Writing: 4 Waiting: 3\n";
        assert_eq!(parse(text).expect("nginx").in_service, Some(3.0));
        let status =
            parse(r#"{"in_service": 4, "active": {"dynamic": 1.5}, "queueing_delay": 0.2, "cpu": 0.7, "more": 1}"#);
        let status = status.expect("JSON");
        assert_eq!((status.in_service, status.queueing_delay, status.active["dynamic"]), (Some(4.0), Some(0.2), 1.5));
        assert_eq!((status.cpu, status.cores), (Some(0.7), None));
    }

    #[test]
    fn nonsense_is_nothing() {
        for text in [
            "",
            "{",
            "{\"in_service\": -1}",
            "{\"active\": {\"a\": -1}}",
            "Writing: x",
            "<html>",
            "{\"in_service\": 1e999}",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_page_is_fetched() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
        let host = listener.local_addr().expect("an address").to_string();
        let server = thread::spawn(move || {
            for answer in ["HTTP/1.1 200 OK\r\nA: b\r\n\r\n{\"in_service\": 7}", "HTTP/1.1 503 No\r\n\r\n{}", "garbage"]
            {
                let (mut stream, _) = listener.accept().expect("a connection");
                let mut request = [0; 512];
                let length = stream.read(&mut request).expect("a request");
                assert!(request[..length].starts_with(b"GET /s?auto HTTP/1.0\r\n"));
                stream.write_all(answer.as_bytes()).expect("a write");
            }
        });
        let ask = || ask(&host, "/s?auto", LONG).expect("an answer");
        assert_eq!(ask().expect("a status").in_service, Some(7.0));
        assert_eq!((ask(), ask()), (None, None));
        server.join().expect("the server");
    }

    #[test]
    fn who_sends_a_page_byte_by_byte_is_not_waited_for() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
        let client = TcpStream::connect(listener.local_addr().expect("an address")).expect("a connection");
        let (mut server, _) = listener.accept().expect("a connection");
        let (sent, begin) = (thread::spawn(move || while server.write_all(b"H").is_ok() {}), Instant::now());
        let (pages, in_time) = (read(client.try_clone().expect("a file"), begin + LONG), read(client, begin));
        // As much as a page may have is enough, and no time is none.
        assert!(pages.is_ok_and(|page| page.len() >= MOST));
        assert_eq!(in_time.expect_err("no time is left").kind(), io::ErrorKind::TimedOut);
        sent.join().expect("the server ends when nobody reads");
    }

    proptest! {
        #[test]
        fn any_text_does_no_harm(text in "(Scoreboard: |Writing: |\\{)?.{0,60}") {
            parse(&text);
        }
    }
}
