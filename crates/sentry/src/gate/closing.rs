//! How a connection ends.

use super::{Gate, Mode};
use crate::transport::Transport;

/// Whether the connection closes; in one byte, for an idle connection's task is just as large as it may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Closing {
    No,
    Clean,
    /// Bytes may be unread in the socket then.
    Unread,
}

impl Gate {
    /// The connection ends before all was sent.
    pub(crate) fn cut(&mut self) {
        self.io.cut();
    }

    /// Whether the client is owed a word at the end: where bytes are sealed, an end without it may be anybody's.
    pub(crate) fn says_farewell(&self) -> bool {
        !self.eof && matches!(self.io, Transport::Tls(_))
    }

    /// Whether the client may still be sending when this end closes.
    pub(crate) fn must_linger(&self) -> bool {
        !self.eof
            && (self.closing == Closing::Unread
                || !matches!(self.mode, Mode::Boundary { .. } | Mode::Answering)
                || !self.held_is_empty())
    }

    pub(super) fn close(&mut self, is_unread: bool) {
        let was_unread = self.closing == Closing::Unread;
        self.closing = if is_unread || was_unread { Closing::Unread } else { Closing::Clean };
    }
}
