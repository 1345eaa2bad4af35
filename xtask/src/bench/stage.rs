//! What a stage costs per event and the tower layer per call: `crates/stage/benches/stage.rs`.

use anyhow::Result;

use super::figure::{Figure, timed};
use super::sim::{facts, finish};
use crate::args::Args;
use crate::command::{cargo, output};

/// Runs the benchmark; `--record` keeps what it says.
///
/// # Errors
/// When the bench fails.
pub fn run(mut args: Args) -> Result<Vec<Figure>> {
    let (short, record) = (args.switch("--short"), args.switch("--record"));
    args.finish()?;
    let mut bench = cargo(["bench", "--quiet", "-p", "tidegate-stage", "--bench", "stage", "--locked"]);
    if short {
        bench.env("TIDEGATE_BENCH_SHORT", "1");
    }
    let mut text = String::from(
        "# Cost of a stage\n\n`cargo xtask bench stage --record`. One thread; medians over interleaved rounds of 65,536 events, \
         the ratio to a bare bounded tokio channel within the same round (in brackets the tenth and ninetieth percentile). \
         Controllers are on.\n\n",
    );
    text.push_str(&facts());
    let said = output(&mut bench)?;
    text.push_str(&said);
    finish(&text, "stage", record)?;
    Ok(timed(&said))
}
