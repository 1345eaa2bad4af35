//! What is known of nuclei, with real applications and datagrams made by hand; time is an argument.

use std::path::PathBuf;

use tidegate_engine::{AdmissionConfig, Signal, Status};
use tidegate_wire::{Connection, Owner, ReportWriter, Sender, own_key, seal};

use super::*;
use crate::config::{Config, OneLine};
use crate::record::NoRecords;

mod lending;

const FROM: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 4000);
const MS: u64 = 1_000_000;

/// Each test is a process. One that uses a port which another has just left must not hear the other's nuclei.
fn keys() -> Keys {
    Keys::derive(&std::process::id().to_ne_bytes())
}

fn app(name: &str, servers: &[&str]) -> Arc<App> {
    app_under(AdmissionConfig::default(), name, servers)
}

fn app_under(admission: AdmissionConfig, name: &str, servers: &[&str]) -> Arc<App> {
    let to = servers.iter().map(|&server| server.to_owned()).collect();
    let line = OneLine { to, ..OneLine::default() };
    let mut config = Config::one_line(line).expect("valid").config.applications.remove(0);
    (config.name, config.setup.name) = (name.to_owned(), name.to_owned());
    config.setup.admission = admission;
    Arc::new(App::new(config, 1, 1, Arc::new(NoRecords)).expect("it makes sense"))
}

/// What is known, and its clock.
fn reports(keys: Keys, when_silent: WhenSilent) -> config::Reports {
    let (listen, key_file) = (([127, 0, 0, 1], 0).into(), PathBuf::new());
    config::Reports { listen, key_file, keys, silent_after: None, when_silent }
}

struct Bench {
    nuclei: Nuclei,
    apps: Vec<Arc<App>>,
    counts: Arc<Counts>,
    now: u64,
}

impl Bench {
    fn new(apps: Vec<Arc<App>>, when_silent: WhenSilent) -> Bench {
        let config = reports(keys(), when_silent);
        let counts = Arc::new(Counts::default());
        Bench { nuclei: Nuclei::new(&config, apps.clone(), counts.clone()), apps, counts, now: 0 }
    }

    fn one() -> Bench {
        Bench::new(vec![app("shop", &["127.0.0.1:1", "127.0.0.1:2"])], WhenSilent::Exclude)
    }

    /// Lets time pass, as the listener does it.
    fn pass(&mut self, ms: u64) {
        for _ in 0..ms / 10 {
            self.now += 10 * MS;
            self.nuclei.advance(self.now);
            self.nuclei.finish();
        }
    }

    /// Hands a datagram over; the answer.
    fn hand(&mut self, datagram: &[u8]) -> Option<Vec<u8>> {
        self.nuclei.advance(self.now);
        let answer = self.nuclei.handle(datagram, FROM).map(<[u8]>::to_vec);
        self.nuclei.finish();
        answer
    }

    fn status(&self, at: usize) -> Status {
        self.apps[0].live().servers().nth(at).expect("a server").status()
    }

    fn state(&self, server: &str) -> NucleusState {
        self.nuclei.state(server).expect("a known server")
    }
}

/// A nucleus as a sentry sees one.
struct Nucleus {
    server: &'static str,
    keys: Keys,
    sender: Sender,
    gauges: Gauges,
    connections: Vec<Connection>,
}

impl Nucleus {
    fn new(server: &'static str, boot: u64) -> Nucleus {
        Nucleus { server, keys: keys(), sender: Sender::new(boot), gauges: Gauges::default(), connections: Vec::new() }
    }

    fn datagram(&mut self) -> Vec<u8> {
        let mut buffer = [0; MAX_DATAGRAM];
        let mut writer = ReportWriter::new(&mut buffer, self.server, &self.gauges);
        self.connections.iter().for_each(|connection| assert!(writer.connection(connection)));
        let length = writer.finish(&self.keys.first(), &self.sender.next(Kind::Report));
        buffer[..length].to_vec()
    }

    /// Reports, and takes the challenge if there is one.
    fn report(&mut self, bench: &mut Bench) {
        let datagram = self.datagram();
        if let Some(answer) = bench.hand(&datagram) {
            assert!(answer.len() <= datagram.len(), "a challenge is no larger than what caused it");
            let message = Message::read(&self.keys, &answer).expect("sound");
            self.sender.hear(&message, self.server).expect("a challenge");
        }
    }

    fn enter(&mut self, bench: &mut Bench) {
        self.report(bench);
        self.report(bench);
    }

    fn leave(&mut self, bench: &mut Bench) {
        let mut buffer = [0; MAX_DATAGRAM];
        let length = Message::write(&keys().first(), &self.sender.next(Kind::Goodbye), self.server, &mut buffer);
        assert_eq!(bench.hand(&buffer[..length]), None);
    }
}

/// Challenges and commands are sealed with it, too: it knows no other.
#[test]
fn a_nucleus_with_its_own_key_is_heard_until_its_secret_is_taken_out() {
    let folder = std::env::temp_dir().join(format!("tidegate-own-{}", std::process::id()));
    std::fs::write(&folder, "the secret of the tests").expect("a file");
    let line = own_key(&folder, Owner::Nucleus, "127.0.0.1:1").expect("a secret");
    let (secrets, own) = (Keys::load(&folder), Keys::of("127.0.0.1:1", line.as_bytes(), &folder));
    std::fs::remove_file(&folder).expect("our own file");
    let mut bench = Bench::one();
    let mut nucleus = Nucleus { keys: own.expect("its own"), ..Nucleus::new("127.0.0.1:1", 7) };
    nucleus.enter(&mut bench);
    assert_eq!((bench.state("127.0.0.1:1"), bench.counts.rejected(Rejected::Forged)), (NucleusState::Never, 2));
    bench.nuclei.configure(&reports(secrets.expect("a secret"), WhenSilent::Exclude));
    nucleus.enter(&mut bench);
    assert_eq!(bench.state("127.0.0.1:1"), NucleusState::Speaks);
    assert_eq!(bench.nuclei.to_json()[0]["key"], serde_json::json!({ "own": true, "entry": 1 }));
    // It says that it is about another server.
    let datagram = Nucleus { server: "127.0.0.1:2", ..nucleus }.datagram();
    assert_eq!(bench.hand(&datagram), None);
    assert_eq!((bench.state("127.0.0.1:2"), bench.counts.rejected(Rejected::Forged)), (NucleusState::Never, 3));
    // What came with a secret that is no more there is not believed.
    let mut nucleus = Nucleus::new("127.0.0.1:1", 8);
    nucleus.report(&mut bench);
    assert_eq!(bench.counts.rejected(Rejected::Forged), 4);
}

#[test]
fn a_nucleus_is_heard_falls_silent_and_comes_back() {
    let mut bench = Bench::one();
    let mut nucleus = Nucleus::new("127.0.0.1:1", 7);
    assert_eq!(bench.state("127.0.0.1:1"), NucleusState::Never);
    nucleus.enter(&mut bench);
    assert_eq!((bench.state("127.0.0.1:1"), bench.status(0)), (NucleusState::Speaks, Status::Up));
    bench.pass(290);
    assert_eq!(bench.status(0), Status::Up, "three periods are not over");
    // The first look after them.
    bench.pass(30);
    assert_eq!((bench.state("127.0.0.1:1"), bench.status(0)), (NucleusState::Silent, Status::Down));
    assert_eq!(bench.status(1), Status::Up, "one that has no nucleus is not touched");
    assert_eq!(bench.apps[0].snapshot().servers[0].status, Status::Down, "the controller knows");
    nucleus.report(&mut bench);
    assert_eq!((bench.state("127.0.0.1:1"), bench.status(0)), (NucleusState::Speaks, Status::Up));
}

#[test]
fn silence_excludes_half_the_servers_at_most() {
    let servers = ["127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"];
    let mut bench = Bench::new(vec![app("shop", &servers)], WhenSilent::Exclude);
    let mut nuclei = servers.map(|server| Nucleus::new(server, 7));
    nuclei.iter_mut().for_each(|nucleus| nucleus.enter(&mut bench));
    // The way here is broken: all fall silent.
    bench.pass(400);
    let down = |bench: &Bench| (0..3).filter(|&server| bench.status(server) == Status::Down).count();
    assert_eq!(down(&bench), 1);
    nuclei[0].report(&mut bench);
    bench.pass(100);
    assert_eq!((bench.status(0), down(&bench)), (Status::Up, 1), "another takes its turn");
}

#[test]
fn silence_may_also_just_mean_to_estimate() {
    let mut bench = Bench::new(vec![app("shop", &["127.0.0.1:1", "127.0.0.1:2"])], WhenSilent::Estimate);
    let mut nucleus = Nucleus::new("127.0.0.1:1", 7);
    nucleus.gauges.set(Gauge::QueueingDelay, 0.2);
    nucleus.enter(&mut bench);
    assert_eq!(bench.apps[0].snapshot().servers[0].queueing_delay.map(|q| (q * 100.0).round()), Some(20.0));
    bench.pass(400);
    assert_eq!((bench.state("127.0.0.1:1"), bench.status(0)), (NucleusState::Silent, Status::Up));
    assert_eq!(bench.apps[0].snapshot().servers[0].queueing_delay, None, "back to what the sentry sees itself");
    bench.nuclei.configure(&reports(keys(), WhenSilent::Exclude));
    assert_eq!(bench.status(0), Status::Down);
}

#[test]
fn a_server_at_which_nothing_listens_is_down_at_once() {
    let mut bench = Bench::one();
    let mut nucleus = Nucleus::new("127.0.0.1:1", 7);
    nucleus.gauges.set(Gauge::Listeners, 1.0);
    nucleus.enter(&mut bench);
    nucleus.gauges.set(Gauge::Listeners, 0.0);
    nucleus.report(&mut bench);
    assert_eq!((bench.state("127.0.0.1:1"), bench.status(0)), (NucleusState::NotListening, Status::Down));
    nucleus.gauges.set(Gauge::Listeners, 2.0);
    nucleus.report(&mut bench);
    assert_eq!(bench.status(0), Status::Up);
}

#[test]
fn health_checks_and_nuclei_must_both_agree() {
    let mut bench = Bench::one();
    let mut nucleus = Nucleus::new("127.0.0.1:1", 7);
    nucleus.enter(&mut bench);
    let id = ServerId(0);
    bench.apps[0].set_status(id, Status::Down);
    nucleus.report(&mut bench);
    assert_eq!(bench.status(0), Status::Down, "a report does not heal what checks found");
    bench.pass(400);
    bench.apps[0].set_status(id, Status::Up);
    assert_eq!((bench.status(0), bench.apps[0].snapshot().servers[0].status), (Status::Down, Status::Down));
    nucleus.report(&mut bench);
    assert_eq!((bench.status(0), bench.apps[0].snapshot().servers[0].status), (Status::Up, Status::Up));
}

#[test]
fn who_says_goodbye_is_not_missed() {
    let mut bench = Bench::one();
    let mut nucleus = Nucleus::new("127.0.0.1:1", 7);
    nucleus.enter(&mut bench);
    nucleus.leave(&mut bench);
    bench.pass(1000);
    assert_eq!((bench.state("127.0.0.1:1"), bench.status(0)), (NucleusState::Left, Status::Up));
    Nucleus::new("127.0.0.1:1", 8).enter(&mut bench);
    assert_eq!(bench.state("127.0.0.1:1"), NucleusState::Speaks);
}

#[test]
fn a_killed_nucleus_is_replaced_within_its_silence() {
    let mut bench = Bench::one();
    Nucleus::new("127.0.0.1:1", 7).enter(&mut bench);
    let mut next = Nucleus::new("127.0.0.1:1", 8);
    for _ in 0..4 {
        bench.pass(100);
        next.report(&mut bench);
    }
    assert_eq!((bench.state("127.0.0.1:1"), bench.status(0)), (NucleusState::Speaks, Status::Up));
    assert_eq!(bench.nuclei.to_json()[0]["restarts"], 1);
}

#[test]
fn of_two_nuclei_the_first_keeps_the_server_under_any_of_its_names() {
    let mut bench = Bench::one();
    let mut first = Nucleus::new("127.0.0.1:1", 7);
    let mut second = Nucleus::new("shop/127.0.0.1:1", 8);
    first.enter(&mut bench);
    for _ in 0..20 {
        bench.pass(100);
        second.report(&mut bench);
        first.report(&mut bench);
        assert_eq!(bench.state("127.0.0.1:1"), NucleusState::Speaks);
    }
    assert_eq!(bench.counts.rejected(Rejected::Claimed), 20);
    bench.pass(300);
    second.enter(&mut bench);
    assert_eq!(bench.state("127.0.0.1:1"), NucleusState::Speaks, "the second takes over when the first is gone");
}

#[test]
fn a_restarted_sentry_is_found_again() {
    let mut before = Bench::one();
    let mut nucleus = Nucleus::new("127.0.0.1:1", 7);
    nucleus.enter(&mut before);
    let mut after = Bench::one();
    nucleus.enter(&mut after);
    assert_eq!(after.state("127.0.0.1:1"), NucleusState::Speaks);
    assert_eq!(after.counts.rejected(Rejected::Stale), 1);
}

#[test]
fn whatever_else_comes_is_counted_and_changes_nothing() {
    let mut bench = Bench::one();
    let mut nucleus = Nucleus::new("127.0.0.1:1", 7);
    nucleus.enter(&mut bench);
    let recorded = nucleus.datagram();
    bench.hand(&recorded);
    let taken = bench.counts.taken();
    bench.hand(&recorded);
    let early = nucleus.datagram();
    let late = nucleus.datagram();
    bench.hand(&late);
    bench.hand(&early);
    bench.hand(&[0; MAX_DATAGRAM + 1]);
    bench.hand(&late[..20]);
    bench.hand(&[7; 100]);
    let mut other = late.clone();
    other[3] = 9;
    bench.hand(&other);
    let mut buffer = [0; MAX_DATAGRAM];
    let length = seal(&keys().first(), &nucleus.sender.next(Kind::Report), &mut buffer, 0);
    bench.hand(&buffer[..length]);
    let length = Message::write(&keys().first(), &nucleus.sender.next(Kind::Challenge), "127.0.0.1:1", &mut buffer);
    bench.hand(&buffer[..length]);
    assert_eq!(bench.hand(&Nucleus::new("10.9.8.7:1", 9).datagram()), None, "unknown servers get no answer");
    let expected = [
        (Rejected::Replayed, 1),
        (Rejected::OutOfOrder, 1),
        (Rejected::Oversized, 1),
        (Rejected::Truncated, 1),
        (Rejected::Forged, 1),
        (Rejected::OtherVersion, 1),
        (Rejected::Malformed, 2),
        (Rejected::UnknownServer, 1),
        (Rejected::Stale, 1),
        (Rejected::Claimed, 0),
    ];
    for (why, count) in expected {
        assert_eq!(bench.counts.rejected(why), count, "{}", why.name());
    }
    assert_eq!(bench.counts.taken(), taken + 1);
    assert_eq!(bench.state("127.0.0.1:1"), NucleusState::Speaks);
}

#[test]
fn a_jump_of_the_clock_silences_nobody() {
    let mut bench = Bench::one();
    let mut nucleus = Nucleus::new("127.0.0.1:1", 7);
    nucleus.enter(&mut bench);
    bench.now += 3_600_000 * MS;
    bench.pass(20);
    assert_eq!(bench.state("127.0.0.1:1"), NucleusState::Speaks);
    nucleus.report(&mut bench);
    bench.pass(100);
    assert_eq!(bench.state("127.0.0.1:1"), NucleusState::Speaks);
}

#[test]
fn one_server_of_two_applications_has_one_nucleus_for_both() {
    let apps = vec![app("a", &["127.0.0.1:1", "127.0.0.1:3"]), app("b", &["127.0.0.1:1", "127.0.0.1:2"])];
    let mut bench = Bench::new(apps, WhenSilent::Exclude);
    let mut nucleus = Nucleus::new("127.0.0.1:1", 7);
    nucleus.gauges.set(Gauge::QueueingDelay, 0.5);
    nucleus.enter(&mut bench);
    for app in &bench.apps {
        assert_eq!(app.snapshot().servers[0].queueing_delay, Some(0.5));
    }
    bench.pass(400);
    for app in &bench.apps {
        assert_eq!(app.snapshot().servers[0].status, Status::Down);
    }
}

#[test]
fn processor_time_by_connection_becomes_cost_by_request() {
    let mut bench = Bench::one();
    let mut nucleus = Nucleus::new("127.0.0.1:1", 7);
    let peer = ([127, 0, 0, 1], 4242).into();
    nucleus.connections.push(Connection { peer, cpu_ns: 0 });
    nucleus.enter(&mut bench);
    let live = bench.apps[0].live();
    let server = live.server(ServerId(0)).expect("the server").clone();
    let request = Request::default();
    for _ in 0..100 {
        server.ledger.begin(peer);
        server.ledger.end(peer, &request);
        nucleus.connections[0].cpu_ns += 20 * MS;
        nucleus.report(&mut bench);
    }
    let snapshot = bench.apps[0].snapshot();
    assert!(snapshot.servers[0].measures_costs && !snapshot.servers[1].measures_costs);
    let mean = snapshot.mean_cost.expect("known");
    assert!((mean / 0.020 - 1.0).abs() < 0.05, "{mean}");
    bench.pass(400);
    assert!(!server.ledger.is_in_use(), "silence ends it");
}

#[test]
fn a_server_that_moves_leaves_its_nucleus_behind() {
    let mut bench = Bench::one();
    let mut nucleus = Nucleus::new("127.0.0.1:1", 7);
    nucleus.gauges.set(Gauge::QueueingDelay, 0.5);
    nucleus.enter(&mut bench);
    let mut config = bench.apps[0].live().config.clone();
    // The same name, elsewhere.
    config.servers[0].address = "127.0.0.1:3".to_owned();
    bench.apps[0].reconfigure(config).expect("it makes sense");
    bench.pass(20);
    assert_eq!(bench.nuclei.state("127.0.0.1:3"), Some(NucleusState::Never));
    let snapshot = bench.apps[0].snapshot();
    assert_eq!((snapshot.servers[0].queueing_delay, snapshot.servers[0].status), (None, Status::Up));
    bench.pass(1000);
    assert_eq!(bench.status(0), Status::Up);
}

#[test]
fn signals_are_for_a_policy_that_acts_on_them_and_for_no_other() {
    let resource = serde_json::from_str(r#"{ "policy": "resource" }"#).expect("a policy");
    let guarded = app_under(resource, "guarded", &["127.0.0.1:1"]);
    let mut bench = Bench::new(vec![guarded, app("shop", &["127.0.0.1:1"])], WhenSilent::Exclude);
    let mut nucleus = Nucleus::new("127.0.0.1:1", 7);
    nucleus.gauges.set(Gauge::QdiscPackets, 40.0);
    nucleus.enter(&mut bench);
    // Not through `hand`, which passes on at once what is told.
    assert!(bench.nuclei.handle(&nucleus.datagram(), FROM).is_none());
    let signals = |told: &Told| {
        let signal = |report: &LoadReport| match report {
            LoadReport::Signal { signal, value, .. } => Some((*signal, *value)),
            _ => None,
        };
        told.reports.iter().filter_map(signal).collect::<Vec<_>>()
    };
    assert_eq!(signals(&bench.nuclei.told[0]), [(Signal::NicQueue, 40.0)]);
    assert!(signals(&bench.nuclei.told[1]).is_empty() && !bench.nuclei.told[1].reports.is_empty());
}
