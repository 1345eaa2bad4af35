//! `tidegate tournament`: every policy in every arena.

use std::io::{IsTerminal, Write, stderr, stdout};
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::Result;
use tidegate_experiment::tournament::{DEFAULT, Tournament, TournamentError, drawn, known};

use super::experiment::jobs;
use crate::log;

/// Play admission policies against each other, and against what is possible, in simulated worlds
///
/// Rivals with knobs are tuned for each world on training seeds; everybody is judged on others. docs/tournament.md
/// describes the worlds and the figures. Exit status: 0 when it was played, 2 when what was asked for makes no sense.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Policies that take part, separated by commas
    #[arg(long, value_delimiter = ',', default_values_t = DEFAULT.map(String::from))]
    policies: Vec<String>,
    /// Only worlds whose names contain this
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Worlds that are drawn at random, besides those that were thought of
    #[arg(long, value_name = "N", default_value_t = 40)]
    drawn: u64,
    /// Seeds on which is judged
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=1000))]
    seeds: u64,
    /// Seeds on which knobs are chosen
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=1000))]
    training: u64,
    /// The first judging seed, and that of the first world drawn; training seeds come after all of these
    #[arg(long, value_name = "SEED", default_value_t = 1001)]
    seed: u64,
    /// Four worlds and one seed: whether it works at all
    #[arg(long)]
    short: bool,
    /// Results as JSON instead of tables
    #[arg(long)]
    json: bool,
    /// Runs at the same time; as many as there are processors when absent
    #[arg(long, value_name = "N")]
    jobs: Option<u16>,
}

/// Worlds of the short form.
const SHORT: [&str; 4] = ["0.8x", "step to 2x", "slower by 3, 0.8x", "three classes, 2.5x"];

/// Runs the command.
///
/// # Errors
/// When results cannot be written.
pub fn run(args: &Args) -> Result<ExitCode> {
    let tournament = args.tournament();
    if tournament.arenas.is_empty() {
        log::complain("error: no world has such a name: leave out --only to see all of them");
        return Ok(ExitCode::from(2));
    }
    let (done, all) = (AtomicUsize::new(0), tournament.runs());
    let watched = stderr().is_terminal();
    let results = tournament.play(jobs(args.jobs), || {
        let done = done.fetch_add(1, Ordering::Relaxed) + 1;
        if watched && (done.is_multiple_of(20) || done == all) {
            let _ = write!(stderr(), "\r{done} of {all} runs ");
        }
    });
    if watched {
        let _ = writeln!(stderr());
    }
    match results {
        Ok(results) if args.json => writeln!(stdout(), "{}", serde_json::to_string_pretty(&results)?)?,
        Ok(results) => write!(stdout(), "{}", results.to_text())?,
        Err(error @ (TournamentError::Policy(_) | TournamentError::Seeds(_))) => {
            log::complain(format_args!("error: {error}"));
            return Ok(ExitCode::from(2));
        }
        Err(error) => return Err(error.into()),
    }
    Ok(ExitCode::SUCCESS)
}

impl Args {
    fn tournament(&self) -> Tournament {
        let (seeds, training) = if self.short { (1, 1) } else { (self.seeds, self.training) };
        let randoms = if self.short { 0 } else { self.drawn };
        let seed = |n: u64| self.seed.wrapping_add(n);
        let mut arenas = known();
        arenas.retain(|arena| !self.short || SHORT.contains(&arena.name.as_str()));
        arenas.extend((0..randoms).map(|n| drawn(seed(n))));
        arenas.retain(|arena| self.only.as_ref().is_none_or(|only| arena.name.contains(only)));
        Tournament {
            arenas,
            policies: self.policies.clone(),
            judging: (0..seeds).map(seed).collect(),
            training: (0..training).map(|n| seed(seeds.max(randoms) + n)).collect(),
        }
    }
}
