//! Why a sentry does not start, or does not take a configuration.

use std::io;
use std::net::SocketAddr;

use thiserror::Error;

use crate::app::AppError;
use crate::config::Listen;
use crate::monitor::SynRequired;

/// Why a sentry does not start.
#[derive(Debug, Error)]
pub enum StartError {
    /// An application makes no sense.
    #[error(transparent)]
    App(#[from] AppError),
    /// An address cannot be listened on.
    #[error("application \"{app}\": cannot listen on {address}: {source}")]
    Listen {
        /// The application.
        app: String,
        /// The address, or Unix socket.
        address: Listen,
        /// What the system said.
        source: io::Error,
    },
    /// Other sentries cannot be heard.
    #[error("cannot listen for other sentries on {address} (UDP): {source}")]
    Peers {
        /// Where it should listen.
        address: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// Reports cannot be listened for.
    #[error("cannot listen for reports on {address} (UDP): {source}")]
    Reports {
        /// The address.
        address: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// Ends of requests cannot be listened for.
    #[error("cannot listen for the ends of requests on {address} (UDP): {source}; another address: ends = \"...\"")]
    Ends {
        /// The address.
        address: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// Spans cannot be sent.
    #[error("cannot start [traces]: {0}")]
    Traces(io::Error),
    /// New connections cannot be policed as the configuration demands.
    #[error(transparent)]
    Syn(#[from] SynRequired),
    /// Names cannot be looked up.
    #[error("cannot start looking names up: {0}")]
    Names(io::Error),
    /// A worker thread cannot be started.
    #[error("cannot start a worker thread: {0}")]
    Thread(io::Error),
}

/// Why a configuration is not put in force. Nothing has changed then.
#[derive(Debug, Error)]
pub enum ReloadError {
    /// An application makes no sense.
    #[error(transparent)]
    App(#[from] AppError),
    /// An address cannot be listened on.
    #[error("application \"{app}\": cannot listen on {address}: {source}; nothing has changed")]
    Listen {
        /// The application.
        app: String,
        /// The address, or Unix socket.
        address: Listen,
        /// What the system said.
        source: io::Error,
    },
    /// The change needs a restart.
    #[error("{what} cannot change while the sentry runs; restart it")]
    NeedsRestart {
        /// What was changed.
        what: String,
    },
}
