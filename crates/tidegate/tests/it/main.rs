//! The program from outside: what it says, and what becomes of it and its servers when processes are killed.

mod cli;
mod control;
mod deploy;
#[cfg(feature = "kubernetes")]
mod election;
mod kept;
mod keys;
mod measurements;
mod nucleus;
#[cfg(feature = "kubernetes")]
mod pods;
#[cfg(feature = "kubernetes")]
mod policies;
mod policing;
mod profile;
mod sentries;
mod stealing;
mod support;
mod upgrade;
