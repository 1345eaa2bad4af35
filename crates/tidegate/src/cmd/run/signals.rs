//! What signals mean.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// What a signal means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Told {
    Reload,
    Upgrade,
    Stop,
}

/// The signals that the process listens to.
pub(super) struct Signals {
    hangup: Signal,
    user: Signal,
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Signals {
            hangup: signal(SignalKind::hangup())?,
            user: signal(SignalKind::user_defined2())?,
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    pub(super) async fn next(&mut self) -> Told {
        tokio::select! {
            _ = self.hangup.recv() => Told::Reload,
            _ = self.user.recv() => Told::Upgrade,
            _ = self.terminate.recv() => Told::Stop,
            _ = self.interrupt.recv() => Told::Stop,
        }
    }

    pub(super) async fn stop(&mut self) {
        while self.next().await != Told::Stop {}
    }
}
