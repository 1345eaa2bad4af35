//! Reasons to ignore a datagram, and a counter for each.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use thiserror::Error;

/// Why a datagram is ignored. The names are labels in metrics and `/api/state`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Error)]
pub enum Rejected {
    /// Longer than any datagram of ours.
    #[error("it is longer than a datagram may be")]
    Oversized,
    /// Shorter than it says, or than any datagram of ours.
    #[error("it is shorter than it says")]
    Truncated,
    /// Of another version of the protocol.
    #[error("it is of another version of the protocol")]
    OtherVersion,
    /// Not ours, or made or changed by somebody without the key.
    #[error("it was not made with the shared key")]
    Forged,
    /// Made with the key, and makes no sense: a fault of the sender's program.
    #[error("it is authentic but malformed")]
    Malformed,
    /// The datagram was received before.
    #[error("it was received before")]
    Replayed,
    /// A later one of the same sender was here first, so it says nothing new.
    #[error("a later one came before it")]
    OutOfOrder,
    /// Of no session: the first of a nucleus, or of one that was replaced. It is challenged.
    #[error("it belongs to no session")]
    Stale,
    /// Another nucleus speaks for that server.
    #[error("another nucleus speaks for that server")]
    Claimed,
    /// From an address at which no other sentry is expected.
    #[error("no other sentry is expected at that address")]
    UnknownPeer,
    /// Another sentry's, of an application that is not here, or has other classes here.
    #[error("the application is not here, or has other classes")]
    OtherApplication,
    /// Of a server that no application has.
    #[error("no application has a server of that name")]
    UnknownServer,
}

impl Rejected {
    /// Every reason to ignore a datagram.
    pub const ALL: [Rejected; 12] = [
        Rejected::Oversized,
        Rejected::Truncated,
        Rejected::OtherVersion,
        Rejected::Forged,
        Rejected::Malformed,
        Rejected::Replayed,
        Rejected::OutOfOrder,
        Rejected::Stale,
        Rejected::Claimed,
        Rejected::UnknownPeer,
        Rejected::OtherApplication,
        Rejected::UnknownServer,
    ];

    /// The reason's name in metrics and output.
    pub const fn name(self) -> &'static str {
        match self {
            Rejected::Oversized => "oversized",
            Rejected::Truncated => "truncated",
            Rejected::OtherVersion => "other-version",
            Rejected::Forged => "forged",
            Rejected::Malformed => "malformed",
            Rejected::Replayed => "replayed",
            Rejected::OutOfOrder => "out-of-order",
            Rejected::Stale => "stale",
            Rejected::Claimed => "claimed",
            Rejected::UnknownPeer => "unknown-peer",
            Rejected::OtherApplication => "other-application",
            Rejected::UnknownServer => "unknown-server",
        }
    }
}

/// Datagrams since the start: taken, and ignored by reason.
#[derive(Debug, Default)]
pub struct Counts {
    taken: AtomicU64,
    rejected: [AtomicU64; Rejected::ALL.len()],
}

impl Counts {
    /// Counts what became of a datagram.
    pub fn count<T>(&self, result: &Result<T, Rejected>) {
        match result {
            Ok(_) => &self.taken,
            Err(why) => &self.rejected[*why as usize],
        }
        .fetch_add(1, Relaxed);
    }

    /// Datagrams that were taken.
    pub fn taken(&self) -> u64 {
        self.taken.load(Relaxed)
    }

    /// Datagrams that were ignored for this reason.
    pub fn rejected(&self, why: Rejected) -> u64 {
        self.rejected[why as usize].load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_has_its_own_place_and_name() {
        let counts = Counts::default();
        for (at, why) in Rejected::ALL.into_iter().enumerate() {
            assert_eq!(why as usize, at);
            (0..=at).for_each(|_| counts.count::<()>(&Err(why)));
        }
        counts.count(&Ok(()));
        assert_eq!(counts.taken(), 1);
        for (at, why) in Rejected::ALL.into_iter().enumerate() {
            assert_eq!(counts.rejected(why), at as u64 + 1, "{}", why.name());
        }
        let mut names = Rejected::ALL.map(Rejected::name).to_vec();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Rejected::ALL.len());
    }
}
