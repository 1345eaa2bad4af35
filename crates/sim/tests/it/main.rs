//! The simulator's tests from outside, in one program.

mod bytes;
mod c1;
mod estimators;
mod models;
mod priority;
mod resource;
mod room;
mod seda;
mod site;
mod softscale;
mod support;
mod theory;
mod threshold;
mod trajectories;
