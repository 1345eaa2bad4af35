//! What the controller wants beside the answers to requests that wait: cores divided, requests in flight ended.

use super::{App, Core};

/// So many requests that are to be ended are told of at once.
const MOST_RUNAWAYS: usize = 16;

impl App {
    /// Notes how data servers are to divide their cores; who listens to their nuclei tells them.
    #[cold]
    pub(super) fn divide(&self, core: &mut Core) {
        let live = self.live();
        for (server, cores) in core.divisions.drain(..) {
            if let Some(server) = live.server(server) {
                server.want_cores(Some(cores));
            }
        }
    }

    /// Tells the workers which requests are to be ended. Of those who do not hear of it in time, none is missed: a
    /// cancellation is a favour to others and no promise.
    #[cold]
    pub(super) fn end_runaways(&self, core: &mut Core) {
        self.runaways.send_modify(|last| {
            last.append(&mut core.runaways);
            last.drain(..last.len().saturating_sub(MOST_RUNAWAYS));
        });
    }
}
