//! The agent beside a server: it measures the server by the cheapest sources Linux has and reports to the sentries,
//! some times a second, in one datagram each. The stream is also the heartbeat. `docs/nucleus.md` says what is
//! measured, from where, and at what cost.
//!
//! `sampler` asks every `source/` once and makes a [`Sample`]; `post` sends it to each sentry, which `names` finds, and
//! hears their challenges and commands; `isolation` divides cores as they say; `nucleus` is the loop around both. All
//! files are read below a root path, so tests give it trees of their own.

#![deny(clippy::print_stderr, clippy::print_stdout)]
#![deny(unsafe_code)]

mod config;
mod isolation;
mod lean;
mod names;
mod netlink;
mod nucleus;
mod post;
mod queue;
mod sample;
mod sampler;
mod source;
mod status;
mod workers;

#[cfg(test)]
#[path = "../../stage/tests/it/support/events.rs"]
mod events;

pub use config::{Config, ConfigError, Given, Service};
pub use isolation::{GivenIsolation, IsolationConfig, Method, Side};
pub use nucleus::{Nucleus, StartError};
pub use sample::Sample;
pub use sampler::Sampler;
pub use source::memory::memory_limit;
