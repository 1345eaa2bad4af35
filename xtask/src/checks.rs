//! What commands that check something say in the end.

use std::process::ExitCode;

/// One thing that must hold: in words with its bar, what was found, and whether it held.
pub type Check = (String, String, bool);

/// Prints all of them. A miss is an exit status of 1.
pub fn tell(checks: &[Check]) -> ExitCode {
    println!("\n| what | found | |\n|---|---|---|");
    for (what, found, holds) in checks {
        println!("| {what} | {found} | {} |", if *holds { "holds" } else { "**missed**" });
    }
    if checks.iter().all(|check| check.2) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
