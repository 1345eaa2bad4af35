//! Servers and sentries as processes on this machine, started from a command template.
//!
//! *Intuition.* A process outlives the daemon: it has a group of its own, and nothing of the daemon's. Starting looks
//! first whether the step's process is there already; stopping means that nothing of the place's earlier steps is left.
//! So every step can be done again.
//!
//! *Awkward cases.* A process that does not end when asked is killed. What a process started itself is found by the
//! inherited mark, and goes with it. One that a killed daemon left behind is not this one's child: that it has ended is
//! seen from /proc; children of this daemon are waited for, or they would stay as zombies. A sentry that
//! is upgraded goes on in another process, which has inherited the mark.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::check::answers;
use super::process::{Found, find, mark, running, signal, variable};
use super::{Presence, Provider, ProviderError};
use crate::config::Local;
use crate::plane::{Process, Step, Unit, What};

/// How often one that is to end is looked at.
const LOOK: Duration = Duration::from_millis(20);
/// One that was killed is gone after this, or cannot be.
const KILLED: Duration = Duration::from_secs(5);

/// The provider.
#[derive(Debug)]
pub(super) struct Processes {
    config: Local,
    store: u64,
    children: Mutex<HashMap<u32, Child>>,
}

impl Processes {
    pub(super) fn new(config: Local, store: u64) -> Result<Processes, ProviderError> {
        if let Some(log) = &config.log {
            let failed = |source| ProviderError::System { what: log.display().to_string(), source };
            fs::create_dir_all(log).map_err(failed)?;
        }
        Ok(Processes { config, store, children: Mutex::default() })
    }

    fn start(&self, step: &Step, application: usize, known: Option<Process>) -> Result<Process, ProviderError> {
        let there = self.there(step.place, known)?;
        if let Some(same) = there.iter().find(|process| process.step == step.number && process.leads()) {
            return Ok(Process { pid: same.pid, started: same.started, step: step.number });
        }
        if there.iter().any(|process| process.step > step.number) {
            return Err(ProviderError::Superseded { step: step.number });
        }
        self.end(&there)?;
        let child = self.spawn(step, application)?;
        let pid = child.id();
        self.children().insert(pid, child);
        let started = running(pid).map_or(0, |process| process.started);
        Ok(Process { pid, started, step: step.number })
    }

    fn spawn(&self, step: &Step, application: usize) -> Result<Child, ProviderError> {
        let Local { unit, applications, .. } = &self.config;
        let address = self.config.addresses[step.place];
        let (place, application) = (step.place.to_string(), applications[application].as_str());
        let fill = |text: &String| {
            let text = text.replace("{port}", &address.port().to_string()).replace("{server}", &place);
            text.replace("{application}", application).replace("{address}", &address.ip().to_string())
        };
        let words: Vec<String> = self.config.command.iter().map(fill).collect();
        let (program, arguments) = words.split_first().expect("a command has a program: the configuration was checked");
        let (out, errors) = self.output(step.place)?;
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::null()).stdout(out).stderr(errors);
        command.env(variable(*unit), mark(self.store, step.place, step.number)).process_group(0);
        if let Some(name) = self.name(step.place) {
            command.env("TIDEGATE_NAME", name).env("TIDEGATE_ADDRESS", address.ip().to_string());
            command.env("TIDEGATE_APPLICATION", application);
        }
        let table = table(*unit);
        command.spawn().map_err(|source| ProviderError::Start { program: program.clone(), source, table })
    }

    fn output(&self, place: usize) -> Result<(Stdio, Stdio), ProviderError> {
        let Some(folder) = &self.config.log else { return Ok((Stdio::null(), Stdio::null())) };
        let path = folder.join(format!("{}-{place}.log", self.config.unit));
        let failed = |source| ProviderError::System { what: path.display().to_string(), source };
        let file: File = OpenOptions::new().create(true).append(true).open(&path).map_err(failed)?;
        let same = file.try_clone().map_err(failed)?;
        Ok((file.into(), same.into()))
    }

    /// Everything that runs at a place: by the mark, and by what is on record.
    fn there(&self, place: usize, known: Option<Process>) -> Result<Vec<Found>, ProviderError> {
        let mut there = find(self.store, self.config.unit, place)?;
        let recorded = known.and_then(|known| running(known.pid).filter(|now| now.started == known.started));
        if let (Some(known), Some(now)) = (known, recorded)
            && there.iter().all(|process| process.pid != now.pid)
        {
            there.push(Found { step: known.step, ..now });
        }
        Ok(there)
    }

    fn end(&self, processes: &[Found]) -> Result<(), ProviderError> {
        signal(processes, Signal::TERM);
        if self.wait(processes, self.config.stop_grace).is_none() {
            return Ok(());
        }
        signal(processes, Signal::KILL);
        self.wait(processes, KILLED).map_or(Ok(()), |pid| Err(ProviderError::Stop { pid }))
    }

    /// Waits until all have ended; one that has not, after `patience`.
    fn wait(&self, processes: &[Found], patience: Duration) -> Option<u32> {
        let deadline = Instant::now() + patience;
        loop {
            let left = processes.iter().find(|process| self.is_running(process.pid, process.started))?;
            if Instant::now() >= deadline {
                return Some(left.pid);
            }
            std::thread::sleep(LOOK);
        }
    }

    fn is_running(&self, pid: u32, started: u64) -> bool {
        let mut children = self.children();
        if let Some(child) = children.get_mut(&pid)
            && matches!(child.try_wait(), Ok(Some(_)))
        {
            children.remove(&pid);
        }
        drop(children);
        running(pid).is_some_and(|now| now.started == started)
    }

    /// Whether a sentry goes on in another process.
    fn goes_on(&self, place: usize, known: Process) -> bool {
        let goes_on = |found: Vec<Found>| found.iter().any(|process| process.step == known.step);
        // Where that cannot be seen, it is not taken for gone.
        self.config.unit == Unit::Sentry && find(self.store, self.config.unit, place).map_or(true, goes_on)
    }

    fn children(&self) -> std::sync::MutexGuard<'_, HashMap<u32, Child>> {
        self.children.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Where the configuration has a unit's provider.
fn table(unit: Unit) -> &'static str {
    match unit {
        Unit::Server => "[provider]",
        Unit::Sentry => "[sentries.provider]",
    }
}

impl Provider for Processes {
    fn apply(&self, step: &Step, known: Option<Process>) -> Result<Option<Process>, ProviderError> {
        match step.what {
            What::Start { application } => self.start(step, application, known).map(Some),
            What::Stop => {
                let mut there = self.there(step.place, known)?;
                // A later step's is not this one's to stop.
                there.retain(|process| process.step < step.number);
                self.end(&there).map(|()| None)
            }
        }
    }

    fn look(&self, place: usize, known: Option<Process>) -> Presence {
        let Some(known) = known else { return Presence::Absent };
        if !self.is_running(known.pid, known.started) && !self.goes_on(place, known) {
            return Presence::Absent;
        }
        match answers(&self.config.addresses[place].to_string(), self.config.check.path.as_deref()) {
            true => Presence::Serving,
            false => Presence::Silent,
        }
    }

    fn name(&self, post: usize) -> Option<String> {
        (self.config.unit == Unit::Sentry).then(|| format!("sentry-{}", self.config.addresses[post].ip()))
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;
    use crate::config::Check;

    fn provider(store: u64, script: &str) -> Processes {
        let config = Local {
            command: ["sh", "-c", script].map(String::from).to_vec(),
            unit: Unit::Server,
            addresses: (1..=4).map(|port| (Ipv4Addr::LOCALHOST, port).into()).collect(),
            applications: vec![String::from("shop")],
            check: Check { path: None, hung_after: Duration::from_secs(30) },
            stop_grace: Duration::from_millis(200),
            log: None,
        };
        Processes::new(config, store).expect("a provider")
    }

    fn step(number: u64, what: What) -> Step {
        Step { number, unit: Unit::Server, place: 2, what }
    }

    const START: What = What::Start { application: 0 };

    fn store(test: u64) -> u64 {
        u64::from(std::process::id()) << 32 | test
    }

    #[test]
    fn a_step_is_never_carried_out_twice() {
        let one = provider(store(1), "exec sleep 100");
        let process = one.apply(&step(1, START), None).expect("starts").expect("a process");
        assert_eq!(one.apply(&step(1, START), None).expect("is there"), Some(process));
        // As a daemon that was killed before it could write anything down: nothing on record.
        let other = provider(store(1), "exec sleep 100");
        assert_eq!(other.apply(&step(1, START), None).expect("is found"), Some(process));
        assert_eq!(other.look(2, Some(process)), Presence::Silent, "sleep does not listen");
        assert_eq!(find(store(1), Unit::Server, 2).expect("/proc").len(), 1);
        // The same step of another store is another.
        assert_eq!(find(store(99), Unit::Server, 2).expect("/proc"), []);
        other.apply(&step(2, What::Stop), Some(process)).expect("stops");
        other.apply(&step(2, What::Stop), Some(process)).expect("stops nothing");
        assert_eq!(
            (one.look(2, Some(process)), find(store(1), Unit::Server, 2).expect("/proc").len()),
            (Presence::Absent, 0)
        );
    }

    #[test]
    fn what_does_not_end_is_killed_and_children_go_with_it() {
        let provider = provider(store(2), "trap '' TERM; sleep 100 & while :; do sleep 1; done");
        let process = provider.apply(&step(1, START), None).expect("starts").expect("a process");
        let deadline = Instant::now() + Duration::from_secs(60);
        while find(store(2), Unit::Server, 2).expect("/proc").len() < 2 {
            assert!(Instant::now() < deadline, "it starts another");
            std::thread::park_timeout(Duration::from_millis(10));
        }
        provider.apply(&step(2, What::Stop), None).expect("stops");
        assert_eq!(find(store(2), Unit::Server, 2).expect("/proc"), []);
        assert_eq!(provider.look(2, Some(process)), Presence::Absent);
    }

    #[test]
    fn a_later_start_replaces_an_earlier_one_and_is_not_stopped_by_an_earlier_stop() {
        let provider = provider(store(3), "exec sleep 100");
        let first = provider.apply(&step(1, START), None).expect("starts").expect("a process");
        let second = provider.apply(&step(3, START), Some(first)).expect("starts").expect("a process");
        assert_eq!(provider.look(2, Some(first)), Presence::Absent);
        provider.apply(&step(2, What::Stop), Some(second)).expect("nothing to stop");
        // As one does that stood still, and does not know that another control plane has gone on since.
        let late = provider.apply(&step(1, START), Some(first)).expect_err("is late");
        assert!(matches!(late, ProviderError::Superseded { step: 1 }), "{late}");
        assert_eq!(find(store(3), Unit::Server, 2).expect("/proc").len(), 1);
        provider.apply(&step(4, What::Stop), Some(second)).expect("stops");
        assert_eq!(find(store(3), Unit::Server, 2).expect("/proc"), []);
    }

    #[test]
    fn a_program_that_is_not_there_is_an_error() {
        let mut provider = provider(store(4), "");
        provider.config.command = vec![String::from("no-such-program")];
        let error = provider.apply(&step(1, START), None).expect_err("fails").to_string();
        assert!(error.contains("\"no-such-program\"") && error.contains("[provider]"), "{error}");
    }
}
