//! A rule about tests: they do not sleep.

use super::source::words;
use super::tree::{Finding, Tree};

/// No test sleeps to wait: the functions called `sleep` are not called there. (A method of that name is no such
/// function: it is how a timer of ours is tested.)
pub fn check_sleep(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (file, source) in tree.rust() {
        for (at, line) in source.code_lines().filter(|(at, _)| source.is_test(*at)) {
            let is_call = |start: usize, name: &str| line[start + name.len()..].starts_with('(');
            let is_method = |start: usize| line[..start].ends_with('.');
            let calls = |name: &str| words(line, name).any(|start| is_call(start, name) && !is_method(start));
            if ["sleep", "sleep_ms", "sleep_until"].into_iter().any(calls) {
                let what = "a test sleeps; wait for an event, advance paused time, or poll a condition with a deadline";
                findings.push(Finding::at(&file.path, at, what));
            }
        }
    }
    findings
}

/// Canaries of [`check_sleep`].
pub const SLEEP_CANARIES: &[&[(&str, &str)]] = &[
    &[("crates/sentry/tests/a.rs", "fn a() {\n    std::thread::sleep(LONG);\n}\n")],
    &[("crates/sentry/src/a.rs", "#[cfg(test)]\nmod tests {\n    async fn a() { time::sleep(LONG).await }\n}\n")],
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_that_is_no_test_may_sleep() {
        let text = "async fn a() { tokio::time::sleep(PERIOD).await }\n";
        assert_eq!(check_sleep(&Tree::from_texts(&[("crates/sentry/src/a.rs", text)])), []);
    }

    #[test]
    fn a_test_may_call_a_method_of_a_timer() {
        let text = "async fn a(timer: Timer) { timer.sleep_until(FAR).await }\n";
        assert_eq!(check_sleep(&Tree::from_texts(&[("crates/sentry/tests/a.rs", text)])), []);
    }
}
