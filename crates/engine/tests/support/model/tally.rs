//! Where the model's requests are: counted in one go, as this is done after every step.

use tidegate_engine::Open;

use super::{Kind, Live};

/// How many are where.
#[derive(Clone, Copy, Debug, Default)]
pub struct Places {
    pub waiting: usize,
    /// At a server, and work there, wanted or not.
    pub working: usize,
    /// Of those that are work: what nobody waits for.
    pub ghosts: usize,
    pub streams: usize,
    pub tunnels: usize,
}

/// In all, by server and by class.
pub struct Tally {
    pub all: Places,
    pub servers: Vec<Places>,
    pub classes: Vec<Places>,
}

impl Tally {
    pub fn of<'a>(live: impl Iterator<Item = &'a Live>, servers: usize, classes: usize) -> Self {
        let none = Places::default();
        let mut tally = Tally { all: none, servers: vec![none; servers], classes: vec![none; classes] };
        for one in live {
            tally.all.add(one);
            tally.classes[one.class].add(one);
            if let Some(server) = one.server {
                tally.servers[server.index()].add(one);
            }
        }
        tally
    }
}

impl Places {
    fn add(&mut self, live: &Live) {
        self.ghosts += usize::from(live.kind == Kind::Ghost);
        let place = match live.kind {
            _ if live.server.is_none() => &mut self.waiting,
            Kind::Wanted | Kind::Ghost => &mut self.working,
            Kind::Open(Open::Tunnel) => &mut self.tunnels,
            Kind::Open(Open::Stream | Open::Poll) => &mut self.streams,
        };
        *place += 1;
    }
}
