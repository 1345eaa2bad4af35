//! A run in steps, for one of several sentries or applications: what `site.rs` does to it between two steps.

use tidegate_engine::{LoadReport, ServerId, Setup, SetupError, Snapshot, Status, Timestamp};

use super::Run;
use crate::model::FaultKind;
use crate::park::Usage;

/// Streams of random numbers for the costs seen by further sentries: far from those for arrivals and users.
pub(super) const LANES: u64 = 1 << 48;

/// Which arrivals are this sentry's: every one, or each `of`-th. Names point to the sentries in turn.
#[derive(Clone, Debug)]
pub(super) struct Part {
    index: u32,
    of: u32,
    /// Per stream, whose turn is next.
    turns: Vec<u32>,
}

impl Part {
    pub(super) fn new(streams: usize) -> Part {
        Part { index: 0, of: 1, turns: vec![0; streams] }
    }

    /// Whether the next arrival of a stream is this sentry's.
    pub(super) fn takes(&mut self, stream: usize) -> bool {
        if self.of == 1 && self.index == 0 {
            return true;
        }
        let turn = &mut self.turns[stream];
        let own = *turn == self.index;
        *turn = if *turn + 1 >= self.of { 0 } else { *turn + 1 };
        own
    }
}

impl Run<'_> {
    /// Plans everything, so that it can be played in steps.
    pub(crate) fn begin(&mut self) {
        self.plan_all();
    }

    /// Everything before `until`.
    pub(crate) fn play_until(&mut self, until: Timestamp) {
        while self.plans.peek().is_some_and(|at| at < until) {
            let Some((now, happening)) = self.plans.next() else { return };
            self.report.happenings += 1;
            self.happen(now, happening);
            self.follow_up(now);
        }
    }

    /// From now on it is sentry `index` of `of`; beyond them, it takes nothing.
    pub(crate) fn take_part(&mut self, index: u32, of: u32) {
        let streams = self.clients.part.turns.len();
        self.clients.part = Part { index, of, turns: vec![0; streams] };
    }

    /// A server serves this sentry from now on.
    pub(crate) fn switch_on(&mut self, now: Timestamp, server: usize, cold: bool) {
        self.park.switch_on(now, server as u32, cold, &mut self.plans);
        self.tell(now, server, Status::Up);
    }

    /// A server that drains takes requests again.
    pub(crate) fn resume(&mut self, now: Timestamp, server: usize) {
        self.tell(now, server, Status::Up);
    }

    /// A server gets nothing new.
    pub(crate) fn drain(&mut self, now: Timestamp, server: usize) {
        self.tell(now, server, Status::Draining);
    }

    /// A server is gone, with whatever it still has.
    pub(crate) fn switch_off(&mut self, now: Timestamp, server: usize) {
        self.park.fault(now, server as u32, FaultKind::Stop, &mut self.plans);
        self.collect(now);
        self.tell(now, server, Status::Down);
    }

    /// Whether a server has nothing in flight.
    pub(crate) fn is_idle(&self, server: usize) -> bool {
        self.sentries.first().controller.servers()[server].in_flight == 0
    }

    /// More capacity will be there then, or none is on its way.
    pub(crate) fn expect_capacity(&mut self, now: Timestamp, soonest: Option<Timestamp>) {
        self.sentries.report(now, None, LoadReport::Coming(soonest));
        self.follow_up(now);
    }

    /// The setup in force.
    pub(crate) fn setup(&self) -> &Setup {
        self.sentries.first().controller.setup()
    }

    /// Another setup.
    pub(crate) fn reconfigure(&mut self, now: Timestamp, setup: Setup) -> Result<(), SetupError> {
        self.sentries.first_mut().controller.reconfigure(now, setup)?;
        self.follow_up(now);
        Ok(())
    }

    /// What the controller knows, what the servers did, and the seconds for which the sentry's CPU was in use.
    pub(crate) fn measure(&mut self, now: Timestamp) -> (Snapshot, Vec<Usage>, f64) {
        let worked = self.sentries.first_mut().desk.as_mut().map_or(0.0, |desk| desk.worked_until(now));
        (self.sentries.first().controller.snapshot(now), self.park.usage(now), worked)
    }

    fn tell(&mut self, now: Timestamp, server: usize, status: Status) {
        self.sentries.handle_server(now, ServerId(server as u16), status);
        self.follow_up(now);
    }
}
