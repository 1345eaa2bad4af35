//! What clients that do nothing take of each proxy's memory: connections that rest, and streams of HTTP/2 whose answers
//! wait for room.

use std::net::SocketAddr;
use std::path::Path;

use anyhow::{Context, Result, bail};

use super::contender::{Contender, Duty};
use super::idle::{self, Idle};
use super::load::Shape;
use super::proc_fs;
use super::proxy::PROXY_CORE;
use super::report::{MemoryReport, MemoryRow};

/// What the case with the most connections needs: tidegate keeps as many descriptors for servers as for clients, and
/// 256 for everything else.
const OPEN_FILES: u64 = 2 * 9_500 + 256;

/// What is asked for.
const PATH: &str = "/1k";

/// A case of memory.
#[derive(Debug)]
pub struct MemoryCase {
    /// Short name, as on the command line.
    pub name: &'static str,
    title: &'static str,
    clients: Clients,
    connections: usize,
}

/// What clients do before they do nothing.
#[derive(Debug, Clone, Copy)]
enum Clients {
    /// Each was answered one request.
    Http1,
    /// Each was answered one request, by HTTP/2.
    Http2,
    /// Each has so many requests by HTTP/2 under way, and takes no body.
    Http2Streams(u32),
}

/// All of them.
pub const MEMORY_CASES: &[MemoryCase] = &[
    MemoryCase {
        name: "memory",
        title: "memory with 9,500 idle client connections",
        clients: Clients::Http1,
        // 10,000 need more descriptors than the 20,000 that some machines give to a process at most.
        connections: 9_500,
    },
    MemoryCase {
        name: "memory-h2c",
        title: "memory with 5,000 idle client connections of HTTP/2, in clear text",
        clients: Clients::Http2,
        connections: 5000,
    },
    MemoryCase {
        name: "memory-streams",
        title: "memory with 5,000 streams of HTTP/2, 100 on each connection, whose answers of 1 kB wait for room",
        clients: Clients::Http2Streams(100),
        connections: 50,
    },
];

/// Lets this process and its children have as many files open as the cases need.
///
/// # Errors
/// When the hard limit is lower.
pub fn raise_file_limit() -> Result<()> {
    idle::raise_file_limit(OPEN_FILES)
}

impl MemoryCase {
    /// Starts every contender in each round, and looks at its memory before and after the clients came.
    ///
    /// # Errors
    /// When one does not start, or closes a connection.
    pub fn measure(
        &self,
        contenders: &[Contender],
        rounds: usize,
        origin: SocketAddr,
        dir: &Path,
    ) -> Result<MemoryReport> {
        println!("── {}", self.title);
        let able = contenders.iter().filter(|contender| contender.duties.contains(&Duty::Pass));
        let mut rows: Vec<_> = able
            .map(|contender| (contender, MemoryRow { name: contender.name.to_owned(), samples: Vec::new() }))
            .collect();
        for round in 0..rounds {
            for (contender, row) in &mut rows {
                let (without, with) =
                    self.sample(contender, origin, dir).with_context(|| format!("{} in `{}`", row.name, self.name))?;
                println!("round {}: {:20} {:6.1} MiB", round + 1, row.name, with.pss as f64 / f64::from(1 << 20));
                row.samples.push((without, with));
            }
        }
        let unit = match self.clients {
            Clients::Http1 | Clients::Http2 => ("connection", self.connections),
            Clients::Http2Streams(streams) => ("stream", self.connections * streams as usize),
        };
        let rows = rows.into_iter().map(|(_, row)| row).collect();
        Ok(MemoryReport { name: self.name.to_owned(), title: self.title.to_owned(), unit, rows })
    }

    fn sample(
        &self,
        contender: &Contender,
        origin: SocketAddr,
        dir: &Path,
    ) -> Result<(proc_fs::Memory, proc_fs::Memory)> {
        let shape = if matches!(self.clients, Clients::Http1) { Shape::KeepAlive } else { Shape::Http2 };
        let service = contender.start((Duty::Pass, shape), origin, PROXY_CORE, dir)?;
        let first = self.open(service.address, 1)?;
        let without = proc_fs::memory(service.pid())?;
        let idle = self.open(service.address, self.connections)?;
        let with = proc_fs::memory(service.pid())?;
        let open = idle.still_open();
        drop(first);
        if open < self.connections {
            bail!("{} of {} connections were closed", self.connections - open, self.connections);
        }
        Ok((without, with))
    }

    fn open(&self, address: SocketAddr, connections: usize) -> Result<Idle> {
        match self.clients {
            Clients::Http1 => Idle::open(address, PATH, connections),
            Clients::Http2 => Idle::open_http2(address, PATH, connections, None),
            Clients::Http2Streams(streams) => Idle::open_http2(address, PATH, connections, Some(streams)),
        }
    }
}
