//! Who leaves requests of an application behind.

use std::net::IpAddr;
use std::sync::PoisonError;

use tidegate_engine::Timestamp;

use super::App;

pub use crate::cancels::Leaver;

impl App {
    /// A client left a request behind at `now`.
    pub(crate) fn count_cancel(&self, now: Timestamp, client: IpAddr) {
        self.cancels.lock().unwrap_or_else(PoisonError::into_inner).count(now, client);
    }

    /// Clients that left most requests behind lately, first of all the one with most.
    pub fn leavers(&self, how_many: usize) -> Vec<Leaver> {
        let now = self.now();
        self.cancels.lock().unwrap_or_else(PoisonError::into_inner).most(now, how_many)
    }
}
