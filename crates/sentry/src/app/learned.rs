//! What an application learned, for a successor; and from a predecessor.

use tidegate_engine::Learned;
use tracing::info;

use super::App;
use crate::tls::rank::KeptRanks;
use crate::upgrade::State;

impl App {
    /// Everything that was learned until now.
    pub(crate) fn learned(&self) -> Learned {
        self.engine(|core, now| core.controller.learned(now))
    }

    /// Which addresses were important until now.
    pub(crate) fn kept_ranks(&self) -> KeptRanks {
        let live = self.live();
        live.ranks.kept(live.config.class_names(), self.now())
    }

    /// Begins with what an application of the same name learned in another process.
    pub(crate) fn recall_from(&self, state: &State) {
        let app = self.name();
        let Some(learned) = state.learned(app) else {
            return info!(app, "there was no application of that name before: it begins anew");
        };
        self.engine(|core, now| core.controller.recall(now, learned));
        if let Some(ranks) = state.ranks(app) {
            let live = self.live();
            live.ranks.recall(ranks, &live.config.class_names(), self.now());
        }
        info!(app, urls = learned.urls(), at_work = learned.at_work(), "goes on with what was learned before");
    }
}
