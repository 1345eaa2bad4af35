//! The engine as a C library, for services that are not written in Rust: `libtidegate`, and `include/tidegate.h`.
//!
//! A service asks before it begins to work on a request, and says when it is done; what the sentry decides for servers,
//! the library decides for the service's own process, by the same engine. The header is the reference of the functions;
//! `docs/embedding.md` tells how to begin.
//!
//! Everything unsafe is in `abi.rs`: it turns pointers into values, and values into what lies behind pointers. A handle
//! is a number and no pointer ([`registry`]), so that one that was closed, or never was, is an error and nothing worse.
//! A panic ends at the boundary: the call returns [`Failure::Broken`], and so does every later one of that application,
//! as its state may be half changed. What an application decides is [`app::App`]'s, and what its configuration says is
//! read by `config.rs`.

#![deny(unsafe_code)]

pub mod abi;
pub mod app;
mod config;
mod failure;
pub mod registry;
mod say;
pub mod types;

pub use failure::Failure;
