//! What the machine's speed has a part in: run alone, on a machine that is watched.

use std::process::Command;

use crate::go::program;
use crate::programs::{is_present, run};

/// The number before `/s` behind a word, in a line of the example's.
fn rate(line: &str, of: &str) -> f64 {
    let behind = line.split_once(of).unwrap_or_else(|| panic!("no {of:?} in {line:?}")).1;
    let number = behind.trim_start().split_once("/s").expect("a rate").0;
    number.parse().unwrap_or_else(|_| panic!("{number:?} in {line:?}"))
}

/// The service can answer 400 requests/s, 1,200 arrive, and an answer is good within 100 ms. Measured: 374/s with the
/// gate and 5/s without it, over ten seconds of which the first is spent on learning.
#[test]
#[ignore = "a measurement: cargo xtask test runs it alone and watches the machine"]
fn a_service_in_go_at_three_times_its_capacity_answers_in_time() -> Result<(), String> {
    if !is_present("go") {
        return Ok(());
    }
    let said = run(Command::new(program("shop")).args(["-during", "10s"]));
    let lines: Vec<&str> = said.lines().collect();
    let (without, with) = (rate(lines[1], "in time"), rate(lines[2], "in time"));
    let late = rate(lines[2], "late");
    // A sleep of 10 ms takes longer on a busy machine, and a twentieth of the answers may be late.
    if with > 280.0 && with > 3.0 * without && late < 0.08 * with {
        return Ok(());
    }
    Err(said)
}
