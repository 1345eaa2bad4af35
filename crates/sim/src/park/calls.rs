//! Calls to services that have a sentry of their own: it is asked before they have a place anywhere.

use tidegate_engine::Timestamp;

use super::jobs::{Job, Owner};
use super::{Ending, Park, Plans};

/// No sentry let the call in.
pub(super) const NOBODY: u32 = u32::MAX;

/// A call that is at its service.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asking {
    /// Which tier the service is.
    pub(crate) tier: u16,
    /// Whose call, and which of its calls.
    pub(crate) chain: u32,
    pub(crate) number: u32,
}

/// A call that was let in is over.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answered {
    /// Its number, as it was given.
    pub(crate) call: u32,
    pub(crate) ending: Ending,
}

impl Park<'_> {
    /// The next call that is at a service with a sentry.
    pub(crate) fn next_asking(&mut self) -> Option<Asking> {
        self.asking.pop_front()
    }

    /// The next call that was let in and is over.
    pub(crate) fn next_answered(&mut self) -> Option<Answered> {
        self.answered.pop_front()
    }

    /// Which request a call is made for, and what kind of call it is: calls of one step of one program are alike.
    /// `None`: nobody waits for it, as the server that called is gone.
    pub(crate) fn made_for(&self, asking: Asking) -> Option<(u32, u64)> {
        let Job { task, step, dead, mut owner, .. } = self.jobs[asking.chain as usize];
        let kind = (1 << 40) | (u64::from(task.program) << 16) | u64::from(step);
        loop {
            match owner {
                _ if dead => return None,
                Owner::Request(request) => return Some((request, kind)),
                Owner::Job(above) if self.jobs[above as usize].dead => return None,
                Owner::Job(above) => owner = self.jobs[above as usize].owner,
            }
        }
    }

    /// A call that was let in, as `call`, goes to one of its tier's servers. `false`: that does not take it.
    pub(crate) fn let_in(
        &mut self,
        now: Timestamp,
        asking: Asking,
        server: usize,
        call: u32,
        plans: &mut Plans,
    ) -> bool {
        let target = self.number(Some(usize::from(asking.tier)), server);
        let Some(job) = self.begin_call(now, asking.chain, asking.number, target, plans) else { return false };
        self.jobs[job as usize].call = call;
        true
    }

    /// A call that is not let in.
    pub(crate) fn turn_away(&mut self, now: Timestamp, asking: Asking, ending: Ending, plans: &mut Plans) {
        self.child_ended(now, asking.chain, ending, plans);
    }
}
