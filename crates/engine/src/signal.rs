//! Numbers by which resources are protected: what is measured, in which unit, by name.

use serde::{Deserialize, Serialize};

/// Something measured on a server, or at the sentry itself. All are 0 or more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Signal {
    /// Processors in use, percent of those that may be used.
    Cpu,
    /// Packets that wait in the queues of the network interfaces.
    NicQueue,
    /// Connections that wait to be accepted.
    ListenQueue,
    /// Memory in use, percent of what may be used.
    Memory,
    /// Time in which the busiest disk was busy, percent.
    Disk,
    /// Time in which something waited for a processor (PSI, some, 10 s), percent.
    PressureCpu,
    /// The same for memory.
    PressureMemory,
    /// The same for disks.
    PressureIo,
    /// Bytes per second sent by the network interfaces.
    NetSent,
    /// Requests that the server works on.
    InService,
    /// Connections per second lost because the queue of those that wait to be accepted was full.
    ListenOverflows,
    /// Packets per second that the queues of network interfaces dropped.
    NicDrops,
}

impl Signal {
    /// Every signal, in a fixed order.
    pub const ALL: [Signal; 12] = [
        Signal::Cpu,
        Signal::NicQueue,
        Signal::ListenQueue,
        Signal::Memory,
        Signal::Disk,
        Signal::PressureCpu,
        Signal::PressureMemory,
        Signal::PressureIo,
        Signal::NetSent,
        Signal::InService,
        Signal::ListenOverflows,
        Signal::NicDrops,
    ];

    /// Its name in configuration and output.
    pub const fn name(self) -> &'static str {
        match self {
            Signal::Cpu => "cpu",
            Signal::NicQueue => "nic_queue",
            Signal::ListenQueue => "listen_queue",
            Signal::Memory => "memory",
            Signal::Disk => "disk",
            Signal::PressureCpu => "pressure_cpu",
            Signal::PressureMemory => "pressure_memory",
            Signal::PressureIo => "pressure_io",
            Signal::NetSent => "net_sent",
            Signal::InService => "in_service",
            Signal::ListenOverflows => "listen_overflows",
            Signal::NicDrops => "nic_drops",
        }
    }

    /// The signal of that name.
    pub fn from_name(name: &str) -> Option<Signal> {
        Signal::ALL.into_iter().find(|signal| signal.name() == name)
    }

    /// Whether it is the length of a queue: its change says more than the length does, and it is seldom not zero.
    pub const fn is_queue(self) -> bool {
        matches!(self, Signal::NicQueue | Signal::ListenQueue)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_configuration_and_lead_back() {
        for (at, signal) in Signal::ALL.into_iter().enumerate() {
            assert_eq!(signal as usize, at);
            assert_eq!(Signal::from_name(signal.name()), Some(signal));
            assert_eq!(serde_json::to_value(signal).unwrap(), signal.name());
        }
        assert_eq!(Signal::from_name("phase of the moon"), None);
    }
}
