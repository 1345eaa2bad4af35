//! Correctness tests beside each other, several at a time: most of them wait for something most of the time.

use std::collections::VecDeque;
use std::io::{IsTerminal, Write};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Result;

use super::binaries::Test;
use super::durations::Durations;
use super::trial::{self, End, Trial};

/// Tests at once, for each core.
const PER_CORE: usize = 2;

/// Between two lines of progress where nobody watches a terminal.
const LINE_EVERY: Duration = Duration::from_secs(15);

/// Runs tests, the longest first, and shows how far it is. Gives how each ended, in the order of their ends.
///
/// # Errors
/// When a test cannot be started.
pub fn run<'a>(
    tests: &[&'a Test],
    variables: &[(String, String)],
    folder: &Path,
    durations: &Durations,
) -> Result<Vec<(&'a Test, Trial)>> {
    let mut order: Vec<&Test> = tests.to_vec();
    order.sort_by_key(|test| std::cmp::Reverse(durations.expected(test)));
    let state = Mutex::new(State { waiting: order.into(), running: Vec::new(), done: Vec::new() });
    let cores = std::thread::available_parallelism()?.get();
    let progress = Progress { began: Instant::now(), shown: Mutex::new(Instant::now()), total: tests.len(), durations };
    let worker = |number: usize| -> Result<()> {
        let log = folder.join(format!("{number}.log"));
        while let Some(test) = take(&state) {
            let trial = trial::run(test, variables, &log)?;
            progress.ended(&mut lock(&state), test, trial, cores * PER_CORE);
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..cores * PER_CORE).map(|number| scope.spawn(move || worker(number))).collect();
        workers
            .into_iter()
            .try_for_each(|worker| worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })?;
    Ok(state.into_inner().unwrap_or_else(PoisonError::into_inner).done)
}

#[derive(Debug)]
struct State<'a> {
    waiting: VecDeque<&'a Test>,
    running: Vec<&'a Test>,
    done: Vec<(&'a Test, Trial)>,
}

fn take<'a>(state: &Mutex<State<'a>>) -> Option<&'a Test> {
    let mut state = lock(state);
    let test = state.waiting.pop_front()?;
    state.running.push(test);
    Some(test)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a person sees of it.
struct Progress<'a> {
    began: Instant,
    shown: Mutex<Instant>,
    total: usize,
    durations: &'a Durations,
}

impl Progress<'_> {
    fn ended<'a>(&self, state: &mut State<'a>, test: &'a Test, trial: Trial, workers: usize) {
        state.running.retain(|running| *running != test);
        if trial.end != End::Passed {
            clear_line();
            println!("{}\n── FAILED {}\n   {}", trial.said.trim_end(), test.title(), test.by_hand());
        }
        state.done.push((test, trial));
        let mut shown = lock(&self.shown);
        let pause = if is_terminal() { Duration::from_millis(100) } else { LINE_EVERY };
        if shown.elapsed() >= pause {
            *shown = Instant::now();
            show(&self.line(state, workers));
        }
    }

    fn line(&self, state: &State<'_>, workers: usize) -> String {
        let left = self.durations.left(&state.waiting, &state.running, workers, self.began.elapsed(), state.done.len());
        let longest = state.running.first().map_or_else(String::new, |test| format!("; {}", test.title()));
        format!("{} of {} tests, about {:.0} s left{longest}", state.done.len(), self.total, left.as_secs_f64())
    }
}

fn is_terminal() -> bool {
    std::io::stdout().is_terminal()
}

fn show(line: &str) {
    if is_terminal() {
        let line: String = line.chars().take(100).collect();
        print!("\r\x1b[K{line}");
        // Nobody reads what cannot be written.
        let _ = std::io::stdout().flush();
    } else {
        println!("{line}");
    }
}

/// Removes the line of progress from a terminal, before something else is printed.
pub fn clear_line() {
    if is_terminal() {
        print!("\r\x1b[K");
    }
}
