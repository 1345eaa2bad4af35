//! The helper of `tidegate run` that polices connections, which that one starts itself.

use std::io::stdin;
use std::os::fd::AsFd;
use std::process::ExitCode;

use anyhow::{Context, Result};
use tidegate_sentry::syn_policing::{privilege, serve};
use tokio::signal::unix::{SignalKind, signal};

/// Police connections for the sentry at the other end of standard input; `tidegate run` starts this by itself.
#[derive(Debug, clap::Args)]
pub struct Args {}

/// Does what it is told until nobody tells it anything any more.
///
/// # Errors
/// When it lacks the privilege, or standard input is no such socket.
pub fn run() -> Result<ExitCode> {
    privilege::keep_policing_only().context("cannot keep CAP_NET_ADMIN alone")?;
    super::confine::give_up_calls();
    // A service manager sends the signal to stop to all of a service. Who drains is policed until it has ended.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("cannot start")?;
    let _heard = {
        let _guard = runtime.enter();
        [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup()].map(signal)
    };
    let door = stdin().as_fd().try_clone_to_owned().context("there is no standard input")?;
    serve(door).context("standard input leads to no sentry")?;
    Ok(ExitCode::SUCCESS)
}
