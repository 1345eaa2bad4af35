//! Measurements: judged only when nobody disturbed the machine, and repeated a stated number of times otherwise.
//!
//! A run that was disturbed says nothing, whether it passed or missed its bound. One that was not is final. A fault
//! that no disturbance excuses, such as a panic, is final at once. Who waits for a machine that does not become calm
//! loses patience: after [`UNCALM`] measurements without a judgement the next are run once only, and not at all when
//! the machine does not hold still for a moment before them, until a long one is undisturbed.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;

use super::telling;
use crate::steps::Verdict;
use crate::watch::{SAID, Watch};

/// How often a measurement is run at most.
const RUNS: u32 = 3;

/// After so many measurements that were not judged, the next are run once, and only on a machine that holds still.
const UNCALM: u32 = 3;
/// For so long at once, in one of so many tries.
const MOMENT: Duration = Duration::from_secs(1);
const MOMENTS: u32 = 3;
/// A machine that held still for so long is calm again. A moment says little.
const CALM: Duration = Duration::from_secs(10);

/// Runs measurements one after the other, and knows how calm the machine was.
#[derive(Debug, Default)]
pub struct Judge {
    /// Measurements that could not be judged since the machine was calm.
    unjudged: u32,
}

/// How one run of a measurement ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Run {
    /// Within all bounds.
    Held,
    /// Beyond a bound.
    Missed,
    /// Something that a disturbance does not excuse.
    Broke,
}

impl Judge {
    /// Runs a measurement until a run was not disturbed, [`RUNS`] times at most. `run` gives how it ended and all that
    /// it printed.
    ///
    /// # Errors
    /// When a run cannot be made, or the machine cannot be watched.
    pub fn judge(&mut self, mut run: impl FnMut() -> Result<(Run, String)>) -> Result<Verdict> {
        let mut last = String::new();
        let run = || {
            let watch = Watch::start()?;
            let (end, said) = run()?;
            let seen = watch.finish()?;
            let disturbance = said_disturbance(&said).or_else(|| (!seen.is_calm()).then(|| seen.to_string()));
            last = said;
            Ok((end, disturbance))
        };
        let verdict = self.judge_with(run, || restless(MOMENTS))?;
        Ok(match verdict {
            Verdict::Failed(why) => Verdict::Failed(format!("{why}\n{}", telling::lines(&last))),
            other => other,
        })
    }

    /// `restless` says what disturbs the machine just now, if anything does.
    fn judge_with(
        &mut self,
        run: impl FnMut() -> Result<(Run, Option<String>)>,
        restless: impl FnOnce() -> Result<Option<String>>,
    ) -> Result<Verdict> {
        let is_patient = self.unjudged < UNCALM;
        if !is_patient && let Some(what) = restless()? {
            println!("not run: {what}");
            return Ok(Verdict::NotJudged(format!("not run: {what}")));
        }
        let began = Instant::now();
        let verdict = judge_with(run, if is_patient { RUNS } else { 1 })?;
        self.note(&verdict, began.elapsed());
        Ok(verdict)
    }

    fn note(&mut self, verdict: &Verdict, took: Duration) {
        match verdict {
            Verdict::NotJudged(_) => self.unjudged += 1,
            _ if took >= CALM => self.unjudged = 0,
            _ => {}
        }
    }
}

fn judge_with(mut run: impl FnMut() -> Result<(Run, Option<String>)>, runs: u32) -> Result<Verdict> {
    let mut disturbances = Vec::new();
    for number in 1..=runs {
        let (end, disturbance) = run()?;
        let how = match (&end, disturbance) {
            (Run::Broke, _) => return Ok(Verdict::Failed("it broke".into())),
            (Run::Held, None) => return Ok(Verdict::Held),
            (Run::Missed, None) => return Ok(Verdict::Failed("it missed a bound, undisturbed".into())),
            (Run::Held, Some(what)) => format!("held, but {what}"),
            (Run::Missed, Some(what)) => format!("missed, but {what}"),
        };
        println!("disturbed, run {number} of {runs}: {how}");
        disturbances.push(how);
    }
    Ok(Verdict::NotJudged(disturbances.join("; ")))
}

/// What disturbs the machine while nothing of ours runs, if that is so in each of `tries` moments.
fn restless(tries: u32) -> Result<Option<String>> {
    let mut seen = None;
    for _ in 0..tries {
        let watch = Watch::start()?;
        thread::sleep(MOMENT);
        let disturbance = watch.finish()?;
        if disturbance.is_calm() {
            return Ok(None);
        }
        seen = Some(format!("while nothing was measured, {disturbance}"));
    }
    Ok(seen)
}

/// What a measurement itself saw.
fn said_disturbance(said: &str) -> Option<String> {
    said.lines().find_map(|line| line.trim_start().strip_prefix(SAID)).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The verdict on runs that end so, and how many of them were made.
    fn verdict(runs: &[(Run, Option<&str>)]) -> (Verdict, usize) {
        let mut made = 0;
        let verdict = judge_with(
            || {
                let (end, disturbance) = runs[made].clone();
                made += 1;
                Ok((end, disturbance.map(str::to_owned)))
            },
            RUNS,
        );
        (verdict.unwrap(), made)
    }

    #[test]
    fn an_undisturbed_run_is_final() {
        assert_eq!(verdict(&[(Run::Held, None)]), (Verdict::Held, 1));
        let (failed, made) = verdict(&[(Run::Missed, None)]);
        assert!(matches!(failed, Verdict::Failed(_)) && made == 1);
    }

    #[test]
    fn a_disturbed_run_says_nothing_either_way() {
        let (busy, missed) = (Some("others took a core"), (Run::Missed, Some("late")));
        assert_eq!(verdict(&[missed.clone(), (Run::Held, None)]), (Verdict::Held, 2));
        let (failed, made) = verdict(&[(Run::Held, busy), missed.clone(), (Run::Missed, None)]);
        assert!(matches!(failed, Verdict::Failed(_)) && made == 3);
        let (open, made) = verdict(&[(Run::Held, busy), missed.clone(), missed]);
        let Verdict::NotJudged(why) = open else { panic!("{open:?}") };
        assert!(made == 3 && why.contains("held, but others took a core") && why.contains("missed, but late"), "{why}");
    }

    #[test]
    fn a_machine_that_never_holds_still_is_not_waited_for_again_and_again() {
        let mut judge = Judge::default();
        // Whether it is calm during the measurement, and before it.
        let mut made = |is_calm: bool, is_still: bool| {
            let mut made = 0;
            let what = |is_calm: bool| (!is_calm).then(|| "a neighbour".to_owned());
            let run = || {
                made += 1;
                Ok((Run::Held, what(is_calm)))
            };
            let verdict = judge.judge_with(run, || Ok(what(is_still))).unwrap();
            (matches!(verdict, Verdict::Held), made)
        };
        assert_eq!([(); 3].map(|()| made(false, false)), [(false, 3); 3], "it waits for nothing at first");
        assert_eq!([made(true, false), made(false, true)], [(false, 0), (false, 1)], "who is restless is left alone");
        assert_eq!([made(true, true), made(false, true)], [(true, 1), (false, 1)], "a moment says little");
        judge.note(&Verdict::Held, CALM);
        assert_eq!(judge.unjudged, 0, "it is patient again");
    }

    #[test]
    fn a_disturbance_does_not_excuse_what_broke() {
        let (failed, made) = verdict(&[(Run::Broke, Some("others took a core"))]);
        assert!(matches!(failed, Verdict::Failed(_)) && made == 1);
    }

    #[test]
    fn what_a_measurement_says_is_found_among_other_lines() {
        assert_eq!(
            said_disturbance("a\n  disturbed: the generator was late\nb"),
            Some("the generator was late".into())
        );
        assert_eq!(said_disturbance("nothing was disturbed: all is well"), None);
    }
}
