//! Workloads: offered load over time, arrival processes and service times.
//!
//! Shared by the simulator, the load generator and the emulated servers, so that one scenario means the same to
//! all of them. No clock and no hidden randomness: whoever draws passes a seed or a generator, and equal seeds give
//! equal numbers on every machine. Files are read only where a caller names one: traces, measured values.
//!
//! | question | answer |
//! |---|---|
//! | how many per second, when? | [`Profile`], made of [`Rate`]s |
//! | at which instants exactly? | [`ArrivalProcess`], [`Arrivals`] |
//! | how much work is each? | [`ServiceTime`], a [`Distribution`] of seconds |
//! | in which order is it done? | [`Discipline`] |
//! | what do Web users ask for? | [`Surge`] |
//! | what was asked of a real service? | [`trace::TraceReader`], [`trace::Playback`] |
//! | who waits for answers, and tries again? | [`Users`], [`Retry`], [`Sessions`] |
//! | whose requests are they, and what becomes of those whose client left? | [`Tenants`], [`Abandoned`] |
//! | what came of a stream of requests? | [`Course`], [`Responses`] |
//!
//! ```
//! use tidegate_workload::{ArrivalProcess, Profile, ServiceTime, rng};
//!
//! let profile: Profile = "0s:20/s, 10s..15s:->200/s, 60s:end".parse()?;
//! let service = ServiceTime::lognormal(0.016, 2.0)?;
//! let mut sizes = rng(7, 1);
//! for arrival in ArrivalProcess::Poisson.arrivals(&profile, 7, 0).take(3) {
//!     println!("at {arrival:?}: {:.1} ms of work", service.sample(&mut sizes) * 1e3);
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![deny(clippy::print_stderr, clippy::print_stdout)]
#![forbid(unsafe_code)]

mod abandoned;
mod arrivals;
mod clients;
mod course;
mod discipline;
mod distribution;
pub mod fit;
mod intern;
mod profile;
mod seconds;
mod service;
mod sessions;
mod surge;
mod tenants;
mod text;
pub mod time;
pub mod trace;

pub use abandoned::Abandoned;
pub use arrivals::{ArrivalProcess, Arrivals, Mmpp, MmppState, ProcessError};
pub use clients::{Retry, Users, Wait};
pub use course::{Course, Responses, Row, Second};
pub use discipline::Discipline;
pub use distribution::{Distribution, DistributionConfig, DistributionError, Empirical};
pub use profile::{Profile, ProfileBuilder, ProfileError};
pub use seconds::{Seconds, parse_duration};
pub use service::{ServiceTime, ServiceTimeConfig, ServiceTimeError};
pub use sessions::Sessions;
pub use surge::{Asked, Page, Surge, SurgeError, SurgePage, SurgePages, SurgeRequest, SurgeRequests};
pub use tenants::{MOST_TENANTS, TenantDraw, Tenants};
pub use text::{Cursor, ParseError, Rate};

/// The generator used throughout: small, fast, and its sequence for a seed is part of its definition.
pub type Rng = rand::rngs::Xoshiro256PlusPlus;

/// A generator for one named use of a seed.
///
/// Streams of one run must not share a sequence, or the arrivals of class 1 would depend on how many requests class 2
/// has. `stream` separates them: the same seed and stream always give the same generator.
pub fn rng(seed: u64, stream: u64) -> Rng {
    use rand::SeedableRng;
    Rng::seed_from_u64(seed ^ stream.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

/// A uniform number in `[0, 1)`.
pub fn uniform(rng: &mut Rng) -> f64 {
    use rand::RngExt;
    rng.random()
}
