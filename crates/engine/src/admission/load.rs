//! Load of an application, as policies see it.

use crate::decision::Reason;

/// How loaded the application is. A policy that starts waiting requests sees the numbers move as it does.
#[derive(Clone, Copy, Debug, Default)]
pub struct Load {
    /// Requests in flight (in shadow mode: only those that would have been admitted).
    pub in_flight: usize,
    /// How many of these hang: their servers do not work on them, as it seems, for others overtook them.
    pub hanging: usize,
    /// Servers that take requests.
    pub servers: usize,
    /// Sum of these servers' effective processors.
    pub processors: f64,
    /// How many requests surely do not slow each other down: the processors, or one a server while their number is not
    /// yet known for sure.
    pub idle_processors: f64,
    /// Whether costs and processors are known one by one, and not only in relation to each other: servers were seen
    /// with a single request.
    pub is_sure: bool,
    /// Requests that the servers' connection limits still allow; `usize::MAX` without limits.
    pub free: usize,
    /// Q: queueing delay at the servers before service begins, seconds, on average; 0 of a server whose nucleus does
    /// not say, where response times hold it.
    pub queueing_delay: f64,
    /// By how much more (or less) the servers have in service than is in flight here, as nuclei report it.
    pub elsewhere: f64,
    /// By which part what waits for a processor is made to look longer, to a tenant above its share; and how many of
    /// [`Load::in_flight`] are not there.
    pub(crate) pressure: f64,
    pub(crate) pressed: usize,
}

impl Load {
    /// Requests in flight that servers work on. In case those that seem to hang do not, they make room for no more than
    /// are in service beside them.
    pub fn at_work(&self) -> usize {
        self.in_flight - self.hanging.min(self.in_flight / 2)
    }

    /// Requests in service, on all servers, whoever sent them.
    pub fn in_service(&self) -> f64 {
        (self.at_work() as f64 + self.elsewhere).max(0.0)
    }

    /// What is left of the servers' processors for this application: those that serve others' requests do not count.
    pub fn own_processors(&self) -> f64 {
        let others = self.elsewhere.max(0.0);
        if others == 0.0 {
            return self.processors;
        }
        let in_service = self.in_service().max(others);
        self.processors - others * (self.processors / in_service).min(1.0)
    }

    /// eta: requests in service per server, on average.
    pub fn in_service_per_server(&self) -> f64 {
        self.in_service() / self.servers.max(1) as f64
    }

    /// Makes what waits for a processor look longer by this part of it. By how many requests it does.
    pub(crate) fn press(&mut self, part: f64) -> usize {
        let waits = (self.in_flight as f64 - self.idle_processors).max(0.0);
        let more = libm::ceil(waits * part) as usize;
        self.in_flight += more;
        (self.pressure, self.pressed) = (part, more);
        more
    }

    /// Why a request cannot be let in: for want of a server, else of room at the servers, else for `otherwise`.
    pub fn refusal(&self, otherwise: Reason) -> Reason {
        match (self.servers, self.free) {
            (0, _) => Reason::NoServer,
            (_, 0) => Reason::ServerLimit,
            _ => otherwise,
        }
    }

    /// k: effective processors of one server, on average.
    pub fn processors_per_server(&self) -> f64 {
        if self.servers == 0 { 1.0 } else { self.processors / self.servers as f64 }
    }
}

#[cfg(test)]
mod tests {
    use super::Load;

    #[test]
    fn who_hangs_makes_room_for_no_more_than_work_beside_it() {
        let at_work = |in_flight, hanging| Load { in_flight, hanging, ..Load::default() }.at_work();
        assert_eq!([at_work(1, 1), at_work(2, 1), at_work(3, 1)], [1, 1, 2]);
        assert_eq!([at_work(3, 3), at_work(4, 3)], [2, 2]);
    }
}
