//! The sampler reads each source as often as its values change.
//!
//! Processors, queues of connections and of network interfaces are looked at for every sample: admission follows them.
//! Disks, interfaces and the counters of TCP are dear to read (the kernel writes long tables) and steadier over a
//! quarter of a second; but while connections wait to be accepted every accept counts, and the counters are read each
//! time. Memory moves slowly, and the kernel renews its pressure averages every two seconds: once a second is enough.
//! In between a sample has what was measured last.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use tidegate_wire::{Connection, Gauge, Gauges};

use crate::config::{Config, Service};
use crate::netlink::{Family, Netlink, TcpSocket};
use crate::queue::Waiting;
use crate::sample::Sample;
use crate::source::Growth;
use crate::source::cgroup::Cgroups;
use crate::source::cpu::Cpu;
use crate::source::disk::Disks;
use crate::source::memory::Memory;
use crate::source::net::Net;
use crate::source::pressure::Pressure;
use crate::status::Watcher;
use crate::workers::Workers;

/// Limits are looked at again after this long.
const LIMITS: Duration = Duration::from_secs(10);
/// Disks, interfaces and counters are read this often; memory and pressure this often.
const SOON: Duration = Duration::from_millis(250);
const SELDOM: Duration = Duration::from_secs(1);
/// What is due so soon after this sample is read with it.
const EARLY: Duration = Duration::from_millis(20);
/// A step of time that makes no rate.
const TOO_SHORT: f64 = 1e-3;

/// Everything that is measured, and what it was the last time.
#[derive(Debug)]
pub struct Sampler {
    root: PathBuf,
    group: PathBuf,
    cgroups: Option<Cgroups>,
    cpu: Cpu,
    memory: Memory,
    pressure: Pressure,
    disks: Disks,
    net: Net,
    netlink: Option<Netlink>,
    drops: Growth,
    service: Option<Service>,
    waiting: Waiting,
    workers: Option<Workers>,
    /// Connections accepted since the machine started, as counted last.
    opened: Option<f64>,
    status: Option<Watcher>,
    /// What does not change, and what was measured last of that which is not due.
    kept: Gauges,
    due: Schedule,
}

/// What is read when: processors each time, disks and interfaces, counters, memory and pressure, limits.
#[derive(Debug)]
struct Schedule {
    every: Due,
    soon: Due,
    counters: Due,
    seldom: Due,
    limits: Due,
}

/// When a source was read, and when it is to be read again.
#[derive(Debug)]
struct Due {
    every: Duration,
    last: Option<Instant>,
}

impl Sampler {
    /// A sampler of what `config` names. What the system does not have is not measured.
    pub fn new(config: &Config) -> Sampler {
        let (root, group) = (config.root.clone(), config.cgroup.clone());
        let cgroups = Cgroups::find(&root);
        let mut memory = Memory::new(&root, cgroups.as_ref(), &group);
        memory.look_at_limits(cgroups.as_ref(), &group);
        let is_real = root.as_os_str() == "/";
        let mut kept = Gauges::default();
        kept.set(Gauge::Interval, config.interval.as_secs_f64());
        kept.set(Gauge::Processors, config.processors);
        let status = config.status.clone().and_then(|(host, path)| Watcher::start(host, path).ok());
        Sampler {
            cpu: Cpu::new(&root, cgroups.as_ref(), &group),
            memory,
            pressure: Pressure::new(&root, cgroups.as_ref(), &group),
            disks: Disks::new(&root),
            net: Net::new(&root),
            netlink: is_real.then(Netlink::open).and_then(Result::ok),
            drops: Growth::default(),
            service: config.service,
            waiting: Waiting::default(),
            workers: config.connections.then(|| Workers::new(&root.join("proc"))),
            opened: None,
            status,
            kept,
            due: Schedule::new(),
            root,
            group,
            cgroups,
        }
    }

    /// A sampler whose every sample asks every source.
    pub(crate) fn thorough(mut self) -> Sampler {
        let Schedule { soon, counters, seldom, .. } = &mut self.due;
        [soon, counters, seldom].into_iter().for_each(|due| due.every = Duration::ZERO);
        self
    }

    /// Measures. Rates are over the time since their source was read before; the first sample has none.
    pub fn sample(&mut self) -> Sample {
        let now = Instant::now();
        if self.due.limits.is_due(now).is_some() {
            self.cpu.look_at_limits(&self.root, self.cgroups.as_ref(), &self.group);
            self.memory.look_at_limits(self.cgroups.as_ref(), &self.group);
        }
        let seconds = self.due.every.is_due(now).unwrap_or(0.0);
        if let Some(seconds) = self.due.soon.is_due(now) {
            self.read_soon(seconds);
        }
        if self.due.seldom.is_due(now).is_some() {
            self.read_seldom();
        }
        let mut sample = Sample { gauges: self.kept, ..Sample::default() };
        sample.gauges.set(Gauge::Cores, self.cpu.cores());
        sample.gauges.set(Gauge::Cpu, self.cpu.used(seconds));
        self.queues(&mut sample, now, seconds);
        self.told(&mut sample);
        sample
    }

    /// The last `count` of the last sample's connections found no room in the report: the next one begins with them.
    pub(crate) fn put_back(&mut self, count: usize) {
        if let Some(workers) = &mut self.workers {
            workers.put_back(count);
        }
    }

    fn read_soon(&mut self, seconds: f64) {
        let disks = self.disks.used(seconds);
        self.kept.set(Gauge::DiskBusy, disks.busy);
        self.kept.set(Gauge::DiskRead, disks.read);
        self.kept.set(Gauge::DiskWritten, disks.written);
        let (received, sent) = self.net.moved(seconds);
        self.kept.set(Gauge::NetReceived, received);
        self.kept.set(Gauge::NetSent, sent);
    }

    fn read_seldom(&mut self) {
        let (used, limit) = self.memory.read();
        self.kept.set(Gauge::MemoryUsed, used);
        self.kept.set(Gauge::MemoryLimit, limit);
        let [cpu, memory, io] = self.pressure.read();
        self.kept.set(Gauge::PressureCpu, cpu);
        self.kept.set(Gauge::PressureMemory, memory);
        self.kept.set(Gauge::PressureIo, io);
    }

    /// Connections accepted and lost; how many accepted per second.
    fn count(&mut self, gauges: &mut Gauges, now: Instant, somebody_waits: bool) -> Option<f64> {
        let due = if somebody_waits { Some(self.due.counters.now(now)) } else { self.due.counters.is_due(now) };
        if let Some(seconds) = due {
            let counted = self.net.counted(seconds);
            self.kept.set(Gauge::ListenOverflows, counted.overflows);
            self.kept.set(Gauge::Accepts, counted.accepts);
            self.opened = counted.opened;
        }
        gauges.set(Gauge::ListenOverflows, self.kept.get(Gauge::ListenOverflows));
        gauges.set(Gauge::Accepts, self.kept.get(Gauge::Accepts));
        self.kept.get(Gauge::Accepts)
    }

    /// What the kernel tells of listeners, connections and interfaces.
    fn queues(&mut self, sample: &mut Sample, now: Instant, seconds: f64) {
        let listeners = self.listeners();
        let sum =
            |of: fn(&TcpSocket) -> u32| listeners.iter().flatten().map(|socket| f64::from(of(socket))).sum::<f64>();
        let (waiting, backlog) = (sum(|socket| socket.waiting), sum(|socket| socket.backlog));
        let accepts = self.count(&mut sample.gauges, now, waiting > 0.0);
        if let Some(Ok(qdiscs)) = self.netlink.as_mut().map(Netlink::qdiscs) {
            sample.gauges.set(Gauge::QdiscBacklog, qdiscs.backlog as f64);
            sample.gauges.set(Gauge::QdiscPackets, qdiscs.packets as f64);
            sample.gauges.set(Gauge::QdiscDrops, self.drops.rate(Some(qdiscs.drops as f64), seconds));
        }
        let Some(listeners) = listeners else { return };
        sample.gauges.set(Gauge::Listeners, listeners.len() as f64);
        sample.gauges.set(Gauge::AcceptQueue, waiting);
        sample.gauges.set(Gauge::AcceptBacklog, backlog);
        sample.gauges.set(Gauge::QueueingDelay, self.waiting.update(waiting, accepts, seconds));
        sample.connections = self.clocks(now, &listeners);
    }

    /// The sockets at which the service listens; `None` when nobody can tell.
    fn listeners(&mut self) -> Option<Vec<TcpSocket>> {
        let (service, netlink) = self.service.zip(self.netlink.as_mut())?;
        let mut listeners = Vec::new();
        let own = |socket: TcpSocket| listeners.extend(service.is_served_by(socket.local).then_some(socket));
        netlink.listeners(service.port(), own).ok()?;
        Some(listeners)
    }

    /// Processor time by connection, where that is wanted.
    fn clocks(&mut self, now: Instant, listeners: &[TcpSocket]) -> Vec<Connection> {
        let (Some(workers), Some(service), Some(netlink)) = (&mut self.workers, self.service, &mut self.netlink) else {
            return Vec::new();
        };
        if workers.is_look_due(now, self.opened) {
            let inodes: Vec<u32> = listeners.iter().map(|socket| socket.inode).collect();
            workers.look(now, self.opened, &inodes, || {
                let mut connections = Vec::new();
                let mut own =
                    |socket: TcpSocket| connections.extend(service.is_served_by(socket.local).then_some(socket));
                for family in [Family::V4, Family::V6] {
                    if listeners.iter().any(|listener| listener.family() == family) {
                        netlink.connections(family, service.port(), &mut own)?;
                    }
                }
                Ok(connections)
            });
        }
        workers.read()
    }

    /// What the server tells itself.
    fn told(&mut self, sample: &mut Sample) {
        let Some(status) = self.status.as_ref().and_then(Watcher::status) else { return };
        sample.gauges.set(Gauge::InService, status.in_service);
        sample.gauges.set(Gauge::IdleWorkers, status.idle_workers);
        [(Gauge::Cpu, status.cpu), (Gauge::Cores, status.cores)]
            .into_iter()
            .filter(|(_, value)| value.is_some())
            .for_each(|(gauge, value)| sample.gauges.set(gauge, value));
        if let Some(inside) = status.queueing_delay {
            let outside = sample.gauges.get(Gauge::QueueingDelay).unwrap_or(0.0);
            sample.gauges.set(Gauge::QueueingDelay, outside + inside);
        }
        sample.active = status.active.into_iter().collect();
    }
}

impl Schedule {
    fn new() -> Schedule {
        Schedule {
            every: Due::new(Duration::ZERO),
            soon: Due::new(SOON),
            counters: Due::new(SOON),
            seldom: Due::new(SELDOM),
            limits: Due { last: Some(Instant::now()), ..Due::new(LIMITS) },
        }
    }
}

impl Due {
    fn new(every: Duration) -> Due {
        Due { every, last: None }
    }

    /// Whether it is time; then as [`Due::now`].
    fn is_due(&mut self, now: Instant) -> Option<f64> {
        let is_early = self.last.is_some_and(|last| now.saturating_duration_since(last) + EARLY < self.every);
        (!is_early).then(|| self.now(now))
    }

    /// It is read now. Seconds since it was before; 0 the first time, and when that makes no rate.
    fn now(&mut self, now: Instant) -> f64 {
        let last = self.last.replace(now);
        let seconds = last.map_or(0.0, |last| now.saturating_duration_since(last).as_secs_f64());
        if seconds < TOO_SHORT { 0.0 } else { seconds }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::OwnedFd;
    use std::process::{Command, Stdio};

    use super::*;
    use crate::config::Given;
    use crate::source::testing::Tree;

    /// Nothing in these tests takes this long unless it is broken.
    const PATIENCE: Duration = Duration::from_secs(60);

    fn config(server: &str) -> Config {
        Given { server: Some(server.to_owned()), ..Given::default() }.resolve(false).expect("valid")
    }

    #[test]
    fn an_empty_tree_measures_nothing_and_does_no_harm() {
        let tree = Tree::new(&[]);
        let mut sampler = Sampler::new(&Config { root: tree.root().to_owned(), ..config("x") });
        sampler.sample();
        let measured: Vec<_> = sampler.sample().gauges.iter().map(|(gauge, _)| gauge).collect();
        assert_eq!(measured, [Gauge::Interval]);
    }

    #[test]
    fn a_tree_is_measured_below_its_root() {
        let tree = Tree::new(&[
            ("proc/stat", "cpu 1 1 1 1 1 1 1 1\ncpu0 1\n"),
            ("proc/meminfo", "MemTotal: 10 kB\nMemAvailable: 4 kB\n"),
            ("proc/pressure/cpu", "some avg10=50.00 total=1\n"),
        ]);
        let sample = Sampler::new(&Config { root: tree.root().to_owned(), ..config("x") }).sample();
        assert_eq!(sample.gauges.get(Gauge::Cores), Some(1.0));
        assert_eq!(sample.gauges.get(Gauge::MemoryUsed), Some(6144.0));
        assert_eq!(sample.gauges.get(Gauge::PressureCpu), Some(0.5));
        assert_eq!(sample.gauges.get(Gauge::AcceptQueue), None, "netlink is not below the root");
    }

    #[test]
    fn what_is_not_due_is_told_as_it_was_and_read_again_in_time() {
        let tree = Tree::new(&[
            ("proc/meminfo", "MemTotal: 10 kB\nMemAvailable: 4 kB\n"),
            ("proc/net/snmp", "Tcp: PassiveOpens\nTcp: 100\n"),
        ]);
        let config = Config { root: tree.root().to_owned(), ..config("x") };
        let (mut sampler, mut thorough) = (Sampler::new(&config), Sampler::new(&config).thorough());
        let used = |sampler: &mut Sampler| sampler.sample().gauges.get(Gauge::MemoryUsed);
        assert_eq!((used(&mut sampler), used(&mut thorough)), (Some(6144.0), Some(6144.0)));
        let ahead = Instant::now() + Duration::from_secs(3600);
        (sampler.due.seldom.last, sampler.due.counters.last) = (Some(ahead), Some(ahead));
        tree.write("proc/meminfo", "MemTotal: 10 kB\nMemAvailable: 9 kB\n");
        assert_eq!((used(&mut sampler), used(&mut thorough)), (Some(6144.0), Some(1024.0)));
        sampler.due.seldom.last = Instant::now().checked_sub(SELDOM);
        assert_eq!(used(&mut sampler), Some(1024.0));
        // Counters are read at once while somebody waits, over the time since they were read.
        let (mut gauges, later) = (Gauges::default(), Instant::now() + Duration::from_secs(2));
        sampler.due.counters.last = later.checked_sub(Duration::from_millis(100));
        tree.write("proc/net/snmp", "Tcp: PassiveOpens\nTcp: 105\n");
        assert_eq!(sampler.count(&mut gauges, later, false), None, "not due, and not known");
        assert!(sampler.count(&mut gauges, later, true).is_some_and(|accepts| (accepts - 50.0).abs() < 1e-6));
        assert!(gauges.get(Gauge::Accepts).is_some());
    }

    #[test]
    fn a_source_is_due_a_little_early_rather_than_a_whole_sample_late() {
        let mut due = Due::new(Duration::from_millis(250));
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        assert_eq!(due.is_due(start), Some(0.0));
        assert_eq!(due.is_due(at(200)), None);
        assert_eq!(due.is_due(at(240)), Some(0.24));
        assert_eq!(due.now(at(340)), 0.1);
        assert_eq!(due.is_due(at(500)), None);
    }

    #[test]
    fn a_process_that_has_a_connection_of_either_kind_is_found() {
        for (listen, client) in [("127.0.0.1", "127.0.0.1"), ("::", "127.0.0.1")] {
            let Ok(listener) = TcpListener::bind((listen, 0)) else { continue };
            let port = listener.local_addr().expect("an address").port();
            let client = TcpStream::connect((client, port)).expect("a connection");
            let (server, _) = listener.accept().expect("a connection");
            let mut process =
                Command::new("cat").stdin(OwnedFd::from(server)).stdout(Stdio::null()).spawn().expect("cat");
            let given = Given { connections: Some(true), ..Given::default() };
            let given = Given { server: Some(format!("web:{port}")), ..given };
            let mut sampler = Sampler::new(&given.resolve(false).expect("valid"));
            let listeners = sampler.listeners().expect("a list");
            // While another test starts a process, that has the connection too for a moment.
            let (begin, deadline) = (Instant::now(), Instant::now() + PATIENCE);
            let looks = (0..).take_while(|_| Instant::now() < deadline);
            let looks = looks.map(|look| begin + Duration::from_secs(100 * look));
            let found = looks.map(|now| sampler.clocks(now, &listeners)).find(|found| !found.is_empty());
            let found = found.expect("found");
            let expected = client.local_addr().expect("an address");
            assert_eq!(found.iter().map(|connection| connection.peer).collect::<Vec<_>>(), [expected]);
            drop(client);
            process.wait().expect("the end of cat");
            assert_eq!(sampler.clocks(Instant::now(), &listeners), [], "gone, and nobody needs to look");
        }
    }

    #[test]
    fn this_machine_is_measured_and_its_listener_seen_to_go() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
        let address = listener.local_addr().expect("an address").to_string();
        let mut sampler = Sampler::new(&config(&address));
        let sample = sampler.sample();
        assert_eq!(sample.gauges.get(Gauge::Listeners), Some(1.0));
        assert_eq!(sample.gauges.get(Gauge::AcceptQueue), Some(0.0));
        assert!(sample.gauges.get(Gauge::MemoryUsed).is_some_and(|bytes| bytes > 1e6));
        assert!(sample.gauges.get(Gauge::Cores).is_some_and(|cores| cores > 0.0));
        drop(listener);
        // While another test starts a process, that has the listener too for a moment.
        let deadline = Instant::now() + PATIENCE;
        while sampler.sample().gauges.get(Gauge::Listeners) != Some(0.0) {
            assert!(Instant::now() < deadline, "nobody listens any more, and the sampler sees it");
        }
        let json = sample.to_json(&address);
        assert_eq!(json["measured"]["listeners"], 1.0);
    }
}
