//! What can be wrong with the declarations of a graph.

use crate::settings::SettingsError;

/// Why a graph was not built. Each names the stage.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum GraphError {
    /// A stage's settings are out of range.
    #[error("stage \"{stage}\": {error}")]
    Settings {
        /// The stage.
        stage: String,
        /// What is wrong.
        error: SettingsError,
    },
    /// Two stages of one name.
    #[error("stage \"{stage}\" is there twice; give each stage a name of its own")]
    DuplicateName {
        /// The name.
        stage: String,
    },
    /// A stage that nothing works on.
    #[error("stage \"{stage}\" has no handler; give it one with `handle` or `handle_blocking`")]
    NoHandler {
        /// The stage.
        stage: String,
    },
    /// A stage with two handlers.
    #[error("stage \"{stage}\" has two handlers; give it one")]
    TwoHandlers {
        /// The stage.
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
        /// The stage.
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
        /// The stage.
        stage: String,
        /// What the system says.
        problem: String,
    },
    /// Built outside of a runtime.
    #[error("graph \"{graph}\" was started outside of a tokio runtime; start it in an async function")]
    NoRuntime {
        /// The graph.
        graph: String,
    },
}

fn shown(stages: &[String]) -> String {
    let names: Vec<_> = stages.iter().chain(stages.first()).map(|name| format!("\"{name}\"")).collect();
    names.join(" -> ")
}
