//! What the kernel does before the sentry: it turns new connections away, and it measures.
//!
//! Every request is a connection of its own here. While a policy protects resources, nuclei tell it ten times a second
//! how much of each is in use; what they say goes through the world's channel.

use std::time::Duration;

use tidegate_engine::{LoadReport, ServerId, Signal, Timestamp, TokenBucket};
use tidegate_workload::uniform;

use super::{Happening, Run};

/// Between two measurements.
const EVERY: Duration = Duration::from_millis(100);

/// The policer of new connections, and what was measured last.
#[derive(Default)]
pub(super) struct Kernel {
    bucket: Option<TokenBucket>,
    offered: u64,
    refused: u64,
    measured: Timestamp,
    /// Processor-seconds in use so far, by server behind the sentry.
    busy: Vec<f64>,
}

impl Kernel {
    /// From now on so many connections per second, `depth` of them at once; `None`: all.
    pub(super) fn set(&mut self, now: Timestamp, rate: Option<f64>, depth: f64) {
        match (&mut self.bucket, rate) {
            (Some(bucket), Some(rate)) => bucket.adjust(now, rate, depth),
            (bucket, rate) => *bucket = rate.map(|rate| TokenBucket::new(rate, depth)),
        }
    }

    /// A connection comes. Whether it is let in.
    pub(super) fn lets_in(&mut self, now: Timestamp) -> bool {
        let let_in = self.bucket.as_mut().is_none_or(|bucket| bucket.conforms(now));
        self.offered += 1;
        self.refused += u64::from(!let_in);
        let_in
    }
}

impl Run<'_> {
    /// Measures from now on, if anybody wants to know.
    pub(super) fn watch(&mut self) {
        if self.world.nuclei && self.world.setup.demands().signals {
            self.sentries.first_mut().kernel.busy = vec![0.0; self.world.servers.len()];
            self.plans.once(Timestamp::ZERO + EVERY, Happening::Measurement);
        }
    }

    /// Sends a measurement on its way.
    /// To one sentry, or to all.
    pub(super) fn send(&mut self, now: Timestamp, to: Option<u16>, report: LoadReport) {
        let channel = self.world.channel;
        if channel.loss > 0.0 && uniform(&mut self.aside) < channel.loss {
            return;
        }
        if channel.delay.is_zero() {
            self.sentries.report(now, to, report);
        } else {
            self.plans.once(now + channel.delay, Happening::Report { to, report });
        }
    }

    /// Measures all servers.
    pub(super) fn measure_servers(&mut self, now: Timestamp) {
        self.plans.once(now + EVERY, Happening::Measurement);
        let kernel = &mut self.sentries.first_mut().kernel;
        let seconds = now.seconds_since(std::mem::replace(&mut kernel.measured, now));
        for at in 0..self.world.servers.len() {
            let measured = self.park.measure(now, at as u32);
            let used = measured.busy - std::mem::replace(&mut self.sentries.first_mut().kernel.busy[at], measured.busy);
            let cores = self.world.servers[at].cores;
            let server = Some(ServerId(at as u16));
            let mut say = |signal, value| self.send(now, None, LoadReport::Signal { server, signal, value });
            say(Signal::Cpu, (100.0 * used / (seconds * cores)).clamp(0.0, 100.0));
            say(Signal::ListenQueue, measured.waiting as f64);
            say(Signal::InService, f64::from(measured.in_service));
            if let Some(packets) = measured.packets {
                say(Signal::NicQueue, packets);
            }
        }
        let Kernel { offered, refused, .. } = &mut self.sentries.first_mut().kernel;
        let report = LoadReport::Connections { offered: std::mem::take(offered), refused: std::mem::take(refused) };
        self.send(now, None, report);
    }
}
