//! The service in Go, the sentry before it, and what both tell of themselves.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::Value;

use super::programs::Programs;
use crate::bench::service::{Service, free_address};
use crate::real::sentry::{Sentry, ask};

/// Calls at work at once, and how long each takes, milliseconds.
const WORKERS: u32 = 4;
const WORK_MS: u32 = 20;
/// Calls a second that it can answer: known, since its work is a wait.
pub const CAPACITY: f64 = WORKERS as f64 * 1e3 / WORK_MS as f64;
/// Calls at a time that keep all workers busy.
pub const BUSY: u32 = 2 * WORKERS;

/// What the service did since it began.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Counts {
    /// Calls that got a worker.
    pub begun: u64,
    /// Calls whose time was up before they had one.
    pub expired: u64,
    /// Calls that nobody waited for when their work was done.
    pub wasted: u64,
    /// Calls that said they had been tried before.
    pub retried: u64,
}

/// The service, over gRPC and over HTTP/2; it stops when dropped.
pub struct Shop {
    service: Service,
    /// Where it speaks HTTP, of both versions.
    pub http: SocketAddr,
}

impl Shop {
    /// Starts it on one core.
    ///
    /// # Errors
    /// When it does not listen.
    pub fn start(programs: &Programs, core: usize, dir: &Path) -> Result<Self> {
        let (grpc, http) = (free_address()?, free_address()?);
        let mut command = Command::new(programs.path("service"));
        command.args(["-grpc", &grpc.to_string(), "-http", &http.to_string()]);
        command.args(["-workers", &WORKERS.to_string(), "-work", &format!("{WORK_MS}ms")]);
        Ok(Self { service: Service::start("service", command, core, grpc, dir)?, http })
    }

    /// Where it speaks gRPC.
    pub fn grpc(&self) -> SocketAddr {
        self.service.address
    }

    /// What it did so far.
    ///
    /// # Errors
    /// When it does not tell.
    pub fn counts(&self) -> Result<Counts> {
        let (_, said) = ask(self.http, "/counts")?;
        let said: Value = serde_json::from_str(&said).context("the service's /counts is not JSON")?;
        let count = |name: &str| said[name].as_u64().with_context(|| format!("the service does not count `{name}`"));
        Ok(Counts {
            begun: count("begun")?,
            expired: count("expired")?,
            wasted: count("wasted")?,
            retried: count("retried")?,
        })
    }
}

impl std::ops::Sub for Counts {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        Self {
            begun: self.begun - before.begun,
            expired: self.expired - before.expired,
            wasted: self.wasted - before.wasted,
            retried: self.retried - before.retried,
        }
    }
}

/// A sentry that knows the target and what is important, and nothing of the service.
///
/// # Errors
/// When it is not built or does not listen.
pub fn guard(service: SocketAddr, important: &str, target: &str, core: usize, dir: &Path) -> Result<Sentry> {
    let listen = free_address()?;
    let text = format!(
        "[[application]]\nname = \"shop\"\nlisten = \"{listen}\"\nservers = [\"h2c://{service}\"]\ntarget = \"{target}\"\n\n\
         [[application.class]]\nname = \"orders\"\nmatch = [{{ path_prefix = \"{important}\" }}]\n\n\
         [[application.class]]\nname = \"reports\"\n"
    );
    Sentry::with_file(&text, listen, core, dir)
}
