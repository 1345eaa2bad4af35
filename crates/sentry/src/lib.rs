//! tidegate's layer-7 proxy: it classifies, polices and dispatches the requests of an unmodified HTTP service, and
//! refuses early and cheaply what the service could not answer in time.
//!
//! # A request's path, file by file
//!
//! 1. `accept`: a connection is accepted, and read at once.
//!    What comes before requests is `doorstep`: PROXY headers (`proxy_protocol`), TLS handshakes (`tls`).
//! 2. `gate`: at each message boundary the next head is read in place (`gate/head.rs`); plain requests are policed
//!    and, when refused, answered right there (`gate/sift.rs`, `reject.rs`). Everything else goes to hyper unchanged.
//! 3. `serve`: the connection's task, with hyper in it while there is something to do. `http2`: the same for HTTP/2,
//!    where each request that is not refused at once has a task of its own.
//! 4. `proxy`: the request's way through the sentry, top to bottom: decision, queue, headers, server, answer.
//! 5. `permit`: the decision (classifier and engine), and what holds it: a permit in flight, a place in a queue.
//! 6. `headers`: what a hop must remove and add. `upstream`: connections to servers, sending, retry material.
//! 7. `body`: both bodies, counted and bounded. `tunnel`: what follows a `101`.
//! 8. `ending`: the outcome for the engine and the record for the log, once the last byte is flushed.
//!
//! Around it: `process` is the whole, `sentry` starts and stops the data path, `worker` is a worker thread, `share`
//! what a worker keeps per application, `app` and `in_force` what workers share, `timer` and `health` the application's
//! own tasks, `client` a connection's state and its deadlines, `reports` what nuclei beside the servers say, `control`
//! what a control plane is told and decides, `syn_policing` which new connections are let in, `monitor` who sees to
//! that in the kernel and measures what is on this machine, `board` what the admin API and metrics show of the process,
//! `shed` who gives way when something is short, `memory` how much clients may hold, `names` who looks names of servers
//! up, `ends` where proxies that ask tell of the ends of requests.

#![deny(clippy::print_stderr, clippy::print_stdout)]
#![deny(unsafe_code)]

mod accept;
mod access;
mod access_log;
mod acme;
pub mod admin;
mod answered;
pub mod app;
mod blame;
mod board;
mod body;
mod cancels;
mod client;
pub mod config;
mod control;
pub mod counters;
mod descriptors;
mod door;
mod doorstep;
mod ending;
mod ends;
mod event_ring;
#[cfg(feature = "faults")]
pub mod faults;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzz;
mod gate;
mod ghost;
mod grpc;
mod headers;
mod health;
mod heap;
mod history;
mod http2;
mod in_force;
pub mod listen;
mod memory;
mod metrics;
mod mirror;
mod monitor;
pub mod names;
mod need;
pub mod notify;
mod out;
mod pace;
pub mod peers;
mod permit;
mod plan;
mod process;
mod proxy;
mod proxy_protocol;
pub mod record;
mod reject;
mod reload;
mod repeats;
pub mod reports;
mod sentry;
mod serve;
mod share;
mod shed;
pub mod sockets;
mod spans;
mod spop;
mod supervise;
pub mod syn_policing;
mod timer;
mod times;
mod tls;
mod transport;
mod tunnel;
pub mod upgrade;
mod upload;
mod upstream;
mod watchdog;
mod worker;

#[cfg(test)]
#[path = "../../stage/tests/it/support/events.rs"]
mod events;

pub use access_log::AccessLog;
pub use app::{App, AppError};
pub use board::{Board, Notice, NoticeKind};
pub use config::Config;
pub use in_force::{InForce, Server};
pub use monitor::SynRequired;
pub use process::{Process, ProcessError};
pub use sentry::{ReloadError, Sentry, SentryHandle, Shutdown, StartError};
