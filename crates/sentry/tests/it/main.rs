//! A real sentry from outside, in one program.

mod answers;
mod asked;
mod below;
mod cluster;
mod cost;
#[cfg(feature = "fuzzing")]
mod differential;
mod doors;
mod due;
mod ext_proc;
mod faults;
mod grpc;
mod health;
mod hostile;
mod http2;
mod http2_hostile;
mod http2_servers;
mod malformed;
mod meaning;
mod measurements;
mod mirror;
mod names;
mod operation;
mod peers;
mod pipelining;
mod proxy_protocol;
mod relay;
mod reports;
mod resource;
mod routing;
mod scaler;
mod shortage;
mod slow;
mod spop;
#[cfg(feature = "faults")]
mod supervision;
mod support;
mod tenants;
mod tls;
#[cfg(feature = "otel")]
mod traces;
mod work;
