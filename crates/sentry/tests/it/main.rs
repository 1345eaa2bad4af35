//! A real sentry from outside, in one program.

mod answers;
mod cluster;
mod cost;
#[cfg(feature = "fuzzing")]
mod differential;
mod due;
mod faults;
mod hostile;
mod http2;
mod http2_servers;
mod malformed;
mod meaning;
mod measurements;
mod operation;
mod pipelining;
mod proxy_protocol;
mod relay;
mod reports;
mod resource;
mod shortage;
mod slow;
#[cfg(feature = "faults")]
mod supervision;
mod support;
mod tenants;
mod tls;
#[cfg(feature = "otel")]
mod traces;
mod work;
