//! Once a second: the next second of every application's history, and the same for whoever watches.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::Value;
use tidegate_engine::Snapshot;
use tokio::sync::broadcast;
use tokio::time::MissedTickBehavior;

use super::view;
use crate::app::App;
use crate::board::Board;
use crate::history::History;

/// Seconds that a viewer may lag behind before it is cut off.
const LAG: usize = 8;

/// The histories, and the news of each second.
#[derive(Debug)]
pub(super) struct Recorder {
    histories: Mutex<BTreeMap<String, History>>,
    news: broadcast::Sender<Arc<str>>,
}

impl Recorder {
    pub(super) fn new() -> Self {
        Recorder { histories: Mutex::default(), news: broadcast::channel(LAG).0 }
    }

    /// Records, for ever.
    pub(super) async fn run(&self, board: &Board) {
        let mut ticks = tokio::time::interval(Duration::from_secs(1));
        // Late seconds are longer ones; there is no catching up.
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        loop {
            ticks.tick().await;
            self.record(board);
        }
    }

    /// What is kept of an application after `since`, seconds since the process began.
    pub(super) fn columns(&self, application: &str, since: f64) -> Option<Value> {
        self.lock().get(application).map(|history| history.columns(since))
    }

    /// Every second from now on, as JSON. Whoever lags loses the oldest and is told so.
    pub(super) fn subscribe(&self) -> broadcast::Receiver<Arc<str>> {
        self.news.subscribe()
    }

    /// Takes one second in and tells it.
    pub(super) fn record(&self, board: &Board) {
        let apps = board.applications();
        let seen: Vec<(&App, Snapshot)> = apps.iter().map(|app| (&**app, app.snapshot())).collect();
        let at = board.uptime();
        let mut histories = self.lock();
        histories.retain(|name, _| apps.iter().any(|app| app.name() == name));
        for (app, snapshot) in &seen {
            histories.entry(app.name().to_owned()).or_default().sample(at, snapshot);
        }
        if self.news.receiver_count() > 0 {
            // Written once, however many watch. Nobody may be left: that is fine.
            let _ = self.news.send(message(board, &seen, &histories).into());
        }
    }

    /// The state now and the last second there is, for a viewer that has just come.
    pub(super) fn now(&self, board: &Board) -> String {
        let apps = board.applications();
        let seen: Vec<(&App, Snapshot)> = apps.iter().map(|app| (&**app, app.snapshot())).collect();
        message(board, &seen, &self.lock())
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, History>> {
        self.histories.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn message(board: &Board, seen: &[(&App, Snapshot)], histories: &BTreeMap<String, History>) -> String {
    let application = |(app, snapshot): &(&App, Snapshot)| {
        let mut value = view::application(board, app, snapshot);
        value["latest"] = histories.get(app.name()).map_or_else(|| History::default().newest(), History::newest);
        value
    };
    let mut state = view::process(board);
    state["applications"] = seen.iter().map(application).collect();
    state.to_string()
}
