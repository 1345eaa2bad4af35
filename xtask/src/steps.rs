//! A list of steps that are run, timed, counted and summed up.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Result;

/// A line of a command that begins so says why it judged nothing, though it found no fault.
pub const NOT_JUDGED: &str = "not judged: ";

/// The steps run so far and how they ended.
#[derive(Debug, Default)]
pub struct Steps {
    done: Vec<Step>,
    /// Tests within steps, which are counted and not listed.
    tests_passed: usize,
    tests_failed: usize,
    /// What could not be judged is a failure.
    strict: bool,
}

#[derive(Debug)]
struct Step {
    name: String,
    end: End,
}

#[derive(Debug)]
enum End {
    Passed(Duration),
    Failed(Duration, String),
    Skipped(String),
    NotJudged(Duration, String),
}

/// What is known of a measurement in the end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    Held,
    /// A bound was missed on an undisturbed machine, or something broke.
    Failed(String),
    /// The machine never held still: for each run, how it ended and what disturbed it. Or what it would be judged by
    /// does not belong to what was built.
    NotJudged(String),
}

impl Steps {
    /// No steps yet; with `strict` a measurement that could not be judged is a failure.
    pub fn new(strict: bool) -> Self {
        Self { strict, ..Self::default() }
    }

    /// Runs one step; a failure is printed and counted, and the next steps still run.
    pub fn run(&mut self, name: &str, step: impl FnOnce() -> Result<()>) {
        self.judge(name, || step().map(|()| Verdict::Held));
    }

    /// Runs one measurement; it may end without a judgement.
    pub fn judge(&mut self, name: &str, step: impl FnOnce() -> Result<Verdict>) {
        println!("── {name}");
        let start = Instant::now();
        let result = step();
        self.ended(name, start.elapsed(), result);
    }

    /// Takes in a step that took so long beside others; `result` shows what it printed, and says how it ended.
    pub fn ran(&mut self, name: &str, took: Duration, result: impl FnOnce() -> Result<Verdict>) {
        println!("── {name}");
        let result = result();
        self.ended(name, took, result);
    }

    fn ended(&mut self, name: &str, took: Duration, result: Result<Verdict>) {
        let failed = |why: &dyn std::fmt::Display| {
            let why = format!("{why:#}");
            println!("{name} failed: {why}");
            End::Failed(took, why)
        };
        let end = match result {
            Ok(Verdict::Held) => End::Passed(took),
            Ok(Verdict::NotJudged(why)) => End::NotJudged(took, why),
            Ok(Verdict::Failed(why)) => failed(&why),
            Err(error) => failed(&error),
        };
        println!("── {}", line(name, &end));
        self.done.push(Step { name: name.to_owned(), end });
    }

    /// Counts a test of a step that has many.
    pub fn count_test(&mut self, passed: bool) {
        let count = if passed { &mut self.tests_passed } else { &mut self.tests_failed };
        *count += 1;
    }

    /// Records a step that cannot run here, and says why.
    pub fn skip(&mut self, name: &str, because: &str) {
        println!("skipped: {name} because {because}");
        self.done.push(Step { name: name.to_owned(), end: End::Skipped(because.to_owned()) });
    }

    /// Prints every step with its time, and what failed with the reason once more, as who reads a long log begins at
    /// its end; the last line is `N passed, N failed`. Fails when any step did, or none ran.
    pub fn finish(self) -> ExitCode {
        println!("\nsummary");
        for step in &self.done {
            println!("  {}", line(&step.name, &step.end));
        }
        for step in &self.done {
            if let End::Failed(_, why) = &step.end {
                println!("FAILED {}: {}", step.name, why.trim_end().replace('\n', "\n    "));
            }
        }
        let Count { passed, failed, skipped, not_judged } = self.count();
        if skipped > 0 {
            println!("{skipped} skipped");
        }
        if not_judged > 0 {
            let strictly = if self.strict { "a failure, with --strict" } else { "the reasons are above" };
            println!("{not_judged} not judged: {strictly}");
        }
        println!("{passed} passed, {failed} failed");
        if failed == 0 && passed > 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }

    fn count(&self) -> Count {
        let of = |wanted: fn(&End) -> bool| self.done.iter().filter(|step| wanted(&step.end)).count();
        let not_judged = of(|end| matches!(end, End::NotJudged(..)));
        Count {
            passed: of(|end| matches!(end, End::Passed(_))) + self.tests_passed,
            failed: of(|end| matches!(end, End::Failed(..)))
                + self.tests_failed
                + if self.strict { not_judged } else { 0 },
            skipped: of(|end| matches!(end, End::Skipped(_))),
            not_judged,
        }
    }
}

/// How many steps and tests ended how.
#[derive(Debug, PartialEq, Eq)]
struct Count {
    passed: usize,
    failed: usize,
    skipped: usize,
    not_judged: usize,
}

fn line(name: &str, end: &End) -> String {
    match end {
        End::Passed(took) => format!("passed     {:>7.1} s  {name}", took.as_secs_f64()),
        End::Failed(took, _) => format!("FAILED     {:>7.1} s  {name}", took.as_secs_f64()),
        End::NotJudged(took, why) => format!("not judged {:>7.1} s  {name}: {why}", took.as_secs_f64()),
        End::Skipped(because) => format!("skipped: {name} because {because}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_each_end_and_goes_on_after_a_failure() {
        let mut steps = Steps::default();
        steps.run("good", || Ok(()));
        steps.run("bad", || anyhow::bail!("on purpose"));
        steps.skip("absent", "there is none");
        steps.run("good again", || Ok(()));
        steps.count_test(true);
        steps.count_test(false);
        assert_eq!(steps.count(), Count { passed: 3, failed: 2, skipped: 1, not_judged: 0 });
        assert_eq!(steps.finish(), ExitCode::FAILURE);
    }

    #[test]
    fn what_was_not_judged_is_no_pass_and_fails_only_strictly() {
        for (strict, failed) in [(false, 0), (true, 1)] {
            let mut steps = Steps::new(strict);
            steps.judge("held", || Ok(Verdict::Held));
            steps.judge("open", || Ok(Verdict::NotJudged("a neighbour".into())));
            assert_eq!(steps.count(), Count { passed: 1, failed, skipped: 0, not_judged: 1 });
            assert_eq!(steps.finish() == ExitCode::FAILURE, strict);
        }
        let mut steps = Steps::default();
        steps.judge("missed", || Ok(Verdict::Failed("p95 of 3 s".into())));
        assert_eq!(steps.count(), Count { passed: 0, failed: 1, skipped: 0, not_judged: 0 });
    }

    #[test]
    fn nothing_run_is_no_success() {
        assert_eq!(Steps::default().finish(), ExitCode::FAILURE);
        let mut steps = Steps::default();
        steps.run("good", || Ok(()));
        assert_eq!(steps.finish(), ExitCode::SUCCESS);
    }
}
