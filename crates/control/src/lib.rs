//! The control plane: as many servers as the offered load needs, and which sentry has which.
//!
//! | file | question |
//! |---|---|
//! | `config.rs` | what an operator says |
//! | `plane.rs` | what is decided: pure, made again from its journal |
//! | `backend.rs`, `backend/` | what survives a kill -9, and which of several control planes leads |
//! | `kubernetes.rs` | calls to a cluster's API server that end in bounded time (feature `kubernetes`) |
//! | `member.rs` | one of them: it waits, leads, and waits again |
//! | `provider.rs`, `provider/` | who starts and stops servers |
//! | `desk.rs` | who the sentries are, and what they say |
//! | `link.rs` | their connections |
//! | `daemon.rs` | how it all comes together, in one order |
//! | `names.rs`, `names/` | sentries by DNS |
//! | `admin.rs` | what is shown |
//! | `worker.rs` | a thread that moves bytes beside the daemon |
//! | `clock.rs` | what time it is |

#![deny(clippy::print_stderr, clippy::print_stdout)]
#![forbid(unsafe_code)]

pub mod admin;
pub mod backend;
mod clock;
pub mod config;
pub mod daemon;
pub mod desk;
#[cfg(feature = "kubernetes")]
pub mod kubernetes;
mod link;
mod member;
pub mod names;
pub mod plane;
pub mod provider;
#[cfg(feature = "kubernetes")]
mod worker;

pub use clock::wall;
pub use config::{Config, ConfigError};
pub use daemon::{DaemonError, Handle, Question};
pub use member::Member;
