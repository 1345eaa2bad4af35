//! What several tests need.

pub mod live;

use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::Duration;

/// Nothing that must happen takes this long, on any machine.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// The seeds to run with: those kept because a test failed with them, then that of `TIDEGATE_SEED`, else a new one.
pub fn seeds(kept: &[u64]) -> Vec<u64> {
    let given = std::env::var("TIDEGATE_SEED").ok().map(|text| text.parse().expect("TIDEGATE_SEED is a number"));
    let seed = given.unwrap_or_else(|| RandomState::new().build_hasher().finish());
    println!("TIDEGATE_SEED={seed}");
    kept.iter().copied().chain([seed]).collect()
}
