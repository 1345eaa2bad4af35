//! The policer: installed, given rates and leases, counted, removed.

use std::io::{self, Write};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use thiserror::Error;

use crate::netlink::{Limit, Netlink};
use crate::owner::Owner;
use crate::rules::{Counts, Plan};

/// A rate is in force for so long after it was set or renewed.
pub const LEASE: Duration = Duration::from_secs(10);

/// In PATH, or where distributions put it, which is not in everybody's.
const NFT: [&str; 2] = ["nft", "/usr/sbin/nft"];

/// A rate moves when it is off by this share: each change fills the buckets.
const DEAD_BAND: f64 = 0.05;

/// Why connections cannot be policed here.
#[derive(Debug, Error)]
pub enum InstallError {
    /// The program that installs rules is not there.
    #[error("the program \"nft\" is not there; install the package nftables")]
    NoProgram,
    /// The process lacks CAP_NET_ADMIN.
    #[error(
        "not permitted to change packet filters; start as root, or give the program CAP_NET_ADMIN; an upgrade is no such \
         start, as what serves without it gave it up"
    )]
    NotPermitted,
    /// `nft` says no.
    #[error("nft does not take the rules: {0}")]
    Refused(String),
    /// Another process polices the same address.
    #[error("process {pid} polices connections to this address already ({table}); stop it, or listen elsewhere")]
    Occupied {
        /// Process number of the owner.
        pid: u32,
        /// Name of the table.
        table: String,
    },
    /// Two classes claim the same clients.
    #[error("the classes \"{0}\" and \"{1}\" have clients in common; an address can be in one of them only")]
    Overlap(String, String),
    /// The helper says no, or is dead.
    #[error("{0}")]
    Helper(String),
    /// Netlink or `/proc` do not work.
    #[error("the kernel's packet filter cannot be talked to: {0}")]
    Kernel(#[from] io::Error),
}

/// Token buckets for new connections, by source. Dropped, it removes its rules.
#[derive(Debug)]
pub struct SynPolicer {
    netlink: Netlink,
    plan: Plan,
    table: String,
    /// The handle of each class's limit.
    handles: Vec<u64>,
    rate: Option<f64>,
    /// The rate that the rules have, in force or not.
    installed: Option<f64>,
    changes: u64,
    /// Whether the table is another's.
    is_left: bool,
}

impl SynPolicer {
    /// Installs the rules; they match nothing until there is a rate. Rules of processes that are dead are removed, also
    /// those for other addresses.
    ///
    /// # Errors
    /// Why it cannot be done.
    pub fn install(plan: Plan) -> Result<SynPolicer, InstallError> {
        if let Some((one, other)) = plan.overlap() {
            return Err(InstallError::Overlap(one.to_owned(), other.to_owned()));
        }
        let owner = Owner::this().ok_or_else(|| io::Error::other("there is no /proc"))?;
        let mut netlink = Netlink::open()?;
        let table = plan.table();
        clean_up(&mut netlink, &table, &owner).map_err(denied)??;
        run_nft(&NFT, &plan.to_nft(&owner))?;
        let mut policer = SynPolicer {
            netlink,
            table,
            handles: Vec::new(),
            rate: None,
            installed: None,
            changes: 0,
            is_left: false,
            plan,
        };
        policer.find_rules()?;
        Ok(policer)
    }

    /// From now on so many connections per second, for [`LEASE`]; `None`: all. A rate that is within a twentieth of the
    /// last stays as it is, because every change fills the buckets. Whether the rules changed.
    ///
    /// # Errors
    /// When the kernel refuses; after that, the last lease runs out.
    pub fn set_rate(&mut self, rate: Option<f64>) -> io::Result<bool> {
        let Some(wanted) = rate.map(|rate| rate.max(1e-3)) else {
            if self.rate.take().is_some() {
                self.netlink.lease(&self.table, "alive", &self.plan.ports(), None)?;
            }
            return Ok(false);
        };
        let is_near = self.installed.is_some_and(|installed| (wanted / installed - 1.0).abs() <= DEAD_BAND);
        if !is_near {
            self.install_rate(wanted)?;
        }
        if self.rate.is_none() {
            self.lease()?;
        }
        self.rate = self.installed;
        Ok(!is_near)
    }

    /// Prolongs the lease: call it well within [`LEASE`]. Nothing happens while everything is let in.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn renew(&mut self) -> io::Result<()> {
        if self.rate.is_some() { self.lease() } else { Ok(()) }
    }

    /// Connections by class, since the rules were installed.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn counts(&mut self) -> io::Result<Vec<Counts>> {
        let names = self.plan.names();
        let mut counts: Vec<Counts> =
            names.into_iter().map(|class| Counts { class, admitted: 0, refused: 0 }).collect();
        self.netlink.counters(&self.table, |counter| {
            let Some((kind, class)) = counter.name.split_once('_') else { return };
            let Some(class) = class.parse().ok().and_then(|at: usize| counts.get_mut(at)) else { return };
            match kind {
                "admitted" => class.admitted = counter.packets,
                "refused" => class.refused = counter.packets,
                _ => {}
            }
        })?;
        Ok(counts)
    }

    /// Connections per second that are let in; `None`: all.
    pub fn rate(&self) -> Option<f64> {
        self.rate
    }

    /// How often the rules were changed.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// The name of its table.
    pub fn table(&self) -> &str {
        &self.table
    }

    /// Another one has the table now: it stays as it is.
    pub(crate) fn leave(mut self) {
        self.is_left = true;
    }

    fn install_rate(&mut self, rate: f64) -> io::Result<()> {
        match self.replace_rules(rate) {
            // Not every kernel keeps the handle of a rule that is replaced.
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => {
                self.find_rules()?;
                self.replace_rules(rate)?;
            }
            result => result?,
        }
        self.installed = Some(rate);
        self.changes += 1;
        Ok(())
    }

    fn find_rules(&mut self) -> io::Result<()> {
        self.handles.clear();
        for class in 0..self.plan.names().len() {
            let handle = self.netlink.first_rule(&self.table, &chain(class))?;
            self.handles.push(handle.ok_or_else(|| io::Error::other("a rule that was installed is not there"))?);
        }
        Ok(())
    }

    fn replace_rules(&mut self, rate: f64) -> io::Result<()> {
        let classes = self.plan.parts().into_iter().zip(self.plan.depths()).zip(&self.handles).enumerate();
        let rules: Vec<_> = classes
            .map(|(at, ((part, burst), handle))| {
                let per_minute = (rate * part * 60.0).round().clamp(1.0, 6e10) as u64;
                (chain(at), *handle, Limit { per_minute, burst }, format!("refused_{at}"))
            })
            .collect();
        self.netlink.replace_limits(&self.table, &rules)
    }

    fn lease(&mut self) -> io::Result<()> {
        self.netlink.lease(&self.table, "alive", &self.plan.ports(), Some(LEASE.as_millis() as u64))
    }
}

impl Drop for SynPolicer {
    fn drop(&mut self) {
        if !self.is_left {
            // If it fails, the lease runs out, and the next start removes the table.
            let _ = self.netlink.delete_table(&self.table);
        }
    }
}

fn chain(class: usize) -> String {
    format!("class_{class}")
}

/// Removes tables whose owners are dead. An error inside when the wanted one's is not.
fn clean_up(netlink: &mut Netlink, wanted: &str, this: &Owner) -> io::Result<Result<(), InstallError>> {
    for (table, chain) in netlink.chains()? {
        let Some(owner) = Owner::from_chain(&chain).filter(|_| table.starts_with("tidegate_")) else { continue };
        if table == wanted && owner != *this && owner.is_alive() {
            return Ok(Err(InstallError::Occupied { pid: owner.pid, table }));
        }
        if !owner.is_alive() {
            netlink.delete_table(&table)?;
        }
    }
    Ok(Ok(()))
}

fn denied(error: io::Error) -> InstallError {
    match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => InstallError::NotPermitted,
        _ => InstallError::Kernel(error),
    }
}

fn run_nft(programs: &[&str], rules: &str) -> Result<(), InstallError> {
    let mut child = match first_of(programs) {
        Ok(child) => child,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(InstallError::NoProgram),
        Err(error) => return Err(error.into()),
    };
    if let Some(mut input) = child.stdin.take() {
        // What is wrong, nft says itself.
        let _ = input.write_all(rules.as_bytes());
    }
    let output = child.wait_with_output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    match output.status.success() {
        true => Ok(()),
        false if said.contains("Operation not permitted") => Err(InstallError::NotPermitted),
        false => Err(InstallError::Refused(said.lines().next().unwrap_or("without a word").to_owned())),
    }
}

/// The first of some programs that is there, started with rules to come on its input.
fn first_of(programs: &[&str]) -> io::Result<Child> {
    let mut result = Err(io::ErrorKind::NotFound.into());
    for program in programs {
        let mut command = Command::new(program);
        result = command.args(["-f", "-"]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
        if !result.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
            break;
        }
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_named_with_what_to_do() {
        let gone = ["no-such-program-here", "/usr/sbin/no-such-program-either"];
        let error = run_nft(&gone, "").expect_err("it is not there").to_string();
        assert!(error.contains("install the package nftables"), "{error}");
        assert!(matches!(denied(io::Error::from_raw_os_error(libc::EPERM)), InstallError::NotPermitted));
        // A kernel that was built without it.
        let error = denied(io::Error::from_raw_os_error(libc::EPROTONOSUPPORT));
        assert!(matches!(error, InstallError::Kernel(_)) && error.to_string().contains("packet filter"), "{error}");
    }

    #[test]
    fn what_nft_says_is_passed_on() {
        // Whatever it is that reads no rules: its first line of complaint, or that it had none.
        let error = run_nft(&["false"], "").expect_err("it fails").to_string();
        assert_eq!(error, "nft does not take the rules: without a word");
    }
}
