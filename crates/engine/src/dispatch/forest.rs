//! A tournament tree ([`Least`]) for the servers of each partition: the least of a partition's numbers in log2(n)
//! steps.

use alloc::vec::Vec;

use super::least::Least;
use crate::fleet::ServerState;
use crate::request::ServerId;
use crate::rng::Rng;

/// Trees, and where each server stands.
#[derive(Debug)]
pub(super) struct Forest {
    trees: Vec<Tree>,
    /// By server: its position in its partition's tree.
    position: Vec<u32>,
}

#[derive(Debug)]
struct Tree {
    least: Least,
    members: Vec<ServerId>,
}

impl Forest {
    /// The servers by partition, each with its number; `None` takes nothing.
    pub(super) fn new(servers: &[ServerState], number: impl Fn(&ServerState) -> Option<f64>) -> Forest {
        let groups = servers.iter().map(group).max().map_or(1, |last| last + 1);
        let mut members: Vec<Vec<ServerId>> = alloc::vec![Vec::new(); groups];
        let mut position = Vec::with_capacity(servers.len());
        for server in servers {
            let members = &mut members[group(server)];
            position.push(members.len() as u32);
            members.push(server.id);
        }
        let tree = |members: Vec<ServerId>| {
            let least = Least::new(members.iter().map(|id| number(&servers[id.index()])));
            Tree { least, members }
        };
        Forest { trees: members.into_iter().map(tree).collect(), position }
    }

    /// A server's number changes.
    pub(super) fn set(&mut self, server: &ServerState, number: Option<f64>) {
        let position = self.position[server.id.index()] as usize;
        self.trees[group(server)].least.set(position, number);
    }

    /// A server with a partition's least number, each as likely; of all servers where they are not divided.
    pub(super) fn draw(&self, partition: Option<u8>, rng: &mut Rng) -> Option<ServerId> {
        let tree = self.trees.get(usize::from(partition.unwrap_or(0)))?;
        tree.least.draw(rng).map(|at| tree.members[at])
    }
}

/// The partition of a server; the first where they are not divided.
pub(super) fn group(server: &ServerState) -> usize {
    usize::from(server.partition.unwrap_or(0))
}
