//! The engine in virtual time: emulated servers and offered load around the unchanged controller.
//!
//! [`World::run`] plays a [`World`] (servers, tiers, clients, an engine setup) and gives a [`Report`]. Equal seeds give
//! equal reports.
//!
//! | question | answer |
//! |---|---|
//! | what is there? | [`World`], and the models of servers, tiers, links, the sentry, faults and power it is made of |
//! | what arrives? | [`Stream`] (whatever happens), [`Users`] (who wait for answers); [`Offer`]: what is given |
//! | what do services and their callers agree on? | [`Protocol`] |
//! | what came of it? | [`Report`] |
//! | several applications, servers that come and go? | [`SiteWorld`] |
//! | how does it go? | `run.rs`: a request's way; `park.rs`: the machines; `agenda.rs`: what is next |

#![deny(clippy::print_stderr, clippy::print_stdout)]
#![forbid(unsafe_code)]

mod agenda;
mod model;
mod park;
mod protocol;
mod report;
mod run;
mod site;
mod station;
pub mod theory;
mod world;

pub use model::{
    Absence, Action, Channel, Fault, FaultKind, Host, Knee, Link, Power, Program, Reading, Resource, SentryFleet,
    SentryModel, ServerModel, Step, Tier, WarmUp,
};
pub use protocol::Protocol;
pub use report::{ClassReport, ClientReport, Report, Second, TenantReport, Usage};
pub use site::{Provision, SiteError, SiteReport, SiteWorld};
pub use station::Station;
pub use tidegate_workload::Discipline;
pub use world::{Lasting, Manner, Offer, Sessions, Stream, Url, Users, World};
