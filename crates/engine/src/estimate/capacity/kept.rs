//! What outlives a process of a server's capacity.

use serde::{Deserialize, Serialize};

use super::{Capacity, LEAST, MOST, Sum, WAIT_FIRST, WAIT_LONGEST, Window};
use crate::estimate::scale::Sharing;
use crate::time::Timestamp;

/// A capacity as it was learned. Not what is in service, nor a window that was open.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KeptCapacity {
    processors: f64,
    /// Where it was given, it is kept for nobody.
    is_given: bool,
    scale: f64,
    learned: Sum,
    /// What counts as enough to do.
    level: u32,
    /// Between two attempts to raise it, seconds.
    wait: f64,
    sharing: Sharing,
}

impl Capacity {
    /// What there is to keep.
    pub fn keep(&self) -> KeptCapacity {
        KeptCapacity {
            processors: self.processors,
            is_given: self.given,
            scale: self.scale,
            learned: self.learned,
            level: self.window.level,
            wait: self.raise.wait,
            sharing: self.sharing.clone(),
        }
    }

    /// Begins with what was learned elsewhere. One that is given stays what it is.
    pub fn recall(&mut self, now: Timestamp, kept: &KeptCapacity) {
        self.changed = now;
        self.scale = kept.scale.max(LEAST);
        self.sharing = kept.sharing.clone();
        if self.given || kept.is_given {
            return;
        }
        self.processors = kept.processors.clamp(LEAST, MOST);
        let Sum { seconds, work, completions } = kept.learned;
        if seconds > 0.0 && work > 0.0 && completions > 0.0 {
            self.learned = kept.learned;
        }
        self.raise.wait = kept.wait.clamp(WAIT_FIRST, WAIT_LONGEST);
        self.window = Window { reached: now, level: kept.level.max(1), ..Window::default() };
    }
}
