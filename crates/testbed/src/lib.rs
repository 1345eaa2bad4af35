//! Emulated servers: real HTTP, versions 1.1 and 2, and gRPC over loopback, service modelled in timers.
//!
//! An [`EmulatedServer`] answers like a server with `k` cores under processor sharing or FIFO, but computes nothing:
//! when each request would be done is worked out in [`Cores`], and the answer waits for that instant. So a cluster of
//! dozens fits on two real cores and behaves the same on every machine that keeps up with the HTTP.
//!
//! [`faults`] has the opposite: servers that break the protocol in one known way each, for tests. [`Nuclei`] are the
//! real agents beside emulated servers; [`Process`] is a program that ends with its owner.

#![deny(clippy::print_stderr, clippy::print_stdout)]
#![forbid(unsafe_code)]

mod cluster;
mod compute;
mod cores;
pub mod faults;
mod filler;
mod grpc;
mod held;
mod machine;
mod memcached;
mod nuclei;
mod pinned;
mod ports;
mod process;
mod serve;
mod server;
mod service;
mod spec;

pub use cluster::{EmulatedCluster, ThreadedCluster};
pub use cores::{Cores, JobId, Stats};
pub use memcached::{Client as MemcachedClient, scatter};
pub use nuclei::{Nuclei, NucleiError, STATUS_PATH};
pub use pinned::pinned;
pub use ports::{free_address, free_addresses};
pub use process::{PATIENCE, PAUSE, Process, ProcessError};
pub use server::{EmulatedServer, StartError};
pub use spec::{Lasts, LastsAs, LookUps, Mode, Overflow, Resource, Route, ServerSpec, SpecError, Step};
