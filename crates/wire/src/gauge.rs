//! The gauges of a nucleus as a table: number on the wire, name in output, unit.

/// Declares the gauges once.
macro_rules! gauges {
    ($($(#[$doc:meta])* $name:ident = $code:literal, $text:literal;)*) => {
        /// Something measured. All are 0 or more.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Gauge {
            $($(#[$doc])* $name,)*
        }

        impl Gauge {
            /// Every gauge, in the order of their numbers.
            pub const ALL: &'static [Gauge] = &[$(Gauge::$name,)*];

            /// Its name in output.
            pub const fn name(self) -> &'static str {
                match self { $(Gauge::$name => $text,)* }
            }

            /// Its number on the wire; never used again for something else.
            pub const fn code(self) -> u8 {
                match self { $(Gauge::$name => $code,)* }
            }

            /// The gauge of a number; `None` for one of a later program.
            pub fn of(code: u8) -> Option<Gauge> {
                match code { $($code => Some(Gauge::$name),)* _ => None }
            }
        }
    };
}

gauges! {
    /// Seconds from one report to the next, as the nucleus means it.
    Interval = 1, "interval";
    /// Seconds that a connection waits at the server before it is accepted.
    QueueingDelay = 2, "queueing_delay";
    /// Requests that the server works on.
    InService = 3, "in_service";
    /// Effective processors of the server, where its operator said so.
    Processors = 4, "processors";
    /// Processors that the server may use: of the machine, or what its container is allowed.
    Cores = 5, "cores";
    /// Processors in use, by the container where there is one, else by the machine.
    Cpu = 6, "cpu";
    /// Bytes of memory in use, likewise.
    MemoryUsed = 7, "memory_used";
    /// Bytes of memory that may be used, likewise.
    MemoryLimit = 8, "memory_limit";
    /// Share of time, 0 to 1, in which something waited for a processor (PSI, some, 10 s).
    PressureCpu = 9, "pressure_cpu";
    /// The same for memory.
    PressureMemory = 10, "pressure_memory";
    /// The same for disks.
    PressureIo = 11, "pressure_io";
    /// Share of time, 0 to 1, in which the busiest disk was busy.
    DiskBusy = 12, "disk_busy";
    /// Bytes per second read from disks.
    DiskRead = 13, "disk_read";
    /// Bytes per second written to disks.
    DiskWritten = 14, "disk_written";
    /// Bytes per second received by the network interfaces.
    NetReceived = 15, "net_received";
    /// Bytes per second sent.
    NetSent = 16, "net_sent";
    /// Listening sockets of the service; 0: nothing listens, the server is down.
    Listeners = 17, "listeners";
    /// Connections that wait to be accepted by them.
    AcceptQueue = 18, "accept_queue";
    /// The most that can wait.
    AcceptBacklog = 19, "accept_backlog";
    /// Connections per second lost because the queue was full (of all listeners of the network namespace).
    ListenOverflows = 20, "listen_overflows";
    /// Bytes waiting in the network interfaces' queues.
    QdiscBacklog = 21, "qdisc_backlog";
    /// Packets per second dropped there.
    QdiscDrops = 22, "qdisc_drops";
    /// Connections per second that the kernel accepted (of all listeners of the network namespace).
    Accepts = 23, "accepts";
    /// Worker processes or threads that are free, where the server tells.
    IdleWorkers = 24, "idle_workers";
    /// Cores that the application's software on a data server has to itself now; absent: cores are not divided.
    IsolatedCores = 25, "isolated_cores";
    /// Why cores are not divided as the sentry wants it: a [`code`](crate::IsolationProblem::code); 0: they are.
    IsolationProblem = 26, "isolation_problem";
    /// How often cores could not be divided since the nucleus started.
    IsolationFailures = 27, "isolation_failures";
    /// Seconds that the last move of the boundary between cores took.
    IsolationMove = 28, "isolation_move";
    /// Packets waiting in the network interfaces' queues.
    QdiscPackets = 29, "qdisc_packets";
}

const COUNT: usize = Gauge::ALL.len();

/// A value for each gauge, or none.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gauges([f32; COUNT]);

/// Stands for "not measured": no gauge is negative.
const NONE: f32 = -1.0;

impl Default for Gauges {
    fn default() -> Self {
        Gauges([NONE; COUNT])
    }
}

impl Gauges {
    /// What was measured; `None` when it was not.
    pub fn get(&self, gauge: Gauge) -> Option<f64> {
        let value = self.0[gauge as usize];
        (value >= 0.0).then_some(f64::from(value))
    }

    /// Sets a gauge. What is no number, or below 0, counts as not measured.
    pub fn set(&mut self, gauge: Gauge, value: impl Into<Option<f64>>) {
        let value = value.into().map_or(NONE, |value| value as f32);
        self.0[gauge as usize] = if value >= 0.0 && value.is_finite() { value } else { NONE };
    }

    /// The gauges that were measured, with their values.
    pub fn iter(&self) -> impl Iterator<Item = (Gauge, f64)> + '_ {
        Gauge::ALL.iter().filter_map(|&gauge| Some((gauge, self.get(gauge)?)))
    }

    pub(crate) fn raw(&self, gauge: Gauge) -> f32 {
        self.0[gauge as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_and_names_are_unique_and_lead_back() {
        for (at, &gauge) in Gauge::ALL.iter().enumerate() {
            assert_eq!(gauge as usize, at);
            assert_eq!(Gauge::of(gauge.code()), Some(gauge));
        }
        let mut names: Vec<_> = Gauge::ALL.iter().map(|gauge| gauge.name()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Gauge::ALL.len());
        assert_eq!(Gauge::of(0), None);
    }

    #[test]
    fn nonsense_counts_as_not_measured() {
        let mut gauges = Gauges::default();
        for value in [-1.0, f64::NAN, f64::INFINITY, 1e300] {
            gauges.set(Gauge::Cpu, value);
            assert_eq!(gauges.get(Gauge::Cpu), None, "{value}");
        }
        gauges.set(Gauge::Cpu, 0.0);
        gauges.set(Gauge::Cores, 2.0);
        assert_eq!(gauges.iter().collect::<Vec<_>>(), [(Gauge::Cores, 2.0), (Gauge::Cpu, 0.0)]);
    }
}
