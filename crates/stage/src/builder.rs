//! Declares a graph: its stages, what they do, and where they send.

mod check;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use tokio::runtime::Handle;

use crate::context::Context;
use crate::graph::{Graph, Part};
use crate::handler::{BlockingHandler, Handler};
use crate::notice::{NoticeSink, Reporter};
use crate::sender::{Entry, Sender, WaitingSender};
use crate::settings::{Settings, SettingsError};
use crate::shared::Shared;
use crate::stage::{Stage, as_member};
use crate::worker;

/// Most stages that a graph may have.
const MOST_STAGES: usize = 64;

/// Names a stage of a graph that is being built; its events have bodies of type `T`.
pub struct StageKey<T> {
    stage: Arc<Stage<T>>,
}

impl<T> Clone for StageKey<T> {
    fn clone(&self) -> Self {
        StageKey { stage: self.stage.clone() }
    }
}

/// Why a graph was not built. Each names the stage.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum GraphError {
    /// A stage's settings are out of range.
    #[error("stage \"{stage}\": {error}")]
    Settings {
        /// Name of the stage.
        stage: String,
        /// The mistake in its settings.
        error: SettingsError,
    },
    /// Two stages of one name.
    #[error("stage \"{stage}\" is there twice; give each stage a name of its own")]
    DuplicateName {
        /// Name of the stage.
        stage: String,
    },
    /// A stage that nothing works on.
    #[error("stage \"{stage}\" has no handler; give it one with `handle` or `handle_blocking`")]
    NoHandler {
        /// Name of the stage.
        stage: String,
    },
    /// A stage with two handlers.
    #[error("stage \"{stage}\" has two handlers; give it one")]
    TwoHandlers {
        /// Name of the stage.
        stage: String,
    },
    /// Stages that may wait for each other for ever: each waits for room in the next one's queue, and none makes any.
    #[error(
        "stages {} can wait for each other for ever; make one of these links refuse (`link`, not `waiting_link`)",
        shown(stages)
    )]
    Deadlock {
        /// The stages on the cycle, in the direction of sending.
        stages: Vec<String>,
    },
    /// A key that another graph's builder made.
    #[error("stage \"{stage}\" belongs to another graph")]
    ForeignStage {
        /// Name of the stage.
        stage: String,
    },
    /// More stages than a graph may have.
    #[error("stage \"{stage}\" is one too many; a graph has at most 64 stages")]
    TooManyStages {
        /// The first stage over the limit.
        stage: String,
    },
    /// A worker of a blocking stage has no thread.
    #[error("stage \"{stage}\": the system gives no thread for a worker: {problem}")]
    NoThread {
        /// Name of the stage.
        stage: String,
        /// What the system says.
        problem: String,
    },
    /// Built outside of a runtime.
    #[error("graph \"{graph}\" was started outside of a tokio runtime; start it in an async function")]
    NoRuntime {
        /// Name of the graph.
        graph: String,
    },
}

fn shown(stages: &[String]) -> String {
    let names: Vec<_> = stages.iter().chain(stages.first()).map(|name| format!("\"{name}\"")).collect();
    names.join(" -> ")
}

/// Builds a [`Graph`]. The first mistake is told by [`GraphBuilder::start`].
pub struct GraphBuilder {
    name: String,
    shared: Arc<Shared>,
    sink: Option<Arc<dyn NoticeSink>>,
    look_every: Duration,
    parts: Vec<Part>,
    mistake: Option<GraphError>,
}

impl GraphBuilder {
    /// A graph without stages.
    pub fn new(name: impl Into<String>) -> Self {
        let shared = Arc::new(Shared::default());
        let look_every = Duration::from_millis(50);
        GraphBuilder { name: name.into(), shared, sink: None, look_every, parts: Vec::new(), mistake: None }
    }

    /// Sends what stages do (rates that change, refusals that begin, panics) to `sink`. For stages declared after it.
    #[must_use]
    pub fn with_sink(mut self, sink: impl NoticeSink) -> Self {
        self.sink = Some(Arc::new(sink));
        self
    }

    /// Refuse work at the entry when a later stage would refuse it, before anything is spent on it. Off by default.
    #[must_use]
    pub fn with_early_refusal(self, on: bool) -> Self {
        self.shared.set_refuse_early(on);
        self
    }

    /// How often workers and batches are adjusted while there is work. 50 ms by default, at least 1 ms.
    #[must_use]
    pub fn with_look_every(mut self, period: Duration) -> Self {
        self.look_every = period.max(Duration::from_millis(1));
        self
    }

    /// Declares a stage whose events have bodies of type `T`.
    pub fn stage<T: Send + 'static>(&mut self, name: impl Into<String>, settings: Settings) -> StageKey<T> {
        let name = name.into();
        if self.parts.iter().any(|part| part.name == name) {
            self.note(GraphError::DuplicateName { stage: name.clone() });
        }
        if self.parts.len() >= MOST_STAGES {
            self.note(GraphError::TooManyStages { stage: name.clone() });
        }
        let index = self.parts.len().min(MOST_STAGES - 1) as u8;
        let stage = self.make_stage(index, &name, settings);
        self.parts.push(Part {
            name,
            member: as_member(&stage),
            spawn: None,
            links: Vec::new(),
            always: Arc::new(AtomicU64::new(0)),
            is_entry: false,
            workers_min: stage.settings.workers.min,
        });
        StageKey { stage }
    }

    /// What the stage does with its events, as tasks.
    pub fn handle<T: Send + 'static>(&mut self, key: &StageKey<T>, handler: impl Handler<T>) {
        let (stage, context, handler) = (key.stage.clone(), self.context(key), Arc::new(handler));
        let spawn = move |runtime: &Handle| {
            worker::spawn(runtime, stage.clone(), handler.clone(), context.clone());
            Ok(())
        };
        self.set_handler(key, Box::new(spawn));
    }

    /// What the stage does with its events, on threads of its own, where it may block.
    pub fn handle_blocking<T: Send + 'static>(&mut self, key: &StageKey<T>, handler: impl BlockingHandler<T>) {
        let (stage, context, handler) = (key.stage.clone(), self.context(key), Arc::new(handler));
        let spawn =
            move |runtime: &Handle| worker::spawn_blocking(runtime, stage.clone(), handler.clone(), context.clone());
        self.set_handler(key, Box::new(spawn));
    }

    /// Declares that `from` sends to `to`, and never waits for it: what `to` does not take comes back.
    pub fn link<F, T>(&mut self, from: &StageKey<F>, to: &StageKey<T>) -> Sender<T> {
        self.add_link(from, to, false);
        Sender { stage: to.stage.clone() }
    }

    /// Declares that `from` sends to `to`, and may wait until `to` takes it.
    pub fn waiting_link<F, T>(&mut self, from: &StageKey<F>, to: &StageKey<T>) -> WaitingSender<T> {
        self.add_link(from, to, true);
        WaitingSender { sender: Sender { stage: to.stage.clone() } }
    }

    /// Work enters the service at `stage`.
    pub fn entry<T>(&mut self, stage: &StageKey<T>) -> Entry<T> {
        let always = match self.position(stage) {
            Some(at) => {
                self.parts[at].is_entry = true;
                self.parts[at].always.clone()
            }
            None => Arc::default(),
        };
        Entry { stage: stage.stage.clone(), always, route: 0 }
    }

    /// Work enters the service at `stage`, and goes to `destination` in the end. With early refusal, work for a pressed
    /// destination is refused at the entry, and no other.
    pub fn entry_towards<T, D>(&mut self, stage: &StageKey<T>, destination: &StageKey<D>) -> Entry<T> {
        let route = self.position(destination).map_or(0, |at| 1 << at);
        Entry { route, ..self.entry(stage) }
    }

    /// Starts the graph's workers on the present runtime.
    ///
    /// # Errors
    /// [`GraphError`] with the first mistake in the declarations.
    pub fn start(mut self) -> Result<Graph, GraphError> {
        check::check(&self.parts).unwrap_or_else(|error| self.note(error));
        if let Some(mistake) = self.mistake {
            return Err(mistake);
        }
        let Ok(runtime) = Handle::try_current() else { return Err(GraphError::NoRuntime { graph: self.name }) };
        Graph::start(self.name, self.shared, self.parts, self.look_every, &runtime, self.sink)
    }

    /// A stage with these settings, or with the defaults when they are wrong: the mistake is told at the start.
    fn make_stage<T>(&mut self, index: u8, name: &str, settings: Settings) -> Arc<Stage<T>> {
        let reporter = Reporter { stage: name.into(), sink: self.sink.clone() };
        let stage = Stage::new(index, settings, reporter.clone(), self.shared.clone()).or_else(|error| {
            self.note(GraphError::Settings { stage: name.to_owned(), error });
            Stage::new(index, Settings::default(), reporter, self.shared.clone())
        });
        Arc::new(stage.expect("the default settings hold"))
    }

    fn context<T: Send + 'static>(&self, key: &StageKey<T>) -> Context {
        Context::new(key.stage.reporter.stage.clone(), key.stage.published.clone(), key.stage.clone())
    }

    fn set_handler<T>(&mut self, key: &StageKey<T>, spawn: crate::graph::Spawn) {
        let Some(at) = self.position(key) else { return };
        if self.parts[at].spawn.replace(spawn).is_some() {
            self.note(GraphError::TwoHandlers { stage: key.stage.reporter.stage.to_string() });
        }
    }

    fn add_link<F, T>(&mut self, from: &StageKey<F>, to: &StageKey<T>, waits: bool) {
        let (Some(from), Some(to)) = (self.position(from), self.position(to)) else { return };
        self.parts[from].links.push((to, waits));
    }

    /// The stage's position in this graph; a stage of another graph is a mistake.
    fn position<T>(&mut self, key: &StageKey<T>) -> Option<usize> {
        if Arc::ptr_eq(&key.stage.shared, &self.shared) {
            return Some(usize::from(key.stage.index));
        }
        self.note(GraphError::ForeignStage { stage: key.stage.reporter.stage.to_string() });
        None
    }

    fn note(&mut self, mistake: GraphError) {
        self.mistake.get_or_insert(mistake);
    }
}
