//! Real nuclei beside emulated servers, and a real sentry, under load: servers, nuclei and the sentry itself are killed
//! and restarted, and nobody helps.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tidegate_engine::{ServerSnapshot, Status};
use tidegate_loadgen::{LoadRun, Plan, Stream};
use tidegate_sentry::config::{Config, Reports, WhenSilent};
use tidegate_sentry::record::NoRecords;
use tidegate_sentry::reports::NucleusState;
use tidegate_sentry::{Sentry, SentryHandle};
use tidegate_testbed::{EmulatedServer, Nuclei, ServerSpec, free_address};
use tidegate_wire::{Keys, Rejected};
use tidegate_workload::{ArrivalProcess, ServiceTime};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use crate::support::{PATIENCE, until};

const INTERVAL: Duration = Duration::from_millis(100);

/// Each test is a process. One that uses a port which another has just left must not hear the other's nuclei.
fn keys() -> Keys {
    Keys::derive(&std::process::id().to_ne_bytes())
}

/// Servers that can be killed and come back at their address.
struct Servers {
    /// Of a runtime that a thread of its own drives until the sender is dropped.
    runtime: Handle,
    _drive: oneshot::Sender<()>,
    specs: Vec<ServerSpec>,
    running: Vec<Option<EmulatedServer>>,
}

impl Servers {
    fn start(count: usize) -> Servers {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (handle, (drive, driven)) = (runtime.handle().clone(), oneshot::channel::<()>());
        std::thread::spawn(move || runtime.block_on(driven));
        let mut servers = Servers { runtime: handle, _drive: drive, specs: Vec::new(), running: Vec::new() };
        for _ in 0..count {
            // Nobody else takes it while the server is away.
            let listen = free_address().expect("an address");
            let spec = ServerSpec {
                listen,
                cores: 2,
                status_path: Some("/tidegate-status".into()),
                ..ServerSpec::new(ServiceTime::constant(0.004).unwrap(), 10)
            };
            let server = servers.runtime.block_on(EmulatedServer::start(spec.clone())).unwrap();
            servers.specs.push(spec);
            servers.running.push(Some(server));
        }
        servers
    }

    fn addresses(&self) -> Vec<SocketAddr> {
        self.specs.iter().map(|spec| spec.listen).collect()
    }

    /// Requests that came to server number `at` since it was started.
    fn asked(&self, at: usize) -> u64 {
        self.running[at].as_ref().map_or(0, |server| server.stats().requests)
    }

    fn kill(&mut self, at: usize) {
        if let Some(server) = self.running[at].take() {
            self.runtime.block_on(server.stop(Duration::ZERO));
        }
    }

    fn restart(&mut self, at: usize) {
        let server = self.runtime.block_on(EmulatedServer::start(self.specs[at].clone()));
        self.running[at] = Some(server.expect("its address is free again"));
    }
}

/// A sentry before `servers`, which hears nuclei at `listen`. Its health checks bring servers back, and are too patient
/// to tell who is dead: nuclei do. Should a busy machine make all of them seem silent, none that is dead is asked.
fn sentry(servers: &[SocketAddr], at: SocketAddr, listen: SocketAddr, when_silent: WhenSilent) -> SentryHandle {
    let list: Vec<String> = servers.iter().map(|address| format!("\"{address}\"")).collect();
    let text = format!(
        "[[application]]\nname = \"app\"\nlisten = \"{at}\"\nadmission = \"none\"\nservers = [{}]\n\
         when_all_down = \"refuse\"\n\
         [application.health]\ninterval = \"200ms\"\nfall = 100\nrise = 1\n",
        list.join(", ")
    );
    let checked = Config::parse(&text, Path::new("nuclei.toml")).unwrap_or_else(|errors| panic!("{errors}"));
    let mut config = checked.config;
    config.sentry.workers = 1;
    config.admin.listen = None;
    let (key_file, silent_after) = (PathBuf::new(), None);
    config.reports = Some(Reports { listen, key_file, keys: keys(), silent_after, when_silent });
    Sentry::start(config, Arc::new(NoRecords)).expect("a sentry")
}

fn any_port() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

fn state(sentry: &SentryHandle, server: SocketAddr) -> Option<NucleusState> {
    sentry.reports().expect("a listener").state(&server.to_string())
}

fn shown(sentry: &SentryHandle, at: usize) -> ServerSnapshot {
    sentry.apps()[0].snapshot().servers[at].clone()
}

/// 250/s, stopped when the test is done.
fn load(at: SocketAddr) -> LoadRun {
    let stream = Stream::new("all", "250/s".parse().unwrap()).url(&format!("http://{at}/"), 1.0).unwrap();
    let stream = stream.arrivals(ArrivalProcess::Constant).timeout(Duration::from_secs(5));
    LoadRun::start(Plan::new(vec![stream], 60 * PATIENCE)).unwrap()
}

fn admitted(load: &LoadRun) -> u64 {
    load.progress().borrow().classes.first().map_or(0, |class| class.admitted)
}

/// Requests go on being answered.
#[track_caller]
fn goes_on(load: &LoadRun) {
    let before = admitted(load);
    until("requests are answered", || admitted(load) > before + 50);
}

/// From when on a server counts as dead, no request goes there for as long as others get a hundred.
#[track_caller]
fn gets_nothing(sentry: &SentryHandle, servers: &Servers, load: &LoadRun, at: usize) {
    until("what was under way is over", || shown(sentry, at).in_flight == 0);
    let before = (servers.asked(at), admitted(load));
    until("the others are asked", || admitted(load) > before.1 + 100);
    assert_eq!((servers.asked(at), shown(sentry, at).in_flight), (before.0, 0), "server {at} was known dead");
}

#[test]
fn servers_and_nuclei_die_and_come_back_under_load() {
    let mut servers = Servers::start(4);
    let addresses = servers.addresses();
    let sentry = sentry(&addresses, any_port(), any_port(), WhenSilent::Exclude);
    let listen = sentry.reports().unwrap().address();
    let nuclei = Nuclei::start(&addresses, listen, &keys(), INTERVAL).unwrap();
    let speaks = |at: usize| state(&sentry, addresses[at]) == Some(NucleusState::Speaks);
    until("all speak", || (0..4).all(speaks));
    let load = load(sentry.addresses("app")[0]);
    goes_on(&load);
    for round in 0..2 {
        // A nucleus alone: its server is well, but nobody can tell.
        nuclei.kill(round);
        until("its silence is noticed", || shown(&sentry, round).status == Status::Down);
        assert_eq!(state(&sentry, addresses[round]), Some(NucleusState::Silent));
        gets_nothing(&sentry, &servers, &load, round);
        nuclei.restart(round).unwrap();
        until("it is heard again", || speaks(round) && shown(&sentry, round).status == Status::Up);

        // A server alone: its nucleus sees that nobody listens.
        servers.kill(2);
        until("its nucleus tells", || state(&sentry, addresses[2]) == Some(NucleusState::NotListening));
        until("the sentry knows", || shown(&sentry, 2).status == Status::Down);
        gets_nothing(&sentry, &servers, &load, 2);
        servers.restart(2);
        until("it is back", || shown(&sentry, 2).status == Status::Up);
        let asked = servers.asked(2);
        until("it is asked again", || servers.asked(2) > asked + 20);

        // Both, as when a machine goes.
        servers.kill(3);
        nuclei.kill(3);
        until("the machine is missed", || shown(&sentry, 3).status == Status::Down);
        gets_nothing(&sentry, &servers, &load, 3);
        servers.restart(3);
        nuclei.restart(3).unwrap();
        until("the machine is back", || speaks(3) && shown(&sentry, 3).status == Status::Up);
        goes_on(&load);
    }
    load.stop();
    until("nothing is in flight", || sentry.apps()[0].in_flight() == 0);
    assert!((0..4).all(|at| shown(&sentry, at).in_flight == 0));
    assert_eq!(sentry.apps()[0].snapshot().stale_tickets, 0);
    until("all speak", || (0..4).all(speaks));
    sentry.shutdown(Duration::from_secs(1));
}

/// With `estimate` a server whose nucleus is silent is judged as one without; the others' reports still count.
#[test]
fn half_of_the_nuclei_silent_degrade_server_by_server() {
    for when_silent in [WhenSilent::Estimate, WhenSilent::Exclude] {
        let servers = Servers::start(4);
        let addresses = servers.addresses();
        let sentry = sentry(&addresses, any_port(), any_port(), when_silent);
        let nuclei = Nuclei::start(&addresses, sentry.reports().unwrap().address(), &keys(), INTERVAL).unwrap();
        let tells = |at: usize| shown(&sentry, at).queueing_delay.is_some();
        until("all tell how long one waits", || (0..4).all(tells));
        let load = load(sentry.addresses("app")[0]);
        goes_on(&load);
        nuclei.silence(0);
        nuclei.silence(1);
        let are_silent = || (0..2).all(|at| state(&sentry, addresses[at]) == Some(NucleusState::Silent));
        until("two are silent", are_silent);
        until("what they told is forgotten", || !tells(0) && !tells(1));
        until("the others' reports count", || tells(2) && tells(3));
        let excluded = when_silent == WhenSilent::Exclude;
        let wanted = if excluded { Status::Down } else { Status::Up };
        until("they are treated as the setting says", || (0..2).all(|at| shown(&sentry, at).status == wanted));
        if excluded {
            gets_nothing(&sentry, &servers, &load, 0);
            gets_nothing(&sentry, &servers, &load, 1);
        }
        let before: Vec<u64> = (0..4).map(|at| servers.asked(at)).collect();
        let asked: Vec<usize> = if excluded { vec![2, 3] } else { vec![0, 1, 2, 3] };
        until("all that are left are asked", || asked.iter().all(|&at| servers.asked(at) > before[at] + 20));
        nuclei.speak(0);
        nuclei.speak(1);
        until("all are as before", || (0..4).all(|at| tells(at) && shown(&sentry, at).status == Status::Up));
        load.stop();
        until("nothing is in flight", || sentry.apps()[0].in_flight() == 0);
        sentry.shutdown(Duration::from_secs(1));
    }
}

#[test]
fn of_two_nuclei_the_first_speaks_and_the_second_takes_over() {
    let servers = Servers::start(1);
    let addresses = servers.addresses();
    let sentry = sentry(&addresses, any_port(), any_port(), WhenSilent::Exclude);
    let view = sentry.reports().unwrap();
    let first = Nuclei::start(&addresses, view.address(), &keys(), INTERVAL).unwrap();
    until("the first speaks", || state(&sentry, addresses[0]) == Some(NucleusState::Speaks));
    let second = Nuclei::start(&addresses, view.address(), &keys(), INTERVAL).unwrap();
    let load = load(sentry.addresses("app")[0]);
    until("the second is told that it is not wanted", || view.counts().rejected(Rejected::Claimed) > 5);
    until("the server serves", || shown(&sentry, 0).status == Status::Up);
    first.kill(0);
    // More often on a machine so busy that the first one is late.
    until("the second takes over", || view.to_json()["nuclei"][0]["restarts"].as_u64() >= Some(1));
    until("the server serves", || shown(&sentry, 0).status == Status::Up);
    goes_on(&load);
    until("the second is heard", || (first.heard(), second.heard()) == (0, 1));
    load.stop();
    until("nothing is in flight", || sentry.apps()[0].in_flight() == 0);
    sentry.shutdown(Duration::from_secs(1));
}

#[test]
fn a_sentry_that_is_restarted_hears_the_same_nuclei_again() {
    let servers = Servers::start(3);
    let addresses = servers.addresses();
    let (at, listen) = (free_address().expect("an address"), free_address().expect("an address"));
    let first = sentry(&addresses, at, listen, WhenSilent::Exclude);
    let nuclei = Nuclei::start(&addresses, listen, &keys(), INTERVAL).unwrap();
    let all_speak =
        |sentry: &SentryHandle| addresses.iter().all(|server| state(sentry, *server) == Some(NucleusState::Speaks));
    until("all speak", || all_speak(&first));
    first.shutdown(Duration::from_secs(1));
    let second = sentry(&addresses, at, listen, WhenSilent::Exclude);
    until("all speak to the new one", || all_speak(&second));
    let counts = second.reports().unwrap().counts();
    assert!(counts.rejected(Rejected::Stale) >= 3, "their old sessions were worth nothing");
    let load = load(at);
    goes_on(&load);
    nuclei.kill(0);
    until("silence is noticed", || shown(&second, 0).status == Status::Down);
    gets_nothing(&second, &servers, &load, 0);
    load.stop();
    until("nothing is in flight", || second.apps()[0].in_flight() == 0);
    second.shutdown(Duration::from_secs(1));
}
