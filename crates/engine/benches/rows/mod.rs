//! Timing of batches of calls, and tables of what came of it.

use std::time::Instant;

/// Columns of the tables.
pub const HEAD: &str = "| what | median ns | fastest | slowest | bar |\n|---|---|---|---|---|";

/// How much is measured.
#[derive(Clone, Copy)]
pub struct Scale {
    pub rounds: usize,
    /// The longest queue.
    #[allow(dead_code, reason = "not every benchmark has one")]
    pub most_waiting: u32,
}

impl Scale {
    /// All of it, or little with `TIDEGATE_BENCH_SHORT=1`.
    pub fn asked_for() -> Self {
        // `cargo test --benches` runs benchmarks too, to see that they work.
        let is_test = std::env::args().any(|argument| argument == "--test");
        let short = is_test || std::env::var_os("TIDEGATE_BENCH_SHORT").is_some();
        Scale { rounds: if short { 25 } else { 201 }, most_waiting: if short { 100_000 } else { 1_000_000 } }
    }
}

/// Measures `work`, which does `calls` calls, once to warm up and then `rounds` times; prints a row.
pub fn row(scale: Scale, what: &str, bar: Option<f64>, calls: u64, mut work: impl FnMut()) {
    work();
    let times = (0..scale.rounds).map(|_| {
        let start = Instant::now();
        work();
        start.elapsed().as_secs_f64() * 1e9 / calls as f64
    });
    print_row(what, bar, times.collect());
}

/// Prints what each round took, nanoseconds: the median, the fastest, the slowest, and whether a bar was held.
pub fn print_row(what: &str, bar: Option<f64>, mut times: Vec<f64>) {
    times.sort_by(f64::total_cmp);
    let (median, first, last) = (times[times.len() / 2], times[0], times[times.len() - 1]);
    let bar = bar.map_or(String::new(), |bar| format!("{bar:.0} {}", if median <= bar { "held" } else { "MISSED" }));
    println!("| {what} | {median:.1} | {first:.1} | {last:.1} | {bar} |");
}
