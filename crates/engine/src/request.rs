//! Requests as the engine sees them, and the plain numbers that identify things.

use core::fmt;

use crate::time::Timestamp;

/// An importance class: 0 is the most important. Shown to people as rank 1, 2, 3, ...
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClassId(pub u8);

impl ClassId {
    /// The class's position in tables.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for ClassId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0 as u32 + 1)
    }
}

/// What is asked for (a route). Independent of the class: it decides cost, stage and resource tags.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestTypeId(pub u16);

impl RequestTypeId {
    /// The type's position in tables.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// A server of the application: its slot in the controller's table. A removed server's slot is used again
/// only once nothing is in flight there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServerId(pub u16);

impl ServerId {
    /// The server's position in tables.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// Resource tags (at most 64): which resources a request uses heavily.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Tags(pub u64);

impl Tags {
    /// Whether tag number `tag` is set.
    pub const fn contains(self, tag: u8) -> bool {
        self.0 >> (tag & 63) & 1 == 1
    }

    /// These tags and `other`'s.
    pub const fn union(self, other: Tags) -> Tags {
        Tags(self.0 | other.0)
    }
}

/// A hash of the request's URL without its query: the key of the cost table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct UrlKey(pub u64);

/// A hash of what ties a request to others: the value of a session's cookie, say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct AffinityKey(pub u64);

impl AffinityKey {
    /// The request is not tied to a server.
    pub const NONE: AffinityKey = AffinityKey(0);
}

/// On whose behalf a request comes: a hash of a key, or a client's network. Requests of a class share it fairly among
/// tenants while there is not enough.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TenantKey(pub u64);

impl TenantKey {
    /// Tenants are not told apart.
    pub const NONE: TenantKey = TenantKey(0);
}

/// What the engine knows of a request when it arrives. The classifier makes it; plain data, cheap to copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// How important it is.
    pub class: ClassId,
    /// What it asks for.
    pub request_type: RequestTypeId,
    /// Which resources it is known to strain.
    pub tags: Tags,
    /// Its URL, for the cost table.
    pub url: UrlKey,
    /// Which page or session it is of.
    pub affinity: AffinityKey,
    /// On whose behalf it comes.
    pub tenant: TenantKey,
    /// When its client stops waiting for the answer; `None`: nobody said. It makes a refusal earlier and nothing else:
    /// a request does not go before others by it.
    pub deadline: Option<Timestamp>,
    /// It was tried before, as its client says or as was seen: first tries of its class go before it.
    pub is_retry: bool,
}

/// The controller's name for one accepted request. Drivers wrap it in a permit that reports a cancel when
/// dropped without an outcome. A ticket used after its end is ignored and counted, never mistaken for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket {
    pub(crate) slot: u32,
    pub(crate) generation: u32,
}

impl Ticket {
    /// A number that is unique among live tickets, for logs and maps.
    pub const fn as_u64(self) -> u64 {
        (self.generation as u64) << 32 | self.slot as u64
    }

    /// The ticket of which [`Ticket::as_u64`] told `number`. Any other number is a ticket that no request has, and is
    /// treated as one used after its end.
    ///
    /// ```
    /// # use core::time::Duration;
    /// # use tidegate_engine::*;
    /// # let sla = Sla::constant(Statistic::P95, Duration::from_millis(500)).unwrap();
    /// # let setup = Setup::simple("shop", sla, [ServerSetup::new("one")]);
    /// # let mut controller = Controller::new(setup, 1, 7, Box::new(NoEvents)).unwrap();
    /// let Decision::Admit { ticket, .. } = controller.handle_arrival(Timestamp::ZERO, Request::default()) else {
    ///     panic!("an idle controller admits");
    /// };
    /// assert_eq!(Ticket::from_u64(ticket.as_u64()), ticket);
    /// assert!(controller.is_live(ticket) && !controller.is_live(Ticket::from_u64(u64::MAX)));
    /// controller.handle_completion(Timestamp::from_millis(20), ticket, Outcome::answered());
    /// assert!(!controller.is_live(ticket));
    /// ```
    pub const fn from_u64(number: u64) -> Ticket {
        Ticket { slot: number as u32, generation: (number >> 32) as u32 }
    }
}
