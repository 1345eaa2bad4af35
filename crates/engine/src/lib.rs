//! tidegate's decisions, and nothing else.
//!
//! One [`Controller`] per application takes arrivals and reports in, and gives decisions and actions out. Its lock-free
//! part, the [`Policer`], is shared by all workers. Neither reads a clock, does I/O or hides randomness: time is an
//! argument, and equal inputs with an equal seed give equal outputs. So the same compiled policies run in the sentry,
//! in process and in the simulator, and a policy never knows which.
//!
//! The grammar: `handle_*` takes input and answers only about its own argument; anything about another request is
//! polled (`poll_*`); getters are pure.
//!
//! ```
//! use core::time::Duration;
//! use tidegate_engine::*;
//!
//! let sla = Sla::constant(Statistic::P95, Duration::from_millis(500)).unwrap();
//! let setup = Setup::simple("shop", sla, [ServerSetup::new("one")]);
//! let mut controller = Controller::new(setup, 1, 7, Box::new(NoEvents)).unwrap();
//!
//! let arrived = Timestamp::ZERO;
//! match controller.handle_arrival(arrived, Request::default()) {
//!     Decision::Admit { ticket, .. } => {
//!         controller.handle_completion(arrived + Duration::from_millis(20), ticket, Outcome::answered());
//!     }
//!     other => panic!("an idle controller admits: {other:?}"),
//! }
//! ```
//!
//! `examples/embed.rs` is a whole driver: it serves three servers at twice what they can do.

#![forbid(unsafe_code)]
#![no_std]

extern crate alloc;

mod admission;
mod affinity;
mod below;
mod bucket;
mod controller;
mod decision;
mod demands;
mod dispatch;
mod due;
mod effect;
pub mod estimate;
mod event;
mod explanation;
mod facts;
mod fleet;
mod flight;
mod learned;
mod max_conn;
mod partition;
mod peers;
mod policer;
mod report;
mod request;
mod rng;
pub mod seda;
mod setup;
mod signal;
mod sla;
mod snapshot;
mod table;
mod tenants;
mod time;
pub mod units;

pub use admission::{AdmissionConfig, Delays, PolicyState};
pub use affinity::Affinity;
pub use bucket::TokenBucket;
pub use controller::Controller;
pub use decision::{AbandonedBy, Action, Decision, End, Open, Outcome, Reason, Rejection, Watch};
pub use demands::Demands;
pub use dispatch::{DispatchConfig, ProfileStep, StealingProfile};
pub use event::{Event, EventSink, NoEvents};
pub use explanation::{Explanation, field_value};
pub use facts::{Fact, Facts};
pub use fleet::{Role, ServerState, Status};
pub use learned::Learned;
pub use max_conn::MaxConn;
pub use partition::PartitionConfig;
pub use peers::{Circle, ClassSummary, Peers, Places, Summary, Times};
pub use policer::{ClassCounts, Policer, Share, Verdict};
pub use report::{LoadReport, MeasuredCost, ServerLoad};
pub use request::{AffinityKey, ClassId, Request, RequestTypeId, ServerId, Tags, TenantKey, Ticket, UrlKey};
pub use rng::Rng;
pub use setup::{Cancel, ClassSetup, MOST_OPEN, ServerSetup, Setup, SetupError, SetupPlace, WhenAllDown};
pub use signal::Signal;
pub use sla::{Bounds, Sla, SlaError, Statistic, Step};
pub use snapshot::{
    ClassSnapshot, HeldSnapshot, NamedTenantSnapshot, PartitionSnapshot, ServerSnapshot, Snapshot, TenantSnapshot,
};
pub use tenants::TenantSetup;
pub use time::Timestamp;
pub use units::{PerSecond, Seconds};
