//! The engine's tests from outside, in one program.

mod allocation;
mod conformance;
mod counting;
mod documentation;
mod due;
// Where the fuzz targets take it from.
#[path = "../support/mod.rs"]
mod support;
mod work;
