//! What is known of a client that wants a handshake, for when there is not enough time for all.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use tidegate_engine::{ClassId, Timestamp};

use crate::door::Door;
use crate::in_force::InForce;
use crate::tls::hello::Hello;
use crate::tls::rank::Claim;
use crate::tls::tickets;

/// A client's at the door.
#[derive(Debug)]
pub(super) struct Standing {
    claim: Claim,
    /// Whose class it is; `None`: it is beyond classes.
    of: Option<Of>,
}

#[derive(Debug)]
struct Of {
    live: Arc<InForce>,
    client: IpAddr,
    class: ClassId,
    /// It was learned, and is to be spent.
    is_learned: bool,
}

impl Standing {
    /// One that is as good as any.
    pub(super) fn best() -> Standing {
        Standing { claim: Claim::best(), of: None }
    }

    /// By what its rules and its own requests say of the address, and by its ticket.
    pub(super) fn of(door: &Door, peer: SocketAddr, hello: &Hello, now: Timestamp) -> Standing {
        let (live, client) = (door.shakes_for(hello.name.as_deref()), peer.ip().to_canonical());
        let host = match &live.config.tls {
            // Only then its requests must be for that host.
            Some(tls) if tls.match_host => hello.name.as_deref(),
            _ => None,
        };
        let certain = live.classifier.class_at_least(host, client);
        let learned = live.ranks.class_of(client, now).filter(|learned| *learned < certain);
        let class = learned.unwrap_or(certain);
        let comes_back = hello.ticket.as_deref().is_some_and(tickets::is_ours);
        let claim = Claim::of(class, live.ranks.classes(), door.levels(), comes_back);
        Standing { claim, of: Some(Of { live, client, class, is_learned: learned.is_some() }) }
    }

    pub(super) fn claim(&self) -> Claim {
        self.claim
    }

    /// What became of it.
    pub(super) fn note(&self, is_refused: bool) {
        let Some(of) = &self.of else { return };
        of.live.ranks.count(of.class, is_refused);
        if of.is_learned && !is_refused {
            of.live.ranks.spend(of.client);
        }
    }
}
