//! A running graph: looking at it, draining it, stopping it.

mod govern;

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::runtime::Handle;

use crate::clock;
use crate::error::GraphError;
use crate::member::Member;
use crate::notice::{NoticeSink, Reporter, What};
use crate::shared::{Phase, Shared};
use crate::snapshot::{GraphSnapshot, LinkSnapshot};

/// Starts one worker of a stage.
pub(crate) type Spawn = Box<dyn Fn(&Handle) -> std::io::Result<()> + Send + Sync>;

/// A stage as its graph holds it.
pub(crate) struct Part {
    pub(crate) name: String,
    pub(crate) member: Arc<dyn Member>,
    pub(crate) spawn: Option<Spawn>,
    /// Where it sends, and whether it may wait there.
    pub(crate) links: Vec<(usize, bool)>,
    /// For an entry: the stages that nearly everything from here comes to; see `govern`.
    pub(crate) always: Arc<AtomicU64>,
    pub(crate) is_entry: bool,
    pub(crate) workers_min: usize,
}

/// A running graph. Dropping it stops it at once; [`Graph::drain`] finishes what it has first.
pub struct Graph {
    name: String,
    shared: Arc<Shared>,
    parts: Arc<Vec<Part>>,
    reporter: Reporter,
}

/// How a drain ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
#[non_exhaustive]
pub struct Drained {
    /// Stages that had not finished when the time was over, with the number of events that waited or were worked on.
    pub left: Vec<(String, usize)>,
}

impl Drained {
    /// Whether everything was finished.
    pub fn is_complete(&self) -> bool {
        self.left.is_empty()
    }
}

impl Graph {
    pub(crate) fn start(
        name: String,
        shared: Arc<Shared>,
        parts: Vec<Part>,
        look_every: Duration,
        runtime: &Handle,
        sink: Option<Arc<dyn NoticeSink>>,
    ) -> Result<Graph, GraphError> {
        // A builder starts once, so neither was set before.
        let _ = shared.runtime.set(runtime.clone());
        let members = parts.iter().map(|part| Arc::downgrade(&part.member) as Weak<dyn Member>).collect();
        let _ = shared.members.set(members);
        shared.advance(Phase::Running);
        let reporter = Reporter { stage: name.as_str().into(), sink };
        let graph = Graph { name, shared, parts: Arc::new(parts), reporter };
        for part in graph.parts.iter() {
            let spawn = part.spawn.as_ref().ok_or_else(|| GraphError::NoHandler { stage: part.name.clone() })?;
            for _ in 0..part.workers_min {
                let no_thread = |error: std::io::Error| GraphError::NoThread {
                    stage: part.name.clone(),
                    problem: error.to_string(),
                };
                spawn(runtime).map_err(no_thread)?;
            }
        }
        runtime.spawn(govern::govern(graph.shared.clone(), graph.parts.clone(), look_every, runtime.clone()));
        Ok(graph)
    }

    /// Takes no more work at the entries, finishes what is in the graph, and stops it; gives up after `patience`.
    ///
    /// What stages hold back (a task that a handler spawned) is not seen. A handler that still runs when the time is
    /// over is not interrupted; events that wait then are dropped, and who waits for their answer hears
    /// [`crate::Lost`].
    pub async fn drain(&self, patience: Duration) -> Drained {
        if self.shared.advance(Phase::Draining) {
            self.reporter.report(clock::now(), What::Draining);
        }
        self.shared.changed.notify_waiters();
        let left = match tokio::time::timeout(patience, self.until_quiet()).await {
            Ok(()) => Vec::new(),
            Err(_) => {
                let pending = self.parts.iter().map(|part| (part.name.clone(), part.member.pending()));
                pending.filter(|(_, count)| *count > 0).collect()
            }
        };
        self.stop();
        Drained { left }
    }

    /// Stops now: events that wait are dropped, workers end with what they have in hand.
    pub fn stop(&self) {
        if !self.shared.advance(Phase::Stopped) {
            return;
        }
        self.shared.changed.notify_waiters();
        self.shared.stirred.notify_one();
        for part in self.parts.iter() {
            part.member.stop();
        }
        self.reporter.report(clock::now(), What::Stopped);
    }

    /// Switches early refusal on or off; see [`crate::GraphBuilder::with_early_refusal`].
    pub fn set_early_refusal(&self, on: bool) {
        self.shared.set_refuse_early(on);
        if !on {
            (0..self.parts.len()).for_each(|index| self.shared.relieve(index as u8));
        }
    }

    /// The graph as it is now.
    pub fn snapshot(&self) -> GraphSnapshot {
        let stages = self.parts.iter().map(|part| {
            let link = |&(to, waits): &(usize, bool)| LinkSnapshot { to: self.parts[to].name.clone(), waits };
            let mut stage = part.member.snapshot();
            stage.is_entry = part.is_entry;
            stage.sends_to = part.links.iter().map(link).collect();
            stage
        });
        let phase = match self.shared.phase() {
            Phase::Building | Phase::Running => "running",
            Phase::Draining => "draining",
            Phase::Stopped => "stopped",
        };
        let refuses_early = self.shared.refuses_early();
        GraphSnapshot { name: self.name.clone(), phase, refuses_early, stages: stages.collect() }
    }

    /// Nothing waits and nobody works, seen twice with nothing taken in between: so no event was on its way.
    async fn until_quiet(&self) {
        loop {
            let quiet = self.shared.quiet.notified();
            if let (Some(first), Some(second)) = (self.quiet_total(), self.quiet_total())
                && first == second
            {
                return;
            }
            quiet.await;
        }
    }

    /// Events taken so far, if all stages are quiet.
    fn quiet_total(&self) -> Option<u64> {
        self.parts
            .iter()
            .map(|part| part.member.is_quiet())
            .try_fold(0, |total, (is_quiet, admitted)| is_quiet.then_some(total + admitted))
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        self.stop();
    }
}
