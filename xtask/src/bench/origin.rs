//! The server behind the proxies: an nginx with a file of 1 kB and one of 64 kB.

use std::fmt::Write as _;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use super::contender::{nginx_arguments, nginx_frame};
use super::service::{Service, free_address};
use crate::command::find_program;

/// Starts it on one core. Gives also where it speaks HTTP/2.
///
/// # Errors
/// When nginx is missing or does not start.
pub fn start_origin(core: usize, dir: &Path) -> Result<(Service, SocketAddr)> {
    let (listen, http2) = (free_address()?, free_address()?);
    let listens = format!("listen {listen}; listen {http2} http2;");
    Ok((start(&listens, listen, core, dir)?, http2))
}

/// The same at every address of 127.0.0.0/8, for thousands of servers in one.
///
/// # Errors
/// As [`start_origin`].
pub fn start_wide_origin(core: usize, dir: &Path) -> Result<Service> {
    let address = free_address()?;
    // It has to listen everywhere for that, and answers nobody else.
    let listens = format!("listen 0.0.0.0:{}; allow 127.0.0.0/8; deny all;", address.port());
    start(&listens, address, core, dir)
}

fn start(listens: &str, address: SocketAddr, core: usize, dir: &Path) -> Result<Service> {
    let program = find_program("nginx").context("the origin is nginx (Debian package nginx); install it")?;
    let files = dir.join("files");
    fs::create_dir_all(&files)?;
    fs::write(files.join("1k"), vec![b'x'; 1024])?;
    fs::write(files.join("64k"), vec![b'x'; 65536])?;
    let mut http = String::new();
    let _ = writeln!(http, "sendfile on; tcp_nopush on; open_file_cache max=16;");
    let _ = writeln!(http, "server {{ {listens} root {}; }}", files.display());
    let file = dir.join("origin.conf");
    fs::write(&file, nginx_frame("origin", 1, &http))?;
    let mut command = Command::new(program);
    command.args(nginx_arguments(&file, 1)).current_dir(dir);
    Service::start("origin", command, core, address, dir)
}
