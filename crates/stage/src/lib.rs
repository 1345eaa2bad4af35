//! Services as graphs of stages that control their own admission.
//!
//! A service that takes all work that is offered falls behind under overload, and then all its answers come too late. A
//! limit on connections or threads does not help: nobody knows the right number, and it changes with what users ask
//! for. What an operator does know is how long an answer may take. So give each part of the service a *target*, let it
//! measure, and let it admit only as much as it can answer in time. The rest is told at once, with a time to come back.
//!
//! This is the staged event-driven architecture with adaptive admission control of Welsh and Culler ("Adaptive overload
//! control for busy Internet servers", 2003), on tokio. There are two ways to use it:
//!
//! - **One controller** around a service that exists: [`Admission`], or [`AdmissionLayer`] for axum, hyper, tonic and
//!   every other `tower` service.
//! - **A graph of stages**, each with its queue, its workers and its controller: [`GraphBuilder`]. Only the part that
//!   is overloaded refuses; the others go on.
//!
//! # A service of two stages
//!
//! ```
//! use std::time::Duration;
//! use tidegate_stage::{ClassId, Context, Event, GraphBuilder, Reply, Settings, each, each_blocking};
//!
//! struct Ask {
//!     words: String,
//!     reply: Reply<usize>,
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut graph = GraphBuilder::new("count").with_early_refusal(true);
//! let tidy = graph.stage::<Ask>("tidy", Settings::target(Duration::from_secs(1)));
//! let count = graph.stage::<Ask>("count", Settings::target(Duration::from_secs(1)).workers(2, 4));
//!
//! let to_count = graph.link(&tidy, &count);
//! graph.handle(&tidy, each(move |event: Event<Ask>, _: &Context| {
//!     let to_count = to_count.clone();
//!     async move {
//!         let event = event.map(|ask| Ask { words: ask.words.trim().to_owned(), ..ask });
//!         if let Err(refused) = to_count.try_send(event) {
//!             // The event is back in `refused.event`, and with it the right to answer. Dropped, the caller hears it.
//!             eprintln!("{refused}");
//!         }
//!     }
//! }));
//! graph.handle_blocking(&count, each_blocking(|event: Event<Ask>, _: &Context| {
//!     let ask = event.into_body();
//!     ask.reply.send(ask.words.split(' ').count());
//! }));
//!
//! let entry = graph.entry(&tidy);
//! let graph = graph.start()?;
//! let answer = entry.call(ClassId(0), |reply| Ask { words: " to be or not ".into(), reply }).await?;
//! assert_eq!(answer, 4);
//! println!("{}", graph.snapshot().to_json());
//! assert!(graph.drain(Duration::from_secs(5)).await.is_complete());
//! # Ok(())
//! # }
//! ```
//!
//! # What a stage does
//!
//! **It refuses.** A token bucket guards the queue. Every hundred events ([`Parameters::samples`]), or every second,
//! the controller compares the 90th percentile of response time with the target: over it, the rate is divided by 1.2;
//! well under it, the rate is raised a little. The response time of an event lasts from its *entry into the service* to
//! the end of this stage's processing, so targets grow along the graph. A refused event comes back to its sender in
//! [`Refused`], which says why, by which stage, and when to try again. The sender decides: tell the user, go elsewhere,
//! answer more cheaply, or wait. The rate begins at 100 events per second ([`Parameters::initial_rate`]) and stays
//! under 5,000 ([`Parameters::max_rate`]): raise both for fast stages.
//!
//! **It makes senders wait, if they want to.** [`WaitingSender`] and [`Entry::send`] wait until the event is taken,
//! first come, first served within a class, and what is kept for who waits cannot be snatched by who does not. A graph
//! in which stages could wait for each other in a circle is refused at construction ([`GraphError::Deadlock`]).
//!
//! **It knows classes.** An event carries a [`ClassId`], 0 being the most important. Each class has its own bucket and
//! target; when a class misses its target, less important ones lose their rate first.
//!
//! **It works in batches.** A worker takes as many events as its batch limit and its fair share of the queue allow. The
//! limit shrinks as long as throughput does not suffer. [`each`] hides batches; a [`Handler`] of your own can use them:
//! one write for many rows.
//!
//! **It has as many workers as it needs**, within [`Workers`]: tasks for asynchronous handlers, threads for blocking
//! ones. Events that wait all the time with no worker idle add workers; workers that idle long enough leave. Give a
//! stage that computes as many workers at most as it may use cores.
//!
//! **It survives its handler.** A panic costs the event in hand; it is counted, told to the [`NoticeSink`], and to
//! whoever waits for the answer ([`Lost::Panicked`]).
//!
//! **It degrades before it refuses**, if told to: with [`Parameters::quality`] a handler reads [`Context::quality`] and
//! answers more cheaply; at the least quality and still over the target, admission control goes on. A handler with a
//! rule of its own reads [`Context::percentile`] and calls [`Context::set_policing`].
//!
//! # Refusing before work is spent
//!
//! When the last of five stages refuses, the work of four is lost. With [`GraphBuilder::with_early_refusal`] a stage
//! that refuses what others have worked on asks the entries to refuse on its behalf: an entry takes the pressed stage's
//! token before it lets work in, so work that gets in is not refused there for its rate. Which work is meant? What
//! enters through [`GraphBuilder::entry_towards`] names its destination. What enters through a plain
//! [`GraphBuilder::entry`] is asked for only on behalf of stages to which at least nine tenths of it come, as measured.
//!
//! # Looking at it
//!
//! [`Graph::snapshot`] is everything as data: [`GraphSnapshot::to_json`], a drawing as [`GraphSnapshot::to_svg`], and
//! [`GraphSnapshot::to_dot`] and [`GraphSnapshot::to_mermaid`] for other tools. [`render_metrics`] is OpenMetrics text.
//! What stages *do* (a rate moves, refusing begins, a handler panics) goes to the log as `tracing` events, and to the
//! sink of [`GraphBuilder::with_sink`] as [`Notice`]s.
//!
//! # Stopping
//!
//! [`Graph::drain`] closes the entries, lets everything in the graph finish, and says what was left when the time was
//! over. Dropping the [`Graph`] stops it at once: keep it as long as the service runs.
//!
//! # Cost
//!
//! An event costs a short lock when it is sent, and a share of one more when its batch is taken; clocks are read once
//! per event or once per batch, and [`use_processor_clock`] makes that cheaper. Nothing is allocated per event.
//! `cargo bench -p tidegate-stage` compares with a bare channel.
//!
//! The repository's `docs/stages.md` has the settings and metrics as tables, and `crates/stage/examples` a service for
//! each of axum, hyper, tonic and plain stages.

#![deny(clippy::print_stderr, clippy::print_stdout)]
#![forbid(unsafe_code)]

mod admission;
mod batch;
mod batching;
mod builder;
mod clock;
mod context;
mod draw;
mod error;
mod event;
mod gate;
mod graph;
mod handler;
mod layer;
mod member;
mod metrics;
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

/// The page's examples are compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/stages.md")]
struct StagesPage;

pub use admission::{Admission, AdmissionSnapshot, Overloaded, Permit};
pub use batch::Batch;
pub use builder::{GraphBuilder, StageKey};
pub use clock::use_processor_clock;
pub use context::Context;
pub use error::GraphError;
pub use event::Event;
pub use graph::{Drained, Graph};
pub use handler::{BlockingHandler, Each, EachBlocking, Handler, each, each_blocking};
pub use layer::{
    AdmissionError, AdmissionLayer, Admitted, AdmittedFuture, AllFirst, AnswerWith, AtResponse, Classify, End, Fail,
    Refuse,
};
#[cfg(feature = "http")]
pub use layer::{AtBodyEnd, HeldBody};
pub use metrics::{METRICS_CONTENT_TYPE, render_metrics};
pub use notice::{Notice, NoticeSink, What};
pub use refused::{RefusalReason, Refused};
pub use reply::{Answer, Lost, Reply, reply};
pub use sender::{CallError, Entry, Sender, WaitingSender};
pub use settings::{BatchBounds, Settings, SettingsError, Workers};
pub use snapshot::{ClassSnapshot, GraphSnapshot, LinkSnapshot, StageSnapshot};
pub use tidegate_engine::seda::{Parameters, QualityParameters};
pub use tidegate_engine::{ClassId, Seconds};
