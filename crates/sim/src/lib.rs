//! The engine in virtual time: emulated servers and offered load around the unchanged controller.
//!
//! [`World::run`] plays a [`World`] (servers, streams of requests, an engine setup) and gives a [`Report`]. Equal seeds
//! give equal reports. [`Played`] makes worlds from scenario files; tiers, links and failing servers are to come.

mod agenda;
mod report;
mod scenario;
mod station;
mod world;

pub use report::{ClassReport, Report, Second};
pub use scenario::{ArmError, Played, setup};
pub use station::{Discipline, Station};
pub use world::{Stream, Url, World};
