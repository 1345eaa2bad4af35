//! Asks every source once.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use tidegate_wire::{Gauge, Gauges};

use crate::config::{Config, Service};
use crate::netlink::Netlink;
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
    status: Option<Watcher>,
    fixed: Gauges,
    last: Option<Instant>,
    limits: Instant,
}

impl Sampler {
    /// A sampler of what `config` names. What the system does not have is not measured.
    pub fn new(config: &Config) -> Sampler {
        let (root, group) = (config.root.clone(), config.cgroup.clone());
        let cgroups = Cgroups::find(&root);
        let mut memory = Memory::new(&root, cgroups.as_ref(), &group);
        memory.look_at_limits(cgroups.as_ref(), &group);
        let is_real = root.as_os_str() == "/";
        let mut fixed = Gauges::default();
        fixed.set(Gauge::Interval, config.interval.as_secs_f64());
        fixed.set(Gauge::Processors, config.processors);
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
            workers: config.connections.then(Workers::default),
            status,
            fixed,
            last: None,
            limits: Instant::now(),
            root,
            group,
            cgroups,
        }
    }

    /// Measures. Rates are over the time since the last call; the first has none.
    pub fn sample(&mut self) -> Sample {
        let now = Instant::now();
        if now.duration_since(self.limits) >= LIMITS {
            self.limits = now;
            self.cpu.look_at_limits(&self.root, self.cgroups.as_ref(), &self.group);
            self.memory.look_at_limits(self.cgroups.as_ref(), &self.group);
        }
        let seconds = self.last.replace(now).map_or(0.0, |last| now.duration_since(last).as_secs_f64());
        let seconds = if seconds < TOO_SHORT { 0.0 } else { seconds };
        let mut sample = Sample { gauges: self.fixed, ..Sample::default() };
        self.machine(&mut sample.gauges, seconds);
        let net = self.net.used(seconds);
        sample.gauges.set(Gauge::NetReceived, net.received);
        sample.gauges.set(Gauge::NetSent, net.sent);
        sample.gauges.set(Gauge::ListenOverflows, net.overflows);
        sample.gauges.set(Gauge::Accepts, net.accepts);
        self.queues(&mut sample, net.accepts, seconds);
        self.told(&mut sample);
        sample
    }

    fn machine(&mut self, gauges: &mut Gauges, seconds: f64) {
        gauges.set(Gauge::Cores, self.cpu.cores());
        gauges.set(Gauge::Cpu, self.cpu.used(seconds));
        let (used, limit) = self.memory.read();
        gauges.set(Gauge::MemoryUsed, used);
        gauges.set(Gauge::MemoryLimit, limit);
        let [cpu, memory, io] = self.pressure.read();
        gauges.set(Gauge::PressureCpu, cpu);
        gauges.set(Gauge::PressureMemory, memory);
        gauges.set(Gauge::PressureIo, io);
        let disks = self.disks.used(seconds);
        gauges.set(Gauge::DiskBusy, disks.busy);
        gauges.set(Gauge::DiskRead, disks.read);
        gauges.set(Gauge::DiskWritten, disks.written);
    }

    /// What the kernel tells of listeners, connections and interfaces.
    fn queues(&mut self, sample: &mut Sample, accepts: Option<f64>, seconds: f64) {
        let Some(netlink) = &mut self.netlink else { return };
        if let Ok(qdiscs) = netlink.qdiscs() {
            sample.gauges.set(Gauge::QdiscBacklog, qdiscs.backlog as f64);
            sample.gauges.set(Gauge::QdiscPackets, qdiscs.packets as f64);
            sample.gauges.set(Gauge::QdiscDrops, self.drops.rate(Some(qdiscs.drops as f64), seconds));
        }
        let Some(service) = self.service else { return };
        let (mut inodes, mut waiting, mut backlog) = (Vec::new(), 0u32, 0u32);
        let listed = netlink.listeners(|socket| {
            if service.is_served_by(socket.local) {
                inodes.push(socket.inode);
                waiting = waiting.saturating_add(socket.waiting);
                backlog = backlog.saturating_add(socket.backlog);
            }
        });
        if listed.is_err() {
            return;
        }
        sample.gauges.set(Gauge::Listeners, inodes.len() as f64);
        sample.gauges.set(Gauge::AcceptQueue, f64::from(waiting));
        sample.gauges.set(Gauge::AcceptBacklog, f64::from(backlog));
        let wait = self.waiting.update(f64::from(waiting), accepts, seconds);
        sample.gauges.set(Gauge::QueueingDelay, wait);
        if let Some(workers) = &mut self.workers {
            let mut connections = Vec::new();
            let own = |local| service.is_served_by(local);
            if netlink.connections(|socket| connections.extend(own(socket.local).then_some(socket))).is_ok() {
                sample.connections = workers.read(&inodes, &connections);
            }
        }
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

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;
    use crate::config::Given;
    use crate::source::testing::Tree;

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
        assert_eq!(sampler.sample().gauges.get(Gauge::Listeners), Some(0.0));
        let json = sample.to_json(&address);
        assert_eq!(json["measured"]["listeners"], 1.0);
    }
}
