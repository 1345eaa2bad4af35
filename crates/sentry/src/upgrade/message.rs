//! What is said between a process, its successor, and whoever asks for one.

use serde::{Deserialize, Serialize};

/// A sentence. Later versions may say more: what is not understood is no answer to anything.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "say", rename_all = "kebab-case")]
pub enum Message {
    /// `tidegate upgrade` to a process: start your successor.
    Upgrade,
    /// A process that was started to succeed: let me.
    Succeed {
        /// Its process number.
        pid: u32,
    },
    /// To the successor: as many sockets as there are names come with this.
    Sockets {
        /// Their names, in order.
        names: Vec<String>,
    },
    /// To the successor: what was learned comes with this, as a file in memory. Nothing more follows.
    Learned,
    /// From the successor: it can accept at once.
    Ready {
        /// Its process number.
        pid: u32,
    },
    /// To the successor: it is its turn. What was learned comes with this once more, as it is by now.
    Yours,
    /// From the successor: it accepts.
    Serving,
    /// It will not come to that, and why: from the successor, or to it.
    Failed {
        /// Why, in words.
        why: String,
    },
    /// To whoever asked: this does.
    Done {
        /// The process number of who serves now.
        pid: u32,
    },
    /// From a later version.
    #[serde(other)]
    Other,
}
