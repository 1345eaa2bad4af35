//! Choice of the server for a request.

use super::{Fleet, Status};
use crate::decision::Reason;
use crate::dispatch::View;
use crate::request::{AffinityKey, Request, ServerId};
use crate::rng::Rng;
use crate::time::Timestamp;

impl Fleet {
    /// The server for a request: of its class's partition, and the one its page or session is with, if that takes it.
    pub(crate) fn choose(
        &mut self,
        now: Timestamp,
        rng: &mut Rng,
        request: &Request,
        except: Option<ServerId>,
    ) -> Option<ServerId> {
        let partition = self.partitions.only(request.class);
        let mut view = View { now, servers: &self.servers, rng, try_down: self.try_down, except, partition };
        let Some(pins) = self.pins.as_mut().filter(|_| request.affinity != AffinityKey::NONE) else {
            return self.dispatch.choose(&mut view, request);
        };
        let pinned = pins.server(now, request.affinity).and_then(|id| view.servers.get(id.index()));
        let pinned = pinned.filter(|server| view.takes(server)).map(|server| server.id);
        let server = pinned.or_else(|| self.dispatch.choose(&mut view, request))?;
        pins.pin(now, request.affinity, server, false);
        Some(server)
    }

    /// Another server than one that just failed the request. Where the class's own have none left, any: the health
    /// checks have not seen yet that the partition needs another.
    pub(crate) fn choose_other(
        &mut self,
        now: Timestamp,
        rng: &mut Rng,
        request: &Request,
        failed: ServerId,
    ) -> Option<ServerId> {
        let own = self.choose(now, rng, request, Some(failed));
        let groups = if self.partitions.only(request.class).is_some() { self.partitions.groups().len() } else { 0 };
        own.or_else(|| {
            (0..groups as u8).find_map(|group| {
                let (servers, try_down, except) = (&self.servers, self.try_down, Some(failed));
                let mut view = View { now, servers, rng, try_down, except, partition: Some(group) };
                self.dispatch.choose(&mut view, request)
            })
        })
    }

    /// A session began at a server.
    pub(crate) fn pin_session(&mut self, now: Timestamp, key: AffinityKey, server: ServerId) {
        let is_there = self.servers.get(server.index()).is_some_and(|state| state.status != Status::Removed);
        if let Some(pins) = self.pins.as_mut().filter(|_| is_there && key != AffinityKey::NONE) {
            pins.pin(now, key, server, true);
        }
    }

    /// Why nothing could be chosen.
    pub(crate) fn no_server_reason(&self) -> Reason {
        if self.sums.up == 0 { Reason::NoServer } else { Reason::ServerLimit }
    }
}
