//! What the conformance suite and the fuzz target `controller` share: a driver that plays operations on a controller
//! and keeps a trace, and a simple model that checks the trace.
//!
//! Policies come from the table and none can be plugged in from outside, so the model judges a *trace* and not a
//! controller: the suite hands it doctored traces to show that it finds what it is there for.

#![allow(dead_code, reason = "each user of this module needs another part of it")]

pub mod cases;
pub mod driver;
pub mod finite;
pub mod model;
pub mod operation;

use cases::Case;
use driver::{Driver, Step};
use model::Model;
use operation::Operation;

/// Plays `operations` on `case` and checks every step.
///
/// # Errors
/// The first thing that does not hold.
pub fn examine(case: &Case, seed: u64, operations: &[Operation]) -> Result<Driver, String> {
    let mut driver = Driver::new(case, seed);
    operations.iter().for_each(|operation| driver.play(operation));
    check(case, &driver.trace)?;
    Ok(driver)
}

/// Checks a whole trace of `case`.
///
/// # Errors
/// The first thing that does not hold.
pub fn check(case: &Case, trace: &[Step]) -> Result<(), String> {
    let mut model = Model::new(case);
    for (at, step) in trace.iter().enumerate() {
        model.check(step).map_err(|what| format!("{}: step {at}, {:?}: {what}", case.name, step.input))?;
    }
    Ok(())
}
