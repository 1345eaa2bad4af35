//! A real sentry from outside, in one program.

mod cluster;
mod cost;
#[cfg(feature = "fuzzing")]
mod differential;
mod due;
mod faults;
mod malformed;
mod meaning;
mod operation;
mod pipelining;
mod relay;
mod reports;
mod resource;
mod support;
#[cfg(feature = "otel")]
mod traces;
mod work;
