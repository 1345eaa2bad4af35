//! Live checks that run beside others, and how each ended.

use std::collections::VecDeque;
use std::panic;
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};

use super::live::Live;
use super::measure::Run;

/// How one ended.
pub struct Ended {
    pub live: &'static Live,
    pub took: Duration,
    /// Whether it held, and what it printed.
    pub run: Result<(Run, String)>,
}

/// Starts checks, so many at a time, the first of the list first; they are told of as they end.
pub fn start(checks: Vec<&'static Live>, at_once: usize) -> Receiver<Ended> {
    // Who ends waits for nobody.
    let (sender, ended) = sync_channel(checks.len());
    let checks = Arc::new(Mutex::new(VecDeque::from(checks)));
    for _ in 0..at_once {
        let (checks, sender) = (checks.clone(), sender.clone());
        let next = move || checks.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
        thread::spawn(move || {
            while let Some(live) = next() {
                let begun = Instant::now();
                let run = panic::catch_unwind(|| live.run_quietly()).unwrap_or_else(|_| Err(anyhow!("it panicked")));
                // An error: nobody asks any more.
                let _ = sender.send(Ended { live, took: begun.elapsed(), run });
            }
        });
    }
    ended
}

#[cfg(test)]
mod tests {
    use super::super::binaries::Kind;
    use super::*;

    #[test]
    fn each_ends_once_whatever_its_end() {
        static CHECKS: [Live; 3] = [
            Live { name: "good", kind: Kind::Correctness, cargo: &["--version"], needs: &[] },
            Live { name: "bad", kind: Kind::Correctness, cargo: &["no-such-command"], needs: &[] },
            Live { name: "good again", kind: Kind::Correctness, cargo: &["--version"], needs: &[] },
        ];
        for at_once in [1, 2, 3] {
            let ended = start(CHECKS.iter().collect(), at_once);
            let mut all: Vec<_> = ended.into_iter().map(|ended| (ended.live.name, ended.run.unwrap())).collect();
            all.sort_by_key(|(name, _)| *name);
            assert_eq!(all.iter().map(|(name, _)| *name).collect::<Vec<_>>(), ["bad", "good", "good again"]);
            assert_eq!(all[0].1.0, Run::Missed);
            assert!(all[1].1.1.starts_with("cargo ") && all[2].1.0 == Run::Held);
        }
    }
}
