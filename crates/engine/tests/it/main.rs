//! The engine's tests from outside, in one program.

mod allocation;
mod beside;
mod busy_sentry;
mod closed;
mod conformance;
mod counting;
mod crowd;
mod distant;
mod documentation;
mod due;
mod fairness;
mod hanging;
mod idle;
mod learned;
// Where the fuzz targets take it from.
#[path = "../support/mod.rs"]
mod support;
mod work;
