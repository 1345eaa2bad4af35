//! How the cores of one data server are divided between its data service and the application's software: what the
//! controller wants, what the nucleus has in force, and whether the server can lend. Time is an argument.
//!
//! A command is a wish: it is sent at once when it changes, again with every report until one shows it in force, and
//! then now and then, so that a nucleus that hears nothing any more knows that nobody is there.

use serde::Serialize;
use tidegate_wire::{Command, Gauge, Gauges, IsolationProblem};

/// A wish that is in force is told again after this long, nanoseconds.
const RENEWAL: u64 = 500_000_000;

/// How the cores of one data server are divided.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Division {
    /// Cores that application work is to have.
    pub wanted: u16,
    /// Cores that it has, as the nucleus says; `None`: cores are not divided.
    pub in_force: Option<u16>,
    /// For how long that has been so, seconds.
    pub age: Option<f64>,
    /// Why nothing is stolen from the server; `None`: it can lend.
    pub problem: Option<&'static str>,
    /// How often it became unable to lend.
    pub problems: u64,
    /// How often its nucleus could not divide the cores, since it started.
    pub failures: u64,
    /// How long the last move of the boundary took there, seconds.
    pub move_seconds: Option<f64>,
    /// Commands sent.
    pub commands: u64,
}

/// The same, as it comes about.
#[derive(Debug, Default)]
pub(super) struct Cores {
    wanted: Option<u16>,
    wanted_since: u64,
    /// What was sent last, and when.
    sent: Option<(u16, u64)>,
    /// A report came since.
    is_heard: bool,
    /// The nucleus divides cores; it has done so at least.
    divides: bool,
    in_force: Option<u16>,
    in_force_since: Option<u64>,
    trouble: Option<IsolationProblem>,
    failures: u64,
    move_seconds: Option<f64>,
    problem: Option<&'static str>,
    problems: u64,
    commands: u64,
}

impl Cores {
    /// The controller wants application work to have so many cores; `None`: it does not have them divided.
    pub(super) fn want(&mut self, now: u64, cores: Option<u32>) {
        let wanted = cores.map(|cores| u16::try_from(cores).unwrap_or(u16::MAX));
        if self.wanted != wanted {
            (self.wanted, self.wanted_since) = (wanted, now);
        }
    }

    /// Whether application work is to have cores, as far as was told.
    pub(super) fn is_wanted(&self) -> bool {
        self.wanted.is_some()
    }

    /// The nucleus reports.
    pub(super) fn hear(&mut self, now: u64, gauges: &Gauges) {
        self.is_heard = true;
        let in_force = gauges.get(Gauge::IsolatedCores).map(|cores| cores as u16);
        if in_force != self.in_force || self.in_force_since.is_none() {
            (self.in_force, self.in_force_since) = (in_force, Some(now));
        }
        let failures = gauges.get(Gauge::IsolationFailures);
        self.divides = failures.is_some();
        self.failures = failures.unwrap_or(0.0) as u64;
        self.trouble = gauges.get(Gauge::IsolationProblem).and_then(|code| IsolationProblem::of(code as u8));
        self.move_seconds = gauges.get(Gauge::IsolationMove);
    }

    /// Whether a command is to be sent now.
    pub(super) fn owes(&self, now: u64, silence: u64) -> bool {
        let Some(wanted) = self.wanted.filter(|_| self.divides) else { return false };
        match self.sent {
            Some((sent, at)) if sent == wanted => {
                let is_due = self.in_force != Some(wanted) || now - at >= RENEWAL.min(silence);
                self.is_heard && is_due
            }
            _ => true,
        }
    }

    /// The command to send, if one is owed.
    pub(super) fn command(&mut self, now: u64, silence: u64) -> Option<Command> {
        let cores = self.wanted.filter(|_| self.owes(now, silence))?;
        (self.sent, self.is_heard) = (Some((cores, now)), false);
        self.commands += 1;
        Some(Command { cores })
    }

    /// Whether the server can lend, if that changed. `speaks`: its nucleus is not silent.
    pub(super) fn judge(&mut self, now: u64, silence: u64, speaks: bool) -> Option<bool> {
        let before = self.problem;
        self.problem = self.wanted.filter(|_| self.divides).and_then(|wanted| {
            let lags = self.in_force != Some(wanted) && now - self.wanted_since > silence;
            match self.trouble {
                _ if !speaks => Some("silent"),
                Some(trouble) => Some(trouble.name()),
                None => lags.then_some("not-in-force"),
            }
        });
        self.problems += u64::from(before.is_none() && self.problem.is_some());
        (before.is_some() != self.problem.is_some()).then_some(self.problem.is_none())
    }

    /// As it was judged last.
    pub(super) fn can_lend(&self) -> bool {
        self.problem.is_none()
    }

    /// What people see; `None` where nobody wants cores divided.
    pub(super) fn show(&self, now: u64) -> Option<Division> {
        Some(Division {
            wanted: self.wanted?,
            in_force: self.in_force,
            age: self.in_force_since.map(|since| (now - since) as f64 * 1e-9),
            problem: self.problem,
            problems: self.problems,
            failures: self.failures,
            move_seconds: self.move_seconds,
            commands: self.commands,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const SILENCE: u64 = 300 * MS;

    fn report(in_force: Option<f64>, problem: Option<IsolationProblem>) -> Gauges {
        let mut gauges = Gauges::default();
        gauges.set(Gauge::IsolatedCores, in_force);
        gauges.set(Gauge::IsolationProblem, f64::from(problem.map_or(0, IsolationProblem::code)));
        gauges.set(Gauge::IsolationFailures, f64::from(u8::from(problem.is_some())));
        gauges
    }

    fn cores(cores: u16) -> Option<Command> {
        Some(Command { cores })
    }

    #[test]
    fn a_wish_is_sent_at_once_and_with_reports_until_it_is_in_force() {
        let mut division = Cores::default();
        division.hear(0, &report(None, None));
        assert_eq!(division.command(0, SILENCE), None, "nobody wants anything");
        division.want(MS, Some(2));
        assert_eq!(division.command(MS, SILENCE), cores(2), "at once");
        assert_eq!(division.command(2 * MS, SILENCE), None, "once");
        division.hear(100 * MS, &report(None, None));
        assert_eq!(division.command(100 * MS, SILENCE), cores(2), "it was lost");
        division.hear(200 * MS, &report(Some(2.0), None));
        assert_eq!(division.command(200 * MS, SILENCE), None, "it is in force");
        division.want(250 * MS, Some(1));
        assert_eq!(division.command(250 * MS, SILENCE), cores(1));
        division.hear(300 * MS, &report(Some(1.0), None));
        division.hear(700 * MS, &report(Some(1.0), None));
        assert_eq!(division.command(700 * MS, SILENCE), cores(1), "told again, so that it knows that we are here");
        let shown = division.show(800 * MS).expect("divided");
        assert_eq!((shown.wanted, shown.in_force, shown.age, shown.commands), (1, Some(1), Some(0.5), 4));
    }

    #[test]
    fn a_server_that_cannot_divide_cannot_lend() {
        let mut division = Cores::default();
        division.want(0, Some(1));
        division.hear(0, &report(None, Some(IsolationProblem::NoPermission)));
        assert_eq!(division.judge(0, SILENCE, true), Some(false));
        assert_eq!(division.judge(MS, SILENCE, true), None, "told once");
        assert_eq!(division.show(MS).expect("wanted").problem, Some("no-permission"));
        division.hear(MS, &report(Some(1.0), None));
        assert_eq!(division.judge(MS, SILENCE, true), Some(true));
        assert_eq!(division.judge(MS, SILENCE, false), Some(false), "its nucleus is silent");
        assert_eq!(division.show(MS).expect("wanted").problems, 2);
    }

    #[test]
    fn a_wish_that_is_not_fulfilled_in_time_is_a_problem() {
        let mut division = Cores::default();
        division.hear(0, &report(None, None));
        division.want(0, Some(1));
        assert_eq!(division.judge(SILENCE, SILENCE, true), None);
        assert_eq!(division.judge(SILENCE + 1, SILENCE, true), Some(false));
        assert_eq!(division.show(SILENCE).expect("wanted").problem, Some("not-in-force"));
        division.want(2 * SILENCE, None);
        assert_eq!(division.judge(2 * SILENCE, SILENCE, true), Some(true), "nobody wants it any more");
    }

    #[test]
    fn a_nucleus_that_does_not_divide_is_not_commanded_and_not_judged() {
        let mut division = Cores::default();
        division.want(0, Some(1));
        division.hear(0, &Gauges::default());
        assert_eq!((division.command(0, SILENCE), division.judge(SILENCE * 9, SILENCE, true)), (None, None));
    }
}
