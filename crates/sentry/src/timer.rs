//! An application's clockwork: wakes the controller when it asked to be woken, and tells it how busy the sentry is.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use tidegate_engine::{LoadReport, Timestamp};

use crate::app::App;

/// How often the sentry's own load is reported.
const REPORT_PERIOD: Duration = Duration::from_secs(1);

/// Runs an application's timer, forever.
pub(crate) async fn run(app: Arc<App>) {
    loop {
        let next = {
            let mut core = app.lock();
            let next = core.controller.poll_timeout().map(|(at, _)| at);
            core.armed = next.unwrap_or(Timestamp::MAX);
            next
        };
        let Some(at) = next else {
            app.rearm.notified().await;
            continue;
        };
        tokio::select! {
            () = tokio::time::sleep_until(app.instant(at).into()) => {
                app.engine(|core, now| if now >= at { core.controller.handle_timeout(now) });
            }
            () = app.rearm.notified() => {}
        }
    }
}

/// CPU time that each worker has used.
#[derive(Debug)]
pub(crate) struct CpuMeter {
    used: Box<[AtomicU64]>,
    workers: usize,
}

impl CpuMeter {
    /// For `workers` workers, and so many altogether that take others' places.
    pub(crate) fn new(workers: usize, room: usize) -> Self {
        CpuMeter { used: (0..room.max(workers)).map(|_| AtomicU64::new(0)).collect(), workers }
    }

    /// Called on worker `index`'s own thread, often enough for [`report`]. `aside`: what another thread did for it.
    pub(crate) fn read(&self, index: usize, aside: Duration) {
        let now = clock_gettime(ClockId::ThreadCPUTime);
        let own = now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64;
        self.used[index].store(own + aside.as_nanos() as u64, Relaxed);
    }

    fn total(&self) -> u64 {
        self.used.iter().map(|used| used.load(Relaxed)).sum()
    }
}

/// Tells every application once a second which share of their processors the workers used.
pub(crate) async fn report(apps: Vec<Arc<App>>, meter: Arc<CpuMeter>) {
    let workers = meter.workers.max(1) as f64;
    let (mut used, mut at) = (meter.total(), Instant::now());
    loop {
        tokio::time::sleep(REPORT_PERIOD).await;
        let (used_now, now) = (meter.total(), Instant::now());
        let wall = now.duration_since(at).as_nanos() as f64;
        let share = used_now.saturating_sub(used) as f64 / wall / workers;
        (used, at) = (used_now, now);
        for app in &apps {
            app.report(LoadReport::SentryCpu(share.clamp(0.0, 1.0)));
        }
    }
}
