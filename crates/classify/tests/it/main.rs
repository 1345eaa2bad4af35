//! The classifier's tests from outside, in one program.

mod allocation;
// The allocator that the engine's tests count with.
#[path = "../../../engine/tests/it/counting.rs"]
mod counting;
