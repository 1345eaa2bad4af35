//! The simulator's tests from outside, in one program.

mod c1;
mod dispatch;
mod due;
mod estimators;
mod fleet;
mod manners;
mod models;
mod offers;
mod priority;
mod protocols;
mod room;
mod services;
mod slow_start;
mod support;
mod theory;
mod threshold;
mod trajectories;
mod waiting;
