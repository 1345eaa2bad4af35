//! Reasons why a nucleus cannot divide its server's cores, as a table: number on the wire, name in output.

use thiserror::Error;

/// Why cores are not divided as the sentry wants it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Error)]
pub enum IsolationProblem {
    /// The nucleus may not move these processes.
    #[error("the nucleus may not move these processes between cores; run it as root or with CAP_SYS_NICE")]
    NoPermission,
    /// There is no process of the data service.
    #[error("no process of the data service was found; see `data` under [isolation]")]
    NoDataService,
    /// There is no process of the application's software.
    #[error("no process of the application's software was found; see `application` under [isolation]")]
    NoApplication,
    /// One side would be left without a core.
    #[error("the data service would be left without a core")]
    NoCoreLeft,
    /// The kernel does not let these processes onto those cores, or there is no cpuset to do it with.
    #[error("the kernel does not take it: a cpuset without these cores, or no cpuset where one was asked for")]
    Refused,
    /// The masks before could not be written down, so nothing was changed.
    #[error("the state file cannot be written, so masks could not be put back later; nothing was changed")]
    NoStateFile,
}

impl IsolationProblem {
    /// Every problem, in the order of their numbers.
    pub const ALL: [IsolationProblem; 6] = [
        IsolationProblem::NoPermission,
        IsolationProblem::NoDataService,
        IsolationProblem::NoApplication,
        IsolationProblem::NoCoreLeft,
        IsolationProblem::Refused,
        IsolationProblem::NoStateFile,
    ];

    /// Its number on the wire, from 1; never used again for something else.
    pub const fn code(self) -> u8 {
        self as u8 + 1
    }

    /// The problem of a number; `None` for 0 and for one of a later program.
    pub fn of(code: u8) -> Option<IsolationProblem> {
        IsolationProblem::ALL.into_iter().find(|problem| problem.code() == code)
    }

    /// Its name in metrics and output.
    pub const fn name(self) -> &'static str {
        match self {
            IsolationProblem::NoPermission => "no-permission",
            IsolationProblem::NoDataService => "no-data-service",
            IsolationProblem::NoApplication => "no-application",
            IsolationProblem::NoCoreLeft => "no-core-left",
            IsolationProblem::Refused => "refused",
            IsolationProblem::NoStateFile => "no-state-file",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_and_names_are_unique_and_lead_back() {
        let mut names = IsolationProblem::ALL.map(IsolationProblem::name).to_vec();
        for problem in IsolationProblem::ALL {
            assert_eq!(IsolationProblem::of(problem.code()), Some(problem));
        }
        names.sort_unstable();
        names.dedup();
        assert_eq!((names.len(), IsolationProblem::of(0), IsolationProblem::of(200)), (6, None, None));
    }
}
