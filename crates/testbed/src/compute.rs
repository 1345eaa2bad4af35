//! Real work, measured in processor time.

use std::hint::black_box;

use rustix::time::{ClockId, clock_gettime};

/// Works for so much processor time, seconds, on a thread of the blocking pool.
pub(crate) async fn compute(seconds: f64) {
    // It only ends early with the runtime, and then nobody waits for it.
    let _ = tokio::task::spawn_blocking(move || work(seconds)).await;
}

fn work(seconds: f64) {
    let end = cpu_time() + seconds;
    let mut page = [0u64; 512];
    let mut hash = 0xcbf2_9ce4_8422_2325u64;
    while cpu_time() < end {
        for word in &mut page {
            hash = (hash ^ *word).wrapping_mul(0x0100_0000_01b3).rotate_left(7);
            *word = hash;
        }
    }
    black_box(page);
}

/// Of this thread, seconds.
fn cpu_time() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_takes_the_processor_time_that_it_is_given() {
        let took = || {
            let began = cpu_time();
            work(0.02);
            cpu_time() - began
        };
        // A host that takes the processor away at its end may be counted as work: of ten times the shortest counts.
        let took: Vec<f64> = (0..10).map(|_| took()).collect();
        let shortest = took.iter().copied().fold(f64::INFINITY, f64::min);
        assert!((0.02..0.03).contains(&shortest), "{took:?}");
    }
}
