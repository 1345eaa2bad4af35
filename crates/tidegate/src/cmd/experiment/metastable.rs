//! `tidegate simulate --find-metastable`: what brings a system down for good.

use std::io::{Write, stdout};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use tidegate_experiment::metastable::{self, Search, SearchError};
use tidegate_experiment::report::Mode;

use super::PlayArgs;
use super::run::Prepared;

impl PlayArgs {
    /// Looks for it in every scenario, in place of its checks. Status 1 when there is something, 2 when a scenario
    /// makes no sense or cannot be searched.
    pub(in super::super) fn find_metastable(&self, recovers: Duration) -> Result<ExitCode> {
        let mut is_found = false;
        for name in &self.scenarios {
            let points = match self.prepare(name, Mode::Simulated, None) {
                Ok(Prepared { points, .. }) => points,
                Err(error) => return Ok(super::super::bad_configuration(format!("{error:#}"))),
            };
            for point in points {
                writeln!(stdout(), "## {}: {}\n", point.scenario.id, point.scenario.title)?;
                let first = self.seed.unwrap_or(point.scenario.seed);
                let seeds = (0..self.seeds.unwrap_or(1)).map(|n| first.wrapping_add(n)).collect();
                let search = Search { scenario: point.scenario, seeds, recovers };
                let found = match search.run(super::jobs(self.jobs)) {
                    Ok(found) => found,
                    Err(error @ SearchError::Changes(_)) => {
                        return Ok(super::super::bad_configuration(format!("{name}: {error}")));
                    }
                    Err(error) => return Err(error.into()),
                };
                write!(stdout(), "{}", metastable::text(&found))?;
                is_found |= found.iter().any(|found| found.down().next().is_some());
            }
        }
        Ok(if is_found { ExitCode::FAILURE } else { ExitCode::SUCCESS })
    }
}
