//! Errors of a store.

use std::path::PathBuf;

use thiserror::Error;
use tidegate_provision::{ProvisionError, RestoreError};

use super::{FORMAT, Leader};

/// Why a store cannot be used.
#[derive(Debug, Error)]
pub enum StoreError {
    /// Another process has it.
    #[error("{path}: another control plane has this store open; stop it, or give this one a store of its own")]
    Held {
        /// Path of the store's file.
        path: PathBuf,
    },
    /// It is only to be looked at, and a control plane has it.
    #[error(
        "{path}: a control plane runs on this store and cannot be asked; give both the same file with \
         admin = \"127.0.0.1:9911\", and start it anew"
    )]
    Busy {
        /// Path of the store's file.
        path: PathBuf,
    },
    /// There is no store at this place.
    #[error("{place}: there is no store yet; a control plane that runs makes one")]
    Missing {
        /// The store's place: a file, or objects in a cluster.
        place: String,
    },
    /// It is of another version.
    #[error("{place}: the store has format {found}, and this version reads {FORMAT}; use the version that wrote it")]
    Format {
        /// The store's place: a file, or objects in a cluster.
        place: String,
        /// The format's number in the store.
        found: u64,
    },
    /// It cannot be read or written.
    #[error("{place}: {problem}")]
    Failed {
        /// The store's place: a file, or objects in a cluster.
        place: String,
        /// Description of the failure.
        problem: String,
    },
    /// It does not answer now. Whether the last thing was written is not known: the same thing is to be written again
    /// before anything else.
    #[error("{0}")]
    Away(String),
    /// Another control plane leads, or none does: this one may write no more.
    #[error("this control plane does not lead any more{}", by(leader))]
    Deposed {
        /// The control plane that leads, if it is known.
        leader: Option<Box<Leader>>,
    },
    /// The site makes no sense.
    #[error(transparent)]
    Site(#[from] ProvisionError),
    /// What is in it is not of this site.
    #[error("{place}: {source}")]
    Restore {
        /// The store's place: a file, or objects in a cluster.
        place: String,
        /// What does not fit.
        source: RestoreError,
    },
}

fn by(leader: &Option<Box<Leader>>) -> String {
    leader.as_ref().map_or(String::new(), |leader| format!("; {} does", leader.name))
}
