//! Users against a service of a few lines: what they ask for, in which order, and how they take a refusal.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::{Duration, Instant};

use tidegate_loadgen::{ErrorKind, LoadRun, Progress, UsersFile, UsersPlan, UsersReport};

/// What was asked, one line each: method, path, cookie, body.
type Asked = Arc<Mutex<Vec<String>>>;

/// From a request and its number, from 1: status line, header fields, body; nothing for no answer at all.
type AnswerWith = fn(&str, usize) -> Option<(&'static str, &'static str, &'static str)>;

/// Answers every request with what `answer` says.
fn service(answer: AnswerWith) -> (SocketAddr, Asked) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, asked) = (listener.local_addr().unwrap(), Asked::default());
    let shared = Arc::clone(&asked);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let shared = Arc::clone(&shared);
            std::thread::spawn(move || talk(stream.unwrap(), answer, &shared));
        }
    });
    (address, asked)
}

fn talk(mut stream: TcpStream, answer: AnswerWith, asked: &Asked) -> Option<()> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    loop {
        let (mut first, mut cookie, mut length) = (String::new(), String::new(), 0);
        reader.read_line(&mut first).ok().filter(|bytes| *bytes > 0)?;
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).ok()?;
            match line.trim().split_once(": ") {
                Some(("cookie", value)) => cookie = value.to_owned(),
                Some(("content-length", value)) => length = value.parse().ok()?,
                Some(_) => {}
                None => break,
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).ok()?;
        let request = first.trim_end().trim_end_matches(" HTTP/1.1").to_owned();
        let line = format!("{request} [{cookie}] {}", String::from_utf8_lossy(&body)).trim_end().to_owned();
        let number = {
            let mut asked = asked.lock().unwrap();
            asked.push(line);
            asked.len()
        };
        let Some((status, headers, body)) = answer(&request, number) else {
            std::thread::park();
            return None;
        };
        let length = body.len();
        write!(stream, "HTTP/1.1 {status}\r\n{headers}content-length: {length}\r\n\r\n{body}").ok()?;
    }
}

const FILE: &str = r#"
    timeout = "60s"
    [[users]]
    class = "1"
    count = 1
    think = { distribution = "constant", value = "1ms" }
    pause = { distribution = "constant", value = "1h" }
    requests = { login = 1 }
    next = { login = { list = 1 }, list = { show = 1 }, show = { list = 0 } }
    [[request]]
    name = "login"
    method = "POST"
    path = "/login"
    form = { name = "user {user}" }
    [[request]]
    name = "list"
    path = "/list"
    capture = { message = { after = "/show/", until = "\"" } }
    [[request]]
    name = "show"
    path = "/show/{message}"
"#;

fn start(file: &str, address: SocketAddr) -> LoadRun<UsersReport> {
    let plan = UsersPlan::new(UsersFile::parse(file, "test").unwrap(), &format!("http://{address}"), HOUR).unwrap();
    LoadRun::start_users(plan).unwrap()
}

/// Stops the run a while after so many requests have ended: one too many would come in that time, right after them.
fn run(file: &str, address: SocketAddr, requests: u64) -> UsersReport {
    let run = start(file, address);
    let ended = |p: &Progress| p.classes.iter().map(|c| c.admitted + c.refused + c.failed).sum::<u64>() >= requests;
    let end = wait_for(&run, ended).elapsed + A_WHILE;
    wait_for(&run, |progress| progress.elapsed >= end);
    run.stop();
    let report = run.join().unwrap();
    for c in report.requests.iter().chain([&report.total]) {
        let fates = c.admitted + c.refused + c.other + c.errors_total() + c.unfinished;
        assert_eq!(c.offered, fates, "each request has exactly one fate: {c:?}");
    }
    report
}

/// What the run says of itself as soon as `holds`.
#[track_caller]
fn wait_for(run: &LoadRun<UsersReport>, holds: impl Fn(&Progress) -> bool) -> Progress {
    let (progress, deadline) = (run.progress(), Instant::now() + PATIENCE);
    while !holds(&progress.borrow()) {
        assert!(Instant::now() < deadline, "waited in vain: {:?}", progress.borrow());
        std::thread::park_timeout(Duration::from_millis(1));
    }
    progress.borrow().clone()
}

const A_WHILE: Duration = Duration::from_millis(200);
const HOUR: Duration = Duration::from_secs(3600);
/// Nothing in these tests takes this long unless it is broken.
const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn a_session_keeps_its_cookie_and_uses_what_pages_say() {
    let (address, asked) = service(|request, _| match request {
        "POST /login" => Some(("303 See Other", "set-cookie: session=abc; HttpOnly\r\n", "")),
        "GET /list" => Some(("200 OK", "", "<a href=\"/show/42\">")),
        _ => Some(("200 OK", "", "a message")),
    });
    let report = run(FILE, address, 3);
    let wanted = ["POST /login [] name=user+1", "GET /list [session=abc]", "GET /show/42 [session=abc]"];
    assert_eq!(*asked.lock().unwrap(), wanted, "and then a pause of an hour");
    assert_eq!((report.sessions, report.sessions_broken, report.total.admitted), (1, 0, 3), "{report}");
    assert_eq!(report.request("show").unwrap().latency.count, 1);
    assert!(report.to_string().contains("show"), "{report}");
}

#[test]
fn what_is_on_no_page_cannot_be_asked_for() {
    let (address, asked) = service(|_, _| Some(("200 OK", "", "an empty folder")));
    run(FILE, address, 2);
    assert_eq!(asked.lock().unwrap().len(), 2, "login and list; there is nothing to show");
}

#[test]
fn only_the_beginning_of_a_long_page_is_searched() {
    static LONG: LazyLock<String> = LazyLock::new(|| format!("{}<a href=\"/show/42\">", " ".repeat(1 << 20)));
    let (address, asked) = service(|_, _| Some(("200 OK", "", &LONG)));
    run(FILE, address, 2);
    assert_eq!(asked.lock().unwrap().len(), 2, "login and list; the message is beyond the first MiB");
}

#[test]
fn who_is_stopped_tells_the_connections_all_the_same() {
    let (address, _) = service(|_, _| Some(("200 OK", "", "<a href=\"/show/42\">")));
    let run = start(FILE, address);
    wait_for(&run, |progress| progress.classes.iter().any(|class| class.admitted > 0));
    run.stop();
    let report = run.join().unwrap();
    assert!(report.stopped);
    assert_eq!(report.generator.connections_opened, 1, "{report}");
}

#[test]
fn a_refusal_breaks_the_session_off_and_the_user_begins_anew() {
    let (address, asked) = service(|_, number| match number {
        2 => Some(("503 Service Unavailable", "retry-after: 1\r\n", "busy")),
        _ => Some(("200 OK", "", "<a href=\"/show/1\">")),
    });
    let report = run(&FILE.replace("1h", "100ms"), address, 3);
    let asked = asked.lock().unwrap();
    assert!(asked[0].starts_with("POST /login") && asked[1].starts_with("GET /list"), "{asked:?}");
    assert!(asked[2].starts_with("POST /login"), "it signs in again: {asked:?}");
    assert_eq!((report.sessions_broken, report.total.refused), (1, 1), "{report}");
    assert_eq!(report.request("list").unwrap().refused, 1);
}

#[test]
fn patience_ends() {
    let (address, _) = service(|_, _| None);
    let report = run(&FILE.replace("60s", "200ms"), address, 1);
    assert_eq!(report.total.errors.get(&ErrorKind::Timeout), Some(&1), "{report}");
    assert_eq!((report.sessions, report.sessions_broken), (1, 1));
}

#[test]
fn users_try_again_where_their_file_says_so() {
    let (address, asked) = service(|_, number| match number {
        1 | 2 => Some(("503 Service Unavailable", "", "")),
        _ => Some(("200 OK", "", "")),
    });
    let file = FILE.replace("pause =", "retry = { tries = 3, wait = \"at-once\" }\n pause =");
    let report = run(&file, address, 4);
    assert_eq!(asked.lock().unwrap().iter().filter(|line| line.starts_with("POST")).count(), 3);
    assert_eq!((report.sessions, report.sessions_broken, report.total.refused), (1, 0, 2), "{report}");
}

#[test]
fn a_crowd_comes_and_goes() {
    let (address, _) = service(|_, _| Some(("200 OK", "", "")));
    let crowd =
        "[[active]]\n users = \"1\"\n at = 0\n count = 2\n [[active]]\n users = \"1\"\n at = \"200ms\"\n count = 9\n";
    let report = run(&format!("{FILE}{crowd}"), address, 18);
    assert_eq!(report.sessions, 9, "{report}");
    let late = UsersFile::parse(&format!("{FILE}{crowd}"), "test").unwrap();
    assert_eq!(late.most(&late.users[0]), 9);
}
