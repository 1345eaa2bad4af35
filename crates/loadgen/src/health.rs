//! Whether the generator itself kept up: how late requests left, and how busy its thread was.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use rustix::time::{ClockId, clock_gettime};

use crate::report::{ClassReport, ErrorKind, GeneratorReport, Quantiles, add, histogram};

/// The measurements; lives on the generator's thread, whose processor time it reads.
pub(crate) struct Health {
    lateness: Histogram<u64>,
    began: (Instant, Duration),
    second: (Instant, Duration),
    cpu_peak: f64,
}

impl Health {
    pub(crate) fn new() -> Health {
        let now = (Instant::now(), thread_cpu());
        Health { lateness: histogram(), began: now, second: now, cpu_peak: 0.0 }
    }

    /// A request due at `due` was taken in hand at `now`.
    pub(crate) fn taken(&mut self, due: Instant, now: Instant) {
        add(&mut self.lateness, now.saturating_duration_since(due));
    }

    /// Looks at the processor once a second; call it more often.
    pub(crate) fn tick(&mut self) {
        if self.second.0.elapsed() >= Duration::from_secs(1) {
            self.cpu_peak = self.cpu_peak.max(share_since(self.second));
            self.second = (Instant::now(), thread_cpu());
        }
    }

    /// The figures of the whole run.
    pub(crate) fn report(&self, connections_opened: u64, connection_waits: u64) -> GeneratorReport {
        let cpu = share_since(self.began);
        GeneratorReport {
            lateness: Quantiles::of(&self.lateness),
            cpu,
            cpu_peak: self.cpu_peak.max(cpu),
            connections_opened,
            connection_waits,
        }
    }
}

/// The reasons not to trust the figures of a run.
pub(crate) fn warnings(generator: &GeneratorReport, total: &ClassReport, connections: usize) -> Vec<String> {
    let mut warnings = Vec::new();
    if generator.lateness.p99 > LATE {
        warnings.push(format!(
            "the generator was late: 1 % of the requests left more than {:.1} ms after their time. Latencies include this; \
             lower the rate, or free this machine's processors",
            generator.lateness.p99 * 1e3
        ));
    }
    if generator.cpu_peak > BUSY {
        warnings.push(format!(
            "the generator was the bottleneck: its thread used {:.0} % of a processor in some second. Lower the rate, or \
             share the load among several generators",
            generator.cpu_peak * 100.0
        ));
    }
    if let Some(count) = total.errors.get(&ErrorKind::LocalLimit) {
        warnings.push(format!(
            "{count} connections could not be made because this machine had no port or no open file left: the service was \
             not asked. A port rests for a minute after its connection; keep connections open, lower the rate, send from \
             several machines, or raise `ulimit -n`"
        ));
    }
    if total.not_sent.total() > 0 {
        warnings.push(format!(
            "{} requests were not sent: {} because too many were outstanding, {} because all {connections} connections \
             were busy until their timeout. The offered load was lower than planned",
            total.not_sent.total(),
            total.not_sent.outstanding_limit,
            total.not_sent.connection_limit
        ));
    } else if generator.connection_waits > 0 {
        warnings.push(format!(
            "{} requests had to wait for one of the {connections} connections: the server saw less load at once than was \
             offered. Allow more connections",
            generator.connection_waits
        ));
    }
    warnings
}

/// Share of a processor this thread has used since `then`.
fn share_since(then: (Instant, Duration)) -> f64 {
    let wall = then.0.elapsed().as_secs_f64();
    if wall > 0.0 { thread_cpu().saturating_sub(then.1).as_secs_f64() / wall } else { 0.0 }
}

fn thread_cpu() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Lateness of the 99th percentile, seconds, from which on the generator counts as late.
const LATE: f64 = 5e-3;

/// Share of a processor from which on the generator counts as the bottleneck.
pub(crate) const BUSY: f64 = 0.9;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::NotSent;

    #[test]
    fn warns_of_what_happened_only() {
        let good = GeneratorReport::default();
        let total = ClassReport::default();
        assert!(warnings(&good, &total, 8).is_empty());
        let late = GeneratorReport { lateness: Quantiles { p99: 0.01, ..Quantiles::default() }, ..good.clone() };
        assert!(warnings(&late, &total, 8)[0].contains("10.0 ms"));
        let busy = GeneratorReport { cpu_peak: 0.97, ..good.clone() };
        assert!(warnings(&busy, &total, 8)[0].contains("97 %"));
        let waits = GeneratorReport { connection_waits: 3, ..good.clone() };
        assert!(warnings(&waits, &total, 8)[0].contains("3 requests had to wait for one of the 8"));
        let not_sent = NotSent { outstanding_limit: 4, connection_limit: 1 };
        let held = ClassReport { not_sent, ..total };
        assert!(warnings(&good, &held, 8)[0].contains("5 requests were not sent: 4"));
        let used_up = ClassReport { errors: [(ErrorKind::LocalLimit, 7)].into(), ..ClassReport::default() };
        assert!(warnings(&good, &used_up, 8)[0].contains("7 connections could not be made because this machine"));
    }

    #[test]
    fn a_busy_thread_is_seen_as_busy() {
        let then = (Instant::now(), thread_cpu());
        let mut x = 0u64;
        while thread_cpu().saturating_sub(then.1) < Duration::from_millis(5) {
            x = std::hint::black_box(x + 1);
        }
        assert!(share_since(then) > 0.0);
    }
}
