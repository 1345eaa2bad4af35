//! One language of configuration, for every file that a person writes.
//!
//! There are two readers, and both find every mistake in one go, each with its line and, for what is unknown, the
//! nearest known name:
//!
//! - [`section!`] declares a table once: its keys, their types and what they mean. It gives a reader, and the reference
//!   in the documents. It is for files that are only read.
//! - [`parse`] reads any type that serde knows: for files that are written, too, and for types of crates that do not
//!   import this one.
//!
//! What was typed and what it means are two types: the readers here give the first, and whoever owns the file makes the
//! second of it. What it finds wrong then goes to the same [`Report`], or as [`Found`] to [`ConfigErrors::of_checks`].
//! Quantities such as `"500ms"` mean the same everywhere: [`units`].

#![forbid(unsafe_code)]

mod environment;
mod error;
mod nearest;
mod place;
mod policy;
mod report;
mod section;
mod sla;
mod typed;
pub mod units;
mod values;

pub use error::{ConfigErrors, Problem, load};
pub use nearest::suggestion;
pub use place::{Found, Place, Step};
pub use policy::Policies;
pub use report::{Report, parse_document};
pub use section::{At, Fields, Key, Kind, List, Read, Section, Table, Value, wrong};
pub use sla::{RawSla, RawStep, sla};
pub use typed::{parse, unknown_field};
pub use values::{Bytes, PerSecond, Share, Time};
