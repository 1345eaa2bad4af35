//! What several tests need.

pub mod browser;
pub mod capacity;
pub mod front;
pub mod load;
pub mod program;
pub mod prometheus;
pub mod shop;

use std::hash::{BuildHasher, Hasher, RandomState};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Nothing that must happen takes this long, on any machine.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Waits for something that must happen.
#[track_caller]
pub fn until(what: &str, holds: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "waited in vain: {what}");
        std::thread::park_timeout(Duration::from_millis(2));
    }
}

/// A path of the temporary folder that nobody else has.
pub fn temporary(name: &str) -> PathBuf {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    std::env::temp_dir().join(format!("tidegate-{name}-{}-{number}", std::process::id()))
}

/// The seeds to run with: those kept because a test failed with them, then that of `TIDEGATE_SEED`, else a new one.
pub fn seeds(kept: &[u64]) -> Vec<u64> {
    let given = std::env::var("TIDEGATE_SEED").ok().map(|text| text.parse().expect("TIDEGATE_SEED is a number"));
    let seed = given.unwrap_or_else(|| RandomState::new().build_hasher().finish());
    println!("TIDEGATE_SEED={seed}");
    kept.iter().copied().chain([seed]).collect()
}
