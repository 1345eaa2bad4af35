//! The owner of a table: a process and its start time, stored in the name of an empty chain.

use std::fmt;
use std::path::Path;

/// A process, such that no later one with its number is taken for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    /// Process number of the owner.
    pub pid: u32,
    /// When it started: clock ticks since boot.
    pub started: u64,
}

const PREFIX: &str = "owner_";

impl Owner {
    /// This process; `None` without `/proc`.
    pub fn this() -> Option<Owner> {
        Owner::of(std::process::id())
    }

    /// Whether the owning process still runs.
    pub fn is_alive(&self) -> bool {
        // Without /proc nobody can be shown to be dead.
        !Path::new("/proc/self/stat").exists() || Owner::of(self.pid) == Some(*self)
    }

    /// The owner that a chain's name tells of.
    pub(crate) fn from_chain(name: &str) -> Option<Owner> {
        let (pid, started) = name.strip_prefix(PREFIX)?.split_once('_')?;
        Some(Owner { pid: pid.parse().ok()?, started: started.parse().ok()? })
    }

    fn of(pid: u32) -> Option<Owner> {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name in brackets may hold anything; the 22nd field is the 20th after it.
        let started = stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()?;
        Some(Owner { pid, started })
    }
}

impl fmt::Display for Owner {
    /// As a chain's name.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}{}_{}", self.pid, self.started)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_alive_and_its_name_leads_back() {
        let owner = Owner::this().expect("there is /proc");
        assert!(owner.is_alive());
        assert_eq!(Owner::from_chain(&owner.to_string()), Some(owner));
        assert!(!Owner { started: owner.started + 1, ..owner }.is_alive(), "another one with its number");
        assert_eq!(Owner::from_chain("police"), None);
    }
}
