//! Stages.

mod batch;
mod batching;
mod builder;
mod clock;
mod context;
mod event;
mod gate;
mod graph;
mod handler;
mod notice;
mod refused;
mod reply;
mod sender;
mod settings;
mod shared;
mod snapshot;
mod stage;
mod tag;
mod worker;

pub use batch::Batch;
pub use builder::{GraphBuilder, GraphError, StageKey};
pub use context::Context;
pub use event::Event;
pub use graph::{Drained, Graph};
pub use handler::{BlockingHandler, Each, EachBlocking, Handler, each, each_blocking};
pub use notice::{Notice, NoticeSink, What};
pub use refused::{RefusalReason, Refused};
pub use reply::{Answer, Lost, Reply, reply};
pub use sender::{CallError, Entry, Sender, WaitingSender};
pub use settings::{BatchBounds, Settings, SettingsError, Workers};
pub use snapshot::{ClassSnapshot, GraphSnapshot, LinkSnapshot, StageSnapshot};
pub use tidegate_engine::seda::{Parameters, QualityParameters};
pub use tidegate_engine::{ClassId, Seconds};
