//! How clients behave: whose requests they are, and how slowly they send and read.
//!
//! All of it is drawn when a request arrives, from a generator of its own for each stream, so that every policy sees
//! the same clients and a stream without any of it has the numbers that it always had.

use std::time::Duration;

use tidegate_engine::{ServerId, TenantKey, Timestamp};
use tidegate_workload::{Rng, ServiceTime, TenantDraw, rng};

use super::{Besides, Flying, Happening, Run};
use crate::park::in_billionths;
use crate::report::Subject;
use crate::world::World;

/// Streams of random numbers for manners begin here; see `clients.rs` and `pages.rs` for the others.
const MANNERS: u64 = 1 << 34;

/// The manner of a stream's clients, ready to be drawn from.
pub(super) struct Mannered {
    tenants: Option<TenantDraw>,
    sends: Option<ServiceTime>,
    reads: Option<ServiceTime>,
    rng: Rng,
}

impl Mannered {
    pub(super) fn all(world: &World, seed: u64) -> Vec<Mannered> {
        let manner = |(at, stream): (usize, &crate::world::Stream)| Mannered {
            tenants: stream.manner.tenants.map(|tenants| tenants.draw()),
            sends: stream.manner.sends,
            reads: stream.manner.reads,
            rng: rng(seed, MANNERS + at as u64),
        };
        world.streams.iter().enumerate().map(manner).collect()
    }

    /// Whose the next request is, by rank from 1, or 0 for nobody's in particular; and what it is besides work that
    /// `lasts` so long.
    pub(super) fn draw(&mut self, lasts: f64) -> (u32, Besides) {
        let rng = &mut self.rng;
        let tenant = self.tenants.as_ref().map_or(0, |tenants| tenants.sample(rng));
        let mut seconds = |time: Option<ServiceTime>| time.map_or(0.0, |time| in_billionths(time.sample(rng)));
        (tenant, Besides { sends: seconds(self.sends), reads: seconds(self.reads), lasts, waited: 0.0 })
    }
}

impl Run<'_> {
    /// Whose request it is, as far as the sentry knows. Two courses have no tenant in common.
    pub(super) fn tenant(&self, subject: &Subject) -> TenantKey {
        match subject.tenant {
            0 => TenantKey::NONE,
            _ if !self.world.tells_tenants => TenantKey::NONE,
            rank => TenantKey(u64::from(subject.course) << 32 | u64::from(rank)),
        }
    }

    /// A client begins to send a request that the sentry waits for.
    pub(super) fn begin_sending(&mut self, now: Timestamp, flying: Flying) {
        let sends = Duration::from_secs_f64(flying.besides.sends);
        // It is not offered yet.
        let request = self.requests.insert(Flying { counted: true, ..flying }) as u32;
        self.plans.once(now + sends, Happening::Sent { request });
    }

    /// The request is there: it comes only now.
    pub(super) fn sent_at_last(&mut self, now: Timestamp, request: u32) {
        let mut flying = self.requests.remove(request as usize);
        flying.subject.arrived = now;
        flying.subject.target = self.world.target(now);
        self.come(now, Flying { counted: false, ..flying });
    }

    /// The request is at its server, where it had a place meanwhile. Its client may have left.
    pub(super) fn uploaded(&mut self, now: Timestamp, request: u32, server: ServerId) {
        if self.requests[request as usize].gone {
            self.requests.remove(request as usize);
        } else {
            self.begin_work(now, request, server);
        }
    }
}
