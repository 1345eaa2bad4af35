//! The mail service from outside, in one program.

mod experiment;
mod measurements;
mod outage;
mod overload;
mod pages;
mod support;
mod users;
