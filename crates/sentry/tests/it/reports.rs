//! Nuclei and a sentry over loopback: reports, silence, restarts, and requests meanwhile.

use std::net::UdpSocket;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::support::{Client, RawServer, Running, application, config, ok, until};
use tidegate_engine::{Status, WhenAllDown};
use tidegate_sentry::Sentry;
use tidegate_sentry::config::{Reports, WhenSilent};
use tidegate_sentry::record::NoRecords;
use tidegate_sentry::reports::{NucleusState, View};
use tidegate_wire::{Gauge, Gauges, Keys, Kind, MAX_DATAGRAM, Message, Rejected, ReportWriter, Sender};

const GET: &str = "GET / HTTP/1.1\r\nHost: t\r\n\r\n";
const INTERVAL: Duration = Duration::from_millis(100);

/// Each test is a process. One that uses a port which another has just left must not hear the other's nuclei.
fn keys() -> Keys {
    Keys::derive(&std::process::id().to_ne_bytes())
}

fn start(servers: &[&RawServer], workers: usize) -> Running {
    let addresses: Vec<_> = servers.iter().map(|server| server.address).collect();
    let mut application = application(&addresses);
    // On a busy machine all nuclei may seem silent: that is no reason to ask one that is.
    application.setup.when_all_down = WhenAllDown::Refuse;
    let mut config = config(application, workers);
    config.reports = Some(Reports {
        listen: ([127, 0, 0, 1], 0).into(),
        key_file: PathBuf::new(),
        keys: keys(),
        silent_after: None,
        when_silent: WhenSilent::Exclude,
    });
    let handle = Sentry::start(config, Arc::new(NoRecords)).expect("a sentry");
    let address = handle.addresses("app")[0];
    Running { handle, address }
}

fn view(sentry: &Running) -> &Arc<View> {
    sentry.handle.reports().expect("a listener")
}

/// A nucleus's process, as the sentry sees it: it can be killed.
struct Nucleus {
    stop: Arc<AtomicBool>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Nucleus {
    fn start(server: &str, sentry: &Running, listeners: &Arc<AtomicU64>) -> Nucleus {
        let socket = UdpSocket::bind(("127.0.0.1", 0)).expect("a port");
        socket.connect(view(sentry).address()).expect("connected");
        socket.set_read_timeout(Some(INTERVAL)).expect("a time-out");
        let (stop, stopped) = (Arc::new(AtomicBool::new(false)), listeners.clone());
        let (over, server) = (stop.clone(), server.to_owned());
        let thread = thread::spawn(move || {
            let mut sender = Sender::new(tidegate_wire::random_u64());
            let mut gauges = Gauges::default();
            gauges.set(Gauge::Interval, INTERVAL.as_secs_f64());
            let mut buffer = [0; MAX_DATAGRAM];
            while !over.load(Ordering::SeqCst) {
                gauges.set(Gauge::Listeners, stopped.load(Ordering::SeqCst) as f64);
                let writer = ReportWriter::new(&mut buffer, &server, &gauges);
                let length = writer.finish(&keys().first(), &sender.next(Kind::Report));
                let _ = socket.send(&buffer[..length]);
                // Challenges, for the length of an interval.
                let next = Instant::now() + INTERVAL;
                while Instant::now() < next {
                    if let Ok(length) = socket.recv(&mut buffer) {
                        let message = Message::read(&keys(), &buffer[..length]).expect("sound");
                        let _ = sender.hear(&message, &server);
                    }
                }
            }
        });
        Nucleus { stop, thread: Some(thread) }
    }

    fn kill(mut self) {
        self.end();
    }

    fn end(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the nucleus");
        }
    }
}

impl Drop for Nucleus {
    fn drop(&mut self) {
        self.end();
    }
}

fn up() -> Arc<AtomicU64> {
    Arc::new(AtomicU64::new(1))
}

fn status(sentry: &Running, at: usize) -> Status {
    sentry.app().live().servers().nth(at).expect("a server").status()
}

/// A server that counts how often it was asked.
fn counting() -> (RawServer, Arc<AtomicU64>) {
    let asked = Arc::new(AtomicU64::new(0));
    let count = asked.clone();
    let server = RawServer::answering(move |_| {
        count.fetch_add(1, Ordering::SeqCst);
        ok("")
    });
    (server, asked)
}

/// Keep-alive clients that ask until told to stop; how many answers were good.
fn load(sentry: &Running, stop: &Arc<AtomicBool>) -> Vec<thread::JoinHandle<u64>> {
    let address = sentry.address;
    let client = |_| {
        let stop = stop.clone();
        thread::spawn(move || {
            let (mut good, mut client) = (0, Client::connect(address));
            while !stop.load(Ordering::SeqCst) {
                client.send(GET);
                match client.try_answer(false) {
                    Ok(answer) => good += u64::from(answer.status == 200),
                    Err(_) => client = Client::connect(address),
                }
                thread::park_timeout(Duration::from_millis(1));
            }
            good
        })
    };
    (0..4).map(client).collect()
}

#[test]
fn a_killed_nucleus_excludes_its_server_under_load_until_it_is_back() {
    let ((first, first_asked), (second, second_asked)) = (counting(), counting());
    let sentry = start(&[&first, &second], 2);
    let (names, alive) = ([first.address.to_string(), second.address.to_string()], up());
    let mut killed = Some(Nucleus::start(&names[0], &sentry, &alive));
    let _other = Nucleus::start(&names[1], &sentry, &alive);
    let speaks = |name: &str| view(&sentry).state(name) == Some(NucleusState::Speaks);
    until("both speak", || speaks(&names[0]) && speaks(&names[1]));
    let stop = Arc::new(AtomicBool::new(false));
    let clients = load(&sentry, &stop);
    for _ in 0..3 {
        let (one, two) = (first_asked.load(Ordering::SeqCst), second_asked.load(Ordering::SeqCst));
        until("both are asked", || {
            first_asked.load(Ordering::SeqCst) > one && second_asked.load(Ordering::SeqCst) > two
        });
        killed.take().expect("running").kill();
        until("the server is excluded", || status(&sentry, 0) == Status::Down);
        until("what was under way is over", || sentry.app().snapshot().servers[0].in_flight == 0);
        let before = (first_asked.load(Ordering::SeqCst), second_asked.load(Ordering::SeqCst));
        until("the other goes on", || second_asked.load(Ordering::SeqCst) > before.1 + 300);
        assert_eq!(first_asked.load(Ordering::SeqCst), before.0, "no request to a server known dead");
        killed = Some(Nucleus::start(&names[0], &sentry, &alive));
        until("it is back", || status(&sentry, 0) == Status::Up);
    }
    stop.store(true, Ordering::SeqCst);
    let good: u64 = clients.into_iter().map(|client| client.join().expect("a client")).sum();
    assert!(good > 100, "{good} good answers");
    sentry.assert_quiet();
}

#[test]
fn a_killed_server_gets_nothing_once_its_nucleus_says_so() {
    let (first, second) = (RawServer::echo(), RawServer::echo());
    let sentry = start(&[&first, &second], 2);
    let alive = up();
    let _nucleus = Nucleus::start(&first.address.to_string(), &sentry, &alive);
    until("it speaks", || view(&sentry).state(&first.address.to_string()) == Some(NucleusState::Speaks));
    let stop = Arc::new(AtomicBool::new(false));
    let clients = load(&sentry, &stop);
    first.kill();
    alive.store(0, Ordering::SeqCst);
    until("the sentry knows", || status(&sentry, 0) == Status::Down);
    until("nothing is in flight there", || sentry.app().snapshot().servers[0].in_flight == 0);
    let asked = sentry.app().snapshot().classes[0].completed;
    until("requests go on", || {
        let snapshot = sentry.app().snapshot();
        assert_eq!(snapshot.servers[0].in_flight, 0, "a request to a server known dead");
        snapshot.classes[0].completed > asked + 200
    });
    stop.store(true, Ordering::SeqCst);
    clients.into_iter().for_each(|client| assert!(client.join().expect("a client") > 0));
    sentry.assert_quiet();
}

#[test]
fn without_nuclei_nothing_changes() {
    let server = RawServer::echo();
    let sentry = start(&[&server], 1);
    assert_eq!(sentry.ask(GET).status, 200);
    assert_eq!(view(&sentry).state(&server.address.to_string()), Some(NucleusState::Never));
    let json = view(&sentry).to_json();
    assert_eq!((&json["taken"], &json["nuclei"][0]["state"]), (&0.into(), &"never".into()));
    sentry.assert_quiet();
}

#[test]
fn a_cost_in_the_answer_is_learned_and_stays_inside() {
    let server = RawServer::answering(|asked| {
        let cpu = if asked.target == "/dear" { "0.040" } else { "0.010" };
        format!("HTTP/1.1 200 OK\r\nTidegate-Cost: cpu={cpu}, io=0.001\r\ncontent-length: 2\r\n\r\nok")
    });
    let sentry = start(&[&server], 1);
    let mut client = sentry.client();
    for i in 0..100 {
        client.send(if i % 2 == 0 { "GET /dear HTTP/1.1\r\nHost: t\r\n\r\n" } else { GET });
        let answer = client.answer();
        assert_eq!((answer.status, answer.field("tidegate-cost")), (200, None));
    }
    sentry.assert_quiet();
    assert!(sentry.app().snapshot().servers[0].measures_costs, "{:?}", sentry.app().snapshot());
}

/// One who reports as often as it is asked to, and answers a challenge.
struct Reporter {
    socket: UdpSocket,
    sender: Sender,
    server: String,
}

impl Reporter {
    fn start(server: &str, sentry: &Running) -> Reporter {
        let socket = UdpSocket::bind(("127.0.0.1", 0)).expect("a port");
        socket.connect(view(sentry).address()).expect("connected");
        socket.set_read_timeout(Some(INTERVAL)).expect("a time-out");
        let sender = Sender::new(tidegate_wire::random_u64());
        let mut reporter = Reporter { socket, sender, server: server.to_owned() };
        let mut buffer = [0; MAX_DATAGRAM];
        until("it is challenged", || {
            reporter.report();
            let Ok(length) = reporter.socket.recv(&mut buffer) else { return false };
            let message = Message::read(&keys(), &buffer[..length]).expect("sound");
            reporter.sender.hear(&message, &reporter.server).is_ok()
        });
        let taken = view(sentry).counts().taken();
        reporter.report();
        until("it is believed", || view(sentry).counts().taken() > taken);
        reporter
    }

    fn report(&mut self) {
        let mut gauges = Gauges::default();
        gauges.set(Gauge::Interval, 3600.0);
        gauges.set(Gauge::Listeners, 1.0);
        let mut buffer = [0; MAX_DATAGRAM];
        let length = ReportWriter::new(&mut buffer, &self.server, &gauges)
            .finish(&keys().first(), &self.sender.next(Kind::Report));
        self.socket.send(&buffer[..length]).expect("sent");
    }
}

#[test]
fn a_flood_of_forged_datagrams_costs_no_report() {
    let server = RawServer::echo();
    let sentry = start(&[&server], 1);
    let view = view(&sentry).clone();
    let mut reporter = Reporter::start(&server.address.to_string(), &sentry);
    let stop = Arc::new(AtomicBool::new(false));
    let (stopped, to) = (stop.clone(), view.address());
    let flood = thread::spawn(move || {
        let socket = UdpSocket::bind(("127.0.0.1", 0)).expect("a port");
        while !stopped.load(Ordering::SeqCst) {
            // As fast as it goes, until the test is over.
            let _ = socket.send_to(&[7; 200], to);
        }
    });
    let ignored = || Rejected::ALL.iter().map(|why| view.counts().rejected(*why)).sum::<u64>();
    until("the flood is there", || ignored() > 1000);
    // Fewer at once than any queue has room for: none is lost, whatever else is sent.
    for _ in 0..30 {
        let wanted = view.counts().taken() + 20;
        (0..20).for_each(|_| reporter.report());
        until("all of them are taken", || view.counts().taken() == wanted);
    }
    stop.store(true, Ordering::SeqCst);
    flood.join().expect("the flood");
}
