//! What Go's gRPC client does with refusals: how long it was told to wait before it tries again, and how long it did.

use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde_json::Value;

use crate::real::process::Process;

/// A client's rounding.
const ROUNDING_MS: f64 = 1.0;
/// Calls, and the time between two of them.
const CALLS: u32 = 100;
const EVERY: Duration = Duration::from_millis(20);
/// Of each call: so long that there is time to wait for what it is told.
const DEADLINE: Duration = Duration::from_secs(8);
const GRACE: Duration = Duration::from_secs(10);

/// What came of the calls.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Retries {
    /// Calls.
    pub calls: u64,
    /// Of these, the ones that were answered.
    pub answered: u64,
    /// Tries that were refused.
    pub refused: u64,
    /// Of these, the ones that were not told how long to wait.
    pub untold: u64,
    /// Tries after the first.
    pub again: u64,
    /// Of these, the ones that came earlier than the client was told.
    pub early: u64,
}

/// A client under way.
pub struct Client {
    process: Process,
    deadline: Instant,
}

impl Client {
    /// Starts it on one core.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(program: &Path, to: SocketAddr, core: usize, dir: &Path) -> Result<Self> {
        let mut command = std::process::Command::new(program);
        command.args(["-to", &to.to_string(), "-calls", &CALLS.to_string()]);
        command.args(["-every", &format!("{}ms", EVERY.as_millis())]);
        command.args(["-deadline", &format!("{}s", DEADLINE.as_secs())]);
        let deadline = Instant::now() + EVERY * CALLS + DEADLINE + GRACE;
        Ok(Self { process: Process::start("client", command, core, dir.join("client.json"))?, deadline })
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// When it fails, does not end, or says something unexpected.
    pub fn finish(mut self) -> Result<Retries> {
        parse(&self.process.finish(self.deadline)?)
    }
}

fn parse(said: &str) -> Result<Retries> {
    let said: Value = serde_json::from_str(said).context("the client's report is not JSON")?;
    let calls = said.as_array().context("the client's report is no list")?;
    let mut all = Retries::default();
    for call in calls {
        let attempts = call["attempts"].as_array().context("a call without `attempts`")?;
        let is_answered = call["code"] == "OK";
        all.calls += 1;
        all.answered += u64::from(is_answered);
        let refused = attempts.len().saturating_sub(usize::from(is_answered));
        all.refused += refused as u64;
        all.untold += attempts[..refused].iter().filter(|attempt| attempt["pushback"].is_null()).count() as u64;
        for pair in attempts.windows(2) {
            let millis = |attempt: &Value, name: &str| attempt[name].as_f64().unwrap_or(0.0);
            let waited = millis(&pair[1], "began") - millis(&pair[0], "ended");
            all.again += 1;
            all.early += u64::from(waited + ROUNDING_MS < millis(&pair[0], "pushback"));
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tries_are_counted_with_what_they_were_told() {
        let said = r#"[
            {"code":"OK","attempts":[{"began":0,"ended":2,"pushback":100},{"began":103,"ended":150}]},
            {"code":"Unavailable","attempts":[{"began":0,"ended":2,"pushback":100},{"began":50,"ended":51}]}]"#;
        let wanted = Retries { calls: 2, answered: 1, refused: 3, untold: 1, again: 2, early: 1 };
        assert_eq!(parse(said).unwrap(), wanted);
        assert!(parse("[{}]").is_err());
    }
}
