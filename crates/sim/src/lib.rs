//! The engine in virtual time: emulated servers and offered load around the unchanged controller.
//!
//! [`World::run`] plays a [`World`] (servers, streams of requests, an engine setup) and gives a [`Report`]. Equal seeds
//! give equal reports. What is here serves the engine's golden trajectories and the tuning of its policies; tiers, links,
//! failing servers and impatient clients come with the scenario files.

mod agenda;
mod report;
mod station;
mod world;

pub use report::{ClassReport, Report, Second};
pub use station::{Discipline, Station};
pub use world::{Stream, Url, World};
