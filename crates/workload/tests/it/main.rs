//! The workloads' tests from outside, in one program.

mod documentation;
