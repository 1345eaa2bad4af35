//! A real sentry from outside, in one program.

mod cluster;
mod cost;
#[cfg(feature = "fuzzing")]
mod differential;
mod due;
mod faults;
mod hostile;
mod http2;
mod malformed;
mod meaning;
mod measurements;
mod operation;
mod pipelining;
mod relay;
mod reports;
mod resource;
mod shortage;
mod slow;
#[cfg(feature = "faults")]
mod supervision;
mod support;
#[cfg(feature = "otel")]
mod traces;
mod work;
