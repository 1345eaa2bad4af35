//! The monitor of an application whose policy demands signals: a thread that measures what is on this machine, and
//! carries out the rate of new connections in the kernel.
//!
//! Measured are the sentry's own listeners (TCP_INFO), and, where no nuclei report, the servers that share this machine
//! with the sentry, by the nucleus's own sampler.

mod local;

use std::net::{SocketAddr, TcpListener};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tidegate_engine::{LoadReport, Signal};
use tidegate_kernel::{Helper, Plan, Police, PoliceError, SourceClass};
use tracing::error;

use crate::app::App;
use crate::config::{SynPolicing, SynWith};
use crate::syn_policing::{Counted, Mechanism};
use local::Local;

/// Between two measurements.
const EVERY: Duration = Duration::from_millis(100);
/// Measurements between two renewals of the kernel's lease, which is ten times as long.
const RENEWAL: u32 = 10;

/// The thread. Dropped, it ends, and its rules are removed.
#[derive(Debug)]
pub(crate) struct Monitor {
    stop: Option<SyncSender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// Why it cannot be as the configuration demands.
#[derive(Debug, thiserror::Error)]
#[error("application \"{app}\": syn_policing is required, and is not possible here: {why}; or leave out required")]
pub struct SynRequired {
    /// The application.
    pub app: String,
    /// Why not.
    pub why: String,
}

impl Monitor {
    /// Settles what turns connections away, and starts to measure. `listeners` are the application's, one of each
    /// address and worker; `samples`: whether servers on this machine are to be measured from here; `helper`: the
    /// process that polices, if this one does not.
    ///
    /// # Errors
    /// When the kernel must turn connections away and cannot.
    pub(crate) fn start(
        app: &Arc<App>,
        addresses: &[SocketAddr],
        listeners: Vec<TcpListener>,
        samples: bool,
        helper: Option<&Helper>,
    ) -> Result<Monitor, SynRequired> {
        let live = app.live();
        let policer = match live.config.setup.demands().connections {
            Some(depth) => choose(app, &live.config.syn, plan(&live.config.syn, addresses, depth), helper)?,
            None => None,
        };
        let local = samples.then(|| Local::new(&live.config));
        let (stop, stopped) = sync_channel(1);
        let work = Work { app: Arc::downgrade(app), listeners, local, policer, given: None, seen: (0, 0) };
        let thread = std::thread::Builder::new().name(String::from("monitor")).spawn(move || work.run(&stopped));
        // Without a thread nothing is measured, so the policy lets everything in.
        Ok(Monitor { stop: Some(stop), thread: thread.ok() })
    }
}

impl Drop for Monitor {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Decides what turns connections away, and says so.
fn choose(app: &App, config: &SynPolicing, plan: Plan, helper: Option<&Helper>) -> Result<Option<Police>, SynRequired> {
    let settle = |mechanism, why: String| app.syn.settle(mechanism, why, config);
    match config.with {
        SynWith::Off => {
            settle(Mechanism::Off, "syn_policing is off".to_owned());
            return Ok(None);
        }
        SynWith::AcceptAndReset => {
            settle(Mechanism::AcceptAndReset, "syn_policing says so".to_owned());
            return Ok(None);
        }
        SynWith::Auto | SynWith::Nftables => {}
    }
    match Police::install(plan, helper) {
        Ok(policer) => {
            settle(Mechanism::Nftables, String::new());
            Ok(Some(policer))
        }
        Err(error) if config.required || config.with == SynWith::Nftables => {
            Err(SynRequired { app: app.name().to_owned(), why: error.to_string() })
        }
        Err(error) => {
            settle(Mechanism::AcceptAndReset, error.to_string());
            Ok(None)
        }
    }
}

fn plan(config: &SynPolicing, addresses: &[SocketAddr], depth: f64) -> Plan {
    let class = |class: &crate::config::SynClass| SourceClass {
        name: class.name.clone(),
        from: class.network.clone(),
        share: class.share,
    };
    Plan {
        listen: addresses.to_vec(),
        classes: config.classes.iter().map(class).collect(),
        rest_share: config.rest_share,
        exempt: config.exempt.clone(),
        depth,
    }
}

struct Work {
    app: Weak<App>,
    listeners: Vec<TcpListener>,
    local: Option<Local>,
    policer: Option<Police>,
    /// The rate that the kernel was given last.
    given: Option<f64>,
    /// Connections offered and refused, as last told.
    seen: (u64, u64),
}

impl Work {
    fn run(mut self, stopped: &Receiver<()>) {
        let mut due = Instant::now();
        for round in 1u32.. {
            due = (due + EVERY).max(Instant::now());
            match stopped.recv_timeout(due.saturating_duration_since(Instant::now())) {
                Err(RecvTimeoutError::Timeout) => {}
                Ok(()) | Err(RecvTimeoutError::Disconnected) => return,
            }
            let Some(app) = self.app.upgrade() else { return };
            self.measure(&app);
            self.police(&app, round.is_multiple_of(RENEWAL));
        }
    }

    fn measure(&mut self, app: &App) {
        let lengths = self.listeners.iter().filter_map(|listener| tidegate_kernel::listen_queue(listener).ok());
        let waiting: u32 = lengths.map(|(waiting, _)| waiting).sum();
        let own = LoadReport::Signal { server: None, signal: Signal::ListenQueue, value: f64::from(waiting) };
        let mut reports = vec![own];
        if let Some(local) = &mut self.local {
            local.sample(app, &mut reports);
        }
        app.engine(|core, now| {
            reports.drain(..).for_each(|report| core.controller.handle_report(now, report));
        });
    }

    /// Brings the kernel up to date: its rate at once, so that the next sample sees what this one did; its lease; and
    /// what it counted.
    fn police(&mut self, app: &App, is_due: bool) {
        let wanted = app.syn.wanted().rate;
        if wanted.is_none() && self.given.is_none() && !is_due {
            return;
        }
        let done = self.policer.as_mut().map_or(Ok(()), |policer| drive(policer, app, wanted, &mut self.given, is_due));
        match done {
            Err(PoliceError::Gone(why)) => self.fall_back(app, &why.to_string()),
            Err(PoliceError::TakenOver) if is_due => self.reclaim(),
            // What fails is tried again; if it fails for ten seconds, the lease runs out and everything is let in.
            _ => {}
        }
        let counts = app.syn.counts();
        let refused: u64 = counts.iter().map(|class| class.refused).sum();
        let offered = refused + counts.iter().map(|class| class.admitted).sum::<u64>();
        let new = (offered.saturating_sub(self.seen.0), refused.saturating_sub(self.seen.1));
        self.seen = (offered, refused);
        if wanted.is_some() {
            app.report(LoadReport::Connections { offered: new.0, refused: new.1 });
        }
    }

    /// A successor has the table: if it ended without ever serving, this one polices on.
    fn reclaim(&mut self) {
        if self.policer.as_mut().is_some_and(|policer| policer.reclaim().is_ok()) {
            (self.given, self.seen) = (None, (0, 0));
        }
    }

    /// From now on the workers turn connections away: nobody else may any more.
    fn fall_back(&mut self, app: &App, why: &str) {
        let name = app.name();
        error!(app = name, "the process that polices connections has ended ({why}); restart the sentry for another");
        let why = format!("the process that polices connections has ended: {why}");
        app.syn.settle(Mechanism::AcceptAndReset, why, &app.live().config.syn);
        app.engine(|_, now| app.syn.want(now, app.syn.wanted().rate, app.syn.wanted().depth));
        (self.policer, self.given, self.seen) = (None, None, (0, 0));
    }
}

/// Gives the kernel what is wanted, if that is another rate or its lease is due, and takes what it counted.
fn drive(
    policer: &mut Police,
    app: &App,
    wanted: Option<f64>,
    given: &mut Option<f64>,
    is_due: bool,
) -> Result<(), PoliceError> {
    if is_due || wanted != *given {
        let begin = Instant::now();
        let is_changed = policer.set_rate(wanted)?;
        *given = wanted;
        if is_changed {
            app.syn.note_change(begin.elapsed());
        }
    }
    if is_due {
        policer.renew()?;
    }
    let counted = |counts: tidegate_kernel::Counts| Counted {
        class: counts.class,
        admitted: counts.admitted,
        refused: counts.refused,
    };
    let counts = policer.counts()?;
    app.syn.note(counts.into_iter().map(counted).collect(), policer.changes());
    Ok(())
}
