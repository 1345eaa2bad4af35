//! Emulated servers: real HTTP over loopback, service modelled in timers.
//!
//! An [`EmulatedServer`] answers like a server with `k` cores under processor sharing or FIFO, but computes nothing:
//! when each request would be done is worked out in [`Cores`], and the answer waits for that instant. So a cluster of
//! dozens fits on two real cores and behaves the same on every machine that keeps up with the HTTP.
//!
//! [`LiveRun`] plays an arm of a scenario on them, through a real sentry; [`MailRun`] one on the mail service (a
//! program of its own), with users who wait for their answers; [`StealingRun`] one with a data server that is real;
//! [`ProvisionRun`] one with a control plane, whose servers and sentries come and go.
//! [`report`] writes down what came of it (or of a simulation).
//!
//! [`faults`] has the opposite: servers that break the protocol in one known way each, for tests.

mod apache;
mod cluster;
mod compute;
mod cores;
pub mod faults;
mod filler;
mod live;
mod machine;
mod mail;
mod memcached;
mod nuclei;
mod pinned;
mod ports;
mod process;
mod provision;
pub mod report;
mod serve;
mod server;
mod service;
mod spec;
mod stealing;

pub use apache::ApacheError;
pub use cluster::{EmulatedCluster, ThreadedCluster};
pub use cores::{Cores, Discipline, JobId, Stats};
pub use live::{LiveError, LiveRun};
pub use mail::{MailError, MailProgramError, MailRun};
pub use nuclei::{Nuclei, NucleiError};
pub use ports::{free_address, free_addresses};
pub use process::ProcessError;
pub use provision::{ProvisionRun, ProvisionRunError};
pub use server::{EmulatedServer, StartError};
pub use spec::{LookUps, Mode, Overflow, Resource, Route, ServerSpec, SpecError, Step};
pub use stealing::{StealingError, StealingRun};
