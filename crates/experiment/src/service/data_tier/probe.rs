//! Asks memcached at an even rate, from a thread of its own, and keeps how long each answer took.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tidegate_testbed::{LookUps, MemcachedClient, scatter};
use tidegate_workload::{Course, Profile, Responses, Second};

use crate::scenario::Scenario;

/// It goes before others where that is allowed: a late question is not memcached's fault.
const NICENESS: i32 = -15;

/// A running probe.
#[derive(Debug)]
pub(super) struct Probe {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Course>>,
}

impl Probe {
    pub(super) fn start(scenario: &Scenario, class: &str, look_ups: LookUps) -> io::Result<Probe> {
        let loads = scenario.loads.iter().filter(|load| load.class == class);
        let profiles: Vec<Profile> = loads.map(|load| load.rate.until(scenario.duration)).collect();
        let mut client = MemcachedClient::connect(look_ups.memcached)?;
        let stop = Arc::new(AtomicBool::new(false));
        let (stopped, duration) = (stop.clone(), scenario.duration);
        let probe = move || {
            // Where it may not, it runs as the others do.
            let _ = rustix::process::setpriority_process(None, NICENESS);
            let (start, mut course, mut asked) = (Instant::now(), Vec::new(), 0u32);
            let mut due = Duration::ZERO;
            while !stopped.load(Ordering::Relaxed) && due < duration {
                let rate: f64 = profiles.iter().map(|profile| profile.rate_at(due).per_second()).sum();
                if rate <= 0.0 {
                    due += Duration::from_millis(100);
                    continue;
                }
                std::thread::sleep((start + due).saturating_duration_since(Instant::now()));
                let second = due.as_secs() as usize;
                course.resize_with(course.len().max(second + 1), || (Responses::default(), 0, 0));
                let (responses, offered, failed) = &mut course[second];
                *offered += 1;
                asked += 1;
                // From now, not from when it was due: this is about memcached.
                let began = Instant::now();
                match client.look_up(scatter(asked) % look_ups.keys) {
                    Ok(()) => responses.add(began.elapsed()),
                    Err(_) => *failed += 1,
                }
                due = due.max(start.elapsed().saturating_sub(LATE)) + Duration::from_secs_f64(1.0 / rate);
            }
            sum_up(course)
        };
        let thread = std::thread::Builder::new().name("tidegate-probe".to_owned()).spawn(probe)?;
        Ok(Probe { stop, thread: Some(thread) })
    }

    /// Ends it; what it saw.
    pub(super) fn stop(&mut self) -> Course {
        self.stop.store(true, Ordering::Relaxed);
        // A panic has been printed, and what is missing fails its checks.
        self.thread.take().and_then(|thread| thread.join().ok()).unwrap_or_default()
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Questions that are later than this are left out.
const LATE: Duration = Duration::from_millis(100);

fn sum_up(seconds: Vec<(Responses, u64, u64)>) -> Course {
    let mut course = Course::default();
    for (second, (responses, offered, failed)) in seconds.into_iter().enumerate() {
        course.set(second, Second { offered, refused: 0, failed, good: offered - failed, responses });
    }
    course
}
