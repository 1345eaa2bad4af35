//! A list of steps that are run, timed, counted and summed up.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Result;

/// The steps run so far and how they ended.
#[derive(Debug, Default)]
pub struct Steps {
    done: Vec<Step>,
    remarks: Vec<String>,
}

#[derive(Debug)]
struct Step {
    name: String,
    end: End,
}

#[derive(Debug)]
enum End {
    Passed(Duration),
    Failed(Duration),
    Skipped(String),
}

impl Steps {
    /// Runs one step; a failure is printed and counted, and the next steps still run.
    pub fn run(&mut self, name: &str, step: impl FnOnce() -> Result<()>) {
        println!("── {name}");
        let start = Instant::now();
        let result = step();
        let took = start.elapsed();
        let end = match result {
            Ok(()) => End::Passed(took),
            Err(error) => {
                println!("{name} failed: {error:#}");
                End::Failed(took)
            }
        };
        println!("── {}", line(name, &end));
        self.done.push(Step { name: name.to_owned(), end });
    }

    /// Runs a step until it passes, so many times at most; the summary says if it took more than one.
    pub fn run_until(&mut self, tries: u32, name: &str, step: impl Fn() -> Result<()>) {
        let mut failures = 0;
        self.run(name, || {
            loop {
                match step() {
                    Err(error) if failures + 1 < tries => {
                        failures += 1;
                        println!("{name} failed: {error:#}; once more");
                    }
                    end => break end,
                }
            }
        });
        if failures > 0 {
            self.remark(format!("{name} ran {} times: the last time counts", failures + 1));
        }
    }

    /// Something that the summary should say besides.
    pub fn remark(&mut self, remark: String) {
        self.remarks.push(remark);
    }

    /// Records a step that cannot run here, and says why.
    pub fn skip(&mut self, name: &str, because: &str) {
        println!("skipped: {name} because {because}");
        self.done.push(Step { name: name.to_owned(), end: End::Skipped(because.to_owned()) });
    }

    /// Prints every step with its time; the last line is `N passed, N failed`. Fails when any step did, or none ran.
    pub fn finish(self) -> ExitCode {
        println!("\nsummary");
        for step in &self.done {
            println!("  {}", line(&step.name, &step.end));
        }
        for remark in &self.remarks {
            println!("  remark: {remark}");
        }
        let (passed, failed, skipped) = self.count();
        if skipped > 0 {
            println!("{skipped} skipped");
        }
        println!("{passed} passed, {failed} failed");
        if failed == 0 && passed > 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }

    fn count(&self) -> (usize, usize, usize) {
        let of = |wanted: fn(&End) -> bool| self.done.iter().filter(|step| wanted(&step.end)).count();
        (
            of(|end| matches!(end, End::Passed(_))),
            of(|end| matches!(end, End::Failed(_))),
            of(|end| matches!(end, End::Skipped(_))),
        )
    }
}

fn line(name: &str, end: &End) -> String {
    match end {
        End::Passed(took) => format!("passed   {:>7.1} s  {name}", took.as_secs_f64()),
        End::Failed(took) => format!("FAILED   {:>7.1} s  {name}", took.as_secs_f64()),
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
        assert_eq!(steps.count(), (2, 1, 1));
        assert_eq!(steps.finish(), ExitCode::FAILURE);
    }

    #[test]
    fn a_step_that_may_be_tried_again_is_and_only_so_often() {
        let mut steps = Steps::default();
        let runs = std::cell::Cell::new(0);
        let passes_at = |run: u32| {
            runs.set(0);
            let runs = &runs;
            move || {
                runs.set(runs.get() + 1);
                anyhow::ensure!(runs.get() >= run, "by chance");
                Ok(())
            }
        };
        steps.run_until(3, "at once", passes_at(1));
        assert_eq!((runs.get(), steps.remarks.len()), (1, 0));
        steps.run_until(3, "at last", passes_at(3));
        assert_eq!(
            (runs.get(), steps.remarks.as_slice()),
            (3, &["at last ran 3 times: the last time counts".into()][..])
        );
        steps.run_until(3, "never", passes_at(9));
        assert_eq!((runs.get(), steps.count()), (3, (2, 1, 0)));
    }

    #[test]
    fn nothing_run_is_no_success() {
        assert_eq!(Steps::default().finish(), ExitCode::FAILURE);
        let mut steps = Steps::default();
        steps.run("good", || Ok(()));
        assert_eq!(steps.finish(), ExitCode::SUCCESS);
    }
}
