//! A server at random, of those that may take a request.

use alloc::vec::Vec;

use super::View;
use super::forest::group;
use crate::fleet::{ServerState, Status};
use crate::request::ServerId;

/// So often a server is drawn that is full or was drawn before, until all are looked at.
const TRIES: usize = 8;

/// Those that may be drawn, by partition.
#[derive(Debug, Default)]
pub(super) struct Candidates {
    groups: Vec<Vec<ServerId>>,
}

impl Candidates {
    /// Of these servers, of which those in state `taking` take requests.
    pub(super) fn new(servers: &[ServerState], taking: Status) -> Candidates {
        let mut groups = Vec::new();
        for server in servers.iter().filter(|server| server.status == Status::Up || server.status == taking) {
            if groups.len() <= group(server) {
                groups.resize(group(server) + 1, Vec::new());
            }
            groups[group(server)].push(server.id);
        }
        Candidates { groups }
    }

    /// Any server but `not` that takes the request, each as likely; `None` when there is none.
    pub(super) fn draw(&self, view: &mut View<'_>, not: Option<ServerId>) -> Option<ServerId> {
        let ids = self.groups.get(usize::from(view.partition.unwrap_or(0)))?;
        for _ in 0..TRIES.min(ids.len()) {
            let id = ids[view.rng.below(ids.len())];
            if Some(id) != not && view.takes(&view.servers[id.index()]) {
                return Some(id);
            }
        }
        let (mut chosen, mut seen) = (None, 0);
        for &id in ids {
            if Some(id) != not && view.takes(&view.servers[id.index()]) {
                seen += 1;
                // The n-th replaces the choice with probability 1/n: all are equally likely.
                chosen = if view.rng.below(seen) == 0 { Some(id) } else { chosen };
            }
        }
        chosen
    }

    /// Of two such servers, drawn at random, the one with less; the first where both have as much.
    pub(super) fn lesser_of_two(
        &self,
        view: &mut View<'_>,
        mut load: impl FnMut(&View<'_>, ServerId) -> f64,
    ) -> Option<ServerId> {
        let one = self.draw(view, None)?;
        let Some(other) = self.draw(view, Some(one)) else { return Some(one) };
        let loads = (load(view, one), load(view, other));
        Some(if loads.1 < loads.0 { other } else { one })
    }
}

#[cfg(test)]
mod tests {
    use alloc::format;

    use super::*;
    use crate::fleet::new_server;
    use crate::rng::Rng;
    use crate::setup::ServerSetup;
    use crate::time::Timestamp;

    /// 30 servers in three partitions, of which every seventh is down and every eleventh full.
    fn servers() -> Vec<ServerState> {
        let server = |at: usize| {
            let mut server = new_server(at, &ServerSetup::new(format!("s{at}")));
            server.partition = Some(at as u8 % 3);
            server.status = if at.is_multiple_of(7) { Status::Down } else { Status::Up };
            (server.max_connections, server.in_flight) = (Some(5), if at.is_multiple_of(11) { 5 } else { 1 });
            server
        };
        (0..30).map(server).collect()
    }

    /// How often each is drawn in 30,000 times.
    fn drawn(servers: &[ServerState], partition: u8, try_down: bool, not: Option<ServerId>) -> Vec<u32> {
        let taking = if try_down { Status::Down } else { Status::Up };
        let candidates = Candidates::new(servers, taking);
        let mut rng = Rng::new(7);
        let mut counts = alloc::vec![0; servers.len()];
        for _ in 0..30_000 {
            let (now, partition) = (Timestamp::ZERO, Some(partition));
            let mut view = View { now, servers, rng: &mut rng, try_down, except: None, partition };
            if let Some(id) = candidates.draw(&mut view, not) {
                counts[id.index()] += 1;
            }
        }
        counts
    }

    #[test]
    fn those_of_the_partition_that_take_requests_are_drawn_equally_often_and_no_others() {
        let servers = servers();
        for (partition, try_down, not) in [(0, false, None), (1, false, Some(ServerId(4))), (2, true, None)] {
            let counts = drawn(&servers, partition, try_down, not);
            let takes = |server: &&ServerState| {
                let takes = server.status == Status::Up || try_down;
                server.partition == Some(partition) && server.has_room() && takes && Some(server.id) != not
            };
            let wanted: Vec<_> = servers.iter().filter(takes).map(|server| server.id.index()).collect();
            let others = (0..servers.len()).filter(|at| !wanted.contains(at));
            assert_eq!(others.map(|at| counts[at]).sum::<u32>(), 0, "{counts:?}");
            let expected = 30_000 / wanted.len() as u32;
            // Six standard deviations of some 4,000 draws are a tenth.
            for at in wanted {
                assert!(counts[at].abs_diff(expected) < expected / 10, "{at} of {partition}: {counts:?}");
            }
        }
        assert_eq!(drawn(&servers, 3, false, None).iter().sum::<u32>(), 0, "there is no such partition");
    }
}
