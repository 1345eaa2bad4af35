//! The stages' tests from outside, in one program.

mod conservation;
mod examples;
mod graphs;
mod layer;
mod measurements;
mod stages;
mod support;
mod threads;
