//! The load generator from outside, in one program.

mod users;
