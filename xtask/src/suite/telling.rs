//! What of a long output tells why something failed.

use crate::steps::NOT_JUDGED;

/// What a line has that tells it.
const SIGNS: &[&str] = &["missed", "FAIL", "panicked at", "error: ", "Error: ", "failed: "];
/// Lines, at most.
const LINES: usize = 12;
/// Of a line, characters.
const WIDTH: usize = 240;

/// The lines with a sign of failure and those just after a panic's, or the last ones where there is none.
pub fn lines(said: &str) -> String {
    let all: Vec<&str> = said.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let has_sign = |line: &str| SIGNS.iter().any(|sign| line.contains(sign));
    // A panic's message is on the line after.
    let is_message = |at: usize| at > 0 && all[at - 1].contains("panicked at");
    let telling = all.iter().enumerate().filter(|(at, line)| has_sign(line) || is_message(*at));
    let mut chosen: Vec<&str> = telling.map(|(_, line)| *line).take(LINES).collect();
    if chosen.is_empty() {
        chosen = all[all.len().saturating_sub(LINES)..].to_vec();
    }
    let cut = |line: &&str| line.chars().take(WIDTH).collect::<String>();
    chosen.iter().map(cut).collect::<Vec<_>>().join("\n")
}

/// Why a command that found no fault judged nothing, if it says so.
pub fn not_judged(said: &str) -> Option<String> {
    said.lines().find_map(|line| line.strip_prefix(NOT_JUDGED)).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missed_bound_and_a_panic_tell_and_their_neighbours_do_not() {
        let said =
            "all is well\n| p95 | 600 ms | **missed** |\n\nthread 'x' panicked at a.rs:1:2:\n  it is 3\nnote: run\n";
        assert_eq!(lines(said), "| p95 | 600 ms | **missed** |\nthread 'x' panicked at a.rs:1:2:\nit is 3");
    }

    #[test]
    fn without_a_sign_the_end_tells_and_nothing_is_long() {
        let said: String = (0..50).map(|at| format!("line {at} {}\n", "x".repeat(500))).collect();
        let told = lines(&said);
        assert_eq!(told.lines().count(), LINES);
        assert!(told.starts_with("line 38 ") && told.lines().all(|line| line.chars().count() <= WIDTH));
        assert_eq!(lines(""), "");
    }

    #[test]
    fn a_command_says_that_it_judged_nothing_at_the_beginning_of_a_line() {
        assert_eq!(not_judged("a table\nnot judged: another compiler\n"), Some("another compiler".into()));
        assert_eq!(not_judged("all is well, nothing was not judged: fine\n"), None);
    }
}
