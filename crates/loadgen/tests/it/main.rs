//! The load generator from outside, in one program.

mod grpc;
mod http2;
mod support;
mod tls;
mod users;
