//! Experiments from outside, in one program: scenario files, simulated and on real HTTP.

mod bytes;
mod live;
mod measurements;
mod resource;
mod schema;
mod seda;
mod site;
mod softscale;
mod support;
