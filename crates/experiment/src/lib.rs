//! Experiments: scenario files, what they run on, and whether they show what they must.
//!
//! | question | answer |
//! |---|---|
//! | what is an experiment? | [`scenario::Scenario`]: servers, load, policies to compare, expectations |
//! | what does the engine, what does a sentry get of it? | `configure.rs` |
//! | what is it run on? | [`service`]: the simulator, or real HTTP to one of six kinds of services |
//! | what came of a run, and does it show what it must? | [`outcome::Outcome`], [`measure::Check`] |
//! | which runs, how many at a time? | [`plan`] |
//! | can its checks fail? | [`mutate`] |
//! | does a system come back when what brought it down is over? | [`metastable`] |
//! | how is it written down? | [`report`] |
//!
//! The life of one: [`scenario::Scenario::load`] reads and checks the file; [`plan`] runs its arms with each seed; a
//! [`service`] plays a run and gives an [`outcome::Outcome`]; [`measure::Measure`] makes checks of that; [`report`]
//! writes all of it.

#![deny(clippy::print_stderr, clippy::print_stdout)]
#![deny(unsafe_code)]

pub mod built_in;
pub mod configure;
pub mod measure;
pub mod metastable;
pub mod mutate;
pub mod outcome;
pub mod plan;
pub mod report;
pub mod scenario;
pub mod service;
pub mod tournament;
