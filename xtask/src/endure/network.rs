//! Faults of the network: a namespace of the run's own, in which everything talks over loopback, and packets that are
//! lost or late in it.
//!
//! Rules look at packets as they come in, so one that is lost in one direction only is lost for who does not get it:
//! what it answers to others arrives. Delay comes from a narrow link with a queue, as it mostly does, and from relays
//! (`relay.rs`): `netem`, which could delay without either, is not in every kernel.

use std::process::{Command, ExitCode};

use anyhow::{Context, Result};

use crate::command::{find_program, output};

/// The nftables table of the faults; the namespace has no other.
const TABLE: &str = "tidegate_chaos";
/// What a narrow link carries, and the longest queue before it, in bytes: a quarter of a second. Twice what the servers
/// can do takes some three times as much.
const NARROW: (&str, &str) = ("6mbit", "190000");

/// Says which packets a fault takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Packets {
    /// Those to a TCP port.
    To(u16),
    /// Those from a TCP port.
    From(u16),
    /// Datagrams to these UDP ports.
    Datagrams(Vec<u16>),
    /// So many of a hundred of those to and from these TCP ports.
    Share(u32, Vec<u16>),
}

/// Runs this program again, with the same arguments and `--inside`, in a network of its own.
///
/// # Errors
/// When the system gives no such network: it takes root, or user namespaces.
pub fn again_inside() -> Result<ExitCode> {
    let mut unshare = Command::new("unshare");
    if !rustix::process::geteuid().is_root() {
        unshare.arg("--map-root-user");
    }
    unshare.arg("--net").arg(std::env::current_exe()?).args(std::env::args_os().skip(1)).arg("--inside");
    let status = unshare.status().context("cannot start unshare (Debian package util-linux)")?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Makes the new network's loopback work.
///
/// # Errors
/// When the system does not do it.
pub fn raise() -> Result<()> {
    system("ip", &["link", "set", "lo", "up"])
}

/// Loses packets from now on.
///
/// # Errors
/// When the system does not do it.
pub fn lose(packets: &Packets) -> Result<()> {
    let mut text = format!("table inet {TABLE} {{\n chain lost {{\n  type filter hook input priority 0;\n");
    for rule in rules(packets) {
        text += &format!("  {rule} drop\n");
    }
    text += " }\n}";
    system("nft", &[&text])
}

/// Makes the link narrow from now on.
///
/// # Errors
/// When the system does not do it.
pub fn narrow() -> Result<()> {
    let (rate, queue) = NARROW;
    system("tc", &["qdisc", "add", "dev", "lo", "root", "tbf", "rate", rate, "burst", "128kb", "limit", queue])
}

/// Everything arrives again.
///
/// # Errors
/// When the system does not do it.
pub fn mend() -> Result<()> {
    // Made first, so that it can be deleted where it was not there.
    system("nft", &[&format!("add table inet {TABLE}; delete table inet {TABLE}")])?;
    let narrow = output(Command::new(program("tc")).args(["qdisc", "show", "dev", "lo"]))?.contains("tbf");
    if narrow { system("tc", &["qdisc", "del", "dev", "lo", "root"]) } else { Ok(()) }
}

/// The conditions of nftables for packets that are lost.
fn rules(packets: &Packets) -> Vec<String> {
    match packets {
        Packets::To(port) => vec![format!("tcp dport {port}")],
        Packets::From(port) => vec![format!("tcp sport {port}")],
        Packets::Datagrams(ports) => ports.iter().map(|port| format!("udp dport {port}")).collect(),
        Packets::Share(of_hundred, ports) => {
            let ports: Vec<_> = ports.iter().map(u16::to_string).collect();
            let rule = |end: &str| format!("tcp {end} {{ {} }} numgen random mod 100 < {of_hundred}", ports.join(", "));
            vec![rule("dport"), rule("sport")]
        }
    }
}

fn system(name: &str, args: &[&str]) -> Result<()> {
    output(Command::new(program(name)).args(args)).map(|_| ())
}

/// A plain user's PATH leaves out where these lie.
fn program(name: &str) -> std::path::PathBuf {
    find_program(name).unwrap_or_else(|| name.into())
}
