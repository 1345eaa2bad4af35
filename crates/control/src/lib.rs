//! The control plane: as many servers as the offered load needs, and which sentry has which.
//!
//! | file | question |
//! |---|---|
//! | `config.rs` | what an operator says |
//! | `plane.rs` | what is decided: pure, made again from its journal |
//! | `store.rs` | what survives a kill -9 |
//! | `provider.rs`, `provider/` | who starts and stops servers |
//! | `desk.rs` | who the sentries are, and what they say |
//! | `link.rs` | their connections |
//! | `daemon.rs` | how it all comes together, in one order |
//! | `names.rs`, `names/` | sentries by DNS |
//! | `admin.rs` | what is shown |
//! | `clock.rs` | what time it is |

pub mod admin;
mod clock;
pub mod config;
pub mod daemon;
pub mod desk;
mod link;
pub mod names;
pub mod plane;
pub mod provider;
pub mod store;

pub use clock::wall;
pub use config::{Config, ConfigError};
pub use daemon::{Daemon, DaemonError, Handle, Question};
