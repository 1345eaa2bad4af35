//! Assignment of processors to the parts of a live run.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Runs `start` so that the threads and processes that it starts have only those processors of ours that `pick`
/// chooses, from their numbers. Where that is not allowed, or it chooses none, they have all.
pub fn pinned<T: Send>(pick: impl FnOnce(&[usize]) -> &[usize] + Send, start: impl FnOnce() -> T + Send) -> T {
    let run = || {
        if let Ok(all) = sched_getaffinity(None) {
            let all: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|&cpu| all.is_set(cpu)).collect();
            let mut some = CpuSet::new();
            pick(&all).iter().for_each(|&cpu| some.set(cpu));
            let _ = sched_setaffinity(None, &some);
        }
        start()
    };
    // They are inherited, so a thread takes them that does nothing else.
    std::thread::scope(|scope| scope.spawn(run).join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
}
