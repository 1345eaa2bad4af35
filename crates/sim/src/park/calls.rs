//! Calls to services that have a sentry of their own: it is asked before they have a place anywhere.

use tidegate_engine::Timestamp;

use super::jobs::{Job, Owner};
use super::{Ending, Park, Plans};

/// No sentry let the call in.
pub(crate) const NOBODY: u32 = u32::MAX;

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

/// A call that was let in has had the processors, for the first time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Computed {
    pub(crate) call: u32,
    /// For how long it needed them, seconds.
    pub(crate) work: f64,
}

impl Park<'_> {
    /// From now on all services are asked about calls.
    pub(crate) fn ask_all(&mut self) {
        self.asks_all = true;
    }

    /// The next call that has had the processors.
    pub(crate) fn next_computed(&mut self) -> Option<Computed> {
        self.computed.pop_front()
    }

    /// A request at its server is a call, too.
    pub(crate) fn is_call(&mut self, job: u32, call: u32) {
        self.jobs[job as usize].call = call;
    }

    /// The server of a tier that the next call goes to, as if there were no sentry.
    pub(crate) fn choose_of(&mut self, tier: u16) -> Option<usize> {
        let server = self.choose(usize::from(tier))?;
        Some((server - self.tiers[usize::from(tier)].first) as usize)
    }

    /// The next call that is at a service with a sentry.
    pub(crate) fn next_asking(&mut self) -> Option<Asking> {
        self.asking.pop_front()
    }

    /// The next call that was let in and is over.
    pub(crate) fn next_answered(&mut self) -> Option<Answered> {
        self.answered.pop_front()
    }

    /// The service that makes a call: 0 is the first, others are the tiers from 1 on.
    pub(crate) fn service_of(&self, asking: Asking) -> usize {
        let server = self.jobs[asking.chain as usize].server;
        self.tiers.iter().take_while(|tier| tier.first <= server).count()
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
