//! The engine and the simulator: programs that compute and end. Run at three lengths, the differences are what they
//! take for each unit, without their start and their end.

use std::path::Path;

use anyhow::{Context, Result, ensure};

use super::callgrind;
use crate::command::{cargo, run, target};

/// Requests that each run has more than the one before.
const REQUESTS: u64 = 25_000;

/// One way to run `crates/tidegate/examples/instructions.rs`.
pub struct Model {
    /// All its words but the last, which says how many requests.
    pub words: &'static [&'static str],
}

/// Builds the example: with the libraries of the program, which are built already.
///
/// # Errors
/// When it does not build.
pub fn build() -> Result<()> {
    run(&mut cargo(["build", "--quiet", "--release", "--locked", "-p", "tidegate", "--example", "instructions"]))
}

impl Model {
    /// Instructions for one unit: from the shortest run to the next, and from there to the longest. That these agree is
    /// more than that runs repeat one another, which they do to the last instruction.
    ///
    /// # Errors
    /// When a run fails.
    pub fn count(&self, dir: &Path) -> Result<Vec<f64>> {
        let runs = (2..=4).map(|length| self.run(REQUESTS * length, dir)).collect::<Result<Vec<_>>>()?;
        let per_unit = |pair: &[(u64, u64)]| {
            let units = pair[1].0.saturating_sub(pair[0].0);
            ensure!(units > 0, "a longer run did no more");
            Ok(pair[1].1.saturating_sub(pair[0].1) as f64 / units as f64)
        };
        runs.windows(2).map(per_unit).collect()
    }

    /// How many units were done, and by how many instructions.
    fn run(&self, requests: u64, dir: &Path) -> Result<(u64, u64)> {
        let program = target().join("release/examples/instructions");
        let (said, count) = callgrind::run(&program, &[self.words, &[&requests.to_string()]].concat(), dir)?;
        let units = said.parse().with_context(|| format!("the example did not say how many it did: {said}"))?;
        Ok((units, count))
    }
}
