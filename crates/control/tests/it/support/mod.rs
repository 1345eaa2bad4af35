//! What several files of tests need.
#![cfg_attr(not(feature = "kubernetes"), allow(dead_code, reason = "most of it is for tests with that feature"))]

pub mod application;
#[cfg(feature = "kubernetes")]
pub mod cluster;
pub mod folder;
#[cfg(feature = "kubernetes")]
pub mod home;
#[cfg(feature = "kubernetes")]
pub mod running;
pub mod site;

use std::fmt::Display;
use std::thread;
use std::time::{Duration, Instant};

use tidegate_control::backend::{self, StoreError};
use tidegate_control::plane::{Input, Plane};

/// Whichever it is.
pub type Store = Box<dyn backend::Store>;

/// How long a test waits for what must come; a machine that has much to do gets there later.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Waits for a condition.
#[track_caller]
pub fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < deadline, "waited in vain: {what}");
        thread::park_timeout(Duration::from_millis(20));
    }
}

/// Whether a call ran out of time, for a machine that had other things to do: nothing is wrong, and who called asks
/// again.
pub fn was_late(why: &impl Display) -> bool {
    let why = why.to_string();
    ["nothing within", "too busy"].iter().any(|late| why.contains(late))
}

/// Asks until the answer comes in time.
#[track_caller]
pub fn answer<T, E: Display>(mut ask: impl FnMut() -> Result<T, E>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match ask() {
            Ok(value) => return value,
            Err(error) => assert!(was_late(&error) && Instant::now() < deadline, "{error}"),
        }
    }
}

/// Gives an input until it is written or another one leads, while `may_be_away`; how often the store was away.
#[track_caller]
pub fn give(
    store: &mut Store,
    plane: &mut Plane,
    input: &Input,
    may_be_away: impl Fn(&str) -> bool,
) -> Result<u32, StoreError> {
    let (deadline, mut away) = (Instant::now() + PATIENCE, 0);
    loop {
        match store.handle(plane, input) {
            Ok(_) => return Ok(away),
            Err(StoreError::Away(why)) if may_be_away(&why) => away += 1,
            Err(error) => return Err(error),
        }
        assert!(Instant::now() < deadline, "the store does not come back");
        thread::park_timeout(Duration::from_millis(20));
    }
}
