//! HTTP/1.1, HTTP/2 and gRPC load, open loop; and users in a closed loop.
//!
//! Open loop: requests are sent when the plan says so, whether or not the ones before were answered, as many
//! independent users would. Latencies count from the *scheduled* instant, so neither a slow server nor a late generator
//! can hide waiting time (no coordinated omission).
//!
//! A [`Plan`] is a list of [`Stream`]s. [`LoadRun::start`] runs it on a thread of its own; [`LoadRun::progress`] shows
//! it live; [`LoadRun::join`] or [`LoadRun::wait`] give the [`Report`]. Pacing is by a Linux timerfd (tens of
//! microseconds late when the machine is idle); arrivals that are due together leave together.
//!
//! Closed loop, where the question is about users who wait: a [`UsersFile`] tells what they ask for, in which order,
//! and how they take a refusal; [`LoadRun::start_users`] lets them begin.
//!
//! ```no_run
//! use std::time::Duration;
//! use tidegate_loadgen::{LoadRun, Plan, Stream};
//!
//! let gold = Stream::new("gold", "0s:20/s, 10s:200/s".parse()?).url("http://127.0.0.1:8080/buy", 1.0)?;
//! let mut plan = Plan::new(vec![gold], Duration::from_secs(30));
//! plan.target = Some(Duration::from_millis(500));
//! let report = LoadRun::start(plan)?.join()?;
//! println!("{report}");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | question | file |
//! |---|---|
//! | what is sent | `plan.rs`, `script.rs` |
//! | the thread and its handle | `run.rs` |
//! | when each request leaves | `generator.rs`, `timer.rs` |
//! | what clients speak, with TLS or without | `protocol.rs`, `client.rs`, `tls.rs`, `dial.rs`, `grpc.rs` |
//! | over which connection, and what came back | `exchange.rs`, `http1.rs`, `http2.rs`, `http2/`, `answer.rs` |
//! | what is counted | `record.rs`, `report.rs`, `progress.rs`, `table.rs` |
//! | users who wait for their answers | `users.rs`, `users/` |
//! | how much a service holds | `capacity.rs`, `capacity/` |
//! | whether the generator kept up | `health.rs` |

#![deny(clippy::print_stderr, clippy::print_stdout)]
#![deny(unsafe_code)]

mod answer;
pub mod capacity;
mod client;
mod dial;
mod exchange;
mod generator;
pub mod grpc;
mod health;
mod http1;
mod http2;
mod limits;
mod plan;
mod progress;
mod protocol;
mod record;
mod report;
mod retries;
mod run;
mod script;
mod table;
pub mod timer;
mod tls;
mod users;

pub use limits::raise_open_files_limit;
pub use plan::{Plan, PlanError, Stream, TENANT};
pub use progress::{ClassProgress, Progress, Recent};
pub use protocol::Protocol;
pub use report::{ClassReport, ErrorKind, GeneratorReport, NotSent, Quantiles, Report, Second};
pub use run::{LoadError, LoadRun, Stopper};
pub use script::{Script, ScriptedRequest};
pub use tls::{TlsError, Trust};
pub use users::{Active, Capture, RequestTemplate, UsersError, UsersFile, UsersPlan, UsersReport};
