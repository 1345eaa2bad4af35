//! Panics and stalls where a test wants them; not in a release (feature `faults`).

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use tidegate_engine::Timestamp;

use crate::tls::budget::Budget;

/// What goes wrong, once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The controller panics, with its lock held.
    Engine,
    /// A worker panics over a new connection.
    Accept,
    /// A worker hangs, until released.
    Stall,
}

/// The faults of one application.
#[derive(Debug, Default)]
pub struct Faults {
    state: Mutex<State>,
    released: Condvar,
}

#[derive(Debug, Default)]
struct State {
    armed: Option<Fault>,
    handshakes: Option<f64>,
    stalls: bool,
}

impl Faults {
    /// The next who comes to where `fault` strikes is struck.
    pub fn arm(&self, fault: Fault) {
        self.lock().armed = Some(fault);
    }

    /// Whether what was armed has struck.
    pub fn has_struck(&self) -> bool {
        self.lock().armed.is_none()
    }

    /// Ends a stall.
    pub fn release(&self) {
        self.lock().stalls = false;
        self.released.notify_all();
    }

    /// From now on there are so many processor seconds for handshakes, whatever was spent; `None`: as many as are
    /// there.
    pub fn leave_for_handshakes(&self, seconds: Option<f64>) {
        self.lock().handshakes = seconds;
    }

    /// A handshake is to be paid.
    pub(crate) fn bind(&self, budget: &mut Budget, now: Timestamp) {
        if let Some(seconds) = self.lock().handshakes {
            budget.hold(now, seconds);
        }
    }

    /// Here `fault` may strike.
    pub(crate) fn strike(&self, fault: Fault) {
        let mut state = self.lock();
        if state.armed != Some(fault) {
            return;
        }
        state.armed = None;
        if fault == Fault::Stall {
            state.stalls = true;
            // Poisoned or not, a test releases it.
            drop(self.released.wait_while(state, |state| state.stalls));
            return;
        }
        drop(state);
        panic!("{fault:?} on purpose");
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
