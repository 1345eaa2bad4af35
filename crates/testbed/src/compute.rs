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

    /// Processor time, seconds, of so much work.
    fn took(seconds: f64) -> f64 {
        let began = cpu_time();
        work(seconds);
        cpu_time() - began
    }

    #[test]
    fn work_takes_no_less_processor_time_than_it_is_given() {
        let took = took(0.02);
        assert!(took >= 0.02, "{took}");
    }

    mod measurements {
        use super::*;

        /// A host that takes the processor away at its end may be counted as work.
        #[test]
        #[ignore = "a measurement: cargo xtask test runs it alone and watches the machine"]
        fn work_takes_the_processor_time_that_it_is_given() -> Result<(), String> {
            let took = took(0.02);
            if took < 0.03 { Ok(()) } else { Err(format!("{took} s for work of 0.02 s, less than 0.03 is due")) }
        }
    }
}
