//! Whether what must stay where it was did.

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::checks::{self, Check};

/// A line of the record, as far as it is judged.
#[derive(Clone, Debug, PartialEq)]
pub struct Piece {
    process: u64,
    offered: f64,
    failed: f64,
    values: [f64; 4],
}

/// What must stay flat: its name in the record, the most that its last third may have of its first, and what does not
/// count in any case.
const FLAT: [(&str, f64, f64); 4] =
    [("memory_bytes", 1.1, 16e6), ("descriptors", 1.1, 64.0), ("p95_s", 1.5, 0.05), ("mean_cost_s", 1.5, 0.0)];

/// Requests that are neither answered nor refused, of all: those at servers that are killed.
const FAILED: f64 = 0.02;

impl Piece {
    /// Reads a line.
    ///
    /// # Errors
    /// When it lacks something.
    pub fn read(line: &Value) -> Result<Piece> {
        let number = |name: &str| line[name].as_f64().with_context(|| format!("the record has no `{name}`: {line}"));
        let mut values = [0.0; 4];
        for (value, (name, ..)) in values.iter_mut().zip(FLAT) {
            *value = number(name)?;
        }
        let process = number("process")? as u64;
        Ok(Piece { process, offered: number("offered")?, failed: number("failed")?, values })
    }
}

/// What must hold of a soak. Each process of the sentry is judged by itself: its first piece is for learning, and the
/// median of its last third is held against that of its first. A short run only shows that it can be judged.
pub fn flatness(pieces: &[Piece], short: bool) -> Vec<Check> {
    let offered: f64 = pieces.iter().map(|piece| piece.offered).sum();
    let failed: f64 = pieces.iter().map(|piece| piece.failed).sum();
    let share = failed / offered.max(1.0);
    let bar = if short { 0.2 } else { FAILED };
    let mut checks = vec![
        (format!("{} pieces", pieces.len()), format!("{offered:.0} requests"), offered > 0.0),
        (format!("at most {:.0} % failed", bar * 1e2), format!("{:.2} %", share * 1e2), share <= bar),
    ];
    for of_one in pieces.chunk_by(|a, b| a.process == b.process).filter(|pieces| pieces.len() >= 4) {
        let learned = &of_one[1..];
        let third = learned.len() / 3;
        for (at, (name, most, least)) in FLAT.into_iter().enumerate() {
            let median = |pieces: &[Piece]| median(pieces.iter().map(|piece| piece.values[at]).collect());
            let (first, last) = (median(&learned[..third]), median(&learned[learned.len() - third..]));
            let is_level = name == "mean_cost_s";
            let holds = last <= first * most + least && (!is_level || last >= first / most);
            let what = format!("process {}: {name} stays within {most} of where it was", of_one[0].process);
            checks.push((what, format!("{first:.4} to {last:.4}"), holds || short));
        }
    }
    checks
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Prints what held, and where the record is.
pub fn tell(record: &Path, checks: &[Check]) -> ExitCode {
    let end = checks::tell(checks);
    println!("\nThe record is {}.", record.display());
    end
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(process: u64, values: [f64; 4]) -> Piece {
        Piece { process, offered: 1000.0, failed: 0.0, values }
    }

    fn held(pieces: &[Piece]) -> Vec<bool> {
        flatness(pieces, false).iter().map(|check| check.2).collect()
    }

    #[test]
    fn what_grows_is_found_and_what_moves_about_is_not() {
        let flat: Vec<_> = (0..30).map(|at| piece(1, [100e6, 500.0, 0.3, 0.01 + 0.001 * f64::from(at % 3)])).collect();
        assert_eq!(held(&flat), [true; 6]);
        let grows = |which: usize| -> Vec<Piece> {
            let at = |at: u32| {
                let mut values = [100e6, 500.0, 0.3, 0.01];
                values[which] *= 1.0 + f64::from(at) / 10.0;
                piece(1, values)
            };
            (0..30).map(at).collect()
        };
        for which in 0..4 {
            let mut expected = [true; 6];
            expected[2 + which] = false;
            assert_eq!(held(&grows(which)), expected);
        }
        let sinks: Vec<_> = (0..30).map(|at| piece(1, [100e6, 500.0, 0.3, 0.01 / f64::from(at + 1)])).collect();
        assert!(!held(&sinks)[5], "a level that sinks wanders, too");
    }

    #[test]
    fn a_process_that_was_started_anew_is_judged_by_itself() {
        let pieces: Vec<_> = (0..20).map(|at| piece(at / 10, [1e8 * (at / 10 + 1) as f64, 500.0, 0.3, 0.01])).collect();
        assert_eq!(held(&pieces), [true; 10]);
        let mut failed = pieces;
        failed[3].failed = 500.0;
        assert!(!held(&failed)[1], "500 of 20,000 failed");
    }
}
