//! From what a nucleus measures to the signals by which resources are protected.

use tidegate_engine::Signal;
use tidegate_wire::{Gauge, Gauges};

/// Hands on every signal that follows from the gauges.
pub(crate) fn signals(gauges: &Gauges, mut each: impl FnMut(Signal, f64)) {
    let get = |gauge| gauges.get(gauge);
    let percent_of = |part, whole| Some(100.0 * get(part)? / get(whole).filter(|whole| *whole > 0.0)?);
    let percent = |gauge| get(gauge).map(|share| 100.0 * share);
    for (signal, value) in [
        (Signal::Cpu, percent_of(Gauge::Cpu, Gauge::Cores)),
        (Signal::NicQueue, get(Gauge::QdiscPackets)),
        (Signal::ListenQueue, get(Gauge::AcceptQueue)),
        (Signal::Memory, percent_of(Gauge::MemoryUsed, Gauge::MemoryLimit)),
        (Signal::Disk, percent(Gauge::DiskBusy)),
        (Signal::PressureCpu, percent(Gauge::PressureCpu)),
        (Signal::PressureMemory, percent(Gauge::PressureMemory)),
        (Signal::PressureIo, percent(Gauge::PressureIo)),
        (Signal::NetSent, get(Gauge::NetSent)),
        (Signal::InService, get(Gauge::InService)),
        (Signal::ListenOverflows, get(Gauge::ListenOverflows)),
        (Signal::NicDrops, get(Gauge::QdiscDrops)),
    ] {
        if let Some(value) = value {
            each(signal, value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_become_percent_and_what_is_not_measured_is_left_out() {
        let mut gauges = Gauges::default();
        gauges.set(Gauge::Cpu, 1.5);
        gauges.set(Gauge::Cores, 2.0);
        gauges.set(Gauge::PressureIo, 0.25);
        gauges.set(Gauge::MemoryUsed, 5.0);
        let mut found = Vec::new();
        signals(&gauges, |signal, value| found.push((signal, value)));
        assert_eq!(found, [(Signal::Cpu, 75.0), (Signal::PressureIo, 25.0)]);
    }
}
