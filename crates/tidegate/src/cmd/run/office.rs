//! In office: from the moment it serves until a signal ends it, or a successor has taken over.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use anyhow::{Context, Result};
use tidegate_engine::units::format_duration;
use tidegate_sentry::upgrade::{Call, Desk, Launch, Successor, hand_over};
use tidegate_sentry::{Process, Shutdown, notify};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Interval, MissedTickBehavior, interval};
use tracing::{info, warn};

use super::keeper::Keeper;
use super::signals::{Signals, Told};

/// A process that serves.
pub(super) struct Office {
    pub(super) process: Process,
    pub(super) signals: Signals,
    pub(super) launch: Launch,
    /// Where a successor is asked for, if anywhere, and who asks.
    pub(super) desk: Option<Desk>,
    pub(super) calls: mpsc::Receiver<Call>,
    /// Where what is learned is kept, if anywhere.
    pub(super) keeper: Option<Keeper>,
}

/// A successor on its way, and who serves in the end.
type Handing = Option<JoinHandle<Result<Successor, String>>>;

/// What happens next.
enum Next {
    Told(Told),
    Called(Call),
    Handed(Result<Successor, String>),
    Beat,
    Keep,
}

impl Office {
    /// Serves until it is over.
    pub(super) async fn serve(mut self) -> Result<ExitCode> {
        let cancelled = Arc::new(AtomicBool::new(false));
        let mut handing: Handing = None;
        let mut beats = notify::watchdog().map(|every| beats(every / 2));
        loop {
            match self.next(&mut handing, &mut beats).await {
                Next::Told(Told::Reload) => self.reload(),
                Next::Told(Told::Upgrade) if handing.is_some() => warn!(target: "tidegate", "{BUSY}"),
                Next::Told(Told::Upgrade) => handing = Some(self.begin(None, &cancelled)),
                Next::Called(call) if handing.is_some() => call.refuse(BUSY),
                Next::Called(call) => handing = Some(self.begin(Some(call), &cancelled)),
                Next::Handed(Ok(successor)) => return self.leave(successor).await,
                Next::Handed(Err(why)) => {
                    handing = None;
                    self.process.board().upgrade_failed(why);
                    notify::ready();
                }
                Next::Told(Told::Stop) => {
                    cancelled.store(true, Relaxed);
                    if let Some(handing) = handing {
                        // Before its sockets go, the successor knows that it is not to serve.
                        let _ = handing.await;
                    }
                    return self.stop().await;
                }
                Next::Beat if self.process.is_alive() => notify::alive(),
                Next::Beat => {}
                Next::Keep => {
                    if let Some(keeper) = &mut self.keeper {
                        keeper.write(&self.process);
                    }
                }
            }
        }
    }

    async fn next(&mut self, handing: &mut Handing, beats: &mut Option<Interval>) -> Next {
        tokio::select! {
            told = self.signals.next() => Next::Told(told),
            Some(call) = self.calls.recv() => Next::Called(call),
            Some(handed) = maybe(handing.as_mut()) => {
                Next::Handed(handed.unwrap_or_else(|error| Err(format!("the handing over broke off: {error}"))))
            }
            Some(()) = maybe(self.keeper.as_mut().map(|keeper| Box::pin(keeper.turn()))) => Next::Keep,
            Some(_) = maybe(beats.as_mut().map(|beats| Box::pin(beats.tick()))) => Next::Beat,
        }
    }

    fn reload(&self) {
        // Until a `ready` it is reloading to systemd (`Type=notify-reload`).
        notify::reloading("the configuration is read again");
        if !self.process.reload() {
            info!(target: "tidegate", "there is no configuration file to read again; the access log is reopened");
            notify::ready();
        }
    }

    /// Begins to hand over.
    fn begin(&self, call: Option<Call>, cancelled: &Arc<AtomicBool>) -> JoinHandle<Result<Successor, String>> {
        self.process.board().upgrading("a successor is to take over");
        notify::reloading("a successor is to take over");
        let own = self.process.handover().and_then(|mut handover| {
            if let Some(desk) = &self.desk {
                handover.sockets.append(desk.sockets()?);
            }
            Ok(handover)
        });
        let (launch, cancelled) = (self.launch.clone(), cancelled.clone());
        let most = self.process.board().config().upgrade.timeout;
        tokio::task::spawn_blocking(move || hand_over(call, &launch, own, most, &cancelled))
    }

    /// Finishes what it has, while its successor serves.
    async fn leave(mut self, successor: Successor) -> Result<ExitCode> {
        let pid = successor.pid;
        notify::main_is(pid);
        let config = self.process.board().config();
        let (grace, spread) = (config.sentry.drain, config.upgrade.spread);
        self.process.board().upgrading(format!("process {pid} has taken over"));
        // The successor listens there, and hears what is asked once it is told that it serves.
        drop(self.desk);
        while let Ok(call) = self.calls.try_recv() {
            call.refuse(&format!("process {pid} has just taken over; ask again"));
        }
        successor.tell();
        end(self.process, self.signals, grace, move |process| process.leave(grace, spread)).await
    }

    /// Finishes the requests in flight, and nobody takes over.
    async fn stop(self) -> Result<ExitCode> {
        notify::stopping();
        let grace = self.process.board().config().sentry.drain;
        if let Some(keeper) = self.keeper {
            keeper.close(&self.process).await;
        }
        if let Some(desk) = self.desk {
            desk.close();
        }
        end(self.process, self.signals, grace, move |process| process.shutdown(grace)).await
    }
}

const BUSY: &str = "an upgrade is under way already";

fn beats(every: Duration) -> Interval {
    let mut beats = interval(every);
    beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
    beats
}

/// Waits for what may not be there; then for ever.
async fn maybe<F: Future + Unpin>(what: Option<F>) -> Option<F::Output> {
    match what {
        Some(what) => Some(what.await),
        None => std::future::pending().await,
    }
}

/// Waits for the end of a drain; a second signal ends the wait.
async fn end<F>(process: Process, mut signals: Signals, grace: Duration, drain: F) -> Result<ExitCode>
where
    F: FnOnce(Process) -> Shutdown + Send + 'static,
{
    let log = process.access_log().clone();
    info!(target: "tidegate", "draining, for at most {}; a second signal stops at once", format_duration(grace));
    let shutdown = tokio::task::spawn_blocking(move || drain(process));
    let cut = tokio::select! {
        cut = shutdown => cut.context("the drain broke off")?,
        () = signals.stop() => {
            warn!(target: "tidegate", "stopped at once");
            log.flush();
            std::process::exit(1);
        }
    };
    match cut.connections {
        0 => info!(target: "tidegate", "stopped"),
        open => warn!(target: "tidegate", "stopped; {open} connections with {} requests were cut off", cut.requests),
    }
    Ok(ExitCode::SUCCESS)
}
